#include "places/bucket_files.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/thread_pool.h"
#include "base/token.h"
#include "encoding/crc32c.h"
#include "places/credentials.h"
#include "places/places.h"
#include "storage/url.h"

namespace shardscope {
namespace {

constexpr uint64_t kLeastPart = uint64_t{8} << 20;  // bytes; stores take no less than 5 MiB
constexpr uint64_t kMostParts = 9000;               // stores take 10,000
constexpr unsigned kUploads = 8;                    // parts under way
constexpr size_t kTries = 3;                        // of a part that arrived as other bytes

// What keeps others from the same destination, beside it.
std::string claimOf(const ObjectPlace& place, const std::string& key) {
    const std::string root = place.root() + "/";
    return stagingPath(root + key).substr(root.size()) + "/claim";
}

struct LocalFile {
    std::string name;  // in the destination
    std::string key;
    uint64_t size = 0;
};

// The upload of one destination.
class Upload {
  public:
    Upload(ObjectPlace& place, const BucketJob& job, std::string key, std::string token)
        : place_(place),
          job_(job),
          key_(std::move(key)),
          token_(std::move(token)),
          claim_(claimOf(place_, key_)) {}

    // `from` is a directory of this machine, or the one file.
    Status run(FileSystem& here, const std::string& from) {
        SHARDSCOPE_TRY(collect(here, from));
        SHARDSCOPE_TRY(claim());
        uint64_t bytes = 0;
        for (const LocalFile& file : files_)
            bytes += file.size;
        if (job_.progress) job_.progress->begin(Progress::Phase::write, bytes);
        SHARDSCOPE_TRY(probeChecksums());
        for (size_t i = 0; i < files_.size(); ++i) {
            const bool seal = i + 1 == files_.size();
            if (Status sent = send(files_[i], seal); !sent.ok())
                return alsoHint(
                    std::move(sent).error(),
                    "what is uploaded is no checkpoint yet; the same command, resumed, continues");
        }
        (void)place_.remove(claim_);
        return {};
    }

  private:
    Status collect(FileSystem& here, const std::string& from) {
        SHARDSCOPE_ASSIGN(const DirectoryEntry entry, here.stat(from));
        if (entry.kind == DirectoryEntry::Kind::file) {
            SHARDSCOPE_ASSIGN(directory_, here.openDirectory(splitPath(from).first));
            files_.push_back({splitPath(from).second, key_, entry.size});
            return {};
        }
        SHARDSCOPE_ASSIGN(directory_, here.openDirectory(from));
        SHARDSCOPE_TRY(collectBelow(""));
        // Data first, what makes a checkpoint of it last.
        const auto rank = [&](const LocalFile& file) {
            const auto it = std::find(job_.seals.begin(), job_.seals.end(), file.name);
            return it == job_.seals.end() ? 0 : it - job_.seals.begin() + 1;
        };
        std::sort(files_.begin(), files_.end(), [&](const LocalFile& a, const LocalFile& b) {
            return std::pair(rank(a), b.name) < std::pair(rank(b), a.name);
        });
        return {};
    }

    Status collectBelow(const std::string& below) {
        SHARDSCOPE_ASSIGN(const auto entries, directory_->list(below));
        for (const DirectoryEntry& entry : entries) {
            const std::string name = below.empty() ? entry.name : below + "/" + entry.name;
            if (entry.kind == DirectoryEntry::Kind::directory)
                SHARDSCOPE_TRY(collectBelow(name));
            else
                files_.push_back({name, key_ + "/" + name, entry.size});
        }
        return {};
    }

