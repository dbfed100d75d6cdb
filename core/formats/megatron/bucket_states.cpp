#include "formats/megatron/bucket_states.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "base/numbers.h"
#include "base/text.h"
#include "formats/megatron/buffers.h"
#include "formats/megatron/run_state.h"

namespace shardscope::megatron {

namespace {

constexpr size_t kMostPieces = 1 << 22;  // of parameters on all ranks

// "chained_1.optimizer.distributed.dp_group_idx_0.gbuf_idx_0.dtype_(torch.bfloat16,
// torch.float32).bucket_idx_2. exp_avg"
struct BucketName {
    uint32_t chain = 0, group = 0, buffer = 0, bucket = 0;
    std::string_view dtype;  // of the parameters
    std::string_view state;
};
bool takeText(std::string_view& text, std::string_view beginning) {
    if (!text.starts_with(beginning)) return false;
    text.remove_prefix(beginning.size());
    return true;
}
bool takeIndex(std::string_view& text, uint32_t& index) {
    const auto number = takeNumber<uint32_t>(text, UINT16_MAX);
    index = number.value_or(0);
    return number.has_value();
}
std::optional<BucketName> parseBucketName(std::string_view text) {
    BucketName name;
    if (takeText(text, "chained_") && !(takeIndex(text, name.chain) && takeText(text, ".")))
        return std::nullopt;
    if (!takeText(text, "optimizer.distributed.dp_group_idx_") || !takeIndex(text, name.group) ||
        !takeText(text, ".gbuf_idx_") || !takeIndex(text, name.buffer) || !takeText(text, ".dtype_("))
        return std::nullopt;
    const size_t comma = text.find(", ");
    if (comma == text.npos) return std::nullopt;
    name.dtype = text.substr(0, comma);
    takeText(name.dtype, "torch.");
    constexpr std::string_view kBucket = ").bucket_idx_";
    const size_t bucket = text.find(kBucket, comma);
    if (bucket == text.npos) return std::nullopt;
    text.remove_prefix(bucket + kBucket.size());
    if (!takeIndex(text, name.bucket) || !takeText(text, ".") || text.empty()) return std::nullopt;
    name.state = text;
    return name;
}

struct Box {
    TensorId tensor = kNone;
    ChunkId chunk = kNone;
    Dims offsets, lengths;
};
// A parameter as one rank of the model has it: its boxes one behind the other, two for gate and up
// projection.
struct LocalParameter {
    TensorId first = kNone;  // the tensor of its first box, which gives the order
    int64_t layer = -1, expert = -1;
    int section = 0;  // before the layers, in them, behind them
    std::vector<Box> boxes;
    int64_t elements = 0;
    bool copy = false;  // of what another group holds, too
};

// How a model's parameters are ordered within a layer. Local layers have their norms before what they belong
// to, those of Transformer Engine in the linear layer behind them; grouped experts go by matrix, others by
// expert.
struct Order {
    bool asStored = false, fusedNorms = false, groupedExperts = false;
};
constexpr std::array<Order, 6> kOrders{{{true, false, false},
                                        {false, false, false},
                                        {false, true, false},
                                        {true, false, true},
                                        {false, false, true},
                                        {false, true, true}}};

// The place of a parameter in its layer. Source: the order of the modules of TransformerLayer, SelfAttention
// and MLP in megatron-core 0.16.
size_t placeInLayer(std::string_view key, bool fusedNorms) {
    constexpr std::array<std::string_view, 21> local{"input_layernorm",
                                                     "linear_qkv.layer_norm",
                                                     "linear_proj.",
                                                     "linear_q_proj",
                                                     "linear_q_down_proj",
                                                     "linear_q_up_proj",
                                                     "linear_kv_down_proj",
                                                     "linear_kv_up_proj",
                                                     "linear_qkv.",
                                                     "q_layernorm",
                                                     "k_layernorm",
                                                     "kv_layernorm",
                                                     "pre_mlp_layernorm",
                                                     "linear_fc1.layer_norm",
                                                     "router.",
                                                     ".experts.experts.linear_fc1",
                                                     ".experts.experts.linear_fc2",
                                                     "shared_experts.linear_fc1",
                                                     "shared_experts.linear_fc2",
                                                     "linear_fc1.",
                                                     "linear_fc2."};
    const std::string_view norm = fusedNorms ? "linear_qkv.layer_norm" : "";
    for (size_t i = 0; i < local.size(); ++i) {
        // "linear_qkv.layer_norm_weight" directly before "linear_qkv.weight".
        const std::string_view wanted = local[i];
        if (!norm.empty() && wanted == norm) continue;
        if (key.find(wanted) != key.npos)
            return i * 2 + (wanted == "linear_qkv." && key.find("layer_norm") == key.npos);
    }
    return local.size() * 2;
}

class BucketResolver {
  public:
    BucketResolver(const Reader& stored, const ParallelSizes& sizes)
        : reader_(stored), catalog_(stored.catalog()), sizes_(sizes) {}

