#include "formats/tensor_parallel/tensor_parallel.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <unordered_map>

#include <fmt/format.h>

#include "base/names.h"
#include "base/numbers.h"
#include "base/option_words.h"
#include "base/regular_expression.h"
#include "base/rule.h"
#include "base/units.h"
#include "encoding/json_value.h"
#include "formats/tensor_assembly.h"
#include "formats/tensor_parallel/cuts.h"
#include "formats/tensor_parallel/layout.h"
#include "formats/tp_rule.h"
#include "storage/files_below.h"
#include "storage/open_files.h"

namespace shardscope::tensor_parallel {

namespace {

// ------------------------------------------------------------------ files of ranks, by name

// Source: vllm/model_executor/model_loader/sharded_state_loader.py (model-rank-R-part-P, which SGLang has,
// too); tensorrt_llm (rankR.safetensors); meta-llama/llama (consolidated.RR.pth); DeepSeek-V3/inference/
// convert.py (modelR-mpN); the files of published models named *-TP-RRR; neuronx_distributed's trainer/
// checkpoint.py and its scripts (model/dp_rank_00_tp_rank_TT_pp_rank_PP.pt, done); deepspeed/module_inject/
// replace_module.py (save_mp_checkpoint_path: tp_RR_PP.pt, non-tp.pt, ds_inference_config.json).

struct RankFile {
    std::string name;
    uint32_t rank = 0;    // stage * world + tensor-parallel rank
    uint32_t part = 0;    // of those of its rank
    bool common = false;  // content that all ranks share
    // The name without the rank's digits, and where these are: all ranks have a file of each such name.
    std::string others;
    size_t digitsAt = 0, digits = 0;
    uint32_t index = kNone;  // where it was read; kNone = it was not
};

struct RankFiles {
    const char* writer = "";  // "vLLM"; empty = no rank files
    uint32_t world = 0;       // number of tensor-parallel ranks by the names
    uint32_t stages = 1;      // pipeline stages, each with its own files
    uint32_t parts = 1;       // files of a rank, where a list of them states more than are here
    const char* mark = "";    // a file that is written last; empty = none
    const struct NameRule* rule = nullptr;
    std::vector<RankFile> files;
    // The files of ranks that are not there: how many, and the first thousand.
    struct Missing {
        std::vector<RankFile> files;
        uint64_t count = 0;
    };
    Missing missing() const;

