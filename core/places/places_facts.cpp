#include "places/places_facts.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/stop.h"
#include "base/text.h"
#include "base/units.h"
#include "places/credentials.h"
#include "places/http.h"
#include "places/places.h"
#include "storage/object_place.h"
#include "storage/url.h"

namespace shardscope {
namespace {

constexpr std::chrono::seconds kHostPatience{3};  // with an answer of a host
constexpr std::chrono::seconds kAllPatience{10};  // with everything, however often a store is asked again

bool isWeb(std::string_view scheme) {
    return scheme.starts_with("http");
}

std::string endpointOf(std::string_view scheme, const AwsSettings& aws) {
    if (scheme == "hf") return hubEndpoint();
    if (scheme == "gs") return googleEndpoint();
    return aws.endpoint.empty() ? fmt::format("https://s3.{}.amazonaws.com", aws.region) : aws.endpoint;
}

std::string sourceOf(std::string_view scheme, const AwsSettings& aws) {
    const Result<Credentials> found = scheme == "hf"   ? Result<Credentials>(findHubToken())
                                      : scheme == "gs" ? findGoogleCredentials()
                                                       : findAwsCredentials(aws);
    // A service that was given up looks like one that is not there.
    if (StopScope::current().stopRequested())
        return fmt::format("not known within {} s", kAllPatience.count());
    if (!found.ok()) return found.error().message;
    return found->anonymous() ? "none" : found->source;
}

// Of its root, with nothing that says who asks.
std::optional<HttpRequest> requestTo(const std::string& endpoint) {
    const auto url = parseUrl(endpoint);
    if (!url || (url->scheme != "http" && url->scheme != "https")) return std::nullopt;
    const std::string_view host = std::string_view(url->authority).substr(url->authority.rfind('@') + 1);
    HttpRequest request{"HEAD", fmt::format("{}://{}/", url->scheme, host)};
    request.connecting = kHostPatience;
    request.patience = kHostPatience;
    return request;
}

// One listing of what begins with the name, so that a file is found as well as a directory.
Result<std::string> listing(const std::string& path, std::string_view scheme) {
    const std::string root = path.substr(0, placeLength(path)), bucket = root.substr(scheme.size() + 3);
    std::string key = path.substr(root.size());
    key.erase(0, std::min(key.find_first_not_of('/'), key.size()));
    SHARDSCOPE_ASSIGN(const auto place, scheme == "s3"   ? s3Place(bucket)
                                        : scheme == "gs" ? googlePlace(bucket)
                                                         : hubPlace(root));
    SHARDSCOPE_ASSIGN(const ObjectPage page, place->list(key, false, ""));
    const size_t names = page.objects.size() + page.prefixes.size();
    if (!names) return std::string(key.empty() ? "nothing is there" : "nothing of this name is there");
    return fmt::format("{}{}", counted(names, "name"), page.next.empty() ? "" : " or more");
}

Result<std::string> lookedAt(const std::string& path, std::string_view scheme) {
    SHARDSCOPE_ASSIGN(const Place place, placeOf(path));
    if (!isWeb(scheme)) return listing(place.path, scheme);
    SHARDSCOPE_ASSIGN(const DirectoryEntry entry, place.files->stat(place.path));
    return counted(entry.size, "byte");
}

// Who is asked and as whom, and whether there is an answer at all.
PlaceFacts hostFacts(const std::string& path, std::string_view scheme) {
    const AwsSettings aws = scheme == "s3" ? awsSettings() : AwsSettings();
    const std::string endpoint = isWeb(scheme) ? path.substr(0, placeLength(path)) : endpointOf(scheme, aws);
    PlaceFacts facts{withoutSecrets(path), withoutSecrets(endpoint), aws.region, "none"};
    auto request = requestTo(endpoint);
    const bool quiet = scheme == "hf" && hubOffline();
    Http& http = Http::ofProcess();
    Http::Ticket ticket;
    if (request && !quiet) ticket = http.start(*std::move(request));
    if (!isWeb(scheme)) facts.credentials = sourceOf(scheme, aws);
    if (quiet) {
        facts.said = "HF_HUB_OFFLINE is set";
    } else if (!request) {
        facts.said = "is no web address";
    } else {
        const HttpAnswer answer = http.wait(ticket);
        facts.reached = answer.status != 0;
        facts.said = facts.reached ? fmt::format("status {}", answer.status) : oneLine(answer.failed);
    }
    return facts;
}

PlaceFacts factsOf(const std::string& path) {
    const std::string_view scheme = schemeOf(path);
    PlaceFacts facts = hostFacts(path, scheme);
    const bool offline = scheme == "hf" && hubOffline();  // the cache may have it
    if (path.ends_with("://") || (!facts.reached && !offline)) return facts;
    auto there = lookedAt(path, scheme);
    facts.reached = there.ok();
    if (there.ok())
        facts.said = *std::move(there);
    else if (there.error().code == ErrorCode::cancelled)
        facts.said = fmt::format("no good answer within {} s", kAllPatience.count());
    else
        facts.said = there.error().message;
    return facts;
}

// curl's own rules: names in lower case first.
std::string firstOf(std::initializer_list<const char*> names) {
    for (const char* name : names)
        if (std::string value = environment(name); !value.empty()) return value;
    return {};
}

}  // namespace

std::vector<PlaceFacts> placeFacts(const std::vector<std::string>& paths) {
    std::vector<std::string> all{"s3://", "gs://", "hf://"};
    all.insert(all.end(), paths.begin(), paths.end());
    StopSource stop;
    std::vector<std::future<PlaceFacts>> looks;
    const auto until = std::chrono::steady_clock::now() + kAllPatience;
    for (const std::string& path : all)
        looks.push_back(std::async(std::launch::async, [&stop, &path] {
            const StopScope scope(stop);
            return factsOf(path);
        }));
    std::vector<PlaceFacts> facts;
    for (std::future<PlaceFacts>& look : looks) {
        if (look.wait_until(until) != std::future_status::ready) stop.requestStop();
        facts.push_back(look.get());
    }
    return facts;
}

HttpFacts httpFacts() {
    std::string proxy = firstOf({"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"});
    if (!proxy.empty() && proxy.find("://") == std::string::npos)
        proxy = "http://" + proxy;  // as curl has it
    return {Http::builtIn(), Http::certificates(), withoutSecrets(proxy), firstOf({"no_proxy", "NO_PROXY"})};
}

}  // namespace shardscope
