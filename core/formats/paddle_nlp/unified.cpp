// The unified checkpoint: safetensors files that hold whole tensors under structured names, whatever the
// parallelism was; with ignore_merge_optimizer the optimizer's files are those of ranks. Sources:
// paddlenlp/trainer/unified_checkpoint/*.py, paddlenlp/utils/env.py.
#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/option_words.h"
#include "base/rule.h"
#include "base/text.h"
#include "encoding/safetensors_index.h"
#include "formats/catalog_opener.h"
#include "formats/open_files.h"
#include "formats/paddle_nlp/model_meta.h"
#include "formats/paddle_nlp/names.h"
#include "formats/paddle_nlp/readers.h"
#include "formats/paddle_nlp/tp_axis.h"
#include "formats/tensor_files.h"

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

class UnifiedOpener : private CatalogOpener {
  public:
    UnifiedOpener(const Source& source, const OpenOptions& options)
        : CatalogOpener("paddlenlp", "unified", "PaddleNLP unified checkpoint"),
          source_(source),
          options_(options),
          files_(std::make_unique<TensorFiles>(source, options)) {}

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
        SHARDSCOPE_TRY(addWeights());
        SHARDSCOPE_TRY(addStates());
        addOtherFiles();
        finishMesh();
        return makePartReader(source_, std::move(builder_).finish(), std::move(files_), std::move(parts_));
    }

  private:
    struct Stored {
        uint32_t contents = 0;  // in TensorFiles
        uint32_t tensor = 0;
        uint32_t rank = 0;
        RankFileName at;
    };
    struct Named {
        std::string name;
        std::vector<Stored> stored;
    };
    struct State {
        std::string parameter, state;
        std::vector<Stored> stored;
    };

    static Note::Lacks lacksOf(Kind kind) {
        return kind == Kind::weights ? Note::Lacks::anything : Note::Lacks::optimizerState;
    }

    Status readConfig() {
        for (const DirectoryEntry& entry : source_.entries) {
            if (entry.kind != DirectoryEntry::Kind::file || entry.name != "config.json") continue;
            SHARDSCOPE_ASSIGN(const std::string json, metadataText(source_, options_, entry));
            auto config = parseModelConfig(json);
            if (config.ok()) config_ = *config;
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
            if (!said->quantStage.empty()) {
                return unsupported(
                           fmt::format(
                               "the optimizer state is quantised (ckpt_quant_stage {}), which is not read",
                               said->quantStage))
                    .inFile(path)
                    .withHint(
                        "save again with ckpt_quant_stage O0, or convert the weights from a copy without "
                        "this index");
            }
            FileInfo info;
            info.path = entry.name;
            info.size = entry.size;
            info.metadata = true;
            builder_.addFile(std::move(info));
            // Without a map the files are those of ranks (ignore_merge_optimizer).
            if (!said->map) continue;
            auto index = safetensors::parseIndex(json);
            if (!index.ok()) return std::move(index).error().inFile(path);
            indexes_.push_back({*kind, entry.name, std::move(index).value()});
        }
        return {};
    }

    // ------------------------------------------------------------------ files

    Status readFiles() {
        std::map<std::string, Kind> target;
        for (const DirectoryEntry& entry : source_.entries) {
            const auto name = parseUnifiedFileName(entry.name);
            if (entry.kind == DirectoryEntry::Kind::file && name) target.emplace(entry.name, name->kind);
        }
        for (const auto& index : indexes_) {
            for (const std::string& file : index.index.files)
                target.emplace(file, index.kind);
        }
        addCounted(target);
        for (const auto& [name, kind] : target) {
            SHARDSCOPE_TRY(options_.stop.poll());
            SHARDSCOPE_TRY(readFile(name, kind));
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

    Status readFile(const std::string& name, Kind kind) {
        const auto parsed = parseUnifiedFileName(name);
        const auto entry = source_.directory->stat(name);
        FileInfo info;
        info.path = name;
        if (parsed && parsed->number > 0) info.rank = parsed->number - 1;
        if (!entry.ok() || entry->kind != DirectoryEntry::Kind::file) {
            info.state = entry.ok() ? FileInfo::State::wrongKind : FileInfo::State::missing;
            builder_.addFile(std::move(info));
            note(rule::fileMissing, Severity::error, fmt::format("'{}' is missing", name), name, {},
                 lacksOf(kind));
            return {};
        }
        info.size = entry->size;
        const FileId id = builder_.addFile(std::move(info));
        auto added = files_->add(name, id);
        if (!added.ok()) {
            Error error = std::move(added).error();
            if (error.code == ErrorCode::cancelled) return error;
            if (error.location.rule.empty()) error.location.rule = rule::metaInconsistent;
            note(error.location.rule, Severity::error,
                 fmt::format("the file cannot be read: {}", error.message), name, {}, lacksOf(kind));
            files_->markBroken(id, std::move(error));
            return {};
        }
        const TensorFile& file = (*files_)[*added];
        if (file.kind == TensorFile::Kind::torch) {
            note(rule::metaInconsistent, Severity::error, "is not a safetensors file", name, {},
                 lacksOf(kind));
            return {};
        }
        for (const Note& n : file.notes) {
            Note copy = n;
            if (copy.file.empty()) copy.file = name;
            builder_.addNote(std::move(copy));
        }
        Stored at;
        at.contents = *added;
        at.rank = parsed && parsed->number > 0 ? parsed->number - 1 : 0;
        if (parsed) at.at = parsed->at;
        count_ = std::max(count_, at.rank + 1);
        for (uint32_t t = 0; t < file.tensors.size(); ++t) {
            at.tensor = t;
            take(file.tensors[t], at, kind, name);
        }
        return {};
    }

    void take(const StoredTensor& tensor, const Stored& at, Kind kind, const std::string& file) {
        stored_[static_cast<size_t>(kind)].insert(tensor.name);
        if (kind == Kind::weights) {
            const auto [it, fresh] = weightIndex_.try_emplace(tensor.name, weights_.size());
            if (fresh) weights_.push_back({tensor.name, {}});
            weights_[it->second].stored.push_back(at);
            return;
        }
        State state{tensor.name, std::string(kMasterState), {}};
        if (kind == Kind::optimizer) {
            const auto parsed = parseUnifiedKey(tensor.name);
            if (!parsed) {
                note(
                    rule::metaInconsistent, Severity::error,
                    fmt::format(
                        "'{}' is optimizer state of which the name does not say what parameter it belongs to",
                        printable(tensor.name, kNameInMessage)),
                    file, tensor.name, Note::Lacks::optimizerState);
                return;
            }
            state.parameter = parsed->parameter;
            state.state = parsed->state;
        }
        const auto [it, fresh] =
            stateIndex_.try_emplace(state.parameter + "\n" + state.state, states_.size());
        if (fresh) states_.push_back(state);
        states_[it->second].stored.push_back(at);
        ranks_ = ranks_ || at.at.placed();
    }

    void checkIndexes() {
        constexpr size_t kListed = 100;
        for (const auto& index : indexes_) {
            size_t noted = 0;
            for (size_t n = 0; n < index.index.names.size() && noted < kListed; ++n) {
                const std::string name(index.index.names[n]);
                if (stored_[static_cast<size_t>(index.kind)].contains(name)) continue;
                const std::string& file = index.index.files[index.index.fileOf[n]];
                // What a missing file held is said of the file.
                if (!source_.hasFile(file)) continue;
                ++noted;
                note(rule::metaInconsistent, Severity::error,
                     fmt::format("'{}' says that it is in '{}', which does not hold it", index.name, file),
                     index.name, name, lacksOf(index.kind));
            }
        }
    }

    // ------------------------------------------------------------------ tensors

    const StoredTensor& tensorOf(const Stored& at) const { return (*files_)[at.contents].tensors[at.tensor]; }

    static DType dtypeOf(const StoredTensor& tensor) {
        // Paddle has no uint16; its bfloat16 goes through numpy as that.
        return tensor.dtype == DType::uint16 ? DType::bfloat16 : tensor.dtype;
    }

    Status addWeights() {
        for (const Named& weight : weights_) {
            const StoredTensor& first = tensorOf(weight.stored[0]);
            TensorInfo info;
            info.name = weight.name;
            info.path = first.path;
            info.dtype = dtypeOf(first);
            info.shape = first.shape;
            info.role = Role::parameter;
            const std::vector<Stored>* from = &weight.stored;
            bool cast = false;
            if (stated_.masterWeights == MasterWeights::use) {
                const auto master = stateIndex_.find(weight.name + "\n" + std::string(kMasterState));
                if (master != stateIndex_.end() && wholeCopy(states_[master->second], info.shape)) {
                    from = &states_[master->second].stored;
                    cast = tensorOf((*from)[0]).dtype != info.dtype;
                    ++fromMasters_;
                }
            }
            SHARDSCOPE_TRY(builder_.addTensor(info));
            for (const Stored& at : *from) {
                const StoredTensor& stored = tensorOf(at);
                if (stored.shape != info.shape || (!cast && dtypeOf(stored) != info.dtype)) {
                    note(rule::metaInconsistent, Severity::error,
                         fmt::format("files disagree about it: {} {} and {} {}", dtypeName(info.dtype),
                                     formatDims(info.shape), dtypeName(dtypeOf(stored)),
                                     formatDims(stored.shape)),
                         (*files_)[at.contents].name, info.name);
                    continue;
                }
                SHARDSCOPE_TRY(addChunk(at, Dims(info.shape.size(), 0), stored.shape, at.rank,
                                        cast ? std::optional(stored.dtype) : std::nullopt));
            }
        }
        if (fromMasters_ > 0) {
            note(rule::metaInconsistent, Severity::info,
                 fmt::format("the weights of {} parameters are their fp32 masters cast to the parameter's "
                             "dtype, to nearest, ties to even ({})",
                             fromMasters_, commandOption("master-weights", "use")));
        }
        return {};
    }

    bool wholeCopy(const State& state, const Dims& shape) const {
        return std::all_of(state.stored.begin(), state.stored.end(),
                           [&](const Stored& at) { return tensorOf(at).shape == shape; });
    }

    Status addChunk(const Stored& at, const Dims& offsets, const Dims& lengths, uint32_t rank,
                    std::optional<DType> storedAs = {}) {
        const StoredTensor& stored = tensorOf(at);
        CatalogBuilder::Chunk chunk;
        chunk.rank = rank;
        chunk.file = (*files_)[at.contents].id;
        chunk.offset = stored.offset;
        chunk.length = stored.bytes;
        chunk.offsets = offsets;
        chunk.lengths = lengths;
        SHARDSCOPE_TRY(builder_.addChunk(chunk));
        StoredPart part;
        part.file = at.contents;
        part.tensor = at.tensor;
        part.storedAs = storedAs;
        if (stored.dtype != dtypeOf(stored)) part.bits = dtypeOf(stored);
        parts_.add(part);
        return {};
    }

    // Degrees of the ranks' files, and the dimension that each parameter is cut along.
    Status concludeAxes() {
        for (const State& state : states_) {
            for (const Stored& at : state.stored) {
                if (!at.at.placed()) continue;
                tp_ = std::max(tp_, at.at.tp == kNotNamed ? 1 : at.at.tp + 1);
                pp_ = std::max(pp_, at.at.pp == kNotNamed ? 1 : at.at.pp + 1);
                sharding_ = std::max(sharding_, at.at.shard == kNotNamed ? 1 : at.at.shard + 1);
            }
        }
        if (uint64_t{tp_} * pp_ > (1 << 20) || uint64_t{tp_} * pp_ * sharding_ > (1 << 20))
            return makeError(ErrorCode::limit,
                             fmt::format("tp={}, pp={}, sharding={} are too many ranks", tp_, pp_, sharding_))
                .inFile(source_.display);
        if (tp_ < 2) return {};
        std::vector<TpQuestion> questions;
        std::set<std::string> asked;
        for (const State& state : states_) {
            if (state.state.ends_with("pow_acc") || !state.stored[0].at.placed() ||
                !asked.insert(state.parameter).second)
                continue;
            TpQuestion q;
            q.name = state.parameter;
            q.local = tensorOf(state.stored[0]).shape;
            if (const auto weight = weightIndex_.find(state.parameter); weight != weightIndex_.end())
                q.whole = tensorOf(weights_[weight->second].stored[0]).shape;
            questions.push_back(std::move(q));
        }
        SHARDSCOPE_ASSIGN(const auto answers, concludeTpAxes(questions, tp_, config_, stated_.tpRules));
        for (size_t i = 0; i < answers.size(); ++i)
            axes_[questions[i].name] = answers[i].axis;
        return {};
    }

    Status addStates() {
        SHARDSCOPE_TRY(concludeAxes());
        for (const State& state : states_) {
            const StoredTensor& first = tensorOf(state.stored[0]);
            TensorInfo info;
            info.name = state.parameter + "." + state.state;
            info.path = {keyPart(info.name)};
            info.dtype = dtypeOf(first);
            info.shape = first.shape;
            info.role = Role::optimizer;
            const auto found = axes_.find(state.parameter);
            const bool placed = state.stored[0].at.placed();
            const int64_t elements = elementCount(first.shape);
            const int axis =
                placed && found != axes_.end() && elements != 1 ? found->second : TpAnswer::kReplicated;
            if (axis >= static_cast<int>(info.shape.size())) {
                note(rule::metaInconsistent, Severity::error,
                     fmt::format("its shape on each rank is {}, which is not a piece of its parameter",
                                 formatDims(first.shape)),
                     (*files_)[state.stored[0].contents].name, info.name, Note::Lacks::optimizerState);
                continue;
            }
            if (axis >= 0) {
                int64_t& length = info.shape[static_cast<size_t>(axis)];
                if (!checkedMul(length, int64_t{tp_}, length)) length = kMaxDim + 1;
            }
            SHARDSCOPE_TRY(builder_.addTensor(info));
            for (const Stored& at : state.stored) {
                const StoredTensor& stored = tensorOf(at);
                if (stored.shape != first.shape || dtypeOf(stored) != info.dtype) {
                    note(rule::metaInconsistent, Severity::error,
                         fmt::format("ranks disagree about its shape: {} and {}", formatDims(first.shape),
                                     formatDims(stored.shape)),
                         (*files_)[at.contents].name, info.name);
                    continue;
                }
                const uint32_t t = at.at.tp == kNotNamed ? 0 : at.at.tp,
                               p = at.at.pp == kNotNamed ? 0 : at.at.pp,
                               s = at.at.shard == kNotNamed ? 0 : at.at.shard;
                Dims offsets(stored.shape.size(), 0);
                if (axis >= 0)
                    offsets[static_cast<size_t>(axis)] = int64_t{t} * stored.shape[static_cast<size_t>(axis)];
                SHARDSCOPE_TRY(addChunk(at, offsets, stored.shape,
                                        at.at.placed() ? (p * sharding_ + s) * tp_ + t : at.rank));
            }
        }
        return {};
    }

    void addOtherFiles() {
        for (const DirectoryEntry& entry : source_.entries) {
            if (entry.kind != DirectoryEntry::Kind::file || indexKind(entry.name) ||
                parseUnifiedFileName(entry.name))
                continue;
            FileInfo info;
            info.path = entry.name;
            info.size = entry.size;
            info.metadata = entry.name.ends_with(".json");
            info.referenced = info.metadata;
            builder_.addFile(std::move(info));
        }
    }

    void finishMesh() {
        if (!ranks_) {
            builder_.setRankCount(count_);
            return;
        }
        Mesh mesh;
        mesh.axes = {{"pp", pp_}, {"sharding", sharding_}, {"tp", tp_}};
        mesh.evidence = {fmt::format("tp={}, pp={}, sharding={}: as the names of the optimizer's files count",
                                     tp_, pp_, sharding_)};
        builder_.setRankCount(std::max(mesh.ranks(), count_));
        if (mesh.ranks() >= count_) builder_.setMesh(std::move(mesh));
    }

    struct IndexFile {
        Kind kind;
        std::string name;
        safetensors::Index index;
    };

    const Source& source_;
    const OpenOptions& options_;
    std::unique_ptr<TensorFiles> files_;
    StoredParts parts_;
    StatedByUser stated_;
    ModelConfig config_;
    std::vector<IndexFile> indexes_;
    std::set<std::string, std::less<>> stored_[3];  // names by kind
    std::vector<Named> weights_;
    std::vector<State> states_;
    std::unordered_map<std::string, size_t> weightIndex_, stateIndex_;
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