  private:
    // The expected file name of a rank.
    std::string nameOf(uint32_t rank, uint32_t part) const;
};

constexpr uint32_t kMostRanks = 65'536, kMostStages = 4096;
constexpr size_t kMostMissing = 1000;  // that are named

// Groups of a name: the rank, the number of ranks (may be empty), the stage and the part where names have
// them.
struct NameRule {
    const char* writer;
    RegularExpression name;
    const char* missing;      // how the file of a rank, of a stage, of a part, is called
    bool aloneIsPart;         // one such file may be a part: nobody calls a whole model so
    const char* beside = "";  // ... if this file is there, too
    const char* directory = "";
    const char* mark = "";
    const char* optimizer = "";  // a directory with files of the same names
    bool stageFirst = false;     // the first group is the stage, the third the rank
    bool stageInRank = false;    // the number of the rank counts those of earlier stages
    bool ownTensors = false;     // a rank may have whole tensors of its own, such as experts
    const char* common = "-TP-common.safetensors";  // the end of the name of a file that all ranks share
};

constexpr const char *kInference = "DeepSpeed inference", *kInferenceList = "ds_inference_config.json",
                     *kInferenceCommon = "non-tp.pt";

const std::vector<NameRule>& nameRules() {
    static const std::vector<NameRule> rules = [] {
        const auto rule = [](const char* writer, const char* name, const char* missing, bool alone = false,
                             const char* beside = "") {
            return NameRule{writer, RegularExpression::parse(name).value(), missing, alone, beside};
        };
        NameRule inference =
            rule(kInference, R"(tp_(\d+)()()_(\d+)\.pt)", "tp_{0:02}_{2:02}.pt", true, kInferenceList);
        inference.common = kInferenceCommon;
        return std::vector<NameRule>{
            rule("vLLM", R"(model-rank-(\d+)-part-()()(\d+)\.safetensors)",
                 "model-rank-{0}-part-{2}.safetensors", true),
            {"vLLM", RegularExpression::parse(R"(model-pp-(\d+)()-tp-(\d+)-part-(\d+)\.safetensors)").value(),
             "model-pp-{1}-tp-{0}-part-{2}.safetensors", true, "", "", "", "", true},
            {"TensorRT-LLM", RegularExpression::parse(R"(rank(\d+)\.safetensors())").value(),
             "rank{3}.safetensors", true, "", "", "", "", false, true},
            rule("Meta", R"(consolidated\.(\d+)\.(?:pth|safetensors)())", "consolidated.{:02}.pth", true,
                 "params.json"),
            {"DeepSeek", RegularExpression::parse(R"(model(\d+)-mp(\d+)\.safetensors)").value(),
             "model{}-mp*.safetensors", false, "", "", "", "", false, false, true},
            {"-TP- files", RegularExpression::parse(R"(.*-TP-(\d+)\.safetensors())").value(),
             "*-TP-{:03}.safetensors", false, "", "", "", "", false, false, true},
            std::move(inference),
            {"NxD", RegularExpression::parse(R"(dp_rank_0+_tp_rank_(\d+)()_pp_rank_(\d+)\.pt)").value(),
             "model/dp_rank_00_tp_rank_{:02}_pp_rank_{:02}.pt", true, "", "model", "done", "optim"},
        };
    }();
    return rules;
}

std::vector<DirectoryEntry> entriesOf(const Source& source, std::string_view directory) {
    if (directory.empty()) return source.entries;
    if (!holdsDirectory(source, directory)) return {};
    auto listed = source.directory->list(directory);
    if (!listed.ok()) return {};
    std::ranges::sort(*listed, {}, &DirectoryEntry::name);
    for (DirectoryEntry& entry : *listed)
        entry.name = joinPath(directory, entry.name);
    return *std::move(listed);
}

RankFiles filesOf(const Source& source, const NameRule& rule) {
    RankFiles out;
    struct Found {
        RankFile file;
        uint32_t stage;
    };
    std::vector<Found> found;
    std::vector<std::string_view> groups;
    for (const DirectoryEntry& entry : entriesOf(source, rule.directory)) {
        const std::string_view name = lastNameOf(entry.name);
        if (entry.kind != DirectoryEntry::Kind::file || !rule.name.matchWhole(name, groups)) continue;
        const std::string_view digits = groups[rule.stageFirst ? 3 : 1];
        const auto rank = parseNumber<uint32_t>(digits, 0, kMostRanks - 1);
        const auto world = parseNumber<uint32_t>(groups[2], 1, kMostRanks);
        const auto number = [&](size_t group) -> std::optional<uint32_t> {
            if (groups.size() <= group || groups[group].empty()) return 0;
            return parseNumber<uint32_t>(groups[group], 0, kMostStages - 1);
        };
        const auto stage = number(rule.stageFirst ? 1 : 3), part = number(4);
        if (!rank || !stage || !part) continue;
        RankFile file{.name = entry.name, .rank = *rank, .part = *part};
        file.digitsAt = static_cast<size_t>(digits.data() - entry.name.data());
        file.digits = digits.size();
        file.others = std::string(entry.name).erase(file.digitsAt, file.digits);
        found.push_back({std::move(file), *stage});
        out.world = std::max({out.world, *rank + 1, world.value_or(0)});
        out.stages = std::max(out.stages, *stage + 1);
    }
    // The optimizer's files name ranks whose parts of the model may be missing.
    const bool optimizer = *rule.optimizer != '\0' && !found.empty();
    for (const DirectoryEntry& entry :
         optimizer ? entriesOf(source, rule.optimizer) : std::vector<DirectoryEntry>()) {
        const std::string_view name = lastNameOf(entry.name);
        if (!rule.name.matchWhole(name, groups)) continue;
        const auto rank = parseNumber<uint32_t>(groups[1], 0, kMostRanks - 1);
        out.world = std::max(out.world, rank.value_or(0) + 1);
    }
    const bool alone = rule.aloneIsPart && (*rule.beside == '\0' || source.hasFile(rule.beside));
    if (out.world < 2 && out.stages < 2 && !(alone && out.world == 1)) return {};
    out.writer = rule.writer;
    out.rule = &rule;
    out.mark = rule.mark;
    for (Found& one : found) {
        one.file.rank += one.stage * out.world;
        out.files.push_back(std::move(one.file));
    }
    for (const DirectoryEntry& entry : source.entries) {
        if (entry.kind == DirectoryEntry::Kind::file && entry.name.ends_with(rule.common))
            out.files.push_back({.name = entry.name, .common = true});
    }
    return out;
}

std::string RankFiles::nameOf(uint32_t rank, uint32_t part) const {
    return fmt::format(fmt::runtime(rule->missing), rank % world, rank / world, part, rank);
}

RankFiles::Missing RankFiles::missing() const {
    struct Set {
        const RankFile* one = nullptr;
        size_t width = 1;
        std::set<uint32_t> ranks;
    };
    std::map<std::pair<uint32_t, std::string_view>, Set> sets;  // by stage
    std::set<std::string_view> there;
    std::vector<uint32_t> partsOf(stages, parts);  // of each rank of a stage, by their numbers
    for (const RankFile& file : files) {
        if (file.common) continue;
        there.insert(file.name);
        Set& set = sets[{file.rank / world, file.others}];
        set.one = &file;
        if (file.name[file.digitsAt] == '0') set.width = std::max(set.width, file.digits);
        set.ranks.insert(file.rank);
        partsOf[file.rank / world] = std::max(partsOf[file.rank / world], file.part + 1);
    }
    Missing missing;
    std::vector<RankFile>& out = missing.files;
    std::vector<uint32_t> setsOf(stages);
    for (const auto& [key, set] : sets) {
        ++setsOf[key.first];
        missing.count += world - set.ranks.size();
    }
    for (uint32_t stage = 0; stage < stages; ++stage)
        missing.count += uint64_t{world} * (partsOf[stage] - std::min(partsOf[stage], setsOf[stage]));
    for (const auto& [key, set] : sets) {
        for (uint32_t rank = key.first * world; rank < (key.first + 1) * world; ++rank) {
            if (set.ranks.contains(rank)) continue;
            std::string name = set.one->name;
            const uint32_t digits = rule->stageInRank ? rank : rank % world;
            name.replace(set.one->digitsAt, set.one->digits, fmt::format("{:0{}}", digits, set.width));
            out.push_back({.name = std::move(name), .rank = rank});
            if (out.size() == kMostMissing) return missing;
        }
    }
    // Of a stage, and of parts with a number in between, there may be no file at all.
    for (uint32_t rank = 0; rank < world * stages; ++rank) {
        const uint32_t stage = rank / world;
        if (setsOf[stage] >= partsOf[stage]) continue;
        for (uint32_t part = 0; part < partsOf[stage]; ++part) {
            std::string name = nameOf(rank, part);
            if (there.contains(name) || std::ranges::find(out, name, &RankFile::name) != out.end()) continue;
            out.push_back({.name = std::move(name), .rank = rank});
            if (out.size() == kMostMissing) return missing;
        }
    }
    missing.count = out.size();
    return missing;
}

RankFiles findRankFiles(const Source& source) {
    for (const NameRule& rule : nameRules()) {
        if (RankFiles found = filesOf(source, rule); *found.writer != '\0') return found;
    }
    return {};
}

// ------------------------------------------------------------------ tensors

constexpr uint64_t kMostConfig = uint64_t{1} << 20;
constexpr std::string_view kLayers = "transformer.layers.";
constexpr int64_t kMostLayerNumber = 1'000'000;
constexpr size_t kMostCompared = 8;  // tensors, to find files that were copied

class Opener {
  public:
    Opener(const Source& source, const OpenOptions& options)
        : source_(source),
          files_(findRankFiles(source)),
          assembly_(source, options, "tensor-parallel", "", files_.writer) {}

