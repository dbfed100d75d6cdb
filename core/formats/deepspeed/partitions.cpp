// Flat partitions of ZeRO: which elements of which parameter are where in each rank's flat groups.
// runtime/zero/stage_1_and_2.py, runtime/zero/stage3.py, runtime/bf16_optimizer.py.
#include <algorithm>
#include <array>
#include <functional>

#include <fmt/format.h>

#include "base/rule.h"
#include "formats/deepspeed/opener.h"

namespace shardscope::deepspeed {

namespace {

constexpr int64_t kMostCandidates = 4096;  // ranks that an exchanged file is tried as
constexpr size_t kMostPaddedSlots = 64;    // of one file that are looked at
constexpr int64_t kMostPadding = 64;       // elements of one of them

constexpr std::array<std::string_view, 4> kFlatStates = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq",
                                                         "momentum_buffer"};

// The group is filled up so that each partition has an even number of elements.
int64_t partitionLength(int64_t elements, int64_t world) {
    const int64_t unit = 2 * world;
    return (elements + unit - 1) / unit * 2;
}

}  // namespace

// Makes a tensor known of which nothing may be here.
void Opener::declare(const Path& path, DType dtype, Role role, uint32_t file, const Parameter& parameter) {
    if (contents(file).tensors.empty()) return;
    TensorAssembly::Piece piece;
    piece.part = StoredPart::range(file, 0, 0, 0);
    assembly_.addPiece(path, dtype, parameter.placement.whole, role, std::move(piece));
}

void Opener::addFlat(const Path& path, DType dtype, Role role, const OptimizerFile& file, uint32_t tensor,
                     const Slot& slot, const Parameter& parameter) {
    const DType stored = contents(file.index).tensors[tensor].dtype;
    TensorAssembly::Piece shard{rankOf(file.dp, file.mp), StoredPart::whole(file.index, tensor), {}, {}, {}};
    if (stored != dtype) shard.part.storedAs = stored;
    const Placement& placement = parameter.placement;
    assembly_.addBoxes(
        path, dtype, placement.whole, role, shard,
        placement.shards[tpOf(file.mp)].boxes(placement.whole, FlatRange{slot.begin, slot.end}),
        slot.at - slot.begin);
}

void Opener::addState(const std::string& name, const std::string& state, uint32_t file, uint32_t tensor,
                      uint32_t rank) {
    assembly_.addWhole(file, tensor, statePath(name, state), Role::optimizer, rank);
}

void Opener::addStateObject(const std::string& name, const std::string& state, const Value& value,
                            uint32_t file, uint32_t rank) {
    if (stated_.emplace(name, state).second) assembly_.addObject(file, statePath(name, state), value, rank);
}

int64_t Opener::worldOf(const OptimizerFile& file, size_t group) const {
    const auto& counts = file.states.partitions;
    if (stage_ == 3) return counts.empty() ? dpWorld_ : counts[0];
    return group < counts.size() ? counts[group] : dpWorld_;
}

// The expert-parallel rank of a file, and its place among those that share the group.
std::pair<int64_t, int64_t> Opener::expertPlace(const OptimizerFile& file, size_t group) const {
    const int64_t world = dpWorld_, dp = file.dp, data = worldOf(file, group);
    if (stage_ == 3) return {0, dp % data};
    if (data >= world || world % data != 0) return {0, dp};
    return expertsAfterData_ ? std::pair(dp / data, dp % data)
                             : std::pair(dp % (world / data), dp / (world / data));
}

// Replicas of a tied layer or of a norm may be cut at other places: then those of the first ranks are listed.
bool Opener::holdsFirst(size_t parameter, uint32_t tp, int64_t start, int64_t length) {
    const Placement& placement = parameters_[parameter].placement;
    if (placement.shards.empty()) return true;
    const bool whole = placement.shards[tp].axis < 0;
    const auto [it, fresh] = cuts_.try_emplace({parameter, whole ? kNone : tp}, start, length);
    if (fresh || it->second == std::pair(start, length)) return true;
    ++unlisted_;
    return false;
}

