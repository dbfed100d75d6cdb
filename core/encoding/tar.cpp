#include "encoding/tar.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/numbers.h"
#include "base/rule.h"
#include "base/text.h"

namespace shardscope {

namespace {

constexpr uint64_t kBlock = 512;
constexpr size_t kMostEntries = 1'000'000;
constexpr uint64_t kMostExtended = uint64_t{1} << 20;  // bytes of a long name or an extended header
constexpr uint64_t kMostNames = uint64_t{256} << 20;   // bytes of all names

struct Field {
    size_t at, length;
};
constexpr Field kName{0, 100}, kSize{124, 12}, kModified{136, 12}, kChecksum{148, 8}, kPrefix{345, 155};
constexpr size_t kType = 156, kMagic = 257;

std::string_view textIn(std::string_view block, Field field) {
    const std::string_view text = block.substr(field.at, field.length);
    return text.substr(0, text.find('\0'));
}

// Octal digits, or as GNU writes what has more of them: big-endian with the highest bit set.
std::optional<uint64_t> numberIn(std::string_view block, Field field) {
    std::string_view text = block.substr(field.at, field.length);
    uint64_t value = 0;
    if (static_cast<unsigned char>(text[0]) == 0x80) {
        for (const char c : text.substr(1)) {
            if (value >> 56 != 0) return std::nullopt;
            value = value << 8 | static_cast<unsigned char>(c);
        }
        return value;
    }
    while (!text.empty() && text[0] == ' ')
        text.remove_prefix(1);
    for (const char c : text.substr(0, text.find_first_of(std::string_view(" \0", 2)))) {
        if (c < '0' || c > '7' || value >> 61 != 0) return std::nullopt;
        value = value << 3 | static_cast<uint64_t>(c - '0');
    }
    return value;
}

bool hasChecksum(std::string_view block) {
    uint64_t sum = 0;
    for (size_t i = 0; i < block.size(); ++i) {
        const bool own = i >= kChecksum.at && i < kChecksum.at + kChecksum.length;
        sum += own ? ' ' : static_cast<unsigned char>(block[i]);
    }
    return numberIn(block, kChecksum) == sum;
}

bool isZero(std::string_view block) {
    return std::ranges::all_of(block, [](char c) { return c == 0; });
}

// "./a/b/" as "a/b".
std::string plainName(std::string_view name) {
    while (name.starts_with("./"))
        name.remove_prefix(2);
    while (name.ends_with('/'))
        name.remove_suffix(1);
    return std::string(name == "." ? std::string_view() : name);
}

struct Entry {
    DirectoryEntry::Kind kind = DirectoryEntry::Kind::file;
    uint64_t offset = 0, size = 0;
    int64_t modifiedNs = 0;
};

// A part of the archive as a file.
class FileInTar final : public ReadFile {
  public:
    FileInTar(std::shared_ptr<const ReadFile> archive, const Entry& entry, std::string path)
        : archive_(std::move(archive)), offset_(entry.offset), size_(entry.size), path_(std::move(path)) {}

    const std::string& path() const override { return path_; }
    uint64_t size() const override { return size_; }
    Status readAt(uint64_t offset, std::span<std::byte> buffer) const override {
        SHARDSCOPE_TRY(check(offset, buffer.size()));
        return archive_->readAt(offset_ + offset, buffer);
    }
    Status readBulk(uint64_t offset, std::span<std::byte> buffer) const override {
        SHARDSCOPE_TRY(check(offset, buffer.size()));
        return archive_->readBulk(offset_ + offset, buffer);
    }
    size_t readCached(uint64_t offset, std::span<std::byte> buffer) const override {
        if (!rangeFits(offset, buffer.size(), size_)) return 0;
        return archive_->readCached(offset_ + offset, buffer);
    }
    Result<Fingerprint> fingerprint() const override { return archive_->fingerprint(); }

  private:
    Status check(uint64_t offset, uint64_t length) const {
        if (rangeFits(offset, length, size_)) return {};
        return makeError(ErrorCode::io, "a read past the end of the file").inFile(path_).at(offset);
    }

    const std::shared_ptr<const ReadFile> archive_;
    const uint64_t offset_, size_;
    const std::string path_;
};

// What an archive holds, by name.
struct Archive {
    std::shared_ptr<const ReadFile> file;
    std::map<std::string, Entry, std::less<>> entries;
    bool whole = false;  // its end is marked, by a block of zeros
};

class ArchiveReader {
  public:
    explicit ArchiveReader(std::shared_ptr<const ReadFile> file) { archive_.file = std::move(file); }

