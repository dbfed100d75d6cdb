// The upload of one destination into a bucket, from a directory of this machine that holds the unsent bytes.
// Private to this room.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/memory_budget.h"
#include "base/mutex.h"
#include "places/bucket_files.h"
#include "places/byte_ranges.h"
#include "storage/aligned_buffer.h"
#include "storage/file_system.h"
#include "storage/object_place.h"

namespace shardscope {

// The prefix of the keys that a job has beside the destination until it publishes, with a slash at its end:
//   claim                  keeps other jobs from this destination
// and for a job in parts
//   parts                  what all parts agree on
//   part-3.journal         says that part 3 is done
//   part-3.sent            which bytes it has sent: {FILE: [[BEGIN, END], ...], ...}
//   uploads/NAME           the id of a file's multipart upload, which all parts send to
//   data/NAME/BEGIN-END    bytes of a file that do not fill a part of its upload
std::string stagingKey(const ObjectPlace& place, const std::string& key);
std::string claimOf(const ObjectPlace& place, const std::string& key);

// The error `exists` for a destination that another job has claimed.
Error anotherJob(const ObjectPlace& place, const std::string& destination, const std::string& claim);
// Creates an object of this mark where there is none. Errors: exists, unsupported (the store ignores or
// refuses conditional writes, and nothing is left there; never if `unguarded`), those of the place. Returns
// whether the store sees to it that there was none.
Result<bool> createNew(ObjectPlace& place, const std::string& key, std::span<const std::byte> bytes,
                       const std::string& mark, bool unguarded = false);

// The content of an object of at most 64 MiB. Errors: limit, those of the place.
Result<std::string> textOfObject(ObjectPlace& place, const std::string& key);

// Sends each part of a streamed file as soon as all of it is written, and then frees its bytes on this disk.
// Sends other files, and those of 8 MiB or less, once everything is written. A record of what was sent lets a
// later process resume. Thread-safe.
class BucketUpload {
  public:
    // `key`: of the destination. `token` marks the objects of this job. `record`: path of the record on this
    // machine.
    BucketUpload(std::shared_ptr<ObjectPlace> place, BucketJob job, std::string key, std::string token,
                 std::string record);

    // For a job in parts, before anything is written. `mark` is the same in all processes of the job; it
    // marks the objects instead of the token.
    void share(std::string mark) { mark_ = std::move(mark); }
    // Takes over from the record what an earlier process has sent. Stops at the first damaged line.
    Status readRecord();
    // Sets the directory of this machine that holds the files. To be called before anything is written.
    void setData(std::string directory) { data_ = std::move(directory); }
    // Known after begin().
    bool streams(const std::string& name) const {
        return std::find(job_.streamed.begin(), job_.streamed.end(), name) != job_.streamed.end() ||
               (streamsLast() && name == job_.last);
    }
    bool streamsAny() const { return !job_.streamed.empty() || streamsLast(); }
    // Whether writes to a file go through wrote(). Those of a part of a job all do.
    bool takes(const std::string& name) const { return isPart() || streams(name); }

    // Claims the destination, which a part does not, and tests what the store can do; does nothing after a
    // success. The functions that send call it themselves. Errors: exists (another job is at work),
    // unsupported (a store without conditional writes), those of the store.
    Status begin();

    // Writes the range of `bytes` bytes at `offset` of a file of `size` bytes, and sends the upload parts
    // that are complete then. write() writes the range on this machine. It is not called if an earlier
    // process has sent the range. Errors: those of write() and of the store.
    Status wrote(const std::string& name, uint64_t size, uint64_t offset, uint64_t bytes,
                 const std::function<Status()>& write);
    // Says that all writes to a file so far are on this machine's disk; a part records their ranges. Errors:
    // io.
    Status synced(const std::string& name);

    // For a part: sends the bytes that it has written and not sent yet, and records all that it has sent.
    // `journal` is the name of the object that will say so.
    Status sendPieces(const std::string& journal);
    // For the process that finishes: takes over what all parts have sent. The files must be on this machine
    // in their full sizes. Errors: damaged (the bucket no longer has all of it), those of the store.
    Status gather();

    // Sends the rest of the streamed files and completes their uploads. Nothing may be written to them
    // afterwards.
    Status finishStreamed();
    // Sends all other files in `from` (a directory, or the one file): data first, BucketJob::seals last.
    // Errors: exists, verificationFailed (the store holds other bytes), io, those of the store.
    Status publish(const std::string& from);
    // Removes all that this job has sent, as far as the store lets it; does nothing in a part or after
    // publication. False where the claim remains because the store does not answer.
    bool abandon();

