#include "formats/nanotron/nanotron.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/rule.h"
#include "base/text.h"
#include "formats/files_below.h"
#include "formats/nanotron/optimizer.h"
#include "formats/nanotron/place.h"
#include "formats/open_files.h"

namespace shardscope::nanotron {

namespace {

constexpr int kMostLevels = 32;
constexpr uint64_t kMostConfig = uint64_t{256} << 20;
constexpr char kOptimizerConfig[] = "optimizer/optimizer_config.json";
constexpr std::string_view kTensor = "data";

const std::string* textOf(const TensorFile& file, std::string_view key) {
    const auto at = std::ranges::find(file.texts, key, &std::pair<std::string, std::string>::first);
    return at == file.texts.end() ? nullptr : &at->second;
}

class Opener {
  public:
    Opener(const Source& source, const OpenOptions& options)
        : source_(source), assembly_(source, options, "nanotron", "", "nanotron") {}

    Result<std::unique_ptr<Reader>> open() {
        addJson(kMetadata, Severity::error, "nanotron does not load a checkpoint without it");
        addJson(kModelConfig, Severity::warning, "nanotron writes it last");
        assembly_.addText("config.yaml");
        SHARDSCOPE_ASSIGN(auto model, list(kModel, ".safetensors"));
        SHARDSCOPE_ASSIGN(auto optimizer, list(kOptimizer, ".pt"));
        SHARDSCOPE_ASSIGN(auto scheduler, list(kScheduler, ".pt"));
        SHARDSCOPE_ASSIGN(const auto random, list(kRandom, ".pt"));
        if (model.empty()) return unsupported("holds no parameters of nanotron").inFile(source_.display);
        findStages(model);
        noteMissing(model, Axis::pipeline, Severity::error, Note::Lacks::anything);
        noteMissing(optimizer, std::nullopt, Severity::error, Note::Lacks::optimizerState);
        noteMissing(scheduler, std::nullopt, Severity::error, Note::Lacks::nothing);
        noteMissing(random, std::nullopt, Severity::warning, Note::Lacks::nothing);
        SHARDSCOPE_TRY(read(model, Note::Lacks::anything));
        for (const RankFile& file : model)
            if (file.index != kNone) addParameter(file);
        SHARDSCOPE_TRY(read(optimizer, Note::Lacks::optimizerState));
        if (!optimizer.empty()) {
            const std::string config =
                addJson(kOptimizerConfig, Severity::error, "nanotron does not load the optimizer without it");
            addOptimizer(assembly_, parameters_, optimizer, config);
        }
        SHARDSCOPE_TRY(read(scheduler, Note::Lacks::nothing));
        if (!scheduler.empty() && scheduler[0].index != kNone)
            assembly_.addObjects(scheduler[0].index, {keyPart(kScheduler)}, scheduler[0].rank);
        assembly_.noteDifferentCopies(Note::Lacks::anything, TensorAssembly::Vectors::mustAgree);
        return assembly_.finish(worldSize(), mesh());
    }

  private:
    // The text of a JSON file, empty where it is not there or damaged.
    std::string addJson(const char* name, Severity severity, const char* why) {
        if (!source_.directory->stat(name).ok()) {
            assembly_.addMissing(name, kNone, severity, fmt::format("'{}' is missing: {}", name, why));
            return {};
        }
        assembly_.addText(name);
        std::string text = smallFile(*source_.directory, name, kMostConfig);
        if (nlohmann::json::accept(text)) return text;
        assembly_.note(rule::fileDamaged, Severity::error,
                       "it is not valid JSON: it was not written to its end", name);
        return {};
    }

