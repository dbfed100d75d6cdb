// The unified checkpoint: safetensors files that hold whole tensors under structured names, whatever the
// parallelism was; with ignore_merge_optimizer the optimizer's files are those of ranks. Sources:
// paddlenlp/trainer/unified_checkpoint/*.py, paddlenlp/utils/env.py.
#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/option_words.h"
#include "base/rule.h"
#include "base/text.h"
#include "base/units.h"
#include "encoding/json_value.h"
#include "formats/indexed_files.h"
#include "formats/paddle_nlp/model_meta.h"
#include "formats/paddle_nlp/names.h"
#include "formats/paddle_nlp/readers.h"
#include "formats/paddle_nlp/tp_axis.h"
#include "formats/tensor_assembly.h"
#include "storage/open_files.h"

namespace shardscope::paddle_nlp {

namespace {

using Kind = UnifiedFileName::Kind;
using safetensors::kIndexSuffix;

constexpr uint64_t kHead = 64 << 10;
constexpr std::string_view kMasterState = "master_weight";

std::optional<Kind> indexKind(std::string_view name) {
    if (!name.ends_with(kIndexSuffix)) return std::nullopt;
    name.remove_suffix(kIndexSuffix.size());
    if (name == "optimizer") return Kind::optimizer;
    if (name == "master_weights") return Kind::masters;
    if (name == "model" || name == "peft_model") return Kind::weights;
    return std::nullopt;
}

// Written through numpy, with bfloat16 as U16.
bool writtenByPaddle(const Source& source, std::string_view name) {
    const std::string head = startOf(*source.directory, name, kHead);
    return head.find("\"format\":\"np\"") != head.npos && head.find("\"U16\"") != head.npos;
}

class UnifiedOpener {
  public:
    UnifiedOpener(const Source& source, const OpenOptions& options)
        : source_(source),
          options_(options),
          assembly_(source, options, "paddlenlp", "unified", "PaddleNLP unified checkpoint") {}

    Result<std::unique_ptr<Reader>> open() {
        if (!options_.variant.empty()) {
            return makeError(ErrorCode::usage,
                             fmt::format("'{}' is not a variant of a unified checkpoint, which has none",
                                         options_.variant));
        }
        SHARDSCOPE_ASSIGN(stated_, statedByUser(options_));
        SHARDSCOPE_TRY(readConfig());
        SHARDSCOPE_TRY(readIndexes());
        SHARDSCOPE_TRY(readFiles());
        checkIndexes();
        SHARDSCOPE_TRY(concludeAxes());
        for (const bool weights : {true, false}) {
            for (const Entry& entry : entries_) {
                if (entry.state.empty() == weights) addEntry(entry);
            }
        }
        noteMasters();
        addOtherFiles();
        Mesh mesh = meshOfNames();
        const uint32_t ranks = std::max(mesh.ranks(), count_);
        if (mesh.ranks() < count_) mesh = {};
        // What they say is in the assembly now.
        entries_ = {};
        byKey_ = {};
        indexes_ = {};
        for (auto& names : stored_)
            names.clear();
        return assembly_.finish(ranks, std::move(mesh));
    }

  private:
    struct Stored {
        uint32_t file = 0;  // of the assembly
        uint32_t tensor = 0;
        uint32_t rank = 0;
        RankFileName at;
    };
    // A weight, or a state of the optimizer.
    struct Entry {
        std::string parameter, state;  // without a state: the weight
        std::vector<Stored> stored;
    };

    static Note::Lacks lacksOf(Kind kind) {
        return kind == Kind::weights ? Note::Lacks::anything : Note::Lacks::optimizerState;
    }

    Status readConfig() {
        for (const DirectoryEntry& entry : source_.entries) {
            if (entry.kind != DirectoryEntry::Kind::file || entry.name != "config.json") continue;
            SHARDSCOPE_ASSIGN(const std::string json, metadataText(source_, options_, entry));
            config_ = modelSizesOf(jsonValue(json)).value_or(ModelSizes{});
        }
        return {};
    }

    Status readIndexes() {
        for (const DirectoryEntry& entry : source_.entries) {
            if (entry.kind != DirectoryEntry::Kind::file) continue;
            const auto kind = indexKind(entry.name);
            if (!kind) continue;
            const std::string path = source_.directory->path() + "/" + entry.name;
            SHARDSCOPE_ASSIGN(const std::string json, metadataText(source_, options_, entry));
            auto said = parseUnifiedIndex(json);
            if (!said.ok()) return std::move(said).error().inFile(path);
            if (!said->quantStage.empty()) quantStage_ = said->quantStage;
            IndexedFiles index;
            index.name = entry.name;
            index.size = entry.size;
            // Without a map the files are those of ranks (ignore_merge_optimizer).
            if (said->map) {
                SHARDSCOPE_ASSIGN(index, IndexedFiles::read(source_, options_, entry.name));
            }
            assembly_.addOther(index.info());
            index.lacks = lacksOf(*kind);
            const bool unread = *kind == Kind::optimizer && !quantStage_.empty();
            if (unread) noteQuantized(entry.name);
            if (said->map && !unread) indexes_.push_back({*kind, std::move(index)});
        }
        return {};
    }