    Result<Archive> read() {
        while (at_ < archive_.file->size()) {
            // An archive that was cut is told by what is missing.
            if (archive_.file->size() - at_ < kBlock) break;
            std::array<char, kBlock> bytes;
            SHARDSCOPE_TRY(archive_.file->readAt(at_, std::as_writable_bytes(std::span(bytes))));
            const std::string_view block(bytes.data(), bytes.size());
            if (isZero(block)) {
                archive_.whole = archive_.file->size() % kBlock == 0;
                break;
            }
            if (!hasChecksum(block)) return wrong("has a header with a wrong checksum");
            SHARDSCOPE_TRY(addEntry(block));
        }
        return std::move(archive_);
    }

  private:
    Error wrong(std::string message) const {
        return damaged(std::move(message), at_).inFile(archive_.file->path()).byRule(rule::metaInconsistent);
    }

    Status addEntry(std::string_view block) {
        if (++count_ > kMostEntries)
            return makeError(ErrorCode::limit, "holds more than a million entries")
                .inFile(archive_.file->path());
        const char type = block[kType];
        auto size = numberIn(block, kSize);
        if (!size) return wrong("has an entry without a size");
        const bool extended = type == 'L' || type == 'K' || type == 'x' || type == 'g';
        if (!extended && size_) size = size_;
        const uint64_t data = at_ + kBlock;
        uint64_t padded = 0, next = 0;
        if (!checkedAlignUp(*size, kBlock, padded) || !checkedAdd(data, padded, next))
            return wrong("has an entry whose size overflows");
        if (extended) {
            SHARDSCOPE_TRY(readExtended(type, data, *size));
            at_ = next;
            return {};
        }
        Entry entry{DirectoryEntry::Kind::other, data, *size, 0};
        if (type == '0' || type == '\0' || type == '7') entry.kind = DirectoryEntry::Kind::file;
        if (type == '5') entry = {DirectoryEntry::Kind::directory, data, 0, 0};
        entry.modifiedNs =
            static_cast<int64_t>(numberIn(block, kModified).value_or(0) & 0xffffffff) * 1'000'000'000;
        SHARDSCOPE_TRY(addNamed(nameIn(block), entry));
        name_.clear();
        size_.reset();
        at_ = next;
        return {};
    }

    std::string nameIn(std::string_view block) const {
        if (!name_.empty()) return name_;
        const std::string_view name = textIn(block, kName);
        const bool ustar = block.substr(kMagic, 6) == std::string_view("ustar\0", 6);
        const std::string_view prefix = ustar ? textIn(block, kPrefix) : std::string_view();
        return prefix.empty() ? std::string(name) : fmt::format("{}/{}", prefix, name);
    }

    Status addNamed(std::string_view stated, const Entry& entry) {
        const std::string name = plainName(stated);
        if (name.empty()) return {};
        if (Status safe = checkRelativeName(name); !safe.ok())
            return std::move(safe).error().inFile(archive_.file->path());
        names_ += name.size();
        if (names_ > kMostNames)
            return makeError(ErrorCode::limit, "the names in it are too long").inFile(archive_.file->path());
        archive_.entries.insert_or_assign(name, entry);
        for (size_t slash = name.rfind('/'); slash != name.npos && slash > 0;
             slash = name.rfind('/', slash - 1)) {
            const auto [at, fresh] = archive_.entries.try_emplace(name.substr(0, slash));
            if (!fresh) break;
            at->second = {DirectoryEntry::Kind::directory, 0, 0, entry.modifiedNs};
        }
        return {};
    }

    // A long name of the next entry, or its pax header; what is for all entries is of no interest here.
    Status readExtended(char type, uint64_t offset, uint64_t size) {
        if (type != 'L' && type != 'x') return {};
        if (size > kMostExtended)
            return makeError(ErrorCode::limit, "an extended header is too long")
                .inFile(archive_.file->path())
                .at(offset);
        if (!rangeFits(offset, size, archive_.file->size())) return {};
        std::string text(static_cast<size_t>(size), '\0');
        SHARDSCOPE_TRY(archive_.file->readAt(offset, std::as_writable_bytes(std::span(text))));
        if (type == 'L')
            name_ = text.substr(0, text.find('\0'));
        else if (!readRecords(text))
            return wrong("has an extended header that cannot be parsed");
        return {};
    }

    // "30 path=a/b\n": the length is that of the whole record.
    bool readRecords(std::string_view text) {
        while (!text.empty()) {
            std::string_view rest = text;
            const auto length = takeNumber<uint64_t>(rest, text.size());
            const size_t before = text.size() - rest.size();
            if (!length || *length < before + 2 || !rest.starts_with(' ') || text[*length - 1] != '\n')
                return false;
            const std::string_view record = text.substr(before + 1, *length - before - 2);
            if (record.starts_with("path=")) name_ = record.substr(5);
            if (record.starts_with("size=")) {
                size_ = parseNumber<uint64_t>(record.substr(5));
                if (!size_) return false;
            }
            text.remove_prefix(*length);
        }
        return true;
    }

