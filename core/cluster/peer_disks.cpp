#include "cluster/peer_disks.h"

#include <algorithm>
#include <charconv>
#include <mutex>
#include <set>

#include <fmt/format.h>

#include "base/token.h"
#include "execute/executor.h"
#include "storage/parents.h"

namespace shardscope {
namespace {

constexpr const char* kDiskName = "place";  // in the staging directory: whose disk it is on
constexpr const char* kLockName = "lock";   // as in execute/staging.h

Status sign(FileSystem& files, const std::string& staging, const std::string& token, int peer) {
    SHARDSCOPE_ASSIGN(const auto directory, files.openDirectory(staging));
    SHARDSCOPE_ASSIGN(const auto file, directory->createFile(kDiskName, true));
    const std::string text = fmt::format("{} {}\n", token, peer);
    return file->writeAt(0, std::as_bytes(std::span(text)));
}

// The peer that signed it last; -1 = none of this conversion.
int signedBy(Directory& directory, const std::string& token) {
    const auto file = directory.openFile(kDiskName);
    if (!file.ok()) return -1;
    std::string text(std::min<uint64_t>((*file)->size(), 100), '\0');
    int peer = -1;
    if (!(*file)->readAt(0, std::as_writable_bytes(std::span(text))).ok() || !text.starts_with(token + " "))
        return -1;
    std::from_chars(text.data() + token.size() + 1, text.data() + text.size(), peer);
    return peer;
}

}  // namespace

// ------------------------------------------------------------------ a directory on all of them

class PeerDisksDirectory final : public Directory {
  public:
    PeerDisksDirectory(std::shared_ptr<const PeerDisks> disks, std::string path)
        : disks_(std::move(disks)), path_(std::move(path)), name_(disks_->nameIn(path_)) {}

    const std::string& path() const override { return path_; }

    Result<std::vector<DirectoryEntry>> list(std::string_view subdirectory) const override {
        std::map<std::string, DirectoryEntry> found;
        std::optional<Error> missing;
        bool any = false;
        for (const int disk : disks_->all()) {
            const auto directory = on(disk);
            auto entries = directory.ok() ? (*directory)->list(subdirectory)
                                          : Result<std::vector<DirectoryEntry>>(directory.error());
            if (!entries.ok() && entries.error().code != ErrorCode::notFound) return entries;
            if (!entries.ok()) {
                missing = entries.error();
                continue;
            }
            any = true;
            for (DirectoryEntry& entry : *entries)
                found.try_emplace(entry.name, std::move(entry));
        }
        if (!any) return *missing;
        std::vector<DirectoryEntry> entries;
        for (auto& [name, entry] : found)
            entries.push_back(std::move(entry));
        return entries;
    }

    Result<std::shared_ptr<const ReadFile>> openFile(std::string_view name) const override {
        return first<std::shared_ptr<const ReadFile>>(
            name, [&](Directory& directory) { return directory.openFile(name); });
    }
    Result<DirectoryEntry> stat(std::string_view name) const override {
        return first<DirectoryEntry>(name, [&](Directory& directory) { return directory.stat(name); });
    }
    Result<std::shared_ptr<WriteFile>> createFile(std::string_view name, bool existing) override {
        SHARDSCOPE_ASSIGN(const auto directory, on(diskOf(name)));
        return directory->createFile(name, existing);
    }
    Status removeFile(std::string_view name) override {
        SHARDSCOPE_ASSIGN(const auto directory, on(diskOf(name)));
        return directory->removeFile(name);
    }
    Status sync() override {
        for (const int disk : disks_->all()) {
            const auto directory = on(disk);
            if (!directory.ok() && directory.error().code == ErrorCode::notFound) continue;
            if (!directory.ok()) return directory.error();
            SHARDSCOPE_TRY((*directory)->sync());
        }
        return {};
    }

