// Repositories of the Hugging Face hub: https://huggingface.co/docs/hub/api. A branch is taken for the commit
// that it names when it is first asked for, so that what is read belongs together.
#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/mutex.h"
#include "base/numbers.h"
#include "base/text.h"
#include "places/credentials.h"
#include "places/http_place.h"
#include "places/hub_cache.h"
#include "places/json_text.h"
#include "places/places.h"

namespace shardscope {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr size_t kMostTreePages = 200;  // of a listing
constexpr uint64_t kMostTree = uint64_t{64} << 20;
constexpr uint64_t kMostFile = uint64_t{1'000'000'000'000'000'000} - 1;  // bytes
// Locations are signed for an hour.
constexpr auto kLocationLives = std::chrono::minutes(45);

struct Repository {
    std::string kind;  // "models", "datasets", "spaces"
    std::string id;    // "org/name"
    std::string revision = "main";

    std::string web() const { return (kind == "models" ? "" : kind + "/") + id; }
};

class HubPlace final : public HttpPlace {
  public:
    HubPlace(std::string root, std::string endpoint, Repository repository)
        : HttpPlace(std::move(root)),
          endpoint_(std::move(endpoint)),
          repository_(std::move(repository)),
          cache_(repository_.kind, repository_.id) {}

    // All pages as one, because the hub has an order of its own.
    Result<ObjectPage> list(const std::string& prefix, bool, const std::string&) override {
        SHARDSCOPE_ASSIGN(const std::string commit, pinned());
        if (offline_) return cached(commit, prefix);
        std::string directory = prefix;
        while (directory.ends_with('/'))
            directory.pop_back();
        std::string url =
            fmt::format("{}/api/{}/{}/tree/{}{}?recursive=true&expand=false", endpoint_, repository_.kind,
                        percentEncoded(repository_.id, true), percentEncoded(commit),
                        directory.empty() ? "" : "/" + percentEncoded(directory, true));
        ObjectPage all;
        for (size_t pages = 0; !url.empty(); ++pages) {
            if (pages == kMostTreePages)
                return makeError(ErrorCode::limit, "the repository holds more files than are listed")
                    .inFile(shown(prefix));
            SHARDSCOPE_ASSIGN(ObjectPage page, treePage(url, prefix));
            if (page.next == url)
                return damaged("the hub's listing has a page that names itself as the next one")
                    .inFile(shown(prefix));
            all.objects.insert(all.objects.end(), std::make_move_iterator(page.objects.begin()),
                               std::make_move_iterator(page.objects.end()));
            url = std::move(page.next);
        }
        std::sort(all.objects.begin(), all.objects.end(),
                  [](const ObjectState& a, const ObjectState& b) { return a.key < b.key; });
        return all;
    }

    // What was downloaded before is read from the cache of this machine.
    Status readRanges(const ObjectState& object, std::span<const Range> ranges) override {
        SHARDSCOPE_ASSIGN(const std::string commit, pinned());
        const auto file = cache_.find(commit, object);
        if (!file) return offline_ ? Status(notCached(object.key)) : HttpPlace::readRanges(object, ranges);
        for (const Range& range : ranges)
            SHARDSCOPE_TRY(file->readAt(range.offset, range.into));
        return {};
    }

    Result<ObjectState> head(const std::string& key) override {
        if (offline_) {
            SHARDSCOPE_ASSIGN(const std::string commit, pinned());
            for (ObjectState& file : cache_.list(commit))
                if (file.key == key) return std::move(file);
            return notCached(key);
        }
        SHARDSCOPE_ASSIGN(const Resolved resolved, resolve(key));
        return resolved.state;
    }

  private:
    struct Resolved {
        ObjectState state;
        std::string location;  // on another host; empty = where it was asked for
    };

    HttpRequest asUser(const std::string& url) const {
        HttpRequest request{"GET", url};
        const Secret token = findHubToken().session;
        if (!token.empty()) request.headers.emplace_back("Authorization", "Bearer " + token.reveal());
        return request;
    }