const Opener::FlatGroup& Opener::flatGroup(const OptimizerFile& file, size_t group) {
    const int64_t expertRank = expertPlace(file, group).first;
    const auto [it, fresh] = flatGroups_.try_emplace({file.mp, group, expertRank});
    FlatGroup& out = it->second;
    if (!fresh) return out;
    const auto& names = modelOf(file.mp)->states.groups[group];
    const auto& alignment = file.states.alignment;
    const int64_t world = worldOf(file, group);
    int64_t at = 0;
    for (size_t i = 0; i < names.size(); ++i) {
        out.parameters.push_back(parameterOf(globalName(names[i].name, expertRank)));
        out.elements.push_back(names[i].elements);
        out.starts.push_back(at);
        // Stage 3 gives each rank an equal part of each parameter.
        at += stage_ == 3 ? (names[i].elements + world - 1) / world : names[i].elements;
        if (group < alignment.size() && alignment[group].size() == names.size()) at += alignment[group][i];
        at = std::min(at, kMaxDim);
    }
    out.starts.push_back(at);
    for (size_t i = 0; i < names.size(); ++i)
        out.listed.push_back(stage_ == 3 || holdsFirst(out.parameters[i], tpOf(file.mp), out.starts[i],
                                                       partitionLength(at, world)));
    return out;
}

Opener::Partition Opener::partitionOf(const OptimizerFile& file, size_t group, int64_t index) {
    const FlatGroup& flat = flatGroup(file, group);
    const int64_t sum = flat.starts.back(), world = worldOf(file, group);
    Partition out;
    if (stage_ == 3) {
        out.length = out.owned = sum;
        for (size_t i = 0; i < flat.parameters.size(); ++i) {
            const int64_t length = flat.starts[i + 1] - flat.starts[i];
            const int64_t begin = std::min(flat.elements[i], index * length);
            const int64_t end = std::min(flat.elements[i], begin + length);
            if (begin < end) out.slots.push_back({flat.parameters[i], begin, end, flat.starts[i], true});
        }
        return out;
    }
    out.length = partitionLength(sum, world);
    if (index >= world) return out;
    const int64_t lo = index * out.length, hi = lo + out.length;
    out.owned = std::clamp<int64_t>(sum - lo, 0, out.length);
    const auto after = std::ranges::upper_bound(flat.starts, lo);
    for (size_t i = static_cast<size_t>(after - flat.starts.begin()) - 1;
         i < flat.parameters.size() && flat.starts[i] < hi; ++i) {
        const int64_t begin = std::max(lo, flat.starts[i]),
                      end = std::min(hi, flat.starts[i] + flat.elements[i]);
        if (begin < end)
            out.slots.push_back({flat.parameters[i], begin - flat.starts[i], end - flat.starts[i], begin - lo,
                                 flat.listed[i]});
    }
    return out;
}

// The parameters that a partition touches, whole and one after the other.
std::vector<Opener::Slot> Opener::wholeSlots(const FlatGroup& flat, const Partition& partition) {
    std::vector<Slot> wholes;
    int64_t at = 0;
    size_t i = 0;
    for (Slot slot : partition.slots) {
        while (flat.parameters[i] != slot.parameter)
            ++i;
        slot.begin = 0;
        slot.end = flat.elements[i];
        slot.at = at;
        at += slot.end;
        wholes.push_back(slot);
    }
    return wholes;
}

