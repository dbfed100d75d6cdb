#include "serve/page_server.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>

#include <fmt/format.h>
#include <httplib.h>
#include <poll.h>
#include <sys/random.h>

#include "serve/page_files.h"
#include "serve/page_gate.h"

namespace shardscope::serve {
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

std::string pathOf(const PageFile& file) {
    return file.name == "index.html" ? "/" : "/" + std::string(file.name);
}

bool isPageFile(const std::string& path) {
    return std::ranges::any_of(pageFiles(), [&](const PageFile& file) { return pathOf(file) == path; });
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

constexpr const char* kTokenHeader = "X-Shardscope-Token";

// One request that the gate has let in: what came before it did, then what still comes, for a limited time.
// Later versions of the library ask for its state by other names. Both are here, so nothing is marked as
// overriding.
class PageStream final : public httplib::Stream {
  public:
    explicit PageStream(PageConnection& connection)
        : connection_(connection), until_(Clock::now() + PageGate::kHeadTime) {}
    // What belongs to the next request stays.
    ~PageStream() { connection_.bytes.erase(0, taken_); }

    bool is_readable() const { return taken_ < connection_.bytes.size() || awaits(POLLIN, 0); }
    bool wait_readable() const { return is_readable(); }
    bool wait_writable() const { return is_writable(); }
    bool is_peer_alive() const { return is_writable(); }
    time_t duration() const { return 0; }
    bool is_writable() const {
        char byte = 0;
        const ssize_t n = ::recv(socket(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        const bool gone = n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
        return !gone && awaits(POLLOUT, kWriteWait);
    }
    ssize_t read(char* to, size_t size) {
        if (taken_ == connection_.bytes.size()) {
            const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until_ - Clock::now());
            if (left.count() <= 0 || !awaits(POLLIN, static_cast<int>(left.count()))) return -1;
            return ::recv(socket(), to, size, 0);
        }
        const size_t n = std::min(size, connection_.bytes.size() - taken_);
        std::memcpy(to, connection_.bytes.data() + taken_, n);
        taken_ += n;
        return static_cast<ssize_t>(n);
    }
    ssize_t write(const char* from, size_t size) {
        if (!awaits(POLLOUT, kWriteWait)) return -1;
        return ::send(socket(), from, size, MSG_NOSIGNAL);
    }
    void get_remote_ip_and_port(std::string& ip, int& port) const { ip = "127.0.0.1", port = 0; }
    void get_local_ip_and_port(std::string& ip, int& port) const { ip = "127.0.0.1", port = 0; }
    socket_t socket() const { return connection_.socket; }

  private:
    static constexpr int kWriteWait = 5000;  // milliseconds

    bool awaits(short event, int milliseconds) const {
        pollfd one{connection_.socket, event, 0};
        return ::poll(&one, 1, milliseconds) > 0 && (one.revents & event);
    }

    PageConnection& connection_;
    const Clock::time_point until_;
    size_t taken_ = 0;
};

// The library's parsing and routing, behind the gate.
class GatedServer final : public httplib::Server {
  public:
    void open() {
        gate_.emplace([this](PageConnection& connection) { return serve(connection); }, kThreads);
    }
    // The requests that are served come to their end.
    void close() { gate_.reset(); }

  private:
    bool process_and_close_socket(socket_t socket) override {
        gate_->add(socket);
        return true;
    }
    bool serve(PageConnection& connection) {
        PageStream stream(connection);
        bool closed = false;
        const bool last = connection.requests + 1 >= PageGate::kMostRequests;
        return process(*this, stream, last, closed) && !closed;
    }
    // Later versions of the library also want the addresses of both ends.
    template <class Self>
    static bool process(Self& self, PageStream& stream, bool last, bool& closed) {
        if constexpr (requires { self.process_request(stream, last, closed, nullptr); })
            return self.process_request(stream, last, closed, nullptr);
        else
            return self.process_request(stream, "127.0.0.1", 0, "127.0.0.1", 0, last, closed, nullptr);
    }

    std::optional<PageGate> gate_;
};

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
        server_.new_task_queue = [] { return new httplib::ThreadPool(1); };  // it only hands on to the gate
        // Not the library's choice, SO_REUSEPORT: two servers on one port.
        server_.set_socket_options([](socket_t socket) {
            const int yes = 1;
            (void)::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        });
        server_.set_payload_max_length(kMaxPageBody);
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
    std::string url() const { return fmt::format("http://127.0.0.1:{}/#token={}", port_, token_); }

    void serve(const StopToken& stop, std::chrono::seconds idle) {
        server_.open();
        std::atomic<bool> ended{false};
        std::thread answers([&] {
            server_.listen_after_bind();
            ended = true;
        });
        while (!stop.stopRequested()) {
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
            if (idle.count() == 0 || streams_ > 0) continue;
            if (Clock::now() - lastAsked_.load() > idle) break;
        }
        ending_ = true;
        if (content_.ending) content_.ending();
        // A server that does not listen yet cannot be stopped.
        while (!server_.is_running() && !ended)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        server_.stop();
        answers.join();
        server_.close();
    }

  private:
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
        if (!post && isPageFile(request.path)) return true;
        if (!sameToken(request.get_header_value(kTokenHeader), token_))
            return no(403, "The address lacks its token; use the one that the server printed.");
        lastAsked_ = Clock::now();
        return true;
    }

    void addRoutes() {
        for (const PageFile& file : pageFiles()) {
            server_.Get(pathOf(file), [&file](const httplib::Request&, httplib::Response& response) {
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
    GatedServer server_;
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

}  // namespace shardscope::serve
