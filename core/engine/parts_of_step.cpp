#include "engine/parts_of_step.h"

#include <algorithm>

#include "base/names.h"
#include "engine/run_directory.h"
#include "engine/surroundings.h"
#include "formats/catalog_reader.h"
#include "model/step_part.h"

namespace shardscope {

std::optional<std::string> checkpointIn(const Source& source, const std::string& name) {
    const auto below = sourceFor(joinPath(source.display, name), IoMode::automatic, source.fileSystem);
    if (!below.ok()) return std::nullopt;
    if (detectFormat(*below)) return name;
    std::optional<std::string> only;
    for (const DirectoryEntry& entry : below->entries) {
        if (entry.kind != DirectoryEntry::Kind::directory || entry.name.starts_with('.')) continue;
        const auto inner =
            sourceFor(joinPath(below->display, entry.name), IoMode::automatic, source.fileSystem);
        if (!inner.ok() || !detectFormat(*inner)) continue;
        if (only) return std::nullopt;
        only = joinPath(name, entry.name);
    }
    return only;
}

namespace {

constexpr size_t kMostParts = 64;  // directories that are looked into

struct PartOfStep {
    std::string path;  // of the checkpoint, relative to the step: "actor/dist_ckpt"
    StepPart part = StepPart::unknown;
};

std::vector<PartOfStep> partsIn(const Source& source) {
    std::vector<PartOfStep> parts;
    size_t looks = 0;
    for (const DirectoryEntry& entry : source.entries) {
        if (entry.kind != DirectoryEntry::Kind::directory || entry.name.starts_with('.')) continue;
        const StepPart part = stepPartOf(entry.name);
        if (!isState(part) || ++looks > kMostParts) continue;
        if (auto path = checkpointIn(source, entry.name)) parts.push_back({*std::move(path), part});
    }
    return parts;
}

// The model that a run trains; others of the step, such as a critic, serve it.
int rankOf(const PartOfStep& part) {
    if (part.part != StepPart::weights) return 3;
    const std::string_view name = std::string_view(part.path).substr(0, part.path.find('/'));
    if (name == "actor" || name == "policy" || name == "model") return 0;
    return name == "critic" || name == "reward" ? 2 : 1;
}

bool sharesNames(const Catalog& a, const Catalog& b) {
    for (TensorId t = 0; t < b.tensorCount(); ++t)
        if (a.find(b.name(t)) != kNone) return true;
    return false;
}

JoinedPart joined(const PartOfStep& part, const std::vector<JoinedPart>& before,
                  std::unique_ptr<Reader> reader) {
    JoinedPart one{std::move(reader), {}, part.path, {}};
    if (before.empty()) return one;
    one.role = part.part == StepPart::optimizer ? Role::optimizer : Role::other;
    const bool taken = std::ranges::any_of(before, [&](const JoinedPart& other) {
        return other.prefix.empty() && sharesNames(other.reader->catalog(), one.reader->catalog());
    });
    if (part.part != StepPart::optimizer || taken)
        one.prefix = part.path.substr(0, part.path.find('/')) + '.';
    return one;
}

// "pytorch_model-00000.bin" and "pytorch_model-00001.bin": transformers and ColossalAI number with five
// digits.
bool isShardOf(const std::vector<std::string>& files) {
    const std::string& name = files[0];
    const size_t from = name.find("-0"), end = name.find_first_not_of("0123456789", from + 1);
    if (from == name.npos || end == name.npos || end < from + 6) return false;
    return std::ranges::any_of(files.begin() + 1, files.end(), [&](const std::string& file) {
        return withoutNumbers(file) == withoutNumbers(name);
    });
}

}  // namespace

bool isSmallState(std::string_view name) {
    const StepPart part = stepPartOf(name);
    return isState(part) && part != StepPart::weights && part != StepPart::optimizer &&
           part != StepPart::averages;
}

bool holdsParts(const Source& source) {
    return std::ranges::any_of(partsIn(source), [](const PartOfStep& part) {
        return part.part == StepPart::weights || part.part == StepPart::optimizer;
    });
}

std::optional<std::string> fileOfWeights(const std::vector<std::string>& files, bool isStep) {
    if (files.size() == 1) return files[0];
    std::vector<std::string> models, unknown;
    for (const std::string& file : files) {
        const StepPart part = stepPartOf(file);
        if (part == StepPart::weights) models.push_back(file);
        if (part == StepPart::unknown) unknown.push_back(file);
    }
    if (models.size() == 1 && unknown.empty()) return models[0];
    if (models.empty() && unknown.size() == 1) return unknown[0];
    // Accelerate numbers the models of one step: the first has no number.
    const auto same = [&](const std::string& file) {
        const std::string_view stem = std::string_view(models[0]).substr(0, models[0].find('.'));
        return file == models[0] || file.starts_with(std::string(stem) + '_');
    };
    if (models.size() > 1 && unknown.empty() && std::ranges::all_of(models, same)) return models[0];
    // Several models that are trained together: the first stands for the step, the others are beside it.
    // Shards of one model, whose index is lost, stand for nothing.
    if (isStep && !models.empty() && !isShardOf(models)) return models[0];
    return std::nullopt;
}

Result<std::optional<OpenParts>> openParts(const Source& source, const CheckpointOptions& options) {
    // Numbered directories of models are the steps of a run.
    if (findRun(source)) return std::optional<OpenParts>();
    std::vector<PartOfStep> parts = partsIn(source);
    std::ranges::stable_sort(parts, {}, rankOf);
    if (parts.size() < 2 || parts[0].part != StepPart::weights) return std::optional<OpenParts>();
    std::vector<JoinedPart> readers;
    OpenParts open;
    for (const PartOfStep& part : parts) {
        SHARDSCOPE_ASSIGN(const Source below,
                          sourceFor(joinPath(source.display, part.path), options.io, source.fileSystem));
        const Format* format = options.format.empty() ? detectFormat(below) : findFormat(options.format);
        if (!format) return std::optional<OpenParts>();
        SHARDSCOPE_ASSIGN(auto reader, format->open(below, options.open));
        if (readers.empty()) open.format = format;
        readers.push_back(joined(part, readers, std::move(reader)));
    }
    const Catalog& model = readers[0].reader->catalog();
    auto nothing = emptyReader(CatalogBuilder(model.format(), model.variant(), model.writer()).finish(),
                               source.directory->path());
    SHARDSCOPE_ASSIGN(open.reader, joinReaders(std::move(nothing), std::move(readers)));
    return std::optional(std::move(open));
}

}  // namespace shardscope