    Result<BucketStates> run() {
        out_ = findBuckets(catalog_);
        if (!gatherParameters()) return std::move(out_);
        gatherGroups();
        for (auto& [key, group] : groups_) {
            SHARDSCOPE_ASSIGN(const bool resolved, resolve(group));
            if (resolved) continue;
            out_.whyNot = fmt::format(
                "the parameters of '{}' do not fill it in any order of the model's",
                printable(catalog_.name(group.buckets.begin()->second.begin()->second), kNameInMessage));
            out_.states.clear();
            return std::move(out_);
        }
        for (auto& [name, state] : states_)
            out_.states.push_back(std::move(state));
        return std::move(out_);
    }

  private:
    struct TensorPiece {
        ParallelSizes::At at;
        int64_t layer = -1, expert = -1;
        Box box;
    };
    using StateTensors = std::map<std::string, TensorId, std::less<>>;
    struct Group {
        uint32_t chain = 0, group = 0, stage = 0;  // virtual stage
        DType dtype = DType::bfloat16;
        std::map<uint32_t, StateTensors> buckets;
    };

    bool fail(std::string why) {
        out_.whyNot = std::move(why);
        return false;
    }

    // What every rank of the model holds of the parameters.
    bool gatherParameters() {
        std::map<std::string, TensorId> gates;  // "….weight_w" by its name without the ending
        for (TensorId t = 0; t < catalog_.tensorCount(); ++t) {
            const std::string_view name = catalog_.name(t);
            if (out_.isBucket[t] || catalog_.aliasOf(t) != kNone || name.find("optimizer.") != name.npos)
                continue;
            tied_ = tied_ && !name.ends_with("output_layer.weight");
            if (name.ends_with("embedding.word_embeddings.weight")) embedding_ = t;
            if (name.ends_with(".weight_w")) gates[std::string(name.substr(0, name.size() - 2))] = t;
            std::vector<TensorPiece>& pieces = pieces_[t];
            const LeadingDims leading = leadingDimsOf(name);
            for (ChunkId c = catalog_.firstChunk(t); c < catalog_.endChunk(t); ++c) {
                const ChunkInfo chunk = catalog_.chunk(t, c);
                if (chunk.rank == kNone || chunk.rank >= sizes_.ranks() || chunk.flat ||
                    ++pieceCount_ > kMostPieces)
                    return fail("chunks of the weights have no rank of the mesh");
                TensorPiece piece;
                piece.at = sizes_.at(chunk.rank);
                piece.box = {t, c, Dims(chunk.offsets.begin(), chunk.offsets.end()),
                             Dims(chunk.lengths.begin(), chunk.lengths.end())};
                size_t axis = 0;
                const auto take = [&](int64_t& number) {
                    if (axis >= piece.box.offsets.size() || piece.box.lengths[axis] != 1) return false;
                    number = piece.box.offsets[axis++];
                    return true;
                };
                piece.layer = leading.layer;
                if ((leading.layers && !take(piece.layer)) || (leading.experts && !take(piece.expert)))
                    return fail(
                        fmt::format("'{}' is not sharded layer by layer", printable(name, kNameInMessage)));
                layers_ = std::max(layers_, piece.layer + 1);
                pieces.push_back(std::move(piece));
            }
            everywhere_[t] = std::ranges::all_of(pieces, [](const TensorPiece& p) { return p.at.tp == 0; });
        }
        for (const auto& [name, gate] : gates) {
            const TensorId up = catalog_.find(name + "_v");
            if (up != kNone) partOf_[up] = gate;
        }
        const int64_t stages = int64_t{sizes_.pp} * sizes_.virtualStages;
        if (sizes_.virtualStages > 1 && layers_ % stages != 0)
            return fail("the layers are not spread evenly over virtual stages");
        return true;
    }