    // Only one job at a time uploads to a destination: the one that created the claim. When it is resumed, it
    // finds its own claim.
    Status claim() {
        const auto bytes = std::as_bytes(std::span(token_));
        ObjectPlace::Put how{true, token_, crc32cOf(bytes)};
        Status put = place_.put(claim_, bytes, how);
        if (!put.ok() && put.error().code != ErrorCode::exists) return put;
        SHARDSCOPE_ASSIGN(const ObjectState claimed, place_.head(claim_));
        if (claimed.mark != token_)
            return makeError(ErrorCode::exists, "another job uploads to this destination")
                .inFile(job_.destination)
                .withHint(fmt::format("if that job is dead, remove the object {}/{}", place_.root(), claim_));
        // A store that takes it again knows no conditions, and two jobs would not see each other.
        if (put.ok()) put = place_.put(claim_, bytes, how);
        if (put.ok()) {
            (void)place_.remove(claim_);
            return makeError(ErrorCode::unsupported,
                             "the store takes a write that is to create an object (If-None-Match) also where "
                             "there is one, so that nothing can be published safely")
                .inFile(place_.root());
        }
        return put.error().code == ErrorCode::exists ? Status() : put;
    }

    // Whether the store refuses bytes that do not have the checksum that comes with them. Otherwise they are
    // read back.
    Status probeChecksums() {
        const std::string key = claim_ + "-checksum";
        const auto bytes = std::as_bytes(std::span(token_));
        const Status put = place_.put(key, bytes, {false, {}, crc32cOf(bytes) ^ 1});
        if (put.ok()) return place_.remove(key);
        if (put.error().code != ErrorCode::damaged) return put;
        checks_ = true;
        return {};
    }

    Status send(const LocalFile& file, bool seal) {
        auto there = place_.head(file.key);
        if (!there.ok() && there.error().code != ErrorCode::notFound) return std::move(there).error();
        if (there.ok()) {
            // Of this job, which was interrupted: completed objects are whole.
            if (there->mark != token_ || there->size != file.size)
                return makeError(ErrorCode::exists, "there is an object of this name already")
                    .inFile(place_.root() + "/" + file.key);
            if (job_.progress) job_.progress->add(file.size);
            return {};
        }
        SHARDSCOPE_ASSIGN(const auto from, directory_->openFile(file.name));
        return file.size <= kLeastPart ? sendWhole(file, *from, seal) : sendParts(file, *from, seal);
    }

    Status sendWhole(const LocalFile& file, const ReadFile& from, bool seal) {
        std::vector<std::byte> bytes(file.size);
        SHARDSCOPE_TRY(from.readAt(0, bytes));
        ObjectPlace::Put how{seal, token_, crc32cOf(bytes)};
        Status put = place_.put(file.key, bytes, how);
        // An answer that was lost and asked for again finds the object that it has made.
        if (!put.ok() && put.error().code == ErrorCode::exists) {
            const auto there = place_.head(file.key);
            if (there.ok() && there->mark == token_) put = {};
        }
        if (put.ok() && !checks_) put = readBack(file, how.crc32c, bytes.size());
        if (put.ok() && job_.progress) job_.progress->add(bytes.size());
        return put;
    }

    Status sendParts(const LocalFile& file, const ReadFile& from, bool seal) {
        const uint64_t least = (file.size + kMostParts - 1) / kMostParts;
        const uint64_t size = std::max(kLeastPart, (least + (1 << 20) - 1) >> 20 << 20);
        const auto count = static_cast<size_t>((file.size + size - 1) / size);
        const ObjectPlace::Put how{seal, token_, 0};
        SHARDSCOPE_ASSIGN(const std::string upload, place_.startUpload(file.key, how));
        std::vector<ObjectPlace::Part> parts(count);
        std::vector<uint32_t> sums(count);
        ThreadPool pool(kUploads - 1);
        Status status = pool.parallelFor(count, job_.stop, [&](size_t i) -> Status {
            const uint64_t at = i * size;
            std::vector<std::byte> bytes(std::min(size, file.size - at));
            SHARDSCOPE_TRY(from.readAt(at, bytes));
            sums[i] = crc32cOf(bytes);
            for (size_t tries = 1;; ++tries) {
                auto part = place_.putPart(file.key, upload, static_cast<unsigned>(i + 1), bytes, sums[i]);
                if (part.ok()) {
                    parts[i] = *std::move(part);
                    break;
                }
                if (part.error().code != ErrorCode::damaged || tries == kTries)
                    return std::move(part).error();
            }
            if (job_.progress) job_.progress->add(bytes.size());
            return {};
        });
        if (status.ok()) status = place_.complete(file.key, upload, parts, how);
        if (!status.ok()) {
            (void)place_.abandon(file.key, upload);
            return status;
        }
        if (checks_) return {};
        for (size_t i = 0; i < count; ++i)
            SHARDSCOPE_TRY(readBackPart(file, i * size, std::min(size, file.size - i * size), sums[i]));
        return {};
    }

