#include <algorithm>

#include <fmt/format.h>

#include "base/rule.h"
#include "formats/paddle_dist/dist_catalog.h"

namespace shardscope::paddle {

namespace {

// Whether two entries of the same shape hold the same bytes, as far as their first and last ones tell.
bool looksEqual(const RankFiles& files, const std::string& pathA, const RankFiles::Entry& a,
                const std::string& pathB, const RankFiles::Entry& b) {
    if (a.shape != b.shape || a.parts[0].dtype != b.parts[0].dtype) return false;
    const auto placeA = files.place(pathA, a);
    const auto placeB = files.place(pathB, b);
    if (!placeA.ok() || !placeB.ok()) return false;
    const uint64_t bytes = static_cast<uint64_t>(elementCount(a.shape)) * dtypeBytes(a.parts[0].dtype);
    const uint64_t piece = std::min<uint64_t>(bytes, 4096);
    std::string first(piece, '\0'), other(piece, '\0');
    for (const uint64_t at : {uint64_t{0}, bytes - piece}) {
        if (!placeA->file->readAt(placeA->offset + at, std::as_writable_bytes(std::span(first))).ok())
            return false;
        if (!placeB->file->readAt(placeB->offset + at, std::as_writable_bytes(std::span(other))).ok())
            return false;
        if (first != other) return false;
    }
    return true;
}

}  // namespace

std::vector<Note> strangeEntries(const RankFiles& files, const std::string& path,
                                 const RankFiles::Index& index, const FindKnown& known) {
    std::vector<Note> notes;
    std::vector<const RankFiles::Index::value_type*> entries;
    for (const auto& entry : index)
        entries.push_back(&entry);
    std::sort(entries.begin(), entries.end(),
              [](const auto* a, const auto* b) { return a->first < b->first; });
    for (const auto* item : entries) {
        const std::string& key = item->first;
        const RankFiles::Entry& entry = item->second;
        const auto tensor = known(key);
        const auto note = [&](std::string_view rule, std::string message) {
            notes.push_back(
                {std::string(rule), Severity::error, std::move(message), path, key, std::nullopt});
        };
        if (!tensor) {
            if (std::find(entry.shape.begin(), entry.shape.end(), 0) != entry.shape.end()) continue;
            note(rule::metaInconsistent,
                 fmt::format(
                     "{} holds '{}', which the metadata does not know: the metadata is that of another save",
                     path, key));
            continue;
        }
        const auto here = [&](const KnownPiece& piece) { return piece.file == path; };
        if (tensor->ignored || std::any_of(tensor->pieces.begin(), tensor->pieces.end(), here)) continue;
        if (tensor->generation == Generation::v0a) {
            // Every rank's file has the replicas of that rank, and the metadata names one of them only.
            bool whole = false, equal = false;
            for (const KnownPiece& piece : tensor->pieces) {
                if (piece.lengths != entry.shape || piece.file.empty()) continue;
                whole = whole || tensor->pieces.size() == 1;
                const auto other = files.index(piece.file);
                // Where the other copy cannot be read there is nothing to compare with.
                if (!other.ok()) {
                    equal = true;
                    continue;
                }
                const auto twin = (*other)->find(key);
                equal = equal ||
                        (twin != (*other)->end() && looksEqual(files, path, entry, piece.file, twin->second));
            }
            if (equal) continue;
            if (whole) {
                notes.push_back(
                    {rule::replicaDiffers, Severity::warning,
                     fmt::format("the replica of '{}' in {} differs from the one that the metadata names",
                                 key, path),
                     path, key, std::nullopt});
                continue;
            }
        }
        if (!tensor->shapeGiven) {
            note(rule::coverageShrunk,
                 fmt::format(
                     "{} holds a piece of shape {} of '{}' that the metadata has no row for: without it the "
                     "tensor may seem smaller than it was saved",
                     path, formatDims(entry.shape), key));
        } else {
            note(rule::metaInconsistent,
                 fmt::format("{} holds a piece of shape {} of '{}' that the metadata has no row for", path,
                             formatDims(entry.shape), key));
        }
    }
    return notes;
}

}  // namespace shardscope::paddle
