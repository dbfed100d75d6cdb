#include "cluster/broadcast.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <numeric>
#include <span>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cluster/messages.h"

namespace shardscope {
namespace {

using Json = nlohmann::json;
using Bytes = ProcessGroup::Bytes;

constexpr uint64_t kSentAtOnce = uint64_t{8} << 20;
constexpr uint64_t kMostReceived = uint64_t{256} << 20;  // by one rank in one step
constexpr size_t kStatusBytes = 1024;                    // of what a rank says went wrong

// Rank 0 announces each step, then one number for each rank: the bytes for it.
enum class Step : uint64_t { send, sync, end };

size_t headBytes(const ProcessGroup& group) {
    return (static_cast<size_t>(group.size()) + 1) * sizeof(uint64_t);
}

// Before the bytes of each piece.
struct Piece {
    uint64_t file, offset, length;
};

Status say(ProcessGroup& group, Step step, const std::vector<uint64_t>& sizes = {}) {
    Bytes bytes(headBytes(group));
    const auto kind = static_cast<uint64_t>(step);
    std::memcpy(bytes.data(), &kind, sizeof kind);
    if (!sizes.empty()) std::memcpy(bytes.data() + sizeof kind, sizes.data(), sizes.size() * sizeof kind);
    return group.broadcast(bytes);
}

Result<std::vector<uint64_t>> hear(ProcessGroup& group) {
    Bytes bytes(headBytes(group));
    SHARDSCOPE_TRY(group.broadcast(bytes));
    std::vector<uint64_t> head(bytes.size() / sizeof(uint64_t));
    std::memcpy(head.data(), bytes.data(), bytes.size());
    return head;
}

// Every rank's status comes to rank 0, which gets the first error.
Status gather(ProcessGroup& group, const Status& own) {
    const auto size = static_cast<size_t>(group.size());
    Bytes text(kStatusBytes);
    if (!own.ok()) {
        Error error = own.error();
        error.message.resize(std::min<size_t>(error.message.size(), 300));
        error.hint.resize(std::min<size_t>(error.hint.size(), 200));
        error.location.tensor.clear();
        error.location.file.resize(std::min<size_t>(error.location.file.size(), 200));
        const std::string encoded = dumpJson(errorJson(error)).substr(0, kStatusBytes);
        std::memcpy(text.data(), encoded.data(), encoded.size());
    }
    std::vector<uint64_t> out(size, 0), in(size, 0);
    out[0] = kStatusBytes;
    if (group.rank() == 0) in.assign(size, kStatusBytes);
    Bytes all(group.rank() == 0 ? size * kStatusBytes : 0);
    SHARDSCOPE_TRY(group.allToAll(text, out, all, in));
    SHARDSCOPE_TRY(Status(own));
    for (size_t rank = 1; group.rank() == 0 && rank < size; ++rank) {
        std::string one(reinterpret_cast<const char*>(all.data()) + rank * kStatusBytes, kStatusBytes);
        one.resize(std::min(one.size(), one.find('\0')));
        if (!one.empty()) return errorFrom(Json::parse(one, nullptr, false));
    }
    return {};
}

}  // namespace

// ------------------------------------------------------------------ rank 0

struct BroadcastSender::Round {
    PartWorker& worker;
    size_t order = 0;
    std::mutex mutex{};
    std::vector<Bytes> outgoing{};  // by rank
    uint64_t waiting = 0;           // bytes of them
    Bytes send{};
    struct Held {
        size_t order;
        PartDone result;
    };
    std::vector<Held> held{};  // not yet on disk everywhere
    uint64_t heldBytes = 0;
    const std::function<Status(size_t, const PartDone&)>& done;
};

BroadcastSender::BroadcastSender(ProcessGroup& group, WriterOf writerOf, const ConvertOptions& options,
                                 std::function<void(int rank, uint64_t bytes)> onWrite)
    : group_(group), writerOf_(std::move(writerOf)), onWrite_(std::move(onWrite)), cadence_(options) {}

BroadcastSender::~BroadcastSender() = default;

Status BroadcastSender::write(FileId file, uint64_t offset, std::span<const std::byte> bytes) {
    Round& round = *round_;
    const int rank = writerOf_(round.order, file);
    onWrite_(rank, bytes.size());
    if (rank == 0) return round.worker.write(file, offset, bytes);
    std::lock_guard lock(round.mutex);
    Bytes& to = round.outgoing[static_cast<size_t>(rank)];
    const Piece head{file, offset, bytes.size()};
    const auto before = std::as_bytes(std::span(&head, 1));
    to.insert(to.end(), before.begin(), before.end());
    to.insert(to.end(), bytes.begin(), bytes.end());
    round.waiting += bytes.size();
    return round.waiting >= kSentAtOnce ? flush(round) : Status();
}

// Under the round's mutex: other threads make tiles meanwhile.
Status BroadcastSender::flush(Round& round) {
    if (round.waiting == 0) return {};
    std::vector<uint64_t> sizes;
    round.send.clear();
    for (Bytes& each : round.outgoing) {
        sizes.push_back(each.size());
        round.send.insert(round.send.end(), each.begin(), each.end());
        each.clear();
    }
    round.waiting = 0;
    SHARDSCOPE_TRY(say(group_, Step::send, sizes));
    Bytes nothing;
    return group_.allToAll(round.send, sizes, nothing, std::vector<uint64_t>(sizes.size()));
}

Status BroadcastSender::bringToDisk(Round& round) {
    {
        std::lock_guard lock(round.mutex);
        SHARDSCOPE_TRY(flush(round));
    }
    SHARDSCOPE_TRY(say(group_, Step::sync));
    SHARDSCOPE_TRY(gather(group_, round.worker.sync()));
    SHARDSCOPE_TRY(round.worker.keep());
    for (const Round::Held& each : std::exchange(round.held, {}))
        SHARDSCOPE_TRY(round.done(each.order, each.result));
    round.heldBytes = 0;
    cadence_.restart();
    return {};
}

Status BroadcastSender::run(PartWorker& worker, const std::vector<PartOrder>& orders,
                            const std::function<Status(size_t, const PartDone&)>& done, Progress* progress,
                            const StopToken& stop) {
    round_.reset(new Round{.worker = worker, .done = done});
    round_->outgoing.resize(static_cast<size_t>(group_.size()));
    Status status;
    for (size_t i = 0; status.ok() && i < orders.size(); ++i) {
        status = stop.poll();
        if (!status.ok()) break;
        round_->order = i;
        const uint64_t before = group_.bytesSent();
        auto result = worker.run(PartWork::convert, orders[i]);
        if (!result.ok()) {
            status = std::move(result).error();
            break;
        }
        result->bytesMoved = group_.bytesSent() - before;
        if (progress) progress->add(orders[i].bytes);
        round_->held.push_back({i, *result});
        round_->heldBytes += orders[i].bytes;
        cadence_.add(orders[i].bytes);
        if (cadence_.due()) status = bringToDisk(*round_);
    }
    // What was done is kept, also when another part failed.
    if (Status last = bringToDisk(*round_); status.ok()) status = std::move(last);
    // What is in the progress but not in the journal is done again.
    if (progress) progress->add(uint64_t{0} - round_->heldBytes);
    Status ended = say(group_, Step::end);
    if (status.ok()) status = std::move(ended);
    return status;
}

// ------------------------------------------------------------------ the others

Status receiveBroadcast(ProcessGroup& group, PartWorker& worker) {
    Status written;
    Bytes received, nothing;
    const auto rank = static_cast<size_t>(group.rank());
    for (;;) {
        SHARDSCOPE_ASSIGN(const std::vector<uint64_t> head, hear(group));
        if (head[0] == static_cast<uint64_t>(Step::end)) return {};
        if (head[0] == static_cast<uint64_t>(Step::sync)) {
            if (written.ok()) written = worker.sync();
            const Status told = gather(group, written);
            if (written.ok() && !told.ok()) return told;
            written = {};
            continue;
        }
        const uint64_t coming = head[1 + rank];
        if (head[0] != static_cast<uint64_t>(Step::send) || coming > kMostReceived)
            return makeError(ErrorCode::remote, "rank 0 sent an unknown command");
        if (coming > received.size()) received.resize(coming);
        std::vector<uint64_t> none(head.size() - 1, 0), in = none;
        in[0] = coming;
        SHARDSCOPE_TRY(group.allToAll(nothing, none, received, in));
        for (std::span<const std::byte> bytes = std::span(received).first(coming);
             written.ok() && !bytes.empty();) {
            Piece piece{};
            if (bytes.size() < sizeof piece)
                return makeError(ErrorCode::remote, "truncated header of a range");
            std::memcpy(&piece, bytes.data(), sizeof piece);
            bytes = bytes.subspan(sizeof piece);
            if (piece.length > bytes.size() || piece.file >= kNone)
                return makeError(ErrorCode::remote, "truncated header of a range");
            written = worker.write(static_cast<FileId>(piece.file), piece.offset, bytes.first(piece.length));
            bytes = bytes.subspan(piece.length);
        }
    }
}

}  // namespace shardscope
