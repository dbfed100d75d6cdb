// Copies of genuine checkpoints in memory, to be damaged.
#pragma once

#include <QtGlobal>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>

#include "formats/format.h"
#include "support/genuine.h"
#include "support/memory_file_system.h"

namespace shardscope::test {

// The files of a case in memory, to be damaged.
class Copy {
  public:
    Copy() = default;
    explicit Copy(const std::string& path) : fs_(std::make_shared<MemoryFileSystem>()) {
        for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
            if (!entry.is_regular_file()) continue;
            std::ifstream in(entry.path(), std::ios::binary);
            files[std::filesystem::relative(entry.path(), path)] = {std::istreambuf_iterator<char>(in), {}};
        }
    }
    Result<std::unique_ptr<Reader>> open(const Format& format, const OpenOptions& options = {}) {
        fs_ = std::make_shared<MemoryFileSystem>();
        for (const auto& [name, content] : files) {
            const auto bytes = std::as_bytes(std::span(content));
            fs_->put("/d/" + name, {bytes.begin(), bytes.end()});
        }
        Source source;
        source.fileSystem = fs_;
        source.directory = fs_->openDirectory("/d").value();
        source.entries = source.directory->list().value();
        source.display = "/d";
        return format.open(source, options);
    }
    std::map<std::string, std::string> files;

  private:
    std::shared_ptr<MemoryFileSystem> fs_;
};

inline GenuineCase caseOf(const std::string& family, const std::string& name) {
    for (GenuineCase& c : genuineCases(family)) {
        if (c.name == name) return c;
    }
    qFatal("no such case");
    return {};
}

}  // namespace shardscope::test
