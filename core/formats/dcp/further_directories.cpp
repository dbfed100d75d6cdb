#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "base/units.h"
#include "formats/dcp/dcp_catalog.h"
#include "storage/named_path.h"
#include "storage/url.h"

namespace shardscope::dcp {

namespace {

bool belongsToSave(const DirectoryEntry& entry) {
    return entry.kind == DirectoryEntry::Kind::file &&
           (entry.name == ".metadata" || rankOfDataFile(entry.name) != kNone ||
            rankOfMetadataFile(entry.name) != kNone);
}

// A directory, with single files of others as if they were in it.
class JoinedDirectory final : public Directory {
  public:
    explicit JoinedDirectory(std::shared_ptr<Directory> own) : own_(std::move(own)) {}

    void add(const std::string& name, std::shared_ptr<Directory> from) {
        further_.insert_or_assign(name, std::move(from));
    }
    // Which directory a file was added from; null = none.
    const Directory* holder(std::string_view name) const {
        const auto found = further_.find(name);
        return found == further_.end() ? nullptr : found->second.get();
    }

    const std::string& path() const override { return own_->path(); }
    Result<std::vector<DirectoryEntry>> list(std::string_view subdirectory) const override {
        SHARDSCOPE_ASSIGN(std::vector<DirectoryEntry> entries, own_->list(subdirectory));
        if (!subdirectory.empty()) return entries;
        for (const auto& [name, from] : further_) {
            SHARDSCOPE_ASSIGN(DirectoryEntry entry, from->stat(name));
            entry.name = name;
            entries.push_back(std::move(entry));
        }
        return entries;
    }
    Result<std::shared_ptr<const ReadFile>> openFile(std::string_view name) const override {
        return of(name).openFile(name);
    }
    Result<DirectoryEntry> stat(std::string_view name) const override { return of(name).stat(name); }
    std::string linkTarget(std::string_view name) const override { return of(name).linkTarget(name); }
    Result<std::shared_ptr<WriteFile>> createFile(std::string_view name, bool existing) override {
        return own_->createFile(name, existing);
    }
    Status removeFile(std::string_view name) override { return own_->removeFile(name); }
    Status sync() override { return own_->sync(); }

  private:
    const Directory& of(std::string_view name) const {
        const Directory* const from = holder(name);
        return from ? *from : *own_;
    }

    std::shared_ptr<Directory> own_;
    std::map<std::string, std::shared_ptr<Directory>, std::less<>> further_;
};

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
