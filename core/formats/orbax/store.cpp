#include "formats/orbax/store.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/rule.h"
#include "base/text.h"
#include "base/units.h"
#include "formats/catalog_opener.h"
#include "formats/orbax/metadata.h"
#include "storage/open_files.h"

namespace shardscope::orbax {

namespace {

constexpr uint64_t kMostDescription = 1 << 20;
constexpr size_t kMostDirectories = 1 << 20;  // below the directories of arrays

int64_t placeInGrid(const Dims& grid, const Dims& place) {
    int64_t number = 0;
    for (size_t d = 0; d < grid.size(); ++d)
        number = number * grid[d] + place[d];
    return number;
}

Note arrayNote(const Error& error, std::string_view file, std::string_view tensor,
               std::optional<uint64_t> offset) {
    return noteOf(error.location.rule.empty() ? rule::metaInconsistent : error.location.rule, Severity::error,
                  error.message, file, tensor, Note::Lacks::anything, offset);
}

bool fitsGrid(const ZarrArray& array) {
    int64_t chunks = 0;
    return checkedProduct(array.grid(), chunks);
}

Result<ZarrArray> parseArray(std::string_view text, bool version3) {
    auto array = version3 ? parseZarrJson(text) : parseZarray(text);
    if (array.ok() && !fitsGrid(*array))
        return damaged("the zarr array has too many chunks").byRule(rule::metaInconsistent);
    return array;
}

// The name of the array that the key of a description belongs to; the text before its last slash.
std::optional<std::string_view> describedBy(std::string_view key) {
    const size_t slash = key.rfind('/');
    if (slash == key.npos) return std::nullopt;
    const std::string_view last = key.substr(slash + 1);
    if (last != kZarrayName && last != kZarrJsonName) return std::nullopt;
    return key.substr(0, slash);
}

}  // namespace

FileId FileTable::add(const std::string& path, bool metadata) {
    const auto [at, added] = known_.try_emplace(path, kNone);
    if (added) {
        FileInfo info{.path = path, .metadata = metadata};
        if (const auto entry = source_.directory->stat(path); entry.ok()) {
            info.size = entry->size;
            if (entry->kind != DirectoryEntry::Kind::file) info.state = FileInfo::State::wrongKind;
        } else {
            info.state = entry.error().code == ErrorCode::unsafe ? FileInfo::State::wrongKind
                                                                 : FileInfo::State::missing;
        }
        at->second = builder_.addFile(std::move(info));
    } else if (!metadata) {
        builder_.file(at->second).metadata = false;
    }
    return at->second;
}

FileId FileTable::addListed(const std::string& path, uint64_t size, bool metadata) {
    const auto [at, added] = known_.try_emplace(path, kNone);
    if (added) {
        at->second = builder_.addFile({.path = path, .size = size, .metadata = metadata});
    }
    return at->second;
}

Result<std::string> wholeFile(const Directory& directory, const std::string& path, uint64_t most) {
    auto file = directory.openFile(path);
    if (!file.ok()) {
        Error error = std::move(file).error().inFile(path);
        if (error.code == ErrorCode::notFound) error.location.rule = rule::fileMissing;
        return error;
    }
    auto text = wholeText(**file, most);
    if (!text.ok()) return std::move(text).error().inFile(path);
    return text;
}

// ------------------------------------------------------------------ OCDBT

Status addDatabase(const Source& source, const OcdbtIndex& index, FileTable& files, Values& values,
                   Store& store, const StopToken& stop) {
    store.ocdbt = true;
    for (const OcdbtIndex::Node& node : index.nodes())
        files.add(index.files()[node.file], true);
    std::vector<FileId> fileOf(index.files().size(), kNone);
    const auto fileId = [&](const OcdbtIndex::Entry& entry) {
        FileId& id = fileOf[entry.file];
        if (id == kNone || !entry.inTree) id = files.add(index.files()[entry.file], entry.inTree);
        return id;
    };
    // Descriptions first: in the order of keys that of version 3 comes after its chunks.
    size_t inTree = 0;
    for (size_t i = 0; i < index.size(); ++i) {
        const OcdbtIndex::Entry entry = index[i];
        inTree += entry.inTree ? entry.value.size() : 0;
        const auto name = describedBy(entry.key);
        if (!name) continue;
        SHARDSCOPE_TRY(stop.poll());
        StoredArray stored;
        stored.name = *name;
        stored.about = fileId(entry);
        stored.offset = entry.offset;
        stored.length = entry.length;
        std::string text;
        Status read;
        if (entry.inTree) {
            text.assign(reinterpret_cast<const char*>(entry.value.data()), entry.value.size());
        } else if (entry.length > kMostDescription) {
            read = makeError(ErrorCode::limit, fmt::format("the description of the array has {}",
                                                           counted(entry.length, "byte")));
        } else {
            const auto file = source.directory->openFile(index.files()[entry.file]);
            text.resize(static_cast<size_t>(entry.length));
            if (!file.ok()) {
                read = file.error();
                if (file.error().code == ErrorCode::notFound)
                    read = Error(file.error()).byRule(rule::fileMissing);
            } else if (!rangeFits(entry.offset, entry.length, (*file)->size())) {
                read = damaged("the file ends before the description of the array does", entry.offset)
                           .byRule(rule::fileTruncated);
            } else {
                read = (*file)->readAt(entry.offset, std::as_writable_bytes(std::span(text)));
            }
        }
        auto array = read.ok() ? parseArray(text, entry.key.ends_with(kZarrJsonName))
                               : Result<ZarrArray>(read.error());
        if (!array.ok()) {
            if (array.error().code == ErrorCode::cancelled) return array.error();
            store.notes.push_back(
                arrayNote(array.error(), index.files()[entry.file], std::string(*name), entry.offset));
            continue;
        }
        stored.array = std::move(array).value();
        store.arrays.try_emplace(stored.name, std::move(stored));
    }
    values.reserve(values.size() + inTree);
    // Names may be nested ("a" and "a/b"), so keys may be looked at more than once, though not often.
    uint64_t looks = 0;
    const auto firstFrom = [&](std::string_view key) {
        size_t low = 0, high = index.size();
        while (low < high) {
            const size_t middle = (low + high) / 2;
            if (index[middle].key < key)
                low = middle + 1;
            else
                high = middle;
        }
        return low;
    };
    for (auto& [name, stored] : store.arrays) {
        SHARDSCOPE_TRY(stop.poll());
        const std::string begin = name + '/';
        // The character after the slash.
        const size_t first = firstFrom(begin), end = firstFrom(name + static_cast<char>('/' + 1));
        const Dims grid = stored.array.grid();
        stored.chunks.reserve(std::min(end - first, static_cast<size_t>(elementCount(grid))));
        for (size_t i = first; i < end; ++i) {
            const OcdbtIndex::Entry entry = index[i];
            if (++looks > 20 * index.size() + 1000)
                return makeError(ErrorCode::limit, "the names of the arrays are nested too often");
            const auto place = stored.array.chunkPlace(entry.key.substr(begin.size()));
            if (!place) continue;
            StoredChunk chunk{placeInGrid(grid, *place), fileId(entry), entry.offset, entry.length};
            if (entry.inTree) {
                chunk.inTree = values.size();
                values.insert(values.end(), entry.value.begin(), entry.value.end());
            }
            stored.chunks.push_back(chunk);
        }
        std::ranges::sort(stored.chunks, {}, &StoredChunk::place);
    }
    return {};
}

// ------------------------------------------------------------------ plain files

namespace {

class PlainArrays {
  public:
    PlainArrays(const Source& source, const std::string& prefix, FileTable& files, Store& store,
                const StopToken& stop)
        : source_(source), prefix_(prefix), files_(files), store_(store), stop_(stop) {}

