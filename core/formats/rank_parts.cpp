#include "formats/rank_parts.h"

#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

#include "base/rule.h"
#include "base/units.h"

namespace shardscope {

namespace {

constexpr size_t kComparedRepr = size_t{1} << 20;
constexpr size_t kMostListed = 1000;
constexpr size_t kMostBoxes = size_t{1} << 24;  // some GB of catalog

// Where a rank's part is. Uneven parts show in their shape whether strided shards are meant as they stand.
Result<torch_save::LocalParts> partsAt(torch_save::DTensorSpec spec, const Dims& whole, const Dims& stored) {
    auto parts = torch_save::localParts(spec, whole);
    if (!parts.ok() || parts->shape == stored || spec.literal) return parts;
    spec.literal = true;
    auto literal = torch_save::localParts(spec, whole);
    return literal.ok() && literal->shape == stored ? std::move(literal) : std::move(parts);
}

}  // namespace

uint32_t RankParts::rankOf(uint32_t file, uint32_t named, std::optional<int64_t> stated) {
    if (!stated || *stated < 0 || *stated >= kMostWorld || *stated == named) return named;
    if (misplaced_.insert(file).second) {
        assembly_.wrong(fmt::format("the name says rank {}, the tensors in it are those of rank {}: the file "
                                    "was copied or renamed",
                                    named, *stated),
                        assembly_.files()[file].name);
    }
    return static_cast<uint32_t>(*stated);
}

std::vector<TensorAssembly::Piece> RankParts::partsOf(uint32_t file, uint32_t tensor, uint32_t named,
                                                      const Path& path) {
    const TensorFile& saved = assembly_.files()[file];
    const StoredTensor& stored = saved.tensors[tensor];
    const SpecialTensor& whole = saved.specials[stored.special];
    const auto& spec = saved.placements[stored.special].dtensor;
    const auto fail = [&](std::string message, Note::Lacks lacks = Note::Lacks::nothing) {
        assembly_.wrong(std::move(message), saved.name, pathName(path), lacks);
        return std::vector<TensorAssembly::Piece>();
    };
    if (!spec) return fail("its placement cannot be read from the file", Note::Lacks::anything);
    raiseWorld(spec->world);
    if (!spec->coordinate) return {};
    auto parts = partsAt(*spec, whole.shape, stored.shape);
    if (parts.ok() && parts->boxes.size() > 1 && (boxes_ += parts->boxes.size()) > kMostBoxes)
        parts = unsupported("the strided shards of this checkpoint have more boxes than are read");
    if (!parts.ok()) {
        if (!refused_.insert(encodePath(path)).second) return {};
        return fail(parts.error().message, Note::Lacks::anything);
    }
    const uint32_t rank = rankOf(file, named, spec->rank);
    const bool empty = elementCount(parts->shape) == 0 && elementCount(stored.shape) == 0;
    if (!empty && parts->shape != stored.shape)
        return fail(fmt::format("the part of rank {} has shape {}, its placement says {}", rank,
                                formatDims(stored.shape), formatDims(parts->shape)));
    noteMesh(*spec);
    auto pieces = piecesOf(file, tensor, rank, std::move(parts->boxes));
    if (empty) pieces.front().part = StoredPart::range(file, tensor, 0, 0);
    return pieces;
}

std::vector<TensorAssembly::Piece> RankParts::piecesOf(uint32_t file, uint32_t tensor, uint32_t rank,
                                                       std::vector<torch_save::LocalBox> boxes) {
    std::vector<TensorAssembly::Piece> pieces;
    const Dims& stored = assembly_.files()[file].tensors[tensor].shape;
    for (torch_save::LocalBox& box : boxes) {
        TensorAssembly::Piece& piece = pieces.emplace_back();
        piece.rank = rank;
        piece.part = box.lengths == stored
                         ? StoredPart::whole(file, tensor)
                         : StoredPart::box(file, tensor, std::move(box.localOffsets), box.lengths);
        piece.offsets = std::move(box.globalOffsets);
        piece.lengths = std::move(box.lengths);
    }
    return pieces;
}

void RankParts::noteMesh(const torch_save::DTensorSpec& spec) {
    const int64_t ranks = elementCount(spec.mesh);
    const int64_t known = mesh_ ? elementCount(mesh_->mesh) : 0;
    if (ranks > known || (ranks == known && spec.mesh.size() > mesh_->mesh.size())) mesh_ = spec;
}

std::optional<Mesh> RankParts::mesh(std::string_view evidence) const {
    if (!mesh_ || elementCount(mesh_->mesh) != world_ || !mesh_->ascending) return std::nullopt;
    Mesh mesh;
    for (size_t axis = 0; axis < mesh_->mesh.size(); ++axis) {
        std::string name = axis < mesh_->axes.size() ? mesh_->axes[axis] : fmt::format("mesh{}", axis);
        mesh.axes.push_back({std::move(name), static_cast<uint32_t>(mesh_->mesh[axis])});
    }
    mesh.evidence = {fmt::format("{}: {}", formatMesh(mesh), evidence)};
    return mesh;
}

void RankParts::addMissing(std::string name, uint32_t rank, bool needed) {
    if (++missingTotal_ <= kMostListed) missing_.push_back({std::move(name), rank, needed});
}

void RankParts::noteMissing() {
    const bool complete = assembly_.complete();
    for (const Missing& file : missing_) {
        const bool lost = !complete && file.needed;
        assembly_.addMissing(file.name, file.rank, lost ? Severity::error : Severity::warning,
                             fmt::format("the file of rank {} of {} is missing{}", file.rank, world_,
                                         lost ? "" : "; the tensors are complete without it"));
    }
    if (missingTotal_ > missing_.size())
        assembly_.note(rule::rankMissing, Severity::error,
                       fmt::format("files of {} are missing in all", counted(missingTotal_, "rank")));
}

void addRankObjects(TensorAssembly& assembly, std::span<const RankObject> objects) {
    std::vector<std::vector<const RankObject*>> all;
    std::unordered_map<std::string, size_t> byPath;
    for (const RankObject& object : objects) {
        const auto [it, fresh] = byPath.try_emplace(encodePath(object.path), all.size());
        if (fresh) all.emplace_back();
        all[it->second].push_back(&object);
    }
    for (const std::vector<const RankObject*>& ranks : all) {
        const bool apart = ranks[0]->perRank == RankObject::When::always;
        const std::string first =
            apart || ranks.size() == 1 ? "" : valueRepr(*ranks[0]->value, kComparedRepr);
        const auto differs = [&](const RankObject* object) {
            return apart || (object != ranks[0] && valueRepr(*object->value, kComparedRepr) != first);
        };
        const auto add = [&](const RankObject& object, const Path& path) {
            assembly.addObject(object.file, path, *object.value, object.rank);
        };
        const bool equal = std::ranges::none_of(ranks, differs);
        if (equal || ranks[0]->perRank == RankObject::When::firstIsMain) add(*ranks[0], ranks[0]->path);
        for (const RankObject* object : ranks) {
            const bool main = ranks[0]->perRank == RankObject::When::firstIsMain;
            if (!equal && (!main || differs(object))) add(*object, object->ofRank);
        }
    }
}

}  // namespace shardscope
