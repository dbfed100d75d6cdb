#include "places/bucket_files.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <limits>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/mutex.h"
#include "base/token.h"
#include "encoding/crc32c.h"
#include "places/bucket_upload.h"
#include "places/credentials.h"
#include "places/json_text.h"
#include "places/places.h"
#include "storage/url.h"

namespace shardscope {
namespace {

// A directory that nobody else can put links into; error `unsafe`. `all` holds those of all destinations.
Status checkOwn(const std::string& all) {
    struct stat found {};
    if (lstat(all.c_str(), &found) != 0) return systemError(errno, "look at", all);
    if (S_ISDIR(found.st_mode) && found.st_uid == getuid() && (found.st_mode & 0077) == 0) return {};
    return makeError(ErrorCode::unsafe,
                     "the directory for uploads belongs to somebody else, or others may write there")
        .inFile(all)
        .withHint("set TMPDIR to a directory of your own");
}

std::string placeOfUploads() {
    const std::string temporary = environment("TMPDIR");
    return fmt::format("{}/shardscope-uploads-{}", temporary.empty() ? "/var/tmp" : temporary, getuid());
}

Status makePrivate(const std::string& path) {
    return mkdir(path.c_str(), 0700) == 0 || errno == EEXIST ? Status()
                                                             : systemError(errno, "make the directory", path);
}

// A file that is sent while it is written.
class StreamedFile final : public WriteFile {
  public:
    StreamedFile(std::shared_ptr<BucketUpload> upload, std::shared_ptr<WriteFile> here, std::string name,
                 uint64_t size)
        : upload_(std::move(upload)), here_(std::move(here)), name_(std::move(name)), size_(size) {}

    const std::string& path() const override { return here_->path(); }
    // Its bytes are here only for a while, so that none are reserved.
    Status allocate(uint64_t size) override {
        size_ = size;
        const std::byte last{};
        return size == 0 ? Status() : here_->writeAt(size - 1, std::span(&last, 1));
    }
    Status writeAt(uint64_t offset, std::span<const std::byte> bytes) override {
        return upload_->wrote(name_, size_, offset, bytes.size(),
                              [&] { return here_->writeAt(offset, bytes); });
    }
    Status sync() override {
        SHARDSCOPE_TRY(here_->sync());
        return upload_->synced(name_);
    }
    Result<bool> tryLock() override { return here_->tryLock(); }

  private:
    const std::shared_ptr<BucketUpload> upload_;
    const std::shared_ptr<WriteFile> here_;
    const std::string name_;
    uint64_t size_;
};

// What the job writes: streamed files are written to this machine and read from the bucket.
class StagedDirectory final : public Directory {
  public:
    StagedDirectory(std::shared_ptr<BucketUpload> upload, std::shared_ptr<Directory> here,
                    std::function<Result<std::shared_ptr<Directory>>()> there)
        : upload_(std::move(upload)), here_(std::move(here)), there_(std::move(there)) {
        upload_->setData(here_->path());
    }

    const std::string& path() const override { return here_->path(); }
    Result<std::vector<DirectoryEntry>> list(std::string_view below) const override {
        return here_->list(below);
    }
    Result<DirectoryEntry> stat(std::string_view name) const override { return here_->stat(name); }
    Status removeFile(std::string_view name) override { return here_->removeFile(name); }
    Status sync() override { return here_->sync(); }

    Result<std::shared_ptr<const ReadFile>> openFile(std::string_view name) const override {
        if (!upload_->streams(std::string(name))) return here_->openFile(name);
        SHARDSCOPE_TRY(upload_->finishStreamed());
        SHARDSCOPE_ASSIGN(const auto directory, there_());
        return directory->openFile(name);
    }
    Result<std::shared_ptr<WriteFile>> createFile(std::string_view name, bool existing) override {
        const std::string file(name);
        if (!upload_->takes(file)) return here_->createFile(name, existing);
        const auto entry = existing ? here_->stat(name) : Result<DirectoryEntry>(DirectoryEntry());
        SHARDSCOPE_ASSIGN(auto here, here_->createFile(name, existing));
        return std::shared_ptr<WriteFile>(
            std::make_shared<StreamedFile>(upload_, std::move(here), file, entry.ok() ? entry->size : 0));
    }

  private:
    const std::shared_ptr<BucketUpload> upload_;
    const std::shared_ptr<Directory> here_;
    const std::function<Result<std::shared_ptr<Directory>>()> there_;
};

// Maps what is at and beside the destination to a directory of this machine.
class BucketFileSystem final : public BucketFiles, public SharedStaging {
  public:
    BucketFileSystem(BucketJob job, std::shared_ptr<ObjectPlace> place, std::string uploads, std::string base)
        : job_(std::move(job)),
          place_(std::move(place)),
          uploads_(std::move(uploads)),
          base_(std::move(base)),
          staging_(stagingPath(job_.destination)) {}

