#include "serve/page_server.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <thread>

#include <fmt/format.h>
#include <httplib.h>
#include <sys/random.h>

#include "serve/page_files.h"

namespace shardscope::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMaxStreams = 8;  // each takes a thread of its own
constexpr size_t kThreads = kMaxStreams + 8;
constexpr std::chrono::milliseconds kPollInterval{500};  // how often what may change is looked at
constexpr std::chrono::seconds kKeepAlive{15};           // a stream that says nothing is cut by proxies

Result<std::string> randomToken() {
    std::array<unsigned char, 24> bytes{};
    if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
        return systemError(errno, "get random bytes", "");
    std::string text;
    for (const unsigned char byte : bytes)
        text += fmt::format("{:02x}", byte);
    return text;
}

// Takes the same time wherever they differ.
bool sameToken(std::string_view a, std::string_view b) {
    if (a.size() != b.size()) return false;
    unsigned char difference = 0;
    for (size_t i = 0; i < a.size(); ++i)
        difference |= static_cast<unsigned char>(a[i] ^ b[i]);
    return difference == 0;
}

// The value of a cookie in "a=1; b=2".
std::string_view cookieValue(std::string_view cookies, std::string_view name) {
    while (!cookies.empty()) {
        const size_t end = std::min(cookies.find(';'), cookies.size());
        std::string_view one = cookies.substr(0, end);
        cookies.remove_prefix(std::min(end + 1, cookies.size()));
        while (one.starts_with(' '))
            one.remove_prefix(1);
        if (one.starts_with(name) && one.substr(name.size()).starts_with('='))
            return one.substr(name.size() + 1);
    }
    return {};
}

const char* contentType(std::string_view name) {
    if (name.ends_with(".html")) return "text/html; charset=utf-8";
    if (name.ends_with(".js")) return "text/javascript; charset=utf-8";
    if (name.ends_with(".css")) return "text/css; charset=utf-8";
    return "image/svg+xml";
}

void refuse(httplib::Response& response, int status, const std::string& why) {
    response.status = status;
    response.set_content(why + "\n", "text/plain; charset=utf-8");
}

PageRequest requestOf(const httplib::Request& request) {
    PageRequest made;
    made.parameters.insert(request.params.begin(), request.params.end());
    made.body = request.body;
    return made;
}

}  // namespace

bool isLoopbackHost(std::string_view host) {
    const size_t bracket = host.rfind(']');
    const size_t colon = host.rfind(':');
    if (colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket)) {
        const std::string_view port = host.substr(colon + 1);
        if (port.empty() || port.find_first_not_of("0123456789") != std::string_view::npos) return false;
        host = host.substr(0, colon);
    }
    return host == "localhost" || host == "127.0.0.1" || host == "[::1]";
}

class PageServer::Impl {
  public:
    Impl(PageContent content, std::string token)
        : content_(std::move(content)), token_(std::move(token)), lastAsked_(Clock::now()) {}

