#include "formats/dcp/dcp.h"

#include "formats/dcp/dcp_reader.h"
#include "formats/dcp/dcp_writer.h"

namespace shardscope {

namespace {

class DcpFormat final : public Format {
  public:
    DcpFormat() {
        info_.name = "dcp";
        info_.title = "PyTorch distributed checkpoint (DCP)";
        info_.synonyms = {"distcp", "pytorch-dcp"};
        info_.suffixes = {"distcp"};
        info_.reads = true;
        info_.writes = true;
        info_.generations = {
            "torch 2.0 to 2.2",       "torch 2.3",  "torch 2.4 to 2.8",
            "torch 2.9 to 2.14",      "torch 2.15", "saves without collectives (__R.metadata)",
            "zstd-compressed entries"};
        info_.shards = true;
        info_.objects = true;
        info_.aliases = true;
        info_.nesting = true;
    }

    Probe probe(const Source& source) const override { return dcp::probeDcp(source); }
    Result<std::unique_ptr<Reader>> open(const Source& source, const OpenOptions& options) const override {
        return dcp::openDcp(source, options);
    }
    std::vector<LeftOut> cannotHold(const Catalog& wanted, const WriteOptions&) const override {
        return dcp::cannotHoldInDcp(wanted);
    }
    Result<std::unique_ptr<TargetLayout>> layout(const Catalog& wanted, const WriteOptions&) const override {
        return dcp::layoutDcp(wanted);
    }
};

}  // namespace

const Format& dcpFormat() {
    static const DcpFormat format;
    return format;
}

}  // namespace shardscope
