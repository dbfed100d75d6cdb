#include "engine/objects_file.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "base/option_words.h"
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

namespace {

// The torch.save file of some objects, and the way to its bytes.
struct ObjectsLayout {
    TargetSpec spec;
    std::unique_ptr<TargetLayout> layout;

    uint64_t size() const { return layout->files.front().size; }
    Status write(const LiteralSink& sink) const { return layout->fileLiterals(0, {}, sink); }
};

Result<ObjectsLayout> layoutOf(const std::vector<ObjectInfo>& objects, const std::string& file) {
    const Format& torch = torchSaveFormat();
    CatalogBuilder builder(torch.info().name, "", "shardscope");
    for (const ObjectInfo& object : objects)
        builder.addObject(object);
    ObjectsLayout made;
    made.spec.target = std::move(builder).finish();
    WriteOptions options;
    options.archiveName = std::filesystem::path(file).stem().string();
    SHARDSCOPE_ASSIGN(made.layout, torch.layout(made.spec.target, options));
    if (made.layout->files.size() != 1)
        return makeError(ErrorCode::internal, "the objects of a conversion are not one file");
    return made;
}

bool holdsJust(FileSystem& files, const std::string& path, const ObjectsLayout& objects) {
    const auto [parent, name] = splitPath(path);
    const auto directory = files.openDirectory(parent);
    if (!directory.ok()) return false;
    const auto file = (*directory)->openFile(name);
    if (!file.ok() || (*file)->size() != objects.size()) return false;
    std::vector<std::byte> there;
    return objects
        .write([&](FileId, uint64_t offset, std::span<const std::byte> bytes) -> Status {
            there.resize(bytes.size());
            SHARDSCOPE_TRY((*file)->readAt(offset, there));
            return std::ranges::equal(there, bytes) ? Status() : Status(damaged("other bytes"));
        })
        .ok();
}

}  // namespace

Status checkObjectsFile(const ConversionRequest& request, const PreparedConversion& p) {
    SHARDSCOPE_TRY(checkOnDisk(request.objectsFile));
    const auto files = systemFileSystem();
    const bool begun = files->stat(stagingPath(p.destination)).ok();
    Status free = checkMayPut(*files, request.objectsFile, request.overwrite || begun);
    if (!free.ok() && free.error().code == ErrorCode::exists)
        return makeError(ErrorCode::exists, fmt::format("the file for {} exists already", option("objects")))
            .inFile(request.objectsFile)
            .withHint("choose another file, or " + option("overwrite"));
    SHARDSCOPE_TRY(std::move(free));
    SHARDSCOPE_TRY(checkBeside(request.objectsFile, p.destination));
    return checkOutside(request.objectsFile, p.source.path);
}

Status writeObjectsFile(const PreparedConversion& p, const ConversionRequest& request) {
    SHARDSCOPE_ASSIGN(const CompanionObjects beside, companionObjects(p.source, p.spec->leftOut));
    if (beside.kept.empty()) return {};
    SHARDSCOPE_ASSIGN(const ObjectsLayout objects, layoutOf(beside.kept, request.objectsFile));
    const auto files = systemFileSystem(request.io);
    if (holdsJust(*files, request.objectsFile, objects)) return {};
    SHARDSCOPE_ASSIGN(const auto file,
                      WholeFile::begin(files, request.objectsFile, objects.size(), request.overwrite));
    SHARDSCOPE_TRY(objects.write([&](FileId, uint64_t offset, std::span<const std::byte> bytes) {
        return file->writeAt(offset, bytes);
    }));
    return file->putInPlace();
}

}  // namespace shardscope