    Result<std::unique_ptr<Reader>> open(const OpenOptions& options) {
        if (files_.files.empty())
            return unsupported("holds no files of tensor-parallel ranks").inFile(source_.display);
        SHARDSCOPE_ASSIGN(std::vector<TpRule> stated, tpRulesOf(options));
        const std::string config = readConfig();
        ModelSizes sizes = modelSizesOf(jsonValue(config)).value_or(ModelSizes{});
        takeRanks("config.json", sizes.ranks, sizes.stages);
        if (files_.writer == std::string_view(kInference)) takeList();
        SHARDSCOPE_TRY(readFiles());
        if (*files_.mark != '\0') noteSave();
        if (sizes.hidden == 0) sizes.hidden = widthOfLastNorm();
        // DeepSpeed orders a fused projection by the family of the model.
        if (files_.writer == std::string_view(kInference)) sizes.heads = 0;
        // Scripts give such names to files of any ranks.
        const bool trusted = std::string_view(files_.writer) != "TensorRT-LLM" || sizes.ranks > 0;
        // A router has a row for each expert.
        for (const Entry& entry : entries_) {
            const Dims& shape = stored(entry.held[0]).shape;
            if (sizes.experts == 0 && entry.name.ends_with(".gate.weight") && shape.size() == 2)
                sizes.experts = shape[0];
        }
        const Cuts cuts(sizes, std::move(stated), trusted);
        if (!missing_) noteLacking(config);
        for (Entry& entry : entries_) {
            std::ranges::stable_sort(entry.held, {}, &Held::rank);
            const std::vector<Entry> stages = byStage(std::move(entry));
            const auto complete = [&](const Entry& one) { return one.held.size() == files_.world; };
            const bool any = std::ranges::any_of(stages, complete);
            for (const Entry& one : stages)
                if (!any || complete(one)) place(one, cuts);
        }
        noteCopiedFiles();
        noteNumbers();
        assembly_.noteDifferentCopies(Note::Lacks::anything, TensorAssembly::Vectors::mustAgree);
        std::optional<Mesh> mesh;
        for (const auto& [axis, size] :
             {std::pair<const char*, uint32_t>{"pp", files_.stages}, {"tp", files_.world}}) {
            if (size < 2) continue;
            if (!mesh) mesh.emplace();
            mesh->axes.push_back({axis, size});
            mesh->evidence.push_back(fmt::format("{}={}: the names of the files", axis, size));
        }
        return assembly_.finish(ranks(), std::move(mesh));
    }