    // Takes over the work of a job that was interrupted.
    Status begin() {
        const std::string token = contentOf(base_ + "/token");
        if (token.empty()) {
            // Without the token nobody can continue what is here: a process has ended while it removed it.
            if (here_->stat(local(staging_)).ok()) removeHere();
            return {};
        }
        SHARDSCOPE_TRY(checkOwn(uploads_));
        if (job_.role != BucketJob::Role::all) {
            // What is here belongs to the parts that have begun there, or to none any more.
            SHARDSCOPE_ASSIGN(const std::string agreed, agreedThere());
            if (agreed.empty() || agreed != contentOf(local(staging_) + "/" + kAgreed)) {
                removeHere();
                return {};
            }
            SHARDSCOPE_TRY(use(token));
            upload_->share(idOf(agreed));
            return {};
        }
        return use(token);
    }

    Result<std::shared_ptr<Directory>> openDirectory(const std::string& path) override {
        if (path == job_.destination) return there()->openDirectory(path);
        SHARDSCOPE_ASSIGN(auto here, here_->openDirectory(local(path)));
        if (!upload_ || !path.starts_with(staging_ + "/")) return here;
        return std::shared_ptr<Directory>(
            std::make_shared<StagedDirectory>(upload_, std::move(here), [this] { return sent(); }));
    }
    Status makeDirectory(const std::string& path) override {
        // Since the beginning, another process of this machine may have begun, or have ended.
        if (path == staging_ && !upload_) SHARDSCOPE_TRY(begin());
        if (path == staging_ && !here_->stat(local(path)).ok()) {
            if (upload_) forget();  // of a job whose work here was taken away
            const std::string token = contentOf(base_ + "/token");
            SHARDSCOPE_TRY(makeBase(token.empty() ? newToken() : token));
        }
        return here_->makeDirectory(local(path));
    }
    Result<DirectoryEntry> stat(const std::string& path) override {
        if (path != job_.destination) return here_->stat(local(path));
        SHARDSCOPE_ASSIGN(DirectoryEntry entry, there()->stat(path));
        // As long as this job's claim is there, its upload is not finished, and there is no checkpoint yet.
        const auto claimed = place_->head(claimOf(*place_, key(path)));
        if (claimed.ok() && !token_.empty() && claimed->mark == token_)
            return makeError(ErrorCode::notFound, "is not published yet").inFile(path);
        return entry;
    }
    Status rename(const std::string& from, const std::string& to) override {
        if (to != job_.destination) return here_->rename(local(from), local(to));
        return upload_->publish(local(from));
    }
    Status exchange(const std::string&, const std::string& b) override { return nothingIsReplaced(b); }
    Status removeTree(const std::string& path) override {
        SHARDSCOPE_TRY(here_->removeTree(local(path)));
        if (path == staging_ && upload_) forget();
        return {};
    }
    Status syncDirectory(const std::string& path) override { return here_->syncDirectory(local(path)); }
    Result<uint64_t> freeBytes(const std::string& path) override {
        // What the store cannot do, or does not let this job do, is known before anything is written.
        if (upload_) SHARDSCOPE_TRY(upload_->begin());
        // Only what is not sent yet is here.
        if (upload_ && upload_->streamsAny()) return std::numeric_limits<uint64_t>::max() / 4;
        return here_->freeBytes(local(path));
    }
    bool isUnguarded() const override { return unguarded_ || (upload_ && !upload_->isGuarded()); }
    bool provesWrites() const override { return upload_ && upload_->begin().ok() && upload_->checks(); }
    bool showsUnfinished() const override { return false; }  // parts of an upload cannot be read
    std::string shown(const std::string& path) const override { return local(path); }
    Result<std::shared_ptr<WriteFile>> createScratch(const std::string& directory) override {
        return here_->createScratch(schemeOf(directory).empty() ? directory : local(directory));
    }
    Result<std::shared_ptr<const ReadFile>> reopen(const std::shared_ptr<WriteFile>& file) override {
        return here_->reopen(file);
    }

