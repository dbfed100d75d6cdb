// The base of all places that are reached by HTTP: retries, large reads as several requests, and the meaning
// of answers. Private to this room.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "places/http.h"
#include "storage/object_place.h"

namespace shardscope {

inline constexpr uint64_t kMostObject = uint64_t{1} << 62;  // bytes; a larger stated size is invalid

// The error in the body of an answer, "<Error><Code>SlowDown</Code>..."; fields that it lacks are empty.
struct StoreError {
    std::string code, message, request, region;
};
StoreError storeErrorOf(const HttpAnswer& answer);

class HttpPlace : public ObjectPlace {
  public:
    const std::string& root() const override { return root_; }
    Status readRanges(const ObjectState& object, std::span<const Range> ranges) override;

  protected:
    explicit HttpPlace(std::string root) : root_(std::move(root)) {}

    using Make = std::function<Result<HttpRequest>()>;
    // Sends the request of `make`, which is called anew for each try, until an answer is good or says what a
    // retry cannot change. Errors: as in ObjectPlace, with `shown` as the file.
    Result<HttpAnswer> ask(const Make& make, const std::string& shown) const;
    // As ask(), but returns answers that are not good, too. Errors: remote, cancelled.
    Result<HttpAnswer> askAny(const Make& make, const std::string& shown) const;

    // The request for an object's bytes; read() adds range and version.
    virtual Result<HttpRequest> requestFor(const ObjectState& object) const = 0;
    // Adds headers that make the server refuse any other version of the object.
    virtual void pin(const ObjectState& object, HttpRequest& request) const;
    // Called after an answer that was not good. True where something was corrected (a region, a token, a
    // redirect's target), so that the request is sent once more. `object` may be null.
    virtual bool mend(const HttpAnswer&, const StoreError&, const ObjectState* /*object*/) const {
        return false;
    }
    // The hint of an error of status 401 or 403.
    virtual std::string accessHint() const { return {}; }
    virtual Error errorOf(const HttpAnswer& answer, const std::string& shown) const;

    std::string shown(std::string_view key) const { return root_ + "/" + std::string(key); }

  private:
    HttpAnswer settle(const Make& make, Http::Ticket first, const ObjectState* object, unsigned& tries) const;

    const std::string root_;
};

}  // namespace shardscope