  private:
    struct Held {
        uint32_t rank = 0, file = 0, tensor = 0;
    };
    struct Entry {
        Path path;
        std::string name;
        std::vector<Held> held;
        bool common = false;
    };

    uint32_t ranks() const { return files_.world * files_.stages; }

    // It is whole on each rank, and as wide as the embedding; 0 = not found.
    int64_t widthOfLastNorm() {
        static constexpr std::array kNames = std::to_array<std::string_view>(
            {"norm.weight", ".norm.weight", ".final_layer_norm.weight", ".ln_f.weight"});
        const Entry* last = nullptr;
        for (const Entry& entry : entries_) {
            const bool norm = entry.name == kNames[0] ||
                              std::ranges::any_of(std::span(kNames).subspan(1),
                                                  [&](auto end) { return entry.name.ends_with(end); });
            // Those of layers and towers have longer names.
            if (norm && stored(entry.held[0]).shape.size() == 1 &&
                (!last || entry.name.size() < last->name.size()))
                last = &entry;
        }
        return last ? stored(last->held[0]).shape[0] : 0;
    }

    // A tied parameter may be on several stages, whose ranks hold copies of it.
    std::vector<Entry> byStage(Entry entry) const {
        std::vector<Entry> stages;
        for (const Held& held : entry.held) {
            if (stages.empty() || stages.back().held[0].rank / files_.world != held.rank / files_.world)
                stages.push_back({entry.path, entry.name, {}, entry.common});
            stages.back().held.push_back(held);
        }
        return stages;
    }

    const StoredTensor& stored(const Held& held) { return assembly_.files()[held.file].tensors[held.tensor]; }

    std::string readConfig() {
        const std::string name = source_.hasFile("params.json") ? "params.json" : "config.json";
        if (!source_.hasFile(name)) return {};
        assembly_.addText(name);
        return smallFile(*source_.directory, name, kMostConfig);
    }

    // Of NxD, which writes more than the model.
    void noteSave() {
        assembly_.addText("checkpoint");  // written when the save begins
        if (source_.hasFile(files_.mark))
            assembly_.addText(files_.mark);
        else
            assembly_.addMissing(
                files_.mark, kNone, Severity::error,
                fmt::format("'{}' is missing, which is written last: the save did not end", files_.mark));
        for (const RankFile& file : files_.files) {
            if (source_.directory->stat(file.name + ".tensors").ok())
                assembly_.wrong("its tensors are in a directory beside it (xser), which is not read",
                                file.name, {}, Note::Lacks::anything);
        }
        if (source_.directory->stat("optim").ok())
            assembly_.note(rule::metaInconsistent, Severity::info,
                           "the state of the optimizer in it is not read", "optim");
        countOptimizer();
    }

    // Each rank of each replica has a file of the optimizer's state.
    void countOptimizer() {
        static const RegularExpression rule =
            RegularExpression::parse(R"(optim/dp_rank_(\d+)_tp_rank_(\d+)_pp_rank_(\d+)\.pt)").value();
        std::set<std::pair<uint32_t, uint32_t>> there;  // replica, rank
        uint32_t replicas = 0;
        std::vector<std::string_view> groups;
        for (const DirectoryEntry& entry : entriesOf(source_, "optim")) {
            if (entry.size == 0 || !rule.matchWhole(entry.name, groups)) continue;
            const auto replica = parseNumber<uint32_t>(groups[1], 0, kMostRanks - 1);
            const auto rank = parseNumber<uint32_t>(groups[2], 0, files_.world - 1);
            const auto stage = parseNumber<uint32_t>(groups[3], 0, files_.stages - 1);
            if (!replica || !rank || !stage) continue;
            replicas = std::max(replicas, *replica + 1);
            there.emplace(*replica, *stage * files_.world + *rank);
        }
        if (uint64_t{replicas} * ranks() > kMostRanks) return;
        for (uint32_t replica = 0; replica < replicas; ++replica) {
            for (uint32_t rank = 0; rank < ranks(); ++rank) {
                if (there.contains({replica, rank})) continue;
                assembly_.addMissingRank(fmt::format("optim/dp_rank_{:02}_tp_rank_{:02}_pp_rank_{:02}.pt",
                                                     replica, rank % files_.world, rank / files_.world),
                                         rank, Severity::error,
                                         "this part of the optimizer's state is missing or empty",
                                         Note::Lacks::optimizerState);
            }
        }
    }

