#include <algorithm>

#include <fmt/format.h>

#include "base/text.h"
#include "base/units.h"
#include "formats/dcp/dcp_catalog.h"
#include "storage/joined_directory.h"
#include "storage/named_path.h"
#include "storage/url.h"

namespace shardscope::dcp {

namespace {

bool belongsToSave(const DirectoryEntry& entry) {
    return entry.kind == DirectoryEntry::Kind::file &&
           (entry.name == ".metadata" || rankOfDataFile(entry.name) != kNone ||
            rankOfMetadataFile(entry.name) != kNone);
}

}  // namespace

Result<Source> withFurtherDirectories(const Source& source, const OpenOptions& options) {
    Source joined = source;
    const std::vector<std::string> named = options.valuesOf(kFurtherDirectories);
    if (named.empty()) return joined;
    const auto directory = std::make_shared<JoinedDirectory>(source.directory);
    joined.directory = directory;
    for (const std::string& text : named) {
        const std::string path = namedPath(text);
        if (schemeOf(path) != schemeOf(source.display) || !schemeOf(path).empty()) {
            return unsupported(fmt::format("{} names directories of the machine where the checkpoint is",
                                           kFurtherDirectories))
                .inFile(printable(path));
        }
        SHARDSCOPE_ASSIGN(std::shared_ptr<Directory> further, source.fileSystem->openDirectory(path));
        SHARDSCOPE_ASSIGN(const std::vector<DirectoryEntry> entries, further->list());
        for (const DirectoryEntry& entry : entries) {
            if (!belongsToSave(entry)) continue;
            if (joined.hasFile(entry.name)) {
                const Directory* const other = directory->holder(entry.name);
                return makeError(
                           ErrorCode::unsafe,
                           fmt::format("'{}' is in '{}', too: each file of a save is in one place alone",
                                       printable(entry.name, kNameInMessage),
                                       printable(other ? other->path() : source.directory->path())))
                    .inFile(further->path())
                    .withHint("leave out the directory of another save, or a copy of the same files");
            }
            directory->add(entry.name, further);
            const auto at = std::ranges::lower_bound(joined.entries, entry.name, {}, &DirectoryEntry::name);
            joined.entries.insert(at, entry);
        }
    }
    return joined;
}

}  // namespace shardscope::dcp
