// Reads back what a conversion has written, while the conversion writes the rest. Private to this room.
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

// Reads each tensor as soon as all of its bytes are written, from where the layout puts them. Compares its
// digest with that of the written elements. StagedOutput checks whether the finished output finds the tensor
// there, too.
class ReadBehind {
  public:
    // `tensors`: how many there are; wrote() is called once for each. Null where the job does not verify
    // digests, where the storage does not show unfinished files, or where no thread can be started. `state`
    // must outlive the result.
    static std::unique_ptr<ReadBehind> start(ConvertState& state, size_t tensors);
    ~ReadBehind();  // stops; the rest stays unread
    ReadBehind(const ReadBehind&) = delete;
    ReadBehind& operator=(const ReadBehind&) = delete;

    // Called from any thread, once the digest of the tensor is in `state`.
    void wrote(TensorId target);
    // The first tensor that differs so far, as an error, so that writing can end early.
    Status status() const;
    // Called after the last wrote(): reads the rest and waits for it. Adds the bytes that were read before to
    // the progress of `state`. Errors: verificationFailed, with the tensor that differs; those of reading.
    Status finish();

    // The layout as a reader of its staged files.
    const Reader& layout() const { return *layout_; }
    bool holds(TensorId target) const;  // whether it was read back with the same digest

  private:
    ReadBehind(ConvertState& state, std::unique_ptr<Reader> layout);
    Status run(size_t tensors);
    Result<std::unique_ptr<TensorTask>> prepare(size_t index, WorkerMemory& kept);
    Status take(const TileView& tile);
    Status compare(TensorId target);

    ConvertState& state_;
    const std::unique_ptr<Reader> layout_;
    const Resources resources_;  // without progress, which shows what is written
    SourceContext context_;
    DigestCollector digests_;
    Status result_;  // of the thread

    mutable Mutex mutex_;
    Condition changed_;
    std::vector<TensorId> written_ SHARDSCOPE_GUARDED_BY(mutex_);
    std::set<TensorId> read_ SHARDSCOPE_GUARDED_BY(mutex_);
    uint64_t bytes_ SHARDSCOPE_GUARDED_BY(mutex_) = 0;  // read so far
    bool ended_ SHARDSCOPE_GUARDED_BY(mutex_) = false;  // wrote() is not called any more
    bool shown_ SHARDSCOPE_GUARDED_BY(mutex_) = false;  // bytes that are read are added to the progress
    std::optional<Error> differs_ SHARDSCOPE_GUARDED_BY(mutex_);
    std::thread thread_;  // last: it uses all of the above
};

}  // namespace shardscope