    // What a configuration states of ranks and stages; 0 = nothing.
    void takeRanks(const char* config, int64_t world, int64_t stages) {
        if (world < 1) return;
        stages = std::max<int64_t>(1, stages);
        if (world > kMostRanks || stages > kMostRanks || world * stages > kMostRanks)
            return assembly_.wrong(
                fmt::format("{} states {} and {}", config, counted(static_cast<uint64_t>(world), "rank"),
                            counted(static_cast<uint64_t>(stages), "pipeline stage")),
                config, {}, Note::Lacks::anything);
        files_.world = static_cast<uint32_t>(world);
        files_.stages = static_cast<uint32_t>(stages);
        std::vector<RankFile>& all = files_.files;
        const auto stale =
            std::partition(all.begin(), all.end(), [&](const RankFile& f) { return f.rank < ranks(); });
        for (auto file = stale; file != all.end(); ++file) {
            if (const auto stat = source_.directory->stat(file->name); stat.ok())
                assembly_.addUnused(*stat, file->rank);
            assembly_.note(rule::fileStale, Severity::warning,
                           fmt::format("{} states {}: it is of a save by more, and left aside", config,
                                       counted(ranks(), "rank")),
                           file->name);
        }
        all.erase(stale, all.end());
    }

    // DeepSpeed lists the files that it writes.
    void takeList() {
        if (!source_.hasFile(kInferenceList))
            return assembly_.addMissing(
                kInferenceList, kNone, Severity::error,
                "the list of the files is missing: whether all are here cannot be told",
                Note::Lacks::anything);
        assembly_.addText(kInferenceList);
        const Value document = jsonValue(smallFile(*source_.directory, kInferenceList, kMostConfig));
        const ValueView json = document;
        takeRanks(kInferenceList, json["tp_size"].integer().value_or(0), 1);
        std::vector<std::string_view> groups;
        for (const ValueView name : json["checkpoints"]["tp"].items()) {
            const std::string text = name.textOr({});
            if (!files_.rule->name.matchWhole(text, groups)) continue;
            const auto part = parseNumber<uint32_t>(groups[4], 0, kMostStages - 1);
            files_.parts = std::max(files_.parts, part.value_or(0) + 1);
        }
        if (!json["checkpoints"]["non_tp"].items().empty() && !source_.hasFile(kInferenceCommon))
            assembly_.addMissing(kInferenceCommon, kNone, Severity::error,
                                 "the file of what all ranks share is missing", Note::Lacks::anything);
    }

    // Each stage of TensorRT-LLM counts its layers from 0.
    void countLayers() {
        firstLayer_.assign(files_.stages, 0);
        if (files_.stages < 2) return;
        if (!files_.rule->stageInRank) return checkStages();
        std::vector<std::set<int64_t>> layers(files_.stages);
        for (const RankFile& file : files_.files) {
            if (file.index == kNone) continue;
            for (const StoredTensor& tensor : assembly_.files()[file.index].tensors)
                if (const auto layer = layerOf(tensor.name)) layers[file.rank / files_.world].insert(*layer);
        }
        int64_t before = 0;
        for (uint32_t stage = 0; stage < files_.stages; ++stage) {
            if (layers[stage].empty()) continue;
            if (*layers[stage].begin() == 0) firstLayer_[stage] = before;
            before = firstLayer_[stage] + *layers[stage].rbegin() + 1;
        }
    }

    // The others' layers go on from stage to stage: of tensors whose names differ in numbers alone, a later
    // stage has no lower first number than the one before.
    void checkStages() {
        using Kind = std::pair<uint32_t, std::string>;  // of a tensor-parallel rank
        std::map<Kind, std::map<uint32_t, std::pair<uint64_t, uint32_t>>> lowest;  // by stage: number, file
        for (const RankFile& file : files_.files) {
            if (file.index == kNone) continue;
            for (const StoredTensor& tensor : assembly_.files()[file.index].tensors) {
                NumberedName name(tensor.name);
                if (name.numbers.empty()) continue;
                auto& stages = lowest[{file.rank % files_.world, std::move(name.text)}];
                auto& [number, of] =
                    stages.try_emplace(file.rank / files_.world, name.numbers[0], file.index).first->second;
                number = std::min(number, name.numbers[0]);
            }
        }
        std::set<uint32_t> told;
        for (const auto& [kind, stages] : lowest) {
            for (auto before = stages.begin(), at = std::next(before); at != stages.end(); before = at++) {
                const auto [number, file] = at->second;
                if (number >= before->second.first || !told.insert(file).second) continue;
                assembly_.wrong(
                    fmt::format("its layers begin with {}, those of the stage before with {}: files "
                                "of stages were exchanged or renamed",
                                number, before->second.first),
                    assembly_.files()[file].name, {}, Note::Lacks::anything);
            }
        }
    }

