// A conversion in parts that any scheduler can run. Each process does its share of the tiles and leaves a
// journal of them in the destination's staging directory, on storage that all see. The last step checks that
// all parts are there, verifies and publishes. No process talks to another one. Parts run in any order, at
// once or one after the other, on any hosts, and again after a failure.
//
//   .<name>.shardscope-partial/lock          held while the first part sets up, and by the last step
//                              /parts        what all parts must agree on; written last by the set-up
//                              /part-3.journal   see journal.h; locked by the process that does the part
//                              /part-r1-w0.journal   of a worker that a coordinator gave parts to
//                              /sealed       nothing but tensor data was missing, and that is written
//                              /verify/      what parts read back once it is sealed; see part_reading.h
//                              /data/        the destination as it will be
//
// A published destination keeps which job wrote it as an extended attribute, where the file system stores
// such. A scheduler may run a part once more after the last one has published.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "execute/executor.h"

namespace shardscope {

struct PartSpec {
    uint32_t index = 0;   // below `count`
    uint32_t count = 1;   // at most kMostParts
    std::string version;  // of this program; all parts must have the same
    // Name of the journal of a worker that a coordinator gives parts to (part_worker.h); empty = the part's.
    std::string journal{};
    // All parts were started at once: one that does not begin is on a host that does not share the directory.
    bool atOnce = false;
    bool retry = false;  // of such a worker: an earlier attempt may have done some of it
};
constexpr uint32_t kMostParts = 100'000;

// What one process does of a job in parts: one of them, its completion, or both.
struct Parts {
    std::optional<PartSpec> part;
    bool finish = false;  // with a part: unless others are open
    bool seal = false;    // in place of finishing; see sealParts()
    std::string version;
};

struct PartReport {
    PartSpec part;
    bool wasDone = false;    // by an earlier run; nothing was written
    bool published = false;  // as all others, and the destination stands
    bool readBack = false;   // the share was read back; `bytes` are those of the destination
    uint64_t tiles = 0;      // of its share
    uint64_t bytes = 0;      // of the destination, in its share
    uint64_t bytesRead = 0, bytesReused = 0;
    double seconds = 0;
    std::vector<uint32_t> open;  // the parts that are not done, in order
    // What the directory shows, as this host sees it: hosts that share no storage see different ones.
    std::string setUpBy;  // the host that set it up, and what that names its file system
    bool alone = false;   // of several parts no other one has begun
};

// Does one part. Once all are sealed, reads back its share instead, unless nothing is to be verified. Once
// the destination is published, see publishedPart(). Errors: exists (the destination, another job, another
// process that does this part), changed (other words, another version or another source than those of the
// parts that are there), remote (a part that was started with it does not begin here), and those of
// runConversion(). What is finished stays, and the next run continues from it.
Result<PartReport> runPart(const ConvertJob& job, const PartSpec& part, const Resources& resources);

// The report of a part of a destination that the parts of this very job have published: nothing was left to
// do. The answer is nullopt where they have not, and when the destination is to be replaced. So it is where
// the file system stores no attributes.
std::optional<PartReport> publishedPart(const ConvertJob& job, const PartSpec& part);

// Seals the staged destination, so that the parts can verify it: writes what is not tensor data, and
// publishes nothing. Each part then runs again and reads back its share, and finishParts() takes what they
// found instead of reading. Nothing is done twice. `job.shared` must be null. Errors: as finishParts().
Status sealParts(const ConvertJob& job, const std::string& version, const Resources& resources);

// Completes the destination out of all parts: what is not tensor data, verification, publication. Errors:
// notFound (no part is there), exists (another process works on it), changed, and those of runConversion();
// parts that are not done are named.
Result<ConvertReport> finishParts(const ConvertJob& job, const std::string& version,
                                  const Resources& resources);

}  // namespace shardscope