    // Those of a directory that ranks have written.
    Result<std::vector<RankFile>> list(const char* directory, const char* ending) {
        std::vector<RankFile> files;
        if (!holdsDirectory(source_, directory)) return files;
        SHARDSCOPE_ASSIGN(const auto below, filesBelow(*source_.directory, directory, kMostLevels));
        const bool model = std::string_view(directory) == kModel;
        for (const DirectoryEntry& entry : below) {
            const std::string_view name = lastNameOf(entry.name);
            auto parsed = model ? parseModelFile(name) : parseRankName(name, ending);
            if (!parsed) continue;
            for (size_t axis = 0; axis < kAxes; ++axis)
                size_[axis] = std::max(size_[axis], parsed->of.size[axis]);
            files.push_back({joinPath(directory, entry.name), *std::move(parsed)});
        }
        return files;
    }

    // The stages whose ranks wrote files into a directory or below it.
    void findStages(const std::vector<RankFile>& files) {
        for (const RankFile& file : files) {
            if (!file.name.of.rank[Axis::pipeline]) continue;
            for (std::string_view at = directoryOf(file.path); at.find('/') != at.npos; at = directoryOf(at))
                stages_[std::string(at)].insert(*file.name.of.rank[Axis::pipeline]);
        }
    }

    // Of a parameter that is not cut: the stage of what is cut beside it, where that is one.
    uint32_t stageOf(std::string_view path) const {
        for (std::string_view at = directoryOf(path); at.find('/') != at.npos; at = directoryOf(at)) {
            const auto found = stages_.find(at);
            if (found != stages_.end()) return found->second.size() == 1 ? *found->second.begin() : 0;
        }
        return 0;
    }

    uint32_t rankOf(const RankFile& file) const {
        RankOf of = file.name.of;
        if (!of.rank[Axis::pipeline]) of.rank[Axis::pipeline] = stageOf(file.path);
        uint64_t rank = 0;
        for (size_t axis = 0; axis < kAxes; ++axis)
            rank = rank * size_[axis] + std::min(of.rank[axis].value_or(0), size_[axis] - 1);
        return static_cast<uint32_t>(std::min<uint64_t>(rank, worldSize() - 1));
    }

    uint32_t worldSize() const {
        uint64_t world = 1;
        for (const uint32_t size : size_)
            world = std::min<uint64_t>(world * size, uint64_t{1} << 20);
        return static_cast<uint32_t>(world);
    }

    std::optional<Mesh> mesh() const {
        Mesh mesh;
        for (size_t axis = 0; axis < kAxes; ++axis) {
            const char* name = axis == Axis::expert ? "ep" : kAxisNames[axis];
            if (size_[axis] > 1) mesh.axes.push_back({name, size_[axis]});
        }
        if (mesh.axes.empty() || mesh.ranks() != worldSize()) return std::nullopt;
        mesh.evidence = {"the names of the files"};
        return mesh;
    }

    // Names say how many ranks there were.
    void noteMissing(const std::vector<RankFile>& files, std::optional<Axis> fixed, Severity severity,
                     Note::Lacks lacks) {
        std::set<std::string, std::less<>> there, groups;
        for (const RankFile& file : files)
            there.insert(file.path);
        for (const RankFile& file : files) {
            RankName first = file.name;
            for (size_t axis = 0; axis < kAxes; ++axis)
                if (first.of.rank[axis] && axis != fixed) first.of.rank[axis] = 0;
            const std::string directory(directoryOf(file.path));
            if (!groups.insert(joinPath(directory, first.text())).second) continue;
            const bool counted = first.forEachRank(fixed, [&](const RankName& name) {
                std::string path = joinPath(directory, name.text());
                if (there.contains(path)) return;
                assembly_.addMissingRank(
                    path, rankOf({path, name}), severity,
                    fmt::format("'{}', the file of a rank, is missing", printable(path, kNameInMessage)),
                    lacks);
            });
            if (!counted) assembly_.wrong("its name states too many ranks", file.path, {}, lacks);
        }
    }