    Status add(const std::string& name) {
        if (!checkRelativeName(prefix_ + name).ok() || !seen_.insert(name).second) return {};
        SHARDSCOPE_TRY(stop_.poll());
        const auto listed = source_.directory->list(prefix_ + name);
        if (!listed.ok()) return {};
        const DirectoryEntry* about = nullptr;
        for (const DirectoryEntry& entry : *listed) {
            if (entry.kind == DirectoryEntry::Kind::file &&
                (entry.name == kZarrayName || entry.name == kZarrJsonName))
                about = &entry;
        }
        if (!about) return {};
        StoredArray stored;
        stored.name = name;
        const std::string path = prefix_ + name + '/' + about->name;
        stored.about = files_.addListed(path, about->size, true);
        stored.length = about->size;
        const auto text = wholeFile(*source_.directory, path, kMostDescription);
        auto array =
            text.ok() ? parseArray(*text, about->name == kZarrJsonName) : Result<ZarrArray>(text.error());
        if (!array.ok()) {
            if (array.error().code == ErrorCode::cancelled) return array.error();
            store_.notes.push_back(arrayNote(array.error(), path, name, std::nullopt));
            return {};
        }
        stored.array = std::move(array).value();
        SHARDSCOPE_TRY(addChunks(stored, *listed, {}));
        std::ranges::sort(stored.chunks, {}, &StoredChunk::place);
        store_.arrays.try_emplace(name, std::move(stored));
        return {};
    }

