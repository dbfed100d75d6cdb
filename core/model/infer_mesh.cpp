#include "model/infer_mesh.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <unordered_map>

#include <fmt/format.h>

#include "base/units.h"

namespace shardscope {

namespace {

struct Cut {
    TensorCut shape;
    std::vector<std::vector<Span1>> spans;  // distinct intervals of each dimension, in order
    // The pieces of a regular cut, one of each box: the ranks that hold them, and which interval they are
    // along each dimension.
    std::vector<uint32_t> ranks;
    std::vector<uint32_t> cells;

    size_t pieces() const { return ranks.size(); }
    uint32_t cell(size_t piece, size_t dim) const { return cells[piece * spans.size() + dim]; }
};

template <class T, class Less>
void sortUnique(std::vector<T>& values, Less less) {
    if (!std::is_sorted(values.begin(), values.end(), less)) std::sort(values.begin(), values.end(), less);
    values.erase(std::unique(values.begin(), values.end()), values.end());
}

// What the cut needs of a chunk; the spans point into the catalog.
struct Placed {
    const int64_t* offsets;
    const int64_t* lengths;
    uint32_t rank;
    ChunkId id;
};

Cut cutOf(const Catalog& catalog, TensorId tensor) {
    Cut cut;
    const DimSpan shape = catalog.shape(tensor);
    const size_t rank = shape.size();
    cut.spans.resize(rank);
    std::vector<uint32_t> ranks;
    std::vector<Placed> chunks;
    const size_t count = catalog.endChunk(tensor) - catalog.firstChunk(tensor);
    ranks.reserve(count);
    chunks.reserve(count);
    for (ChunkId c = catalog.firstChunk(tensor); c < catalog.endChunk(tensor); ++c) {
        const ChunkInfo chunk = catalog.chunk(tensor, c);
        if (chunk.elements() == 0) continue;
        if (chunk.rank != kNone) ranks.push_back(chunk.rank);
        if (chunk.flat || !boxInside(chunk.offsets, chunk.lengths, shape)) {
            cut.shape.regular = false;
            continue;
        }
        chunks.push_back({chunk.offsets.data(), chunk.lengths.data(), chunk.rank, c});
        for (size_t k = 0; k < rank; ++k) {
            const Span1 span{chunk.offsets[k], chunk.lengths[k]};
            if (cut.spans[k].empty() || cut.spans[k].back() != span) cut.spans[k].push_back(span);
        }
    }
    sortUnique(ranks, std::less<>());
    cut.shape.ranks = static_cast<uint32_t>(ranks.size());
    // Copies of a box are neighbors then; one of them is kept.
    const auto before = [rank](const Placed& a, const Placed& b) {
        for (size_t k = 0; k < rank; ++k) {
            if (a.offsets[k] != b.offsets[k]) return a.offsets[k] < b.offsets[k];
        }
        for (size_t k = 0; k < rank; ++k) {
            if (a.lengths[k] != b.lengths[k]) return a.lengths[k] < b.lengths[k];
        }
        return a.id < b.id;
    };
    const auto same = [rank](const Placed& a, const Placed& b) {
        return std::equal(a.offsets, a.offsets + rank, b.offsets) &&
               std::equal(a.lengths, a.lengths + rank, b.lengths);
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
        sortUnique(spans, [](const Span1& a, const Span1& b) {
            return a.offset != b.offset ? a.offset < b.offset : a.length < b.length;
        });
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
    cut.ranks.reserve(chunks.size());
    cut.cells.reserve(chunks.size() * rank);
    for (const Placed& chunk : chunks) {
        cut.ranks.push_back(chunk.rank);
        for (size_t k = 0; k < rank; ++k) {
            const auto it =
                std::lower_bound(cut.spans[k].begin(), cut.spans[k].end(), chunk.offsets[k],
                                 [](const Span1& s, int64_t offset) { return s.offset < offset; });
            cut.cells.push_back(static_cast<uint32_t>(it - cut.spans[k].begin()));
        }
    }
    return cut;
}

// The distinct ways in which the tensors of a catalog are cut. A model repeats a few of them in every layer.
class Patterns {
  public:
    explicit Patterns(const Catalog& catalog) : of_(catalog.tensorCount()) {
        std::unordered_multimap<uint64_t, uint32_t> byHash;
        for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
            if (t > 0 && catalog.sameCut(t - 1, t)) {
                of_[t] = of_[t - 1];
                continue;
            }
            const uint64_t hash = catalog.cutHash(t);
            const auto [first, last] = byHash.equal_range(hash);
            const auto known = std::find_if(
                first, last, [&](const auto& entry) { return catalog.sameCut(tensors_[entry.second], t); });
            if (known != last) {
                of_[t] = known->second;
                continue;
            }
            of_[t] = static_cast<uint32_t>(tensors_.size());
            byHash.emplace(hash, of_[t]);
            tensors_.push_back(t);
        }
    }
    size_t count() const { return tensors_.size(); }
    uint32_t of(TensorId t) const { return of_[t]; }
    // The first tensor that is cut in this way.
    TensorId tensor(uint32_t pattern) const { return tensors_[pattern]; }

  private:
    std::vector<uint32_t> of_;
    std::vector<TensorId> tensors_;
};

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
    explicit Inference(const Catalog& catalog)
        : catalog_(catalog), world_(catalog.rankCount()), patterns_(catalog), uses_(patterns_.count()) {}

