// Groups of rows of a placement matrix, and their sums.
#include <algorithm>
#include <unordered_map>

#include "survey/layer_name.h"
#include "survey/placement_matrix.h"

namespace shardscope {

namespace {

constexpr size_t kFewRows = 12;   // that need no groups
constexpr size_t kOpenRows = 64;  // up to so many, groups are open at first

// What the names of a group begin with; with `folded` layers their number is "*". Empty = in no group.
std::string groupKey(std::string_view name, bool folded) {
    const LayerName layer = splitLayer(name);
    const ExpertName expert = splitExpert(name);
    if (layer.number < 0 || layer.after.empty()) {
        // Without a layer what stands beside it: "model" of "model.norm.weight".
        size_t end = name.rfind('.');
        if (end != std::string_view::npos && layer.number < 0)
            end = end == 0 ? end : name.rfind('.', end - 1);
        return end == std::string_view::npos ? std::string() : std::string(name.substr(0, end));
    }
    const size_t number = name.size() - layer.after.size();
    const size_t end = expert.number < 0 ? number : expert.group.size() - 1;
    if (!folded || end < number) return std::string(name.substr(0, end));
    return std::string(layer.before) + '*' + std::string(name.substr(number, end - number));
}

}  // namespace

// `kinds` are tensors that are placed alike, in the order of rows; pinned ones come first.
void PlacementMatrix::makeGroups(const std::vector<std::vector<TensorId>>& kinds,
                                 const std::vector<bool>& pinned, const MatrixOptions& options) {
    const Catalog& c = catalog();
    std::vector<std::vector<uint32_t>> sections;  // kinds of one group
    std::vector<std::string> keys;
    std::unordered_map<std::string, size_t> sectionOf;
    const bool grouped = options.groups && kinds.size() > kFewRows;
    const auto put = [&](uint32_t k) {
        std::string key = grouped ? groupKey(c.name(kinds[k].front()), options.foldRows) : std::string();
        size_t section = sections.size();
        if (!key.empty()) section = sectionOf.try_emplace(key, section).first->second;
        if (section == sections.size()) {
            sections.emplace_back();
            keys.push_back(std::move(key));
        }
        sections[section].push_back(k);
    };
    // Pinned rows, which come first, do not take their groups along.
    for (const bool ofPinned : {false, true}) {
        for (uint32_t k = 0; k < kinds.size(); ++k) {
            if (pinned[k] == ofPinned) put(k);
        }
    }
    std::vector<uint32_t> origins;  // of kinds_ in `kinds`
    for (size_t section = 0; section < sections.size(); ++section) {
        // One that holds everything, or one row, says nothing.
        const bool group = !keys[section].empty() && sections[section].size() > 1 && sections.size() > 1;
        MatrixGroup of;
        of.kindBegin = static_cast<uint32_t>(kinds_.size());
        of.memberBegin = static_cast<uint32_t>(members_.size());
        std::vector<int64_t> layers;
        for (const uint32_t k : sections[section]) {
            kinds_.push_back(
                {static_cast<uint32_t>(members_.size()), static_cast<uint32_t>(kinds[k].size())});
            origins.push_back(k);
            members_.insert(members_.end(), kinds[k].begin(), kinds[k].end());
            const Health health = tensorHealth(kinds[k].front());
            hasGaps_ = hasGaps_ || health == Health::gap;
            of.health = std::max(of.health, health);
            of.bytes += c.bytes(kinds[k].front()) * kinds[k].size();
            for (const TensorId t : kinds[k])
                layers.push_back(splitLayer(c.name(t)).number);
        }
        of.kindEnd = static_cast<uint32_t>(kinds_.size());
        of.tensors = static_cast<uint32_t>(members_.size()) - of.memberBegin;
        if (!group) keys[section].clear();
        if (!group) continue;
        of.key = keys[section];
        of.name = of.key;
        const size_t star = of.key.find('*');
        if (options.foldRows && star != std::string::npos)
            of.name.replace(star, 1, numbersText(std::move(layers)));
        const auto asked = options.open.find(of.key);
        of.open = asked == options.open.end() ? kinds.size() <= kOpenRows : asked->second;
        groups_.push_back(std::move(of));
    }
    // Pinned rows first: they scroll with nothing.
    for (const std::string& key : options.pinnedGroups) {
        for (uint32_t g = 0; g < groups_.size(); ++g) {
            if (groups_[g].key == key) addSummary(g);
        }
    }
    // In the order in which they were pinned, which is that of `kinds`.
    std::vector<uint32_t> pins;
    for (uint32_t k = 0; k < kinds_.size(); ++k) {
        if (pinned[origins[k]]) pins.push_back(k);
    }
    std::ranges::sort(pins, {}, [&](uint32_t k) { return origins[k]; });
    for (const uint32_t k : pins)
        addRow(k, kNone);
    pinned_ = rowCount();
    uint32_t kind = 0, group = 0;
    for (size_t section = 0; section < sections.size(); ++section) {
        const uint32_t end = kind + static_cast<uint32_t>(sections[section].size());
        const uint32_t of = keys[section].empty() ? kNone : group++;
        if (of != kNone) addSummary(of);
        for (; kind < end; ++kind) {
            if (!pinned[origins[kind]] && (of == kNone || groups_[of].open)) addRow(kind, of);
        }
    }
}

void PlacementMatrix::addRow(uint32_t kind, uint32_t group) {
    MatrixRow row;
    row.memberBegin = kinds_[kind].memberBegin;
    row.count = kinds_[kind].count;
    row.tensor = members_[row.memberBegin];
    row.health = tensorHealth(row.tensor);
    row.group = group;
    for (uint32_t m = 0; m < row.count; ++m)
        rowOf_[members_[row.memberBegin + m]] = rowCount();
    rows_.push_back(row);
}

// The tensors of a closed group are found at its sum, but for pinned ones.
void PlacementMatrix::addSummary(uint32_t group) {
    const MatrixGroup& of = groups_[group];
    MatrixRow row;
    row.memberBegin = of.memberBegin;
    row.count = of.tensors;
    row.tensor = members_[row.memberBegin];
    row.health = of.health;
    row.group = group;
    row.summary = true;
    for (uint32_t m = 0; m < row.count; ++m) {
        uint32_t& at = rowOf_[members_[row.memberBegin + m]];
        if (!of.open && (at == kNone || rows_[at].summary)) at = rowCount();
    }
    rows_.push_back(row);
}

std::vector<MatrixCell> PlacementMatrix::sumOf(uint32_t group) const {
    const MatrixGroup& of = groups_[group];
    const double whole = static_cast<double>(std::max<uint64_t>(1, of.bytes));
    std::vector<MatrixCell> byColumn(columnCount());
    for (uint32_t k = of.kindBegin; k < of.kindEnd; ++k) {
        forEachChunkOf(members_[kinds_[k].memberBegin], [&](uint32_t column, const ChunkInfo& chunk) {
            MatrixCell& cell = byColumn[column];
            const Health health = chunkHealth(chunk.id);
            if (cell.chunk == kNone || health > cell.health) cell.chunk = chunk.id;
            cell.column = column;
            cell.chunks += kinds_[k].count;
            cell.bytes += elementBytes(catalog(), chunk) * kinds_[k].count;
            cell.health = std::max(cell.health, health);
        });
    }
    std::erase_if(byColumn, [](const MatrixCell& cell) { return cell.chunks == 0; });
    for (MatrixCell& cell : byColumn)
        cell.share = static_cast<double>(cell.bytes) / whole;
    return byColumn;
}

}  // namespace shardscope