    Status listen(int port) {
        server_.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
        // Not the library's choice, SO_REUSEPORT: two servers on one port.
        server_.set_socket_options([](socket_t socket) {
            const int yes = 1;
            (void)::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        });
        server_.set_payload_max_length(kMaxPageBody);
        server_.set_read_timeout(5);
        server_.set_write_timeout(5);
        server_.set_keep_alive_timeout(5);
        server_.set_default_headers({
            {"Content-Security-Policy",
             "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
             "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
            {"X-Content-Type-Options", "nosniff"},
            {"X-Frame-Options", "DENY"},
            {"Referrer-Policy", "no-referrer"},
            {"Cross-Origin-Opener-Policy", "same-origin"},
            {"Cross-Origin-Resource-Policy", "same-origin"},
            {"Cache-Control", "no-store"},
        });
        server_.set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
            return admit(request, response) ? httplib::Server::HandlerResponse::Unhandled
                                            : httplib::Server::HandlerResponse::Handled;
        });
        addRoutes();
        if (port == 0) {
            port_ = server_.bind_to_any_port("127.0.0.1");
        } else if (server_.bind_to_port("127.0.0.1", port)) {
            port_ = port;
        }
        if (port_ <= 0) {
            return makeError(ErrorCode::io, fmt::format("cannot listen on port {} of 127.0.0.1", port))
                .withHint("another program may have it; --port names another one, 0 takes a free one");
        }
        return {};
    }

    int port() const { return port_; }
    std::string url() const { return fmt::format("http://127.0.0.1:{}/?token={}", port_, token_); }

    void serve(const StopToken& stop, std::chrono::seconds idle) {
        std::thread answers([this] { server_.listen_after_bind(); });
        while (!stop.stopRequested()) {
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
            if (idle.count() == 0 || streams_ > 0) continue;
            if (Clock::now() - lastAsked_.load() > idle) break;
        }
        ending_ = true;
        if (content_.ending) content_.ending();
        server_.stop();
        answers.join();
    }

  private:
    std::string cookieName() const { return fmt::format("shardscope-{}", port_); }

    bool admit(const httplib::Request& request, httplib::Response& response) {
        const std::string host = request.get_header_value("Host");
        const auto no = [&](int status, const std::string& why) {
            refuse(response, status, why);
            return false;
        };
        if (request.get_header_value_count("Host") != 1 || !isLoopbackHost(host))
            return no(403, "This server answers to localhost and 127.0.0.1 only.");
        if (request.has_header("Origin") && request.get_header_value("Origin") != "http://" + host)
            return no(403, "Another site's page may not ask here.");
        const bool post = request.method == "POST";
        if (post && !content_.allowChanges)
            return no(405, "This server only shows; 'shardscope serve --allow-jobs' does more.");
        if (!post && request.method != "GET" && request.method != "HEAD")
            return no(405, "There is no such method here.");
        // A form of another site can send neither of the two.
        if (post && !request.has_header("Origin"))
            return no(403, "Only the page itself may change something.");
        if (post && request.get_header_value("Content-Type") != "application/json")
            return no(415, "JSON is expected.");
        if (request.path == "/" && request.has_param("token")) {
            if (!sameToken(request.get_param_value("token"), token_))
                return no(403, "The token is not this server's; use the address that it printed.");
            response.set_header(
                "Set-Cookie", fmt::format("{}={}; Path=/; HttpOnly; SameSite=Strict", cookieName(), token_));
            response.set_redirect("/", 303);
            lastAsked_ = Clock::now();
            return false;
        }
        if (!sameToken(cookieValue(request.get_header_value("Cookie"), cookieName()), token_))
            return no(403, "The address lacks its token; use the one that the server printed.");
        lastAsked_ = Clock::now();
        return true;
    }

    void addRoutes() {
        for (const PageFile& file : pageFiles()) {
            const std::string path = file.name == "index.html" ? "/" : "/" + std::string(file.name);
            server_.Get(path, [&file](const httplib::Request&, httplib::Response& response) {
                response.set_content(file.text.data(), file.text.size(), contentType(file.name));
            });
        }
        for (const PageRoute& route : content_.routes) {
            const auto answer = [&route](const httplib::Request& request, httplib::Response& response) {
                PageAnswer said = route.answer(requestOf(request));
                response.status = said.status;
                response.set_content(std::move(said.body), said.type);
            };
            if (route.changes)
                server_.Post(route.path, answer);
            else
                server_.Get(route.path, answer);
        }
        server_.Get("/api/events", [this](const httplib::Request& request, httplib::Response& response) {
            if (++streams_ > kMaxStreams) {
                --streams_;
                return refuse(response, 503, "Too many pages are open.");
            }
            follow(requestOf(request), response);
        });
    }

    // Server-sent events: each document anew when it has changed.
    void follow(const PageRequest& request, httplib::Response& response) {
        struct Seen {
            std::map<std::string, std::string> documents;
            Clock::time_point said = Clock::now();
        };
        const auto seen = std::make_shared<Seen>();
        response.set_chunked_content_provider(
            "text/event-stream",
            [this, seen, request](size_t, httplib::DataSink& sink) {
                std::string events;
                for (auto& [name, now] : content_.events(request)) {
                    std::string& last = seen->documents[name];
                    if (now == last) continue;
                    last = std::move(now);
                    events += fmt::format("event: {}\ndata: {}\n\n", name, last);
                }
                if (events.empty() && Clock::now() - seen->said > kKeepAlive) events = ": still here\n\n";
                if (!events.empty()) {
                    seen->said = Clock::now();
                    if (!sink.write(events.data(), events.size())) return false;
                }
                const auto until = Clock::now() + kPollInterval;
                while (!ending_ && Clock::now() < until)
                    std::this_thread::sleep_for(std::chrono::milliseconds(50));
                return !ending_ && sink.is_writable();
            },
            [this](bool) {
                --streams_;
                lastAsked_ = Clock::now();
            });
    }

    const PageContent content_;
    const std::string token_;
    httplib::Server server_;
    int port_ = -1;
    std::atomic<bool> ending_{false};
    std::atomic<int> streams_{0};
    std::atomic<Clock::time_point> lastAsked_;
};

PageServer::PageServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PageServer::~PageServer() = default;

Status PageServer::available() {
    return {};
}

Result<std::unique_ptr<PageServer>> PageServer::listen(PageContent content, int port) {
    SHARDSCOPE_ASSIGN(std::string token, randomToken());
    auto impl = std::make_unique<Impl>(std::move(content), std::move(token));
    SHARDSCOPE_TRY(impl->listen(port));
    return std::unique_ptr<PageServer>(new PageServer(std::move(impl)));
}

int PageServer::port() const {
    return impl_->port();
}

std::string PageServer::url() const {
    return impl_->url();
}

void PageServer::serve(const StopToken& stop, std::chrono::seconds idle) {
    impl_->serve(stop, idle);
}

}  // namespace shardscope::cli