    std::optional<Mesh> run() {
        if (world_ < 2 || world_ > 1'000'000) return std::nullopt;
        std::vector<TensorId> ids;  // stored in several chunks
        for (TensorId t = 0; t < catalog_.tensorCount(); ++t) {
            if (catalog_.aliasOf(t) != kNone || catalog_.endChunk(t) - catalog_.firstChunk(t) < 2) continue;
            ids.push_back(t);
            ++uses_[patterns_.of(t)];
        }
        // A sample chooses the mesh; all are counted then.
        std::vector<size_t> sampled(patterns_.count());
        const size_t step = ids.size() / kSample + 1;
        for (size_t i = 0; i < ids.size(); i += step)
            ++sampled[patterns_.of(ids[i])];
        for (uint32_t p = 0; p < patterns_.count(); ++p) {
            if (sampled[p] == 0) continue;
            Cut cut = cutOf(catalog_, patterns_.tensor(p));
            if (!isCut(cut)) continue;
            sampledCuts_ += sampled[p];
            cuts_.push_back({patterns_.tensor(p), sampled[p], std::move(cut)});
        }
        const uint32_t stages = stageCount();
        ranks_ = world_ / stages;
        Mesh mesh;
        mesh.source = Mesh::Source::inferred;
        if (stages > 1) {
            mesh.axes.push_back({"pp", stages});
            mesh.evidence.push_back(fmt::format("pp={}: the tensors of each layer are on one of {} of {}",
                                                stages, counted(stages, "separate group"),
                                                counted(ranks_, "rank")));
        }
        if (!cuts_.empty() && ranks_ > 1) addCuts(mesh);
        if (mesh.axes.empty()) return std::nullopt;
        return mesh;
    }

  private:
    struct Cut1 {
        TensorId tensor;
        size_t count;  // tensors that are cut like this
        Cut cut;
    };

