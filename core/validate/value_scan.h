// What a reading of all values remembers, for values.cpp, which reads, and value_scan.cpp, which keeps it.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "execute/values.h"
#include "storage/digest.h"
#include "validate/validate.h"

namespace shardscope {

// What one range of bytes, or one chunk, or one tensor holds.
struct ValuePattern {
    ValueCounts counts;
    ValueSums sums;
    bool uniform = true;  // all elements have the bits of `first`
    std::array<std::byte, 16> first{};
    bool any = false;
    uint64_t negative = 0;    // elements below zero, of moments
    ZeroPages lost;           // pages
    bool noChecksum = false;  // of a chunk: none is stored that could be compared

    void join(const ValuePattern& other) {
        if (!other.any) return;
        uniform = uniform && other.uniform && (!any || first == other.first);
        if (!any) first = other.first;
        any = true;
        counts.elements += other.counts.elements;
        counts.nan += other.counts.nan;
        counts.inf += other.counts.inf;
        counts.zero += other.counts.zero;
        negative += other.negative;
        if (lost.count == 0) lost.first = other.lost.first;
        lost.count += other.lost.count;
        sums.add(other.sums);
    }
};

// Something that was found while a chunk was read.
struct Recorded {
    ChunkId chunk = kNone;
    std::string rule, cause, message;
    FindingExample example;
    std::string
        storage;  // of the checksum of a shared storage: its file as opened; the offset is the example's
};

// What one segment of a chunk, or of a storage, holds.
struct SeenSegment {
    ValuePattern seen;
    uint32_t crc = 0;               // of the bytes, where it was asked for
    std::vector<Digest128> pieces;  // of the pieces, where they were asked for
};
std::string packSegment(const SeenSegment& segment);
std::optional<SeenSegment> unpackSegment(std::string_view bytes);

// Everything that reading has brought so far; what is judged from it is worked out anew each time. It may be
// saved while threads read: what belongs to a chunk counts once the chunk is done.
struct ValueScan::State {
    std::vector<ValuePattern> seen;  // by chunk
    std::vector<uint8_t> done;  // by chunk: it was read, or there is nothing to read. Through isDone, setDone
    std::atomic<uint64_t> doneCount{0};
    std::atomic<uint64_t> chunks{0};
    std::map<ChunkId, Digest128> digests;  // of the chunks that are replicas; filled before threads start

    std::mutex mutex;            // of what follows
    std::set<TensorId> strided;  // read anew each time, in the tensor's own order,
    std::set<ChunkId> readAnew;  // which counts into its first chunk
    // Checksums of shared storages that were looked at: file and offset, and the first chunk that has them.
    std::map<std::pair<std::string, uint64_t>, ChunkId> summed;
    std::vector<Recorded> recorded;

    bool isDone(ChunkId c) const {
        return std::atomic_ref(const_cast<uint8_t&>(done[c])).load(std::memory_order_acquire) != 0;
    }
    void setDone(ChunkId c) {
        std::atomic_ref(done[c]).store(1, std::memory_order_release);
        ++doneCount;
    }
    void begin(size_t count) {
        seen.assign(count, {});
        done.assign(count, 0);
        chunks.store(count, std::memory_order_release);  // from here on it may be saved
    }
};

}  // namespace shardscope
