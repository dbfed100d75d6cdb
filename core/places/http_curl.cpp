#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include <curl/curl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/mutex.h"
#include "base/numbers.h"
#include "base/units.h"
#include "places/http.h"

namespace shardscope {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostHeaders = size_t{256} << 10;                      // bytes of an answer's
constexpr uint64_t kSmallTransfer = uint64_t{256} << 10;                // goes before larger ones
constexpr unsigned kFirstLimit = 16, kLeastLimit = 2, kMostLimit = 64;  // transfers to one host
constexpr std::chrono::milliseconds kStopInterval{100};
constexpr long kShortStall = 2, kLongStall = 30;  // seconds
constexpr unsigned kMostSecond = 4;               // reads that are asked for twice, at a time

class HttpTransfer {
  public:
    explicit HttpTransfer(HttpRequest r) : request(std::move(r)) {}

    HttpRequest request;
    HttpAnswer answer;
    // All that follows belongs to the transfers' thread, but `done` and `unwanted`, which the mutex guards.
    CURL* easy = nullptr;
    Clock::time_point begun{}, moved{};    // moved: when something of it arrived
    std::shared_ptr<HttpTransfer> second;  // the same read, asked for once more
    HttpTransfer* first = nullptr;         // the one that this is the second of
    std::vector<std::byte> own;            // buffer of a second one
    curl_slist* lines = nullptr;
    std::string host;
    size_t headerBytes = 0;
    uint64_t placed = 0;
    std::optional<bool> range;  // the body goes into the buffer
    std::array<char, CURL_ERROR_SIZE> why{};
    bool done = false, unwanted = false;
    Condition ended;  // of `done`
};

namespace {

std::string lower(std::string_view text) {
    std::string out(text);
    for (char& c : out)
        c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    return out;
}

struct ContentRange {
    uint64_t first = 0, last = 0, whole = 0;
};
std::optional<ContentRange> parseContentRange(std::string_view text) {
    ContentRange range;
    if (!text.starts_with("bytes ")) return std::nullopt;
    text.remove_prefix(6);
    const auto take = [&](uint64_t& to, std::string_view after) {
        const auto number = takeNumber<uint64_t>(text);
        if (!number || !text.starts_with(after)) return false;
        to = *number;
        text.remove_prefix(after.size());
        return true;
    };
    if (!take(range.first, "-") || !take(range.last, "/")) return std::nullopt;
    if (text == "*") return range;
    return take(range.whole, "") && text.empty() ? std::optional(range) : std::nullopt;
}

// Whether an answer is the range that was asked for; says why not.
std::string checkRange(const HttpTransfer& transfer) {
    const HttpRequest& asked = transfer.request;
    const std::string_view encoding = transfer.answer.header("content-encoding");
    if (!encoding.empty() && encoding != "identity" && encoding != "aws-chunked")
        return fmt::format("the server compresses it ({}), so that no part of it can be read", encoding);
    const auto range = parseContentRange(transfer.answer.header("content-range"));
    if (!range) return "the server does not serve parts of files (no Content-Range)";
    const uint64_t last = asked.offset + asked.into.size() - 1;
    if (range->first != asked.offset || range->last != last)
        return fmt::format("bytes {} to {} were asked for, the server sends {} to {}",
                           countText(asked.offset), countText(last), countText(range->first),
                           countText(range->last));
    if (asked.whole && range->whole && range->whole != *asked.whole)
        return fmt::format("it had {} and now has {}", counted(*asked.whole, "byte"),
                           countText(range->whole));
    return {};
}

size_t onHeader(const char* data, size_t one, size_t count, void* user) {
    HttpTransfer& transfer = *static_cast<HttpTransfer*>(user);
    const size_t size = one * count;
    transfer.moved = Clock::now();
    const std::string_view line(data, size);
    if ((transfer.headerBytes += size) > kMostHeaders) {
        transfer.answer.failed = "its headers are longer than any should be";
        return 0;
    }
    if (line.starts_with("HTTP/")) {
        transfer.answer.headers.clear();  // those of "100 Continue" or of a proxy
        return size;
    }
    const size_t colon = line.find(':');
    if (colon != std::string_view::npos)
        transfer.answer.headers[lower(line.substr(0, colon))] = trimmedText(line.substr(colon + 1));
    return size;
}

size_t onBody(const char* data, size_t one, size_t count, void* user) {
    HttpTransfer& transfer = *static_cast<HttpTransfer*>(user);
    const size_t size = one * count;
    transfer.moved = Clock::now();
    HttpAnswer& answer = transfer.answer;
    if (!transfer.range) {
        long status = 0;
        curl_easy_getinfo(transfer.easy, CURLINFO_RESPONSE_CODE, &status);
        transfer.range = !transfer.request.into.empty() && (status == 206 || status == 200);
        if (*transfer.range) {
            answer.failed = checkRange(transfer);
            if (!answer.failed.empty()) return 0;
        }
    }
    if (*transfer.range) {
        if (size > transfer.request.into.size() - transfer.placed) {
            answer.failed = "the server sends more than was asked for";
            return 0;
        }
        std::memcpy(transfer.request.into.data() + transfer.placed, data, size);
        transfer.placed += size;
        return size;
    }
    if (answer.body.size() + size > transfer.request.most) {
        answer.failed = fmt::format("its answer is longer than {}", counted(transfer.request.most, "byte"));
        return 0;
    }
    answer.body.append(data, size);
    return size;
}

size_t onSend(char* to, size_t one, size_t count, void* user) {
    HttpTransfer& transfer = *static_cast<HttpTransfer*>(user);
    std::span<const std::byte>& rest = transfer.request.content;
    const size_t size = std::min(one * count, rest.size());
    std::memcpy(to, rest.data(), size);
    rest = rest.subspan(size);
    return size;
}

bool isTemporary(CURLcode code) {
    switch (code) {
        case CURLE_COULDNT_RESOLVE_HOST:
        case CURLE_COULDNT_RESOLVE_PROXY:
        case CURLE_COULDNT_CONNECT:
        case CURLE_OPERATION_TIMEDOUT:
        case CURLE_GOT_NOTHING:
        case CURLE_PARTIAL_FILE:
        case CURLE_SEND_ERROR:
        case CURLE_SEND_FAIL_REWIND:
        case CURLE_RECV_ERROR:
        case CURLE_SSL_CONNECT_ERROR:
            return true;
        default:
            return false;
    }
}

// Where the certificates of authorities are: what the user says, then the places of distributions. A program
// that was built elsewhere knows none by itself.
const std::string& certificatesFile() {
    static const std::string file = [] {
        for (const char* name : {"SSL_CERT_FILE", "AWS_CA_BUNDLE", "CURL_CA_BUNDLE"}) {
            const char* value = std::getenv(name);
            if (value && *value) return std::string(value);
        }
        for (const char* place : {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                                  "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"}) {
            if (access(place, R_OK) == 0) return std::string(place);
        }
        return std::string();
    }();
    return file;
}

// Of the process, for traffic().
std::atomic<uint64_t> transfers{0}, retries{0}, throttled{0};

void countOne(std::atomic<uint64_t>& counter) {
    counter.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

// ------------------------------------------------------------------ the thread

struct Http::Work {
    struct Host {
        std::deque<Ticket> small, large;
        unsigned underWay = 0, limit = kFirstLimit;
        uint64_t bytes = 0;  // since `since`
        double best = 0;     // bytes in a second
        double usual = 0;    // seconds of a read, a moving average; 0 = not known
        unsigned reads = 0;
        long stall() const;
        Clock::time_point since = Clock::now(), halved{};
    };

    const pid_t process = getpid();
    CURLM* const multi = curl_multi_init();
    mutable Mutex mutex;
    std::deque<Ticket> posted SHARDSCOPE_GUARDED_BY(mutex);
    bool unwanted SHARDSCOPE_GUARDED_BY(mutex) = false;  // some transfer is
    bool ending SHARDSCOPE_GUARDED_BY(mutex) = false;
    // Of the thread alone.
    std::map<std::string, Host> hosts;
    std::vector<Ticket> running;
    unsigned second = 0;  // of these, second ones
    std::thread thread;

    void run();
    void takePosted();
    void begin(Host& host);
    void start(const Ticket& ticket);
    void finish(const Ticket& ticket, CURLcode code);
    void end(HttpTransfer& transfer);
    void askAgain();
    void takeSecond(HttpTransfer& second);
    void dropSecond(HttpTransfer& first);
    Ticket takeRunning(const HttpTransfer* transfer);
    void release(const Ticket& ticket);
    void dropUnwanted();
    void learn(Host& host, const HttpTransfer& transfer);
};

// Seconds without bytes after which a read of this host is not worth waiting for.
long Http::Work::Host::stall() const {
    constexpr unsigned kKnown = 8;  // reads
    return reads < kKnown ? kLongStall : std::clamp(std::lround(usual * 8), kShortStall, kLongStall);
}

void Http::Work::run() {
    for (;;) {
        takePosted();
        for (auto& [name, host] : hosts)
            begin(host);
        int active = 0;
        curl_multi_perform(multi, &active);
        int left = 0;
        bool finished = false;
        while (const CURLMsg* message = curl_multi_info_read(multi, &left)) {
            if (message->msg != CURLMSG_DONE) continue;
            char* own = nullptr;
            curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &own);
            const CURLcode code = message->data.result;
            const Ticket ticket = takeRunning(reinterpret_cast<HttpTransfer*>(own));
            if (!ticket) continue;
            finish(ticket, code);
            finished = true;
        }
        if (finished) continue;
        askAgain();
        {
            MutexLock lock(mutex);
            if (ending && running.empty() && posted.empty()) return;
        }
        curl_multi_poll(multi, nullptr, 0, 1000, nullptr);
    }
}

void Http::Work::takePosted() {
    std::deque<Ticket> taken;
    bool drop = false;
    {
        MutexLock lock(mutex);
        taken.swap(posted);
        drop = std::exchange(unwanted, false);
    }
    for (Ticket& ticket : taken) {
        const auto url = parseUrl(ticket->request.url);
        ticket->host = url ? url->scheme + "://" + url->authority : std::string();
        Host& host = hosts[ticket->host];
        const uint64_t size = ticket->request.into.size() + ticket->request.content.size();
        (size < kSmallTransfer ? host.small : host.large).push_back(std::move(ticket));
    }
    if (drop) dropUnwanted();
}

void Http::Work::dropUnwanted() {
    std::vector<Ticket> gone;
    {
        MutexLock lock(mutex);
        const auto take = [&](auto& from) SHARDSCOPE_REQUIRES(mutex) {
            std::erase_if(from, [&](const Ticket& t) {
                if (t->unwanted) gone.push_back(t);
                return t->unwanted;
            });
        };
        take(running);
        for (auto& [name, host] : hosts) {
            take(host.small);
            take(host.large);
        }
    }
    for (const Ticket& ticket : gone) {
        dropSecond(*ticket);
        if (ticket->easy) release(ticket);
        ticket->answer = {};
        ticket->answer.failed = "given up";
        end(*ticket);
    }
}

Http::Ticket Http::Work::takeRunning(const HttpTransfer* transfer) {
    const auto it = std::find_if(running.begin(), running.end(),
                                 [&](const Ticket& ticket) { return ticket.get() == transfer; });
    if (it == running.end()) return nullptr;
    Ticket ticket = std::move(*it);
    running.erase(it);
    return ticket;
}

void Http::Work::end(HttpTransfer& transfer) {
    MutexLock lock(mutex);
    transfer.done = true;
    transfer.ended.notify_all();
}

// Reads that stand still are asked for a second time, into memory of their own: bytes of two answers are
// never mixed.
void Http::Work::askAgain() {
    const auto now = Clock::now();
    for (size_t i = 0, count = running.size(); i < count && second < kMostSecond; ++i) {
        const Ticket ticket = running[i];
        if (!ticket->request.hurried || ticket->first || ticket->second) continue;
        Host& host = hosts[ticket->host];
        if (now - ticket->moved < std::chrono::seconds(host.stall())) continue;
        const auto other = std::make_shared<HttpTransfer>(ticket->request);
        other->own.resize(ticket->request.into.size());
        other->request.into = other->own;
        other->host = ticket->host;
        other->first = ticket.get();
        ticket->second = other;
        ++second;
        ++host.underWay;
        start(other);
        countOne(retries);
    }
}

// A second transfer has ended: its bytes are those of the first, which is given up. A failure says nothing
// about the first, which may be asked for again after as long a time.
void Http::Work::takeSecond(HttpTransfer& transfer) {
    HttpTransfer* const first = transfer.first;
    const std::shared_ptr<HttpTransfer> own = std::exchange(first->second, nullptr);
    --second;
    first->moved = Clock::now();
    if (!transfer.answer.good()) return;
    const Ticket ticket = takeRunning(first);
    release(ticket);
    std::memcpy(first->request.into.data(), transfer.own.data(), transfer.own.size());
    first->answer = std::move(transfer.answer);
    end(*first);
}

void Http::Work::dropSecond(HttpTransfer& first) {
    const std::shared_ptr<HttpTransfer> other = std::exchange(first.second, nullptr);
    if (!other) return;
    release(takeRunning(other.get()));
    --second;
}

void Http::Work::begin(Host& host) {
    while (host.underWay < host.limit && (!host.small.empty() || !host.large.empty())) {
        auto& queue = host.small.empty() ? host.large : host.small;
        const Ticket ticket = std::move(queue.front());
        queue.pop_front();
        ++host.underWay;
        start(ticket);
    }
}

void Http::Work::start(const Ticket& ticket) {
    HttpTransfer& transfer = *ticket;
    const HttpRequest& request = transfer.request;
    CURL* const easy = transfer.easy = curl_easy_init();
    const auto set = [&](auto option, auto value) { curl_easy_setopt(easy, option, value); };
    set(CURLOPT_URL, request.url.c_str());
    set(CURLOPT_PATH_AS_IS, 1L);
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_QUICK_EXIT, 1L);  // a name server that is silent holds up nobody else
    set(CURLOPT_FOLLOWLOCATION, 0L);
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    set(CURLOPT_BUFFERSIZE, 512L << 10);
    set(CURLOPT_UPLOAD_BUFFERSIZE, 512L << 10);
    set(CURLOPT_TCP_KEEPALIVE, 1L);
    set(CURLOPT_CONNECTTIMEOUT, static_cast<long>(request.connecting.count()));
    if (request.patience) {
        set(CURLOPT_TIMEOUT_MS, static_cast<long>(request.patience->count()));
    } else {
        set(CURLOPT_LOW_SPEED_LIMIT, 1024L);
        set(CURLOPT_LOW_SPEED_TIME, transfer.first ? hosts[transfer.host].stall() : kLongStall);
    }
    if (!certificatesFile().empty()) set(CURLOPT_CAINFO, certificatesFile().c_str());
    set(CURLOPT_ERRORBUFFER, transfer.why.data());
    set(CURLOPT_PRIVATE, &transfer);
    set(CURLOPT_HEADERFUNCTION, &onHeader);
    set(CURLOPT_HEADERDATA, &transfer);
    set(CURLOPT_WRITEFUNCTION, &onBody);
    set(CURLOPT_WRITEDATA, &transfer);
    const auto line = [&](const std::string& text) {
        transfer.lines = curl_slist_append(transfer.lines, text.c_str());
    };
    for (const auto& [name, value] : request.headers)
        line(value.empty() ? name + ";" : name + ": " + value);
    if (!request.into.empty())
        line(fmt::format("Range: bytes={}-{}", request.offset, request.offset + request.into.size() - 1));
    line("User-Agent: shardscope");
    line("Expect:");
    if (request.method == "HEAD") {
        set(CURLOPT_NOBODY, 1L);
    } else if (request.method == "PUT" || request.method == "POST") {
        set(CURLOPT_UPLOAD, 1L);
        set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(request.content.size()));
        set(CURLOPT_READFUNCTION, &onSend);
        set(CURLOPT_READDATA, &transfer);
    }
    set(CURLOPT_CUSTOMREQUEST, request.method == "HEAD" ? nullptr : request.method.c_str());
    set(CURLOPT_HTTPHEADER, transfer.lines);
    transfer.begun = transfer.moved = Clock::now();
    running.push_back(ticket);
    curl_multi_add_handle(multi, easy);
    countOne(transfers);
}

