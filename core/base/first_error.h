// The one error that a loop on several threads returns.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>

#include "base/result.h"

namespace shardscope {

// Keeps the error of the lowest index among those that occurred, so that what is said does not depend on
// which thread was first. `cancelled` is kept only while there is no other: a stop that follows a failure
// must not hide it. Not thread-safe: whoever adds holds the loop's lock.
class FirstError {
  public:
    void add(size_t index, Error error) {
        const bool cancelled = error.code == ErrorCode::cancelled;
        if (error_) {
            const bool kept = error_->code == ErrorCode::cancelled;
            if (kept == cancelled ? index >= index_ : cancelled) return;
        }
        index_ = index;
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
    size_t index_ = 0;
};

}  // namespace shardscope
