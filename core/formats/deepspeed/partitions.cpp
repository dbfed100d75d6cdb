// Flat partitions of ZeRO: which elements of which parameter are where in each rank's flat groups.
// runtime/zero/stage_1_and_2.py, runtime/zero/stage3.py, runtime/bf16_optimizer.py.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/units.h"
#include "formats/deepspeed/parameters.h"
#include "model/paths.h"

namespace shardscope::deepspeed {

namespace {

constexpr int64_t kMostCandidates = 4096;  // ranks that an exchanged file is tried as
constexpr size_t kMostPaddedSlots = 64;    // of one file that are looked at
constexpr int64_t kMostPadding = 64;       // elements of one of them

constexpr std::array<std::string_view, 4> kFlatStates = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq",
                                                         "momentum_buffer"};

using GroupKey = std::tuple<uint32_t, size_t, int64_t>;  // model-parallel rank, group, experts

// The group is filled up so that each partition has an even number of elements.
int64_t partitionLength(int64_t elements, int64_t world) {
    const int64_t unit = 2 * world;
    return (elements + unit - 1) / unit * 2;
}

// A flat group, with its parameters one after the other.
struct FlatGroup {
    std::vector<size_t> parameters;
    std::vector<int64_t> starts;  // of each, and where the last one ends
    std::vector<int64_t> elements;
    std::vector<bool> listed;  // not where other ranks have the same, cut at other places
};

struct Slot {
    size_t parameter = 0;
    int64_t begin = 0, end = 0;  // elements of the shard
    int64_t at = 0;              // where they begin in the partition
    bool listed = true;
};

// What one rank holds of a group.
struct Partition {
    int64_t length = 0;  // with padding
    int64_t owned = 0;   // without the padding at the end
    std::vector<Slot> slots;
};

// The parameters that a partition touches, whole and one after the other.
std::vector<Slot> wholeSlots(const FlatGroup& flat, const Partition& partition) {
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

// Where the parameters are in the groups of all ranks.
class FlatGroups {
  public:
    FlatGroups(const Save& save, Parameters& parameters) : save_(save), parameters_(parameters) {}

    const FlatGroup& at(const OptimizerFile& file, size_t group);
    Partition partitionOf(const OptimizerFile& file, size_t group, int64_t index);
    std::string slicesOf(const OptimizerFile& file, size_t group, int64_t index);
    int64_t worldOf(const OptimizerFile& file, size_t group) const;
    std::pair<int64_t, int64_t> expertPlace(const OptimizerFile& file, size_t group) const;
    size_t unlisted() const { return unlisted_; }

  private:
    bool holdsFirst(size_t parameter, uint32_t tp, int64_t start, int64_t length);

    const Save& save_;
    Parameters& parameters_;
    std::map<GroupKey, FlatGroup> groups_;
    // Where the first ranks that have a parameter cut it: its start in their flat group, and a partition's
    // length.
    std::map<std::pair<size_t, uint32_t>, std::pair<int64_t, int64_t>> cuts_;
    size_t unlisted_ = 0;
};

int64_t FlatGroups::worldOf(const OptimizerFile& file, size_t group) const {
    const auto& counts = file.states.partitions;
    if (save_.stage == 3) return counts.empty() ? save_.dpWorld : counts[0];
    return group < counts.size() ? counts[group] : save_.dpWorld;
}

// The expert-parallel rank of a file, and its place among those that share the group.
std::pair<int64_t, int64_t> FlatGroups::expertPlace(const OptimizerFile& file, size_t group) const {
    const int64_t world = save_.dpWorld, dp = file.dp, data = worldOf(file, group);
    if (save_.stage == 3) return {0, dp % data};
    if (data >= world || world % data != 0) return {0, dp};
    return save_.expertsAfterData ? std::pair(dp / data, dp % data)
                                  : std::pair(dp % (world / data), dp / (world / data));
}

// Replicas of a tied layer or of a norm may be cut at other places: then those of the first ranks are listed.
bool FlatGroups::holdsFirst(size_t parameter, uint32_t tp, int64_t start, int64_t length) {
    const Placement& placement = parameters_[parameter].placement;
    if (!parameters_[parameter].placed()) return true;
    const bool whole = placement.shards[tp].axis < 0;
    const auto [it, fresh] = cuts_.try_emplace({parameter, whole ? kNone : tp}, start, length);
    if (fresh || it->second == std::pair(start, length)) return true;
    ++unlisted_;
    return false;
}

const FlatGroup& FlatGroups::at(const OptimizerFile& file, size_t group) {
    const int64_t expertRank = expertPlace(file, group).first;
    const auto [it, fresh] = groups_.try_emplace({file.mp, group, expertRank});
    FlatGroup& out = it->second;
    if (!fresh) return out;
    const auto& names = save_.modelOf(file.mp)->states.groups[group];
    const auto& alignment = file.states.alignment;
    const int64_t world = worldOf(file, group);
    int64_t at = 0;
    for (size_t i = 0; i < names.size(); ++i) {
        out.parameters.push_back(parameters_.indexOf(parameters_.globalName(names[i].name, expertRank)));
        out.elements.push_back(names[i].elements);
        out.starts.push_back(at);
        // Stage 3 gives each rank an equal part of each parameter.
        at += save_.stage == 3 ? (names[i].elements + world - 1) / world : names[i].elements;
        if (group < alignment.size() && alignment[group].size() == names.size()) at += alignment[group][i];
        at = std::min(at, kMaxDim);
    }
    out.starts.push_back(at);
    for (size_t i = 0; i < names.size(); ++i)
        out.listed.push_back(save_.stage == 3 || holdsFirst(out.parameters[i], save_.tpOf(file.mp),
                                                            out.starts[i], partitionLength(at, world)));
    return out;
}

Partition FlatGroups::partitionOf(const OptimizerFile& file, size_t group, int64_t index) {
    const FlatGroup& flat = at(file, group);
    const int64_t sum = flat.starts.back(), world = worldOf(file, group);
    Partition out;
    if (save_.stage == 3) {
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

// The slices of one partition as param_slice_mappings would list them.
std::string FlatGroups::slicesOf(const OptimizerFile& file, size_t group, int64_t index) {
    const auto& names = save_.modelOf(file.mp)->states.groups[group];
    const FlatGroup& flat = at(file, group);
    std::string text;
    size_t i = 0;
    for (const Slot& slot : partitionOf(file, group, index).slots) {
        while (flat.parameters[i] != slot.parameter)
            ++i;
        text += fmt::format("{} {} {}\n", names[i].name, slot.at, slot.end - slot.begin);
    }
    return text;
}

// Slots with padding in an optimizer file of stage 3, for notes on exchanged files.
struct Padded {
    uint32_t file = 0, dp = 0, mp = 0, tensor = 0;
    std::vector<std::pair<int64_t, int64_t>> slots;  // start and elements of the parameter
    int64_t world = 1;
};

// Whether all elements that would be padding on this rank are zero.
bool paddingFits(const TensorFiles& files, const Padded& file, uint32_t dp) {
    for (const auto& [start, elements] : file.slots) {
        const int64_t length = (elements + file.world - 1) / file.world;
        const int64_t owned = std::clamp<int64_t>(elements - length * (dp % file.world), 0, length);
        const int64_t count = std::min(length - owned, kMostPadding);
        if (count == 0) continue;
        const auto extent = files.extent(StoredPart::range(file.file, file.tensor, start + owned, count));
        if (!extent.ok()) return true;
        std::string bytes(extent->length, '\0');
        if (!extent->file->readAt(extent->offset, std::as_writable_bytes(std::span(bytes))).ok()) return true;
        if (bytes.find_first_not_of('\0') != bytes.npos) return false;
    }
    return true;
}

// In stage 3 nothing in a file says whose it is. The moments of the padding at the end of a parameter are
// zero, though, and it is not at the same place on all ranks.
std::vector<Note> notesOnPadding(const TensorFiles& files, const std::vector<Padded>& padded) {
    std::vector<Note> notes;
    std::set<uint32_t> named;
    for (const Padded& one : padded) {
        if (named.contains(one.file) || paddingFits(files, one, one.dp)) continue;
        const auto other = std::ranges::find_if(padded, [&](const Padded& two) {
            return two.file != one.file && two.mp == one.mp && two.slots == one.slots &&
                   paddingFits(files, one, two.dp) && paddingFits(files, two, one.dp);
        });
        if (other == padded.end()) continue;
        named.insert({one.file, other->file});
        notes.push_back(
            {rule::metaInconsistent,
             Severity::error,
             fmt::format("moments that would be padding on data-parallel rank {} are not zero; with "
                         "'{}' in its place all are: the two files were exchanged",
                         one.dp, files[other->file].name),
             files[one.file].name,
             {},
             std::nullopt,
             std::nullopt,
             Note::Lacks::anything});
    }
    return notes;
}

// What a file holds of a group, against what it should.
struct HeldGroup {
    const Save& save;
    const TensorFile& file;
    Partition partition;
    std::vector<Slot> wholes;  // of the parameters that it touches
    bool muon = false;

    bool fits(uint32_t tensor) const {
        const Dims& shape = file.tensors[tensor].shape;
        return shape.size() == 1 && (shape[0] == partition.length || shape[0] == partition.owned);
    }
    // Muon turns whole matrices: in ZeRO 1 and 2 each rank keeps the whole momentum of every parameter that
    // its partition touches.
    bool isOfWholes(const std::string& state, uint32_t tensor) const {
        const int64_t touched = wholes.empty() ? 0 : wholes.back().at + wholes.back().end;
        return save.stage != 3 && state == "momentum_buffer" && file.tensors[tensor].shape == Dims{touched} &&
               (muon || !fits(tensor));
    }
    bool isFlat(const std::string& state, uint32_t tensor) const {
        return fits(tensor) || isOfWholes(state, tensor) || state == "fp32" ||
               (std::ranges::count(kFlatStates, state) > 0 && file.tensors[tensor].shape.size() == 1);
    }
    bool isOfOtherLength(const std::string& state, uint32_t tensor) const {
        return isFlat(state, tensor) && !fits(tensor) && !isOfWholes(state, tensor);
    }
    std::string lengthError(const std::string& state, uint32_t tensor, size_t group) const {
        const int64_t elements = elementCount(file.tensors[tensor].shape);
        if (elements == 0 && save.source.directory->stat(save.tag.prefix + "offloaded_tensors").ok())
            return fmt::format(
                "'{}' of group {} is empty: its data ({}) was offloaded to NVMe and is in raw swap files in "
                "offloaded_tensors, which are not read; save without that",
                state, group, counted(partition.owned, "element"));
        return fmt::format(
            "'{}' of group {} has {}, by param_shapes it would have {}{}: param_shapes lacks a parameter or "
            "has one too many, or the file is of another save",
            state, group, counted(elements, "element"), countText(partition.length),
            partition.owned == partition.length ? "" : fmt::format(" or {}", countText(partition.owned)));
    }
};

class Partitions {
  public:
    Partitions(Save& save, Parameters& parameters)
        : save_(save), parameters_(parameters), groups_(save, parameters) {}

    void add();
    std::vector<Padded> takePadded() { return std::move(padded_); }

  private:
    void checkGroups(const OptimizerFile& file, const ModelFile& model);
    void addGroup(const OptimizerFile& file, size_t group);
    void addDistributed(const OptimizerFile& file, const std::string& state, uint32_t tensor,
                        std::span<const Slot> slots);
    void misfit(const OptimizerFile& file, std::string message);
    void watchPadding(const OptimizerFile& file, size_t group, uint32_t tensor);
    bool checkSlices(const OptimizerFile& file);
    void noteUnknown();

    Save& save_;
    Parameters& parameters_;
    FlatGroups groups_;
    std::set<GroupKey> spoken_;
    std::map<GroupKey, std::unordered_map<std::string, int64_t>> slicesOf_;  // whose partition has them
    std::vector<Padded> padded_;
    std::set<const ModelFile*> unlisting_;  // that have no param_shapes, and were named
    bool misfit_ = false;                   // partitions of another length than param_shapes says
};

void Partitions::add() {
    // Those of which all ranks are here come first: of replicas the first are listed.
    std::map<uint32_t, uint32_t> readable;
    for (const OptimizerFile& file : save_.optimizers)
        readable[file.mp] += file.index != kNone;
    std::ranges::stable_sort(save_.optimizers, std::ranges::greater(),
                             [&](const OptimizerFile& file) { return readable[file.mp] == save_.dpWorld; });
    bool disagree = false;
    for (const OptimizerFile& file : save_.optimizers) {
        const ModelFile* model = save_.modelOf(file.mp);
        if (file.index == kNone || !model) continue;
        checkGroups(file, *model);
        if (save_.stage != 3) disagree = !checkSlices(file) || disagree;
        for (size_t g = 0; g < model->states.groups.size(); ++g)
            addGroup(file, g);
    }
    if (groups_.unlisted() > 0)
        save_.inconsistent(
            Severity::info,
            groups_.unlisted() == 1
                ? "1 replica of parameters in flat groups is sharded at other offsets than the first; it is "
                  "not listed"
                : fmt::format(
                      "not listed: {} of parameters in flat groups, sharded at other offsets than the first",
                      counted(groups_.unlisted(), "replica")));
    if (disagree)
        save_.inconsistent(
            Severity::warning,
            "param_slice_mappings put the parameters at other places than param_shapes does, as with "
            "round_robin_gradients; param_shapes is right. DeepSpeed's ds_to_universal reads the mappings "
            "and would mix the parameters up");
    if (save_.stage == 3) noteUnknown();
}

void Partitions::checkGroups(const OptimizerFile& file, const ModelFile& model) {
    if (!model.states.hasGroups && unlisting_.insert(&model).second)
        save_.assembly.wrong(
            "it holds no param_shapes: which parameters the flat partitions of the optimizer "
            "hold is not known",
            model.file->name, {}, save_.lacksOfOptimizer());
    const auto count = static_cast<int64_t>(model.states.groups.size());
    for (const auto& [number, states] : file.states.groups) {
        if (number >= 0 && number < count) continue;
        save_.assembly.wrong(
            fmt::format("it has the group {}, param_shapes lists {}", number, counted(count, "group")),
            save_.contents(file.index).name, {}, Note::Lacks::optimizerState);
    }
}

void Partitions::misfit(const OptimizerFile& file, std::string message) {
    misfit_ = true;
    save_.assembly.wrong(std::move(message), save_.contents(file.index).name, {}, save_.lacksOfOptimizer());
}

void Partitions::addGroup(const OptimizerFile& file, size_t group) {
    const uint32_t rank = save_.rankOf(file.dp, file.mp);
    const auto [expertRank, index] = groups_.expertPlace(file, group);
    const FlatGroup& flat = groups_.at(file, group);
    if (flat.parameters.empty()) return;
    HeldGroup held{save_,
                   save_.contents(file.index),
                   groups_.partitionOf(file, group, index),
                   {},
                   file.states.muon.contains(static_cast<int64_t>(group))};
    held.wholes = wholeSlots(flat, held.partition);
    const auto states = file.states.groups.find(static_cast<int64_t>(group));
    if (states == file.states.groups.end()) {
        if (held.partition.owned > 0)
            misfit(file, fmt::format("it holds no states of group {}, which param_shapes lists", group));
        return;
    }
    for (const auto& [state, tensor] : states->second.tensors) {
        if (held.isOfOtherLength(state, tensor)) return misfit(file, held.lengthError(state, tensor, group));
    }
    // Of states that are not distributed one rank speaks for all that have the same parameters.
    const bool speaks = spoken_.emplace(file.mp, group, expertRank).second;
    for (const auto& [state, tensor] : states->second.tensors) {
        const bool isFlat = held.isFlat(state, tensor);
        for (size_t i = 0; speaks && i < flat.parameters.size(); ++i) {
            const Parameter& parameter = parameters_[flat.parameters[i]];
            if (!isFlat) {
                parameters_.addState(parameter.name, state, file.index, tensor, rank);
            } else if (parameter.placed()) {
                parameters_.declare(statePath(parameter.name, state), held.file.tensors[tensor].dtype,
                                    Role::optimizer, file.index, parameter);
            }
        }
        if (!isFlat) continue;
        if (save_.stage == 3 && state != "fp32") watchPadding(file, group, tensor);
        addDistributed(file, state, tensor,
                       held.isOfWholes(state, tensor) ? held.wholes : held.partition.slots);
    }
    for (const auto& [state, value] : states->second.objects) {
        for (size_t p : flat.parameters)
            if (speaks) parameters_.addStateObject(parameters_[p].name, state, *value, file.index, rank);
    }
}

// A state in its slots; of stage 3 the master is the weight, too.
void Partitions::addDistributed(const OptimizerFile& file, const std::string& state, uint32_t tensor,
                                std::span<const Slot> slots) {
    const DType dtype = save_.contents(file.index).tensors[tensor].dtype;
    const StoredWeight stored{save_.tpOf(file.mp), save_.rankOf(file.dp, file.mp), file.index, tensor};
    for (const Slot& slot : slots) {
        const Parameter& parameter = parameters_[slot.parameter];
        if (!parameter.placed() || !slot.listed) continue;
        const FlatRange range{slot.begin, slot.end};
        parameters_.addFlat(statePath(parameter.name, state), dtype, Role::optimizer, parameter, stored,
                            range, slot.at);
        if (save_.stage == 3 && state == "fp32" && parameter.dtype && parameter.stored.empty())
            parameters_.addFlat({keyPart(parameter.name)}, *parameter.dtype, Role::parameter, parameter,
                                stored, range, slot.at);
    }
}

// Remembers where a state of stage 3 has padding.
void Partitions::watchPadding(const OptimizerFile& file, size_t group, uint32_t tensor) {
    const FlatGroup& flat = groups_.at(file, group);
    Padded padded{file.index, file.dp, file.mp, tensor, {}, groups_.worldOf(file, group)};
    for (size_t i = 0; i < flat.parameters.size() && padded.slots.size() < kMostPaddedSlots; ++i) {
        if (flat.elements[i] % padded.world != 0) padded.slots.emplace_back(flat.starts[i], flat.elements[i]);
    }
    if (!padded.slots.empty()) padded_.push_back(std::move(padded));
}

// Compares with what the file says of its own slices. False where the order of the parameters is another.
bool Partitions::checkSlices(const OptimizerFile& file) {
    if (!file.states.hasSlices) return true;
    const auto& groups = save_.modelOf(file.mp)->states.groups;
    bool agree = true;
    for (size_t g = 0; g < std::min(groups.size(), file.states.slices.size()); ++g) {
        std::string stated;
        for (const Slice& slice : file.states.slices[g])
            stated += fmt::format("{} {} {}\n", slice.name, slice.start, slice.elements);
        const auto [expertRank, index] = groups_.expertPlace(file, g);
        if (stated == groups_.slicesOf(file, g, index)) continue;
        const auto unlisted = std::ranges::find_if(file.states.slices[g], [&](const Slice& slice) {
            return std::ranges::none_of(groups[g], [&](const NamedShape& n) { return n.name == slice.name; });
        });
        if (unlisted != file.states.slices[g].end()) {
            save_.assembly.wrong(
                fmt::format("param_slice_mappings list it in group {}, param_shapes does not: the places of "
                            "the parameters behind it are wrong",
                            g),
                save_.contents(file.index).name, unlisted->name, Note::Lacks::optimizerState);
            return true;
        }
        // Whose are they?
        auto& whose = slicesOf_[{file.mp, g, expertRank}];
        const int64_t known = whose.empty() ? 0 : kMostCandidates;
        for (int64_t other = known; other < std::min(groups_.worldOf(file, g), kMostCandidates); ++other)
            whose.try_emplace(groups_.slicesOf(file, g, other), other);
        if (const auto other = whose.find(stated); other != whose.end()) {
            save_.assembly.wrong(
                fmt::format("the name says partition {} of group {}, its ranges are those of partition {}: "
                            "files were exchanged or renamed",
                            index, g, other->second),
                save_.contents(file.index).name, {}, Note::Lacks::optimizerState);
            return true;
        }
        agree = false;
    }
    return agree;
}

// Placeholders of stage 3 that nothing gives elements for.
void Partitions::noteUnknown() {
    for (const ModelFile& model : save_.models) {
        if (!save_.isFirst(model) || !model.states.hasGroups) continue;
        std::set<std::string> aliases;
        for (const ModelFile& other : save_.models) {
            for (const auto& [alias, holder] : other.states.shared)
                aliases.insert(alias);
        }
        const TensorFile& file = save_.contents(model.index);
        for (const StoredTensor& tensor : file.tensors) {
            if (tensor.path.size() < 2 || tensor.path[0].text != "module" || tensor.shape != Dims{0})
                continue;
            const std::string name = pathName(below(tensor.path));
            if (parameters_.contains(name) || aliases.contains(name)) continue;
            save_.inconsistent(
                misfit_ ? Severity::error : Severity::warning,
                "the model has it, param_shapes does not: another name of a parameter of the same module, "
                "whose elements are under that name, or a parameter that is missing in param_shapes",
                file.name, name);
        }
    }
}

}  // namespace

FindNotes addPartitions(Save& save, Parameters& parameters) {
    Partitions partitions(save, parameters);
    partitions.add();
    std::vector<Padded> padded = partitions.takePadded();
    if (padded.empty()) return {};
    return [files = &save.assembly.files(), padded = std::move(padded)](const Catalog&) {
        return Result<std::vector<Note>>(notesOnPadding(*files, padded));
    };
}

}  // namespace shardscope::deepspeed
