#include "places/bucket_upload.h"

#include <algorithm>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/numbers.h"
#include "base/option_words.h"
#include "base/thread_pool.h"
#include "encoding/crc32c.h"
#include "places/credentials.h"
#include "places/json_text.h"
#include "places/places.h"

namespace shardscope {
namespace {

constexpr uint64_t kLeastPart = kSentWhole;  // bytes; stores take no less than 5 MiB
constexpr uint64_t kMostParts = 9000;        // stores take 10,000
constexpr size_t kTries = 3;                 // of a part that arrived as other bytes
constexpr size_t kHoles = 8;                 // parts sent before their bytes here are given back

uint64_t partBytesOf(uint64_t size) {
    const uint64_t least = (size + kMostParts - 1) / kMostParts, mib = uint64_t{1} << 20;
    return std::max(kLeastPart, (least + mib - 1) / mib * mib);
}

}  // namespace

Result<std::string> textOfObject(ObjectPlace& place, const std::string& key) {
    constexpr uint64_t kMostText = uint64_t{64} << 20;
    SHARDSCOPE_ASSIGN(const ObjectState object, place.head(key));
    if (object.size > kMostText)
        return makeError(ErrorCode::limit, "the object is too large for what it should hold")
            .inFile(place.root() + "/" + key);
    std::string text(object.size, '\0');
    SHARDSCOPE_TRY(place.read(object, 0, std::as_writable_bytes(std::span(text))));
    return text;
}

Error anotherJob(const ObjectPlace& place, const std::string& destination, const std::string& claim) {
    return makeError(ErrorCode::exists, "another job uploads to this destination")
        .inFile(destination)
        .withHint(fmt::format("if that job is dead, remove the object {}/{}", place.root(), claim));
}

Result<bool> createNew(ObjectPlace& place, const std::string& key, std::span<const std::byte> bytes,
                       const std::string& mark, bool unguarded) {
    // What a store without conditions would write over.
    const auto there = place.head(key);
    if (there.ok() && there->mark != mark)
        return makeError(ErrorCode::exists, "is there already").inFile(place.root() + "/" + key);
    if (!there.ok() && there.error().code != ErrorCode::notFound) return there.error();
    ObjectPlace::Put how{true, mark, crc32cOf(bytes)};
    Status made = place.put(key, bytes, how);
    // A store that takes it again knows no conditions, and two jobs would not see each other.
    const Status again = made.ok() ? place.put(key, bytes, how) : made;
    if (!again.ok() && again.error().code != ErrorCode::unsupported) {
        if (made.ok() && again.error().code == ErrorCode::exists) return true;
        return again.error();
    }
    if (unguarded) {
        how.onlyNew = false;
        if (!made.ok()) SHARDSCOPE_TRY(place.put(key, bytes, how));
        return false;
    }
    if (made.ok()) (void)place.remove(key);
    return makeError(ErrorCode::unsupported,
                     "the store knows no writes that only create an object (If-None-Match), so that two jobs "
                     "with one destination would not see each other")
        .inFile(place.root())
        .withHint(option("unguarded") + " writes there nevertheless; let one process alone do so");
}

std::string stagingKey(const ObjectPlace& place, const std::string& key) {
    const std::string root = place.root() + "/";
    return stagingPath(root + key).substr(root.size()) + "/";
}

std::string claimOf(const ObjectPlace& place, const std::string& key) {
    return stagingKey(place, key) + "claim";
}

BucketUpload::BucketUpload(std::shared_ptr<ObjectPlace> place, BucketJob job, std::string key,
                           std::string token, std::string record)
    : place_(std::move(place)),
      job_(std::move(job)),
      key_(std::move(key)),
      token_(std::move(token)),
      staging_(stagingKey(*place_, key_)),
      claim_(claimOf(*place_, key_)),
      record_(std::move(record)),
      mark_(token_),
      memory_(job_.memory) {}

BucketUpload::File& BucketUpload::fileOf(const std::string& name, uint64_t size) {
    MutexLock lock(filesMutex_);
    auto& file = files_[name];
    if (!file) {
        file = std::make_unique<File>();
        file->name = name;
        file->key = job_.singleFile ? key_ : key_ + "/" + name;
        file->size = size;
        file->partBytes = partBytesOf(size);
        MutexLock parts(file->mutex);
        if (size > kLeastPart) file->parts.resize((size + file->partBytes - 1) / file->partBytes);
    }
    return *file;
}

// ------------------------------------------------------------------ the record

Status BucketUpload::readRecord() {
    const std::string text = contentOf(record_);
    size_t at = 0;
    for (size_t end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
        const auto line = nlohmann::json::parse(text.substr(at, end - at), nullptr, false);
        if (!line.is_object() || !line.contains("file") || !line["file"].is_string()) break;
        const auto number = [&](const char* name) -> uint64_t {
            return line.contains(name) && line[name].is_number_unsigned() ? line[name].get<uint64_t>() : 0;
        };
        File& file = fileOf(line["file"], number("size"));
        MutexLock lock(file.mutex);
        if (line.contains("upload")) file.upload = textOf(line, "upload");
        if (line.contains("complete")) file.complete = true;
        if (const auto ranges = line.find("ranges"); ranges != line.end())
            (void)addRanges(file.written, *ranges, file.size);
        const uint64_t part = number("part");
        if (part == 0 || part > file.parts.size()) continue;
        file.parts[part - 1] = {{static_cast<unsigned>(part), textOf(line, "tag")},
                                static_cast<uint32_t>(number("crc32c")),
                                true,
                                true};
    }
    MutexLock lock(recordMutex_);
    recordEnd_ = at;
    return {};
}

Status BucketUpload::book(const File& file, nlohmann::json line, uint64_t offset, uint64_t bytes) {
    line["file"] = file.name;
    line["size"] = file.size;
    const std::string text = line.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
    MutexLock lock(recordMutex_);
    if (!recordFile_) {
        const auto [parent, name] = splitPath(record_);
        SHARDSCOPE_ASSIGN(const auto directory, systemFileSystem()->openDirectory(parent));
        SHARDSCOPE_ASSIGN(recordFile_, directory->createFile(name, true));
    }
    SHARDSCOPE_TRY(recordFile_->writeAt(recordEnd_, std::as_bytes(std::span(text))));
    recordEnd_ += text.size();
    if (bytes > 0) holes_.push_back({file.name, offset, bytes});
    if (holes_.size() < kHoles) return {};
    // What was sent is forgotten here once it is on the disk that it was.
    SHARDSCOPE_TRY(recordFile_->sync());
    for (const Hole& hole : std::exchange(holes_, {}))
        giveBack(hole.name, hole.offset, hole.size);
    return {};
}

// Where the file system cannot, the bytes stay until the job is done.
void BucketUpload::giveBack(const std::string& name, uint64_t offset, uint64_t bytes) const {
    const std::string path = joinPath(data_, name);
    const int fd = ::open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return;
    (void)fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                    static_cast<off_t>(bytes));
    ::close(fd);
}

