#include "formats/torch_save/torch_save.h"

#include <fmt/format.h>

#include "formats/torch_save/reader.h"
#include "formats/torch_save/writer.h"

namespace shardscope {

namespace {

using torch_save::isLegacyStart;

constexpr uint64_t kFirstBytes = 512;
constexpr std::string_view kZipMagic("PK\3\4", 4);
constexpr std::string_view kPreviewMagic = "PYTORCH1";

enum class Kind { none, archive, otherZip, legacy, tar, preview };

// What the first bytes say. Old tar files have their magic at 257, as all tar files; torch's begin with a
// member of theirs.
Kind kindOf(std::string_view first) {
    if (first.starts_with(kZipMagic)) {
        // The name of the first record stands at 30.
        if (first.size() < 30) return Kind::otherZip;
        const size_t size = static_cast<uint8_t>(first[26]) + 256U * static_cast<uint8_t>(first[27]);
        const std::string_view name = first.substr(30, size);
        const size_t slash = name.find('/');
        if (slash == name.npos) return Kind::otherZip;
        const std::string_view inside = name.substr(slash + 1);
        const bool known = inside.empty() || inside == "data.pkl" || inside == "version" ||
                           inside == ".data/version" || inside == "byteorder" || inside == "constants.pkl" ||
                           inside.starts_with("data/") || inside.starts_with("code/");
        return known ? Kind::archive : Kind::otherZip;
    }
    if (isLegacyStart(first)) return Kind::legacy;
    if (first.starts_with(kPreviewMagic)) return Kind::preview;
    if (first.size() >= 263 && first.substr(257, 5) == "ustar") {
        const std::string_view member = first.substr(0, first.find('\0'));
        for (std::string_view known : {"sys_info", "pickle", "storages", "tensors", "./sys_info"}) {
            if (member == known) return Kind::tar;
        }
    }
    return Kind::none;
}

// The file itself, or the only file of a directory.
std::string entryOf(const Source& source) {
    if (!source.entry.empty()) return source.entry;
    if (source.entries.size() == 1 && source.entries[0].kind == DirectoryEntry::Kind::file)
        return source.entries[0].name;
    return {};
}

class TorchSaveFormat : public Format {
  public:
    const FormatInfo& info() const override {
        static const FormatInfo info = [] {
            FormatInfo i;
            i.name = "torch";
            i.title = "torch.save file";
            i.reads = true;
            i.writes = true;
            i.generations = {"zip archives of torch 1.6 to 2.15", "legacy files of torch 0.2 to 1.5"};
            i.objects = true;
            i.aliases = true;
            i.nesting = true;
            i.singleFile = true;
            return i;
        }();
        return info;
    }

    Probe probe(const Source& source) const override {
        const std::string entry = entryOf(source);
        if (entry.empty()) return {};
        auto file = source.directory->openFile(entry);
        if (!file.ok()) return {};
        const auto first = firstBytes(**file);
        if (!first.ok()) return {};
        switch (kindOf(*first)) {
            case Kind::archive:
                return {Probe::Match::certain, "a zip archive with torch's records"};
            case Kind::otherZip:
                return {Probe::Match::possible, "a zip archive"};
            case Kind::legacy:
                return {Probe::Match::certain, "begins with torch's magic number"};
            case Kind::tar:
                return {Probe::Match::certain, "a tar archive as the first versions of torch wrote"};
            case Kind::preview:
                return {Probe::Match::certain, "begins with PYTORCH1"};
            case Kind::none:
                break;
        }
        return {};
    }

    Result<std::unique_ptr<Reader>> open(const Source& source, const OpenOptions& options) const override {
        const std::string entry = entryOf(source);
        if (entry.empty()) {
            return unsupported("a torch.save checkpoint is one file, this is a directory")
                .inFile(source.display)
                .withHint("name the file itself");
        }
        SHARDSCOPE_ASSIGN(auto file, source.directory->openFile(entry));
        SHARDSCOPE_ASSIGN(const std::string first, firstBytes(*file));
        const std::string path = file->path();
        if (first.empty()) return damaged("the file is empty", 0).inFile(path);
        torch_save::Opened opened;
        switch (kindOf(first)) {
            case Kind::archive:
            case Kind::otherZip: {
                SHARDSCOPE_ASSIGN(opened, torch_save::openArchive(std::move(file), options));
                break;
            }
            case Kind::legacy: {
                SHARDSCOPE_ASSIGN(opened, torch_save::openLegacy(std::move(file), options));
                break;
            }
            case Kind::tar:
                return unsupported("a tar archive of torch 0.1, which is not read")
                    .inFile(path)
                    .withHint(torch_save::kTarHint);
            case Kind::preview:
                return unsupported("a PYTORCH1 preview archive, which no released torch reads").inFile(path);
            case Kind::none:
                return damaged("the file begins neither like a zip archive nor like a legacy torch.save file",
                               0)
                    .inFile(path);
        }
        return torch_save::makeReader(std::move(opened), entry, source.fileSystem, options);
    }

    std::vector<LeftOut> cannotHold(const Catalog& wanted, const WriteOptions&) const override {
        return torch_save::cannotHold(wanted);
    }

    Result<std::unique_ptr<TargetLayout>> layout(const Catalog& wanted,
                                                 const WriteOptions& options) const override {
        return torch_save::layOut(wanted, options);
    }

  private:
    static Result<std::string> firstBytes(const ReadFile& file) {
        std::string first(std::min<uint64_t>(file.size(), kFirstBytes), '\0');
        SHARDSCOPE_TRY(file.readAt(0, std::as_writable_bytes(std::span(first))));
        return first;
    }
};

}  // namespace

const Format& torchSaveFormat() {
    static const TorchSaveFormat format;
    return format;
}

}  // namespace shardscope
