#include "support/memory_file_system.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "base/checked.h"

namespace shardscope::test {

struct MemoryFileSystem::File {
    mutable std::mutex mutex;
    std::vector<std::byte> bytes;
    std::vector<std::byte> durable;  // content at the last sync
    uint64_t inode = 0;
    int64_t version = 0;
    bool locked = false;
};

namespace {

std::string clean(std::string path) {
    while (path.size() > 1 && path.back() == '/')
        path.pop_back();
    return path;
}

}  // namespace

class MemoryReadFile final : public ReadFile {
  public:
    MemoryReadFile(std::shared_ptr<MemoryFileSystem> system, std::shared_ptr<MemoryFileSystem::File> file,
                   std::string path)
        : system_(std::move(system)), file_(std::move(file)), path_(std::move(path)) {
        std::lock_guard lock(file_->mutex);
        size_ = file_->bytes.size();
    }
    const std::string& path() const override { return path_; }
    uint64_t size() const override { return size_; }
    Status readAt(uint64_t offset, std::span<std::byte> buffer) const override {
        system_->record(Op::read, path_, offset, buffer.size());
        std::lock_guard lock(file_->mutex);
        if (!rangeFits(offset, buffer.size(), file_->bytes.size())) {
            return makeError(offset + buffer.size() <= size_ ? ErrorCode::changed : ErrorCode::damaged,
                             "the file ends early")
                .inFile(path_)
                .at(offset);
        }
        if (!buffer.empty()) std::memcpy(buffer.data(), file_->bytes.data() + offset, buffer.size());
        return {};
    }
    Result<Fingerprint> fingerprint() const override {
        std::lock_guard lock(file_->mutex);
        return Fingerprint{1, file_->inode, file_->bytes.size(), file_->version, file_->version};
    }

  private:
    std::shared_ptr<MemoryFileSystem> system_;
    std::shared_ptr<MemoryFileSystem::File> file_;
    std::string path_;
    uint64_t size_ = 0;
};

class MemoryWriteFile final : public WriteFile {
  public:
    MemoryWriteFile(std::shared_ptr<MemoryFileSystem> system, std::shared_ptr<MemoryFileSystem::File> file,
                    std::string path)
        : system_(std::move(system)), file_(std::move(file)), path_(std::move(path)) {}
    const std::string& path() const override { return path_; }
    Status allocate(uint64_t size) override {
        system_->record(Op::allocate, path_, 0, size);
        if (size > system_->freeBytes_) return makeError(ErrorCode::noSpace, "no space").inFile(path_);
        std::lock_guard lock(file_->mutex);
        file_->bytes.resize(size);
        return {};
    }
    ~MemoryWriteFile() override {
        std::lock_guard lock(file_->mutex);
        if (holdsLock_) file_->locked = false;
    }
    Result<bool> tryLock() override {
        std::lock_guard lock(file_->mutex);
        if (file_->locked) return holdsLock_;
        return file_->locked = holdsLock_ = true;
    }
    Status writeAt(uint64_t offset, std::span<const std::byte> bytes) override {
        system_->record(Op::write, path_, offset, bytes.size());
        std::lock_guard lock(file_->mutex);
        if (file_->bytes.size() < offset + bytes.size()) file_->bytes.resize(offset + bytes.size());
        if (!bytes.empty()) std::memcpy(file_->bytes.data() + offset, bytes.data(), bytes.size());
        ++file_->version;
        return {};
    }
    Status sync() override {
        system_->record(Op::sync, path_);
        std::lock_guard lock(file_->mutex);
        file_->durable = file_->bytes;
        return {};
    }
    const std::shared_ptr<MemoryFileSystem::File>& file() const { return file_; }

  private:
    std::shared_ptr<MemoryFileSystem> system_;
    std::shared_ptr<MemoryFileSystem::File> file_;
    std::string path_;
    bool holdsLock_ = false;
};

class MemoryDirectory final : public Directory {
  public:
    MemoryDirectory(std::shared_ptr<MemoryFileSystem> system, std::string path)
        : system_(std::move(system)), path_(std::move(path)) {}
    const std::string& path() const override { return path_; }