void Opener::addPartitions() {
    // Those of which all ranks are here come first: of replicas the first are listed.
    std::map<uint32_t, uint32_t> readable;
    for (const OptimizerFile& file : optimizers_)
        readable[file.mp] += file.index != kNone;
    std::ranges::stable_sort(optimizers_, std::ranges::greater(),
                             [&](const OptimizerFile& file) { return readable[file.mp] == dpWorld_; });
    bool disagree = false;
    for (const OptimizerFile& file : optimizers_) {
        if (file.index == kNone) continue;
        const ModelFile* model = modelOf(file.mp);
        if (!model) continue;
        if (!model->states.hasGroups && noted_.insert(model->file->name).second)
            assembly_.note(rule::metaInconsistent, Severity::error,
                           "it holds no param_shapes: which parameters the flat partitions of the optimizer "
                           "hold is not known",
                           model->file->name, {},
                           stage_ == 3 ? Note::Lacks::anything : Note::Lacks::optimizerState);
        const auto count = static_cast<int64_t>(model->states.groups.size());
        for (const auto& [number, states] : file.states.groups) {
            if (number >= 0 && number < count) continue;
            assembly_.note(rule::metaInconsistent, Severity::error,
                           fmt::format("it has the group {}, param_shapes lists {} groups", number, count),
                           contents(file.index).name, {}, Note::Lacks::optimizerState);
        }
        if (stage_ != 3) disagree = !checkSlices(file) || disagree;
        for (size_t g = 0; g < model->states.groups.size(); ++g)
            addGroup(file, g);
    }
    if (unlisted_ > 0)
        assembly_.note(
            rule::metaInconsistent, Severity::info,
            fmt::format(
                "{} replicas of parameters in flat groups are cut at other places than the first; they are "
                "not listed",
                unlisted_));
    if (disagree)
        assembly_.note(
            rule::metaInconsistent, Severity::warning,
            "param_slice_mappings put the parameters at other places than param_shapes does, as with "
            "round_robin_gradients; param_shapes is right. DeepSpeed's ds_to_universal reads the mappings "
            "and "
            "would mix the parameters up");
    if (stage_ == 3) noteUnknown();
}

void Opener::addGroup(const OptimizerFile& file, size_t group) {
    const TensorFile& saved = contents(file.index);
    const uint32_t rank = rankOf(file.dp, file.mp);
    const auto [expertRank, index] = expertPlace(file, group);
    const FlatGroup& flat = flatGroup(file, group);
    const Partition partition = partitionOf(file, group, index);
    const auto found = file.states.groups.find(static_cast<int64_t>(group));
    const auto fail = [&](std::string message) {
        misfit_ = true;
        assembly_.note(rule::metaInconsistent, Severity::error, std::move(message), saved.name, {},
                       stage_ == 3 ? Note::Lacks::anything : Note::Lacks::optimizerState);
    };
    if (flat.parameters.empty()) return;
    if (found == file.states.groups.end()) {
        if (partition.owned > 0)
            fail(fmt::format("it holds no states of group {}, which param_shapes lists", group));
        return;
    }
    const std::vector<Slot> wholes = wholeSlots(flat, partition);
    const int64_t touched = wholes.empty() ? 0 : wholes.back().at + wholes.back().end;
    const auto fits = [&](uint32_t tensor) {
        const Dims& shape = saved.tensors[tensor].shape;
        return shape.size() == 1 && (shape[0] == partition.length || shape[0] == partition.owned);
    };
    // Muon turns whole matrices: in ZeRO 1 and 2 each rank keeps the whole momentum of every parameter that
    // its partition touches.
    const auto isOfWholes = [&](const std::string& state, uint32_t tensor) {
        const bool muon = file.states.muon.contains(static_cast<int64_t>(group));
        return stage_ != 3 && state == "momentum_buffer" && saved.tensors[tensor].shape == Dims{touched} &&
               (muon || !fits(tensor));
    };
    const auto isFlat = [&](const std::string& state, uint32_t tensor) {
        return fits(tensor) || isOfWholes(state, tensor) || state == "fp32" ||
               (std::ranges::count(kFlatStates, state) > 0 && saved.tensors[tensor].shape.size() == 1);
    };
    for (const auto& [state, tensor] : found->second.tensors) {
        if (!isFlat(state, tensor) || fits(tensor) || isOfWholes(state, tensor)) continue;
        const int64_t held = elementCount(saved.tensors[tensor].shape);
        const bool offloaded = held == 0 && source_.directory->stat(tag_.prefix + "offloaded_tensors").ok();
        return fail(
            offloaded
                ? fmt::format(
                      "'{}' of group {} is empty: its {} elements were offloaded to NVMe and are in raw "
                      "swap files in offloaded_tensors, which are not read; save without that",
                      state, group, partition.owned)
                : fmt::format(
                      "'{}' of group {} has {} elements, by param_shapes it would have {}{}: param_shapes "
                      "lacks a parameter or has one too many, or the file is of another save",
                      state, group, held, partition.length,
                      partition.owned == partition.length ? "" : fmt::format(" or {}", partition.owned)));
    }
    // Of states that are not distributed one rank speaks for all that have the same parameters.
    const bool speaks = spoken_.emplace(file.mp, group, expertRank).second;
    for (const auto& [state, tensor] : found->second.tensors) {
        const DType dtype = saved.tensors[tensor].dtype;
        const bool master = state == "fp32";
        if (speaks) {
            for (size_t p : flat.parameters) {
                if (!isFlat(state, tensor)) {
                    addState(parameters_[p].name, state, file.index, tensor, rank);
                } else if (!parameters_[p].placement.shards.empty()) {
                    declare(statePath(parameters_[p].name, state), dtype, Role::optimizer, file.index,
                            parameters_[p]);
                }
            }
        }
        if (!isFlat(state, tensor)) continue;
        if (stage_ == 3 && !master) watchPadding(file, group, tensor);
        for (const Slot& slot : isOfWholes(state, tensor) ? wholes : partition.slots) {
            const Parameter& parameter = parameters_[slot.parameter];
            if (parameter.placement.shards.empty() || !slot.listed) continue;
            addFlat(statePath(parameter.name, state), dtype, Role::optimizer, file, tensor, slot, parameter);
            if (stage_ == 3 && master && parameter.dtype && parameter.stored.empty())
                addFlat({keyPart(parameter.name)}, *parameter.dtype, Role::parameter, file, tensor, slot,
                        parameter);
        }
    }
    for (const auto& [state, value] : found->second.objects) {
        for (size_t p : flat.parameters)
            if (speaks) addStateObject(parameters_[p].name, state, *value, file.index, rank);
    }
}

