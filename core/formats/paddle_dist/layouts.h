// Recognizes and opens distributed checkpoints and files of paddle.save; lays out distributed checkpoints as
// Paddle 3.3 or 3.0 writes them. Sources: save_state_dict.py and metadata.py of
// paddle.distributed.checkpoint; docs/formats/paddle.md.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "formats/format.h"

namespace shardscope::paddle {

Probe probeDist(const Source& source);
// `options.variant` "id=N" selects one of several saves in the directory. Default: the highest complete id.
Result<std::unique_ptr<Reader>> openDist(const Source& source, const OpenOptions& options);

Probe probeSave(const Source& source);
Result<std::unique_ptr<Reader>> openSave(const Source& source, const OpenOptions& options);

// Variants: "3.3" (also ""), "3.0".
std::vector<std::string> writtenVariants();
std::vector<LeftOut> cannotHoldInPaddle(const Catalog& target, const WriteOptions& options);
// `target` must outlive the layout and hold no entry that cannotHoldInPaddle() names. Errors: usage for
// another variant.
Result<std::unique_ptr<TargetLayout>> layoutDist(const Catalog& target, const WriteOptions& options);

struct MetadataPlan {
    const Catalog* catalog = nullptr;
    bool flex = true;  // classes of Paddle 3.3; false: of 3.0
    std::function<std::string(ChunkId)> fileName;
};
// Passes the pickle of {id}.metadata to `sink` in parts, in order.
Status writeMetadata(const MetadataPlan& plan, const std::function<Status(std::string_view)>& sink);
// numpy's type code for an array of the dtype, "f4"; empty if Paddle has no such tensors.
std::string_view arrayCode(DType dtype);

}  // namespace shardscope::paddle
