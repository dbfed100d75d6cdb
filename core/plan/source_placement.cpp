#include "plan/source_placement.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "model/infer_mesh.h"

namespace shardscope {
namespace {

constexpr size_t kNamesInPattern = 200;

using Cuts = std::vector<std::pair<int, int>>;  // axis of the source's mesh, dimension; in the mesh's order

// How many pieces come of a length that axes of these sizes cut one after the other; empty ones not counted.
int64_t piecesOf(int64_t length, std::span<const uint32_t> sizes) {
    if (length == 0) return 0;
    if (sizes.empty()) return 1;
    int64_t pieces = 0;
    for (uint32_t i = 0; i < sizes.front(); ++i)
        pieces += piecesOf(splitPiece(length, sizes.front(), i, SplitRule::torch).length, sizes.subspan(1));
    return pieces;
}

// Ways to cut a shape into these pieces along each dimension by axes of a mesh.
class Explanations {
  public:
    Explanations(const Mesh& mesh, DimSpan shape, DimSpan parts)
        : mesh_(mesh), shape_(shape), parts_(parts), dimOf_(mesh.axes.size(), -1) {}

    std::vector<Cuts> all() {
        tryAxis(0);
        return std::move(found_);
    }

  private:
    void tryAxis(size_t axis) {
        if (axis == mesh_.axes.size()) return take();
        dimOf_[axis] = -1;
        tryAxis(axis + 1);
        if (mesh_.axes[axis].size < 2 || mesh_.axes[axis].name == "pp") return;
        for (size_t dim = 0; dim < shape_.size(); ++dim) {
            if (parts_[dim] < 2) continue;
            dimOf_[axis] = static_cast<int>(dim);
            tryAxis(axis + 1);
        }
        dimOf_[axis] = -1;
    }
    void take() {
        for (size_t dim = 0; dim < shape_.size(); ++dim) {
            std::vector<uint32_t> sizes;
            for (size_t axis = 0; axis < dimOf_.size(); ++axis)
                if (dimOf_[axis] == static_cast<int>(dim)) sizes.push_back(mesh_.axes[axis].size);
            if (piecesOf(shape_[dim], sizes) != std::max<int64_t>(1, parts_[dim])) return;
        }
        Cuts cuts;
        for (size_t axis = 0; axis < dimOf_.size(); ++axis)
            if (dimOf_[axis] >= 0) cuts.emplace_back(static_cast<int>(axis), dimOf_[axis]);
        found_.push_back(std::move(cuts));
    }