// Remembers where a state of stage 3 has padding.
void Opener::watchPadding(const OptimizerFile& file, size_t group, uint32_t tensor) {
    const FlatGroup& flat = flatGroup(file, group);
    Padded padded{file.index, file.dp, file.mp, tensor, {}, worldOf(file, group)};
    for (size_t i = 0; i < flat.parameters.size() && padded.slots.size() < kMostPaddedSlots; ++i) {
        if (flat.elements[i] % padded.world != 0) padded.slots.emplace_back(flat.starts[i], flat.elements[i]);
    }
    if (!padded.slots.empty()) padded_.push_back(std::move(padded));
}

// The slices of one partition as param_slice_mappings would list them.
std::string Opener::slicesOf(const OptimizerFile& file, size_t group, int64_t index) {
    const auto& names = modelOf(file.mp)->states.groups[group];
    const FlatGroup& flat = flatGroup(file, group);
    std::string text;
    size_t i = 0;
    for (const Slot& slot : partitionOf(file, group, index).slots) {
        while (flat.parameters[i] != slot.parameter)
            ++i;
        text += fmt::format("{} {} {}\n", names[i].name, slot.at, slot.end - slot.begin);
    }
    return text;
}

// Compares with what the file says of its own slices. False where the order of the parameters is another.
bool Opener::checkSlices(const OptimizerFile& file) {
    if (!file.states.hasSlices) return true;
    const auto& groups = modelOf(file.mp)->states.groups;
    bool agree = true;
    for (size_t g = 0; g < std::min(groups.size(), file.states.slices.size()); ++g) {
        std::string stated;
        for (const Slice& slice : file.states.slices[g])
            stated += fmt::format("{} {} {}\n", slice.name, slice.start, slice.elements);
        const auto [expertRank, index] = expertPlace(file, g);
        if (stated == slicesOf(file, g, index)) continue;
        const auto unlisted = std::ranges::find_if(file.states.slices[g], [&](const Slice& slice) {
            return std::ranges::none_of(groups[g], [&](const NamedShape& n) { return n.name == slice.name; });
        });
        if (unlisted != file.states.slices[g].end()) {
            assembly_.note(
                rule::metaInconsistent, Severity::error,
                fmt::format("param_slice_mappings list it in group {}, param_shapes does not: the places of "
                            "the parameters behind it are wrong",
                            g),
                contents(file.index).name, unlisted->name, Note::Lacks::optimizerState);
            return true;
        }
        // Whose are they?
        auto& whose = slicesOf_[{file.mp, g, expertRank}];
        const int64_t known = whose.empty() ? 0 : kMostCandidates;
        for (int64_t other = known; other < std::min(worldOf(file, g), kMostCandidates); ++other)
            whose.try_emplace(slicesOf(file, g, other), other);
        if (const auto other = whose.find(stated); other != whose.end()) {
            assembly_.note(
                rule::metaInconsistent, Severity::error,
                fmt::format("the name says partition {} of group {}, its slices are those of partition {}: "
                            "files were exchanged or renamed",
                            index, g, other->second),
                contents(file.index).name);
            return true;
        }
        agree = false;
    }
    return agree;
}

