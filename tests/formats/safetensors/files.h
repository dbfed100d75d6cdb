// Hand-made safetensors files in memory, for tests.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "formats/format.h"
#include "formats/safetensors/safetensors.h"
#include "support/memory_file_system.h"

namespace shardscope::test {

inline std::vector<std::byte> bytesOf(std::string_view text) {
    std::vector<std::byte> bytes(text.size());
    if (!text.empty()) std::memcpy(bytes.data(), text.data(), text.size());
    return bytes;
}

// A file with this header text and so many data bytes (0, 1, 2, ...).
inline std::string fileText(const std::string& header, size_t dataBytes) {
    std::string text;
    for (size_t i = 0; i < 8; ++i)
        text += static_cast<char>(header.size() >> (8 * i) & 0xFF);
    text += header;
    for (size_t i = 0; i < dataBytes; ++i)
        text += static_cast<char>(i);
    return text;
}

struct MemoryCheckpoint {
    std::shared_ptr<MemoryFileSystem> system = std::make_shared<MemoryFileSystem>();

    MemoryCheckpoint() {
        if (!system->makeDirectory("/c").ok()) std::abort();
    }
    MemoryCheckpoint& put(const std::string& name, std::string_view text) {
        system->put("/c/" + name, bytesOf(text));
        return *this;
    }
    Source source(const std::string& entry = {}) const {
        Source s;
        s.fileSystem = system;
        s.directory = system->openDirectory("/c").value();
        s.entry = entry;
        s.display = "/c";
        s.entries = s.directory->list().value();
        return s;
    }
    Result<std::unique_ptr<Reader>> open(const std::string& entry = {},
                                         const OpenOptions& options = {}) const {
        return safetensorsFormat().open(source(entry), options);
    }
};

inline Result<std::unique_ptr<Reader>> openText(std::string_view text, const OpenOptions& options = {}) {
    return MemoryCheckpoint().put("model.safetensors", text).open("model.safetensors", options);
}

inline std::vector<std::string> rulesOf(const Catalog& catalog) {
    std::vector<std::string> rules;
    for (const Note& note : catalog.notes())
        rules.push_back(note.rule);
    return rules;
}

}  // namespace shardscope::test
