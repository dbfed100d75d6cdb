// File systems that are read and nothing else: all that would write is refused.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "storage/file_system.h"

namespace shardscope {

class ReadOnlyDirectory : public Directory {
  public:
    Result<std::shared_ptr<WriteFile>> createFile(std::string_view name, bool) override {
        return refused(path() + "/" + std::string(name));
    }
    Status removeFile(std::string_view name) override { return refused(path() + "/" + std::string(name)); }
    Status sync() override { return refused(path()); }

  protected:
    virtual Error refused(const std::string& path) const = 0;
};

// Scratch files are made in this machine's own.
class ReadOnlyFileSystem : public FileSystem {
  public:
    Status makeDirectory(const std::string& path) override { return refused(path); }
    Status rename(const std::string& from, const std::string&) override { return refused(from); }
    Status exchange(const std::string& a, const std::string&) override { return refused(a); }
    Status removeTree(const std::string& path) override { return refused(path); }
    Status syncDirectory(const std::string& path) override { return refused(path); }
    Result<uint64_t> freeBytes(const std::string& path) override { return refused(path); }
    Result<std::shared_ptr<WriteFile>> createScratch(const std::string& directory) override {
        return here_->createScratch(directory);
    }
    Result<std::shared_ptr<const ReadFile>> reopen(const std::shared_ptr<WriteFile>& file) override {
        return here_->reopen(file);
    }

  protected:
    explicit ReadOnlyFileSystem(std::shared_ptr<FileSystem> here) : here_(std::move(here)) {}
    virtual Error refused(const std::string& path) const = 0;

    const std::shared_ptr<FileSystem> here_;
};

}  // namespace shardscope
