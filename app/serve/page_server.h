// The HTTP server of the browser page. It listens on the loopback interface and answers requests with the
// token.
//
// A request counts when its Host is this machine's own name for itself; a page of another site that resolves
// to 127.0.0.1 has another. Its Origin, if any, is that Host. It brings the token in a header. The page takes
// that from the fragment of its address, which browsers send nowhere. It keeps it for its own address: a
// cookie would go to every other port of the host. The files of the page itself are no secret, and need none.
// Everything else is refused with 403. GET and HEAD are all there is, unless changes are allowed. Then a POST
// counts that names its Origin and brings JSON. It reaches only the routes that change something. Who is not
// done with saying what is wanted waits outside (page_gate.h).
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/stop.h"

namespace shardscope::serve {

struct PageRequest {
    std::multimap<std::string, std::string> parameters;
    std::string body;  // at most kMaxPageBody bytes; empty but for POST
    std::string text(const std::string& name, std::string otherwise = {}) const;
    bool flag(const std::string& name) const { return text(name) == "1"; }
    // Errors: usage when it is not a whole number of at most `most`.
    Result<uint64_t> number(const std::string& name, uint64_t otherwise, uint64_t most) const;
    // "width" and "height" in pixels, up to 10,000: how large a drawing is to be. Errors: usage.
    struct Size {
        double width = 0, height = 0;
    };
    Result<Size> size(Size otherwise) const;
};
constexpr size_t kMaxPageBody = 64 << 10;

struct PageAnswer {
    std::string body;
    int status = 200;
    const char* type = "application/json";
};

struct PageRoute {
    const char* path;
    std::function<PageAnswer(const PageRequest&)> answer;
    bool changes = false;  // reached by POST, and only when changes are allowed
};

// What the page shows. Called from several threads.
struct PageContent {
    std::vector<PageRoute> routes;
    // Documents that change, by name; looked at twice a second while a page follows them.
    std::function<std::vector<std::pair<std::string, std::string>>(const PageRequest&)> events;
    std::function<void()> ending;  // told when the server ends, so that long answers end too
    bool allowChanges = false;
};

class PageServer {
  public:
    // Whether this program has it at all. Errors: unsupported.
    static Status available();
    // Port 0 = a free one. Errors: io (the port is taken).
    static Result<std::unique_ptr<PageServer>> listen(PageContent content, int port);
    ~PageServer();

    int port() const;
    std::string url() const;  // with the token as its fragment
    // Answers until it is stopped, or nobody has asked for anything for `idle` (zero = for ever).
    void serve(const StopToken& stop, std::chrono::seconds idle);

  private:
    class Impl;
    explicit PageServer(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

// Whether a Host header names this machine's loopback: localhost, 127.0.0.1 or [::1], with any port (a tunnel
// has its own).
bool isLoopbackHost(std::string_view host);

}  // namespace shardscope::serve
