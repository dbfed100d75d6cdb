// What rows, columns and cells of a placement matrix say.
#include <algorithm>

#include <fmt/format.h>

#include "base/numbers.h"
#include "base/units.h"
#include "survey/layer_name.h"
#include "survey/placement_matrix.h"

namespace shardscope {

namespace {

std::string spanText(std::string_view unit, int64_t from, int64_t to, int64_t of) {
    return to - from == 1 ? fmt::format("{} {} of {}", unit, from, of)
                          : fmt::format("{} {}–{} of {}", unit, from, to - 1, of);
}

// "rows 0–511 of 4096", "the whole tensor".
std::string boxWords(DimSpan offsets, DimSpan lengths, DimSpan shape) {
    std::string words;
    for (size_t d = 0; d < shape.size(); ++d) {
        if (offsets[d] == 0 && lengths[d] == shape[d]) continue;
        const char* unit = shape.size() == 1             ? "elements"
                           : shape.size() == 2 && d == 0 ? "rows"
                           : shape.size() == 2           ? "columns"
                                                         : nullptr;
        if (!words.empty()) words += ", ";
        if (!unit) words += fmt::format("dim {}: ", d);
        words += spanText(unit ? unit : "indices", offsets[d], offsets[d] + lengths[d], shape[d]);
    }
    return words.empty() ? "the whole tensor" : words;
}

const char* healthWords(Health health) {
    switch (health) {
        case Health::ok:
            return "";
        case Health::unread:
            return "not checked";
        case Health::nonFinite:
            return "holds NaN or infinities";
        case Health::differs:
            return "replicas that are not equal";
        case Health::overlap:
            return "shares elements with another chunk";
        case Health::missing:
            return "missing";
        case Health::gap:
            return "no owner";
    }
    return "";
}

}  // namespace

LayerName splitLayer(std::string_view name) {
    for (size_t begin = 0; begin < name.size();) {
        const size_t end = std::min(name.find('.', begin), name.size());
        if (const auto number = parseNumber<int64_t>(name.substr(begin, end - begin), 0))
            return {name.substr(0, begin), name.substr(end), *number};
        begin = end + 1;
    }
    return {name, {}, -1};
}

ExpertName splitExpert(std::string_view name) {
    constexpr std::string_view kExperts = "experts.";
    for (size_t at = name.find(kExperts); at != std::string_view::npos; at = name.find(kExperts, at + 1)) {
        // "experts" and "local_experts", but not "sharedexperts".
        if (at > 0 && name[at - 1] != '.' && name[at - 1] != '_') continue;
        const size_t begin = at + kExperts.size(), end = std::min(name.find('.', begin), name.size());
        if (const auto number = parseNumber<int64_t>(name.substr(begin, end - begin), 0))
            return {name.substr(0, begin), *number};
    }
    return {};
}

std::string PlacementMatrix::laneText(uint32_t lane) const {
    const MatrixLane& of = lanes_[lane];
    std::string_view group = splitExpert(catalog().name(rows_[of.rowBegin].tensor)).group;
    group.remove_suffix(1);
    return fmt::format("expert {} of {}", of.expert, group);
}

std::string numbersText(std::vector<int64_t> numbers) {
    std::sort(numbers.begin(), numbers.end());
    numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
    constexpr int kMostSpans = 4;
    std::string spans;
    int count = 0;
    for (size_t i = 0; i < numbers.size();) {
        size_t end = i + 1;
        while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1)
            ++end;
        if (count > 0) spans += ',';
        if (count++ == kMostSpans) {
            spans += "…";
            break;
        }
        spans +=
            end - i == 1 ? std::to_string(numbers[i]) : fmt::format("{}–{}", numbers[i], numbers[end - 1]);
        i = end;
    }
    return spans;
}

std::string PlacementMatrix::rowLabel(uint32_t r) const {
    const MatrixRow& row = rows_[r];
    if (row.summary)
        return fmt::format("{} ({}, {})", groups_[row.group].name, counted(row.count, "tensor"),
                           bytesText(groups_[row.group].bytes));
    const std::string_view name = catalog().name(row.tensor);
    if (row.count == 1) return std::string(name);
    std::vector<int64_t> numbers;
    for (const TensorId t : members(r))
        numbers.push_back(splitLayer(catalog().name(t)).number);
    const LayerName parts = splitLayer(name);
    return fmt::format("{}{}{}", parts.before, numbersText(std::move(numbers)), parts.after);
}

std::string PlacementMatrix::rowText(uint32_t r) const {
    const MatrixRow& row = rows_[r];
    if (row.summary) return groups_[row.group].name;
    std::string label = rowLabel(r);
    if (row.group == kNone) return label;
    // What is in other layers than the group says which.
    const MatrixGroup& of = groups_[row.group];
    for (const std::string& prefix : {of.name + '.', of.key.substr(0, of.key.find('*')), of.key + '.'}) {
        if (label.size() > prefix.size() && label.starts_with(prefix)) return label.substr(prefix.size());
    }
    return label;
}

std::string PlacementMatrix::placeText(size_t axis, uint32_t column) const {
    const auto [least, greatest] = columns_[column].places[axis];
    const std::string& name = axes_[axis].name;
    return least == greatest ? fmt::format("{}{}", name, least)
                             : fmt::format("{}{}–{}", name, least, greatest);
}

