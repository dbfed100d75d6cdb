// Requests over HTTP and HTTPS, many at a time, through libcurl. This is the one header behind which libcurl
// is; no redirect is followed here, no answer is tried again (retry.h), and nothing that is sent is ever
// printed: a request holds signatures and tokens.
//
// One thread of the process does all transfers. How many run at a time to one host is found out: more while
// that brings more bytes, half as many when the host says that it is too much.
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
    std::string url;  // as it is sent; nothing in it is encoded or normalized any more
    std::vector<std::pair<std::string, std::string>> headers{};
    std::span<const std::byte> content{};  // what is sent; must live until the answer is there
    // Where the bytes of a range go, beginning at byte `offset` of the object. The range header is added. An
    // answer that is not this very range is none: HttpAnswer::failed says why.
    std::span<std::byte> into{};
    uint64_t offset = 0;
    std::optional<uint64_t> whole{};                         // bytes of the object, if known
    uint64_t most = uint64_t{1} << 20;                       // bytes of any other body
    std::chrono::seconds connecting{10};                     // patience
    std::optional<std::chrono::milliseconds> patience = {};  // with all of it; empty = while bytes flow
    // Given up, to be asked for again, where no bytes flow for several times as long as others took. Without
    // it bytes may stand still for half a minute.
    bool hurried = false;
};

struct HttpAnswer {
    int status = 0;                              // 0: there is no whole answer, `failed` says why
    std::map<std::string, std::string> headers;  // names in lower case
    std::string body;                            // what did not go into the buffer
    std::string failed;                          // "connection refused"
    bool temporary = false;                      // that failure may not come again
    bool writes = false;                         // it answers a request that does

    std::string_view header(const std::string& name) const {
        const auto it = headers.find(name);
        return it == headers.end() ? std::string_view() : std::string_view(it->second);
    }
    bool good() const { return status >= 200 && status < 300; }
};

class HttpTransfer;

class Http {
  public:
    // Of the process; a child that fork() made has one of its own.
    static Http& ofProcess();
    ~Http();

    using Ticket = std::shared_ptr<HttpTransfer>;
    Ticket start(HttpRequest request);
    // Waits for the answer, which is taken. When this thread's StopScope stops, the transfer is given up: its
    // buffer is not touched any more, and the answer is none.
    HttpAnswer wait(const Ticket& ticket);
    void giveUp(const Ticket& ticket);
    HttpAnswer ask(HttpRequest request) { return wait(start(std::move(request))); }

    // Since the process began; nothing is started for it.
    struct Traffic {
        uint64_t transfers = 0, retries = 0, throttled = 0;  // retries are transfers, too
    };
    static Traffic traffic();
    static void countRetry();

    static bool builtIn();  // a static program may have none
    // The file with the certificates of authorities that counts; empty where none was found.
    static std::string certificates();

  private:
    Http();
    struct Work;
    const std::unique_ptr<Work> work_;
};

// "%20" and the like for all but unreserved characters, and slashes where they are kept.
std::string percentEncoded(std::string_view text, bool keepSlashes = false);
// The bytes that it stands for; what is no escape stays. `plusIsBlank`: as in forms.
std::string percentDecoded(std::string_view text, bool plusIsBlank = false);

// Without blanks, tabs and line ends around it.
std::string_view trimmedText(std::string_view text);

// A URL in its parts: "https://host:8000/a/b?c=d".
struct UrlParts {
    std::string scheme, authority, path, query;  // path with its slash, query without '?'
    std::string host() const;                    // the authority without user and port
};
std::optional<UrlParts> parseUrl(std::string_view url);
// Where `location` leads, which a redirect from there names in full or in part.
std::string absoluteUrl(std::string_view location, const UrlParts& from);

// Of "Thu, 01 Jan 1970 00:00:00 GMT" and "1970-01-01T00:00:00.000Z"; 0 = neither.
int64_t timeOfHttp(std::string_view text);  // ns since 1970
std::string httpTimeOf(int64_t ns);         // the first of these forms

}  // namespace shardscope