void Http::Work::release(const Ticket& ticket) {
    curl_multi_remove_handle(multi, ticket->easy);
    curl_easy_cleanup(std::exchange(ticket->easy, nullptr));
    curl_slist_free_all(std::exchange(ticket->lines, nullptr));
    --hosts[ticket->host].underWay;
}

void Http::Work::finish(const Ticket& ticket, CURLcode code) {
    HttpTransfer& transfer = *ticket;
    HttpAnswer& answer = transfer.answer;
    answer.writes = transfer.request.method == "PUT" || transfer.request.method == "POST";
    long status = 0;
    curl_easy_getinfo(transfer.easy, CURLINFO_RESPONSE_CODE, &status);
    if (code == CURLE_OK) {
        answer.status = static_cast<int>(status);
        const bool ranged = !transfer.request.into.empty() && (status == 206 || status == 200);
        if (ranged && transfer.placed != transfer.request.into.size()) {
            answer.status = 0;
            answer.temporary = true;
            answer.failed = fmt::format("the answer ended after {} of {}", countText(transfer.placed),
                                        counted(transfer.request.into.size(), "byte"));
        }
    } else if (answer.failed.empty()) {
        answer.failed = transfer.why[0] ? std::string(transfer.why.data()) : curl_easy_strerror(code);
        // A server without TLS stays one.
        answer.temporary =
            isTemporary(code) && answer.failed.find("wrong version number") == std::string::npos;
    }
    release(ticket);
    learn(hosts[transfer.host], transfer);
    if (status == 429 || status == 503) countOne(throttled);
    if (transfer.first) {
        takeSecond(transfer);
        return;
    }
    dropSecond(transfer);
    end(transfer);
}