    Result<std::vector<DirectoryEntry>> list(std::string_view subdirectory) const override {
        const std::string base = (subdirectory.empty() ? path_ : join(subdirectory)) + "/";
        system_->record(Op::list, base);
        std::lock_guard lock(system_->mutex_);
        std::vector<DirectoryEntry> entries;
        for (const auto& [path, file] : system_->files_) {
            if (path.starts_with(base) && path.find('/', base.size()) == std::string::npos) {
                std::lock_guard fileLock(file->mutex);
                entries.push_back({path.substr(base.size()), DirectoryEntry::Kind::file, file->bytes.size()});
            }
        }
        for (const std::string& path : system_->directories_) {
            if (path.starts_with(base) && path.find('/', base.size()) == std::string::npos) {
                entries.push_back({path.substr(base.size()), DirectoryEntry::Kind::directory, 0});
            }
        }
        std::sort(entries.begin(), entries.end(),
                  [](const auto& a, const auto& b) { return a.name < b.name; });
        return entries;
    }

    Result<std::shared_ptr<const ReadFile>> openFile(std::string_view name) const override {
        SHARDSCOPE_TRY(checkRelativeName(name));
        system_->record(Op::open, join(name));
        std::shared_ptr<MemoryFileSystem::File> file;
        {
            std::lock_guard lock(system_->mutex_);
            if (system_->directories_.contains(join(name))) {
                return makeError(ErrorCode::unsafe, "expected a regular file, found a directory")
                    .inFile(join(name));
            }
            const auto found = system_->files_.find(join(name));
            if (found == system_->files_.end())
                return makeError(ErrorCode::notFound, "no such file").inFile(join(name));
            file = found->second;
        }
        return std::shared_ptr<const ReadFile>(std::make_shared<MemoryReadFile>(system_, file, join(name)));
    }

    Result<DirectoryEntry> stat(std::string_view name) const override {
        SHARDSCOPE_TRY(checkRelativeName(name));
        SHARDSCOPE_ASSIGN(DirectoryEntry entry, system_->stat(join(name)));
        entry.name = name;
        return entry;
    }

    Result<std::shared_ptr<WriteFile>> createFile(std::string_view name, bool existing) override {
        SHARDSCOPE_TRY(checkRelativeName(name));
        const std::string path = join(name);
        system_->record(Op::open, path);
        std::lock_guard lock(system_->mutex_);
        auto& file = system_->files_[path];
        if (file && !existing) return makeError(ErrorCode::exists, "the file exists").inFile(path);
        if (!file) file = system_->makeFile();
        for (std::string up = splitPath(path).first; up.size() > path_.size(); up = splitPath(up).first) {
            system_->directories_.insert(up);
        }
        return std::shared_ptr<WriteFile>(std::make_shared<MemoryWriteFile>(system_, file, path));
    }

    Status removeFile(std::string_view name) override {
        system_->record(Op::remove, join(name));
        std::lock_guard lock(system_->mutex_);
        if (system_->files_.erase(join(name)) == 0)
            return makeError(ErrorCode::notFound, "no such file").inFile(join(name));
        return {};
    }

    Status sync() override { return system_->syncDirectory(path_); }

