// The upload of one destination into a bucket, from a directory of this machine that holds what is not sent
// yet. Private to this room.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <semaphore>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/mutex.h"
#include "places/bucket_files.h"
#include "storage/file_system.h"
#include "storage/object_place.h"

namespace shardscope {

// The prefix of what a job has beside the destination until that is published, with the slash at its end:
//   claim                  keeps others from the same destination
// and of a job in parts
//   parts                  what all of them agree on
//   part-3.journal         that part 3 is done
//   uploads/NAME           the upload of a file, which all parts send to
//   data/NAME/BEGIN-END    bytes of a file that are less than a part of its upload
std::string stagingKey(const ObjectPlace& place, const std::string& key);
std::string claimOf(const ObjectPlace& place, const std::string& key);

// That the claim of another job is there.
Error anotherJob(const ObjectPlace& place, const std::string& destination, const std::string& claim);
// Creates an object where there is none (`how` says onlyNew). Errors: exists, unsupported (the store knows no
// conditional writes; nothing is left), those of the place.
Status createNew(ObjectPlace& place, const std::string& key, std::span<const std::byte> bytes,
                 const ObjectPlace::Put& how);

// What a small object holds. Errors: those of the place, limit.
Result<std::string> textOfObject(ObjectPlace& place, const std::string& key);

// Each part of a streamed file is sent as soon as all of it is written, and its bytes here are given back to
// the disk. The other files, and those of 8 MiB or less, are sent once everything is written. What was sent
// is in a record, so that a later process goes on. Thread-safe.
class BucketUpload {
  public:
    // `key`: of the destination. `token` marks the objects of this job. `record`: a file of this machine.
    BucketUpload(std::shared_ptr<ObjectPlace> place, BucketJob job, std::string key, std::string token,
                 std::string record);

    // Of a job in parts, before anything is written: `mark` is the same in all of its processes, and marks
    // the objects in place of the token.
    void share(std::string mark) { mark_ = std::move(mark); }
    // What an earlier process has sent. Errors: io.
    Status readRecord();
    // The directory of this machine that holds the files; before anything is written.
    void setData(std::string directory) { data_ = std::move(directory); }
    bool streams(const std::string& name) const {
        return std::find(job_.streamed.begin(), job_.streamed.end(), name) != job_.streamed.end();
    }
    // Whether what is written to a file goes through wrote(): of a part of a job, to all.
    bool takes(const std::string& name) const { return isPart() || streams(name); }

    // Claims the destination, and finds out what the store can; once. wrote() and the others do, too. Errors:
    // exists (another job is at work), unsupported (a store without conditional writes), those of the store.
    Status begin();

    // Of a streamed file of `size` bytes: write() writes `bytes` of them here, and is not called where they
    // were sent already. Errors: those of write() and of the store.
    Status wrote(const std::string& name, uint64_t size, uint64_t offset, uint64_t bytes,
                 const std::function<Status()>& write);
    // What was written to a file so far is on this machine's disk. Errors: io.
    Status synced(const std::string& name);

    // Of a part: sends what it has written and not sent yet.
    Status sendPieces();
    // To finish: takes over what all parts have sent; the files are here in their sizes.
    Status gather();

    // Sends what is left of the streamed files, and makes objects of them. Nothing is written after it.
    Status finishStreamed();
    // Sends everything else that is in `from` (a directory, or the one file): data first, then what makes a
    // checkpoint of it.
    Status publish(const std::string& from);
    // Takes away all that this job has sent, unless it is published. False where the claim stays, since the
    // store does not answer.
    bool abandon();

    // Whether the store refuses bytes that do not have the checksum that comes with them; known after
    // begin().
    bool checks() const { return checks_; }

  private:
    static constexpr unsigned kSending = 8;  // parts under way

    struct Sent {
        ObjectPlace::Part part;  // number 0 = not yet
        uint32_t sum = 0;        // CRC-32C
        bool full = false;       // all of it is written
        bool earlier = false;    // by another process
    };
    struct File {
        std::string name, key;  // the name is empty when the destination is this file
        uint64_t size = 0, partBytes = 0;
        Mutex mutex;
        std::string upload SHARDSCOPE_GUARDED_BY(mutex);                    // empty = none was started
        std::vector<Sent> parts SHARDSCOPE_GUARDED_BY(mutex);               // none when it is sent at once
        std::map<uint64_t, uint64_t> written SHARDSCOPE_GUARDED_BY(mutex);  // by this process: begin, end
        bool complete SHARDSCOPE_GUARDED_BY(mutex) = false;

        uint64_t partSize(size_t i) const { return std::min(partBytes, size - i * partBytes); }
    };
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
    // The parts of the upload that are whole now that [begin, end) is written.
    static std::vector<size_t> note(File& file, uint64_t begin, uint64_t end) SHARDSCOPE_REQUIRES(file.mutex);
    std::vector<Piece> piecesOf(File& file) const;
    Status sendPiece(const Piece& piece);
    Status gatherParts(File& file);
    Status gatherPieces(File& file, const std::vector<ObjectState>& objects);
    Result<std::string> sharedUpload(const File& file);
    void removeShared();
    File& fileOf(const std::string& name, uint64_t size);
    Status claim();
    Status probeChecksums();
    Status collect(const Directory& directory, const std::string& below, std::vector<File*>& files);
    Status start(File& file, std::string& upload);
    Status sendPart(File& file, size_t i);
    Status sendRest(const std::vector<File*>& files, bool whole = false);
    Status complete(File& file, bool seal);
    Status sendWhole(const File& file, ObjectPlace::Put& how);
    Error alreadyThere(const File& file) const;
    Result<bool> isThere(const File& file) const;
    Status readBack(const File& file, uint64_t at, uint64_t size, uint32_t sum) const;
    Status book(const File& file, nlohmann::json line, uint64_t offset = 0, uint64_t bytes = 0);
    void giveBack(const std::string& name, uint64_t offset, uint64_t bytes) const;
    Result<std::vector<std::byte>> bytesOf(const File& file, uint64_t at, uint64_t size) const;

    const std::shared_ptr<ObjectPlace> place_;
    const BucketJob job_;
    const std::string key_, token_, staging_, claim_, record_;
    std::string mark_;
    std::string data_;
    std::atomic<bool> checks_{false}, finished_{false}, published_{false};
    Mutex begun_, finishing_;
    bool claimed_ SHARDSCOPE_GUARDED_BY(begun_) = false;
    Mutex filesMutex_;
    std::map<std::string, std::unique_ptr<File>> files_ SHARDSCOPE_GUARDED_BY(filesMutex_);
    Mutex recordMutex_;
    std::shared_ptr<WriteFile> recordFile_ SHARDSCOPE_GUARDED_BY(recordMutex_);
    uint64_t recordEnd_ SHARDSCOPE_GUARDED_BY(recordMutex_) = 0;
    std::vector<Hole> holes_ SHARDSCOPE_GUARDED_BY(recordMutex_);
    std::counting_semaphore<> sending_{kSending};
};

}  // namespace shardscope
