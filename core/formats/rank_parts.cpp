#include "formats/rank_parts.h"

#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

#include "base/rule.h"

namespace shardscope {

namespace {

constexpr size_t kComparedRepr = size_t{1} << 20;

}  // namespace

uint32_t RankParts::rankOf(uint32_t file, uint32_t named, std::optional<int64_t> stated) {
    if (!stated || *stated < 0 || *stated >= kMostWorld || *stated == named) return named;
    if (misplaced_.insert(file).second) {
        assembly_.note(rule::metaInconsistent, Severity::error,
                       fmt::format("the name says rank {}, the tensors in it are those of rank {}: the file "
                                   "was copied or renamed",
                                   named, *stated),
                       assembly_.files()[file].name);
    }
    return static_cast<uint32_t>(*stated);
}

std::optional<TensorAssembly::Piece> RankParts::partOf(uint32_t file, uint32_t tensor, uint32_t named,
                                                       const Path& path) {
    const TensorFile& saved = assembly_.files()[file];
    const StoredTensor& stored = saved.tensors[tensor];
    const SpecialTensor& whole = saved.specials[stored.special];
    const auto& spec = saved.placements[stored.special].dtensor;
    const auto fail = [&](std::string message, Note::Lacks lacks = Note::Lacks::nothing) {
        assembly_.note(rule::metaInconsistent, Severity::error, std::move(message), saved.name,
                       pathName(path), lacks);
        return std::nullopt;
    };
    if (!spec) return fail("its placement cannot be read from the file", Note::Lacks::anything);
    raiseWorld(spec->world);
    if (!spec->coordinate) return std::nullopt;
    auto box = torch_save::localBox(*spec, whole.shape);
    if (!box.ok()) {
        if (!refused_.insert(encodePath(path)).second) return std::nullopt;
        return fail(box.error().message, Note::Lacks::anything);
    }
    TensorAssembly::Piece piece;
    piece.rank = rankOf(file, named, spec->rank);
    if (elementCount(box->lengths) == 0 && elementCount(stored.shape) == 0) {
        piece.part.elements = 0;
    } else if (box->lengths != stored.shape) {
        return fail(fmt::format("the part of rank {} has shape {}, its placement says {}", piece.rank,
                                formatDims(stored.shape), formatDims(box->lengths)));
    }
    noteMesh(*spec);
    piece.part.file = file;
    piece.part.tensor = tensor;
    piece.offsets = std::move(box->offsets);
    piece.lengths = std::move(box->lengths);
    return piece;
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

void RankParts::addMissing(std::span<const Missing> files, size_t total) {
    // Of replicas a part may be missing without loss.
    const bool complete = assembly_.complete();
    for (size_t f = 0; f < files.size(); ++f) {
        const bool lost = !complete && files[f].needed;
        assembly_.addMissing(
            files[f].name, files[f].rank, lost ? Severity::error : Severity::warning,
            lost ? fmt::format("the file of rank {} of {} is missing", files[f].rank, world_)
                 : fmt::format("the file of rank {} of {} is missing; the tensors are complete without it",
                               files[f].rank, world_));
    }
    if (total > files.size())
        assembly_.note(rule::rankMissing, Severity::error,
                       fmt::format("files of {} ranks are missing in all", total));
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
        bool equal = !apart;
        std::vector<const RankObject*> others;  // whose value is another one
        for (size_t r = 1; r < ranks.size(); ++r) {
            if (apart || valueRepr(*ranks[r]->value, kComparedRepr) != first) others.push_back(ranks[r]);
        }
        equal = equal && others.empty();
        const auto add = [&](const RankObject& object, const Path& path) {
            assembly.addObject(object.file, path, *object.value, object.rank);
        };
        if (equal || ranks[0]->perRank == RankObject::When::firstIsMain) {
            add(*ranks[0], ranks[0]->path);
            for (const RankObject* object : others)
                add(*object, object->ofRank);
        } else {
            for (const RankObject* object : ranks)
                add(*object, object->ofRank);
        }
    }
}

}  // namespace shardscope