    static std::optional<int64_t> layerOf(std::string_view name) {
        if (!name.starts_with(kLayers)) return std::nullopt;
        name.remove_prefix(kLayers.size());
        return parseNumber<int64_t>(name.substr(0, name.find('.')), 0, kMostLayerNumber);
    }

    Status readFiles() {
        SHARDSCOPE_TRY(assembly_.addEach(
            files_.files, [](const RankFile& file) { return std::pair(file.name, file.rank); },
            Note::Lacks::anything));
        const RankFiles::Missing missing = files_.missing();
        missing_ = missing.count > 0;
        if (missing.count > missing.files.size())
            assembly_.note(rule::rankMissing, Severity::error,
                           fmt::format("{} are missing in all", counted(missing.count, "file")), {}, {},
                           Note::Lacks::anything);
        for (const RankFile& file : missing.files) {
            assembly_.addMissing(
                file.name, file.rank, Severity::error,
                fmt::format("the file of tensor-parallel rank {} of {}{} is missing",
                            file.rank % files_.world, files_.world,
                            files_.stages > 1 ? fmt::format(", stage {},", file.rank / files_.world) : ""),
                Note::Lacks::anything);
        }
        countLayers();
        for (const RankFile& file : files_.files) {
            missing_ = missing_ || file.index == kNone;
            if (file.index == kNone) continue;
            for (uint32_t t = 0; t < assembly_.files()[file.index].tensors.size(); ++t)
                add(file, t);
            if (file.rank == 0) assembly_.addObjects(file.index, {}, 0);
        }
        return {};
    }

    void add(const RankFile& from, uint32_t t) {
        const StoredTensor& tensor = assembly_.files()[from.index].tensors[t];
        Path path = tensor.path;
        std::string name = tensor.name;
        const int64_t before = from.common ? 0 : firstLayer_[from.rank / files_.world];
        if (const auto layer = before > 0 ? layerOf(name) : std::nullopt) {
            name.replace(kLayers.size(), name.find('.', kLayers.size()) - kLayers.size(),
                         fmt::to_string(*layer + before));
            path = {keyPart(name)};
        }
        const auto [it, fresh] = byPath_.try_emplace(encodePath(path), entries_.size());
        if (fresh) entries_.push_back({std::move(path), std::move(name), {}, false});
        entries_[it->second].held.push_back({from.rank, from.index, t});
        entries_[it->second].common |= from.common;
    }

    void fail(const Entry& entry, const Held& held, const char* rule, std::string message) {
        assembly_.note(rule, Severity::error, std::move(message), assembly_.files()[held.file].name,
                       pathName(entry.path), Note::Lacks::anything);
    }

    static Role roleOf(std::string_view name) {
        const bool buffer =
            name.ends_with(".inv_freq") || name == "rope.freqs" || name.ends_with(".freqs_cis");
        return buffer ? Role::buffer : Role::parameter;
    }

    // Whether all ranks hold the same; nullopt where that cannot be told cheaply.
    std::optional<bool> sameOnAll(const Entry& entry) {
        const Held& first = entry.held[0];
        std::optional<bool> same = true;
        for (const Held& other : std::span(entry.held).subspan(1)) {
            const auto equal = assembly_.files().equal(first.file, first.tensor, other.file, other.tensor);
            if (equal == false) return false;
            if (!equal) same.reset();
        }
        return same;
    }

    void addWhole(const Entry& entry, const Held& held) {
        assembly_.addWhole(held.file, held.tensor, entry.path, roleOf(entry.name), held.rank);
    }

    // What one rank has, or all have, is whole; the rest is cut.
    void place(const Entry& entry, const Cuts& cuts) {
        Shards shards;
        shards.name = entry.name;
        const Held& first = entry.held[0];
        for (const Held& held : entry.held) {
            if (stored(held).special != kNone) return addWhole(entry, held);
            if (stored(held).dtype != stored(first).dtype ||
                stored(held).shape.size() != stored(first).shape.size())
                return fail(entry, held, rule::metaInconsistent,
                            "ranks disagree about its dtype or dimensions");
            shards.shapes.push_back(stored(held).shape);
        }
        const size_t ranks = entry.held.size();
        for (size_t i = 0; i < ranks && !entry.common; ++i) {
            if (i > 0 && entry.held[i].rank == entry.held[i - 1].rank)
                return fail(entry, entry.held[i], rule::metaDuplicate, "two files of one rank have it");
        }
        if (entry.common && ranks > 1)
            return fail(entry, first, rule::metaDuplicate,
                        "the common file has it, and files of ranks have it, too");
        const bool alone = ranks == 1 && files_.world > 1 && !missing_ && files_.rule->ownTensors;
        if (entry.common || alone) return addWhole(entry, first);
        if (ranks != files_.world) {
            if (missing_) return addWhole(entry, first);
            return fail(entry, first, rule::rankMissing,
                        fmt::format("it is on {} of {}: nothing says what the others have", ranks,
                                    counted(files_.world, "rank")));
        }
        shards.same = sameOnAll(entry);
        if (cuts.lacksParts(shards))
            fail(entry, first, rule::rankMissing,
                 "it is smaller than the configuration states: files of other ranks are missing");
        for (uint32_t i = 0; i < ranks; ++i) {
            const auto cut = cuts.of(shards, i);
            if (!cut.ok()) {
                fail(entry, first, rule::layoutFused,
                     cut.error().message + fmt::format(". {} states it, where each rank has one part",
                                                       commandOption("tp-dim", "'GLOB=DIM'")));
                return addWhole(entry, first);
            }
            addCut(entry, entry.held[i], *cut);
        }
    }

