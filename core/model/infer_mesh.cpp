#include "model/infer_mesh.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include <fmt/format.h>

namespace shardscope {

namespace {

// One piece of a cut tensor: which interval along each dimension, and the rank that holds it.
struct CutPiece {
    std::vector<uint32_t> cell;
    uint32_t rank = kNone;
};

struct Cut {
    TensorCut shape;
    std::vector<std::vector<Span1>> spans;  // distinct intervals of each dimension, in order
    std::vector<CutPiece> pieces;           // one of each box
};

Cut cutOf(const Catalog& catalog, TensorId tensor) {
    Cut cut;
    const DimSpan shape = catalog.shape(tensor);
    const size_t rank = shape.size();
    cut.spans.resize(rank);
    std::set<uint32_t> ranks;
    std::vector<ChunkInfo> chunks;
    for (ChunkId c = catalog.firstChunk(tensor); c < catalog.endChunk(tensor); ++c) {
        const ChunkInfo chunk = catalog.chunk(tensor, c);
        if (chunk.elements() == 0) continue;
        if (chunk.rank != kNone) ranks.insert(chunk.rank);
        if (chunk.flat || !boxInside(chunk.offsets, chunk.lengths, shape)) {
            cut.shape.regular = false;
            continue;
        }
        chunks.push_back(chunk);
        for (size_t k = 0; k < rank; ++k)
            cut.spans[k].push_back({chunk.offsets[k], chunk.lengths[k]});
    }
    cut.shape.ranks = static_cast<uint32_t>(ranks.size());
    // Copies of a box are neighbours then; one of them is kept.
    const auto before = [](const ChunkInfo& a, const ChunkInfo& b) {
        if (!std::ranges::equal(a.offsets, b.offsets))
            return std::ranges::lexicographical_compare(a.offsets, b.offsets);
        if (!std::ranges::equal(a.lengths, b.lengths))
            return std::ranges::lexicographical_compare(a.lengths, b.lengths);
        return a.id < b.id;
    };
    const auto same = [](const ChunkInfo& a, const ChunkInfo& b) {
        return std::ranges::equal(a.offsets, b.offsets) && std::ranges::equal(a.lengths, b.lengths);
    };
    if (!std::is_sorted(chunks.begin(), chunks.end(), before))
        std::sort(chunks.begin(), chunks.end(), before);
    uint32_t copies = 1;
    for (size_t i = 1; i < chunks.size(); ++i) {
        copies = same(chunks[i - 1], chunks[i]) ? copies + 1 : 1;
        cut.shape.replicas = std::max(cut.shape.replicas, copies);
    }
    chunks.erase(std::unique(chunks.begin(), chunks.end(), same), chunks.end());
    size_t cells = 1;
    for (size_t k = 0; k < rank; ++k) {
        auto& spans = cut.spans[k];
        std::sort(spans.begin(), spans.end(), [](const Span1& a, const Span1& b) {
            return a.offset != b.offset ? a.offset < b.offset : a.length < b.length;
        });
        spans.erase(std::unique(spans.begin(), spans.end()), spans.end());
        cut.shape.parts.push_back(static_cast<int64_t>(std::max<size_t>(spans.size(), 1)));
        int64_t at = 0;
        for (const Span1& span : spans) {
            cut.shape.regular = cut.shape.regular && span.offset == at;
            at = span.offset + span.length;
        }
        cut.shape.regular = cut.shape.regular && (spans.empty() || at == shape[k]);
        cells = cells > 1'000'000 ? cells : cells * std::max<size_t>(spans.size(), 1);
    }
    cut.shape.regular = cut.shape.regular && chunks.size() == cells;
    if (!cut.shape.regular) return cut;
    for (const ChunkInfo& chunk : chunks) {
        CutPiece piece;
        piece.rank = chunk.rank;
        for (size_t k = 0; k < rank; ++k) {
            const auto it =
                std::lower_bound(cut.spans[k].begin(), cut.spans[k].end(), chunk.offsets[k],
                                 [](const Span1& s, int64_t offset) { return s.offset < offset; });
            piece.cell.push_back(static_cast<uint32_t>(it - cut.spans[k].begin()));
        }
        cut.pieces.push_back(std::move(piece));
    }
    return cut;
}

// Whether cutting `length` over `count` ranks gives just these intervals (empty ones left out).
bool isSplit(const std::vector<Span1>& spans, int64_t length, uint32_t count) {
    for (SplitRule rule : {SplitRule::torch, SplitRule::even}) {
        size_t next = 0;
        bool fits = spans.size() <= count;
        for (uint32_t i = 0; i < count && fits; ++i) {
            const Span1 piece = splitPiece(length, count, i, rule);
            if (piece.length == 0) break;  // so are all that follow
            fits = next < spans.size() && spans[next] == piece;
            ++next;
        }
        if (fits && next == spans.size()) return true;
    }
    return false;
}

// How a tensor is cut, seen from a mesh of two axes (outer, inner), rank = (outer * inner size + inner)
// within a copy.
enum class Shape : uint8_t { none, outerOnly, innerOnly, both, interleaved, flat };

class Inference {
  public:
    explicit Inference(const Catalog& catalog) : catalog_(catalog), world_(catalog.rankCount()) {}