// ------------------------------------------------------------------ one job at a time

Status BucketUpload::begin() {
    MutexLock lock(begun_);
    if (claimed_) return {};
    const StopScope scope(job_.stop);
    // A part needs to know only where its bytes of the last file go.
    if (isPart() && (probed_ || job_.last.empty())) return {};
    if (!isPart()) SHARDSCOPE_TRY(claim());
    SHARDSCOPE_TRY(probeChecksums());
    claimed_ = !isPart();
    probed_ = true;
    return {};
}

// Only one job at a time uploads to a destination: the one that created the claim. When it is resumed, it
// finds its own claim.
Status BucketUpload::claim() {
    if (!inParts() && place_->head(staging_ + "parts").ok())
        return makeError(ErrorCode::exists, "a job in parts has begun to write this destination")
            .inFile(job_.destination)
            .withHint(fmt::format("finish it ({}); or remove all objects under {}/{}", option("finish"),
                                  place_->root(), staging_));
    const auto guarded =
        createNew(*place_, claim_, std::as_bytes(std::span(token_)), token_, job_.unguarded && !inParts());
    if (!guarded.ok() && guarded.error().code != ErrorCode::exists) return guarded.error();
    guarded_ = !guarded.ok() || *guarded;
    return checkClaimed();
}

Status BucketUpload::checkClaimed() const {
    const auto claimed = place_->head(claim_);
    const bool ended = !claimed.ok() && claimed.error().code == ErrorCode::notFound;  // in between
    if (!claimed.ok() && !ended) return claimed.error();
    if (ended || claimed->mark != token_) return anotherJob(*place_, job_.destination, claim_);
    return {};
}

