// Reads back what a conversion has written while it writes the rest. Private to this room.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "execute/destination.h"
#include "execute/scan.h"

namespace shardscope {

// A tensor is read as soon as all of its bytes are written, from where the layout has put them, and its
// digest is compared with that of what was written. Whether the finished output finds the tensor there too is
// for StagedOutput to say.
class ReadBehind {
  public:
    // For `tensors` of which each is given to wrote() once. Null where the storage shows no file before all
    // of it is written. `state` outlives it.
    static std::unique_ptr<ReadBehind> start(ConvertState& state, size_t tensors);
    ~ReadBehind();  // leaves what is not read yet
    ReadBehind(const ReadBehind&) = delete;
    ReadBehind& operator=(const ReadBehind&) = delete;

    // Called from any thread once the digest is in `state`.
    void wrote(TensorId target);
    // The first error so far, so that writing ends early.
    Status status() const;
    // After the last wrote(): reads the rest. Progress of what was read before is added to that of the state.
    // Errors: verificationFailed, with the tensor that differs; those of reading.
    Status finish();

    // The layout as a reader of its staged files.
    const Reader& layout() const { return *layout_; }
    bool holds(TensorId target) const;  // whether it was read back, and is what was written

  private:
    ReadBehind(ConvertState& state, std::unique_ptr<Reader> layout);
    Status run(size_t tensors);
    Result<std::unique_ptr<TensorTask>> prepare(size_t index, WorkerMemory& kept);
    Status take(const TileView& tile);
    Status compare(TensorId target);

    ConvertState& state_;
    const std::unique_ptr<Reader> layout_;
    const Resources resources_;  // without progress: that of the state shows what is written
    SourceContext context_;
    DigestCollector digests_;
    Status result_;  // of the thread

    mutable Mutex mutex_;
    Condition changed_;
    std::vector<TensorId> written_ SHARDSCOPE_GUARDED_BY(mutex_);
    std::set<TensorId> read_ SHARDSCOPE_GUARDED_BY(mutex_);
    uint64_t bytes_ SHARDSCOPE_GUARDED_BY(mutex_) = 0;  // that were read
    bool ended_ SHARDSCOPE_GUARDED_BY(mutex_) = false;  // nothing more is written
    bool shown_ SHARDSCOPE_GUARDED_BY(mutex_) = false;  // what is read is added to the progress
    std::optional<Error> differs_ SHARDSCOPE_GUARDED_BY(mutex_);
    std::thread thread_;  // last: it uses all of the above
};

}  // namespace shardscope