    static constexpr size_t kSample = 256;
    bool isCut(const Cut& cut) const {
        return cut.shape.regular && cut.pieces() > 1 && cut.pieces() <= world_;
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
            std::vector<uint32_t> patterns;  // which hold the same ranks wherever they occur
            size_t tensors = 0;
        };
        std::map<std::string, Layer, std::less<>> layers;
        for (TensorId t = 0; t < catalog_.tensorCount(); ++t) {
            const std::string_view layer = layerOf(catalog_.name(t));
            if (layer.empty() || catalog_.aliasOf(t) != kNone) continue;
            auto it = layers.find(layer);
            if (it == layers.end()) it = layers.emplace(std::string(layer), Layer{}).first;
            ++it->second.tensors;
            it->second.patterns.push_back(patterns_.of(t));
        }
        std::set<std::vector<uint32_t>> kinds;
        for (auto& [name, layer] : layers) {
            if (layer.tensors < 2) continue;
            sortUnique(layer.patterns, std::less<>());
            kinds.insert(std::move(layer.patterns));
        }
        std::set<std::vector<uint32_t>> groups;
        for (const std::vector<uint32_t>& kind : kinds) {
            std::vector<uint32_t> ranks;
            for (const uint32_t pattern : kind) {
                const TensorId t = patterns_.tensor(pattern);
                for (ChunkId c = catalog_.firstChunk(t); c < catalog_.endChunk(t); ++c) {
                    const ChunkInfo chunk = catalog_.chunk(t, c);
                    if (chunk.elements() != 0 && chunk.rank != kNone) ranks.push_back(chunk.rank);
                }
            }
            sortUnique(ranks, std::less<>());
            groups.insert(std::move(ranks));
        }
        if (groups.size() < 2 || world_ % groups.size() != 0) return 1;
        const uint32_t size = world_ / static_cast<uint32_t>(groups.size());
        for (const std::vector<uint32_t>& group : groups) {
            if (group.size() != size || group.back() - group.front() + 1 != size || group.front() % size != 0)
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
            for (size_t p = 0; p < c.cut.pieces(); ++p) {
                if (c.cut.ranks[p] == kNone) continue;
                const uint32_t r = c.cut.ranks[p] % block;
                if (!cellOf(p, r / inner, r % inner)) return false;
            }
            return true;
        };
        if (dims.size() == 1) {
            const size_t k = dims[0];
            if (isSplit(spans[k], shape[k], block) && ranksFit([&](size_t p, uint32_t o, uint32_t i) {
                    return c.cut.cell(p, k) == o * inner + i;
                })) {
                return inner == 1 ? Shape::outerOnly : outer == 1 ? Shape::innerOnly : Shape::flat;
            }
            if (inner > 1 && outer > 1) {
                if (isSplit(spans[k], shape[k], outer) &&
                    ranksFit([&](size_t p, uint32_t o, uint32_t) { return c.cut.cell(p, k) == o; }))
                    return Shape::outerOnly;
                if (isSplit(spans[k], shape[k], inner) &&
                    ranksFit([&](size_t p, uint32_t, uint32_t i) { return c.cut.cell(p, k) == i; }))
                    return Shape::innerOnly;
                // The inner axis cuts first, the outer one cuts its pieces again.
                if (c.cut.pieces() == block && ranksFit([&](size_t p, uint32_t o, uint32_t i) {
                        return c.cut.cell(p, k) == i * outer + o;
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
                    ranksFit([&](size_t p, uint32_t o, uint32_t i) {
                        return c.cut.cell(p, a) == o && c.cut.cell(p, b) == i;
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
                    if (s != Shape::none) explained += c.count;
                    two = two || s == Shape::both || s == Shape::interleaved;
                }
                if (inner > 1 && !two) continue;
                if (explained > best.explained || (explained == best.explained && explained > 0 &&
                                                   outer * inner < best.outer * best.inner)) {
                    best = {outer, inner, explained, two};
                }
            }
        }
        if (best.explained * 2 < sampledCuts_ || best.explained == 0) return;

        std::map<size_t, size_t> outerDims, innerDims;
        size_t interleaved = 0;
        size_t flat = 0;
        for (uint32_t pattern = 0; pattern < patterns_.count(); ++pattern) {
            if (uses_[pattern] == 0) continue;
            const TensorId t = patterns_.tensor(pattern);
            const Cut1 c{t, uses_[pattern], cutOf(catalog_, t)};
            if (!isCut(c.cut)) continue;
            const Shape s = shapeFor(c, best.outer, best.inner);
            std::vector<size_t> dims;
            for (size_t k = 0; k < c.cut.shape.parts.size(); ++k) {
                if (c.cut.shape.parts[k] > 1) dims.push_back(k);
            }
            if (s == Shape::outerOnly) outerDims[dims[0]] += c.count;
            if (s == Shape::innerOnly) innerDims[dims[0]] += c.count;
            if (s == Shape::interleaved) interleaved += c.count;
            if (s == Shape::flat) flat += c.count;
            if (s == Shape::both) {
                bool straight = isSplit(c.cut.spans[dims[0]], catalog_.shape(t)[dims[0]], best.outer) &&
                                c.cut.shape.parts[dims[0]] <= best.outer;
                for (size_t p = 0; p < c.cut.pieces() && straight; ++p) {
                    straight =
                        c.cut.ranks[p] == kNone ||
                        c.cut.cell(p, dims[0]) == c.cut.ranks[p] % (best.outer * best.inner) / best.inner;
                }
                outerDims[dims[straight ? 0 : 1]] += c.count;
                innerDims[dims[straight ? 1 : 0]] += c.count;
            }
        }
        const auto sentences = [](const std::map<size_t, size_t>& dims, uint32_t size) {
            std::string text;
            for (const auto& [dim, count] : dims) {
                text += fmt::format("{}{} sharded in {} along dim {}", text.empty() ? "" : ", ",
                                    counted(count, "tensor"), size, dim);
            }
            return text;
        };
        const uint32_t copies = ranks_ / (best.outer * best.inner);
        if (copies > 1) {
            mesh.axes.push_back({"dp", copies});
            mesh.evidence.push_back(fmt::format("dp={}: every shard is on one of {}, {} apart", copies,
                                                counted(copies, "rank"), best.outer * best.inner));
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
                evidence += fmt::format("{}{} sharded in {} over both axes", outerDims.empty() ? "" : ", ",
                                        counted(flat, "tensor"), best.outer * best.inner);
            mesh.evidence.push_back(std::move(evidence));
            mesh.axes.push_back({"tp", best.inner});
            std::string inner = sentences(innerDims, best.inner);
            if (interleaved > 0) {
                inner +=
                    fmt::format("{}{} in {} over tp, then fsdp", inner.empty() ? "" : ", ",
                                counted(interleaved, "tensor"), counted(best.outer * best.inner, "shard"));
            }
            mesh.evidence.push_back(fmt::format("tp={}: {}", best.inner, inner));
        } else {
            mesh.evidence.push_back(std::move(evidence));
        }
    }

    const Catalog& catalog_;
    const uint32_t world_;
    uint32_t ranks_ = 1;  // of one stage
    Patterns patterns_;
    std::vector<size_t> uses_;  // tensors in several chunks, by pattern
    std::vector<Cut1> cuts_;    // a sample of them
    size_t sampledCuts_ = 0;    // tensors that these stand for
};

}  // namespace

TensorCut tensorCut(const Catalog& catalog, TensorId tensor) {
    return cutOf(catalog, tensor).shape;
}

std::optional<Mesh> inferMesh(const Catalog& catalog) {
    return Inference(catalog).run();
}

}  // namespace shardscope