    void gatherGroups() {
        std::map<std::tuple<uint32_t, uint32_t, std::string>, std::set<uint32_t>> buffers;
        for (TensorId t = 0; t < catalog_.tensorCount(); ++t) {
            const auto name = parseBucketName(catalog_.name(t));
            if (!name) continue;
            buffers[{name->chain, name->group, std::string(name->dtype)}].insert(name->buffer);
        }
        for (TensorId t = 0; t < catalog_.tensorCount(); ++t) {
            const auto name = parseBucketName(catalog_.name(t));
            if (!name) continue;
            const auto& all = buffers[{name->chain, name->group, std::string(name->dtype)}];
            Group& group = groups_[{name->chain, name->group, name->buffer, std::string(name->dtype)}];
            group.chain = name->chain;
            group.group = name->group;
            group.stage = static_cast<uint32_t>(std::distance(all.begin(), all.find(name->buffer)));
            group.dtype = dtypeFromName(name->dtype).value_or(DType::float32);
            group.buckets[name->bucket].emplace(std::string(name->state), t);
        }
    }

    // The parameters of a group: those of a stage and a tensor-parallel rank, or of a rank of experts.
    std::vector<LocalParameter> parametersOf(const Group& group, bool experts) const {
        const uint32_t tp = group.group % sizes_.tp;
        const uint32_t ep = experts ? group.group / sizes_.tp % sizes_.ep : 0;
        const uint32_t pp = group.group / sizes_.tp / (experts ? sizes_.ep : 1);
        const bool first = pp == 0 && group.stage == 0;
        const bool last = pp + 1 == sizes_.pp && group.stage + 1 == sizes_.virtualStages;
        std::map<std::tuple<TensorId, int64_t, int64_t>, LocalParameter> found;
        for (const auto& [t, pieces] : pieces_) {
            const std::string_view name = catalog_.name(t);
            const bool expert =
                name.find(".experts.") != name.npos && name.find("shared_experts") == name.npos;
            if (expert != experts || catalog_.dtype(t) != group.dtype) continue;
            const auto gate = partOf_.find(t);
            const TensorId owner = gate == partOf_.end() ? t : gate->second;
            for (const TensorPiece& piece : pieces) {
                if (piece.at.pp != pp || (piece.at.tp != tp && !everywhere_.at(t))) continue;
                if (expert && piece.at.dp % sizes_.ep != ep) continue;
                const int section = name.find("embedding.") != name.npos && piece.layer < 0 ? 0
                                    : piece.layer >= 0                                      ? 1
                                                                                            : 2;
                if ((section == 0 && !first) || (section == 2 && !last) ||
                    (section == 1 && sizes_.virtualStages > 1 && virtualStage(piece.layer) != group.stage))
                    continue;
                LocalParameter& parameter = found[{owner, piece.layer, piece.expert}];
                parameter.first = owner;
                parameter.layer = piece.layer;
                parameter.expert = piece.expert;
                parameter.section = section;
                parameter.copy = everywhere_.at(t) && tp != 0;
                parameter.boxes.push_back(piece.box);
            }
        }
        std::vector<LocalParameter> all;
        for (auto& [key, parameter] : found) {
            std::ranges::sort(parameter.boxes, [](const Box& a, const Box& b) {
                return std::tie(a.tensor, a.offsets) < std::tie(b.tensor, b.offsets);
            });
            all.push_back(std::move(parameter));
        }
        // The last stage has its own copy of a tied embedding.
        if (!experts && last && !first && tied_ && embedding_ != kNone &&
            catalog_.dtype(embedding_) == group.dtype) {
            for (const TensorPiece& piece : pieces_.at(embedding_)) {
                if (piece.at.tp != tp) continue;
                LocalParameter copy;
                copy.first = static_cast<TensorId>(catalog_.tensorCount());  // behind all others
                copy.section = 2;
                copy.copy = true;
                copy.boxes = {piece.box};
                all.push_back(std::move(copy));
            }
        }
        for (LocalParameter& parameter : all) {
            for (const Box& box : parameter.boxes)
                parameter.elements += elementCount(box.lengths);
        }
        return all;
    }

