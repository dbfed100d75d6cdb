#include "engine/objects_file.h"

#include <filesystem>

#include "engine/whole_file.h"
#include "formats/torch_save/torch_save.h"

namespace shardscope {
Result<CompanionObjects> companionObjects(const Checkpoint& source, const std::vector<PlanLeftOut>& leftOut) {
    const std::vector<ObjectInfo>& objects = source.catalog().objects();
    std::unordered_map<std::string_view, ObjectId> byName;
    for (ObjectId o = 0; o < objects.size(); ++o)
        byName.emplace(objects[o].name, o);
    // Whatever the target: docs/cli.md promises a torch.save file.
    const Format& torch = torchSaveFormat();
    CatalogBuilder builder(torch.info().name, "", "shardscope");
    for (const PlanLeftOut& left : leftOut) {
        const auto it = byName.find(left.name);
        if (it == byName.end()) continue;
        ObjectInfo object = objects[it->second];
        SHARDSCOPE_ASSIGN(object.value, source.reader->objectValue(it->second));
        builder.addObject(std::move(object));
    }
    const Catalog target = std::move(builder).finish();
    CompanionObjects beside;
    for (const LeftOut& left : torch.cannotHold(target, {}))
        beside.refused.emplace(left.name, left.why);
    for (const ObjectInfo& object : target.objects()) {
        if (!beside.refused.contains(object.name)) beside.kept.push_back(object);
    }
    return beside;
}

Status checkObjectsFile(const ConversionRequest& request, const std::string& source) {
    const std::filesystem::path file = request.objectsFile;
    std::error_code error;
    if (std::filesystem::exists(file, error) && !request.overwrite) {
        return makeError(ErrorCode::exists, "the file for --objects exists already")
            .inFile(request.objectsFile)
            .withHint("choose another file, or --overwrite");
    }
    if (!file.parent_path().empty() && !std::filesystem::is_directory(file.parent_path(), error)) {
        return makeError(ErrorCode::io, "the directory of the file for --objects does not exist")
            .inFile(request.objectsFile);
    }
    return checkOutside(request.objectsFile, source);
}

Status writeObjectsFile(const PreparedConversion& p, const ConversionRequest& request,
                        const Resources& resources) {
    SHARDSCOPE_ASSIGN(const CompanionObjects beside, companionObjects(p.source, p.spec->leftOut));
    if (beside.kept.empty()) return {};
    const Format& torch = torchSaveFormat();
    CatalogBuilder builder(torch.info().name, "", "shardscope");
    for (const ObjectInfo& object : beside.kept)
        builder.addObject(object);
    TargetSpec spec;
    spec.target = std::move(builder).finish();
    WriteOptions options;
    options.archiveName = std::filesystem::path(request.objectsFile).stem().string();
    SHARDSCOPE_ASSIGN(auto layout, torch.layout(spec.target, options));
    Plan plan;
    plan.targetPath = request.objectsFile;
    ConvertJob job;
    job.source = p.source.reader.get();
    job.spec = &spec;
    job.layout = layout.get();
    job.plan = &plan;
    job.fileSystem = systemFileSystem(request.io);
    job.destination = request.objectsFile;
    job.singleFile = true;
    job.options = request;
    job.options.resume = false;
    job.reopen = [&](const std::string& path) -> Result<std::unique_ptr<Reader>> {
        SHARDSCOPE_ASSIGN(const Source place, sourceFor(path, request.io));
        return torch.open(place, {});
    };
    auto report = runConversion(job, resources);
    if (!report.ok()) return std::move(report).error();
    return {};
}

}  // namespace shardscope
