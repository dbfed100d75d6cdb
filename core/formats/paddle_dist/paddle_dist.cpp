#include "formats/paddle_dist/paddle_dist.h"

#include "formats/paddle_dist/layouts.h"
#include "formats/paddle_dist/names.h"

namespace shardscope {

namespace {

Probe probe(const Source& source) {
    const Probe dist = paddle::probeDist(source);
    return dist.match == Probe::Match::no ? paddle::probeSave(source) : dist;
}
Result<std::unique_ptr<Reader>> open(const Source& source, const OpenOptions& options) {
    if (source.entry.empty() || paddle::parseMetadataName(source.entry))
        return paddle::openDist(source, options);
    return paddle::openSave(source, options);
}

}  // namespace

const Format& paddleFormat() {
    static const Format format{
        .about = {.name = "paddle",
                  .title = "PaddlePaddle checkpoint (distributed, or a file of paddle.save)",
                  .synonyms = {"paddle_dist", "paddle_save", "paddlepaddle"},
                  .suffixes = {"distcp", "pdparams", "pdopt"},
                  .before = {{"safetensors", "its data files may be safetensors"}},
                  .reads = true,
                  .writes = true,
                  .generations = {"paddle 2.6", "paddle 3.0", "paddle 3.2", "paddle 3.3",
                                  "safetensors in place of pickles",
                                  "files of paddle.save, protocols 2 to 5"},
                  .variants = paddle::writtenVariants(),
                  .shards = true,
                  .nesting = true},
        .probe = probe,
        .open = open,
        .cannotHold = paddle::cannotHoldInPaddle,
        .layout = paddle::layoutDist};
    return format;
}

}  // namespace shardscope
