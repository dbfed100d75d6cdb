// Flat partitions of ZeRO: which elements of which parameter are where in each rank's flat groups.
// runtime/zero/stage_1_and_2.py, runtime/zero/stage3.py, runtime/bf16_optimizer.py.
#include <algorithm>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/rule.h"
#include "formats/deepspeed/opener.h"

namespace shardscope::deepspeed {

namespace {

constexpr int64_t kMostCandidates = 4096;  // ranks that an exchanged file is tried as
constexpr size_t kMostPaddedSlots = 64;    // of one file that are looked at
constexpr int64_t kMostPadding = 64;       // elements of one of them

// Cuts a sorted list of parameters into what lies in [lo, lo + length).
void cutOut(std::string_view name, size_t parameter, int64_t start, int64_t elements, int64_t lo,
            int64_t length, std::vector<Slice>& slices, auto& slots) {
    const int64_t begin = std::max(lo, start), end = std::min(lo + length, start + elements);
    if (begin >= end) return;
    slots.push_back({parameter, begin - start, end - start, begin - lo});
    slices.push_back({std::string(name), begin - lo, end - begin});
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
    for (const Run& run : parameter.placement.shards[tpOf(file.mp)]) {
        const int64_t begin = std::max(slot.begin, run.first),
                      end = std::min(slot.end, run.first + run.count);
        if (begin >= end) continue;
        TensorAssembly::Piece piece;
        piece.rank = rankOf(file.dp, file.mp);
        piece.part = StoredPart::range(file.index, tensor, slot.at + begin - slot.begin, end - begin);
        if (stored != dtype) piece.part.storedAs = stored;
        piece.offsets = run.offsets;
        piece.lengths = run.lengths;
        if (end - begin < run.count) piece.flat = FlatRange{begin - run.first, end - run.first};
        assembly_.addPiece(path, dtype, parameter.placement.whole, role, std::move(piece));
    }
}

void Opener::addState(const std::string& name, const std::string& state, uint32_t file, uint32_t tensor,
                      uint32_t rank) {
    assembly_.addWhole(file, tensor, statePath(name, state), Role::optimizer, rank);
}

void Opener::addStateObject(const std::string& name, const std::string& state, const Value& value,
                            uint32_t file, uint32_t rank) {
    if (stated_.emplace(name, state).second) assembly_.addObject(file, statePath(name, state), value, rank);
}

// The expert-parallel rank of a file, and its place among those that share experts.
std::pair<int64_t, int64_t> Opener::expertPlace(const OptimizerFile& file, size_t group) const {
    const int64_t world = dpWorld_, dp = file.dp;
    const auto& counts = file.states.partitions;
    const int64_t data = group < counts.size() ? counts[group] : world;
    if (data >= world || world % data != 0) return {0, dp};
    return expertsAfterData_ ? std::pair(dp / data, dp % data)
                             : std::pair(dp % (world / data), dp / (world / data));
}

// Stages 1 and 2: the parameters one behind the other, cut into equal parts.
Opener::Partition Opener::flatPartition(const OptimizerFile& file, size_t group, int64_t index) {
    Partition out;
    const auto& names = modelOf(file.mp)->states.groups[group];
    const auto& counts = file.states.partitions;
    const int64_t world = group < counts.size() ? counts[group] : dpWorld_;
    const int64_t expertRank = expertPlace(file, group).first;
    std::vector<int64_t> padding(names.size(), 0);
    if (group < file.states.alignment.size() && file.states.alignment[group].size() == names.size())
        padding = file.states.alignment[group];
    std::vector<int64_t> starts;
    int64_t sum = 0;
    for (size_t i = 0; i < names.size(); ++i) {
        starts.push_back(sum);
        if (!checkedAdd(sum, names[i].elements, sum) || !checkedAdd(sum, padding[i], sum) || sum > kMaxDim)
            return {};
    }
    // Both halves of the partition start at an even place.
    const int64_t unit = 2 * world;
    out.length = (sum + unit - 1) / unit * unit / world;
    const int64_t lo = index * out.length;
    out.owned = std::clamp<int64_t>(sum - lo, 0, out.length);
    for (size_t i = 0; i < names.size(); ++i) {
        const size_t parameter = parameterOf(globalName(names[i].name, expertRank));
        out.parameters.push_back(parameter);
        cutOut(names[i].name, parameter, starts[i], names[i].elements, lo, out.length, out.slices, out.slots);
    }
    return out;
}

// Stage 3: of each parameter an equal part, and these one behind the other.
Opener::Partition Opener::slotPartition(const OptimizerFile& file, size_t group) {
    Partition out;
    const int64_t count = file.states.partitionCount(), world = count > 0 ? count : dpWorld_;
    const int64_t index = file.dp % world;
    for (const NamedShape& named : modelOf(file.mp)->states.groups[group]) {
        const size_t parameter = parameterOf(named.name);
        const int64_t length = (named.elements + world - 1) / world;
        const int64_t begin = std::min(named.elements, index * length),
                      end = std::min(named.elements, begin + length);
        out.parameters.push_back(parameter);
        if (begin < end) out.slots.push_back({parameter, begin, end, out.length});
        if (!checkedAdd(out.length, length, out.length) || out.length > kMaxDim) return {};
    }
    out.owned = out.length;
    return out;
}

void Opener::addPartitions() {
    bool disagree = false;
    std::map<std::pair<uint32_t, uint32_t>, bool> first;
    for (const OptimizerFile& file : optimizers_) {
        if (file.index == kNone) continue;
        const ModelFile* model = modelOf(file.mp);
        if (!model || !model->states.hasGroups) continue;
        for (const auto& [number, states] : file.states.groups) {
            if (number >= 0 && number < static_cast<int64_t>(model->states.groups.size())) continue;
            assembly_.note(rule::metaInconsistent, Severity::error,
                           fmt::format("it has the group {}, param_shapes lists {} groups", number,
                                       model->states.groups.size()),
                           contents(file.index).name, {}, Note::Lacks::optimizerState);
        }
        if (stage_ != 3) disagree = !checkSlices(file) || disagree;
        addPartition(file);
    }
    if (disagree)
        assembly_.note(
            rule::metaInconsistent, Severity::warning,
            "param_slice_mappings put the parameters at other places than param_shapes does, as with "
            "round_robin_gradients; param_shapes is right. DeepSpeed's ds_to_universal reads the mappings "
            "and "
            "would mix the parameters up");
    if (stage_ == 3) noteUnknown();
}

void Opener::addPartition(const OptimizerFile& file) {
    const auto& groups = modelOf(file.mp)->states.groups;
    for (size_t g = 0; g < groups.size(); ++g)
        addGroup(file, g,
                 stage_ == 3 ? slotPartition(file, g) : flatPartition(file, g, expertPlace(file, g).second));
}

void Opener::addGroup(const OptimizerFile& file, size_t group, const Partition& partition) {
    const TensorFile& saved = contents(file.index);
    const uint32_t rank = rankOf(file.dp, file.mp);
    const auto found = file.states.groups.find(static_cast<int64_t>(group));
    const auto fail = [&](std::string message, std::string_view rule = rule::metaInconsistent) {
        assembly_.note(rule, Severity::error, std::move(message), saved.name, {},
                       stage_ == 3 ? Note::Lacks::anything : Note::Lacks::optimizerState);
    };
    if (partition.parameters.empty()) return;
    if (found == file.states.groups.end()) {
        if (partition.owned > 0)
            fail(fmt::format("it holds no states of group {}, which param_shapes lists", group));
        return;
    }
    // Of states that are not distributed one rank speaks for all that have the same parameters.
    const bool speaks = spoken_.emplace(file.mp, group, expertPlace(file, group).first).second;
    for (const auto& [state, tensor] : found->second.tensors) {
        const StoredTensor& stored = saved.tensors[tensor];
        const int64_t held = elementCount(stored.shape);
        const bool master = state == "fp32";
        const bool fits = held == partition.length || held == partition.owned;
        if (stored.shape.size() != 1 || (!master && !fits && held == 1)) {
            for (size_t p : partition.parameters)
                if (speaks) addState(parameters_[p].name, state, file.index, tensor, rank);
            continue;
        }
        if (!fits) {
            const bool offloaded =
                held == 0 && source_.directory->stat(tag_.prefix + "offloaded_tensors").ok();
            fail(
                offloaded
                    ? fmt::format(
                          "'{}' of group {} is empty: it was offloaded to NVMe, and its {} elements are in "
                          "raw swap files in offloaded_tensors, which are not read; save without "
                          "offloading to NVMe",
                          state, group, partition.owned)
                    : fmt::format(
                          "'{}' of group {} has {} elements, by param_shapes it would have {}{}: a parameter "
                          "is missing in param_shapes, or it is of another save",
                          state, group, held, partition.length,
                          partition.owned != partition.length
                              ? fmt::format(" (or {} without padding)", partition.owned)
                              : ""));
            continue;
        }
        if (stage_ == 3 && !master && state.starts_with("exp_avg") && modelOf(file.mp)) {
            Padded padded{file.index, file.dp, file.mp,
                          tensor,     {},      std::max<int64_t>(file.states.partitionCount(), 1)};
            int64_t at = 0;
            for (const NamedShape& named : modelOf(file.mp)->states.groups[group]) {
                const int64_t length = (named.elements + padded.world - 1) / padded.world;
                if (named.elements % padded.world != 0 && padded.slots.size() < kMostPaddedSlots)
                    padded.slots.emplace_back(at, named.elements);
                at += length;
            }
            padded_.push_back(std::move(padded));
        }
        for (size_t p : partition.parameters) {
            const Parameter& parameter = parameters_[p];
            if (!speaks || parameter.placement.shards.empty()) continue;
            declare(statePath(parameter.name, state), stored.dtype, Role::optimizer, file.index, parameter);
        }
        for (const Slot& slot : partition.slots) {
            const Parameter& parameter = parameters_[slot.parameter];
            if (parameter.placement.shards.empty()) continue;
            addFlat(statePath(parameter.name, state), stored.dtype, Role::optimizer, file, tensor, slot,
                    parameter);
            if (stage_ == 3 && master && parameter.dtype)
                addFlat({keyPart(parameter.name)}, *parameter.dtype, Role::parameter, file, tensor, slot,
                        parameter);
        }
    }
    for (const auto& [state, value] : found->second.objects) {
        for (size_t p : partition.parameters)
            if (speaks) addStateObject(parameters_[p].name, state, *value, file.index, rank);
    }
}

// Compares with what the file says of its own slices. False where the order of the parameters is another.
bool Opener::checkSlices(const OptimizerFile& file) {
    if (!file.states.hasSlices) return true;
    const auto& groups = modelOf(file.mp)->states.groups;
    const auto& stated = file.states.slices;
    std::set<std::string> listed;
    for (const auto& group : groups) {
        for (const NamedShape& named : group)
            listed.insert(named.name);
    }
    for (const auto& group : stated) {
        for (const Slice& slice : group) {
            if (listed.contains(slice.name)) continue;
            assembly_.note(
                rule::metaInconsistent, Severity::error,
                "param_slice_mappings list it, param_shapes does not: the places of all parameters behind it "
                "are wrong",
                contents(file.index).name, slice.name, Note::Lacks::optimizerState);
            return true;
        }
    }
    const auto fits = [&](int64_t index) {
        for (size_t g = 0; g < groups.size(); ++g) {
            const auto& counts = file.states.partitions;
            if (g < counts.size() && counts[g] != dpWorld_) continue;  // experts
            if (g >= stated.size() || flatPartition(file, g, index).slices != stated[g]) return false;
        }
        return true;
    };
    if (fits(file.dp)) return true;
    for (int64_t other = 0; other < std::min<int64_t>(dpWorld_, kMostCandidates); ++other) {
        if (other == file.dp || !fits(other)) continue;
        assembly_.note(
            rule::metaInconsistent, Severity::error,
            fmt::format("the name says data-parallel rank {}, its slices are those of rank {}: files were "
                        "exchanged or renamed",
                        file.dp, other),
            contents(file.index).name);
        return true;
    }
    return false;
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
                rule::metaInconsistent, Severity::warning,
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