    Result<std::string> agree(const std::string& text) override {
        const StopScope scope(job_.stop);
        const std::string claim = claimOf(*place_, key(job_.destination));
        if (place_->head(claim).ok()) return anotherJob(*place_, job_.destination, claim);
        const std::string name = staged(kAgreed);
        const auto bytes = std::as_bytes(std::span(text));
        const auto created = createNew(*place_, name, bytes, idOf(text));
        if (!created.ok() && created.error().code != ErrorCode::exists) return created.error();
        SHARDSCOPE_ASSIGN(std::string agreed, agreedThere());
        upload_->share(idOf(agreed));
        return agreed;
    }
    Result<std::set<std::string>> done() override {
        SHARDSCOPE_ASSIGN(const auto objects, listAll(*place_, staged("part-")));
        std::set<std::string> names;
        for (const ObjectState& object : objects) {
            std::string name = object.key.substr(staged("").size());
            // They become files here; anybody who may write there can have put others beside them.
            if (name.ends_with(".journal") && name.find('/') == std::string::npos)
                names.insert(std::move(name));
        }
        return names;
    }
    Status partDone(const std::string& journal, std::span<const std::byte> content) override {
        const StopScope scope(job_.stop);
        SHARDSCOPE_TRY(upload_->sendPieces(journal));
        SHARDSCOPE_TRY(place_->put(staged(journal), content, {false, {}, crc32cOf(content)}));
        removeHere();
        return {};
    }
    Status gather() override {
        const StopScope scope(job_.stop);
        SHARDSCOPE_ASSIGN(const std::string agreed, agreedThere());
        if (agreed.empty()) return {};
        if (!here_->stat(local(staging_)).ok()) SHARDSCOPE_TRY(makeDirectory(staging_));
        upload_->share(idOf(agreed));
        // A staging directory with a marker and without data would be one that is published.
        const Status made = here_->makeDirectory(local(staging_) + "/data");
        if (!made.ok() && made.error().code != ErrorCode::exists) return made;
        SHARDSCOPE_TRY(keepHere(kAgreed, agreed));
        SHARDSCOPE_ASSIGN(const std::set<std::string> journals, done());
        for (const std::string& journal : journals) {
            SHARDSCOPE_ASSIGN(const std::string content, textOfObject(*place_, staged(journal)));
            SHARDSCOPE_TRY(keepHere(journal, content));
        }
        return {};
    }
    Status gatherData() override { return upload_->gather(); }

  private:
    static constexpr const char* kAgreed = "parts";

    // The key of what parts have beside the destination.
    std::string staged(std::string_view name) const {
        return stagingKey(*place_, key(job_.destination)) + std::string(name);
    }
    // What the parts have agreed on; empty = none has begun.
    Result<std::string> agreedThere() const {
        auto text = textOfObject(*place_, staged(kAgreed));
        if (!text.ok() && text.error().code == ErrorCode::notFound) return std::string();
        return text;
    }
    static std::string idOf(const std::string& agreed) {
        return textOf(nlohmann::json::parse(agreed, nullptr, false), "id");
    }
    Status keepHere(const std::string& name, const std::string& content) const {
        SHARDSCOPE_ASSIGN(const auto directory, here_->openDirectory(local(staging_)));
        const auto there = directory->stat(name);
        // Another process of this host may be reading it.
        if (there.ok() && there->size == content.size()) return {};
        if (there.ok()) SHARDSCOPE_TRY(directory->removeFile(name));
        SHARDSCOPE_ASSIGN(const auto file, directory->createFile(name, true));
        return file->writeAt(0, std::as_bytes(std::span(content)));
    }
    // At once for all that look, because the process may be ended at any moment.
    void removeHere() const {
        std::error_code none, failed;
        const std::string removed = base_ + "-removed";
        std::filesystem::remove_all(removed, none);  // of a process that was
        std::filesystem::rename(base_, removed, failed);
        std::filesystem::remove_all(failed ? base_ : removed, none);
    }

    // What tells this job's objects from those of others is on disk before the first of them.
    Status makeBase(const std::string& token) {
        SHARDSCOPE_TRY(makePrivate(uploads_));
        SHARDSCOPE_TRY(checkOwn(uploads_));
        SHARDSCOPE_TRY(makePrivate(base_));
        SHARDSCOPE_ASSIGN(const auto directory, here_->openDirectory(base_));
        SHARDSCOPE_ASSIGN(const auto made, directory->createFile("token", true));
        SHARDSCOPE_TRY(made->writeAt(0, std::as_bytes(std::span(token))));
        SHARDSCOPE_TRY(made->sync());
        return use(token);
    }
    Status use(const std::string& token) {
        token_ = token;
        upload_ = std::make_shared<BucketUpload>(place_, job_, key(job_.destination), token, base_ + "/sent");
        return upload_->readRecord();
    }

    void forget() {
        const StopScope goesOn({});  // also of a job that was stopped
        const bool gone = upload_->abandon();
        const std::string token = std::exchange(token_, {});
        unguarded_ = isUnguarded();
        upload_.reset();
        removeHere();
        // The claim that stays is this host's, so that the next job from here is not refused.
        if (!gone) (void)makeBase(token);
    }