    const Mesh& mesh_;
    const DimSpan shape_, parts_;
    std::vector<int> dimOf_;  // by axis; -1 = cuts nothing
    std::vector<Cuts> found_;
};

// Whether pieces that lie elsewhere along a dimension are on ranks of other coordinates, for each axis that
// cuts it alone.
bool fitsRanks(const Catalog& catalog, TensorId t, const Mesh& mesh, const Cuts& cuts) {
    for (const auto& [axis, dim] : cuts) {
        if (std::ranges::count(cuts, dim, &Cuts::value_type::second) > 1) continue;
        std::map<uint32_t, int64_t> offsetAt;  // by coordinate
        for (ChunkId c = catalog.firstChunk(t); c < catalog.endChunk(t); ++c) {
            const ChunkInfo chunk = catalog.chunk(t, c);
            if (chunk.rank == kNone || chunk.rank >= mesh.ranks() || chunk.elements() == 0) continue;
            const uint32_t at = mesh.coordinates(chunk.rank)[static_cast<size_t>(axis)];
            const int64_t offset = chunk.offsets[static_cast<size_t>(dim)];
            if (offsetAt.try_emplace(at, offset).first->second != offset) return false;
        }
    }
    return true;
}

// As a regular expression that matches it: "model\\.layers\\.12\\.w", or with any number in place of each of
// its own, "model\\.layers\\.\\d+\\.w".
std::string patternOf(std::string_view name, bool anyNumber) {
    const auto isDigit = [](char c) { return c >= '0' && c <= '9'; };
    std::string text;
    for (size_t i = 0; i < name.size(); ++i) {
        const char c = name[i];
        const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || isDigit(c) || c == '_' ||
                           c == '/' || static_cast<unsigned char>(c) >= 0x80;
        if (isDigit(c) && anyNumber) {
            text += "\\d+";
            while (i + 1 < name.size() && isDigit(name[i + 1]))
                ++i;
        } else {
            text += plain ? std::string(1, c) : std::string{'\\', c};
        }
    }
    return text;
}

using Votes = std::map<Cuts, size_t>;

struct Explained {
    TensorId tensor;
    std::vector<Cuts> ways;
    const Votes* alike;  // of all tensors of its shape and pieces
};

struct Found {
    std::map<std::string, std::vector<Explained>> byPattern;  // with any numbers
    std::set<std::string> whole;                              // patterns of tensors that no axis cuts
    std::map<std::pair<Dims, Dims>, Votes> votes;             // by shape and pieces
    size_t unexplained = 0;
};

Found explain(const Catalog& catalog, const Mesh& mesh) {
    Found found;
    std::map<std::pair<Dims, Dims>, std::vector<Cuts>> known;  // by shape and pieces
    for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
        if (catalog.aliasOf(t) != kNone && catalog.aliasOf(t) != t) continue;
        const TensorCut cut = tensorCut(catalog, t);
        const DimSpan shape = catalog.shape(t);
        std::string pattern = patternOf(catalog.name(t), true);
        if (std::ranges::all_of(cut.parts, [](int64_t parts) { return parts < 2; })) {
            found.whole.insert(std::move(pattern));
            continue;
        }
        std::vector<Cuts> ways;
        if (cut.regular) {
            auto& all = known[{Dims(shape.begin(), shape.end()), cut.parts}];
            if (all.empty()) all = Explanations(mesh, shape, cut.parts).all();
            std::ranges::copy_if(all, std::back_inserter(ways),
                                 [&](const Cuts& way) { return fitsRanks(catalog, t, mesh, way); });
            if (ways.empty()) ways = all;
        }
        if (ways.empty()) {
            ++found.unexplained;
            found.whole.insert(std::move(pattern));
        } else {
            Votes& alike = found.votes[{Dims(shape.begin(), shape.end()), cut.parts}];
            for (const Cuts& way : ways)
                ++alike[way];
            found.byPattern[std::move(pattern)].push_back({t, std::move(ways), &alike});
        }
    }
    return found;
}

// Of several ways the one that most tensors of alike names share; then the one that most tensors of the same
// shape share, as moments have that of their parameter; then the one by the last axes, which vary fastest.
Cuts chosen(const std::vector<Explained>& tensors) {
    Votes votes;
    for (const Explained& tensor : tensors)
        for (const Cuts& way : tensor.ways)
            ++votes[way];
    const Votes& alike = *tensors.front().alike;
    return std::ranges::max_element(
               votes, {},
               [&](const auto& vote) {
                   const auto found = alike.find(vote.first);
                   return std::tuple(vote.second, found == alike.end() ? 0 : found->second, vote.first);
               })
        ->first;
}

// Tensors that one pattern matches, and no others.
struct Members {
    std::string pattern;
    std::vector<TensorId> tensors;
};

// Tensors of one pattern that are cut in different ways stand apart, by their names.
std::map<Cuts, std::vector<Members>> partByCuts(const Catalog& catalog, const Found& found) {
    std::map<Cuts, std::vector<Members>> byCuts;
    for (const auto& [pattern, tensors] : found.byPattern) {
        const Cuts common = chosen(tensors);
        std::map<Cuts, std::vector<TensorId>> parted;
        for (const Explained& tensor : tensors) {
            const bool same = std::ranges::count(tensor.ways, common) > 0;
            parted[same ? common : tensor.ways.back()].push_back(tensor.tensor);
        }
        const bool alone = parted.size() == 1 && !found.whole.contains(pattern);
        for (auto& [cuts, members] : parted) {
            if (alone) {
                byCuts[cuts].push_back({pattern, std::move(members)});
                continue;
            }
            for (const TensorId t : members)
                byCuts[cuts].push_back({patternOf(catalog.name(t), false), {t}});
        }
    }
    return byCuts;
}

// The axis of the target for each of the source's; -1 = none.
std::vector<int> axesFor(const Mesh& from, const Mesh& to,
                         const std::map<Cuts, std::vector<Members>>& byCuts) {
    std::set<int> cutting;
    for (const auto& [cuts, members] : byCuts)
        for (const auto& [axis, dim] : cuts)
            cutting.insert(axis);
    std::vector<int> target(from.axes.size(), -1), left, free;
    for (size_t a = 0; a < from.axes.size(); ++a) {
        target[a] = to.axisIndex(from.axes[a].name);
        if (target[a] < 0 && cutting.contains(static_cast<int>(a))) left.push_back(static_cast<int>(a));
    }
    for (size_t a = 0; a < to.axes.size(); ++a)
        if (from.axisIndex(to.axes[a].name) < 0 && to.axes[a].name != "pp")
            free.push_back(static_cast<int>(a));
    if (left.size() == 1 && free.size() == 1) target[static_cast<size_t>(left[0])] = free[0];
    return target;
}

PlacementClass classOf(const Catalog& catalog, const Mesh& mesh, const Cuts& cuts,
                       const std::vector<Members>& members) {
    PlacementClass c;
    c.example = catalog.name(members.front().tensors.front());
    for (const auto& [axis, dim] : cuts)
        c.axisDims.emplace_back(mesh.axes[static_cast<size_t>(axis)].name, dim);
    for (size_t i = 0; i < members.size(); ++i) {
        c.tensors += members[i].tensors.size();
        if (i % kNamesInPattern == 0) c.patterns.emplace_back("re:");
        c.patterns.back() += (i % kNamesInPattern ? "|" : "") + members[i].pattern;
    }
    return c;
}

}  // namespace

