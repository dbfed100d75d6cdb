// The agent's end of remote files: reads what the other side asks for, and writes where it was allowed to
// (FileAccess). An agent that ssh started is not.
//
// Requests after "files" {}; each has an id that its answer repeats, and several may be under way. Paths are
// in the body, as they are not text. `path` says how many bytes of it are the path (absolute). The rest is a
// name inside that directory, checked as any name from metadata (storage/file_system.h).
//
//   stat  {path} + path, name            -> stat  {kind, size}          the path itself when there is no name
//   list  {path, after, fresh} + path, name, after
//                                        -> list  {more, size, packed} + entries beyond the name `after` (a
//                                           length, as `path`), sorted: u8 kind, u64 size, u16 length, name;
//                                           `fresh` opens the directory anew. A page has at least kPage bytes
//                                           when there are more.
//   open  {path} + path, name            -> open  {file, size, print, length, packed} + its first bytes
//   read  {file, offset, length}         -> read  {packed} + bytes      at most kBlock
//   print {file}                         -> print {print}               its fingerprint now
//   space {path} + path                  -> space {free, writable}      of a directory
//   echo  {length}                       -> echo  {} + bytes            at most kBlock, to measure the link
//   close {file}                            no answer
//
// and with access to a destination, as FileSystem and its kin in storage/file_system.h:
//
//   make, clear, settle {path} + path    -> the same {}                 makeDirectory, removeTree,
//                                                                       syncDirectory
//   move, swap {path} + path, other      -> the same {}                 rename, exchange; `other` is a path
//   create {path, existing} + path, name -> create {file}
//   remove {path} + path, name           -> remove {}
//   sync   {path} + path                 -> sync {}                     Directory::sync
//   allocate {file, size}, write {file, offset} + bytes, flush {file} -> the same {}
//   lock   {file}                        -> lock {locked}
//
//   any of them may be answered by        error {error}
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>

#include <nlohmann/json.hpp>

#include "base/mutex.h"
#include "hosts/channel.h"
#include "storage/file_system.h"

namespace shardscope {

// Which files the other side may use.
struct FileAccess {
    bool readAll = true;
    std::vector<std::string> read{};  // else these directories or files, with what is inside
    // A destination that may be written and read: it, its staging directory (execute/executor.h), and of its
    // parent the free space and synchronization. Empty = none.
    std::string write{};
    bool compress = true;  // bodies that become smaller
};

class FileService {
  public:
    static constexpr uint64_t kBlock = uint64_t{1} << 20;
    static constexpr uint64_t kPage = uint64_t{256} << 10;  // of a listing; one entry more at most
    // The opening of a file returns its first kFirstBytes. Of a file that begins with the length of its
    // header, as safetensors does, it is the whole header if that has at most kMostFirst.
    static constexpr uint64_t kMostFirst = uint64_t{256} << 10;
    static constexpr uint64_t kFirstBytes = uint64_t{4} << 10;  // see kMostFirst
    static constexpr size_t kMostFiles = 16384;                 // open at a time
    static constexpr size_t kMostRequests = 64;                 // read and not yet answered

    FileService(Channel& channel, std::shared_ptr<FileSystem> files, FileAccess access = {});
    ~FileService();

    // Answers until the stream ends; then `onEnd` is called, before reads under way are waited for. Errors:
    // damaged (a message that is not of this protocol).
    Status serve(const std::function<void()>& onEnd = {});

  private:
    struct Request {
        nlohmann::json json;
        std::string body;
    };
    struct Listing {
        std::string path, name;  // where
        std::vector<DirectoryEntry> entries;
    };

    void work();
    void beats();
    void answer(const Request& request, HeldPages& pages);
    Result<Frame> stat(const Request& request);
    Result<Frame> list(const Request& request);
    Result<Frame> open(const Request& request);
    // The bytes are in the frame or, where they can be passed on, held.
    Result<Frame> read(const Request& request, HeldPages& pages);
    Result<Frame> print(const Request& request);
    Result<Frame> space(const Request& request);
    Result<Frame> echo(const Request& request);
    Result<Frame> change(const std::string& say, const Request& request);  // of whole paths
    Result<Frame> create(const Request& request);
    Result<Frame> writeTo(const std::string& say, const Request& request);
    Result<std::pair<std::string, std::string>> pathOf(const Request& request) const;
    bool mayRead(const std::string& path) const;
    bool mayWrite(const std::string& path) const;
    std::string packed(std::string bytes, bool& packed) const;
    Result<std::shared_ptr<Directory>> directory(const std::string& path, bool fresh);
    Result<std::shared_ptr<const ReadFile>> file(const Request& request);

    Channel& channel_;
    const std::shared_ptr<FileSystem> files_;
    const FileAccess access_;
    Mutex mutex_;
    Condition changed_;
    std::deque<Request> requests_ SHARDSCOPE_GUARDED_BY(mutex_);
    size_t underWay_ SHARDSCOPE_GUARDED_BY(mutex_) = 0;
    bool ending_ SHARDSCOPE_GUARDED_BY(mutex_) = false;
    std::map<std::string, std::shared_ptr<Directory>> directories_ SHARDSCOPE_GUARDED_BY(mutex_);
    std::map<uint64_t, std::shared_ptr<const ReadFile>> open_ SHARDSCOPE_GUARDED_BY(mutex_);
    std::map<uint64_t, std::shared_ptr<WriteFile>> written_ SHARDSCOPE_GUARDED_BY(mutex_);
    uint64_t lastFile_ SHARDSCOPE_GUARDED_BY(mutex_) = 0;
    std::shared_ptr<const Listing> listing_ SHARDSCOPE_GUARDED_BY(mutex_);
};

}  // namespace shardscope
