#include "execute/part_shares.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/option_words.h"
#include "execute/scan.h"
#include "execute/values.h"

namespace shardscope {
namespace {

// A share should be that many tiles, so that shares differ by some per cent only.
constexpr uint64_t kTilesOfShare = 32;
constexpr uint64_t kLargestTile = uint64_t{8} << 20;

TileGrid gridOfItem(const ShareItem& item, uint64_t tileBytes) {
    if (item.whole) return {item.elements, std::max<int64_t>(1, item.elements)};
    return tileGrid(item.elements, item.from, item.to, tileBytes);
}

}  // namespace

PartShares::PartShares(std::vector<ShareItem> items, uint32_t count)
    : items_(std::move(items)), count_(count) {
    for (const ShareItem& item : items_)
        total_ += bytesOfElements(item.to, item.elements);
    const uint64_t wanted = total_ / (kTilesOfShare * count) / kDigestCellBytes * kDigestCellBytes;
    tileBytes_ = std::clamp(wanted, kDigestCellBytes, kLargestTile);
}

void PartShares::forEach(const Visit& visit) const {
    uint64_t before = 0;
    for (const ShareItem& item : items_) {
        const TileGrid grid = gridOfItem(item, tileBytes_);
        for (int64_t tile = 0; tile < grid.tiles(); ++tile) {
            const uint64_t bytes = bytesOfElements(item.to, grid.end(tile) - grid.begin(tile));
            // By the middle of the tile; in floating point, since the product can overflow.
            const double at = (static_cast<double>(before) + static_cast<double>(bytes) / 2) /
                              static_cast<double>(std::max<uint64_t>(1, total_));
            visit(std::min(count_ - 1, static_cast<uint32_t>(at * count_)), item.id, tile, bytes);
            before += bytes;
        }
    }
}

std::vector<uint32_t> PartShares::openParts(const Done& done) const {
    std::set<uint32_t> open;
    forEach([&](uint32_t part, uint32_t item, int64_t tile, uint64_t) {
        if (!done.tiles.contains({item, tile})) open.insert(part);
    });
    for (uint32_t part = 0; part < count_; ++part) {
        if (!done.begun.contains(part)) open.insert(part);
    }
    return {open.begin(), open.end()};
}

std::vector<TileSpan> PartShares::openSpans(uint32_t part, const Done& done, PartReport& report) const {
    std::vector<TileSpan> spans;
    forEach([&](uint32_t owner, uint32_t item, int64_t tile, uint64_t bytes) {
        if (owner != part) return;
        ++report.tiles;
        report.bytes += bytes;
        if (done.tiles.contains({item, tile})) {
            report.bytesReused += bytes;
        } else if (!spans.empty() && spans.back().tensor == item &&
                   spans.back().first + spans.back().count == tile) {
            ++spans.back().count;
        } else {
            spans.push_back({item, tile, 1});
        }
    });
    report.wasDone = spans.empty() && done.begun.contains(part);
    return spans;
}

Status checkPart(const PartSpec& part) {
    if (part.count > 0 && part.count <= kMostParts && part.index < part.count) return {};
    return makeError(ErrorCode::usage, fmt::format("part {} of {} does not exist", part.index, part.count));
}

Error partsAreOpen(const std::vector<uint32_t>& open, uint32_t count, const std::string& directory) {
    constexpr size_t kMostNamed = 20;
    const auto named = std::span(open).first(std::min(kMostNamed, open.size()));
    return makeError(ErrorCode::notFound,
                     fmt::format("{} of {} parts are not done: {}{}", open.size(), count,
                                 fmt::join(named, ", "), open.size() > kMostNamed ? ", ..." : ""))
        .inFile(directory)
        .withHint(fmt::format("run them, then finish: {} {}/{}", option("part"), open.front(), count));
}

Error noParts(const std::string& directory) {
    return makeError(ErrorCode::notFound, "no part of this job has begun")
        .inFile(directory)
        .withHint(fmt::format("run the parts first: {} 0/4, {} 1/4, ...", option("part"), option("part")));
}

}  // namespace shardscope
