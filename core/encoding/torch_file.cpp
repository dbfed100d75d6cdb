#include "encoding/torch_file.h"

#include <fmt/format.h>

#include "base/checked.h"
#include "base/rule.h"
#include "base/units.h"
#include "encoding/torch_legacy.h"

namespace shardscope::torch_save {

namespace {

constexpr std::string_view kZipMagic("PK\3\4", 4);
constexpr std::string_view kPreviewMagic = "PYTORCH1";
constexpr std::string_view kTarHint =
    "load it with a torch of its time (or torch.load(weights_only=False)) and save it again with torch.save";

std::string writerOf(const ZipArchive& zip, const std::string& prefix) {
    const auto has = [&](std::string_view name) {
        return zip.find(fmt::format("{}/{}", prefix, name)) != nullptr;
    };
    if (has(".format_version")) return "torch 2.7 or later";
    if (has(".data/serialization_id")) return "torch 2.1 to 2.6";
    return "torch 1.6 to 2.0";
}

}  // namespace

// What the first bytes say. Old tar files have their magic at 257, as all tar files; torch's begin with a
// member of theirs.
FileKind fileKind(std::string_view first) {
    if (first.starts_with(kZipMagic)) {
        // The name of the first record stands at 30.
        if (first.size() < 30) return FileKind::otherZip;
        const size_t size = static_cast<uint8_t>(first[26]) + 256U * static_cast<uint8_t>(first[27]);
        const std::string_view name = first.substr(30, size);
        const size_t slash = name.find('/');
        if (slash == name.npos) return FileKind::otherZip;
        const std::string_view inside = name.substr(slash + 1);
        const bool known = inside.empty() || inside == "data.pkl" || inside == "version" ||
                           inside == ".data/version" || inside == "byteorder" || inside == "constants.pkl" ||
                           inside.starts_with("data/") || inside.starts_with("code/");
        return known ? FileKind::archive : FileKind::otherZip;
    }
    if (isLegacyStart(first)) return FileKind::legacy;
    if (first.starts_with(kPreviewMagic)) return FileKind::preview;
    if (first.size() >= 263 && first.substr(257, 5) == "ustar") {
        const std::string_view member = first.substr(0, first.find('\0'));
        for (std::string_view known : {"sys_info", "pickle", "storages", "tensors", "./sys_info"}) {
            if (member == known) return FileKind::tar;
        }
    }
    return FileKind::none;
}

Result<std::string> firstBytesOf(const ReadFile& file) {
    std::string first(std::min<uint64_t>(file.size(), kFirstBytes), '\0');
    SHARDSCOPE_TRY(file.readAt(0, std::as_writable_bytes(std::span(first))));
    return first;
}

Result<std::unordered_map<std::string, TorchStorage>> allStorages(const ValueGraph& graph) {
    std::unordered_map<std::string, TorchStorage> all;
    for (NodeId node = 0; node < graph.size(); ++node) {
        if (!isTensorLike(graph, node) || graph.kind(node) != ValueKind::persistent) continue;
        auto storage = asTorchStorage(graph, node);
        if (!storage.ok()) {
            if (storage.error().code == ErrorCode::unsupported)
                continue;  // its tensors are noted where they are met
            return std::move(storage).error();
        }
        SHARDSCOPE_ASSIGN(const uint64_t bytes, storageBytes(*storage));
        const auto [it, fresh] = all.try_emplace(storage->key, *storage);
        if (fresh) continue;
        SHARDSCOPE_ASSIGN(const uint64_t before, storageBytes(it->second));
        if (bytes != before) {
            return damaged(fmt::format("storage '{}' has {} for one tensor and {} for another", storage->key,
                                       counted(before, "byte"), countText(bytes)))
                .byRule(rule::metaInconsistent);
        }
    }
    return all;
}

Result<Opened> openArchive(std::shared_ptr<const ReadFile> file, const FileLimits& options) {
    PickleLimits limits;
    limits.textBytes = options.pickleText;
    limits.memory = options.valueMemory;
    const uint64_t size = file->size();
    SHARDSCOPE_ASSIGN(TorchArchive archive, openTorchArchive(file, 0, size, limits));
    Opened opened;
    opened.file = std::move(file);
    opened.writer = writerOf(archive.zip, archive.prefix);
    opened.zip = std::make_unique<ZipArchive>(std::move(archive.zip));
    opened.prefix = std::move(archive.prefix);
    opened.pickle = std::move(archive.pickle);
    opened.bigEndian = archive.bigEndian;
    opened.variant = "zip";
    for (const std::string& warning : opened.zip->warnings) {
        opened.notes.push_back({rule::metaInconsistent, Severity::warning, warning, {}, {}, std::nullopt});
    }
    return opened;
}

Result<Opened> openTorchFile(std::shared_ptr<const ReadFile> file, const FileLimits& limits) {
    SHARDSCOPE_ASSIGN(const std::string first, firstBytesOf(*file));
    const std::string path = file->path();
    if (first.empty()) return damaged("the file is empty", 0).inFile(path);
    switch (fileKind(first)) {
        case FileKind::archive:
        case FileKind::otherZip:
            return openArchive(std::move(file), limits);
        case FileKind::legacy:
            return openLegacy(std::move(file), limits);
        case FileKind::tar:
            return unsupported("a tar archive of torch 0.1, which is not read")
                .inFile(path)
                .withHint(kTarHint);
        case FileKind::preview:
            return unsupported("a PYTORCH1 preview archive, which no released torch reads").inFile(path);
        case FileKind::none:
            break;
    }
    return damaged("the file begins neither like a zip archive nor like a legacy torch.save file", 0)
        .inFile(path);
}

std::vector<Note> recordNotes(const Opened& opened,
                              const std::unordered_map<std::string, TorchStorage>& storages) {
    std::vector<Note> notes;
    if (!opened.zip) return notes;
    const auto note = [&](const char* rule, Severity severity, std::string message,
                          std::optional<uint64_t> offset = std::nullopt) {
        notes.push_back({rule, severity, std::move(message), {}, {}, offset});
    };
    const std::string folder = opened.prefix + "/data/";
    size_t without = 0, deflated = 0;
    for (const ZipEntry& entry : opened.zip->entries) {
        without += !zipHasCrc(entry);
        deflated += entry.method != 0;
        if (!entry.name.starts_with(folder)) continue;
        const std::string key = entry.name.substr(folder.size());
        const auto it = storages.find(key);
        if (it == storages.end()) {
            note(rule::fileUnreferenced, Severity::info,
                 fmt::format("the record data/{} belongs to no storage of the saved object", key),
                 entry.headerOffset);
            continue;
        }
        const auto bytes = storageBytes(it->second);
        if (bytes.ok() && entry.size > *bytes) {
            note(rule::metaInconsistent, Severity::warning,
                 fmt::format("the record data/{} has {}, its storage only {}; torch 2.15 refuses it", key,
                             counted(entry.size, "byte"), countText(*bytes)),
                 entry.headerOffset);
        }
    }
    if (without > 0) {
        note(rule::integrityCrc, Severity::info,
             fmt::format("no checksums are stored for {} of {}", countText(without),
                         counted(opened.zip->entries.size(), "record")));
    }
    if (deflated > 0) {
        note(rule::metaInconsistent, Severity::info,
             fmt::format("the archive was packed again: {} deflated, which torch.save never does",
                         counted(deflated, "record")));
    }
    return notes;
}

Result<StorageExtent> findStorage(const Opened& opened, const TorchStorage& storage) {
    SHARDSCOPE_ASSIGN(const uint64_t bytes, storageBytes(storage));
    if (!opened.zip) {
        const auto place = opened.storages.find(storage.key);
        if (place == opened.storages.end())
            return damaged(fmt::format("storage '{}' is not stored", storage.key));
        return StorageExtent{nullptr, place->second.offset};
    }
    const ZipEntry* entry = opened.zip->find(fmt::format("{}/data/{}", opened.prefix, storage.key));
    if (!entry) {
        return damaged(fmt::format("the archive has no record data/{}", storage.key))
            .byRule(rule::fileMissing);
    }
    if (entry->size < bytes) {
        return damaged(fmt::format("the record data/{} has {}, its storage needs {}", storage.key,
                                   counted(entry->size, "byte"), countText(bytes)),
                       entry->headerOffset)
            .byRule(rule::fileTruncated);
    }
    return StorageExtent{entry, 0};
}

std::shared_ptr<const ValueGraph> keepValues(ValueGraph&& graph, std::vector<NodeId*>& nodes) {
    constexpr size_t kSmall = 100'000;
    const auto whole = std::make_shared<const ValueGraph>(std::move(graph));
    if (whole->size() <= kSmall) return whole;
    ValueGraph kept;
    std::vector<NodeId> copies;
    for (const NodeId* node : nodes) {
        if (kept.size() > whole->size() / 4) return whole;
        copies.push_back(copyValue({whole, *node}, kept, whole->size() / 4));
        if (copies.back() == kNoNode) return whole;
    }
    for (size_t i = 0; i < nodes.size(); ++i)
        *nodes[i] = copies[i];
    return std::make_shared<const ValueGraph>(std::move(kept));
}

}  // namespace shardscope::torch_save
