#include "formats/rank_writer.h"

#include <algorithm>
#include <map>
#include <numeric>

#include <fmt/format.h>

#include "base/option_words.h"
#include "storage/digest.h"

namespace shardscope {

namespace {

using ShardKind = torch_save::DTensorSpec::Placement::Kind;

}  // namespace

RankFileLayout::RankFileLayout(const Catalog& target, const WriteOptions& options, std::string device)
    : FileLayout(target), stop_(options.stop), device_(std::move(device)) {
    needsCrc = true;
    const uint32_t ranks = std::max<uint32_t>(1, target.rankCount());
    if (target.mesh() && target.mesh()->ranks() == ranks) {
        mesh_ = *target.mesh();
    } else {
        mesh_.axes = {{"fsdp", ranks}};
    }
    numbers_ = DTensorPickler::numbersOfRanks(mesh_);
}

Status RankFileLayout::findPlacements() {
    byRank_.resize(target_.chunkCount());
    std::iota(byRank_.begin(), byRank_.end(), 0U);
    placements_.assign(target_.tensorCount(), 0);
    known_.push_back({});  // 0: a plain tensor
    std::map<std::string, uint32_t> ids;
    for (TensorId t = 0; t < target_.tensorCount(); ++t) {
        std::sort(byRank_.begin() + target_.firstChunk(t), byRank_.begin() + target_.endChunk(t),
                  [&](ChunkId a, ChunkId b) { return target_.chunk(t, a).rank < target_.chunk(t, b).rank; });
        SHARDSCOPE_ASSIGN(Placements all, placementsOf(t));
        std::string key;
        for (const auto& placement : all)
            key += fmt::format("{}/{} ", static_cast<int>(placement.kind), placement.dim);
        const bool whole = std::ranges::all_of(
            all, [](const auto& placement) { return placement.kind == ShardKind::replicate; });
        if (!whole || !keptWhole(target_.name(t), target_.dtype(t), target_.shape(t), target_.role(t))) {
            const auto [it, fresh] = ids.try_emplace(key, static_cast<uint32_t>(known_.size()));
            if (fresh) known_.push_back(std::move(all));
            placements_[t] = it->second;
        }
    }
    return {};
}

ChunkId RankFileLayout::chunkOf(TensorId t, uint32_t rank) const {
    const auto begin = byRank_.begin() + target_.firstChunk(t), end = byRank_.begin() + target_.endChunk(t);
    const auto it = std::lower_bound(
        begin, end, rank, [&](ChunkId c, uint32_t wanted) { return target_.chunk(t, c).rank < wanted; });
    return it != end && target_.chunk(t, *it).rank == rank ? *it : kNone;
}

Result<torch_save::LocalBox> RankFileLayout::localBox(const Placements& placements, uint32_t rank,
                                                      DimSpan shape) const {
    torch_save::DTensorSpec spec;
    spec.placements = placements;
    spec.coordinate.emplace();
    for (const MeshAxis& axis : mesh_.axes)
        spec.mesh.push_back(axis.size);
    for (const uint32_t at : mesh_.coordinates(rank))
        spec.coordinate->push_back(at);
    // Plain shards have one box.
    SHARDSCOPE_ASSIGN(auto parts, torch_save::localParts(spec, shape));
    return std::move(parts.boxes.front());
}

// Whether the pieces are where these placements put them; a rank without elements has none.
bool RankFileLayout::fits(TensorId t, const Placements& placements) const {
    const DimSpan shape = target_.shape(t);
    for (uint32_t rank = 0; rank < mesh_.ranks(); ++rank) {
        const auto box = localBox(placements, rank, shape);
        if (!box.ok()) return false;
        const ChunkId c = chunkOf(t, rank);
        if (c == kNone) {
            if (!boxIsEmpty(box->lengths)) return false;
            continue;
        }
        const ChunkInfo chunk = target_.chunk(t, c);
        if (chunk.flat || !std::ranges::equal(chunk.lengths, box->lengths) ||
            (!boxIsEmpty(box->lengths) && !std::ranges::equal(chunk.offsets, box->globalOffsets)))
            return false;
    }
    return true;
}

// What each axis does is seen on the first rank along it; a rank without a piece leaves several choices.
Result<Placements> RankFileLayout::placementsOf(TensorId t) const {
    const DimSpan shape = target_.shape(t);
    const auto dims = static_cast<int64_t>(shape.size());
    const ChunkId first = chunkOf(t, 0);
    std::vector<Placements> choices;
    for (size_t axis = 0; axis < mesh_.axes.size(); ++axis) {
        Placements& choice = choices.emplace_back();
        if (mesh_.axes[axis].size == 1) {
            // A parameter on one rank is a shard of one.
            const bool shard = axis + 1 == mesh_.axes.size() && mesh_.ranks() == 1 &&
                               !keptWhole(target_.name(t), target_.dtype(t), shape, target_.role(t));
            choice.push_back({shard ? ShardKind::shard : ShardKind::replicate, 0});
            continue;
        }
        std::vector<uint32_t> at(mesh_.axes.size(), 0);
        at[axis] = 1;
        const ChunkId next = first == kNone ? kNone : chunkOf(t, mesh_.rankAt(at));
        if (next == kNone) {
            for (int64_t dim = 0; dim < dims; ++dim)
                choice.push_back({ShardKind::shard, dim});
            continue;
        }
        const ChunkInfo a = target_.chunk(t, first), b = target_.chunk(t, next);
        choice.push_back({ShardKind::replicate, 0});
        for (int64_t dim = 0; dim < dims; ++dim) {
            if (a.offsets[static_cast<size_t>(dim)] != b.offsets[static_cast<size_t>(dim)])
                choice = {{ShardKind::shard, dim}};
        }
    }
    Placements found;
    const auto search = [&](auto&& self) -> bool {
        if (found.size() == choices.size()) return fits(t, found);
        for (const auto& placement : choices[found.size()]) {
            found.push_back(placement);
            if (self(self)) return true;
            found.pop_back();
        }
        return false;
    };
    if (search(search)) return found;
    return makeError(ErrorCode::impossible,
                     fmt::format("its chunks are not those of shards and replicas on the mesh {}",
                                 formatMesh(mesh_)))
        .ofTensor(target_.name(t))
        .withHint(fmt::format("{} shards every parameter along its first dimension; {} says otherwise",
                              option("mesh", "'fsdp=8'"), option("shard")));
}

Dims RankFileLayout::localShape(TensorId t, uint32_t rank) const {
    const DimSpan shape = target_.shape(t);
    if (placements(t).empty()) return {shape.begin(), shape.end()};
    // plan() has made sure that it can be placed.
    auto box = localBox(placements(t), rank, shape);
    return box.ok() ? std::move(box->lengths) : Dims(shape.begin(), shape.end());
}

Result<std::unique_ptr<RankFileLayout::File>> RankFileLayout::build(const Source& source) const {
    auto file = std::make_unique<File>(source.archive, mesh_, numbers_, source.rank, device_);
    SHARDSCOPE_TRY(source.write(*file));
    file->archive.finish();
    return file;
}

Status RankFileLayout::addFile(const std::string& path, const std::string& archive, uint32_t rank,
                               Write write) {
    SHARDSCOPE_TRY(stop_.poll());
    sources_.push_back({archive, rank, std::move(write), {}});
    SHARDSCOPE_ASSIGN(const auto file, build(sources_.back()));
    files.push_back({path, file->archive.size(), false});
    for (size_t s = 0; s < file->chunks.size(); ++s) {
        if (file->chunks[s] != kNone)
            place(file->chunks[s], static_cast<FileId>(files.size() - 1), file->archive.storageOffset(s));
    }
    return {};
}

void RankFileLayout::addText(const std::string& path, std::string text) {
    files.push_back({path, text.size(), true});
    sources_.emplace_back().text = std::move(text);
}

void RankFileLayout::tensor(File& file, TensorId t) const {
    const TensorId owner = target_.aliasOf(t) == kNone ? t : target_.aliasOf(t);
    const auto [it, fresh] = file.keys.try_emplace(owner, file.archive.storageCount());
    const Dims local = localShape(t, file.rank);
    const uint64_t bytes =
        dtypeByteCount(target_.dtype(t), static_cast<uint64_t>(elementCount(local))).value_or(0);
    if (placements(t).empty()) {
        file.archive.tensor(target_.dtype(t), local, it->second, bytes);
    } else {
        file.dtensors.tensor(target_.dtype(t), target_.shape(t), local, it->second, bytes, placements(t));
    }
    file.chunks.resize(file.archive.storageCount(), kNone);
    if (fresh) file.chunks[it->second] = chunkOf(owner, file.rank);
}

void RankFileLayout::tie() {
    for (TensorId t = 0; t < target_.tensorCount(); ++t) {
        const TensorId owner = target_.aliasOf(t);
        if (owner == kNone) continue;
        for (ChunkId c = target_.firstChunk(t); c < target_.endChunk(t); ++c) {
            const ChunkId same = chunkOf(owner, target_.chunk(t, c).rank);
            if (same != kNone) place(c, chunkFile[same], chunkOffset[same]);
        }
    }
}

Status RankFileLayout::fileLiterals(FileId id, std::span<const uint32_t> chunkCrcs,
                                    const LiteralSink& sink) const {
    if (!sources_[id].write) return writeText(id, sources_[id].text, sink);
    SHARDSCOPE_ASSIGN(const auto file, build(sources_[id]));
    std::vector<uint32_t> crcs;
    for (const ChunkId chunk : file->chunks)
        crcs.push_back(chunk == kNone ? 0 : chunkCrcs[chunk]);
    if (const auto storage = file->dtensors.rankStorage()) {
        const std::string numbers = file->dtensors.rankBytes();
        crcs[*storage] = crc32Of(std::as_bytes(std::span(numbers)));
        SHARDSCOPE_TRY(sink(id, file->archive.storageOffset(*storage), std::as_bytes(std::span(numbers))));
    }
    return file->archive.literals(
        crcs, [&](uint64_t at, std::span<const std::byte> bytes) { return sink(id, at, bytes); });
}

}  // namespace shardscope
