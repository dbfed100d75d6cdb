// What an interrupted conversion has finished. Records are only written after the data that they claim is on
// disk, and each carries its own checksum, so that whatever can be read back is true. Private to this room.
//
// File: records of { u32 length, u64 XXH3-64 of the payload, payload }, little-endian; the first is the
// header.
#pragma once

#include <memory>
#include <string>
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
    uint64_t validBytes = 0;  // what follows is torn
};

// Tiles as the journal holds them, for other processes. Errors: damaged.
std::string encodeTiles(const std::vector<JournalTile>& tiles);
Result<std::vector<JournalTile>> decodeTiles(std::string_view bytes);

// nullopt when there is no valid header. Errors: io.
Result<std::optional<JournalContent>> readJournal(const ReadFile& file);

class JournalWriter {
  public:
    // Goes on at `offset`, and cuts the file there. Offset 0 writes the header.
    static Result<std::unique_ptr<JournalWriter>> start(std::shared_ptr<WriteFile> file,
                                                        const JournalHeader& header, uint64_t offset);
    // Appends and syncs. Not thread-safe.
    Status append(const std::vector<JournalTile>& tiles);

  private:
    JournalWriter(std::shared_ptr<WriteFile> file, uint64_t offset)
        : file_(std::move(file)), offset_(offset) {}
    std::shared_ptr<WriteFile> file_;
    uint64_t offset_;
};

}  // namespace shardscope
