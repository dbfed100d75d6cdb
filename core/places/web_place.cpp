// Files of a web server. It lists nothing: a file is what answers under its name.
#include <fmt/format.h>

#include "base/mutex.h"
#include "base/numbers.h"
#include "places/http_place.h"
#include "places/places.h"
#include "storage/url.h"

namespace shardscope {
namespace {

// People give paths as browsers show them, encoded or not, and an index names files as they are called.
std::string encodedAsNeeded(std::string_view path) {
    constexpr std::string_view plain = "/%!$&'()*+,;=:@[]";
    std::string out;
    for (size_t i = 0; i < path.size(); ++i) {
        const std::string_view one = path.substr(i, 1);
        const bool stays = one == "%" ? path.size() - i >= 3 && percentDecoded(path.substr(i, 3)).size() == 1
                                      : plain.find(one) != std::string_view::npos;
        out += stays ? std::string(one) : percentEncoded(one);
    }
    return out;
}

class WebPlace final : public HttpPlace {
  public:
    WebPlace(std::string root, std::string query) : HttpPlace(std::move(root)), query_(std::move(query)) {}

    bool lists() const override { return false; }
    Result<ObjectPage> list(const std::string& prefix, bool, const std::string&) override {
        return unsupported("a web server has no listing").inFile(shown(prefix));
    }

    Result<ObjectState> head(const std::string& key) override {
        std::string method = "HEAD";
        for (int hops = 0; hops <= 5; ++hops) {
            std::byte first{};
            const auto make = [&]() -> Result<HttpRequest> {
                HttpRequest request{method, urlOf(key)};
                if (request.method == "GET") request.into = {&first, 1};
                return request;
            };
            SHARDSCOPE_ASSIGN(const HttpAnswer answer, askAny(make, shown(key)));
            if (answer.status >= 300 && answer.status < 400) {
                SHARDSCOPE_TRY(follow(key, answer));
                continue;
            }
            // Some servers, and every URL that is signed for GET, refuse HEAD.
            const bool refused = answer.status == 501 || (answer.status >= 400 && answer.status < 500);
            if (method == "HEAD" && refused && answer.status != 404) {
                method = "GET";
                continue;
            }
            if (!answer.good()) return errorOf(answer, shown(key));
            std::string_view bytes = answer.header("content-length");
            if (const std::string_view range = answer.header("content-range"); !range.empty())
                bytes = range.substr(std::min(range.rfind('/') + 1, range.size()));
            const auto size = parseNumber<uint64_t>(bytes, 0, kMostObject);
            if (!size) return damaged("the server does not say how large it is").inFile(shown(key));
            // An ETag that is weak does not pin bytes.
            std::string version(answer.header("etag"));
            if (version.starts_with("W/")) version.clear();
            return ObjectState{key, *size, timeOfHttp(answer.header("last-modified")), std::move(version)};
        }
        return makeError(ErrorCode::remote, "the server redirects in a circle").inFile(shown(key));
    }

  private:
    std::string urlOf(const std::string& key) const {
        {
            MutexLock lock(mutex_);
            if (const auto it = moved_.find(key); it != moved_.end()) return it->second;
        }
        return root() + "/" + encodedAsNeeded(key) + (query_.empty() ? "" : "?" + query_);
    }

    Status follow(const std::string& key, const HttpAnswer& answer) const {
        const auto from = parseUrl(urlOf(key));
        const std::string location = absoluteUrl(answer.header("location"), *from);
        const auto to = parseUrl(location);
        if (!to || (to->scheme != "https" && to->scheme != "http"))
            return makeError(ErrorCode::remote, "the server redirects to what is no web address")
                .inFile(shown(key));
        if (from->scheme == "https" && to->scheme != "https")
            return makeError(ErrorCode::remote,
                             "the server redirects from https to http, which is not followed")
                .inFile(shown(key));
        MutexLock lock(mutex_);
        moved_[key] = location;
        return {};
    }

    Result<HttpRequest> requestFor(const ObjectState& object) const override {
        return HttpRequest{"GET", urlOf(object.key)};
    }

    // What has no version of its own was not written to since it was listed.
    void pin(const ObjectState& object, HttpRequest& request) const override {
        if (object.version.empty() && object.modifiedNs)
            request.headers.emplace_back("If-Unmodified-Since", httpTimeOf(object.modifiedNs));
        HttpPlace::pin(object, request);
    }

    // Where a redirect led may end; the first address leads to the next one.
    bool mend(const HttpAnswer& answer, const StoreError&, const ObjectState* object) const override {
        if (!object) return false;
        if (answer.status >= 300 && answer.status < 400) return follow(object->key, answer).ok();
        MutexLock lock(mutex_);
        return (answer.status == 401 || answer.status == 403 || answer.status == 410) &&
               moved_.erase(object->key) > 0;
    }

    const std::string query_;
    mutable Mutex mutex_;
    mutable std::map<std::string, std::string> moved_ SHARDSCOPE_GUARDED_BY(mutex_);
};

}  // namespace

Result<std::shared_ptr<ObjectPlace>> webPlace(const std::string& root, const std::string& query) {
    const auto url = parseUrl(root);
    if (!url) return makeError(ErrorCode::usage, "is no web address").inFile(withoutSecrets(root));
    if (url->authority.find('@') != std::string::npos)
        return makeError(ErrorCode::usage, "a web address with a user or password in it is not opened")
            .inFile(withoutSecrets(root));
    return std::shared_ptr<ObjectPlace>(std::make_shared<WebPlace>(root, query));
}

}  // namespace shardscope