  private:
    std::string join(std::string_view name) const { return fmt::format("{}/{}", path_, name); }
    std::shared_ptr<MemoryFileSystem> system_;
    std::string path_;
};

MemoryFileSystem::MemoryFileSystem() {
    directories_.insert("/");
}

std::shared_ptr<MemoryFileSystem::File> MemoryFileSystem::makeFile() {
    auto file = std::make_shared<File>();
    file->inode = nextInode_++;
    return file;
}

void MemoryFileSystem::record(Op op, const std::string& path, uint64_t offset, uint64_t length) {
    if (!recording_) return;
    std::lock_guard lock(mutex_);
    records_.push_back({op, path, offset, length});
}

Result<std::shared_ptr<Directory>> MemoryFileSystem::openDirectory(const std::string& path) {
    record(Op::open, path);
    std::lock_guard lock(mutex_);
    if (!directories_.contains(clean(path)))
        return makeError(ErrorCode::notFound, "no such directory").inFile(path);
    return std::shared_ptr<Directory>(std::make_shared<MemoryDirectory>(shared_from_this(), clean(path)));
}

Status MemoryFileSystem::makeDirectory(const std::string& path) {
    std::lock_guard lock(mutex_);
    if (files_.contains(clean(path)) || !directories_.insert(clean(path)).second) {
        return makeError(ErrorCode::exists, "it exists").inFile(path);
    }
    return {};
}

Result<DirectoryEntry> MemoryFileSystem::stat(const std::string& path) {
    std::lock_guard lock(mutex_);
    const std::string p = clean(path);
    if (directories_.contains(p))
        return DirectoryEntry{splitPath(p).second, DirectoryEntry::Kind::directory, 0};
    const auto found = files_.find(p);
    if (found == files_.end()) return makeError(ErrorCode::notFound, "no such file").inFile(path);
    std::lock_guard fileLock(found->second->mutex);
    return DirectoryEntry{splitPath(p).second, DirectoryEntry::Kind::file, found->second->bytes.size()};
}

Status MemoryFileSystem::rename(const std::string& from, const std::string& to) {
    record(Op::rename, from);
    std::lock_guard lock(mutex_);
    const std::string a = clean(from), b = clean(to);
    if (files_.contains(b) || directories_.contains(b))
        return makeError(ErrorCode::exists, "it exists").inFile(to);
    if (!files_.contains(a) && !directories_.contains(a))
        return makeError(ErrorCode::notFound, "not there").inFile(from);
    const auto moved = [&](const std::string& path) { return b + path.substr(a.size()); };
    const auto concerned = [&](const std::string& path) { return path == a || path.starts_with(a + "/"); };
    std::map<std::string, std::shared_ptr<File>> files;
    for (auto& [path, file] : files_)
        files[concerned(path) ? moved(path) : path] = file;
    std::set<std::string> directories;
    for (const auto& path : directories_)
        directories.insert(concerned(path) ? moved(path) : path);
    files_ = std::move(files);
    directories_ = std::move(directories);
    return {};
}

Status MemoryFileSystem::exchange(const std::string& a, const std::string& b) {
    const std::string aside = clean(a) + ".aside";
    SHARDSCOPE_TRY(rename(b, aside));
    SHARDSCOPE_TRY(rename(a, b));
    return rename(aside, a);
}

Status MemoryFileSystem::removeTree(const std::string& path) {
    record(Op::remove, path);
    std::lock_guard lock(mutex_);
    const std::string p = clean(path);
    std::erase_if(files_,
                  [&](const auto& item) { return item.first == p || item.first.starts_with(p + "/"); });
    std::erase_if(directories_, [&](const std::string& d) { return d == p || d.starts_with(p + "/"); });
    return {};
}

Status MemoryFileSystem::syncDirectory(const std::string& path) {
    record(Op::sync, path);
    std::lock_guard lock(mutex_);
    if (!directories_.contains(clean(path)))
        return makeError(ErrorCode::notFound, "no such directory").inFile(path);
    return {};
}

Result<uint64_t> MemoryFileSystem::freeBytes(const std::string&) {
    return freeBytes_.load();
}

Result<std::shared_ptr<WriteFile>> MemoryFileSystem::createScratch(const std::string& directory) {
    record(Op::open, "scratch:" + directory);
    return std::shared_ptr<WriteFile>(
        std::make_shared<MemoryWriteFile>(shared_from_this(), makeFile(), "scratch:" + directory));
}

Result<std::shared_ptr<const ReadFile>> MemoryFileSystem::reopen(const std::shared_ptr<WriteFile>& file) {
    const auto& own = dynamic_cast<const MemoryWriteFile&>(*file);
    return std::shared_ptr<const ReadFile>(
        std::make_shared<MemoryReadFile>(shared_from_this(), own.file(), own.path()));
}

void MemoryFileSystem::put(const std::string& path, std::vector<std::byte> bytes) {
    std::lock_guard lock(mutex_);
    for (std::string up = splitPath(path).first; up != "/" && up != "."; up = splitPath(up).first)
        directories_.insert(up);
    auto file = makeFile();
    file->bytes = bytes;
    file->durable = std::move(bytes);
    files_[path] = file;
}

std::vector<std::byte> MemoryFileSystem::get(const std::string& path) const {
    std::lock_guard lock(mutex_);
    const auto found = files_.find(path);
    if (found == files_.end()) return {};
    std::lock_guard fileLock(found->second->mutex);
    return found->second->bytes;
}

bool MemoryFileSystem::exists(const std::string& path) const {
    std::lock_guard lock(mutex_);
    return files_.contains(clean(path)) || directories_.contains(clean(path));
}

std::vector<std::string> MemoryFileSystem::paths() const {
    std::lock_guard lock(mutex_);
    std::vector<std::string> paths;
    for (const auto& [path, file] : files_)
        paths.push_back(path);
    return paths;
}

std::map<std::string, std::vector<std::byte>> MemoryFileSystem::tree(const std::string& directory) const {
    std::map<std::string, std::vector<std::byte>> tree;
    for (const std::string& path : paths()) {
        if (path.starts_with(directory + "/")) tree[path.substr(directory.size() + 1)] = get(path);
    }
    return tree;
}

void MemoryFileSystem::losePower(bool sizes) {
    std::lock_guard lock(mutex_);
    for (auto& [path, file] : files_) {
        std::lock_guard fileLock(file->mutex);
        const size_t size = file->bytes.size();
        file->bytes = file->durable;
        if (!sizes)
            file->bytes.resize(size);  // sizes are metadata and usually survive; the bytes then read as zero
    }
}

std::vector<OpRecord> MemoryFileSystem::records() const {
    std::lock_guard lock(mutex_);
    return records_;
}

void MemoryFileSystem::clearRecords() {
    std::lock_guard lock(mutex_);
    records_.clear();
}

// ------------------------------------------------------------------ faults

namespace {

class FaultyReadFile final : public ReadFile {
  public:
    FaultyReadFile(std::shared_ptr<FaultyFileSystem> system, std::shared_ptr<const ReadFile> inner)
        : system_(std::move(system)), inner_(std::move(inner)) {}
    const std::string& path() const override { return inner_->path(); }
    uint64_t size() const override { return inner_->size(); }
    Status readAt(uint64_t offset, std::span<std::byte> buffer) const override {
        SHARDSCOPE_TRY(system_->pass(Op::read, path()));
        return inner_->readAt(offset, buffer);
    }
    Status readBulk(uint64_t offset, std::span<std::byte> buffer) const override {
        SHARDSCOPE_TRY(system_->pass(Op::read, path()));
        return inner_->readBulk(offset, buffer);
    }
    Result<Fingerprint> fingerprint() const override { return inner_->fingerprint(); }

