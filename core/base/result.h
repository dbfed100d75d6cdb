// A value or an Error. Ignoring one does not compile. An error is kept behind a pointer. So a Status is as
// large as a pointer, and success costs a test for null.
#pragma once

#include <cassert>
#include <memory>
#include <utility>
#include <variant>

#include "base/error.h"

namespace shardscope {

// Owns an Error; copies it when it is copied. Never null outside of Status.
class BoxedError {
  public:
    BoxedError() = default;
    explicit BoxedError(Error error) : error_(std::make_unique<Error>(std::move(error))) {}
    BoxedError(const BoxedError& other)
        : error_(other.error_ ? std::make_unique<Error>(*other.error_) : nullptr) {}
    BoxedError(BoxedError&&) noexcept = default;
    BoxedError& operator=(const BoxedError& other) {
        if (this != &other) *this = BoxedError(other);
        return *this;
    }
    BoxedError& operator=(BoxedError&&) noexcept = default;
    ~BoxedError() = default;

    explicit operator bool() const { return error_ != nullptr; }
    Error& operator*() { return *error_; }
    const Error& operator*() const { return *error_; }

  private:
    std::unique_ptr<Error> error_;
};

template <class T>
class [[nodiscard]] Result {
  public:
    using value_type = T;

    Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
    Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

    bool ok() const { return state_.index() == 0; }
    explicit operator bool() const { return ok(); }

    T& value() & {
        assert(ok());
        return *std::get_if<0>(&state_);
    }
    const T& value() const& {
        assert(ok());
        return *std::get_if<0>(&state_);
    }
    T&& value() && {
        assert(ok());
        return std::move(*std::get_if<0>(&state_));
    }
    T& operator*() & { return value(); }
    const T& operator*() const& { return value(); }
    T&& operator*() && { return std::move(*this).value(); }
    T* operator->() { return &value(); }
    const T* operator->() const { return &value(); }

    const Error& error() const& {
        assert(!ok());
        return **std::get_if<1>(&state_);
    }
    Error&& error() && {
        assert(!ok());
        return std::move(**std::get_if<1>(&state_));
    }

  private:
    std::variant<T, BoxedError> state_;
};

template <>
class [[nodiscard]] Result<void> {
  public:
    Result() = default;
    Result(Error error) : error_(std::move(error)) {}

    bool ok() const { return !error_; }
    explicit operator bool() const { return ok(); }
    const Error& error() const& {
        assert(!ok());
        return *error_;
    }
    Error&& error() && {
        assert(!ok());
        return std::move(*error_);
    }

  private:
    BoxedError error_;
};

using Status = Result<void>;
static_assert(sizeof(Status) == sizeof(void*));

}  // namespace shardscope

#define SHARDSCOPE_CONCAT_(a, b) a##b
#define SHARDSCOPE_CONCAT(a, b) SHARDSCOPE_CONCAT_(a, b)

// Returns the error of `expr` from the enclosing function; continues when there is none.
#define SHARDSCOPE_TRY(expr) SHARDSCOPE_TRY_(SHARDSCOPE_CONCAT(shardscopeStatus_, __COUNTER__), expr)
#define SHARDSCOPE_TRY_(status, expr)                                             \
    do {                                                                          \
        if (auto status = (expr); !status.ok()) return std::move(status).error(); \
    } while (false)

// SHARDSCOPE_ASSIGN(auto x, f()); declares or assigns the value of `expr`, or returns its error.
#define SHARDSCOPE_ASSIGN(lhs, expr) \
    SHARDSCOPE_ASSIGN_(SHARDSCOPE_CONCAT(shardscopeResult_, __COUNTER__), lhs, expr)
#define SHARDSCOPE_ASSIGN_(result, lhs, expr)           \
    auto result = (expr);                               \
    if (!result.ok()) return std::move(result).error(); \
    lhs = std::move(result).value()