    uint32_t virtualStage(int64_t layer) const {
        const int64_t each = layers_ / (int64_t{sizes_.pp} * sizes_.virtualStages);
        return each == 0 ? 0 : static_cast<uint32_t>(layer / each / sizes_.pp);
    }

    void sortBy(const Order& order, std::vector<LocalParameter>& parameters) const {
        const auto key = [&](const LocalParameter& p) {
            const size_t place = p.section != 1 || order.asStored || p.first >= catalog_.tensorCount()
                                     ? 0
                                     : placeInLayer(catalog_.name(p.first), order.fusedNorms);
            return order.groupedExperts
                       ? std::tuple(p.section, p.layer, int64_t{-1}, place, p.first, p.expert)
                       : std::tuple(p.section, p.layer, p.expert, place, p.first, int64_t{-1});
        };
        std::ranges::stable_sort(
            parameters, [&](const LocalParameter& a, const LocalParameter& b) { return key(a) < key(b); });
    }

    Result<bool> resolve(const Group& group) {
        std::vector<int64_t> sizes;
        for (const auto& [bucket, states] : group.buckets) {
            const DimSpan shape = catalog_.shape(states.begin()->second);
            if (shape.size() != 1) return false;
            sizes.push_back(shape[0]);
        }
        std::vector<Candidate> candidates;
        for (const bool experts : {false, true}) {
            const std::vector<LocalParameter> unsorted = parametersOf(group, experts);
            for (const Order& order : kOrders) {
                if (unsorted.empty()) break;
                Candidate candidate{unsorted, {}, {}};
                sortBy(order, candidate.parameters);
                std::vector<int64_t> elements;
                for (const LocalParameter& parameter : candidate.parameters)
                    elements.push_back(parameter.elements);
                auto places = placeInBuckets(elements, sizes);
                if (!places || !boundariesFit(group, candidate.parameters, *places)) continue;
                candidate.places = std::move(*places);
                for (size_t p = 0; p < candidate.places.size(); ++p)
                    candidate.byParameter[keyOf(candidate.parameters[p])] = p;
                const bool known = std::ranges::any_of(
                    candidates, [&](const Candidate& other) { return differing(other, candidate).empty(); });
                if (known) continue;
                SHARDSCOPE_ASSIGN(const bool same, valuesFit(group, candidate));
                if (same) candidates.push_back(std::move(candidate));
            }
        }
        SHARDSCOPE_ASSIGN(const Candidate* best, bestOf(group, candidates));
        if (best) addStates(group, best->parameters, best->places);
        return best != nullptr;
    }

    using ParameterKey = std::tuple<TensorId, int64_t, int64_t>;
    static ParameterKey keyOf(const LocalParameter& p) { return {p.first, p.layer, p.expert}; }
    // Parameters in an order that fills the buckets, and where each is.
    struct Candidate {
        std::vector<LocalParameter> parameters;
        std::vector<BufferPlace> places;
        std::map<ParameterKey, size_t> byParameter;
    };
    // The parameters that are in other places.
    static std::vector<ParameterKey> differing(const Candidate& a, const Candidate& b) {
        std::vector<ParameterKey> out;
        for (const auto& [key, p] : a.byParameter) {
            const auto other = b.byParameter.find(key);
            if (other == b.byParameter.end() || a.places[p].bucket != b.places[other->second].bucket ||
                a.places[p].first != b.places[other->second].first)
                out.push_back(key);
        }
        return out;
    }