  private:
    Status addChunks(StoredArray& stored, const std::vector<DirectoryEntry>& listed,
                     const std::string& below) {
        const Dims grid = stored.array.grid();
        for (const DirectoryEntry& entry : listed) {
            const std::string key = below + entry.name;
            if (entry.kind == DirectoryEntry::Kind::file) {
                const auto place = stored.array.chunkPlace(key);
                if (!place) continue;
                const FileId file = files_.addListed(prefix_ + stored.name + '/' + key, entry.size, false);
                stored.chunks.push_back({placeInGrid(grid, *place), file, 0, entry.size});
                continue;
            }
            // The parts of keys with slashes are numbers, and at the beginning "c".
            if (entry.kind != DirectoryEntry::Kind::directory || stored.array.separator != '/' ||
                (entry.name != "c" && entry.name.find_first_not_of("0123456789") != std::string::npos) ||
                static_cast<size_t>(std::ranges::count(below, '/')) > grid.size())
                continue;
            if (++directories_ > kMostDirectories)
                return makeError(ErrorCode::limit, "the arrays have too many directories of chunks");
            SHARDSCOPE_TRY(stop_.poll());
            SHARDSCOPE_ASSIGN(const auto more, source_.directory->list(prefix_ + stored.name + '/' + key));
            SHARDSCOPE_TRY(addChunks(stored, more, key + '/'));
        }
        return {};
    }

    const Source& source_;
    const std::string& prefix_;
    FileTable& files_;
    Store& store_;
    const StopToken& stop_;
    std::set<std::string> seen_;
    size_t directories_ = 0;
};

}  // namespace

Status addPlainArrays(const Source& source, const std::string& prefix, const std::vector<std::string>& names,
                      FileTable& files, Store& store, const StopToken& stop) {
    PlainArrays arrays(source, prefix, files, store, stop);
    for (const std::string& name : names)
        SHARDSCOPE_TRY(arrays.add(name));
    SHARDSCOPE_ASSIGN(const auto listed,
                      source.directory->list(prefix.empty() ? prefix : prefix.substr(0, prefix.size() - 1)));
    for (const DirectoryEntry& entry : listed) {
        if (entry.kind == DirectoryEntry::Kind::directory && entry.name != kArrayMetadatas &&
            entry.name != "d" && !entry.name.starts_with(kProcessDirectory))
            SHARDSCOPE_TRY(arrays.add(entry.name));
    }
    return {};
}

}  // namespace shardscope::orbax