// Whether the store refuses bytes that do not have the checksum that comes with them.
Status BucketUpload::probeChecksums() {
    const std::string key = claim_ + "-checksum";
    const auto bytes = std::as_bytes(std::span(token_));
    const Status put = place_->put(key, bytes, {false, {}, crc32cOf(bytes) ^ 1});
    if (put.ok()) return place_->remove(key);
    if (put.error().code != ErrorCode::damaged) return put;
    checks_ = true;
    return {};
}

// ------------------------------------------------------------------ while the job writes

Status BucketUpload::wrote(const std::string& name, uint64_t size, uint64_t offset, uint64_t bytes,
                           const std::function<Status()>& write) {
    if (isPart()) SHARDSCOPE_TRY(begin());
    File& file = fileOf(name, size);
    if (bytes == 0 || offset >= size || bytes > size - offset) return write();
    if (size <= kLeastPart || !streams(name)) {
        SHARDSCOPE_TRY(write());
        MutexLock lock(file.mutex);
        if (isPart()) addRange(file.written, offset, offset + bytes);
        return {};
    }
    const auto first = static_cast<size_t>(offset / file.partBytes),
               last = static_cast<size_t>((offset + bytes - 1) / file.partBytes);
    bool needed = false;
    {
        MutexLock lock(file.mutex);
        for (size_t i = first; i <= last; ++i) {
            // In parts the same bytes may come from several of them.
            if (file.parts[i].full && !file.parts[i].earlier && !inParts())
                return makeError(ErrorCode::internal, "bytes of a part that was sent are written again")
                    .inFile(file.name)
                    .at(offset);
            needed = needed || !file.parts[i].full;
        }
    }
    if (!needed) return {};  // an earlier process has sent them
    SHARDSCOPE_TRY(write());
    std::vector<size_t> full;
    {
        MutexLock lock(file.mutex);
        full = note(file, offset, offset + bytes);
    }
    for (const size_t i : full) {
        SHARDSCOPE_TRY(begin());
        SHARDSCOPE_TRY(sendPart(file, i));
    }
    return {};
}

std::vector<size_t> BucketUpload::note(File& file, uint64_t begin, uint64_t end) {
    addRange(file.written, begin, end);
    std::vector<size_t> full;
    for (auto i = static_cast<size_t>(begin / file.partBytes); i * file.partBytes < end; ++i) {
        Sent& part = file.parts[i];
        const uint64_t at = i * file.partBytes;
        if (part.full || !covers(file.written, at, at + file.partSize(i))) continue;
        part.full = true;
        full.push_back(i);
    }
    return full;
}

Status BucketUpload::start(File& file, std::string& upload) {
    MutexLock lock(file.mutex);
    if (file.upload.empty() && isPart()) {
        SHARDSCOPE_ASSIGN(file.upload, sharedUpload(file));
    } else if (file.upload.empty()) {
        SHARDSCOPE_ASSIGN(const bool there, isThere(file));
        if (there) return alreadyThere(file);
        SHARDSCOPE_ASSIGN(file.upload, place_->startUpload(file.key, {false, mark_, 0}));
        SHARDSCOPE_TRY(book(file, {{"upload", file.upload}}));
    }
    upload = file.upload;
    return {};
}