    Error notCached(const std::string& key) const {
        return makeError(ErrorCode::notFound, "is not in the Hugging Face cache, and HF_HUB_OFFLINE is set")
            .inFile(key.empty() ? root() : shown(key));
    }

    ObjectPage cached(const std::string& commit, const std::string& prefix) const {
        ObjectPage page;
        for (ObjectState& file : cache_.list(commit))
            if (file.key.starts_with(prefix)) page.objects.push_back(std::move(file));
        return page;
    }

    Result<std::string> pinned() const {
        MutexLock lock(pinning_);
        if (!commit_.empty()) return commit_;
        if (offline_) {
            commit_ = cache_.commitOf(repository_.revision);
            if (commit_.empty()) return notCached("");
            return commit_;
        }
        const std::string url =
            fmt::format("{}/api/{}/{}/revision/{}", endpoint_, repository_.kind,
                        percentEncoded(repository_.id, true), percentEncoded(repository_.revision));
        SHARDSCOPE_ASSIGN(const HttpAnswer answer, askApi(url, root()));
        if (!answer.good()) return errorOf(answer, root());
        const Json json = Json::parse(answer.body, nullptr, false);
        const std::string commit = json.is_object() ? textOf(json, "sha") : std::string();
        if (commit.empty()) return damaged("the hub does not say which commit that is").inFile(root());
        commit_ = commit;
        return commit_;
    }

    // Follows what the hub says of a repository that was renamed.
    Result<HttpAnswer> askApi(std::string url, const std::string& shown) const {
        for (int hops = 0; hops < 5; ++hops) {
            const auto make = [&]() -> Result<HttpRequest> {
                HttpRequest request = asUser(url);
                request.most = kMostTree;
                return request;
            };
            SHARDSCOPE_ASSIGN(HttpAnswer answer, askAny(make, shown));
            const std::string_view location = answer.header("location");
            if (answer.status < 300 || answer.status >= 400 || location.empty()) return answer;
            url = absoluteUrl(location, *parseUrl(url));
            if (!url.starts_with(endpoint_ + "/"))
                return damaged("the hub redirects to another host").inFile(shown);
        }
        return damaged("the hub redirects in a circle").inFile(shown);
    }

    Result<ObjectPage> treePage(const std::string& url, const std::string& prefix) const {
        SHARDSCOPE_ASSIGN(const HttpAnswer answer, askApi(url, shown(prefix)));
        // A directory that is not there is one without files.
        if (answer.status == 404 && answer.header("x-error-code") == "EntryNotFound") return ObjectPage{};
        if (!answer.good()) return errorOf(answer, shown(prefix));
        auto page = parseTree(answer.body);
        if (!page.ok()) return std::move(page).error().inFile(shown(prefix));
        SHARDSCOPE_ASSIGN(page->next, nextPage(answer, shown(prefix)));
        return page;
    }

    static Result<ObjectPage> parseTree(const std::string& text) {
        const Json json = Json::parse(text, nullptr, false);
        if (!json.is_array()) return damaged("the hub's listing is no JSON list");
        ObjectPage page;
        for (const Json& entry : json) {
            if (!entry.is_object() || textOf(entry, "type") != "file") continue;
            ObjectState object{textOf(entry, "path")};
            object.version = textOf(entry, "oid");
            const Json* sized = &entry;
            const auto lfs = entry.find("lfs");
            if (lfs != entry.end() && lfs->is_object()) {
                sized = &*lfs;
                if (const std::string oid = textOf(*lfs, "oid"); !oid.empty()) object.version = oid;
            }
            const auto size = sized->find("size");
            if (size == sized->end() || !size->is_number_unsigned() || object.key.empty())
                return damaged("the hub's listing has a file that cannot be");
            object.size = size->get<uint64_t>();
            page.objects.push_back(std::move(object));
        }
        return page;
    }

