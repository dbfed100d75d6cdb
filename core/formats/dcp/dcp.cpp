#include "formats/dcp/dcp.h"

#include "formats/dcp/dcp_reader.h"
#include "formats/dcp/dcp_writer.h"

namespace shardscope {

namespace {

Format::Laid layout(const Catalog& wanted, const WriteOptions&) {
    return dcp::layoutDcp(wanted);
}

}  // namespace

const Format& dcpFormat() {
    static const Format format{
        .about = {.name = "dcp",
                  .title = "PyTorch distributed checkpoint (DCP)",
                  .synonyms = {"distcp", "pytorch-dcp"},
                  .suffixes = {"distcp"},
                  .reads = true,
                  .writes = true,
                  .generations = {"torch 2.0 to 2.2", "torch 2.3", "torch 2.4 to 2.8", "torch 2.9 to 2.14",
                                  "torch 2.15", "saves without collectives (__R.metadata)",
                                  "zstd-compressed entries"},
                  .shards = true,
                  .objects = true,
                  .aliases = true,
                  .nesting = true},
        .probe = dcp::probeDcp,
        .open = dcp::openDcp,
        .cannotHold = dcp::cannotHoldInDcp,
        .layout = layout};
    return format;
}

}  // namespace shardscope