    // A file that all ranks lack shows in what is in no other one: tensors that the model of the
    // configuration has, and those of the last layer that all other layers have.
    void noteLacking(const std::string& config) {
        constexpr size_t kMostTold = 100;
        static const RegularExpression layer = RegularExpression::parse(R"((.*?\.)(\d+)(\..*))").value();
        std::set<std::string> here, kinds, lacking;
        std::map<std::string, std::map<std::string, std::set<int64_t>>> stacks;  // layers by what is in them
        std::vector<std::string_view> groups;
        const auto kindOf = [&](const std::string& name) {
            return layer.matchWhole(name, groups) ? fmt::format("{}#{}", groups[1], groups[3]) : name;
        };
        for (const Entry& entry : entries_) {
            here.insert(entry.name);
            kinds.insert(kindOf(entry.name));
            const auto number = groups.size() > 2 ? parseNumber<int64_t>(groups[2]) : std::nullopt;
            if (number) stacks[std::string(groups[1])][std::string(groups[3])].insert(*number);
            groups.clear();
        }
        const std::vector<std::string> needed = namesNeeded(files_.writer, config);
        const auto found = std::ranges::count_if(needed, [&](const auto& n) { return here.contains(n); });
        for (const std::string& name : needed) {
            // Models of other kinds have other tensors in their layers.
            const std::string kind = kindOf(name);
            if (!here.contains(name) &&
                (kinds.contains(kind) || (kind == name && 2 * found > std::ssize(needed))))
                lacking.insert(name);
        }
        for (const auto& [before, parts] : stacks) {
            int64_t last = 0;
            for (const auto& [after, layers] : parts)
                last = std::max(last, *layers.rbegin());
            for (const auto& [after, layers] : parts) {
                if (last > 2 && std::ssize(layers) == last && !layers.contains(last))
                    lacking.insert(fmt::format("{}{}{}", before, last, after));
            }
        }
        size_t told = 0;
        for (const std::string& name : lacking) {
            if (++told > kMostTold) break;
            assembly_.note(
                rule::rankMissing, Severity::error,
                "the model has it by its configuration or by its other layers, and no file holds it: "
                "one is missing that all ranks had, such as the last part",
                {}, name, Note::Lacks::anything);
        }
    }

    // Published models count all their files, common ones too.
    void noteNumbers() {
        static const RegularExpression rule =
            RegularExpression::parse(R"((.*-)(\d{5})-TP-(?:\d+|common)\.safetensors)").value();
        std::map<std::string, std::set<uint32_t>> counted;
        std::vector<std::string_view> groups;
        for (const RankFile& file : files_.files) {
            if (!rule.matchWhole(file.name, groups)) continue;
            if (const auto number = parseNumber<uint32_t>(groups[2]))
                counted[std::string(groups[1])].insert(*number);
        }
        for (const auto& [before, numbers] : counted) {
            for (uint32_t n = 0; n < *numbers.rbegin(); ++n) {
                if (numbers.contains(n)) continue;
                assembly_.addMissing(
                    fmt::format("{}{:05}-TP-*.safetensors", before, n), kNone, Severity::error,
                    "no file here has this number, and others have higher ones", Note::Lacks::anything);
            }
        }
    }