std::string PlacementMatrix::columnLabel(uint32_t column) const {
    if (column >= columnCount()) return "no rank";
    const MatrixColumn& c = columns_[column];
    std::string text = c.ranks.size() == 1
                           ? fmt::format("rank {}", c.rank)
                           : fmt::format("rank {} and {} alike", c.rank, countText(c.ranks.size() - 1));
    for (size_t axis = 0; axis < axes_.size(); ++axis)
        text += (axis == 0 ? " (" : " ") + placeText(axis, column);
    return axes_.empty() ? text : text + ")";
}

std::string PlacementMatrix::cellText(uint32_t r, uint32_t column) const {
    const Catalog& c = catalog();
    const MatrixRow& row = rows_[r];
    if (row.summary) return sumText(row, column);
    const DimSpan shape = c.shape(row.tensor);
    std::string head = rowLabel(r);
    if (row.count > 1) head += fmt::format(" ({} alike)", countText(row.count));
    if (column >= columnCount()) {
        if (row.health != Health::gap) return head + ": every element has an owner";
        std::string parts;
        if (facts_ && !facts_->gaps.empty()) {
            const std::vector<Box>& gaps = facts_->gaps[row.tensor];
            constexpr size_t kMostGaps = 3;
            for (size_t i = 0; i < std::min(gaps.size(), kMostGaps); ++i)
                parts += (i ? "; " : "") + boxWords(gaps[i].offsets, gaps[i].lengths, shape);
            if (gaps.size() > kMostGaps)
                parts += fmt::format("; {}", counted(gaps.size() - kMostGaps, "more place"));
        }
        return fmt::format("{}: no rank holds {}", head, parts.empty() ? "some of its elements" : parts);
    }
    head += " on " + columnLabel(column);
    std::vector<ChunkInfo> chunks;
    uint64_t bytes = 0;
    Health health = Health::ok;
    ChunkId worst = kNone;
    forEachChunk(r, [&](uint32_t at, const ChunkInfo& chunk) {
        if (at != column) return;
        chunks.push_back(chunk);
        bytes += elementBytes(c, chunk);
        if (chunkHealth(chunk.id) > health) {
            health = chunkHealth(chunk.id);
            worst = chunk.id;
        }
    });
    if (chunks.empty()) {
        for (const RowDetail::Ghost& ghost : detail(r).ghosts) {
            if (ghost.column == column)
                return fmt::format("{}: not stored; the replica that rank {} stores serves", head,
                                   columns_[ghost.of].rank);
        }
        return head + ": nothing";
    }
    std::string what;
    if (chunks.size() > 1) what = fmt::format("{}, ", counted(chunks.size(), "chunk"));
    const ChunkInfo& first = chunks.front();
    what += first.elements() == 0 ? "an empty chunk" : boxWords(first.offsets, first.lengths, shape);
    if (first.flat)
        what += fmt::format(", of those elements {}–{} in row-major order", first.flat->start,
                            first.flat->stop - 1);
    if (chunks.size() > 1) what += ", …";
    std::string text = fmt::format("{}: {}, {}", head, what, bytesText(bytes));
    const RowDetail drawn = detail(r);
    if (const MatrixCell* cell = drawn.at(column); cell && cell->copyOf != kNone)
        text += fmt::format(", a replica of what rank {} holds", columns_[cell->copyOf].rank);
    if (first.file != kNone) text += ", " + c.files()[first.file].path;
    if (health == Health::missing && facts_) {
        const std::string chunk = chunkStateText(*facts_, c, worst),
                          tensor = tensorStateText(*facts_, c, c.tensorOf(worst));
        text += " – " + chunk;
        if (tensor != chunk) text += fmt::format(" (there: {})", tensor);
    } else if (health != Health::ok)
        text += fmt::format(" – {}", healthWords(health));
    if (facts_) {
        for (const ChunkInfo& chunk : chunks) {
            const std::string note = facts_->noteOf(chunk.id);
            if (note.empty()) continue;
            text += ": " + note;
            break;
        }
    }
    return text;
}

std::string PlacementMatrix::sumText(const MatrixRow& row, uint32_t column) const {
    const MatrixGroup& of = groups_[row.group];
    const std::string head = fmt::format("{} ({})", of.name, counted(of.tensors, "tensor"));
    if (column >= columnCount())
        return head + (of.health == Health::gap ? ": no rank holds some of their elements"
                                                : ": every element has an owner");
    const std::vector<MatrixCell> sum = sumOf(row.group);
    const auto cell = std::ranges::find(sum, column, &MatrixCell::column);
    if (cell == sum.end()) return fmt::format("{} on {}: nothing", head, columnLabel(column));
    std::string text =
        fmt::format("{} on {}: {} of {}, {}", head, columnLabel(column), bytesText(cell->bytes),
                    bytesText(of.bytes), counted(cell->chunks, "chunk"));
    if (cell->health != Health::ok)
        text += fmt::format(" – the worst, of {}: {}", catalog().name(catalog().tensorOf(cell->chunk)),
                            healthWords(cell->health));
    return text;
}

}  // namespace shardscope
