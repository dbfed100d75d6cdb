#include "formats/named_file_layout.h"

#include <fmt/format.h>

#include "base/units.h"
#include "encoding/safetensors_header.h"
#include "formats/entry_tree.h"

namespace shardscope {

NamedFileLayout::Entry NamedFileLayout::entryOf(ChunkId c) const {
    const ChunkInfo chunk = target_.chunk(c);
    return {std::string(target_.name(chunk.tensor)),
            target_.dtype(chunk.tensor),
            Dims(chunk.lengths.begin(), chunk.lengths.end()),
            bytesOf(c),
            {c}};
}

void NamedFileLayout::addText(std::string path, std::string text, bool metadata) {
    files.push_back({std::move(path), text.size(), metadata});
    contents_.emplace_back().texts.emplace_back(0, std::move(text));
}

void NamedFileLayout::placeEntry(const Entry& entry, uint64_t offset) {
    for (const ChunkId c : entry.chunks) {
        place(c, static_cast<FileId>(files.size() - 1), offset);
        offset += bytesOf(c);
    }
}

Status NamedFileLayout::addSafetensors(std::string path, std::vector<Entry> entries,
                                       const std::vector<std::pair<std::string, std::string>>& texts,
                                       safetensors::FileOrder how) {
    std::vector<safetensors::FileEntry> all;
    for (const Entry& entry : entries)
        all.push_back({entry.name, entry.dtype, entry.shape, entry.bytes, 0});
    SHARDSCOPE_ASSIGN(safetensors::FileLayout layout, safetensors::layOutFile(all, texts, how));
    addText(std::move(path), std::move(layout.head), false);
    files.back().size = layout.size;
    for (size_t e = 0; e < entries.size(); ++e) {
        placeEntry(entries[e], all[e].offset);
        if (entries[e].chunks.empty())
            contents_.back().texts.emplace_back(all[e].offset, std::move(entries[e].literal));
    }
    return {};
}

void NamedFileLayout::addStateDict(const std::string& path, const std::vector<Entry>& entries, bool plain) {
    auto archive = std::make_unique<TorchArchiveWriter>(archiveNameOf(path));
    const auto tensor = [&](size_t i) {
        archive->tensor(entries[i].dtype, entries[i].shape, i, entries[i].bytes);
    };
    PickleWriter& pickle = archive->pickle();
    if (plain) {
        pickle.emptyDict();
        pickle.put();
        if (!entries.empty()) pickle.mark();
        for (size_t i = 0; i < entries.size(); ++i) {
            pickle.text(entries[i].name);
            pickle.put();
            tensor(i);
        }
        if (!entries.empty()) pickle.setItems();
    } else {
        writeStateDict(
            pickle, entries.size(), [&](size_t i) -> std::string_view { return entries[i].name; }, tensor);
    }
    archive->finish();
    std::vector<ChunkId> storages;
    for (const Entry& entry : entries)
        storages.push_back(entry.chunks.front());
    addArchive(path, std::move(archive), std::move(storages));
    for (size_t i = 0; i < entries.size(); ++i)
        placeEntry(entries[i], contents_.back().archive->storageOffset(i));
}

void NamedFileLayout::addArchive(std::string path, std::unique_ptr<TorchArchiveWriter> archive,
                                 std::vector<ChunkId> storages) {
    files.push_back({std::move(path), archive->size(), false});
    for (size_t s = 0; s < storages.size(); ++s)
        place(storages[s], static_cast<FileId>(files.size() - 1), archive->storageOffset(s));
    contents_.push_back({{}, std::move(archive), std::move(storages)});
}

Status NamedFileLayout::fileLiterals(FileId file, std::span<const uint32_t> chunkCrcs,
                                     const LiteralSink& sink) const {
    const Content& content = contents_[file];
    for (const auto& [offset, text] : content.texts)
        SHARDSCOPE_TRY(sink(file, offset, std::as_bytes(std::span(text))));
    if (!content.archive) return {};
    std::vector<uint32_t> crcs;
    for (const ChunkId c : content.storages)
        crcs.push_back(chunkCrcs[c]);
    return content.archive->literals(
        crcs, [&](uint64_t at, std::span<const std::byte> bytes) { return sink(file, at, bytes); });
}

std::string archiveNameOf(std::string_view path) {
    return std::string(path.substr(0, path.rfind('.')));
}

std::string whyNotSafetensors(const Catalog& target, TensorId t, std::string_view whose) {
    const DType dtype = target.dtype(t);
    if (safetensors::storedDTypeName(dtype).empty() || dtype == DType::float4E2M1FNx2)
        return fmt::format("{} hold no {}", whose, dtypeName(dtype));
    if (!dtypeByteCount(dtype, static_cast<uint64_t>(target.elements(t))))
        return fmt::format("it does not fill whole bytes: {} of {}", counted(target.elements(t), "element"),
                           dtypeName(dtype));
    return {};
}

}  // namespace shardscope
