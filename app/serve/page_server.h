// The server of the browser page: HTTP on the loopback, for whoever has the token, reading only.
//
// A request counts when its Host is this machine's own name for itself (a page of another site that resolves
// to 127.0.0.1 has another), its Origin, if any, is that Host, and it brings the token: in the URL the first
// time, then in a cookie that scripts cannot read. Everything else is refused with 403. GET and HEAD are all
// there is.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/stop.h"

namespace shardscope::cli {

struct MapQuery {
    uint64_t first = 0;  // row
    uint64_t count = 0;  // at most kMaxMapRows
    std::string pattern = "*";
};
constexpr uint64_t kMaxMapRows = 256;

// What the page shows, as JSON texts. Called from several threads. A document that does not exist is empty.
struct PageDocuments {
    std::function<std::string()> overview;                    // shardscope.info/1
    std::function<Result<std::string>(const MapQuery&)> map;  // shardscope.map/1
    std::function<std::string()> findings;  // shardscope.validate/1, or that it is under way
    std::function<std::string()> jobs;      // {"jobs": [...]}
};

class PageServer {
  public:
    // Whether this program has it at all. Errors: unsupported.
    static Status available();
    // Port 0 = a free one. Errors: io (the port is taken).
    static Result<std::unique_ptr<PageServer>> listen(PageDocuments documents, int port);
    ~PageServer();

    int port() const;
    std::string url() const;  // with the token
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

}  // namespace shardscope::cli