  private:
    std::shared_ptr<FaultyFileSystem> system_;
    std::shared_ptr<const ReadFile> inner_;
};

class FaultyWriteFile final : public WriteFile {
  public:
    FaultyWriteFile(std::shared_ptr<FaultyFileSystem> system, std::shared_ptr<WriteFile> inner)
        : system_(std::move(system)), inner_(std::move(inner)) {}
    const std::string& path() const override { return inner_->path(); }
    Status allocate(uint64_t size) override {
        SHARDSCOPE_TRY(system_->pass(Op::allocate, path()));
        return inner_->allocate(size);
    }
    Status writeAt(uint64_t offset, std::span<const std::byte> bytes) override {
        SHARDSCOPE_TRY(system_->pass(Op::write, path()));
        return inner_->writeAt(offset, bytes);
    }
    Status writeBulk(uint64_t offset, std::span<const std::byte> bytes) override {
        SHARDSCOPE_TRY(system_->pass(Op::write, path()));
        return inner_->writeBulk(offset, bytes);
    }
    Status sync() override {
        SHARDSCOPE_TRY(system_->pass(Op::sync, path()));
        return inner_->sync();
    }
    Result<bool> tryLock() override { return inner_->tryLock(); }
    const std::shared_ptr<WriteFile>& inner() const { return inner_; }

  private:
    std::shared_ptr<FaultyFileSystem> system_;
    std::shared_ptr<WriteFile> inner_;
};

class FaultyDirectory final : public Directory {
  public:
    FaultyDirectory(std::shared_ptr<FaultyFileSystem> system, std::shared_ptr<Directory> inner)
        : system_(std::move(system)), inner_(std::move(inner)) {}
    const std::string& path() const override { return inner_->path(); }
    Result<std::vector<DirectoryEntry>> list(std::string_view subdirectory) const override {
        SHARDSCOPE_TRY(system_->pass(Op::list, path()));
        return inner_->list(subdirectory);
    }
    Result<std::shared_ptr<const ReadFile>> openFile(std::string_view name) const override {
        SHARDSCOPE_TRY(system_->pass(Op::open, path()));
        SHARDSCOPE_ASSIGN(auto file, inner_->openFile(name));
        return std::shared_ptr<const ReadFile>(std::make_shared<FaultyReadFile>(system_, std::move(file)));
    }
    Result<DirectoryEntry> stat(std::string_view name) const override { return inner_->stat(name); }
    Result<std::shared_ptr<WriteFile>> createFile(std::string_view name, bool existing) override {
        SHARDSCOPE_TRY(system_->pass(Op::open, path()));
        SHARDSCOPE_ASSIGN(auto file, inner_->createFile(name, existing));
        return std::shared_ptr<WriteFile>(std::make_shared<FaultyWriteFile>(system_, std::move(file)));
    }
    Status removeFile(std::string_view name) override {
        SHARDSCOPE_TRY(system_->pass(Op::remove, path()));
        return inner_->removeFile(name);
    }
    Status sync() override {
        SHARDSCOPE_TRY(system_->pass(Op::sync, path()));
        return inner_->sync();
    }