  private:
    Result<std::shared_ptr<Directory>> on(int disk) const {
        std::lock_guard lock(mutex_);
        auto& known = known_[disk];
        if (!known) {
            auto opened = disks_->files(disk).openDirectory(path_);
            if (!opened.ok()) return opened;
            known = std::move(opened).value();
        }
        return known;
    }
    // Lock, journal and token are the first one's.
    int diskOf(std::string_view name) const {
        if (name_.empty()) return 0;
        return disks_->diskOf(name_ == "." ? std::string(name) : name_ + "/" + std::string(name));
    }
    // From the disk that it belongs to, else from any that has it.
    template <class T, class F>
    Result<T> first(std::string_view name, F&& what) const {
        SHARDSCOPE_TRY(checkRelativeName(name));
        std::vector<int> order = disks_->all();
        std::stable_partition(order.begin(), order.end(),
                              [here = diskOf(name)](int disk) { return disk == here; });
        std::optional<Error> error;
        for (const int disk : order) {
            const auto directory = on(disk);
            Result<T> found = directory.ok() ? what(**directory) : Result<T>(directory.error());
            if (found.ok()) return found;
            if (!error || error->code == ErrorCode::notFound) error = found.error();
        }
        return *error;
    }

    const std::shared_ptr<const PeerDisks> disks_;
    const std::string path_;
    const std::string name_;  // within the destination; "." for all of it
    mutable std::mutex mutex_;
    mutable std::map<int, std::shared_ptr<Directory>> known_;
};

// ------------------------------------------------------------------ all of it

PeerDisks::PeerDisks(std::shared_ptr<const Peers> peers, std::string destination,
                     std::map<std::string, int> owners, std::vector<int> disks)
    : peers_(std::move(peers)),
      destination_(std::move(destination)),
      staging_(stagingPath(destination_)),
      owners_(std::move(owners)),
      disks_(std::move(disks)) {
    // Until it is known better, each may have a disk of its own.
    for (int peer = static_cast<int>(disks_.size()); peer < peers_->size(); ++peer)
        disks_.push_back(peer);
}

FileSystem& PeerDisks::files(int disk) const {
    const int self = peers_->self();
    if (self >= 0 && disks_[static_cast<size_t>(self)] == disk) return *peers_->own();
    return *peers_->files(disk);
}

std::vector<int> PeerDisks::all() const {
    const std::set<int> found(disks_.begin(), disks_.end());
    return {found.begin(), found.end()};
}

int PeerDisks::diskOf(const std::string& name) const {
    const auto owner = owners_.find(name);
    return owner == owners_.end() ? 0 : disks_[static_cast<size_t>(owner->second)];
}

std::string PeerDisks::nameIn(const std::string& path) const {
    for (const std::string& root : {staging_ + "/data", destination_}) {
        if (path == root) return ".";
        if (path.starts_with(root + "/")) return path.substr(root.size() + 1);
    }
    return {};
}

Status PeerDisks::onAll(const std::function<Status(FileSystem& files)>& what) const {
    Status first;
    for (const int disk : all()) {
        Status status = what(files(disk));
        if (first.ok()) first = std::move(status);
    }
    return first;
}

Result<std::shared_ptr<Directory>> PeerDisks::openDirectory(const std::string& path) {
    auto directory = std::make_shared<PeerDisksDirectory>(shared_from_this(), path);
    SHARDSCOPE_ASSIGN(const auto first, files(0).openDirectory(path));
    return std::shared_ptr<Directory>(std::move(directory));
}

Status PeerDisks::makeDirectory(const std::string& path) {
    if (path == staging_) SHARDSCOPE_TRY(makeParents(files(0), path));
    Status made = files(0).makeDirectory(path);
    if (!made.ok() && made.error().code != ErrorCode::exists) return made;
    if (path == staging_) {
        Status found = findDisks(made.ok());
        if (found.ok()) return made;
        // Nothing is in it but what this has put there.
        locks_.clear();
        if (made.ok()) (void)onAll([&](FileSystem& files) { return files.removeTree(path); });
        return found;
    }
    for (const int disk : all()) {
        Status there = disk == 0 ? Status() : files(disk).makeDirectory(path);
        if (!there.ok() && there.error().code != ErrorCode::exists) return there;
    }
    return made;
}

// One peer after the other, so that each sees what those before it have made.
Status PeerDisks::findDisks(bool fresh) {
    const std::string token = newToken();
    locks_.clear();
    for (int peer = 0; peer < peers_->size(); ++peer)
        disks_[static_cast<size_t>(peer)] = 0;
    SHARDSCOPE_TRY(sign(files(0), staging_, token, 0));
    for (int peer = 1; peer < peers_->size(); ++peer) {
        auto disk = findDisk(peer, token, fresh);
        if (!disk.ok()) return std::move(disk).error();
        disks_[static_cast<size_t>(peer)] = *disk;
    }
    return {};
}

Result<int> PeerDisks::findDisk(int peer, const std::string& token, bool fresh) {
    FileSystem& there = *peers_->files(peer);
    const auto lock = [&]() -> Result<std::shared_ptr<WriteFile>> {
        SHARDSCOPE_ASSIGN(const auto directory, there.openDirectory(staging_));
        SHARDSCOPE_ASSIGN(auto file, directory->createFile(kLockName, true));
        SHARDSCOPE_ASSIGN(const bool locked, file->tryLock());
        if (!locked)
            return makeError(ErrorCode::exists, "another job is writing this destination").inFile(staging_);
        return file;
    };
    if (const auto directory = there.openDirectory(staging_); directory.ok()) {
        const int before = signedBy(**directory, token);
        if (before >= 0 && before < peer) return before;
        SHARDSCOPE_ASSIGN(const auto held, lock());
        if (fresh)
            SHARDSCOPE_TRY(there.removeTree(staging_));  // of a job that the first disk knows nothing of
    } else if (directory.error().code != ErrorCode::notFound) {
        return directory.error();
    }
    Status made = there.makeDirectory(staging_);
    if (!made.ok() && made.error().code != ErrorCode::exists) return std::move(made).error();
    SHARDSCOPE_ASSIGN(locks_[peer], lock());
    SHARDSCOPE_TRY(sign(there, staging_, token, peer));
    return peer;
}

Result<DirectoryEntry> PeerDisks::stat(const std::string& path) {
    std::optional<Error> error;
    for (const int disk : all()) {
        auto entry = files(disk).stat(path);
        if (entry.ok()) return entry;
        if (!error || error->code == ErrorCode::notFound) error = std::move(entry).error();
    }
    return *error;
}

Status PeerDisks::rename(const std::string& from, const std::string& to) {
    return move(false, from, to);
}

Status PeerDisks::exchange(const std::string& a, const std::string& b) {
    return move(true, a, b);
}

// A disk that has no file of the new destination still loses the old one.
Status PeerDisks::moveOn(int disk, bool swap, const std::string& from, const std::string& to,
                         std::vector<Moved>& moved) {
    FileSystem& there = files(disk);
    if (!there.stat(from).ok()) return {};
    const bool keeps = disk == 0 || std::ranges::any_of(owners_, [&](const auto& owner) {
                           return disks_[static_cast<size_t>(owner.second)] == disk;
                       });
    const bool swaps = swap && there.stat(to).ok();
    if (!swaps && !keeps) return {};
    SHARDSCOPE_TRY(swaps ? there.exchange(from, to) : there.rename(from, to));
    moved.push_back({disk, swaps});
    if (!keeps) dropped_.push_back(disk);
    return {};
}

Status PeerDisks::move(bool swap, const std::string& from, const std::string& to) {
    std::vector<int> order = all();
    std::ranges::reverse(order);
    std::vector<Moved> moved;
    for (const int disk : order) {
        Status status = moveOn(disk, swap, from, to, moved);
        if (status.ok()) continue;
        Error error = std::move(status).error();
        for (const Moved& other : moved) {
            FileSystem& there = files(other.disk);
            const Status undone = other.swapped ? there.exchange(from, to) : there.rename(to, from);
            if (!undone.ok())
                error.message += fmt::format("; and on {} it cannot be taken back ({})",
                                             peers_->name(other.disk), undone.error().message);
        }
        dropped_.clear();
        return error;
    }
    return {};
}

Status PeerDisks::removeTree(const std::string& path) {
    if (path == staging_) {
        locks_.clear();
        for (const int disk : std::exchange(dropped_, {}))
            SHARDSCOPE_TRY(files(disk).removeTree(destination_));
    }
    return onAll([&](FileSystem& files) { return files.removeTree(path); });
}

Status PeerDisks::syncDirectory(const std::string& path) {
    return onAll([&](FileSystem& files) { return files.syncDirectory(path); });
}

Result<uint64_t> PeerDisks::freeBytes(const std::string& path) {
    uint64_t sum = 0;
    for (const int disk : all()) {
        SHARDSCOPE_ASSIGN(const uint64_t free, files(disk).freeBytes(path));
        sum += free;
    }
    return sum;
}

Result<std::shared_ptr<WriteFile>> PeerDisks::createScratch(const std::string& directory) {
    return peers_->own()->createScratch(directory);
}

Result<std::shared_ptr<const ReadFile>> PeerDisks::reopen(const std::shared_ptr<WriteFile>& file) {
    return peers_->own()->reopen(file);
}

}  // namespace shardscope