    // A new one each time, because it keeps what it has listed.
    std::shared_ptr<FileSystem> there() const { return objectFileSystem(place_); }
    // The destination with the files that are complete; listed once.
    Result<std::shared_ptr<Directory>> sent() {
        MutexLock lock(mutex_);
        if (!sent_) {
            SHARDSCOPE_ASSIGN(sent_,
                              there()->openDirectory(job_.singleFile ? splitPath(job_.destination).first
                                                                     : job_.destination));
        }
        return sent_;
    }
    std::string key(const std::string& path) const { return path.substr(place_->root().size() + 1); }
    // "s3://bucket/run" is the directory of this destination, what is beside the destination is in it.
    std::string local(const std::string& path) const {
        const std::string parent = splitPath(job_.destination).first;
        return path.starts_with(parent) ? base_ + path.substr(parent.size()) : path;
    }

    const BucketJob job_;
    const std::shared_ptr<ObjectPlace> place_;
    const std::shared_ptr<FileSystem> here_ = systemFileSystem();
    const std::string uploads_, base_, staging_;
    std::string token_;
    std::shared_ptr<BucketUpload> upload_;  // null = nothing of this job is here
    bool unguarded_ = false;                // as the last upload found
    Mutex mutex_;
    std::shared_ptr<Directory> sent_ SHARDSCOPE_GUARDED_BY(mutex_);
};

}  // namespace

Error nothingIsReplaced(const std::string& destination) {
    return makeError(ErrorCode::impossible, "nothing is replaced in a bucket, where it could not be undone")
        .inFile(destination)
        .withHint("write beside it, or remove it first");
}

namespace {

// Where a process keeps what it has not sent.
std::string nameHere(const BucketJob& job) {
    std::string name = fmt::format("{:016x}", XXH3_64bits(job.destination.data(), job.destination.size()));
    if (job.role == BucketJob::Role::part) name += fmt::format("-part-{}", job.part);
    if (job.role == BucketJob::Role::finish) name += "-finish";
    return name;
}

// The bucket of a place in it; other places cannot be written to.
Result<std::shared_ptr<ObjectPlace>> placeFor(const std::string& to) {
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
    // Stores do not agree on what two slashes in a row are.
    if (!checkRelativeName(to.substr(placeLength(to) + 1)).ok())
        return makeError(ErrorCode::usage, "no file can have such a name")
            .inFile(to)
            .withHint("leave out empty names, '.' and '..'");
    return scheme == "s3" ? s3Place(bucket) : googlePlace(bucket);
}

Result<std::shared_ptr<BucketFileSystem>> openBucket(const BucketJob& job) {
    SHARDSCOPE_ASSIGN(auto place, placeFor(job.destination));
    const std::string uploads = placeOfUploads();
    auto files =
        std::make_shared<BucketFileSystem>(job, std::move(place), uploads, uploads + "/" + nameHere(job));
    SHARDSCOPE_TRY(files->begin());
    return files;
}

}  // namespace

Result<std::shared_ptr<BucketFiles>> bucketFileSystem(const BucketJob& job) {
    SHARDSCOPE_ASSIGN(auto files, openBucket(job));
    return std::shared_ptr<BucketFiles>(std::move(files));
}

Status checkMayPutObject(const std::string& url) {
    SHARDSCOPE_ASSIGN(const auto place, placeFor(url));
    const auto there = place->head(url.substr(place->root().size() + 1));
    if (there.ok())
        return makeError(ErrorCode::exists, "there is an object of this name already").inFile(url);
    return there.error().code == ErrorCode::notFound ? Status() : Status(there.error());
}

Status putObject(const std::string& url, std::span<const std::byte> bytes) {
    SHARDSCOPE_TRY(checkMayPutObject(url));
    SHARDSCOPE_ASSIGN(const auto place, placeFor(url));
    const std::string key = url.substr(place->root().size() + 1), mark = newToken();
    const Status put = place->put(key, bytes, {true, mark, crc32cOf(bytes)});
    // An answer that was lost and asked for again finds the object that it has made.
    if (!put.ok() && put.error().code != ErrorCode::exists) return put;
    SHARDSCOPE_ASSIGN(const ObjectState there, place->head(key));
    if (there.mark != mark)
        return put.ok() ? makeError(ErrorCode::exists, "another process has written this object").inFile(url)
                        : put.error();
    std::vector<std::byte> read(there.size == bytes.size() ? bytes.size() : 0);
    SHARDSCOPE_TRY(place->read(there, 0, read));
    if (std::ranges::equal(read, bytes)) return {};
    (void)place->remove(key);
    return makeError(ErrorCode::verificationFailed, "the store holds other bytes than were sent").inFile(url);
}

Result<BucketParts> bucketParts(const BucketJob& job) {
    SHARDSCOPE_ASSIGN(const auto files, openBucket(job));
    return BucketParts{files, files};
}

}  // namespace shardscope