// More at a time while it brings more, half as many when it is too much for the host.
void Http::Work::learn(Host& host, const HttpTransfer& transfer) {
    const auto now = Clock::now();
    if (transfer.answer.status == 429 || transfer.answer.status == 503) {
        if (now - host.halved > std::chrono::seconds(1)) {
            host.limit = std::max(kLeastLimit, host.limit / 2);
            host.halved = now;
            host.best = 0;
        }
        return;
    }
    host.bytes += transfer.placed;
    if (transfer.placed > 0) {
        const double took = std::chrono::duration<double>(now - transfer.begun).count();
        host.usual = host.reads++ == 0 ? took : host.usual + (took - host.usual) / 8;
    }
    const double seconds = std::chrono::duration<double>(now - host.since).count();
    if (seconds < 0.5) return;
    const double rate = static_cast<double>(host.bytes) / seconds;
    if (rate > host.best * 1.03) {
        host.limit = std::min(kMostLimit, host.limit + 4);
        host.best = rate;
    } else {
        host.best *= 0.97;
    }
    host.bytes = 0;
    host.since = now;
}

// ------------------------------------------------------------------ for others

Http::Http() : work_(std::make_unique<Work>()) {
    curl_multi_setopt(work_->multi, CURLMOPT_MAXCONNECTS, 128L);
    work_->thread = std::thread([this] { work_->run(); });
}

