// A file system in memory that records what is done to it, and a wrapper that makes chosen operations fail.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "storage/file_system.h"

namespace shardscope::test {

enum class Op : uint8_t { open, read, write, sync, rename, allocate, list, remove, makeDirectory };
constexpr int kOpCount = 9;

struct OpRecord {
    Op op = Op::open;
    std::string path;  // a scratch file's starts with "scratch:"
    uint64_t offset = 0;
    uint64_t length = 0;
};

class MemoryFileSystem final : public FileSystem, public std::enable_shared_from_this<MemoryFileSystem> {
  public:
    MemoryFileSystem();

    Result<std::shared_ptr<Directory>> openDirectory(const std::string& path) override;
    Status makeDirectory(const std::string& path) override;
    Result<DirectoryEntry> stat(const std::string& path) override;
    Status rename(const std::string& from, const std::string& to) override;
    Status exchange(const std::string& a, const std::string& b) override;
    Status removeTree(const std::string& path) override;
    Status syncDirectory(const std::string& path) override;
    Result<uint64_t> freeBytes(const std::string& path) override;
    Result<std::shared_ptr<WriteFile>> createScratch(const std::string& directory) override;
    Result<std::shared_ptr<const ReadFile>> reopen(const std::shared_ptr<WriteFile>& file) override;

    // --- for tests
    void put(const std::string& path, std::vector<std::byte> bytes);  // makes the directories above it
    std::vector<std::byte> get(const std::string& path) const;        // empty when absent
    bool exists(const std::string& path) const;
    std::vector<std::string> paths() const;  // of all files, sorted
    std::map<std::string, std::vector<std::byte>> tree(
        const std::string& directory) const;  // by relative path
    void setFreeBytes(uint64_t bytes) { freeBytes_ = bytes; }
    // As after a power failure: every file has the content of its last sync; with `sizes` its size, too.
    void losePower(bool sizes = false);

    void setRecording(bool on) { recording_ = on; }
    std::vector<OpRecord> records() const;
    void clearRecords();

    struct File;

  private:
    friend class MemoryDirectory;
    friend class MemoryReadFile;
    friend class MemoryWriteFile;
    void record(Op op, const std::string& path, uint64_t offset = 0, uint64_t length = 0);
    std::shared_ptr<File> makeFile();

    mutable std::mutex mutex_;
    std::map<std::string, std::shared_ptr<File>> files_;
    std::set<std::string> directories_;
    std::vector<OpRecord> records_;
    std::atomic<bool> recording_{true};
    std::atomic<uint64_t> freeBytes_{UINT64_MAX};
    std::atomic<uint64_t> nextInode_{1};
};

// Fails the n-th operation of a kind (counted from 1), once or from then on.
class FaultyFileSystem final : public FileSystem, public std::enable_shared_from_this<FaultyFileSystem> {
  public:
    explicit FaultyFileSystem(std::shared_ptr<FileSystem> inner) : inner_(std::move(inner)) {}

    void failAt(Op op, uint64_t nth, ErrorCode code = ErrorCode::io, bool fromThenOn = false);
    void clear();                 // no more faults, counters at zero
    uint64_t count(Op op) const;  // operations so far
    uint64_t failures() const { return failures_; }
    // Called after every successful operation; for stopping a job at a chosen moment.
    std::function<void(Op)> after;
    // Called before an operation fails; for waiting until something else has happened.
    std::function<void()> beforeFailure;

    Result<std::shared_ptr<Directory>> openDirectory(const std::string& path) override;
    Status makeDirectory(const std::string& path) override;
    Result<DirectoryEntry> stat(const std::string& path) override;
    Status rename(const std::string& from, const std::string& to) override;
    Status exchange(const std::string& a, const std::string& b) override;
    Status removeTree(const std::string& path) override;
    Status syncDirectory(const std::string& path) override;
    Result<uint64_t> freeBytes(const std::string& path) override;
    Result<std::shared_ptr<WriteFile>> createScratch(const std::string& directory) override;
    Result<std::shared_ptr<const ReadFile>> reopen(const std::shared_ptr<WriteFile>& file) override;

    // Counts one operation; the error when it is to fail.
    Status pass(Op op, const std::string& path);

  private:
    const std::shared_ptr<FileSystem> inner_;
    std::atomic<uint64_t> counts_[kOpCount]{};
    std::atomic<uint64_t> failures_{0};
    std::atomic<int> failOp_{-1};
    std::atomic<uint64_t> failNth_{0};
    std::atomic<bool> fromThenOn_{false};
    std::atomic<ErrorCode> code_{ErrorCode::io};
};

}  // namespace shardscope::test
