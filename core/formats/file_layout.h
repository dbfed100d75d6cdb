// Base of the layouts that write files whole, with nothing of its own around each chunk.
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "formats/format.h"

namespace shardscope {

class FileLayout : public TargetLayout {
  public:
    Status chunkLiterals(ChunkId, uint32_t, const LiteralSink&) const final { return {}; }

  protected:
    // `target` must outlive this.
    explicit FileLayout(const Catalog& target) : target_(target) {
        chunkFile.assign(target.chunkCount(), 0);
        chunkOffset.assign(target.chunkCount(), 0);
    }
    static Status writeText(FileId file, std::string_view text, const LiteralSink& sink) {
        return sink(file, 0, std::as_bytes(std::span(text)));
    }
    // Errors: impossible, with `why`, for a tensor that is not one whole chunk.
    Status checkWhole(TensorId t, const char* why) const {
        for (ChunkId c = target_.firstChunk(t); c < target_.endChunk(t); ++c) {
            const ChunkInfo chunk = target_.chunk(t, c);
            if (chunk.flat || !std::ranges::equal(chunk.lengths, target_.shape(t)))
                return makeError(ErrorCode::impossible, why).ofTensor(target_.name(t));
        }
        return {};
    }

    const Catalog& target_;
};

// The layout that Layout(arguments...) makes in plan().
template <class Layout, class... Arguments>
Result<std::unique_ptr<TargetLayout>> planned(Arguments&&... arguments) {
    auto layout = std::make_unique<Layout>(std::forward<Arguments>(arguments)...);
    SHARDSCOPE_TRY(layout->plan());
    return std::unique_ptr<TargetLayout>(std::move(layout));
}

}  // namespace shardscope
