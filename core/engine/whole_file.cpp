#include "engine/whole_file.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/option_words.h"
#include "base/units.h"
#include "execute/executor.h"
#include "places/bucket_files.h"
#include "storage/named_path.h"
#include "storage/system_file.h"
#include "storage/url.h"

namespace shardscope {
namespace {

// What a crash has left under one name leaves others.
constexpr int kMostNames = 100;
// Of a name in that of its partial file: names have at most 255 bytes.
constexpr size_t kMostOfName = 200;

// Whether `file` is a path in the directory `place`, or that very path.
bool isWithin(const std::string& file, const std::string& place) {
    if (!schemeOf(file).empty() || !schemeOf(place).empty())
        return file == place ||
               (file.starts_with(place) && (place.ends_with('/') || file[place.size()] == '/'));
    const std::filesystem::path from = canonicalPath(place), to = canonicalPath(file);
    std::error_code error;
    return std::filesystem::is_directory(from, error)
               ? std::mismatch(from.begin(), from.end(), to.begin(), to.end()).first == from.end()
               : from == to;
}

}  // namespace

WholeFile::WholeFile(std::shared_ptr<FileSystem> fileSystem, const std::string& file, bool replace)
    : fileSystem_(std::move(fileSystem)), file_(file), parent_(splitPath(file).first), replace_(replace) {}

Result<std::unique_ptr<WholeFile>> WholeFile::begin(std::shared_ptr<FileSystem> fileSystem,
                                                    const std::string& file, uint64_t size, bool replace) {
    SHARDSCOPE_TRY(checkOnDisk(file));
    SHARDSCOPE_TRY(checkMayPut(*fileSystem, file, replace));
    std::unique_ptr<WholeFile> whole(new WholeFile(std::move(fileSystem), file, replace));
    SHARDSCOPE_TRY(whole->create(size));
    return whole;
}

Status WholeFile::create(uint64_t size) {
    SHARDSCOPE_TRY(parents_.make(*fileSystem_, file_));
    SHARDSCOPE_ASSIGN(directory_, fileSystem_->openDirectory(parent_));
    const std::string name = splitPath(file_).second.substr(0, kMostOfName);
    for (int n = 0;; ++n) {
        const std::string partial = fmt::format(".{}.{}-{}.partial", name, getpid(), n);
        auto made = directory_->createFile(partial);
        if (!made.ok() && made.error().code == ErrorCode::exists && n < kMostNames) continue;
        SHARDSCOPE_ASSIGN(out_, std::move(made));
        partial_ = partial;
        return out_->allocate(size);
    }
}

WholeFile::~WholeFile() {
    if (!partial_.empty()) (void)directory_->removeFile(partial_);
}

Status WholeFile::writeAt(uint64_t offset, std::span<const std::byte> bytes) {
    return out_->writeAt(offset, bytes);
}

Status WholeFile::append(std::span<const std::byte> bytes) {
    SHARDSCOPE_TRY(out_->writeBulk(written_, bytes));
    written_ += bytes.size();
    return {};
}

Status WholeFile::putInPlace() {
    SHARDSCOPE_TRY(out_->sync());
    const std::string from = joinPath(parent_, partial_);
    SHARDSCOPE_TRY(checkMayPut(*fileSystem_, file_, replace_));
    if (fileSystem_->stat(file_).ok()) {
        // The file that was replaced may now be under the other name, and goes with it.
        SHARDSCOPE_TRY(fileSystem_->exchange(from, file_));
    } else {
        SHARDSCOPE_TRY(fileSystem_->rename(from, file_));
        partial_.clear();
    }
    return fileSystem_->syncDirectory(parent_);
}

Status putWholeFile(const std::shared_ptr<FileSystem>& fileSystem, const std::string& file,
                    std::string_view bytes, bool replace) {
    if (!schemeOf(file).empty()) return putObject(file, std::as_bytes(std::span(bytes)));
    SHARDSCOPE_ASSIGN(const auto whole, WholeFile::begin(fileSystem, file, bytes.size(), replace));
    SHARDSCOPE_TRY(whole->append(std::as_bytes(std::span(bytes))));
    return whole->putInPlace();
}

Status checkOnDisk(const std::string& file) {
    return schemeOf(file).empty()
               ? Status()
               : makeError(ErrorCode::impossible, "such a file is not written to a bucket or to a web server")
                     .inFile(file)
                     .withHint("write to a directory, and upload that");
}

Status checkParent(FileSystem& fileSystem, const std::string& file) {
    const std::string_view scheme = schemeOf(file);
    if (scheme == "s3" || scheme == "gs") return {};
    SHARDSCOPE_TRY(checkOnDisk(file));
    SHARDSCOPE_TRY(checkScheme(file));
    const std::string above = nearestAbove(fileSystem, file);
    const auto parent = fileSystem.stat(above);
    if (parent.ok() && parent->kind == DirectoryEntry::Kind::directory) return {};
    return makeError(ErrorCode::io, fmt::format("'{}', which is to hold the file, is not a directory", above))
        .inFile(file);
}

Status checkMayPut(FileSystem& fileSystem, const std::string& file, bool replace) {
    SHARDSCOPE_TRY(checkParent(fileSystem, file));
    if (!schemeOf(file).empty()) return checkMayPutObject(file);
    const auto there = fileSystem.stat(file);
    if (!there.ok()) return there.error().code == ErrorCode::notFound ? Status() : Status(there.error());
    if (there->kind != DirectoryEntry::Kind::file)
        return makeError(ErrorCode::exists, "what is there is not a file").inFile(file);
    if (!replace)
        return makeError(ErrorCode::exists, "the file is already there")
            .inFile(file)
            .withHint(option("overwrite") + " replaces it");
    return {};
}

Result<std::string> readWholeFile(const std::string& file, uint64_t most) {
    Descriptor fd(::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    if (!fd.valid()) return systemError(errno, "open", file);
    SHARDSCOPE_ASSIGN(const auto opened, makeReadFile(std::move(fd), file, IoMode::buffered));
    if (opened->size() > most)
        return makeError(ErrorCode::limit, fmt::format("the file has {}, more than the {} that are read",
                                                       counted(opened->size(), "byte"), countText(most)))
            .inFile(file);
    std::string text(opened->size(), '\0');
    SHARDSCOPE_TRY(opened->readAt(0, std::as_writable_bytes(std::span(text))));
    return text;
}

Status checkOutside(const std::string& file, const std::string& checkpoint) {
    if (checkpoint.empty() || !isWithin(file, checkpoint)) return {};
    return makeError(ErrorCode::usage, "the file would be inside the checkpoint, which is never written into")
        .inFile(file)
        .withHint("name a file outside of it");
}

Status checkBeside(const std::string& file, const std::string& destination) {
    for (const std::string& place : {destination, stagingPath(destination), asidePath(destination)}) {
        if (isWithin(file, place))
            return makeError(ErrorCode::usage, "the file would be part of what the conversion writes")
                .inFile(file)
                .withHint("name a file beside the destination");
    }
    return {};
}

}  // namespace shardscope
