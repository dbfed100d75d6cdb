#include "formats/torch_save/torch_save.h"

#include <algorithm>

#include <fmt/format.h>

#include "encoding/torch_file.h"
#include "formats/torch_save/reader.h"
#include "formats/torch_save/writer.h"

namespace shardscope {

namespace {

// The file itself, or the only file of a directory; not what one rank wrote of a DCP, which is made of such
// files without their names (dcp).
std::string entryOf(const Source& source) {
    if (!source.entry.empty()) return source.entry;
    if (source.entries.size() == 1 && source.entries[0].kind == DirectoryEntry::Kind::file &&
        !source.entries[0].name.ends_with(".distcp"))
        return source.entries[0].name;
    return {};
}

Probe probeSet(const Source& source) {
    for (const DirectoryEntry& entry : source.entries) {
        if (entry.kind == DirectoryEntry::Kind::file && torch_save::isIndexFile(entry.name))
            return {Probe::Match::certain, "has " + entry.name};
    }
    const auto numbered = std::ranges::find_if(source.entries, torch_save::isNumberedFile);
    if (numbered == source.entries.end()) return {};
    return {Probe::Match::possible, "has " + numbered->name};
}

Probe probe(const Source& source) {
    if (torch_save::isIndexFile(source.entry)) return {Probe::Match::certain, "is an index of .bin files"};
    const std::string entry = entryOf(source);
    if (source.entry.empty()) {
        if (const Probe set = probeSet(source); set.match != Probe::Match::no) return set;
    }
    if (entry.empty()) return {};
    auto file = source.directory->openFile(entry);
    if (!file.ok()) return {};
    const auto first = torch_save::firstBytesOf(**file);
    if (!first.ok()) return {};
    switch (torch_save::fileKind(*first)) {
        case torch_save::FileKind::archive:
            return {Probe::Match::certain, "a zip archive with torch's records"};
        case torch_save::FileKind::otherZip:
            return {Probe::Match::possible, "a zip archive"};
        case torch_save::FileKind::legacy:
            return {Probe::Match::certain, "begins with torch's magic number"};
        case torch_save::FileKind::tar:
            return {Probe::Match::certain, "a tar archive as the first versions of torch wrote"};
        case torch_save::FileKind::preview:
            return {Probe::Match::certain, "begins with PYTORCH1"};
        case torch_save::FileKind::none:
            break;
    }
    return {};
}

Result<std::unique_ptr<Reader>> open(const Source& source, const OpenOptions& options) {
    if (torch_save::isIndexFile(source.entry)) return torch_save::openSet(source, options);
    if (source.entry.empty() && probeSet(source).match != Probe::Match::no)
        return torch_save::openSet(source, options);
    const std::string entry = entryOf(source);
    if (entry.empty()) {
        return unsupported("a torch.save checkpoint is one file, this is a directory")
            .inFile(source.display)
            .withHint("name the file itself");
    }
    return torch_save::openFile(source, entry, options);
}

}  // namespace

const Format& torchSaveFormat() {
    static const Format format{
        .about =
            {.name = "torch",
             .title = "torch.save file",
             .synonyms = {"torch_save", "torch.save", "pt"},
             .suffixes = {"pt", "pth", "bin", "ckpt"},
             .reads = true,
             .writes = true,
             .generations = {"zip archives of torch 1.6 to 2.15", "legacy files of torch 0.2 to 1.5",
                             "Hugging Face's pytorch_model-IIIII-of-NNNNN.bin, with an index or without"},
             .objects = true,
             .aliases = true,
             .nesting = true,
             .singleFile = true},
        .probe = probe,
        .open = open,
        .cannotHold = torch_save::cannotHold,
        .layout = torch_save::layOut};
    return format;
}

}  // namespace shardscope
