#include "execute/part_shares.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/option_words.h"
#include "base/units.h"
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

PartShares::PartShares(std::vector<ShareItem> items, uint32_t count, const ShareHomes& homes)
    : items_(std::move(items)), count_(count) {
    for (const ShareItem& item : items_)
        total_ += bytesOfElements(item.to, item.elements);
    const uint64_t wanted = total_ / (kTilesOfShare * count) / kDigestCellBytes * kDigestCellBytes;
    tileBytes_ = std::clamp(wanted, kDigestCellBytes, kLargestTile);
    groups_ = {{total_, 0, count_}};
    if (homes.workers > 0) dealByHome(homes);
}

void PartShares::dealByHome(const ShareHomes& homes) {
    std::vector<Group> groups(static_cast<size_t>(homes.workers) + 1);
    std::vector<int32_t> groupOf;
    for (const ShareItem& item : items_) {
        const TileGrid grid = gridOfItem(item, tileBytes_);
        for (int64_t tile = 0; tile < grid.tiles(); ++tile) {
            const int home = homes.of(item.id, grid.begin(tile), grid.end(tile));
            groupOf.push_back(home < 0 || home >= homes.workers ? 0 : home + 1);
            groups[static_cast<size_t>(groupOf.back())].bytes +=
                bytesOfElements(item.to, grid.end(tile) - grid.begin(tile));
        }
    }
    const auto used = static_cast<uint32_t>(
        std::ranges::count_if(groups, [](const Group& group) { return group.bytes > 0; }));
    if (used > count_) return;
    uint32_t given = 0;
    for (Group& group : groups) {
        if (group.bytes == 0) continue;
        const double share = static_cast<double>(group.bytes) / static_cast<double>(total_);
        group.parts = 1 + static_cast<uint32_t>(share * (count_ - used));
        given += group.parts;
    }
    // By rounding some parts are left, or one too many is given.
    Group& largest = *std::ranges::max_element(groups, {}, &Group::parts);
    largest.parts = largest.parts + count_ - given;
    uint32_t next = 0;
    for (Group& group : groups)
        group.firstPart = std::exchange(next, next + group.parts);
    groups_ = std::move(groups);
    groupOf_ = std::move(groupOf);
}

void PartShares::forEach(const Visit& visit) const {
    std::vector<uint64_t> before(groups_.size(), 0);
    size_t index = 0;
    for (const ShareItem& item : items_) {
        const TileGrid grid = gridOfItem(item, tileBytes_);
        for (int64_t tile = 0; tile < grid.tiles(); ++tile) {
            const uint64_t bytes = bytesOfElements(item.to, grid.end(tile) - grid.begin(tile));
            const size_t g = groupOf_.empty() ? 0 : static_cast<size_t>(groupOf_[index++]);
            const Group& group = groups_[g];
            // By the middle of the tile; in floating point, since the product can overflow.
            const double at = (static_cast<double>(before[g]) + static_cast<double>(bytes) / 2) /
                              static_cast<double>(std::max<uint64_t>(1, group.bytes));
            visit(group.firstPart + std::min(group.parts - 1, static_cast<uint32_t>(at * group.parts)),
                  item.id, tile, bytes);
            before[g] += bytes;
        }
    }
}

std::vector<PartOrder> PartShares::orders(const Done& done) const {
    std::vector<PartOrder> all(count_);
    std::vector<bool> open(count_, false);
    forEach([&](uint32_t part, uint32_t item, int64_t tile, uint64_t bytes) {
        if (done.tiles.contains({item, tile})) return;
        open[part] = true;
        all[part].bytes += bytes;
    });
    std::vector<PartOrder> orders;
    for (size_t g = 0; g < groups_.size(); ++g) {
        const uint32_t first = groups_[g].firstPart;
        for (uint32_t part = first; part < first + groups_[g].parts; ++part) {
            if (!open[part]) continue;
            orders.push_back({part, all[part].bytes, groupOf_.empty() ? -1 : static_cast<int>(g) - 1,
                              !done.tiles.empty()});
        }
    }
    return orders;
}

ShareHomes homesFor(const TileHomes& homes, PartWork work) {
    if (homes.workers == 0) return {};
    return {homes.workers, [of = homes.of, work](uint32_t item, int64_t begin, int64_t end) {
                return of(work, item, begin, end);
            }};
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
    report.wasDone = spans.empty() && (done.begun.contains(part) || report.tiles > 0);
    return spans;
}

Status checkPart(const PartSpec& part) {
    if (part.count > 0 && part.count <= kMostParts && part.index < part.count) return {};
    return makeError(ErrorCode::usage, fmt::format("part {} of {} does not exist", part.index, part.count));
}

Error partsAreOpen(const std::vector<uint32_t>& open, uint32_t count, const std::string& directory,
                   const std::string& setUpBy) {
    constexpr size_t kMostNamed = 20;
    const auto named = std::span(open).first(std::min(kMostNamed, open.size()));
    Error error =
        makeError(ErrorCode::notFound,
                  fmt::format("{} of {} not done: {}{}", open.size(), counted(count, "part"),
                              fmt::join(named, ", "), open.size() > kMostNamed ? ", ..." : ""))
            .inFile(directory)
            .withHint("run them, then finish: " + option("part", fmt::format("{}/{}", open.front(), count)));
    if (!setUpBy.empty()) {
        error.message += fmt::format(", in the directory that {} has set up", setUpBy);
        error.hint += "; if they have run, their hosts do not share this directory";
    }
    return error;
}

Error journalsLag(size_t open, const std::string& directory) {
    return makeError(ErrorCode::remote,
                     fmt::format("{} finished, but the journals do not show it here", counted(open, "part")))
        .inFile(directory)
        .withHint("all hosts must see each other's files at once: mount the file system without caches");
}

Error noParts(const std::string& directory) {
    return makeError(ErrorCode::notFound, "no part of this job has begun")
        .inFile(directory)
        .withHint(fmt::format("run the parts first: {} 0/4, {} 1/4, ...", option("part"), option("part")));
}

}  // namespace shardscope
