// What rows, columns and cells of a placement matrix say.
#include <QCoreApplication>
#include <QStringList>
#include <algorithm>
#include <charconv>

#include "ui/models/layer_name.h"
#include "ui/models/placement_matrix.h"
#include "ui/models/texts.h"

namespace shardscope::ui {

namespace {

QString spanText(const char* what, int64_t from, int64_t to, int64_t of) {
    const QString unit = QCoreApplication::translate("PlacementMatrix", what);
    if (to - from == 1)
        return QCoreApplication::translate("PlacementMatrix", "%1 %2 of %3").arg(unit).arg(from).arg(of);
    return QCoreApplication::translate("PlacementMatrix", "%1 %2–%3 of %4")
        .arg(unit)
        .arg(from)
        .arg(to - 1)
        .arg(of);
}

// "rows 0–511 of 4096", "the whole tensor".
QString boxWords(DimSpan offsets, DimSpan lengths, DimSpan shape) {
    QStringList parts;
    for (size_t d = 0; d < shape.size(); ++d) {
        if (offsets[d] == 0 && lengths[d] == shape[d]) continue;
        const char* unit = shape.size() == 1             ? QT_TRANSLATE_NOOP("PlacementMatrix", "elements")
                           : shape.size() == 2 && d == 0 ? QT_TRANSLATE_NOOP("PlacementMatrix", "rows")
                           : shape.size() == 2           ? QT_TRANSLATE_NOOP("PlacementMatrix", "columns")
                                                         : nullptr;
        if (unit)
            parts += spanText(unit, offsets[d], offsets[d] + lengths[d], shape[d]);
        else
            parts += QCoreApplication::translate("PlacementMatrix", "dim %1: %2")
                         .arg(d)
                         .arg(spanText(QT_TRANSLATE_NOOP("PlacementMatrix", "indices"), offsets[d],
                                       offsets[d] + lengths[d], shape[d]));
    }
    return parts.isEmpty() ? QCoreApplication::translate("PlacementMatrix", "the whole tensor")
                           : parts.join(", ");
}

QString healthWords(Health health) {
    switch (health) {
        case Health::ok:
            return {};
        case Health::unread:
            return QCoreApplication::translate("PlacementMatrix", "not checked");
        case Health::nonFinite:
            return QCoreApplication::translate("PlacementMatrix", "holds NaN or infinities");
        case Health::differs:
            return QCoreApplication::translate("PlacementMatrix", "copies that are not equal");
        case Health::overlap:
            return QCoreApplication::translate("PlacementMatrix", "shares elements with another chunk");
        case Health::missing:
            return QCoreApplication::translate("PlacementMatrix", "its bytes are not there");
        case Health::gap:
            return QCoreApplication::translate("PlacementMatrix", "no owner");
    }
    return {};
}

}  // namespace

LayerName splitLayer(std::string_view name) {
    for (size_t begin = 0; begin < name.size();) {
        const size_t end = std::min(name.find('.', begin), name.size());
        int64_t number = -1;
        const auto [stop, error] = std::from_chars(name.data() + begin, name.data() + end, number);
        if (error == std::errc() && stop == name.data() + end && number >= 0)
            return {name.substr(0, begin), name.substr(end), number};
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
        int64_t number = -1;
        const auto [stop, error] = std::from_chars(name.data() + begin, name.data() + end, number);
        if (error == std::errc() && stop == name.data() + end && number >= 0)
            return {name.substr(0, begin), number};
    }
    return {};
}

QString PlacementMatrix::laneText(uint32_t lane) const {
    const MatrixLane& of = lanes_[lane];
    return QCoreApplication::translate("PlacementMatrix", "expert %1 of %2")
        .arg(of.expert)
        .arg(toQString(splitExpert(catalog().name(rows_[of.rowBegin].tensor)).group).chopped(1));
}

QString PlacementMatrix::rowLabel(uint32_t r) const {
    const std::string_view name = catalog().name(rows_[r].tensor);
    if (rows_[r].count == 1) return toQString(name);
    std::vector<int64_t> numbers;
    for (const TensorId t : members(r))
        numbers.push_back(splitLayer(catalog().name(t)).number);
    std::sort(numbers.begin(), numbers.end());
    constexpr int kMostSpans = 4;
    QStringList spans;
    for (size_t i = 0; i < numbers.size();) {
        size_t end = i + 1;
        while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1)
            ++end;
        if (spans.size() == kMostSpans) {
            spans += QStringLiteral("…");
            break;
        }
        spans += end - i == 1 ? QString::number(numbers[i])
                              : QStringLiteral("%1–%2").arg(numbers[i]).arg(numbers[end - 1]);
        i = end;
    }
    const LayerName parts = splitLayer(name);
    return toQString(parts.before) + spans.join(',') + toQString(parts.after);
}

