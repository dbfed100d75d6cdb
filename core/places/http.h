// Requests over HTTP and HTTPS, many at a time; libcurl is used behind this header only. Follows no redirect
// and does not retry (http_place.h does). Prints nothing that is sent: requests hold signatures and tokens.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/stop.h"

namespace shardscope {

struct HttpRequest {
    std::string method = "GET";
    std::string url;  // sent as it is; must be percent-encoded already
    std::vector<std::pair<std::string, std::string>> headers{};
    std::span<const std::byte> content{};  // the body; must outlive the transfer
    // Buffer for a range of the object that begins at byte `offset`; must outlive the transfer. The Range
    // header is added. An answer with another range is a failure: HttpAnswer::failed says why.
    std::span<std::byte> into{};
    uint64_t offset = 0;
    std::optional<uint64_t> whole{};                         // size of the object in bytes, if known
    uint64_t most = uint64_t{1} << 20;                       // size limit of any other body, in bytes
    std::chrono::seconds connecting{10};                     // timeout
    std::optional<std::chrono::milliseconds> patience = {};  // timeout of all; empty = while bytes flow
    // For a read into a buffer: asked for a second time where no bytes flow for several times as long as
    // other reads of the host took; the answer that is whole first counts. Bytes may stand still for 30
    // seconds.
    bool hurried = false;
};

struct HttpAnswer {
    int status = 0;                              // 0 = no complete answer; `failed` says why
    std::map<std::string, std::string> headers;  // names in lower case
    std::string body;                            // what did not go to HttpRequest::into
    std::string failed;                          // "connection refused"
    bool temporary = false;                      // the failure may pass: a retry is worth it
    bool writes = false;                         // the request was a PUT or POST

    std::string_view header(const std::string& name) const {
        const auto it = headers.find(name);
        return it == headers.end() ? std::string_view() : std::string_view(it->second);
    }
    bool good() const { return status >= 200 && status < 300; }
};

class HttpTransfer;

// One thread of the process does all transfers. The number of concurrent transfers to a host adapts: it grows
// while throughput grows, and is halved when the host throttles (status 429 or 503). Thread-safe.
class Http {
  public:
    // The one of this process; a child that fork() made gets its own.
    static Http& ofProcess();
    ~Http();

    using Ticket = std::shared_ptr<HttpTransfer>;
    Ticket start(HttpRequest request);
    // Waits for the answer and takes it out of the ticket. When this thread's StopScope stops, gives the
    // transfer up: its buffers are no longer touched, and the answer has status 0.
    HttpAnswer wait(const Ticket& ticket);
    // Ends the transfer; returns when its buffers are no longer touched.
    void giveUp(const Ticket& ticket);
    HttpAnswer ask(HttpRequest request) { return wait(start(std::move(request))); }

    // Counts since the process began; asking for them starts no thread.
    struct Traffic {
        uint64_t transfers = 0, retries = 0, throttled = 0;  // a retry is a transfer, too
    };
    static Traffic traffic();
    static void countRetry();

    static bool builtIn();  // false in a build without libcurl
    // Path of the CA certificates in use; empty where none was found.
    static std::string certificates();

  private:
    Http();
    struct Work;
    const std::unique_ptr<Work> work_;
};

// Encodes all but unreserved characters as "%20" and the like; `keepSlashes` keeps slashes, too.
std::string percentEncoded(std::string_view text, bool keepSlashes = false);
// Decodes "%20" and the like; invalid escapes stay. `plusIsBlank`: '+' is a blank, as in forms.
std::string percentDecoded(std::string_view text, bool plusIsBlank = false);

// Without the blanks, tabs and line ends at both ends.
std::string_view trimmedText(std::string_view text);

// A URL in its parts, without the fragment: "https://host:8000/a/b?c=d".
struct UrlParts {
    std::string scheme, authority, path, query;  // path with its first slash, query without '?'
    std::string host() const;                    // the authority without user and port
};
std::optional<UrlParts> parseUrl(std::string_view url);
// The URL of a redirect: `location`, absolute or relative, as an answer from `from` states it.
std::string absoluteUrl(std::string_view location, const UrlParts& from);

// Parses "Thu, 01 Jan 1970 00:00:00 GMT" and "1970-01-01T00:00:00.000Z"; 0 = neither.
int64_t timeOfHttp(std::string_view text);  // ns since 1970
std::string httpTimeOf(int64_t ns);         // the first of these forms

}  // namespace shardscope