    // Whether the store refuses bytes that do not match the checksum sent with them. Known after begin().
    bool checks() const { return checks_; }
    // Whether it creates an object only where there is none. Known after begin().
    bool isGuarded() const { return guarded_; }

  private:
    static constexpr unsigned kSending = 8;  // threads that send what the job has left

    struct Sent {
        ObjectPlace::Part part;  // number 0 = not sent
        uint32_t sum = 0;        // CRC-32C
        bool full = false;       // all of its bytes are written
        bool earlier = false;    // sent by another process
    };
    struct File {
        std::string name, key;
        uint64_t size = 0, partBytes = 0;
        Mutex mutex;
        std::string upload SHARDSCOPE_GUARDED_BY(mutex);       // its id; empty = not started
        std::vector<Sent> parts SHARDSCOPE_GUARDED_BY(mutex);  // empty = sent in one request
        // By this process, and of what was gathered: begin to end.
        ByteRanges written SHARDSCOPE_GUARDED_BY(mutex);
        bool complete SHARDSCOPE_GUARDED_BY(mutex) = false;

        uint64_t partSize(size_t i) const { return std::min(partBytes, size - i * partBytes); }
        uint64_t endOf(size_t i) const { return i * partBytes + partSize(i); }
    };
    // Sent bytes whose space on this disk is not freed yet.
    struct Hole {
        std::string name;
        uint64_t offset, size;
    };

    struct Piece {
        File* file;
        uint64_t begin, end;
    };

    bool isPart() const { return job_.role == BucketJob::Role::part; }
    bool inParts() const { return job_.role != BucketJob::Role::all; }
    bool streamsLast() const { return !job_.last.empty() && checks_; }
    // Notes that [begin, end) is written. Returns the indices of the upload parts that this completes.
    static std::vector<size_t> note(File& file, uint64_t begin, uint64_t end) SHARDSCOPE_REQUIRES(file.mutex);
    std::vector<Piece> piecesOf(File& file) const;
    Status sendPiece(const Piece& piece);
    Status gatherParts(File& file);
    Status gatherPieces(File& file, const std::vector<ObjectState>& objects);
    Result<File*> gathered(const Directory& directory, const std::string& name);
    Status checkSent(const Directory& directory, const std::vector<ObjectState>& objects);
    Result<std::string> sharedUpload(const File& file);
    void removeShared();
    File& fileOf(const std::string& name, uint64_t size);
    Status claim();
    Status checkClaimed() const;
    Status probeChecksums();
    Status collect(const Directory& directory, const std::string& below, std::vector<File*>& files);
    Status start(File& file, std::string& upload);
    Status sendPart(File& file, size_t i);
    Status sendRest(const std::vector<File*>& files, bool whole = false);
    Status complete(File& file, bool seal);
    Status sendWhole(const File& file, ObjectPlace::Put& how);
    Error alreadyThere(const File& file) const;
    Error endedByOthers(const File& file) const;
    Result<bool> isThere(const File& file) const;
    Status completeUpload(File& file, bool seal) SHARDSCOPE_REQUIRES(file.mutex);
    Status readBack(const File& file, uint64_t at, uint64_t size, uint32_t sum) const;
    Status book(const File& file, nlohmann::json line, uint64_t offset = 0, uint64_t bytes = 0);
    void giveBack(const std::string& name, uint64_t offset, uint64_t bytes) const;
    // Bytes of a file that are here, and their share of BucketJob::memory, which it waits for.
    struct Bytes {
        MemoryBudget::Lease lease;
        AlignedBuffer all;
    };
    Result<Bytes> bytesOf(const File& file, uint64_t at, uint64_t size) const;

    const std::shared_ptr<ObjectPlace> place_;
    const BucketJob job_;
    const std::string key_, token_, staging_, claim_, record_;
    std::string mark_;
    std::string data_;
    std::atomic<bool> checks_{false}, guarded_{true}, finished_{false}, published_{false};
    Mutex begun_, finishing_;
    bool claimed_ SHARDSCOPE_GUARDED_BY(begun_) = false, probed_ SHARDSCOPE_GUARDED_BY(begun_) = false;
    Mutex filesMutex_;
    std::map<std::string, std::unique_ptr<File>> files_ SHARDSCOPE_GUARDED_BY(filesMutex_);
    Mutex recordMutex_;
    std::shared_ptr<WriteFile> recordFile_ SHARDSCOPE_GUARDED_BY(recordMutex_);
    uint64_t recordEnd_ SHARDSCOPE_GUARDED_BY(recordMutex_) = 0;
    std::vector<Hole> holes_ SHARDSCOPE_GUARDED_BY(recordMutex_);
    mutable MemoryBudget memory_;
};

}  // namespace shardscope