    std::optional<Mesh> run() {
        if (world_ < 2 || world_ > 1'000'000) return std::nullopt;
        for (TensorId t = 0; t < catalog_.tensorCount(); ++t) {
            if (catalog_.aliasOf(t) != kNone || catalog_.endChunk(t) - catalog_.firstChunk(t) < 2) continue;
            ids_.push_back(t);
        }
        // A sample chooses the mesh; all are counted then.
        const size_t step = ids_.size() / kSample + 1;
        for (size_t i = 0; i < ids_.size(); i += step) {
            Cut cut = cutOf(catalog_, ids_[i]);
            if (isCut(cut)) cuts_.push_back({ids_[i], std::move(cut)});
        }
        const uint32_t stages = stageCount();
        ranks_ = world_ / stages;
        Mesh mesh;
        mesh.source = Mesh::Source::inferred;
        if (stages > 1) {
            mesh.axes.push_back({"pp", stages});
            mesh.evidence.push_back(
                fmt::format("pp={}: the tensors of each layer lie on one of {} separate groups of {} rank{}",
                            stages, stages, ranks_, ranks_ == 1 ? "" : "s"));
        }
        if (!cuts_.empty() && ranks_ > 1) addCuts(mesh);
        if (mesh.axes.empty()) return std::nullopt;
        return mesh;
    }

  private:
    struct Cut1 {
        TensorId tensor;
        Cut cut;
    };

    static constexpr size_t kSample = 256;
    bool isCut(const Cut& cut) const {
        return cut.shape.regular && cut.pieces.size() > 1 && cut.pieces.size() <= world_;
    }

    // "model.layers.12.mlp.w" -> "model.layers.12"; empty without a number.
    static std::string_view layerOf(std::string_view name) {
        for (size_t i = 0; i < name.size();) {
            const size_t dot = std::min(name.find('.', i), name.size());
            const std::string_view part = name.substr(i, dot - i);
            if (!part.empty() &&
                std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; }))
                return name.substr(0, dot);
            i = dot + 1;
        }
        return {};
    }

    // Replicated tensors are scattered over the ranks when only one copy is stored, so a rank of its own
    // means nothing; whole layers on ranks of their own do.
    uint32_t stageCount() const {
        struct Layer {
            std::set<uint32_t> ranks;
            size_t tensors = 0;
        };
        std::map<std::string, Layer, std::less<>> layers;
        for (TensorId t = 0; t < catalog_.tensorCount(); ++t) {
            const std::string_view layer = layerOf(catalog_.name(t));
            if (layer.empty() || catalog_.aliasOf(t) != kNone) continue;
            auto it = layers.find(layer);
            if (it == layers.end()) it = layers.emplace(std::string(layer), Layer{}).first;
            ++it->second.tensors;
            for (ChunkId c = catalog_.firstChunk(t); c < catalog_.endChunk(t); ++c) {
                const ChunkInfo chunk = catalog_.chunk(t, c);
                if (chunk.elements() != 0 && chunk.rank != kNone) it->second.ranks.insert(chunk.rank);
            }
        }
        std::set<std::set<uint32_t>> groups;
        for (const auto& [name, layer] : layers) {
            if (layer.tensors < 2) continue;
            groups.insert(layer.ranks);
        }
        if (groups.size() < 2 || world_ % groups.size() != 0) return 1;
        const uint32_t size = world_ / static_cast<uint32_t>(groups.size());
        for (const std::set<uint32_t>& group : groups) {
            if (group.size() != size || *group.rbegin() - *group.begin() + 1 != size ||
                *group.begin() % size != 0)
                return 1;
        }
        return static_cast<uint32_t>(groups.size());
    }

