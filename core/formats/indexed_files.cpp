#include "formats/indexed_files.h"

#include <fmt/format.h>

#include "base/rule.h"
#include "formats/open_files.h"

namespace shardscope {

Result<IndexedFiles> IndexedFiles::read(const Source& source, const OpenOptions& options,
                                        const std::string& name) {
    SHARDSCOPE_ASSIGN(const auto file, source.directory->openFile(name));
    SHARDSCOPE_ASSIGN(const std::string json, wholeText(*file, options.limits.indexJson));
    auto parsed = safetensors::parseIndex(json);
    if (!parsed.ok()) return std::move(parsed).error().inFile(file->path());
    IndexedFiles index{std::move(parsed).value(), name, file->size()};
    return index;
}

FileInfo IndexedFiles::info() const {
    FileInfo info;
    info.path = name;
    info.size = size;
    info.metadata = true;
    return info;
}

bool IndexedFiles::noteLacking(const std::function<Found(size_t)>& find,
                               const std::function<void(Note)>& add) const {
    bool lacking = false;
    for (size_t i = 0; i < names.size(); ++i) {
        const Found found = find(i);
        if (found == Found::inFile) continue;
        lacking = true;
        const bool missing = found == Found::fileMissing;
        Note note{missing ? rule::fileMissing : rule::metaInconsistent,
                  Severity::error,
                  fmt::format("'{}' places it in this file, which {}", name,
                              missing                      ? "is missing"
                              : found == Found::fileBroken ? "cannot be read"
                                                           : "does not hold it"),
                  fileWith(i),
                  std::string(names[i]),
                  std::nullopt};
        note.lacks = lacks;
        add(std::move(note));
    }
    return lacking;
}

Note IndexedFiles::unnamed(std::string_view file, std::string_view tensor) const {
    return {rule::metaInconsistent, Severity::warning,   fmt::format("'{}' does not name it", name),
            std::string(file),      std::string(tensor), std::nullopt};
}

}  // namespace shardscope
