// Deals work out to parts, in order, in ranges of equal bytes. Only the work itself counts, and which worker
// has which data at hand. Tiles do not depend on the latter, so that finished tiles count however they were
// dealt out. Private to this room.
#pragma once

#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "execute/executor.h"
#include "execute/journal.h"
#include "execute/part_reading.h"
#include "execute/part_worker.h"

namespace shardscope {

// Tensors to write, in the order of their first byte in the destination (convert.cpp).
std::vector<TensorId> workOrder(const ConvertJob& job);
// What the parts of a conversion share: the destination's tensors in that order.
std::vector<ShareItem> conversionItems(const ConvertJob& job);
// What all parts of a conversion must have in common.
struct SourceFile;
JournalHeader conversionHeader(const ConvertJob& job, const std::vector<SourceFile>& files,
                               uint64_t tileBytes);

class PartShares {
  public:
    PartShares(std::vector<ShareItem> items, uint32_t count, const ShareHomes& homes = {});

    using Visit = std::function<void(uint32_t part, uint32_t item, int64_t tile, uint64_t bytes)>;
    // Each tile once, in order, with the part that does it.
    void forEach(const Visit& visit) const;
    uint64_t tileBytes() const { return tileBytes_; }
    uint64_t bytes() const { return total_; }

    // What parts have done. A part with an empty share is done once it has begun.
    struct Done {
        std::set<std::pair<uint32_t, int64_t>> tiles;  // item and tile
        std::set<uint32_t> begun;
    };
    // The parts that are not among these, or of which a tile is not, in order.
    std::vector<uint32_t> openParts(const Done& done) const;
    // What is left to be given out: of each part with an open tile.
    std::vector<PartOrder> orders(const Done& done) const;
    // What is left of a part's share, in order; sums it up in `report`.
    std::vector<TileSpan> openSpans(uint32_t part, const Done& done, PartReport& report) const;

  private:
    // Tiles that one worker has at hand, or that all have, in parts that follow each other.
    struct Group {
        uint64_t bytes = 0;
        uint32_t firstPart = 0, parts = 0;
    };
    void dealByHome(const ShareHomes& homes);

    std::vector<ShareItem> items_;
    uint32_t count_;
    uint64_t total_ = 0;
    uint64_t tileBytes_ = 0;
    std::vector<Group> groups_;     // what is nobody's; then by worker
    std::vector<int32_t> groupOf_;  // by tile, in order; empty = the first
};
ShareHomes homesFor(const TileHomes& homes, PartWork work);

PartShares::Done doneTiles(const std::vector<JournalTile>& tiles, std::set<uint32_t> begun);

// Errors: usage.
Status checkPart(const PartSpec& part);
// The error that these parts of the job in `directory` are not done; `setUpBy` as in PartReport, empty where
// they share no directory.
Error partsAreOpen(const std::vector<uint32_t>& open, uint32_t count, const std::string& directory,
                   const std::string& setUpBy);
Error noParts(const std::string& directory);
// The error that `open` parts are not done by their journals, though workers have reported them.
Error journalsLag(size_t open, const std::string& directory);

}  // namespace shardscope
