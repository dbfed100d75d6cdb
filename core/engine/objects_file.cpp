#include "engine/objects_file.h"

#include <filesystem>

#include "engine/whole_file.h"

namespace shardscope {
namespace {

// What --objects writes, whatever the target: docs/cli.md promises a torch.save file.
const Format* objectsFormat() {
    return findFormat("torch");
}

}  // namespace

Result<CompanionObjects> companionObjects(const Checkpoint& source, const std::vector<PlanLeftOut>& leftOut) {
    const std::vector<ObjectInfo>& objects = source.catalog().objects();
    std::unordered_map<std::string_view, ObjectId> byName;
    for (ObjectId o = 0; o < objects.size(); ++o)
        byName.emplace(objects[o].name, o);
    const Format* const torch = objectsFormat();
    CatalogBuilder builder(torch->info().name, "", "shardscope");
    for (const PlanLeftOut& left : leftOut) {
        const auto it = byName.find(left.name);
        if (it == byName.end()) continue;
        ObjectInfo object = objects[it->second];
        SHARDSCOPE_ASSIGN(object.value, source.reader->objectValue(it->second));
        builder.addObject(std::move(object));
    }
    const Catalog target = std::move(builder).finish();
    CompanionObjects beside;
    for (const LeftOut& left : torch->cannotHold(target, {}))
        beside.refused.emplace(left.name, left.why);
    for (const ObjectInfo& object : target.objects()) {
        if (!beside.refused.contains(object.name)) beside.kept.push_back(object);
    }
    return beside;
}

Status checkObjectsFile(const ConvertSettings& settings, const std::string& source) {
    const std::filesystem::path file = settings.objectsFile;
    std::error_code error;
    if (std::filesystem::exists(file, error) && !settings.options.overwrite) {
        return makeError(ErrorCode::exists, "the file for --objects exists already")
            .inFile(settings.objectsFile)
            .withHint("choose another file, or --overwrite");
    }
    if (!file.parent_path().empty() && !std::filesystem::is_directory(file.parent_path(), error)) {
        return makeError(ErrorCode::io, "the directory of the file for --objects does not exist")
            .inFile(settings.objectsFile);
    }
    return checkOutside(settings.objectsFile, source);
}

Status writeObjectsFile(const PreparedConversion& p, const ConvertSettings& settings,
                        const Resources& resources) {
    SHARDSCOPE_ASSIGN(const CompanionObjects beside, companionObjects(p.source, p.spec->leftOut));
    if (beside.kept.empty()) return {};
    const Format* const torch = objectsFormat();
    CatalogBuilder builder(torch->info().name, "", "shardscope");
    for (const ObjectInfo& object : beside.kept)
        builder.addObject(object);
    TargetSpec spec;
    spec.target = std::move(builder).finish();
    WriteOptions options;
    options.archiveName = std::filesystem::path(settings.objectsFile).stem().string();
    SHARDSCOPE_ASSIGN(auto layout, torch->layout(spec.target, options));
    Plan plan;
    plan.targetPath = settings.objectsFile;
    ConvertJob job;
    job.source = p.source.reader.get();
    job.spec = &spec;
    job.layout = layout.get();
    job.plan = &plan;
    job.fileSystem = systemFileSystem(settings.io);
    job.destination = settings.objectsFile;
    job.singleFile = true;
    job.options = settings.options;
    job.options.resume = false;
    job.reopen = [&](const std::string& path,
                     const std::shared_ptr<FileSystem>&) -> Result<std::unique_ptr<Reader>> {
        SHARDSCOPE_ASSIGN(const Source place, sourceFor(path, settings.io));
        return torch->open(place, {});
    };
    auto report = runConversion(job, resources);
    if (!report.ok()) return std::move(report).error();
    return {};
}

}  // namespace shardscope