Http::~Http() {
    if (work_->process != getpid()) {
        work_->thread.detach();  // it is the parent's; here there is none
        return;
    }
    {
        MutexLock lock(work_->mutex);
        work_->ending = true;
    }
    curl_multi_wakeup(work_->multi);
    work_->thread.join();
    curl_multi_cleanup(work_->multi);
}

Http& Http::ofProcess() {
    static std::once_flag once;
    std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
    static std::mutex mutex;
    static std::unique_ptr<Http> http;
    const std::lock_guard<std::mutex> lock(mutex);
    if (http && http->work_->process != getpid()) (void)http.release();
    if (!http) http.reset(new Http);
    return *http;
}

Http::Ticket Http::start(HttpRequest request) {
    const auto ticket = std::make_shared<HttpTransfer>(std::move(request));
    {
        MutexLock lock(work_->mutex);
        work_->posted.push_back(ticket);
    }
    curl_multi_wakeup(work_->multi);
    return ticket;
}

HttpAnswer Http::wait(const Ticket& ticket) {
    const StopToken stop = StopScope::current();
    MutexLock lock(work_->mutex);
    while (!ticket->done && !stop.stopRequested())
        ticket->ended.wait_for(lock, kStopInterval);
    if (!ticket->done) {
        lock.unlock();
        giveUp(ticket);
        lock.lock();
    }
    return std::move(ticket->answer);
}

void Http::giveUp(const Ticket& ticket) {
    MutexLock lock(work_->mutex);
    if (ticket->done) return;
    ticket->unwanted = work_->unwanted = true;
    curl_multi_wakeup(work_->multi);
    ticket->ended.wait(lock, [&] { return ticket->done; });
}

Http::Traffic Http::traffic() {
    return {transfers.load(std::memory_order_relaxed), retries.load(std::memory_order_relaxed),
            throttled.load(std::memory_order_relaxed)};
}

void Http::countRetry() {
    countOne(retries);
}

bool Http::builtIn() {
    return true;
}

std::string Http::certificates() {
    return certificatesFile();
}

}  // namespace shardscope
