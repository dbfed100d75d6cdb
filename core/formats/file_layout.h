// Base of the layouts that write files whole, with nothing of its own around each chunk.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

    // 0 where it is more than a file can hold.
    uint64_t bytesOf(ChunkId c) const {
        const ChunkInfo chunk = target_.chunk(c);
        return dtypeByteCount(target_.dtype(chunk.tensor), static_cast<uint64_t>(chunk.elements()))
            .value_or(0);
    }
    void place(ChunkId c, FileId file, uint64_t offset) {
        chunkFile[c] = file;
        chunkOffset[c] = offset;
    }
    // Gives the chunks of each other name the places of the tensor's own. Call after all chunks are placed.
    void placeAliases() {
        for (TensorId t = 0; t < target_.tensorCount(); ++t) {
            const TensorId kept = target_.aliasOf(t);
            if (kept == kNone || target_.firstChunk(kept) == target_.endChunk(kept)) continue;
            for (ChunkId c = target_.firstChunk(t); c < target_.endChunk(t); ++c) {
                const ChunkId same = target_.firstChunk(kept) + (c - target_.firstChunk(t));
                const ChunkId of = std::min<ChunkId>(same, target_.endChunk(kept) - 1);
                place(c, chunkFile[of], chunkOffset[of]);
            }
        }
    }

    const Catalog& target_;
};

// What of `target` a format cannot hold: `tensor(id)` and `object(info)` say why, or nothing.
template <class Tensor, class Object>
std::vector<LeftOut> leftOutOf(const Catalog& target, Tensor&& tensor, Object&& object) {
    std::vector<LeftOut> out;
    for (TensorId t = 0; t < target.tensorCount(); ++t) {
        if (std::string why = tensor(t); !why.empty())
            out.push_back({std::string(target.name(t)), std::move(why)});
    }
    for (const ObjectInfo& info : target.objects()) {
        if (std::string why = object(info); !why.empty()) out.push_back({info.name, std::move(why)});
    }
    return out;
}

// The layout that Layout(arguments...) makes in plan().
template <class Layout, class... Arguments>
Result<std::unique_ptr<TargetLayout>> planned(Arguments&&... arguments) {
    auto layout = std::make_unique<Layout>(std::forward<Arguments>(arguments)...);
    SHARDSCOPE_TRY(layout->plan());
    return std::unique_ptr<TargetLayout>(std::move(layout));
}

}  // namespace shardscope