    // Link: <https://huggingface.co/api/...&cursor=x>; rel="next"
    Result<std::string> nextPage(const HttpAnswer& answer, const std::string& shown) const {
        std::string_view link = answer.header("link");
        while (!link.empty()) {
            const size_t begin = link.find('<'), end = link.find('>', begin);
            if (begin == std::string_view::npos || end == std::string_view::npos) break;
            const std::string_view url = link.substr(begin + 1, end - begin - 1);
            const size_t comma = std::min(link.find(',', end), link.size());
            if (link.substr(end, comma - end).find("rel=\"next\"") != std::string_view::npos) {
                if (!url.starts_with(endpoint_ + "/"))
                    return damaged("the hub's listing goes on on another host").inFile(shown);
                return std::string(url);
            }
            link.remove_prefix(comma == link.size() ? comma : comma + 1);
        }
        return std::string();
    }

    // Where the bytes are. The hub answers with them or with a redirect: a relative one where the repository
    // was renamed, else one to a store that must not see the token.
    Result<Resolved> resolve(const std::string& key) const {
        SHARDSCOPE_ASSIGN(const std::string commit, pinned());
        std::string url =
            fmt::format("{}/{}/resolve/{}/{}", endpoint_, percentEncoded(repository_.web(), true),
                        percentEncoded(commit), percentEncoded(key, true));
        for (int hops = 0; hops < 5; ++hops) {
            const auto make = [&]() -> Result<HttpRequest> {
                HttpRequest request = asUser(url);
                request.method = "HEAD";
                request.headers.emplace_back("Accept-Encoding", "identity");
                return request;
            };
            SHARDSCOPE_ASSIGN(const HttpAnswer answer, askAny(make, shown(key)));
            const bool redirect = answer.status >= 300 && answer.status < 400;
            const std::string location(answer.header("location"));
            if (redirect && location.starts_with("/")) {
                url = endpoint_ + location;
                continue;
            }
            if (redirect && location.starts_with(endpoint_ + "/")) {
                url = location;
                continue;
            }
            if (!answer.good() && !redirect) return errorOf(answer, shown(key));
            const auto part = parseUrl(location);
            if (redirect &&
                (!part || (part->scheme != "https" && part->scheme != parseUrl(endpoint_)->scheme)))
                return damaged("the hub redirects to what is no web address").inFile(shown(key));
            const std::string_view size = answer.header(redirect ? "x-linked-size" : "content-length");
            std::string version(answer.header("x-linked-etag"));
            if (version.empty()) version = answer.header("etag");
            ObjectState state{key, 0, 0, std::move(version)};
            const auto bytes = parseNumber<uint64_t>(size, 0, kMostFile);
            if (!bytes) return damaged("the hub does not say how large it is").inFile(shown(key));
            state.size = *bytes;
            return Resolved{std::move(state), redirect ? location : url};
        }
        return damaged("the hub redirects in a circle").inFile(shown(key));
    }

    Result<HttpRequest> requestFor(const ObjectState& object) const override {
        {
            MutexLock lock(mutex_);
            const auto it = locations_.find(object.key);
            if (it != locations_.end() && Clock::now() - it->second.since < kLocationLives)
                return at(it->second.url);
        }
        SHARDSCOPE_ASSIGN(const Resolved resolved, resolve(object.key));
        if (resolved.state.size != object.size)
            return makeError(ErrorCode::changed, "the file changed while it was read")
                .inFile(shown(object.key));
        MutexLock lock(mutex_);
        locations_[object.key] = {resolved.location, Clock::now()};
        return at(resolved.location);
    }
    HttpRequest at(const std::string& location) const {
        if (location.starts_with(endpoint_ + "/")) {
            HttpRequest request = asUser(location);
            request.headers.emplace_back("Accept-Encoding", "identity");
            return request;
        }
        return HttpRequest{"GET", location};
    }

    // The commit pins the bytes; ETags of the stores behind are their own.
    void pin(const ObjectState&, HttpRequest&) const override {}

    bool mend(const HttpAnswer& answer, const StoreError&, const ObjectState* object) const override {
        if (!object || (answer.status != 401 && answer.status != 403 && answer.status != 410)) return false;
        MutexLock lock(mutex_);
        const auto it = locations_.find(object->key);
        // A location that has ended; one that was refused when it was new stays refused.
        if (it == locations_.end() || Clock::now() - it->second.since < std::chrono::seconds(5)) return false;
        locations_.erase(it);
        return true;
    }