// Placeholders of stage 3 that nothing gives elements for.
void Opener::noteUnknown() {
    for (const ModelFile& model : models_) {
        if (modelOf(model.mp) != &model || !model.states.hasGroups) continue;
        std::set<std::string> aliases;
        for (const ModelFile& other : models_) {
            for (const auto& [alias, holder] : other.states.shared)
                aliases.insert(alias);
        }
        const TensorFile& file = contents(model.index);
        for (const StoredTensor& tensor : file.tensors) {
            if (tensor.path.size() < 2 || tensor.path[0].text != "module" || tensor.shape != Dims{0})
                continue;
            const std::string name = pathName(Path(tensor.path.begin() + 1, tensor.path.end()));
            if (byName_.contains(name) || aliases.contains(name)) continue;
            assembly_.note(
                rule::metaInconsistent, misfit_ ? Severity::error : Severity::warning,
                "the model has it, param_shapes does not: another name of a parameter of the same module, "
                "whose elements are under that name, or a parameter that is missing in param_shapes",
                file.name, name);
        }
    }
}

// In stage 3 nothing in a file says whose it is. The moments of the padding at the end of a parameter are
// zero, though, and it is not at the same place on all ranks.
FindNotes Opener::paddingNotes() {
    if (padded_.empty()) return {};
    TensorFiles* files = &assembly_.files();
    return [files, padded = padded_](const Catalog&) -> Result<std::vector<Note>> {
        // Whether all elements that would be padding on this rank are zero.
        const auto fits = [&](const Padded& file, uint32_t dp) {
            for (const auto& [start, elements] : file.slots) {
                const int64_t length = (elements + file.world - 1) / file.world;
                const int64_t owned = std::clamp<int64_t>(elements - length * (dp % file.world), 0, length);
                const int64_t count = std::min(length - owned, kMostPadding);
                if (count == 0) continue;
                const auto extent =
                    files->extent(StoredPart::range(file.file, file.tensor, start + owned, count));
                if (!extent.ok()) return true;
                std::string bytes(extent->length, '\0');
                if (!extent->file->readAt(extent->offset, std::as_writable_bytes(std::span(bytes))).ok())
                    return true;
                if (bytes.find_first_not_of('\0') != bytes.npos) return false;
            }
            return true;
        };
        std::vector<Note> notes;
        std::set<uint32_t> named;
        for (const Padded& one : padded) {
            if (named.contains(one.file) || fits(one, one.dp)) continue;
            for (const Padded& other : padded) {
                if (other.file == one.file || other.mp != one.mp || other.slots != one.slots ||
                    !fits(one, other.dp) || !fits(other, one.dp))
                    continue;
                named.insert({one.file, other.file});
                notes.push_back(
                    {rule::metaInconsistent,
                     Severity::error,
                     fmt::format("moments that would be padding on data-parallel rank {} are not zero; with "
                                 "'{}' in its place all are: the two files were exchanged",
                                 one.dp, (*files)[other.file].name),
                     (*files)[one.file].name,
                     {},
                     std::nullopt});
                break;
            }
        }
        return notes;
    };
}

}  // namespace shardscope::deepspeed