    void noteQuantized(const std::string& index) {
        assembly_.note(
            rule::stateMissing, Severity::info,
            fmt::format(
                "the optimizer state is quantized (ckpt_quant_stage {}), which is not read: save again "
                "with ckpt_quant_stage O0 to convert it",
                quantStage_),
            index, {}, Note::Lacks::optimizerState);
    }

    // ------------------------------------------------------------------ files

    Status readFiles() {
        std::map<std::string, Kind> target;
        for (const DirectoryEntry& entry : source_.entries) {
            const auto name = parseUnifiedFileName(entry.name);
            if (entry.kind == DirectoryEntry::Kind::file && name) target.emplace(entry.name, name->kind);
        }
        std::set<std::string_view> indexed;  // whose tensors are known
        for (const auto& index : indexes_) {
            for (const std::string& file : index.files.files) {
                target.emplace(file, index.kind);
                indexed.insert(file);
            }
        }
        addCounted(target);
        for (const auto& [name, kind] : target) {
            SHARDSCOPE_TRY(options_.stop.poll());
            const auto entry = source_.directory->stat(name);
            if (entry.ok() && entry->kind == DirectoryEntry::Kind::file) {
                if (kind == Kind::optimizer && !quantStage_.empty())
                    assembly_.addOther({.path = name, .size = entry->size, .rank = numberOf(name)});
                else
                    SHARDSCOPE_TRY(readFile(name, kind));
                continue;
            }
            assembly_.addOther({.path = name,
                                .state = entry.ok() ? FileInfo::State::wrongKind : FileInfo::State::missing,
                                .rank = numberOf(name)});
            if (!indexed.contains(name))
                assembly_.note(rule::fileMissing, Severity::error, fmt::format("'{}' is missing", name), name,
                               {}, lacksOf(kind));
        }
        return {};
    }