    // The mesh within a stage: `outer` x `inner` ranks, of which the rest are copies.
    Shape shapeFor(const Cut1& c, uint32_t outer, uint32_t inner) const {
        std::vector<size_t> dims;
        const DimSpan shape = catalog_.shape(c.tensor);
        for (size_t k = 0; k < shape.size(); ++k) {
            if (c.cut.shape.parts[k] > 1) dims.push_back(k);
        }
        const auto& spans = c.cut.spans;
        const uint32_t block = outer * inner;
        const auto ranksFit = [&](auto&& cellOf) {
            return std::all_of(c.cut.pieces.begin(), c.cut.pieces.end(), [&](const CutPiece& p) {
                if (p.rank == kNone) return true;
                const uint32_t r = p.rank % block;
                return cellOf(p, r / inner, r % inner);
            });
        };
        if (dims.size() == 1) {
            const size_t k = dims[0];
            if (isSplit(spans[k], shape[k], block) &&
                ranksFit(
                    [&](const CutPiece& p, uint32_t o, uint32_t i) { return p.cell[k] == o * inner + i; })) {
                return inner == 1 ? Shape::outerOnly : outer == 1 ? Shape::innerOnly : Shape::flat;
            }
            if (inner > 1 && outer > 1) {
                if (isSplit(spans[k], shape[k], outer) &&
                    ranksFit([&](const CutPiece& p, uint32_t o, uint32_t) { return p.cell[k] == o; }))
                    return Shape::outerOnly;
                if (isSplit(spans[k], shape[k], inner) &&
                    ranksFit([&](const CutPiece& p, uint32_t, uint32_t i) { return p.cell[k] == i; }))
                    return Shape::innerOnly;
                // The inner axis cuts first, the outer one cuts its pieces again.
                if (c.cut.pieces.size() == block && ranksFit([&](const CutPiece& p, uint32_t o, uint32_t i) {
                        return p.cell[k] == i * outer + o;
                    }))
                    return Shape::interleaved;
            }
            return Shape::none;
        }
        if (dims.size() == 2 && inner > 1 && outer > 1) {
            for (int turn = 0; turn < 2; ++turn) {
                const size_t a = dims[static_cast<size_t>(turn)];
                const size_t b = dims[static_cast<size_t>(1 - turn)];
                if (isSplit(spans[a], shape[a], outer) && isSplit(spans[b], shape[b], inner) &&
                    ranksFit([&](const CutPiece& p, uint32_t o, uint32_t i) {
                        return p.cell[a] == o && p.cell[b] == i;
                    })) {
                    return Shape::both;
                }
            }
        }
        return Shape::none;
    }