    // Where several orders fit, parameters of one size have changed places: the masters must be far closer to
    // the weights in one order than in any other. Null where nothing decides.
    Result<const Candidate*> bestOf(const Group& group, const std::vector<Candidate>& candidates) {
        if (candidates.empty()) return static_cast<const Candidate*>(nullptr);
        const Candidate* best = &candidates[0];
        for (size_t c = 1; c < candidates.size(); ++c) {
            double mine = 0, others = 0;
            for (const ParameterKey& key : differing(*best, candidates[c])) {
                const auto other = candidates[c].byParameter.find(key);
                if (other == candidates[c].byParameter.end()) return static_cast<const Candidate*>(nullptr);
                const size_t p = best->byParameter.at(key);
                SHARDSCOPE_ASSIGN(const auto one, compared(group, best->parameters[p], best->places[p]));
                SHARDSCOPE_ASSIGN(const auto two, compared(group, candidates[c].parameters[other->second],
                                                           candidates[c].places[other->second]));
                mine += distanceOf(one);
                others += distanceOf(two);
            }
            if (others * 4 < mine)
                best = &candidates[c];
            else if (mine * 4 >= others)
                return static_cast<const Candidate*>(nullptr);
        }
        return best;
    }
    static double distanceOf(const std::pair<std::vector<float>, std::vector<float>>& values) {
        double distance = 0;
        for (size_t i = 0; i < std::min(values.first.size(), values.second.size()); ++i)
            distance += std::abs(double{values.first[i]} - double{values.second[i]});
        return distance;
    }

    // Each stored chunk is a part of one parameter, or of the padding between two.
    bool boundariesFit(const Group& group, const std::vector<LocalParameter>& parameters,
                       const std::vector<BufferPlace>& places) const {
        std::vector<std::set<int64_t>> edges(group.buckets.size());
        for (size_t p = 0; p < parameters.size(); ++p) {
            edges[places[p].bucket].insert(places[p].first);
            edges[places[p].bucket].insert(places[p].first + parameters[p].elements);
        }
        size_t bucket = 0;
        for (const auto& [number, states] : group.buckets) {
            for (const auto& [state, t] : states) {
                for (ChunkId c = catalog_.firstChunk(t); c < catalog_.endChunk(t); ++c) {
                    const ChunkInfo chunk = catalog_.chunk(t, c);
                    if (chunk.flat || chunk.lengths.size() != 1) return false;
                    const auto inside = edges[bucket].upper_bound(chunk.offsets[0]);
                    if (inside != edges[bucket].end() && *inside < chunk.offsets[0] + chunk.lengths[0])
                        return false;
                }
            }
            ++bucket;
        }
        return true;
    }

    // Calls visit(chunk, first element in it, first element of the range, count) for the chunks of a range.
    template <class Visit>
    void forRange(TensorId t, int64_t begin, int64_t end, Visit&& visit) const {
        for (ChunkId c = catalog_.firstChunk(t); c < catalog_.endChunk(t); ++c) {
            const ChunkInfo chunk = catalog_.chunk(t, c);
            const int64_t from = std::max(begin, chunk.offsets[0]);
            const int64_t to = std::min(end, chunk.offsets[0] + chunk.lengths[0]);
            if (from < to) visit(c, from - chunk.offsets[0], from, to - from);
        }
    }

    Result<bool> valuesFit(const Group& group, const Candidate& candidate) const {
        const size_t step = std::max<size_t>(1, candidate.places.size() / kMostParametersCompared);
        for (size_t p = 0; p < candidate.places.size(); p += step) {
            SHARDSCOPE_ASSIGN(const auto values,
                              compared(group, candidate.parameters[p], candidate.places[p]));
            if (!looksLikeMaster(values.first, values.second)) return false;
        }
        return true;
    }