    Status readBack(const LocalFile& file, uint32_t sum, uint64_t size) {
        return size == 0 ? Status() : readBackPart(file, 0, size, sum);
    }
    Status readBackPart(const LocalFile& file, uint64_t at, uint64_t size, uint32_t sum) {
        if (!state_ || state_->key != file.key) {
            SHARDSCOPE_ASSIGN(state_, place_.head(file.key));
        }
        if (state_->size != file.size) return differs(file).at(0);
        std::vector<std::byte> bytes(size);
        SHARDSCOPE_TRY(place_.read(*state_, at, bytes));
        if (crc32cOf(bytes) != sum) return differs(file).at(at);
        return {};
    }
    Error differs(const LocalFile& file) const {
        return makeError(ErrorCode::verificationFailed, "the store holds other bytes than were sent")
            .inFile(place_.root() + "/" + file.key);
    }

    ObjectPlace& place_;
    const BucketJob& job_;
    const std::string key_, token_, claim_;
    std::shared_ptr<Directory> directory_;
    std::vector<LocalFile> files_;
    std::optional<ObjectState> state_;
    bool checks_ = false;
};

// A directory for this destination, which nobody else can put links into.
Result<std::string> placeOfUploads(const std::string& name) {
    const std::string temporary = environment("TMPDIR");
    const std::string all =
        fmt::format("{}/shardscope-uploads-{}", temporary.empty() ? "/var/tmp" : temporary, getuid());
    struct stat found {};
    if (mkdir(all.c_str(), 0700) != 0 && errno != EEXIST)
        return systemError(errno, "make the directory", all);
    if (lstat(all.c_str(), &found) != 0 || !S_ISDIR(found.st_mode) || found.st_uid != getuid() ||
        (found.st_mode & 0077) != 0)
        return makeError(ErrorCode::unsafe,
                         "the directory for uploads belongs to somebody else, or others may write there")
            .inFile(all)
            .withHint("set TMPDIR to a directory of your own");
    const std::string base = all + "/" + name;
    if (mkdir(base.c_str(), 0700) != 0 && errno != EEXIST)
        return systemError(errno, "make the directory", base);
    return base;
}

// Maps what is at and beside the destination to a directory of this machine.
class BucketFileSystem final : public FileSystem {
  public:
    BucketFileSystem(BucketJob job, std::shared_ptr<ObjectPlace> place, std::string base, std::string token)
        : job_(std::move(job)), place_(std::move(place)), base_(std::move(base)), token_(std::move(token)) {}

