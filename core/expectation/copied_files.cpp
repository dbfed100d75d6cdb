#include "expectation/copied_files.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/names.h"
#include "base/rule.h"
#include "base/text.h"
#include "expectation/contents.h"
#include "model/step_part.h"

namespace shardscope {

namespace {

constexpr size_t kMostEnds = 4096;      // files whose ends are read
constexpr size_t kMostChunks = 64;      // of a file that are looked into
constexpr size_t kMostTold = 100;       // pairs
constexpr uint64_t kFirstBytes = 4096;  // of a chunk
constexpr size_t kFewestAlike = 3;
constexpr int64_t kFewestElements = 64;

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
            if (notes_.size() < kMostTold) judge(of, copy);
        }
        judgeTheOnlyOne();
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
                if (same == before.end()) {
                    before.push_back(f);
                } else {
                    pairs_.emplace_back(f, *same);
                    alike_[f] = files.size();
                }
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

    // How sure it is that two files that are the same cannot both hold this chunk of the second one.
    enum class Doubt : uint8_t { none, some, sure };
    Doubt doubtOf(const ChunkInfo& chunk, FileId other) {
        const auto& there = chunks_[other];
        const auto same = there.find(chunk.tensor);
        const auto held = [&](ChunkId c) {
            const ChunkInfo one = catalog_.chunk(chunk.tensor, c);
            return one.flat == chunk.flat && std::ranges::equal(one.offsets, chunk.offsets) &&
                   std::ranges::equal(one.lengths, chunk.lengths);
        };
        if (same != there.end()) {
            const auto at = std::ranges::find_if(same->second, held);
            // A replica, unless one rank wrote both.
            if (at != same->second.end())
                return chunk.rank != kNone && catalog_.chunk(chunk.tensor, *at).rank == chunk.rank
                           ? Doubt::sure
                           : Doubt::none;
        }
        // Experts may begin as copies of each other.
        if (catalog_.name(chunk.tensor).find("expert") != std::string_view::npos &&
            catalog_.role(chunk.tensor) != Role::optimizer)
            return Doubt::none;
        const uint32_t rank = catalog_.files()[other].rank;
        const bool otherRank = rank != kNone && chunk.rank != kNone && rank != chunk.rank;
        return same != there.end() || otherRank ? Doubt::sure : Doubt::some;
    }

    // Whether the paths number tensor-parallel ranks, or shards: no two of these hold the same.
    static bool countsShards(std::string_view a, std::string_view b) {
        size_t at = 0;
        while (at < std::min(a.size(), b.size()) && a[at] == b[at])
            ++at;
        const std::string_view before = a.substr(0, at);
        const std::string_view part = before.substr(before.rfind('/') + 1);
        return part.find("zero_") == part.npos &&
               std::ranges::any_of(std::array{"mp_rank_", "tp_rank_", ".tp", ".shard"},
                                   [&](const char* word) { return part.find(word) != part.npos; });
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
        const std::string& path = catalog_.files()[copy].path;
        const bool counted = countsShards(path, catalog_.files()[of].path);
        size_t looks = 0, sure = 0;
        std::string_view example;
        // Of copies a reader may take one only.
        const bool unread = counted && chunks_[copy].empty();
        for (const auto& [tensor, chunks] : chunks_[unread ? of : copy]) {
            if (catalog_.role(tensor) == Role::other) continue;
            const ChunkInfo chunk = catalog_.chunk(tensor, chunks.front());
            // Vectors may be whole on each rank.
            const bool cut = counted && catalog_.shape(tensor).size() > 1;
            const Doubt doubt = cut ? Doubt::sure : doubtOf(chunk, of);
            if (doubt == Doubt::none) continue;
            if (++looks > kMostChunks) break;
            if (!isVaried(chunk.id)) continue;
            if (example.empty()) example = catalog_.name(tensor);
            if (doubt == Doubt::sure && ++sure > 1) break;
        }
        if (example.empty()) return;
        const auto shown = [&](std::string_view text) { return printable(text, kNameInMessage); };
        Note note;
        note.rule = rule::metaInconsistent;
        note.severity = sure > 1 ? Severity::error : Severity::warning;
        note.lacks = sure > 1 ? Note::Lacks::anything : Note::Lacks::nothing;
        note.file = path;
        note.tensor = example;
        note.message = fmt::format(
            "'{}' is byte for byte '{}', and each should hold other values: one was "
            "copied over the other",
            shown(note.file), shown(catalog_.files()[of].path));
        notes_.push_back(std::move(note));
    }

    // Layers that share or repeat their weights do so for every layer, or for all weights of two. Where one
    // matrix alone is another's, among three files of its kind or more, one of them is lost.
    void judgeTheOnlyOne() {
        if (notes_.size() != 1 || notes_[0].severity == Severity::error) return;
        const auto copy = std::ranges::find(pairs_, notes_[0].file, [&](const auto& pair) {
            return std::string_view(catalog_.files()[pair.first].path);
        });
        const TensorId t = catalog_.find(notes_[0].tensor);
        if (alike_[copy->first] < kFewestAlike || catalog_.shape(t).size() < 2 ||
            catalog_.elements(t) < kFewestElements)
            return;
        notes_[0].severity = Severity::error;
        notes_[0].lacks = Note::Lacks::anything;
    }

    const Reader& reader_;
    const Catalog& catalog_;
    const StopToken& stop_;
    std::map<FileId, size_t> alike_;                // of those in pairs: files of their kind and size
    std::vector<std::pair<FileId, FileId>> pairs_;  // the later one first
    std::map<FileId, std::map<TensorId, std::vector<ChunkId>>> chunks_;  // of the files in pairs
    std::vector<Note> notes_;
};

}  // namespace

Result<std::vector<Note>> copiedFileNotes(const Reader& reader, const StopToken& stop) {
    return CopiedFiles(reader, stop).notes();
}

}  // namespace shardscope
