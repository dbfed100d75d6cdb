// The one error that a loop on several threads returns.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>

#include "base/result.h"

namespace shardscope {

// Keeps the error of the lowest index among those that occurred, whichever thread was first. `cancelled`
// gives way to any other error: the stop must not hide the failure that caused it. Not thread-safe; the
// caller locks.
class FirstError {
  public:
    void add(size_t index, Error error) {
        const std::pair order(error.code == ErrorCode::cancelled, index);
        if (error_ && order >= order_) return;
        order_ = order;
        error_ = std::move(error);
    }
    explicit operator bool() const { return error_.has_value(); }
    // Success when none was added.
    Status take() {
        if (!error_) return {};
        return std::move(*error_);
    }

  private:
    std::optional<Error> error_;
    std::pair<bool, size_t> order_;  // of error_: cancelled last, then by index
};

}  // namespace shardscope
