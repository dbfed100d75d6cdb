#include "expectation/copied_files.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/rule.h"
#include "base/text.h"
#include "expectation/contents.h"
#include "formats/step_part.h"

namespace shardscope {

namespace {

constexpr size_t kMostEnds = 4096;      // files whose ends are read
constexpr size_t kMostChunks = 64;      // of a file that are looked into
constexpr size_t kMostPairs = 100;      // that are told
constexpr uint64_t kFirstBytes = 4096;  // of a chunk

class CopiedFiles {
  public:
    CopiedFiles(const Reader& reader, const StopToken& stop)
        : reader_(reader), catalog_(reader.catalog()), stop_(stop) {}

    Result<std::vector<Note>> notes() && {
        SHARDSCOPE_TRY(findAlike());
        if (pairs_.empty()) return std::move(notes_);
        findChunks();
        for (const auto& [copy, of] : pairs_) {
            SHARDSCOPE_TRY(stop_.poll());
            judge(of, copy);
        }
        return std::move(notes_);
    }

  private:
    Status findAlike() {
        std::set<std::string_view> known;  // what the reader has said
        for (const Note& note : catalog_.notes())
            if (note.severity == Severity::error) known.insert(note.file);
        std::map<std::pair<uint64_t, std::string>, std::vector<FileId>> families;
        for (FileId f = 0; f < catalog_.files().size(); ++f) {
            const FileInfo& file = catalog_.files()[f];
            if (file.metadata || !file.referenced || file.size == 0 ||
                file.state != FileInfo::State::present || known.contains(file.path))
                continue;
            families[{file.size, withoutNumbers(file.path)}].push_back(f);
        }
        size_t looks = 0;
        for (const auto& [key, files] : families) {
            if (files.size() < 2) continue;
            if ((looks += files.size()) > kMostEnds) break;
            std::map<std::string, std::vector<FileId>> byEnd;
            for (const FileId f : files) {
                SHARDSCOPE_TRY(stop_.poll());
                const auto opened = reader_.openFile(f);
                if (!opened.ok() || (*opened)->size() != catalog_.files()[f].size) continue;
                std::vector<FileId>& before = byEnd[endOf(**opened)];
                const auto same = std::ranges::find_if(before, [&](FileId other) {
                    const auto there = reader_.openFile(other);
                    return there.ok() && sameContent(**there, **opened);
                });
                if (same == before.end())
                    before.push_back(f);
                else if (pairs_.size() < kMostPairs)
                    pairs_.emplace_back(f, *same);
            }
        }
        return {};
    }

    void findChunks() {
        for (const auto& [copy, of] : pairs_) {
            chunks_.try_emplace(copy);
            chunks_.try_emplace(of);
        }
        for (ChunkId c = 0; c < catalog_.chunkCount(); ++c) {
            const ChunkInfo chunk = catalog_.chunk(c);
            const auto at = chunks_.find(chunk.file);
            if (at != chunks_.end() && chunk.elements() > 1) at->second[chunk.tensor].push_back(c);
        }
    }

    // Whether a chunk is of other elements than those that the other file has at the same place.
    bool isElsewhere(const ChunkInfo& chunk, FileId other) {
        const auto& there = chunks_[other];
        const auto same = there.find(chunk.tensor);
        if (same == there.end()) {
            const auto rankIn = [&](FileId file) { return catalog_.files()[file].rank; };
            return rankIn(other) != kNone && chunk.rank != kNone && rankIn(other) != chunk.rank;
        }
        return std::ranges::none_of(same->second, [&](ChunkId c) {
            const ChunkInfo one = catalog_.chunk(chunk.tensor, c);
            return one.flat == chunk.flat && std::ranges::equal(one.offsets, chunk.offsets) &&
                   std::ranges::equal(one.lengths, chunk.lengths);
        });
    }

    // Whether its first elements are not all the same.
    bool isVaried(ChunkId c) const {
        const auto extent = reader_.locate(c);
        if (!extent.ok()) return false;
        const size_t size = (dtypeBits(catalog_.dtype(catalog_.tensorOf(c))) + 7) / 8;
        std::vector<std::byte> bytes(std::min(extent->length, kFirstBytes));
        if (bytes.size() <= size || !extent->file->readAt(extent->offset, bytes).ok()) return false;
        return std::memcmp(bytes.data(), bytes.data() + size, bytes.size() - size) != 0;
    }

    void judge(FileId of, FileId copy) {
        size_t looks = 0, evidence = 0;
        std::string_view example;
        for (const auto& [tensor, chunks] : chunks_[copy]) {
            const Role role = catalog_.role(tensor);
            const std::string_view name = catalog_.name(tensor);
            const bool twins = name.find("expert") != name.npos && role != Role::optimizer;
            if (role == Role::other || twins) continue;
            const ChunkInfo chunk = catalog_.chunk(tensor, chunks.front());
            if (!isElsewhere(chunk, of) || ++looks > kMostChunks || !isVaried(chunk.id)) continue;
            if (evidence++ == 0) example = name;
            if (evidence > 1) break;
        }
        if (evidence == 0) return;
        const auto shown = [&](std::string_view text) { return printable(text, kNameInMessage); };
        Note note;
        note.rule = rule::metaInconsistent;
        note.severity = evidence > 1 ? Severity::error : Severity::warning;
        note.file = catalog_.files()[copy].path;
        note.tensor = example;
        note.message = fmt::format(
            "'{}' is byte for byte '{}', and each should hold other shards: one was "
            "copied over the other",
            shown(note.file), shown(catalog_.files()[of].path));
        notes_.push_back(std::move(note));
    }

    const Reader& reader_;
    const Catalog& catalog_;
    const StopToken& stop_;
    std::vector<std::pair<FileId, FileId>> pairs_;                       // the later one first
    std::map<FileId, std::map<TensorId, std::vector<ChunkId>>> chunks_;  // of the files in pairs
    std::vector<Note> notes_;
};

}  // namespace

Result<std::vector<Note>> copiedFileNotes(const Reader& reader, const StopToken& stop) {
    return CopiedFiles(reader, stop).notes();
}

}  // namespace shardscope