  private:
    std::shared_ptr<FaultyFileSystem> system_;
    std::shared_ptr<Directory> inner_;
};

}  // namespace

void FaultyFileSystem::failAt(Op op, uint64_t nth, ErrorCode code, bool fromThenOn) {
    clear();
    code_ = code;
    failNth_ = nth;
    fromThenOn_ = fromThenOn;
    failOp_ = static_cast<int>(op);
}

void FaultyFileSystem::clear() {
    failOp_ = -1;
    failures_ = 0;
    for (auto& count : counts_)
        count = 0;
}

uint64_t FaultyFileSystem::count(Op op) const {
    return counts_[static_cast<int>(op)];
}

Status FaultyFileSystem::pass(Op op, const std::string& path) {
    const uint64_t number = ++counts_[static_cast<int>(op)];
    if (static_cast<int>(op) == failOp_ && (fromThenOn_ ? number >= failNth_ : number == failNth_)) {
        ++failures_;
        if (beforeFailure) beforeFailure();
        return makeError(code_, "a fault for a test").inFile(path);
    }
    if (after) after(op);
    return {};
}

Result<std::shared_ptr<Directory>> FaultyFileSystem::openDirectory(const std::string& path) {
    SHARDSCOPE_TRY(pass(Op::open, path));
    SHARDSCOPE_ASSIGN(auto directory, inner_->openDirectory(path));
    return std::shared_ptr<Directory>(
        std::make_shared<FaultyDirectory>(shared_from_this(), std::move(directory)));
}

Status FaultyFileSystem::makeDirectory(const std::string& path) {
    SHARDSCOPE_TRY(pass(Op::makeDirectory, path));
    return inner_->makeDirectory(path);
}
Result<DirectoryEntry> FaultyFileSystem::stat(const std::string& path) {
    return inner_->stat(path);
}

Status FaultyFileSystem::rename(const std::string& from, const std::string& to) {
    SHARDSCOPE_TRY(pass(Op::rename, from));
    return inner_->rename(from, to);
}

Status FaultyFileSystem::exchange(const std::string& a, const std::string& b) {
    SHARDSCOPE_TRY(pass(Op::rename, a));
    return inner_->exchange(a, b);
}

Status FaultyFileSystem::removeTree(const std::string& path) {
    SHARDSCOPE_TRY(pass(Op::remove, path));
    return inner_->removeTree(path);
}

Status FaultyFileSystem::syncDirectory(const std::string& path) {
    SHARDSCOPE_TRY(pass(Op::sync, path));
    return inner_->syncDirectory(path);
}

Result<uint64_t> FaultyFileSystem::freeBytes(const std::string& path) {
    return inner_->freeBytes(path);
}

Result<std::shared_ptr<WriteFile>> FaultyFileSystem::createScratch(const std::string& directory) {
    SHARDSCOPE_TRY(pass(Op::open, directory));
    SHARDSCOPE_ASSIGN(auto file, inner_->createScratch(directory));
    return std::shared_ptr<WriteFile>(std::make_shared<FaultyWriteFile>(shared_from_this(), std::move(file)));
}

Result<std::shared_ptr<const ReadFile>> FaultyFileSystem::reopen(const std::shared_ptr<WriteFile>& file) {
    const auto& own = dynamic_cast<const FaultyWriteFile&>(*file);
    SHARDSCOPE_ASSIGN(auto inner, inner_->reopen(own.inner()));
    return std::shared_ptr<const ReadFile>(
        std::make_shared<FaultyReadFile>(shared_from_this(), std::move(inner)));
}

}  // namespace shardscope::test