Status BucketUpload::sendPart(File& file, size_t i) {
    const StopScope scope(job_.stop);
    std::string upload;
    SHARDSCOPE_TRY(start(file, upload));
    const uint64_t at = i * file.partBytes;
    SHARDSCOPE_ASSIGN(Bytes sent, bytesOf(file, at, file.partSize(i)));
    const std::span<const std::byte> bytes = sent.all.span();
    const uint32_t sum = crc32cOf(bytes);
    for (size_t tries = 1;; ++tries) {
        auto part = place_->putPart(file.key, upload, static_cast<unsigned>(i + 1), bytes, sum);
        if (part.ok()) {
            SHARDSCOPE_TRY(
                book(file, {{"part", i + 1}, {"tag", part->tag}, {"crc32c", sum}}, at, bytes.size()));
            MutexLock lock(file.mutex);
            file.parts[i] = {*std::move(part), sum, true, false};
            return {};
        }
        if (part.error().code == ErrorCode::notFound && !inParts()) return endedByOthers(file);
        if (part.error().code != ErrorCode::damaged || tries == kTries) return std::move(part).error();
    }
}

// What was sent is lost, and no longer on this machine either.
Error BucketUpload::endedByOthers(const File& file) const {
    return makeError(
               ErrorCode::impossible,
               "its upload is no longer in the bucket: somebody has ended it, or a rule of the bucket for "
               "unfinished uploads")
        .inFile(place_->root() + "/" + file.key)
        .withHint("start again, without " + option("resume"));
}

Result<BucketUpload::Bytes> BucketUpload::bytesOf(const File& file, uint64_t at, uint64_t size) const {
    MemoryBudget::Lease lease = memory_.acquire(size);
    SHARDSCOPE_ASSIGN(const auto directory, systemFileSystem()->openDirectory(data_));
    SHARDSCOPE_ASSIGN(const auto from, directory->openFile(file.name));
    AlignedBuffer bytes(size);
    SHARDSCOPE_TRY(from->readAt(at, bytes.span()));
    return Bytes{std::move(lease), std::move(bytes)};
}

Status BucketUpload::synced(const std::string& name) {
    if (!isPart()) return {};
    MutexLock lock(filesMutex_);
    const auto found = files_.find(name);
    if (found == files_.end()) return {};
    nlohmann::json ranges;
    {
        MutexLock one(found->second->mutex);
        ranges = jsonOf(found->second->written);
    }
    return book(*found->second, {{"ranges", std::move(ranges)}});
}

// ------------------------------------------------------------------ once all is written

Error BucketUpload::alreadyThere(const File& file) const {
    return makeError(ErrorCode::exists, "there is an object of this name already")
        .inFile(place_->root() + "/" + file.key);
}

// Of this job, which was interrupted: objects are whole. Errors: exists, of something else.
Result<bool> BucketUpload::isThere(const File& file) const {
    const auto there = place_->head(file.key);
    if (!there.ok() && there.error().code == ErrorCode::notFound) return false;
    if (!there.ok()) return there.error();
    if (there->mark != mark_ || there->size != file.size) return alreadyThere(file);
    return true;
}

// The parts of these files that are not sent; `whole`: of those whose bytes are all here.
Status BucketUpload::sendRest(const std::vector<File*>& files, bool whole) {
    std::vector<std::pair<File*, size_t>> rest;
    for (File* file : files) {
        MutexLock lock(file->mutex);
        if (file->complete) continue;
        for (size_t i = 0; i < file->parts.size(); ++i) {
            const Sent& sent = file->parts[i];
            if (sent.part.number == 0 && (sent.full || !whole)) rest.emplace_back(file, i);
        }
    }
    ThreadPool pool(kSending - 1);
    return pool.parallelFor(rest.size(), job_.stop, [&](size_t i) -> Status {
        SHARDSCOPE_TRY(sendPart(*rest[i].first, rest[i].second));
        if (job_.progress && finished_) job_.progress->add(rest[i].first->partSize(rest[i].second));
        return {};
    });
}

