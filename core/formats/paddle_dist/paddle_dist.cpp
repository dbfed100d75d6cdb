#include "formats/paddle_dist/paddle_dist.h"

#include "formats/paddle_dist/dist_reader.h"
#include "formats/paddle_dist/dist_writer.h"
#include "formats/paddle_dist/names.h"
#include "formats/paddle_dist/save_reader.h"

namespace shardscope {

namespace {

class PaddleFormat final : public Format {
  public:
    PaddleFormat() {
        info_.name = "paddle";
        info_.title = "PaddlePaddle checkpoint (distributed, or a file of paddle.save)";
        info_.synonyms = {"paddle_dist", "paddle_save", "paddlepaddle"};
        info_.suffixes = {"distcp", "pdparams", "pdopt"};
        info_.reads = true;
        info_.generations = {"paddle 2.6",
                             "paddle 3.0",
                             "paddle 3.2",
                             "paddle 3.3",
                             "safetensors in place of pickles",
                             "files of paddle.save, protocols 2 to 5"};
        info_.writes = true;
        info_.variants = paddle::writtenVariants();
        info_.shards = true;
        info_.nesting = true;
    }

    Probe probe(const Source& source) const override {
        const Probe dist = paddle::probeDist(source);
        return dist.match == Probe::Match::no ? paddle::probeSave(source) : dist;
    }
    Result<std::unique_ptr<Reader>> open(const Source& source, const OpenOptions& options) const override {
        if (source.entry.empty() || paddle::parseMetadataName(source.entry))
            return paddle::openDist(source, options);
        return paddle::openSave(source, options);
    }

    std::vector<LeftOut> cannotHold(const Catalog& wanted, const WriteOptions&) const override {
        return paddle::cannotHoldInPaddle(wanted);
    }
    Result<std::unique_ptr<TargetLayout>> layout(const Catalog& wanted,
                                                 const WriteOptions& options) const override {
        return paddle::layoutDist(wanted, options);
    }
};

}  // namespace

const Format& paddleFormat() {
    static const PaddleFormat format;
    return format;
}

}  // namespace shardscope