QString PlacementMatrix::placeText(size_t axis, uint32_t column) const {
    const auto [least, greatest] = columns_[column].places[axis];
    const QString name = toQString(axes_[axis].name);
    return least == greatest ? QStringLiteral("%1%2").arg(name).arg(least)
                             : QStringLiteral("%1%2–%3").arg(name).arg(least).arg(greatest);
}

QString PlacementMatrix::columnLabel(uint32_t column) const {
    if (column >= columnCount()) return QCoreApplication::translate("PlacementMatrix", "no rank");
    const MatrixColumn& c = columns_[column];
    QString text = c.ranks.size() == 1
                       ? QCoreApplication::translate("PlacementMatrix", "rank %1").arg(c.rank)
                       : QCoreApplication::translate("PlacementMatrix", "rank %1 and %2 alike")
                             .arg(c.rank)
                             .arg(c.ranks.size() - 1);
    QStringList places;
    for (size_t axis = 0; axis < axes_.size(); ++axis)
        places += placeText(axis, column);
    if (!places.isEmpty()) text += QStringLiteral(" (%1)").arg(places.join(' '));
    return text;
}

QString PlacementMatrix::cellText(uint32_t r, uint32_t column) const {
    const Catalog& c = catalog();
    const MatrixRow& row = rows_[r];
    const DimSpan shape = c.shape(row.tensor);
    QString head = rowLabel(r);
    if (row.count > 1) head += QCoreApplication::translate("PlacementMatrix", " (%1 alike)").arg(row.count);
    if (column >= columnCount()) {
        if (row.health != Health::gap)
            return QCoreApplication::translate("PlacementMatrix", "%1: every element has an owner").arg(head);
        QStringList parts;
        if (facts_ && !facts_->gaps.empty()) {
            for (const Box& box : facts_->gaps[row.tensor]) {
                if (parts.size() == 3) {
                    parts += QCoreApplication::translate("PlacementMatrix", "%1 more places")
                                 .arg(facts_->gaps[row.tensor].size() - 3);
                    break;
                }
                parts += boxWords(box.offsets, box.lengths, shape);
            }
        }
        return QCoreApplication::translate("PlacementMatrix", "%1: no rank holds %2")
            .arg(head, parts.isEmpty()
                           ? QCoreApplication::translate("PlacementMatrix", "some of its elements")
                           : parts.join(QStringLiteral("; ")));
    }
    head = QCoreApplication::translate("PlacementMatrix", "%1 on %2").arg(head, columnLabel(column));
    std::vector<ChunkInfo> chunks;
    uint64_t bytes = 0;
    Health health = Health::ok;
    forEachChunk(r, [&](uint32_t at, const ChunkInfo& chunk) {
        if (at != column) return;
        chunks.push_back(chunk);
        bytes += elementBytes(c, chunk);
        health = std::max(health, chunkHealth(chunk.id));
    });
    if (chunks.empty()) return QCoreApplication::translate("PlacementMatrix", "%1: nothing").arg(head);
    QString what;
    if (chunks.size() > 1)
        what = QCoreApplication::translate("PlacementMatrix", "%1 chunks, ").arg(chunks.size());
    const ChunkInfo& first = chunks.front();
    if (first.elements() == 0)
        what += QCoreApplication::translate("PlacementMatrix", "an empty chunk");
    else
        what += boxWords(first.offsets, first.lengths, shape);
    if (first.flat)
        what += QCoreApplication::translate("PlacementMatrix", ", of those elements %1–%2 in row-major order")
                    .arg(first.flat->start)
                    .arg(first.flat->stop - 1);
    if (chunks.size() > 1) what += QStringLiteral(", …");
    QString text = QStringLiteral("%1: %2, %3").arg(head, what, sizeText(bytes));
    const RowDetail drawn = detail(r);
    if (const MatrixCell* cell = drawn.at(column); cell && cell->copyOf != kNone)
        text += QCoreApplication::translate("PlacementMatrix", ", a copy of what rank %1 holds")
                    .arg(columns_[cell->copyOf].rank);
    if (first.file != kNone) text += QStringLiteral(", ") + toQString(c.files()[first.file].path);
    if (health != Health::ok) text += QStringLiteral(" – ") + healthWords(health);
    if (facts_) {
        for (const ChunkInfo& chunk : chunks) {
            const std::string note = facts_->noteOf(chunk.id);
            if (note.empty()) continue;
            text += QStringLiteral(": ") + toQString(note);
            break;
        }
    }
    return text;
}

}  // namespace shardscope::ui