    Result<std::shared_ptr<Directory>> openDirectory(const std::string& path) override {
        if (path == job_.destination) return there()->openDirectory(path);
        return here_->openDirectory(local(path));
    }
    Status makeDirectory(const std::string& path) override { return here_->makeDirectory(local(path)); }
    Result<DirectoryEntry> stat(const std::string& path) override {
        if (path != job_.destination) return here_->stat(local(path));
        SHARDSCOPE_ASSIGN(DirectoryEntry entry, there()->stat(path));
        // As long as this job's claim is there, its upload is not finished, and there is no checkpoint yet.
        const auto claimed = place_->head(claimOf(*place_, key(path)));
        if (claimed.ok() && claimed->mark == token_)
            return makeError(ErrorCode::notFound, "is not published yet").inFile(path);
        return entry;
    }
    Status rename(const std::string& from, const std::string& to) override {
        if (to != job_.destination) return here_->rename(local(from), local(to));
        const StopScope scope(job_.stop);
        return Upload(*place_, job_, key(to), token_).run(*here_, local(from));
    }
    Status exchange(const std::string&, const std::string& b) override {
        return makeError(ErrorCode::impossible,
                         "nothing is replaced in a bucket, where it could not be undone")
            .inFile(b)
            .withHint("write beside it, or remove it first");
    }
    Status removeTree(const std::string& path) override {
        SHARDSCOPE_TRY(here_->removeTree(local(path)));
        std::error_code none;  // the last one takes the directory of this destination along, if it is empty
        if (path == stagingPath(job_.destination) && !here_->stat(local(path)).ok()) {
            std::filesystem::remove(base_ + "/token", none);
            std::filesystem::remove(base_, none);
        }
        return {};
    }
    Status syncDirectory(const std::string& path) override { return here_->syncDirectory(local(path)); }
    Result<uint64_t> freeBytes(const std::string& path) override { return here_->freeBytes(local(path)); }
    Result<std::shared_ptr<WriteFile>> createScratch(const std::string& directory) override {
        return here_->createScratch(schemeOf(directory).empty() ? directory : local(directory));
    }
    Result<std::shared_ptr<const ReadFile>> reopen(const std::shared_ptr<WriteFile>& file) override {
        return here_->reopen(file);
    }

  private:
    // A new one each time, because it keeps what it has listed.
    std::shared_ptr<FileSystem> there() const { return objectFileSystem(place_); }
    std::string key(const std::string& path) const { return path.substr(place_->root().size() + 1); }
    // "s3://bucket/run" is the directory of this destination, what is beside the destination is in it.
    std::string local(const std::string& path) const {
        const std::string parent = splitPath(job_.destination).first;
        return path.starts_with(parent) ? base_ + path.substr(parent.size()) : path;
    }

    const BucketJob job_;
    const std::shared_ptr<ObjectPlace> place_;
    const std::shared_ptr<FileSystem> here_ = systemFileSystem();
    const std::string base_, token_;
};

}  // namespace

Result<std::shared_ptr<FileSystem>> bucketFileSystem(const BucketJob& job) {
    const std::string& to = job.destination;
    const std::string_view scheme = schemeOf(to);
    const std::string bucket = to.substr(scheme.size() + 3, placeLength(to) - scheme.size() - 3);
    if ((scheme != "s3" && scheme != "gs") || bucket.empty() || to.size() <= placeLength(to) + 1)
        return makeError(ErrorCode::impossible, scheme == "s3" || scheme == "gs"
                                                    ? "a bucket itself cannot be the destination"
                                                : scheme == "hf" ? "nothing is written to the hub"
                                                                 : "nothing is written to a web server")
            .inFile(to)
            .withHint(scheme == "hf" ? "write to a directory, then 'hf upload ORG/NAME DIRECTORY'"
                                     : "name a place in a bucket, such as s3://bucket/run/step-100");
    SHARDSCOPE_ASSIGN(auto place, scheme == "s3" ? s3Place(bucket) : googlePlace(bucket));
    SHARDSCOPE_ASSIGN(const std::string base,
                      placeOfUploads(fmt::format("{:016x}", XXH3_64bits(to.data(), to.size()))));
    // What tells this job's objects from those of others.
    const std::string file = base + "/token";
    std::string token = contentOf(file);
    if (token.empty()) {
        token = newToken();
        const auto directory = systemFileSystem()->openDirectory(base);
        if (!directory.ok()) return directory.error();
        SHARDSCOPE_ASSIGN(const auto made, (*directory)->createFile("token", true));
        SHARDSCOPE_TRY(made->writeAt(0, std::as_bytes(std::span(token))));
        SHARDSCOPE_TRY(made->sync());
    }
    return std::shared_ptr<FileSystem>(
        std::make_shared<BucketFileSystem>(job, std::move(place), base, std::move(token)));
}

}  // namespace shardscope
