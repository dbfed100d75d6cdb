// A directory with files of others in it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "storage/file_system.h"

namespace shardscope {

// A directory, with single files of others as if they were in it.
class JoinedDirectory final : public Directory {
  public:
    explicit JoinedDirectory(std::shared_ptr<Directory> own) : own_(std::move(own)) {}

    void add(const std::string& name, std::shared_ptr<Directory> from) {
        further_.insert_or_assign(name, std::move(from));
    }
    // Which directory a file was added from; null = none.
    const Directory* holder(std::string_view name) const {
        const auto found = further_.find(name);
        return found == further_.end() ? nullptr : found->second.get();
    }

    const std::string& path() const override { return own_->path(); }
    Result<std::vector<DirectoryEntry>> list(std::string_view subdirectory) const override {
        SHARDSCOPE_ASSIGN(std::vector<DirectoryEntry> entries, own_->list(subdirectory));
        if (!subdirectory.empty()) return entries;
        for (const auto& [name, from] : further_) {
            SHARDSCOPE_ASSIGN(DirectoryEntry entry, from->stat(name));
            entry.name = name;
            entries.push_back(std::move(entry));
        }
        return entries;
    }
    Result<std::shared_ptr<const ReadFile>> openFile(std::string_view name) const override {
        return of(name).openFile(name);
    }
    Result<DirectoryEntry> stat(std::string_view name) const override { return of(name).stat(name); }
    std::string linkTarget(std::string_view name) const override { return of(name).linkTarget(name); }
    Result<std::shared_ptr<WriteFile>> createFile(std::string_view name, bool existing) override {
        return own_->createFile(name, existing);
    }
    Status removeFile(std::string_view name) override { return own_->removeFile(name); }
    Status sync() override { return own_->sync(); }

  private:
    const Directory& of(std::string_view name) const {
        const Directory* const from = holder(name);
        return from ? *from : *own_;
    }

    std::shared_ptr<Directory> own_;
    std::map<std::string, std::shared_ptr<Directory>, std::less<>> further_;
};

}  // namespace shardscope
