#include "expectation/integrity.h"

#include <algorithm>
#include <mutex>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/rule.h"
#include "base/text.h"
#include "storage/digest.h"
#include "storage/open_files.h"

namespace shardscope {

namespace {

constexpr uint64_t kMostList = uint64_t{64} << 20;  // bytes of the list
constexpr uint64_t kAtOnce = uint64_t{1} << 20;     // bytes that are read at once

Result<std::string> sha256Of(const ReadFile& file, const StopToken& stop) {
    const auto digest = makeSha256();
    std::vector<std::byte> buffer(std::min(kAtOnce, file.size()));
    for (uint64_t at = 0; at < file.size();) {
        SHARDSCOPE_TRY(stop.poll());
        const std::span<std::byte> part(buffer.data(), std::min<uint64_t>(buffer.size(), file.size() - at));
        SHARDSCOPE_TRY(file.readAt(at, part));
        digest->update(part);
        at += part.size();
    }
    return digest->hex();
}

Note noteOf(const char* rule, const std::string& file, std::string message) {
    Note note;
    note.rule = rule;
    note.severity = Severity::error;
    note.file = file;
    note.message = std::move(message);
    return note;
}

// nullopt: the file is as it was when it was saved. Errors: cancelled.
Result<std::optional<Note>> checkFile(const Directory& directory, const std::string& name,
                                      const std::string& want, const StopToken& stop) {
    const auto file = directory.openFile(name);
    if (!file.ok())
        return std::optional(
            noteOf(file.error().code == ErrorCode::notFound ? rule::fileMissing : rule::integrityCrc, name,
                   fmt::format("{} has its checksum, but it cannot be opened: {}", kIntegrityFile,
                               file.error().message)));
    const auto got = sha256Of(**file, stop);
    if (!got.ok() && got.error().code == ErrorCode::cancelled) return got.error();
    if (got.ok() && *got == want) return std::optional<Note>();
    return std::optional(noteOf(rule::integrityCrc, name,
                                fmt::format("its SHA-256 is not the one in {}: it changed after it was "
                                            "saved, or is of another save",
                                            kIntegrityFile)));
}

}  // namespace

Result<std::vector<Note>> integrityNotes(const std::shared_ptr<const Directory>& directory, ThreadPool& pool,
                                         const StopToken& stop) {
    std::vector<Note> notes;
    const std::string text = smallFile(*directory, kIntegrityFile, kMostList);
    const auto list = nlohmann::json::parse(text, nullptr, false);
    if (!list.is_object() || list.value("algorithm", nlohmann::json()) != "sha256") return notes;
    std::vector<std::pair<std::string, std::string>> files;
    const auto named = list.value("files", nlohmann::json::object());
    for (const auto& [name, want] : named.items())
        if (want.is_string()) files.emplace_back(name, want.get<std::string>());
    std::mutex mutex;
    SHARDSCOPE_TRY(pool.parallelFor(files.size(), stop, [&](size_t i) -> Status {
        SHARDSCOPE_ASSIGN(auto note, checkFile(*directory, files[i].first, files[i].second, stop));
        const std::lock_guard lock(mutex);
        if (note) notes.push_back(*std::move(note));
        return {};
    }));
    std::ranges::sort(notes, {}, &Note::file);
    return notes;
}

}  // namespace shardscope
