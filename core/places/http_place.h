// What all places share that are reached by HTTP: requests that are tried again, large reads in pieces, and
// what an answer means. Private to this room.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "places/http.h"
#include "storage/object_place.h"

namespace shardscope {

inline constexpr uint64_t kMostObject = uint64_t{1} << 62;  // bytes that one may claim to have

// What a store says in the body of an answer that is an error: "<Error><Code>SlowDown</Code>...".
struct StoreError {
    std::string code, message, request, region;
};
StoreError storeErrorOf(const HttpAnswer& answer);

class HttpPlace : public ObjectPlace {
  public:
    const std::string& root() const override { return root_; }
    Status read(const ObjectState& object, uint64_t offset, std::span<std::byte> buffer) override;

  protected:
    explicit HttpPlace(std::string root) : root_(std::move(root)) {}

    using Make = std::function<Result<HttpRequest>()>;
    // Sends what `make` makes, which is asked anew for each try, until an answer comes that is worth having:
    // a good one, or one that says what will not change. Errors: as ObjectPlace says; `shown` is what they
    // name.
    Result<HttpAnswer> ask(const Make& make, const std::string& shown) const;
    // The same for an answer that is not good in itself: the caller looks at it. Errors: remote, cancelled.
    Result<HttpAnswer> askAny(const Make& make, const std::string& shown) const;

    // Asks for an object's bytes; range and version are added by read().
    virtual Result<HttpRequest> requestFor(const ObjectState& object) const = 0;
    // Headers that make sure that it is this version.
    virtual void pin(const ObjectState& object, HttpRequest& request) const;
    // After an answer that was not good: whether something was mended (a region, a token, a place that a
    // redirect named), so that the request may be made once more. `object` may be null.
    virtual bool mend(const HttpAnswer&, const StoreError&, const ObjectState* /*object*/) const {
        return false;
    }
    // What to do about an answer of 401 or 403.
    virtual std::string accessHint() const { return {}; }
    virtual Error errorOf(const HttpAnswer& answer, const std::string& shown) const;

    std::string shown(std::string_view key) const { return root_ + "/" + std::string(key); }

  private:
    HttpAnswer settle(const Make& make, Http::Ticket first, const ObjectState* object, unsigned& tries) const;

    const std::string root_;
};

}  // namespace shardscope
