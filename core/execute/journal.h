// What an interrupted conversion has finished. Records are only written after the data that they claim is on
// disk, and each carries its own checksum. So whatever can be read back is true. Private to this room.
//
// File: records of { u32 length, u64 XXH3-64 of the payload, payload }, little-endian; the first is the
// header.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "execute/executor.h"
#include "execute/scan.h"

namespace shardscope {

struct JournalHeader {
    Digest128 plan;    // of everything that decides which byte goes where
    Digest128 source;  // of the source files' fingerprints
    TileSizes tiles;   // a resumed job keeps the tiles of the first
};

struct JournalTile {
    TensorId tensor = kNone;  // of the wanted catalog
    int64_t tile = 0;
    ValueCounts counts;
    std::vector<Digest128> cells;
    std::vector<uint32_t>
        crcs;  // of the pieces for the destination chunks, in their order; empty when not needed
};

struct JournalContent {
    JournalHeader header;
    std::vector<JournalTile> tiles;
    uint64_t validBytes = 0;  // what follows is truncated
};

// Tiles as the journal holds them, for other processes. Errors: damaged.
std::string encodeTiles(const std::vector<JournalTile>& tiles);
Result<std::vector<JournalTile>> decodeTiles(std::string_view bytes);

// nullopt when there is no valid header. Errors: io.
Result<std::optional<JournalContent>> readJournal(const ReadFile& file);

inline bool isSameJob(const JournalHeader& a, const JournalHeader& b) {
    return a.plan == b.plan && a.source == b.source;
}

// Takes one record; false for an invalid one, which ends the journal there.
using TakeRecord = std::function<bool(std::string_view record)>;
struct JournalEnd {
    JournalHeader header;
    uint64_t validBytes = 0;  // 0 where the header was not accepted
};
// Hands out the records behind a header that is accepted. nullopt when there is no valid header. Errors: io.
Result<std::optional<JournalEnd>> readRecords(const ReadFile& file,
                                              const std::function<bool(const JournalHeader&)>& accept,
                                              const TakeRecord& take);
// One record of a journal of tiles. nullopt for anything else.
std::optional<JournalTile> decodeTile(std::string_view record);

// What was found in one range of a reading in parts; `data` is the reader's own.
struct JournalFinding {
    uint32_t item = 0;
    int64_t tile = 0;
    std::string data;
};
std::string encodeFindings(const std::vector<JournalFinding>& findings);
std::optional<JournalFinding> decodeFinding(std::string_view record);

class JournalWriter {
  public:
    // Continues at `offset`, and truncates the file there. Offset 0 writes the header.
    static Result<std::unique_ptr<JournalWriter>> start(std::shared_ptr<WriteFile> file,
                                                        const JournalHeader& header, uint64_t offset);
    // Appends records as encodeTiles() or encodeFindings() make them, and syncs. Not thread-safe.
    Status append(std::string_view records);

  private:
    JournalWriter(std::shared_ptr<WriteFile> file, uint64_t offset)
        : file_(std::move(file)), offset_(offset) {}
    std::shared_ptr<WriteFile> file_;
    uint64_t offset_;
};

}  // namespace shardscope