    // Files of two ranks that hold the same parts of everything that the ranks cut.
    void noteCopiedFiles() {
        constexpr size_t kMostTold = 100, kMostWorld = 512;
        constexpr int64_t kFirst = 512;  // elements
        if (files_.world > kMostWorld) return;
        std::set<uint32_t> told;
        const auto copies = [&](const Held& one, const Held& two) {
            size_t compared = 0;
            for (const std::vector<Held>& cut : cut_) {
                const auto of = [&](uint32_t file) { return std::ranges::find(cut, file, &Held::file); };
                const auto first = of(one.file), second = of(two.file);
                if (first == cut.end() || second == cut.end()) continue;
                if (assembly_.files().equal(first->file, first->tensor, second->file, second->tensor) ==
                    false)
                    return false;
                ++compared;
            }
            return compared > 1;
        };
        for (const std::vector<Held>& cut : cut_) {
            // By what a shard begins with: only ranks that agree in it are compared with each other.
            std::map<std::string, std::vector<const Held*>> alike;
            for (const Held& held : cut) {
                if (told.size() >= kMostTold) return;
                const int64_t first = std::min(elementCount(stored(held).shape), kFirst);
                const auto begin =
                    assembly_.files().bytesAt(StoredPart::range(held.file, held.tensor, 0, first));
                std::vector<const Held*>& before = alike[begin.value_or(std::string())];
                const auto same = std::ranges::find_if(before, [&](const Held* other) {
                    return !told.contains(held.file) && copies(*other, held);
                });
                if (same != before.end()) {
                    told.insert(held.file);
                    assembly_.wrong(
                        fmt::format("it holds the same parts as '{}': the file of rank {} was copied",
                                    assembly_.files()[(*same)->file].name, (*same)->rank),
                        assembly_.files()[held.file].name, {}, Note::Lacks::anything);
                }
                before.push_back(&held);
            }
        }
    }

    // Whether the shard is long enough, and other numbers than zeros or ones, to tell ranks apart.
    bool tellsApart(const Held& held) {
        const int64_t half = elementCount(stored(held).shape) / 2;
        return half >= 8 &&
               assembly_.files().partsDiffer(StoredPart::range(held.file, held.tensor, 0, half),
                                             StoredPart::range(held.file, held.tensor, half, half));
    }

    void addCut(const Entry& entry, const Held& held, const Cut& cut) {
        if (cut.axis == TpRule::kReplicated) return addWhole(entry, held);
        if (held.rank == entry.held[0].rank && cut_.size() < kMostCompared && tellsApart(held))
            cut_.push_back(entry.held);
        const Dims& local = stored(held).shape;
        Dims whole = local;
        whole[static_cast<size_t>(cut.axis)] = cut.whole;
        std::vector<CutBox> boxes = cut.boxes(local);
        if (cut.experts > 0) {
            whole[0] = cut.experts;
            for (CutBox& box : boxes)
                box.offsets[0] += cut.firstExpert;
        }
        assembly_.addBoxes(entry.path, stored(held).dtype, whole, roleOf(entry.name),
                           {held.rank, StoredPart::whole(held.file, held.tensor), {}, {}, {}},
                           std::move(boxes));
    }

    const Source& source_;
    RankFiles files_;
    TensorAssembly assembly_;
    std::vector<Entry> entries_;
    std::unordered_map<std::string, size_t> byPath_;  // encoded
    std::vector<std::vector<Held>> cut_;              // some tensors that the ranks cut
    std::vector<int64_t> firstLayer_;                 // of each stage
    bool missing_ = false;                            // a file of a rank
};

Probe probe(const Source& source) {
    if (!source.entry.empty()) return {};
    const RankFiles found = findRankFiles(source);
    if (found.files.empty()) return {};
    return {Probe::Match::certain, "has " + found.files[0].name + ", the part of one tensor-parallel rank"};
}

Result<std::unique_ptr<Reader>> open(const Source& source, const OpenOptions& options) {
    SHARDSCOPE_TRY(requireDirectory(source));
    return Opener(source, options).open(options);
}
}  // namespace

}  // namespace shardscope::tensor_parallel

namespace shardscope {

const Format& tensorParallelFormat() {
    static const Format format{
        .about = {.name = "tensor-parallel",
                  .title = "files of tensor-parallel ranks",
                  .synonyms = {"tensor_parallel", "vllm", "tensorrt-llm", "meta", "meta-llama2", "nxd"},
                  .before = {{"safetensors", "its files are safetensors, one for each rank"},
                             {"torch", "its files are those of torch.save, one for each rank"}},
                  .options = {tpDimOption()},
                  .reads = true,
                  .writes = true,
                  .generations = {"vLLM and SGLang sharded_state: model-rank-R-part-P.safetensors",
                                  "TensorRT-LLM: rankR.safetensors", "Meta: consolidated.RR.pth",
                                  "DeepSeek: modelR-mpN.safetensors; *-TP-RRR.safetensors",
                                  "DeepSpeed inference: tp_RR_PP.pt, non-tp.pt",
                                  "AWS NxD: model/dp_rank_00_tp_rank_TT_pp_rank_PP.pt"},
                  .variants = {"vllm", "meta", "meta-llama2"},
                  .models = {{"vllm", "vllm", "vllm"},
                             {"meta", "meta", "meta"},
                             {"meta-llama2", "meta-llama2", "meta"}},
                  .shards = true,
                  .replicas = true,
                  .assets = "."},
        .probe = tensor_parallel::probe,
        .open = tensor_parallel::open,
        .placing = tensor_parallel::place,
        .copies = tensor_parallel::copies,
        .cannotHold = tensor_parallel::cannotHold,
        .layout = tensor_parallel::layOut};
    return format;
}

}  // namespace shardscope
