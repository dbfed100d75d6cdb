#include "formats/dcp/metadata.h"

#include <algorithm>
#include <numeric>

namespace shardscope::dcp {

// ------------------------------------------------------------------ joining storage_data with the chunks

namespace {

constexpr size_t kMaxTwins = 64;
constexpr size_t kPrefetched = 16;

// Finds the chunk of a tensor with given offsets: at a guessed position, else in an order that is sorted on
// first use.
class ChunkFinder {
  public:
    explicit ChunkFinder(const Metadata& metadata) : metadata_(metadata) {}

    uint32_t find(uint32_t tensor, DimsRef wanted, uint32_t next) {
        const auto [offsets, rank] = wanted;
        const MetaTensor& t = metadata_.tensors[tensor];
        if (t.shape.rank != rank) return kNone;
        const uint32_t count = t.endChunk - t.firstChunk;
        if (next < count && compare(t.firstChunk + next, offsets, rank) == 0) return t.firstChunk + next;
        const auto equal = allAt(tensor, offsets, rank);
        return equal.empty() ? kNone : equal.front();
    }

    // All chunks of the tensor that begin at these offsets.
    std::span<const uint32_t> allAt(uint32_t tensor, uint32_t offsets, uint8_t rank) {
        const MetaTensor& t = metadata_.tensors[tensor];
        if (sorted_.empty()) sorted_.resize(metadata_.tensors.size());
        std::vector<uint32_t>& order = sorted_[tensor];
        if (order.empty()) {
            order.resize(t.endChunk - t.firstChunk);
            std::iota(order.begin(), order.end(), t.firstChunk);
            std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
                return compare(a, metadata_.chunks[b].offsets, rank) < 0;
            });
        }
        const auto low = std::lower_bound(order.begin(), order.end(), offsets,
                                          [&](uint32_t a, uint32_t o) { return compare(a, o, rank) < 0; });
        const auto high = std::upper_bound(low, order.end(), offsets,
                                           [&](uint32_t o, uint32_t a) { return compare(a, o, rank) > 0; });
        return {low, high};
    }

  private:
    int compare(uint32_t chunk, uint32_t offsets, uint8_t rank) const {
        const uint32_t mine = metadata_.chunks[chunk].offsets;
        if (mine == offsets) return 0;
        const int64_t* a = metadata_.dims.data() + mine;
        const int64_t* b = metadata_.dims.data() + offsets;
        for (uint8_t i = 0; i < rank; ++i) {
            if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
        }
        return 0;
    }

    const Metadata& metadata_;
    std::vector<std::vector<uint32_t>> sorted_;  // chunks of each tensor by offsets; made where guesses fail
};

}  // namespace

StorageJoin joinStorage(const Metadata& metadata) {
    StorageJoin join;
    join.chunkRow.assign(metadata.chunks.size(), kNone);
    join.objectRow.assign(metadata.entries.size(), kNone);
    std::vector<uint32_t> entryOf(metadata.texts.size(), kNone);
    for (size_t e = 0; e < metadata.entries.size(); ++e)
        entryOf[metadata.entries[e].name] = static_cast<uint32_t>(e);

    ChunkFinder finder(metadata);
    std::vector<uint32_t> next(metadata.tensors.size(), 0);
    for (size_t r = 0; r < metadata.stored.size(); ++r) {
        // The rows come rank by rank, the chunks tensor by tensor: nearly every look at a chunk misses the
        // caches.
        if (r + kPrefetched < metadata.stored.size()) {
            const uint32_t soon = entryOf[metadata.stored[r + kPrefetched].name];
            const uint32_t tensor = soon == kNone ? kNone : metadata.entries[soon].tensor;
            if (tensor != kNone) {
                const size_t guess = size_t{metadata.tensors[tensor].firstChunk} + next[tensor];
                __builtin_prefetch(metadata.chunks.data() + guess);
                __builtin_prefetch(join.chunkRow.data() + guess, 1);
            }
        }
        const MetaStored& row = metadata.stored[r];
        const auto id = static_cast<uint32_t>(r);
        const uint32_t entry = entryOf[row.name];
        bool placed = false;
        if (entry != kNone && metadata.entries[entry].tensor == kNone) {
            join.objectRow[entry] = id;
            placed = true;
        } else if (entry != kNone) {
            const uint32_t tensor = metadata.entries[entry].tensor;
            const MetaTensor& t = metadata.tensors[tensor];
            uint32_t chunk = kNone;
            if (row.place != kNone)
                chunk = finder.find(tensor, {row.place, row.rank}, next[tensor]);
            else if (t.endChunk - t.firstChunk == 1)
                chunk = t.firstChunk;  // a key without offsets can only mean the one chunk
            if (chunk != kNone) {
                join.chunkRow[chunk] = id;
                next[tensor] = chunk - t.firstChunk + 1;
                placed = true;
            }
        }
        if (!placed) {
            ++join.orphanCount;
            if (join.orphans.size() < StorageJoin::kMaxOrphans) join.orphans.push_back(id);
        }
    }
    // Chunks that begin at the same place (empty shards of old writers) share one row.
    for (const MetaEntry& entry : metadata.entries) {
        if (entry.tensor == kNone) continue;
        const MetaTensor& t = metadata.tensors[entry.tensor];
        for (uint32_t c = t.firstChunk; c < t.endChunk; ++c) {
            if (join.chunkRow[c] != kNone) continue;
            const MetaChunk& chunk = metadata.chunks[c];
            const auto twins = finder.allAt(entry.tensor, chunk.offsets, chunk.rank);
            for (const uint32_t twin : twins.first(std::min(twins.size(), kMaxTwins))) {
                if (join.chunkRow[twin] != kNone) join.chunkRow[c] = join.chunkRow[twin];
            }
            join.missing += join.chunkRow[c] == kNone;
        }
    }
    return join;
}

}  // namespace shardscope::dcp