    Status read(std::vector<RankFile>& files, Note::Lacks lacks) {
        return assembly_.addEach(
            files,
            [&](RankFile& file) {
                file.rank = rankOf(file);
                return std::pair(file.path, file.rank);
            },
            lacks);
    }

    // "model/model/decoder/0/mlp/model_weight_...": "model.decoder.0.mlp.weight".
    static std::string nameOf(const RankFile& file) {
        std::string name(directoryOf(file.path));
        name = name.size() > sizeof(kModel) ? name.substr(sizeof(kModel)) + '/' : std::string();
        std::ranges::replace(name, '/', '.');
        return name + file.name.base.substr(sizeof(kModel));
    }

    void fail(const RankFile& file, const std::string& name, const char* rule, std::string message) {
        assembly_.note(rule, Severity::error, std::move(message), file.path, name, Note::Lacks::anything);
    }

    void addParameter(const RankFile& file) {
        const std::string name = nameOf(file);
        const TensorFile& saved = assembly_.files()[file.index];
        const uint32_t tensor = saved.find(kTensor);
        if (tensor == kNone)
            return fail(file, name, rule::metaInconsistent, "the file holds no tensor 'data'");
        const StoredTensor& stored = saved.tensors[tensor];
        const std::string *shape = textOf(saved, "unsharded_shape"),
                          *pairs = textOf(saved, "local_global_slices_pairs");
        Place place{stored.shape, {}};
        if (shape && pairs) {
            auto parsed = parsePlace(*shape, *pairs, stored.shape);
            if (!parsed.ok()) return fail(file, name, rule::metaInconsistent, parsed.error().message);
            place = *std::move(parsed);
        } else if (file.name.of.size[Axis::tensor] > 1 || file.name.of.size[Axis::expert] > 1) {
            return fail(file, name, rule::layoutFused,
                        "its header does not say which part of the parameter it holds");
        }
        Parameter& parameter = parameters_[name];
        if (parameter.shards.empty()) parameter.whole = place.whole;
        assembly_.addBoxes({keyPart(name)}, stored.dtype, place.whole, Role::parameter,
                           {file.rank, StoredPart::whole(file.index, tensor), {}, {}, {}},
                           place.cut.boxes(stored.shape));
        parameter.shards.push_back({file.name.of, std::move(place.cut), stored.shape});
    }

    const Source& source_;
    TensorAssembly assembly_;
    Parameters parameters_;
    std::array<uint32_t, kAxes> size_{1, 1, 1, 1};
    std::map<std::string, std::set<uint32_t>, std::less<>> stages_;
};

constexpr int kMostLooks = 16;  // directories on the way to the first parameter

// One parameter says that all are of nanotron.
bool holdsParameter(const Directory& directory) {
    return leadsTo(directory, kModel, kMostLooks, [](const DirectoryEntry& entry) {
        return entry.kind == DirectoryEntry::Kind::file && parseModelFile(entry.name);
    });
}

Probe probe(const Source& source) {
    if (!source.entry.empty() && source.entry != kMetadata) return {};
    if (!holdsDirectory(source, kModel)) return {};
    if (!source.hasFile(kMetadata) && !source.hasFile(kModelConfig) && !source.hasFile("config.yaml"))
        return {};
    if (!holdsParameter(*source.directory)) return {};
    return {Probe::Match::certain, "has a file of nanotron for each parameter below 'model'"};
}

Result<std::unique_ptr<Reader>> open(const Source& source, const OpenOptions& options) {
    return Opener(source, options).open();
}

}  // namespace

}  // namespace shardscope::nanotron

namespace shardscope {

const Format& nanotronFormat() {
    static const Format format{
        .about = {.name = "nanotron",
                  .title = "nanotron",
                  .reads = true,
                  .generations = {"versions 1.2 to 1.4: parameters that state their shards, ZeRO 0 and 1"},
                  .shards = true},
        .probe = nanotron::probe,
        .open = nanotron::open};
    return format;
}

}  // namespace shardscope
