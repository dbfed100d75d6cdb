#include "answers/rank_shares.h"

#include <algorithm>

#include <fmt/format.h>

#include "engine/engine.h"
#include "survey/facts.h"

namespace shardscope {
namespace {

uint32_t rankOf(const ChunkInfo& chunk) {
    return chunk.rank == kNone ? 0 : chunk.rank;
}

uint32_t ranksOf(const Catalog& catalog) {
    return std::max<uint32_t>(1, catalog.rankCount());
}

void add(RankShare& share, Role role, uint64_t bytes) {
    ++share.chunks;
    share.bytes += bytes;
    share.bytesOf[static_cast<size_t>(role)] += bytes;
}

void addFile(RankShare& share, FileId file) {
    if (share.files.empty() || share.files.back() != file) share.files.push_back(file);
}

Json shareJson(const RankShare& share) {
    const auto of = [&](Role role) { return share.bytesOf[static_cast<size_t>(role)]; };
    return {{"tensors", share.tensors},
            {"chunks", share.chunks},
            {"bytes", share.bytes},
            {"parameter_bytes", of(Role::parameter)},
            {"buffer_bytes", of(Role::buffer)},
            {"optimizer_bytes", of(Role::optimizer)},
            {"other_bytes", of(Role::other)}};
}

}  // namespace

std::string RankShares::placeOf(uint32_t rank) const {
    std::string text;
    if (!mesh) return text;
    const std::vector<uint32_t> at = mesh->coordinates(rank);
    for (size_t i = 0; i < at.size(); ++i)
        text += fmt::format("{}{}={}", i ? " " : "", mesh->axes[i].name, at[i]);
    return text;
}

RankShares rankShares(const Catalog& catalog) {
    RankShares shares;
    shares.ranks.resize(ranksOf(catalog));
    shares.mesh = meshOf(catalog);
    if (shares.mesh && shares.mesh->ranks() < shares.ranks.size()) shares.mesh.reset();
    std::vector<TensorId> last(shares.ranks.size(), kNone);
    for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
        if (catalog.aliasOf(t) != kNone) continue;
        ++shares.all.tensors;
        for (ChunkId c = catalog.firstChunk(t); c < catalog.endChunk(t); ++c) {
            const ChunkInfo chunk = catalog.chunk(t, c);
            const uint32_t rank = rankOf(chunk);
            if (rank >= shares.ranks.size()) continue;
            RankShare& share = shares.ranks[rank];
            share.tensors += last[rank] != t;
            last[rank] = t;
            const uint64_t bytes = elementBytes(catalog, chunk);
            add(share, catalog.role(t), bytes);
            add(shares.all, catalog.role(t), bytes);
            if (chunk.file != kNone) addFile(share, chunk.file);
        }
    }
    for (FileId f = 0; f < catalog.files().size(); ++f) {
        shares.all.files.push_back(f);
        if (const uint32_t rank = catalog.files()[f].rank; rank < shares.ranks.size())
            shares.ranks[rank].files.push_back(f);
    }
    for (RankShare& share : shares.ranks) {
        std::ranges::sort(share.files);
        share.files.erase(std::unique(share.files.begin(), share.files.end()), share.files.end());
    }
    return shares;
}

Json rankSharesJson(const Catalog& catalog, const RankShares& shares) {
    Json list = Json::array();
    for (uint32_t rank = 0; rank < shares.ranks.size(); ++rank) {
        Json one{{"rank", rank}};
        one["place"] = Json();
        if (shares.mesh) {
            one["place"] = Json::object();
            const std::vector<uint32_t> at = shares.mesh->coordinates(rank);
            for (size_t i = 0; i < at.size(); ++i)
                one["place"][shares.mesh->axes[i].name] = at[i];
        }
        one.update(shareJson(shares.ranks[rank]));
        one["files"] = Json::array();
        for (const FileId file : shares.ranks[rank].files)
            one["files"].push_back(catalog.files()[file].path);
        list.push_back(std::move(one));
    }
    return list;
}

RankShare shareOf(const Catalog& catalog, TensorId t, uint32_t rank) {
    RankShare share;
    for (ChunkId c = catalog.firstChunk(t); c < catalog.endChunk(t); ++c) {
        const ChunkInfo chunk = catalog.chunk(t, c);
        if (rankOf(chunk) == rank) add(share, catalog.role(t), elementBytes(catalog, chunk));
    }
    share.tensors = share.chunks > 0;
    return share;
}

Status checkRank(const Catalog& catalog, uint32_t rank) {
    const uint32_t count = ranksOf(catalog);
    if (rank < count) return {};
    return makeError(ErrorCode::usage, fmt::format("there is no rank {}", rank))
        .withHint(count == 1 ? std::string("there is one rank: 0")
                             : fmt::format("ranks are 0 to {}", count - 1));
}

}  // namespace shardscope
