#include "places/http_place.h"

#include <algorithm>
#include <deque>
#include <random>
#include <thread>

#include <fmt/format.h>

#include "base/numbers.h"
#include "base/text.h"
#include "base/units.h"
#include "places/xml.h"

namespace shardscope {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr size_t kMostPieces = 32;  // of one read, at a time
constexpr unsigned kMostTries = 10;
constexpr auto kMostTime = 180s;  // of all tries after the first
constexpr auto kMostDelay = 20s;

// Codes that a store gives for what passes by itself.
bool isTemporaryCode(std::string_view code) {
    for (const std::string_view known :
         {"RequestTimeout", "InternalError", "SlowDown", "RequestLimitExceeded", "BandwidthLimitExceeded",
          "PriorRequestNotComplete", "ServiceUnavailable"}) {
        if (code == known) return true;
    }
    return code.starts_with("Throttl");
}

bool isTemporary(const HttpAnswer& answer, const StoreError& error) {
    switch (answer.status) {
        case 0:
            return answer.temporary;
        case 408:
        case 425:
        case 429:
        case 500:
        case 502:
        case 503:
        case 504:
            return true;
        default:
            return isTemporaryCode(error.code);
    }
}

// Full jitter, so that many who failed together do not come again together; at least what the server wants.
Clock::duration delayBefore(unsigned attempt, const HttpAnswer& answer) {
    thread_local std::minstd_rand random{std::random_device{}()};
    const double base = answer.status ? 0.5 : 0.05;
    const double most = std::min<double>(std::chrono::seconds(kMostDelay).count(), base * (1u << attempt));
    double seconds = std::uniform_real_distribution<double>(0, most)(random);
    if (const auto wanted = parseNumber<unsigned>(answer.header("retry-after")))
        seconds = std::max(seconds, std::min<double>(*wanted, 30));
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

bool slept(Clock::duration time) {
    const StopToken stop = StopScope::current();
    const auto until = Clock::now() + time;
    while (Clock::now() < until) {
        if (stop.stopRequested()) return false;
        std::this_thread::sleep_for(std::min<Clock::duration>(until - Clock::now(), 50ms));
    }
    return true;
}

Error cancelled() {
    return makeError(ErrorCode::cancelled, "canceled");
}

}  // namespace

StoreError storeErrorOf(const HttpAnswer& answer) {
    StoreError error;
    if (answer.body.find("<Error>") == std::string::npos) return error;
    // The rest of a body that is not XML after all says nothing.
    (void)readXml(answer.body, [&](std::string_view path, std::string_view text) -> Status {
        if (path == "Error/Code") error.code = oneLine(text, 80);
        if (path == "Error/Message") error.message = oneLine(text, 300);
        if (path == "Error/RequestId") error.request = oneLine(text, 80);
        if (path == "Error/Region") error.region = oneLine(text, 40);
        return {};
    });
    return error;
}

void HttpPlace::pin(const ObjectState& object, HttpRequest& request) const {
    if (!object.version.empty()) request.headers.emplace_back("If-Match", object.version);
}

// Waits for the first try, and makes others while it is worth it.
HttpAnswer HttpPlace::settle(const Make& make, Http::Ticket ticket, const ObjectState* object,
                             unsigned& tries) const {
    Http& http = Http::ofProcess();
    Clock::time_point begun{};
    unsigned mended = 0;
    for (tries = 1;; ++tries) {
        HttpAnswer answer = http.wait(ticket);
        if (tries == 1) begun = Clock::now();  // it may have waited long for its turn
        if (StopScope::current().stopRequested()) return {};
        const StoreError error = storeErrorOf(answer);
        if (answer.good() && error.code.empty()) return answer;
        const bool again = mended < 3 && answer.status && mend(answer, error, object);
        mended += again;
        if (!again) {
            if (!isTemporary(answer, error) || tries == kMostTries || Clock::now() - begun > kMostTime)
                return answer;
            Http::countRetry();
            if (!slept(delayBefore(tries, answer))) return {};
        }
        auto request = make();
        if (!request.ok()) {
            answer = {};
            answer.failed = request.error().message;
            return answer;
        }
        ticket = http.start(std::move(*request));
    }
}

Result<HttpAnswer> HttpPlace::askAny(const Make& make, const std::string& shown) const {
    SHARDSCOPE_ASSIGN(HttpRequest request, make());
    unsigned tries = 0;
    HttpAnswer answer = settle(make, Http::ofProcess().start(std::move(request)), nullptr, tries);
    if (StopScope::current().stopRequested()) return cancelled().inFile(shown);
    if (!answer.status) return errorOf(answer, shown);
    return answer;
}

Result<HttpAnswer> HttpPlace::ask(const Make& make, const std::string& shown) const {
    SHARDSCOPE_ASSIGN(HttpAnswer answer, askAny(make, shown));
    if (!answer.good() || !storeErrorOf(answer).code.empty()) return errorOf(answer, shown);
    return answer;
}

Error HttpPlace::errorOf(const HttpAnswer& answer, const std::string& shown) const {
    const StoreError error = storeErrorOf(answer);
    std::string said = error.code;
    if (!error.message.empty()) said += (said.empty() ? "" : ": ") + error.message;
    if (!error.request.empty()) said += fmt::format(" (request {})", error.request);
    const auto make = [&](ErrorCode code, std::string message, std::string_view hint = {}) {
        if (!said.empty()) message += fmt::format("; the server says {}", said);
        return makeError(code, std::move(message)).inFile(shown).withHint(hint);
    };
    if (answer.status == 0) {
        const bool untrusted = answer.failed.find("certificate") != std::string::npos,
                   plain = answer.failed.find("wrong version number") != std::string::npos;
        return makeError(ErrorCode::remote, answer.failed.empty()
                                                ? "the server does not answer"
                                                : "cannot be read: " + oneLine(answer.failed))
            .inFile(shown)
            .withHint(untrusted ? "SSL_CERT_FILE names a file of certificates to trust; now it is " +
                                      (Http::certificates().empty() ? "none" : Http::certificates())
                      : plain ? "it may speak http and not https: name it as http://"
                              : "");
    }
    switch (answer.status) {
        case 401:
        case 403:
            if (error.code == "InvalidObjectState")
                return make(ErrorCode::permission, "is archived", "restore it from the archive first");
            return make(ErrorCode::permission, fmt::format("access is refused ({})", answer.status),
                        accessHint());
        case 404:
            return make(ErrorCode::notFound,
                        error.code == "NoSuchBucket" ? "there is no such bucket" : "there is no such object");
        case 400:
            if (error.code == "BadDigest" || error.code == "InvalidDigest")
                return make(ErrorCode::damaged, "the store got other bytes than were sent");
            return make(ErrorCode::remote, "the server refuses the request");
        case 304:
        case 409:
        case 412:
            if (answer.writes) return make(ErrorCode::exists, "is there already");
            [[fallthrough]];
        case 416:
            return make(ErrorCode::changed, "the object changed while it was read",
                        "open the checkpoint again");
        case 501:
            return make(ErrorCode::unsupported, "the server cannot do this");
        default:
            return make(ErrorCode::remote, fmt::format("the server answers with status {}", answer.status));
    }
}

Status HttpPlace::readRanges(const ObjectState& object, std::span<const Range> ranges) {
    struct Piece {
        uint64_t offset;
        std::span<std::byte> into;
        Http::Ticket ticket;
    };
    Http& http = Http::ofProcess();
    const auto make = [&](const Piece& piece) -> Result<HttpRequest> {
        SHARDSCOPE_ASSIGN(HttpRequest request, requestFor(object));
        pin(object, request);
        request.into = piece.into;
        request.offset = piece.offset;
        request.whole = object.size;
        return request;
    };
    std::deque<Piece> underWay;
    Status status;
    uint64_t offset = 0;
    std::span<std::byte> buffer;
    const auto more = [&] {
        while (buffer.empty() && !ranges.empty()) {
            offset = ranges.front().offset;
            buffer = ranges.front().into;
            ranges = ranges.subspan(1);
        }
        return !buffer.empty() && status.ok();
    };
    while (more() || !underWay.empty()) {
        if (more() && underWay.size() < kMostPieces) {
            const size_t size = std::min<uint64_t>(buffer.size(), kRequest - offset % kRequest);
            Piece piece{offset, buffer.first(size), {}};
            auto request = make(piece);
            if (!request.ok()) {
                status = std::move(request).error();
                continue;
            }
            request->hurried = true;
            piece.ticket = http.start(std::move(*request));
            underWay.push_back(std::move(piece));
            buffer = buffer.subspan(size);
            offset += size;
            continue;
        }
        const Piece piece = std::move(underWay.front());
        underWay.pop_front();
        if (!status.ok()) {
            http.giveUp(piece.ticket);
            continue;
        }
        unsigned tries = 0;
        const HttpAnswer answer = settle([&] { return make(piece); }, piece.ticket, &object, tries);
        if (answer.good()) continue;
        if (StopScope::current().stopRequested()) {
            status = cancelled().inFile(shown(object.key));
            continue;
        }
        Error error = errorOf(answer, shown(object.key)).at(piece.offset);
        if (tries > 1) error.message += fmt::format(" (after {})", counted(tries, "try"));
        status = std::move(error);
    }
    return status;
}

}  // namespace shardscope
