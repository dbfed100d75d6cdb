#include <algorithm>

#include <fmt/format.h>

#include "base/rule.h"
#include "formats/paddle_dist/dist_catalog.h"

namespace shardscope::paddle {

namespace {

// Whether two stored tensors are alike as far as samples of them tell.
bool looksEqual(const TensorFiles& files, const StoredPart& a, const StoredPart& b) {
    const StoredTensor& one = files[a.file].tensors[a.tensor];
    const StoredTensor& two = files[b.file].tensors[b.tensor];
    return one.shape == two.shape && one.dtype == two.dtype && !files.partsDiffer(a, b);
}

}  // namespace

std::vector<Note> unexpectedEntries(TensorFiles& files, uint32_t file, const FindKnown& known) {
    std::vector<Note> notes;
    const TensorFile& contents = files[file];
    const std::string& path = contents.name;
    for (const uint32_t t : contents.byName) {
        const StoredTensor& entry = contents.tensors[t];
        const std::string& key = entry.name;
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
                const auto other = files.add(piece.file);
                // Where the other copy cannot be read there is nothing to compare with.
                if (!other.ok()) {
                    equal = true;
                    continue;
                }
                const uint32_t twin = files[*other].find(key);
                equal = equal || (twin != kNone && looksEqual(files, StoredPart::whole(file, t),
                                                              StoredPart::whole(*other, twin)));
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
                     "{} holds a chunk of shape {} of '{}' that the metadata has no row for: without it the "
                     "tensor may seem smaller than it was saved",
                     path, formatDims(entry.shape), key));
        } else {
            note(rule::metaInconsistent,
                 fmt::format("{} holds a chunk of shape {} of '{}' that the metadata has no row for", path,
                             formatDims(entry.shape), key));
        }
    }
    return notes;
}

}  // namespace shardscope::paddle