    void addCuts(Mesh& mesh) const {
        // Every factorisation of the ranks of a stage; the one that explains most, and of those the simplest.
        // Two axes need a tensor that shows both at once.
        struct Best {
            uint32_t outer = 1, inner = 1;
            size_t explained = 0;
            bool two = false;
        } best;
        std::vector<uint32_t> divisors;
        for (uint32_t d = 1; d <= ranks_; ++d) {
            if (ranks_ % d == 0) divisors.push_back(d);
        }
        for (uint32_t outer : divisors) {
            for (uint32_t inner : divisors) {
                if (ranks_ / outer % inner != 0 || outer * inner == 1 || (outer == 1 && inner > 1)) continue;
                size_t explained = 0;
                bool two = false;
                for (const Cut1& c : cuts_) {
                    const Shape s = shapeFor(c, outer, inner);
                    explained += s != Shape::none;
                    two = two || s == Shape::both || s == Shape::interleaved;
                }
                if (inner > 1 && !two) continue;
                if (explained > best.explained || (explained == best.explained && explained > 0 &&
                                                   outer * inner < best.outer * best.inner)) {
                    best = {outer, inner, explained, two};
                }
            }
        }
        if (best.explained * 2 < cuts_.size() || best.explained == 0) return;

        std::map<size_t, size_t> outerDims, innerDims;
        size_t interleaved = 0;
        size_t flat = 0;
        for (TensorId t : ids_) {
            const Cut1 c{t, cutOf(catalog_, t)};
            if (!isCut(c.cut)) continue;
            const Shape s = shapeFor(c, best.outer, best.inner);
            std::vector<size_t> dims;
            for (size_t k = 0; k < c.cut.shape.parts.size(); ++k) {
                if (c.cut.shape.parts[k] > 1) dims.push_back(k);
            }
            if (s == Shape::outerOnly) ++outerDims[dims[0]];
            if (s == Shape::innerOnly) ++innerDims[dims[0]];
            if (s == Shape::interleaved) ++interleaved;
            if (s == Shape::flat) ++flat;
            if (s == Shape::both) {
                const bool straight =
                    isSplit(c.cut.spans[dims[0]], catalog_.shape(c.tensor)[dims[0]], best.outer) &&
                    c.cut.shape.parts[dims[0]] <= best.outer &&
                    std::all_of(c.cut.pieces.begin(), c.cut.pieces.end(), [&](const CutPiece& p) {
                        return p.rank == kNone ||
                               p.cell[dims[0]] == p.rank % (best.outer * best.inner) / best.inner;
                    });
                ++outerDims[dims[straight ? 0 : 1]];
                ++innerDims[dims[straight ? 1 : 0]];
            }
        }
        const auto sentences = [](const std::map<size_t, size_t>& dims, uint32_t size) {
            std::string text;
            for (const auto& [dim, count] : dims) {
                text += fmt::format("{}{} tensor{} cut in {} along dim {}", text.empty() ? "" : ", ", count,
                                    count == 1 ? "" : "s", size, dim);
            }
            return text;
        };
        const uint32_t copies = ranks_ / (best.outer * best.inner);
        if (copies > 1) {
            mesh.axes.push_back({"dp", copies});
            mesh.evidence.push_back(fmt::format("dp={}: every piece lies on one of {} ranks, {} apart",
                                                copies, copies, best.outer * best.inner));
        }
        // An axis that cuts along other dimensions than the first is tensor parallel; one that cuts all along
        // the first is how FSDP shards.
        const bool tensorParallel =
            best.inner == 1 &&
            std::any_of(outerDims.begin(), outerDims.end(), [](const auto& d) { return d.first != 0; });
        const std::string outerName = tensorParallel ? "tp" : "fsdp";
        mesh.axes.push_back({outerName, best.outer});
        std::string evidence =
            fmt::format("{}={}: {}", outerName, best.outer, sentences(outerDims, best.outer));
        if (best.inner > 1) {
            if (flat > 0)
                evidence += fmt::format("{}{} cut in {} over both axes", outerDims.empty() ? "" : ", ", flat,
                                        best.outer * best.inner);
            mesh.evidence.push_back(std::move(evidence));
            mesh.axes.push_back({"tp", best.inner});
            std::string inner = sentences(innerDims, best.inner);
            if (interleaved > 0) {
                inner += fmt::format("{}{} tensor{} cut in {} with the pieces interleaved over the ranks",
                                     inner.empty() ? "" : ", ", interleaved, interleaved == 1 ? "" : "s",
                                     best.outer * best.inner);
            }
            mesh.evidence.push_back(fmt::format("tp={}: {}", best.inner, inner));
        } else {
            mesh.evidence.push_back(std::move(evidence));
        }
    }

    const Catalog& catalog_;
    const uint32_t world_;
    uint32_t ranks_ = 1;         // of one stage
    std::vector<TensorId> ids_;  // stored in several chunks
    std::vector<Cut1> cuts_;     // a sample of them
};

}  // namespace

TensorCut tensorCut(const Catalog& catalog, TensorId tensor) {
    return cutOf(catalog, tensor).shape;
}

std::optional<Mesh> inferMesh(const Catalog& catalog) {
    return Inference(catalog).run();
}

}  // namespace shardscope