// Makes an object of a file of which all parts are sent. `seal`: nothing may be there, which the store sees
// to.
Status BucketUpload::complete(File& file, bool seal) {
    const StopScope scope(job_.stop);
    MutexLock lock(file.mutex);
    if (file.complete) return {};
    if (seal && !guarded_) {
        // Nothing better can be done: others may come in between.
        SHARDSCOPE_TRY(checkClaimed());
        SHARDSCOPE_TRY(isThere(file));
    }
    if (file.parts.empty()) {
        ObjectPlace::Put how{seal && guarded_, mark_, 0};
        SHARDSCOPE_TRY(sendWhole(file, how));
    } else {
        SHARDSCOPE_TRY(completeUpload(file, seal));
        // What is streamed is read back by the job.
        for (size_t i = 0; i < file.parts.size() && !checks_ && !streams(file.name); ++i)
            SHARDSCOPE_TRY(readBack(file, i * file.partBytes, file.partSize(i), file.parts[i].sum));
    }
    file.complete = true;
    return book(file, {{"complete", true}});
}

Status BucketUpload::completeUpload(File& file, bool seal) {
    std::vector<ObjectPlace::Part> parts;
    for (const Sent& sent : file.parts)
        parts.push_back(sent.part);
    Status made = place_->complete(file.key, file.upload, parts, {seal && guarded_, mark_, 0});
    // An interrupted process has got as far as this, and the store looks at the condition first.
    if (!made.ok() && made.error().code == ErrorCode::exists) {
        const auto there = isThere(file);
        if (there.ok() && *there) return {};
    }
    if (!made.ok() && made.error().code == ErrorCode::notFound && !inParts()) return endedByOthers(file);
    return made;
}

Status BucketUpload::sendWhole(const File& file, ObjectPlace::Put& how) {
    SHARDSCOPE_ASSIGN(const bool there, isThere(file));
    if (there) return {};
    SHARDSCOPE_ASSIGN(Bytes sent, bytesOf(file, 0, file.size));
    how.crc32c = crc32cOf(sent.all.span());
    Status put = place_->put(file.key, sent.all.span(), how);
    // An answer that was lost and asked for again finds the object that it has made.
    if (!put.ok() && put.error().code == ErrorCode::exists) {
        const auto made = isThere(file);
        if (made.ok() && *made) put = {};
    }
    sent = {};
    if (put.ok() && !checks_ && file.size > 0) put = readBack(file, 0, file.size, how.crc32c);
    if (put.ok() && job_.progress && finished_) job_.progress->add(file.size);
    return put;
}

Status BucketUpload::readBack(const File& file, uint64_t at, uint64_t size, uint32_t sum) const {
    SHARDSCOPE_ASSIGN(const ObjectState state, place_->head(file.key));
    const auto differs = [&] {
        return makeError(ErrorCode::verificationFailed, "the store holds other bytes than were sent")
            .inFile(place_->root() + "/" + file.key)
            .at(at);
    };
    if (state.size != file.size) return differs();
    const MemoryBudget::Lease lease = memory_.acquire(size);
    AlignedBuffer bytes(size);
    SHARDSCOPE_TRY(place_->read(state, at, bytes.span()));
    return crc32cOf(bytes.span()) == sum ? Status() : Status(differs());
}