    Archive archive_;
    uint64_t at_ = 0, names_ = 0;
    size_t count_ = 0;
    std::string name_;              // of the next entry
    std::optional<uint64_t> size_;  // of the next entry
};

// A directory of an archive; `below` is its name in it.
class TarDirectory final : public Directory {
  public:
    TarDirectory(std::shared_ptr<const Archive> archive, std::string below)
        : archive_(std::move(archive)),
          below_(std::move(below)),
          path_(below_.empty() ? archive_->file->path() : joinPath(archive_->file->path(), below_)) {}

    const std::string& path() const override { return path_; }

    Result<std::vector<DirectoryEntry>> list(std::string_view subdirectory) const override {
        std::string start = subdirectory.empty() ? below_ : inside(subdirectory);
        if (!start.empty()) {
            SHARDSCOPE_ASSIGN(const Entry* entry, find(start));
            if (entry->kind != DirectoryEntry::Kind::directory)
                return makeError(ErrorCode::notFound, "is not a directory").inFile(path_ + '/' + start);
            start += '/';
        }
        std::vector<DirectoryEntry> out;
        for (auto at = archive_->entries.lower_bound(start);
             at != archive_->entries.end() && at->first.starts_with(start);) {
            const std::string name = at->first.substr(start.size());
            out.push_back({name, at->second.kind, at->second.size, at->second.modifiedNs});
            // '0' is behind '/': past all that is below it. Names between them, "a-b", are no children of
            // "a".
            at = archive_->entries.upper_bound(at->first);
            while (at != archive_->entries.end() && at->first.starts_with(start) &&
                   at->first.find('/', start.size()) != std::string::npos)
                at = archive_->entries.lower_bound(at->first.substr(0, at->first.find('/', start.size())) +
                                                   '0');
        }
        return out;
    }

    Result<std::shared_ptr<const ReadFile>> openFile(std::string_view name) const override {
        SHARDSCOPE_TRY(checkRelativeName(name));
        SHARDSCOPE_ASSIGN(const Entry* entry, find(inside(name)));
        const std::string path = joinPath(path_, name);
        if (entry->kind != DirectoryEntry::Kind::file)
            return makeError(ErrorCode::unsafe, "is not a regular file of the archive")
                .inFile(path)
                .byRule(rule::securityPath);
        if (!rangeFits(entry->offset, entry->size, archive_->file->size()))
            return damaged("the archive ends before the end of this file", archive_->file->size())
                .inFile(path)
                .byRule(rule::fileTruncated);
        return std::shared_ptr<const ReadFile>(std::make_shared<FileInTar>(archive_->file, *entry, path));
    }

    Result<DirectoryEntry> stat(std::string_view name) const override {
        SHARDSCOPE_TRY(checkRelativeName(name));
        SHARDSCOPE_ASSIGN(const Entry* entry, find(inside(name)));
        return DirectoryEntry{std::string(name), entry->kind, entry->size, entry->modifiedNs};
    }

    Result<std::shared_ptr<WriteFile>> createFile(std::string_view, bool) override { return readOnly(); }
    Status removeFile(std::string_view) override { return readOnly(); }
    Status sync() override { return {}; }

  private:
    Error readOnly() const {
        return makeError(ErrorCode::permission, "an archive is not written to").inFile(path_);
    }
    std::string inside(std::string_view name) const {
        return below_.empty() ? std::string(name) : joinPath(below_, name);
    }
    Result<const Entry*> find(const std::string& name) const {
        const auto at = archive_->entries.find(name);
        if (at != archive_->entries.end()) return &at->second;
        return makeError(ErrorCode::notFound, "is not there").inFile(joinPath(archive_->file->path(), name));
    }

    const std::shared_ptr<const Archive> archive_;
    const std::string below_, path_;
};

// Another file system, with one archive as a directory. Nothing is written into that.
class ArchiveFileSystem final : public FileSystem {
  public:
    ArchiveFileSystem(std::shared_ptr<FileSystem> files, std::shared_ptr<const Archive> archive,
                      std::string path)
        : files_(std::move(files)), archive_(std::move(archive)), path_(std::move(path)) {}