std::vector<ShardRule> SourcePlacement::rules() const {
    std::vector<ShardRule> rules;
    for (const PlacementClass& c : classes)
        for (const std::string& pattern : c.patterns)
            rules.push_back({pattern, c.axisDims});
    return rules;
}

SourcePlacement placementOfSource(const Catalog& catalog, const Mesh& from, const Mesh& to) {
    SourcePlacement placement;
    const Found found = explain(catalog, from);
    placement.unexplained = found.unexplained;
    const std::map<Cuts, std::vector<Members>> byCuts = partByCuts(catalog, found);
    const std::vector<int> target = axesFor(from, to, byCuts);
    std::map<Cuts, std::vector<Members>> there;  // by axes of the target
    std::set<int> used;
    for (const auto& [cuts, members] : byCuts) {
        Cuts mapped;
        for (const auto& [axis, dim] : cuts)
            if (const int a = target[static_cast<size_t>(axis)];
                a >= 0 && to.axes[static_cast<size_t>(a)].size > 1)
                mapped.emplace_back(a, dim);
        std::ranges::sort(mapped);
        if (!mapped.empty()) std::ranges::copy(members, std::back_inserter(there[mapped]));
        for (const auto& [axis, dim] : mapped)
            used.insert(axis);
    }
    for (const auto& [cuts, members] : there)
        placement.classes.push_back(classOf(catalog, to, cuts, members));
    std::ranges::stable_sort(placement.classes, std::ranges::greater(), &PlacementClass::tensors);
    for (size_t a = 0; a < to.axes.size(); ++a)
        if (to.axes[a].size > 1 && !used.contains(static_cast<int>(a)))
            placement.unused.push_back(to.axes[a].name);
    return placement;
}

}  // namespace shardscope
