#include "execute/group_talk.h"

#include <numeric>
#include <optional>
#include <utility>

#include "execute/binary_json.h"

namespace shardscope {

using Json = nlohmann::json;

Status broadcastText(ProcessGroup& group, size_t lane, std::string& text, int root) {
    uint64_t size = text.size();
    SHARDSCOPE_TRY(group.broadcast(lane, std::as_writable_bytes(std::span(&size, 1)), root));
    if (size > kMostGroupText) return malformedMessage();
    text.resize(size);
    return size == 0 ? Status() : group.broadcast(lane, bytesOf(text), root);
}

Result<std::vector<uint64_t>> swapSizes(ProcessGroup& group, size_t lane,
                                        const std::vector<uint64_t>& sending, uint64_t most) {
    const std::vector<uint64_t> each(sending.size(), sizeof(uint64_t));
    std::vector<uint64_t> coming(sending.size());
    SHARDSCOPE_TRY(group.allToAll(lane, std::as_bytes(std::span(sending)), each,
                                  std::as_writable_bytes(std::span(coming)), each));
    uint64_t total = 0;
    for (const uint64_t size : coming) {
        total += size;
        if (size > most || total > kMostGroupText) return malformedMessage();
    }
    return coming;
}

Result<std::vector<std::string>> allToAllTexts(ProcessGroup& group, size_t lane,
                                               const std::vector<std::string>& texts, uint64_t most) {
    std::vector<uint64_t> sending;
    std::string send;
    for (const std::string& text : texts) {
        sending.push_back(text.size());
        send += text;
    }
    SHARDSCOPE_ASSIGN(const std::vector<uint64_t> sizes, swapSizes(group, lane, sending, most));
    std::string received(std::reduce(sizes.begin(), sizes.end()), '\0');
    SHARDSCOPE_TRY(group.allToAll(lane, bytesOf(send), sending, bytesOf(received), sizes));
    std::vector<std::string> found;
    uint64_t at = 0;
    for (const uint64_t size : sizes) {
        found.push_back(received.substr(at, size));
        at += size;
    }
    return found;
}

Result<std::vector<std::string>> allGatherTexts(ProcessGroup& group, size_t lane, const std::string& text) {
    return allToAllTexts(group, lane, std::vector<std::string>(static_cast<size_t>(group.size()), text),
                         kMostGroupText);
}

namespace {

// Of what each rank says of itself, the error that tells most: one that is not only about another rank.
Status firstError(ProcessGroup& group, const std::vector<Json>& said, const Status& mine) {
    std::optional<Error> found;
    for (int r = 0; r < group.size(); ++r) {
        const Json& each = said[static_cast<size_t>(r)];
        if (!each.contains("error")) continue;
        Error error =
            r == group.rank() && !mine.ok() ? mine.error() : unpackedError(each["error"], group.name(r));
        if (!found || (found->code == ErrorCode::remote && error.code != ErrorCode::remote))
            found = std::move(error);
    }
    if (found) return std::move(*found);
    return {};
}

}  // namespace

Result<std::vector<Json>> gatherSaid(ProcessGroup& group, size_t lane, Json mine, const Status& status) {
    if (!status.ok()) mine["error"] = packedError(status.error());
    SHARDSCOPE_ASSIGN(const std::vector<std::string> texts, allGatherTexts(group, lane, packed(mine)));
    std::vector<Json> said;
    for (const std::string& text : texts) {
        SHARDSCOPE_ASSIGN(Json json, unpacked(text));
        if (!json.is_object()) return malformedMessage();
        said.push_back(std::move(json));
    }
    SHARDSCOPE_TRY(firstError(group, said, status));
    return said;
}

Status agree(ProcessGroup& group, size_t lane, const Status& mine) {
    SHARDSCOPE_ASSIGN(const auto said, gatherSaid(group, lane, Json::object(), mine));
    (void)said;
    return {};
}

}  // namespace shardscope