    Result<std::shared_ptr<Directory>> openDirectory(const std::string& path) override {
        const auto name = nameInside(path);
        if (!name) return files_->openDirectory(path);
        if (!name->empty()) {
            SHARDSCOPE_ASSIGN(const DirectoryEntry entry, stat(path));
            if (entry.kind != DirectoryEntry::Kind::directory)
                return makeError(ErrorCode::notFound, "is not a directory").inFile(path);
        }
        return std::shared_ptr<Directory>(std::make_shared<TarDirectory>(archive_, *name));
    }
    Result<DirectoryEntry> stat(const std::string& path) override {
        const auto name = nameInside(path);
        if (!name) return files_->stat(path);
        if (!name->empty()) return TarDirectory(archive_, "").stat(*name);
        SHARDSCOPE_ASSIGN(DirectoryEntry entry, files_->stat(path_));
        entry.kind = DirectoryEntry::Kind::directory;
        return entry;
    }
    Status makeDirectory(const std::string& path) override { return files_->makeDirectory(path); }
    Status rename(const std::string& from, const std::string& to) override {
        return files_->rename(from, to);
    }
    Status exchange(const std::string& a, const std::string& b) override { return files_->exchange(a, b); }
    Status removeTree(const std::string& path) override { return files_->removeTree(path); }
    Status syncDirectory(const std::string& path) override { return files_->syncDirectory(path); }
    Result<uint64_t> freeBytes(const std::string& path) override { return files_->freeBytes(path); }
    Result<std::shared_ptr<WriteFile>> createScratch(const std::string& directory) override {
        return files_->createScratch(directory);
    }
    Result<std::shared_ptr<const ReadFile>> reopen(const std::shared_ptr<WriteFile>& file) override {
        return files_->reopen(file);
    }
    std::string shown(const std::string& path) const override { return files_->shown(path); }
    bool whole() const { return archive_->whole; }

  private:
    // Of a path in the archive; empty for the archive itself.
    std::optional<std::string> nameInside(std::string path) const {
        while (path.size() > 1 && path.ends_with('/'))
            path.pop_back();
        if (path == path_) return std::string();
        if (!path.starts_with(path_ + '/')) return std::nullopt;
        return path.substr(path_.size() + 1);
    }

    const std::shared_ptr<FileSystem> files_;
    const std::shared_ptr<const Archive> archive_;
    const std::string path_;
};

bool isArchiveName(std::string_view name) {
    return name.ends_with(".nemo") || name.ends_with(".tar");
}

// Opens a file whose first bytes are those of an archive; null for other files. Errors: unsupported (gzip).
Result<std::shared_ptr<const ReadFile>> archiveAt(FileSystem& files, const std::string& path) {
    const std::shared_ptr<const ReadFile> none;
    const auto entry = files.stat(path);
    if (!entry.ok() || entry->kind != DirectoryEntry::Kind::file) return none;
    const auto [parent, name] = splitPath(path);
    SHARDSCOPE_ASSIGN(const auto directory, files.openDirectory(parent));
    SHARDSCOPE_ASSIGN(auto file, directory->openFile(name));
    std::array<char, kBlock> head{};
    const size_t length = static_cast<size_t>(std::min<uint64_t>(head.size(), file->size()));
    SHARDSCOPE_TRY(file->readAt(0, std::as_writable_bytes(std::span(head).first(length))));
    const std::string_view start(head.data(), length);
    if (start.starts_with("\x1f\x8b"))
        return unsupported(
                   "is an archive that is compressed as a whole, so that nothing in it can be read by "
                   "position")
            .inFile(path)
            .withHint("unpack it (tar -xzf) and name the directory");
    return isTarStart(start) ? std::move(file) : none;
}

}  // namespace

bool isTarStart(std::string_view head) {
    return head.size() >= kBlock && head.substr(kMagic, 5) == "ustar" && hasChecksum(head.substr(0, kBlock));
}

Result<std::shared_ptr<Directory>> openTar(std::shared_ptr<const ReadFile> file) {
    SHARDSCOPE_ASSIGN(Archive archive, ArchiveReader(std::move(file)).read());
    return std::shared_ptr<Directory>(
        std::make_shared<TarDirectory>(std::make_shared<const Archive>(std::move(archive)), ""));
}

bool isWholeArchive(const FileSystem& files) {
    const auto* archive = dynamic_cast<const ArchiveFileSystem*>(&files);
    return !archive || archive->whole();
}

Result<std::shared_ptr<FileSystem>> withArchive(std::shared_ptr<FileSystem> files, const std::string& path) {
    for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
        const std::string part = path.substr(0, end);
        if (isArchiveName(part)) {
            SHARDSCOPE_ASSIGN(auto file, archiveAt(*files, part));
            if (file) {
                SHARDSCOPE_ASSIGN(Archive archive, ArchiveReader(std::move(file)).read());
                return std::shared_ptr<FileSystem>(std::make_shared<ArchiveFileSystem>(
                    std::move(files), std::make_shared<const Archive>(std::move(archive)), part));
            }
        }
        if (end == path.npos) return files;
    }
}

}  // namespace shardscope