    // The first masters of a parameter, and its weights. Both are empty where there is nothing to compare: a
    // file that cannot be read proves nothing.
    Result<std::pair<std::vector<float>, std::vector<float>>> compared(const Group& group,
                                                                       const LocalParameter& parameter,
                                                                       const BufferPlace& place) const {
        std::pair<std::vector<float>, std::vector<float>> out;
        const StateTensors& states =
            std::next(group.buckets.begin(), static_cast<int64_t>(place.bucket))->second;
        const auto master = states.find("param");
        if (master == states.end() || !isComparable(group.dtype, catalog_.dtype(master->second))) return out;
        const Box& box = parameter.boxes[0];
        ChunkId chunk = kNone;
        int64_t inChunk = 0, inBox = 0, count = 0;
        forRange(master->second, place.first,
                 place.first + std::min(kMostCompared, elementCount(box.lengths)),
                 [&](ChunkId c, int64_t first, int64_t from, int64_t n) {
                     if (chunk != kNone) return;
                     chunk = c;
                     inChunk = first;
                     inBox = from - place.first;
                     count = n;
                 });
        if (chunk == kNone) return out;
        SHARDSCOPE_ASSIGN(out.first, read(chunk, inChunk, count, DType::float32));
        SHARDSCOPE_ASSIGN(out.second, read(box.chunk, inBox, count, group.dtype));
        return out;
    }

    Result<std::vector<float>> read(ChunkId chunk, int64_t first, int64_t count, DType dtype) const {
        const auto extent = reader_.locate(chunk);
        if (!extent.ok()) {
            if (extent.error().code == ErrorCode::cancelled) return extent.error();
            return std::vector<float>();
        }
        return firstValues(*extent, first, count, dtype);
    }

    void addStates(const Group& group, const std::vector<LocalParameter>& parameters,
                   const std::vector<BufferPlace>& places) {
        std::vector<const StateTensors*> buckets;
        for (const auto& [number, states] : group.buckets)
            buckets.push_back(&states);
        for (size_t p = 0; p < parameters.size(); ++p) {
            if (parameters[p].copy) continue;
            for (const auto& [kind, t] : *buckets[places[p].bucket]) {
                int64_t begin = places[p].first;
                for (const Box& box : parameters[p].boxes) {
                    const int64_t end = begin + elementCount(box.lengths);
                    const std::string name =
                        fmt::format("optimizer.state.{}.{}", kind, catalog_.name(box.tensor));
                    BucketState& state = states_[{kind, box.tensor}];
                    state.name = name;
                    state.dtype = catalog_.dtype(t);
                    const DimSpan shape = catalog_.shape(box.tensor);
                    state.shape.assign(shape.begin(), shape.end());
                    forRange(t, begin, end, [&](ChunkId c, int64_t first, int64_t from, int64_t count) {
                        state.parts.push_back({c, first, box.offsets, box.lengths,
                                               FlatRange{from - begin, from - begin + count}});
                    });
                    begin = end;
                }
            }
        }
    }

    const Reader& reader_;
    const Catalog& catalog_;
    const ParallelSizes& sizes_;
    BucketStates out_;
    std::map<TensorId, std::vector<TensorPiece>> pieces_;
    std::map<TensorId, bool> everywhere_;  // all tensor-parallel ranks hold the whole
    std::map<TensorId, TensorId> partOf_;  // an up projection with a key of its own: its gate
    std::map<std::tuple<uint32_t, uint32_t, uint32_t, std::string>, Group> groups_;
    std::map<std::pair<std::string, TensorId>, BucketState> states_;
    size_t pieceCount_ = 0;
    int64_t layers_ = 0;
    bool tied_ = true;
    TensorId embedding_ = kNone;
};

}  // namespace

BucketStates findBuckets(const Catalog& stored) {
    BucketStates out;
    out.isBucket.resize(stored.tensorCount());
    for (TensorId t = 0; t < stored.tensorCount(); ++t) {
        out.isBucket[t] = parseBucketName(stored.name(t)).has_value();
        out.buckets += out.isBucket[t];
    }
    return out;
}

Result<BucketStates> resolveBuckets(const Reader& stored, const std::optional<ParallelSizes>& sizes) {
    if (sizes) return BucketResolver(stored, *sizes).run();
    BucketStates out = findBuckets(stored.catalog());
    out.whyNot = "nothing says how many ranks there are";
    return out;
}

}  // namespace shardscope::megatron
