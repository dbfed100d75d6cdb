#include "encoding/pickle_window.h"

#include <algorithm>
#include <cstring>
#include <span>

namespace shardscope {

namespace {

// Small enough to stay in the second-level cache between the read and the walk.
constexpr size_t kWindow = size_t{512} << 10;

}  // namespace

Status PickleWindow::moveTo(uint64_t from, size_t need) {
    SHARDSCOPE_TRY(stop_.poll());
    const uint64_t available = from < file_.size() ? file_.size() - from : 0;
    const size_t wanted = static_cast<size_t>(std::min<uint64_t>(std::max(need, kWindow), available));
    size_t kept = 0;
    const uint64_t filledEnd = base_ + filled_;
    if (from >= base_ && from < filledEnd) {
        kept = static_cast<size_t>(filledEnd - from);
        std::memmove(buffer_.data(), buffer_.data() + (from - base_), kept);
    }
    base_ = from;
    start_ = 0;
    filled_ = kept;
    if (buffer_.size() < wanted + kSlack) buffer_.resize(wanted + kSlack);
    if (wanted > kept) {
        SHARDSCOPE_TRY(file_.readAt(from + kept,
                                    std::as_writable_bytes(std::span(buffer_)).subspan(kept, wanted - kept)));
        filled_ = wanted;
    }
    std::memset(buffer_.data() + filled_, 0, kSlack);
    return {};
}

namespace pickle_bytes {

const uint8_t* lineEnd(const uint8_t* p, const uint8_t* end) {
    if (p >= end) return nullptr;
    return static_cast<const uint8_t*>(std::memchr(p, '\n', static_cast<size_t>(end - p)));
}

bool parseDecimal(const uint8_t* p, const uint8_t* end, int64_t& out) {
    if (end > p && end[-1] == '\r') --end;
    if (end > p && end[-1] == 'L') --end;
    const bool negative = p < end && *p == '-';
    if (negative) ++p;
    if (p == end) return false;
    int64_t value = 0;
    for (; p < end; ++p) {
        if (*p < '0' || *p > '9') return false;
        const int64_t digit = *p - '0';
        if (__builtin_mul_overflow(value, int64_t{10}, &value)) return false;
        if (__builtin_add_overflow(value, negative ? -digit : digit, &value)) return false;
    }
    out = value;
    return true;
}

}  // namespace pickle_bytes

}  // namespace shardscope