    std::string accessHint() const override {
        return findHubToken().session.empty()
                   ? "no token was found; set HF_TOKEN, or log in with 'hf auth login'"
                   : fmt::format("accept the conditions at {}/{}, with the account of HF_TOKEN", endpoint_,
                                 repository_.web());
    }

    Error errorOf(const HttpAnswer& answer, const std::string& shown) const override {
        const std::string_view code = answer.header("x-error-code");
        if (code == "GatedRepo")
            return makeError(ErrorCode::permission, "the repository is gated")
                .inFile(shown)
                .withHint(accessHint());
        if (code == "RepoNotFound" || (answer.status == 401 && code.empty()))
            return makeError(ErrorCode::notFound,
                             findHubToken().session.empty()
                                 ? "the hub has no such repository, or it is private and no token was found"
                                 : "the hub has no such repository, or it is private")
                .inFile(shown)
                .withHint(findHubToken().session.empty() ? "for a private one set HF_TOKEN" : "");
        if (code == "RevisionNotFound")
            return makeError(ErrorCode::notFound,
                             fmt::format("the repository has no revision '{}'",
                                         printable(repository_.revision, kNameInMessage)))
                .inFile(shown);
        return HttpPlace::errorOf(answer, shown);
    }

    struct Location {
        std::string url;
        Clock::time_point since;
    };

    const std::string endpoint_;
    const Repository repository_;
    const bool offline_ = hubOffline();
    HubCache cache_;
    mutable Mutex pinning_;
    mutable std::string commit_ SHARDSCOPE_GUARDED_BY(pinning_);
    mutable Mutex mutex_;
    mutable std::map<std::string, Location> locations_ SHARDSCOPE_GUARDED_BY(mutex_);
};

}  // namespace

std::string hubPathOf(const std::string& url) {
    const std::string endpoint = hubEndpoint() + "/";
    if (!url.starts_with(endpoint)) return {};
    std::string_view rest = std::string_view(url).substr(endpoint.size());
    const auto take = [&] {
        const size_t slash = std::min(rest.find('/'), rest.size());
        const std::string part(rest.substr(0, slash));
        rest.remove_prefix(std::min(slash + 1, rest.size()));
        return part;
    };
    std::string owner = take(), kind;
    if (owner == "datasets" || owner == "spaces") kind = std::exchange(owner, take()) + "/";
    const std::string name = take(), view = take(), revision = take();
    std::string path = "hf://" + kind + owner + "/" + name;
    if (owner.empty() || name.empty() || owner == "api") return {};
    if (view.empty()) return path;
    if ((view != "tree" && view != "blob" && view != "resolve") || revision.empty()) return {};
    path += "@" + revision;
    return rest.empty() ? path : path + "/" + percentDecoded(rest);
}

Result<std::shared_ptr<ObjectPlace>> hubPlace(const std::string& root) {
    std::string_view rest = std::string_view(root).substr(5);  // "hf://"
    Repository repository{"models"};
    for (const std::string_view kind : {"models", "datasets", "spaces"}) {
        if (rest.starts_with(kind) && rest.substr(kind.size()).starts_with('/')) {
            repository.kind = kind;
            rest.remove_prefix(kind.size() + 1);
        }
    }
    const size_t at = rest.find('@'), slash = rest.find('/');
    repository.id = rest.substr(0, at);
    if (at != std::string_view::npos) repository.revision = percentDecoded(rest.substr(at + 1));
    if (slash == std::string_view::npos || slash == 0 || slash + 1 >= repository.id.size() ||
        repository.revision.empty())
        return makeError(ErrorCode::usage, "names no repository of the hub")
            .inFile(root)
            .withHint("a repository is named like hf://org/model or hf://org/model@revision");
    std::string endpoint = hubEndpoint();
    if (!parseUrl(endpoint)) return makeError(ErrorCode::usage, "HF_ENDPOINT is no web address").inFile(root);
    return std::shared_ptr<ObjectPlace>(
        std::make_shared<HubPlace>(root, std::move(endpoint), std::move(repository)));
}

}  // namespace shardscope