Status BucketUpload::finishStreamed() {
    MutexLock one(finishing_);
    if (finished_) return {};
    if (streamsAny()) SHARDSCOPE_TRY(begin());
    std::vector<std::string> names = job_.streamed;
    if (streamsLast()) names.push_back(job_.last);
    std::vector<File*> files;
    SHARDSCOPE_ASSIGN(const auto directory, systemFileSystem()->openDirectory(data_));
    for (const std::string& name : names) {
        SHARDSCOPE_ASSIGN(const DirectoryEntry entry, directory->stat(name));
        files.push_back(&fileOf(name, entry.size));
    }
    SHARDSCOPE_TRY(sendRest(files));
    File* last = nullptr;
    if (streamsLast()) {
        last = files.back();
        files.pop_back();
    }
    ThreadPool pool(kSending - 1);
    SHARDSCOPE_TRY(
        pool.parallelFor(files.size(), job_.stop, [&](size_t i) { return complete(*files[i], false); }));
    if (last) SHARDSCOPE_TRY(complete(*last, true));
    finished_ = true;
    return {};
}

Status BucketUpload::collect(const Directory& directory, const std::string& below,
                             std::vector<File*>& files) {
    SHARDSCOPE_ASSIGN(const auto entries, directory.list(below));
    for (const DirectoryEntry& entry : entries) {
        const std::string name = below.empty() ? entry.name : below + "/" + entry.name;
        if (entry.kind == DirectoryEntry::Kind::directory)
            SHARDSCOPE_TRY(collect(directory, name, files));
        else if (!streams(name))
            files.push_back(&fileOf(name, entry.size));
    }
    return {};
}

Status BucketUpload::publish(const std::string& from) {
    SHARDSCOPE_ASSIGN(const DirectoryEntry entry, systemFileSystem()->stat(from));
    std::vector<File*> files;
    if (entry.kind == DirectoryEntry::Kind::file) {
        const std::string name = splitPath(key_).second;
        if (!streams(name)) files.push_back(&fileOf(name, entry.size));
    } else {
        SHARDSCOPE_ASSIGN(const auto directory, systemFileSystem()->openDirectory(from));
        SHARDSCOPE_TRY(collect(*directory, "", files));
    }
    // Data first, what makes a checkpoint of it last.
    const auto rank = [&](const File* file) {
        const auto it = std::find(job_.seals.begin(), job_.seals.end(), file->name);
        return std::pair(it == job_.seals.end() ? 0 : it - job_.seals.begin() + 1, file->name);
    };
    std::sort(files.begin(), files.end(), [&](const File* x, const File* y) { return rank(x) < rank(y); });
    const auto send = [&]() -> Status {
        SHARDSCOPE_TRY(begin());
        SHARDSCOPE_TRY(finishStreamed());
        if (job_.progress) {
            uint64_t bytes = 0;
            for (const File* file : files)
                bytes += file->size;
            job_.progress->begin(Progress::Phase::write, bytes);
        }
        for (File* file : files) {
            SHARDSCOPE_TRY(sendRest({file}));
            SHARDSCOPE_TRY(complete(*file, file == files.back()));
        }
        return {};
    };
    if (Status sent = send(); !sent.ok())
        return alsoHint(std::move(sent).error(),
                        "what is uploaded is no checkpoint yet; the same command, resumed, continues");
    published_ = true;
    if (inParts()) removeShared();
    (void)place_->remove(claim_);
    return {};
}

// As far as the store lets it.
bool BucketUpload::abandon() {
    if (published_ || isPart()) return true;
    {
        MutexLock lock(begun_);
        if (inParts() && !claimed_) return true;  // it may be another process's
    }
    MutexLock lock(filesMutex_);
    for (const auto& [name, file] : files_) {
        MutexLock one(file->mutex);
        if (file->complete) {
            const auto there = isThere(*file);
            if (there.ok() && *there) (void)place_->remove(file->key);
        } else if (!file->upload.empty()) {
            (void)place_->abandon(file->key, file->upload);
        }
    }
    files_.clear();
    if (inParts()) removeShared();
    const auto claimed = place_->head(claim_);
    if (!claimed.ok()) return claimed.error().code == ErrorCode::notFound;
    return claimed->mark != token_ || place_->remove(claim_).ok();
}

}  // namespace shardscope