    // The files that those which are here count: "-00001-of-00002".
    void addCounted(std::map<std::string, Kind>& target) const {
        std::map<std::string, std::pair<UnifiedFileName, Kind>> series;
        for (const auto& [name, kind] : target) {
            if (const auto parsed = parseUnifiedFileName(name);
                parsed && parsed->total > 0 && parsed->total <= 100'000)
                series.try_emplace(fmt::format("{}/{}", parsed->at.base, parsed->total), *parsed, kind);
        }
        for (const auto& [key, first] : series) {
            for (uint32_t n = 1; n <= first.first.total; ++n) {
                target.emplace(
                    fmt::format("{}-{:05}-of-{:05}.safetensors", first.first.at.base, n, first.first.total),
                    first.second);
            }
        }
    }

    // From 0; kNone for a file that is not numbered.
    static uint32_t numberOf(const std::string& name) {
        const auto parsed = parseUnifiedFileName(name);
        return parsed && parsed->number > 0 ? parsed->number - 1 : kNone;
    }

    Status readFile(const std::string& name, Kind kind) {
        const auto parsed = parseUnifiedFileName(name);
        Stored at;
        if (parsed) at.at = parsed->at;
        at.rank = numberOf(name) == kNone ? 0 : numberOf(name);
        SHARDSCOPE_ASSIGN(at.file, assembly_.addFile(name, at.rank, lacksOf(kind)));
        assembly_.builder().file(assembly_.known(name).id).rank = numberOf(name);
        if (at.file == kNone) return {};
        const TensorFile& file = assembly_.files()[at.file];
        if (file.kind == TensorFile::Kind::torch) {
            assembly_.wrong("is not a safetensors file", name, {}, lacksOf(kind));
            return {};
        }
        count_ = std::max(count_, at.rank + 1);
        for (; at.tensor < file.tensors.size(); ++at.tensor)
            take(file.tensors[at.tensor].name, at, kind, name);
        return {};
    }

    void take(const std::string& name, const Stored& at, Kind kind, const std::string& file) {
        stored_[static_cast<size_t>(kind)].insert(name);
        std::pair key{name, kind == Kind::masters ? std::string(kMasterState) : std::string()};
        if (kind == Kind::optimizer) {
            const auto parsed = parseUnifiedKey(name);
            if (!parsed) {
                assembly_.wrong(
                    fmt::format(
                        "'{}' is optimizer state of which the name does not say what parameter it belongs to",
                        printable(name, kNameInMessage)),
                    file, name, Note::Lacks::optimizerState);
                return;
            }
            key = {parsed->parameter, parsed->state};
        }
        const auto [it, fresh] = byKey_.try_emplace(key.first + "\n" + key.second, entries_.size());
        if (fresh) entries_.push_back({key.first, key.second, {}});
        entries_[it->second].stored.push_back(at);
        ranks_ = ranks_ || (kind != Kind::weights && at.at.placed());
    }

    const Entry* find(const std::string& parameter, std::string_view state) const {
        const auto it = byKey_.find(parameter + "\n" + std::string(state));
        return it == byKey_.end() ? nullptr : &entries_[it->second];
    }

    void checkIndexes() {
        using Found = IndexedFiles::Found;
        for (const auto& [kind, index] : indexes_) {
            const auto& held = stored_[static_cast<size_t>(kind)];
            const auto find = [&, &index = index](size_t i) {
                if (held.contains(index.names[i])) return Found::inFile;
                if (!source_.hasFile(index.fileWith(i))) return Found::fileMissing;
                const bool broken = assembly_.known(index.fileWith(i)).index == kNone;
                return broken ? Found::fileBroken : Found::nowhere;
            };
            index.noteLacking(find, [&](Note note) { assembly_.builder().addNote(std::move(note)); });
        }
    }

    // ------------------------------------------------------------------ tensors

    const StoredTensor& tensorOf(const Stored& at) { return assembly_.files()[at.file].tensors[at.tensor]; }

    static DType dtypeOf(const StoredTensor& tensor) {
        // Paddle has no uint16; its bfloat16 goes through numpy as that.
        return tensor.dtype == DType::uint16 ? DType::bfloat16 : tensor.dtype;
    }

    // The fp32 masters of a weight where they are asked for, and whole.
    const Entry* mastersOf(const Entry& weight) {
        if (stated_.masterWeights != MasterWeights::use) return nullptr;
        const Entry* masters = find(weight.parameter, kMasterState);
        const Dims& shape = tensorOf(weight.stored[0]).shape;
        const bool whole = masters && std::ranges::all_of(masters->stored, [&](const Stored& at) {
                               return tensorOf(at).shape == shape;
                           });
        return whole ? masters : nullptr;
    }

    void addEntry(const Entry& entry) {
        if (!entry.state.empty()) {
            for (const Stored& at : entry.stored)
                addState(entry, at);
            return;
        }
        const StoredTensor& first = tensorOf(entry.stored[0]);
        const Entry* masters = mastersOf(entry);
        fromMasters_ += masters != nullptr;
        for (const Stored& at : (masters ? masters : &entry)->stored)
            add(first.path, masters ? dtypeOf(first) : dtypeOf(tensorOf(at)), Role::parameter, at, at.rank,
                TpAnswer::kReplicated);
    }

    void addState(const Entry& entry, const Stored& at) {
        const Dims& shape = tensorOf(at).shape;
        const auto known = axes_.find(entry.parameter);
        const bool cut = at.at.placed() && known != axes_.end() && elementCount(shape) != 1;
        const int axis = cut ? known->second : TpAnswer::kReplicated;
        const std::string name = entry.parameter + "." + entry.state;
        if (axis >= static_cast<int>(shape.size())) {
            assembly_.wrong(fmt::format("its shape on each rank is {}, which is not a shard of its parameter",
                                        formatDims(shape)),
                            assembly_.files()[at.file].name, name, Note::Lacks::optimizerState);
            return;
        }
        const RankPlace place = at.at.place();
        const uint32_t rank = (place.pp * sharding_ + place.shard) * tp_ + place.tp;
        add({keyPart(name)}, dtypeOf(tensorOf(at)), Role::optimizer, at, at.at.placed() ? rank : at.rank,
            axis);
    }

    // A stored tensor as its rank's part of one that is cut along `axis`, or whole.
    void add(const Path& path, DType dtype, Role role, const Stored& at, uint32_t rank, int axis) {
        const StoredTensor& stored = tensorOf(at);
        TensorAssembly::Piece shard{rank, StoredPart::whole(at.file, at.tensor), {}, {}, {}};
        if (stored.dtype != dtypeOf(stored)) shard.part.bits = dtypeOf(stored);
        if (dtype != dtypeOf(stored)) shard.part.storedAs = stored.dtype;
        Dims whole = stored.shape;
        RankCut cut;
        if (axis >= 0) {
            const int64_t local = stored.shape[static_cast<size_t>(axis)];
            int64_t& length = whole[static_cast<size_t>(axis)];
            if (!checkedMul(length, int64_t{tp_}, length)) length = kMaxDim + 1;
            cut = RankCut::share(axis, {&length, 1}, local * at.at.place().tp, local);
        }
        assembly_.addBoxes(path, dtype, whole, role, shard, cut.boxes(stored.shape));
    }

    void noteMasters() {
        if (fromMasters_ == 0) return;
        assembly_.note(
            rule::metaInconsistent, Severity::info,
            fmt::format("the weights of {} are their fp32 masters cast to the parameter's dtype, "
                        "to nearest, ties to even ({})",
                        counted(fromMasters_, "parameter"), commandOption("master-weights", "use")));
    }

    // Degrees of the ranks' files, and the dimension that each parameter is cut along.
    Status concludeAxes() {
        for (const Entry& entry : entries_) {
            for (const Stored& at : entry.stored) {
                if (entry.state.empty() || !at.at.placed()) continue;
                const RankPlace place = at.at.place();
                tp_ = std::max(tp_, place.tp + 1);
                pp_ = std::max(pp_, place.pp + 1);
                sharding_ = std::max(sharding_, place.shard + 1);
            }
        }
        if (uint64_t{tp_} * pp_ > (1 << 20) || uint64_t{tp_} * pp_ * sharding_ > (1 << 20))
            return makeError(ErrorCode::limit,
                             fmt::format("tp={}, pp={}, sharding={} are too many ranks", tp_, pp_, sharding_))
                .inFile(source_.display);
        if (tp_ < 2) return {};
        std::vector<TpQuestion> questions;
        std::set<std::string> asked;
        for (const Entry& entry : entries_) {
            if (entry.state.empty() || entry.state.ends_with("pow_acc") || !entry.stored[0].at.placed() ||
                !asked.insert(entry.parameter).second)
                continue;
            TpQuestion q;
            q.name = entry.parameter;
            q.local = tensorOf(entry.stored[0]).shape;
            if (const Entry* weight = find(entry.parameter, "")) q.whole = tensorOf(weight->stored[0]).shape;
            questions.push_back(std::move(q));
        }
        SHARDSCOPE_ASSIGN(const auto answers, concludeTpAxes(questions, tp_, config_, stated_.tpRules));
        for (size_t i = 0; i < answers.size(); ++i)
            axes_[questions[i].name] = answers[i].axis;
        return {};
    }

    void addOtherFiles() {
        for (const DirectoryEntry& entry : source_.entries) {
            if (entry.kind != DirectoryEntry::Kind::file || assembly_.known(entry.name).id != kNone) continue;
            const bool text = entry.name.ends_with(".json");
            assembly_.addOther(
                {.path = entry.name, .size = entry.size, .metadata = text, .referenced = text});
        }
    }

    // Without axes where no file is of a rank.
    Mesh meshOfNames() const {
        Mesh mesh;
        if (!ranks_) return mesh;
        mesh.axes = {{"pp", pp_}, {"sharding", sharding_}, {"tp", tp_}};
        mesh.evidence = {fmt::format("tp={}, pp={}, sharding={}: as the names of the optimizer's files count",
                                     tp_, pp_, sharding_)};
        return mesh;
    }

    struct IndexFile {
        Kind kind;
        IndexedFiles files;
    };

    const Source& source_;
    const OpenOptions& options_;
    TensorAssembly assembly_;
    StatedByUser stated_;
    ModelSizes config_;
    std::vector<IndexFile> indexes_;
    std::set<std::string, std::less<>> stored_[3];  // names by kind
    std::string quantStage_;                        // of the optimizer
    std::vector<Entry> entries_;
    std::unordered_map<std::string, size_t> byKey_;
    std::map<std::string, int> axes_;
    uint32_t tp_ = 1, pp_ = 1, sharding_ = 1, count_ = 1;
    bool ranks_ = false;
    size_t fromMasters_ = 0;
};

}  // namespace

Probe probeUnified(const Source& source) {
    if (!source.entry.empty()) return {};
    std::string weights;
    for (const DirectoryEntry& entry : source.entries) {
        if (entry.kind != DirectoryEntry::Kind::file) continue;
        if (indexKind(entry.name) == Kind::masters)
            return {Probe::Match::certain, "has an index of master weights"};
        const auto name = parseUnifiedFileName(entry.name);
        if (!name) continue;
        if (name->kind != Kind::weights && (name->total > 0 || name->at.placed()))
            return {Probe::Match::certain, fmt::format("has '{}'", entry.name)};
        if (name->kind == Kind::weights && weights.empty()) weights = entry.name;
    }
    // Weights alone are like any others, but for Paddle's bfloat16.
    if (!weights.empty() && writtenByPaddle(source, weights))
        return {Probe::Match::certain,
                fmt::format("'{}' was written through numpy with bfloat16 as U16", weights)};
    return {};
}

Result<std::unique_ptr<Reader>> openUnified(const Source& source, const OpenOptions& options) {
    return UnifiedOpener(source, options).open();
}

}  // namespace shardscope::paddle_nlp
