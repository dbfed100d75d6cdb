#include "encoding/pickle_window.h"

#include <algorithm>
#include <cstring>

namespace shardscope {

namespace {

constexpr size_t kFirstRead = size_t{4} << 10;
// Small enough to stay in the second-level cache between the read and the walk.
constexpr size_t kLargestRead = size_t{512} << 10;

}  // namespace

Status PickleWindow::moveTo(uint64_t from, size_t need) {
    SHARDSCOPE_TRY(stop_.poll());
    const bool onward = from >= base_ && from - base_ <= filled_;
    next_ = onward ? std::min(next_ * 4, kLargestRead) : kFirstRead;
    const size_t kept = onward ? filled_ - static_cast<size_t>(from - base_) : 0;
    const uint64_t available = from < size_ ? size_ - from : 0;
    const auto wanted = static_cast<size_t>(std::min<uint64_t>(std::max({need, next_, kept}), available));
    if (kept > 0) std::memmove(buffer_.data(), buffer_.data() + (from - base_), kept);
    base_ = from;
    filled_ = kept;
    if (buffer_.size() < wanted + kSlack) buffer_.resize(wanted + kSlack);
    if (wanted > kept) {
        const auto target = std::as_writable_bytes(std::span(buffer_)).subspan(kept, wanted - kept);
        if (file_)
            SHARDSCOPE_TRY(file_->readAt(from + kept, target));
        else
            std::memcpy(target.data(), bytes_.data() + from + kept, target.size());
        filled_ = wanted;
    }
    std::memset(buffer_.data() + filled_, 0, kSlack);
    return {};
}

}  // namespace shardscope
