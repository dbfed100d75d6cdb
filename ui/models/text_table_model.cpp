#include "ui/models/text_table_model.h"

#include <algorithm>
#include <numeric>

#include "survey/module_tree.h"
#include "ui/models/texts.h"

namespace shardscope::ui {

namespace {

using Keyed = std::pair<uint64_t, uint32_t>;

// Digit by digit from the lowest, stable; digits that all keys share cost one look. A comparison sort of a
// million rows takes a tenth of a second longer than people wait gladly.
void sortByKey(std::vector<Keyed>& keys) {
    constexpr int kBits = 16;
    constexpr uint64_t kMask = (uint64_t{1} << kBits) - 1;
    uint64_t all = ~uint64_t{0}, any = 0;
    for (const Keyed& k : keys) {
        all &= k.first;
        any |= k.first;
    }
    std::vector<Keyed> other(keys.size());
    std::vector<size_t> at(size_t{1} << kBits);
    for (int shift = 0; shift < 64; shift += kBits) {
        if (((all ^ any) >> shift & kMask) == 0) continue;
        std::fill(at.begin(), at.end(), 0);
        for (const Keyed& k : keys)
            ++at[k.first >> shift & kMask];
        size_t next = 0;
        for (size_t& start : at)
            next += std::exchange(start, next);
        for (const Keyed& k : keys)
            other[at[k.first >> shift & kMask]++] = k;
        keys.swap(other);
    }
}

std::vector<ColumnText> headsOf(const std::vector<TextColumn>& columns) {
    std::vector<ColumnText> heads;
    for (const TextColumn& column : columns)
        heads.push_back(column.head);
    return heads;
}

}  // namespace

TextColumn sizeColumn(const QString& title, std::function<uint64_t(size_t row)> bytes) {
    return {{title, true}, [bytes](size_t row) { return sizeText(bytes(row)); }, bytes};
}

TextColumn countColumn(const QString& title, std::function<uint64_t(size_t row)> count) {
    return {{title, true}, [count](size_t row) { return numberText(count(row)); }, count};
}

TextTableModel::TextTableModel(std::vector<TextColumn> columns, QObject* parent)
    : Columns(headsOf(columns), parent), cells_(std::move(columns)) {}

void TextTableModel::setContent(size_t rows, std::vector<TextColumn> columns) {
    beginResetModel();
    cells_ = std::move(columns);
    setHeads(headsOf(cells_));
    order_.resize(rows);
    arrange();
    endResetModel();
}

void TextTableModel::setRows(size_t rows) {
    setContent(rows, std::move(cells_));
}

int TextTableModel::rowOf(int source) const {
    const auto it = std::find(order_.begin(), order_.end(), static_cast<uint32_t>(source));
    return it == order_.end() ? -1 : static_cast<int>(it - order_.begin());
}

int TextTableModel::rowCount(const QModelIndex& parent) const {
    return parent.isValid() ? 0 : static_cast<int>(order_.size());
}

QVariant TextTableModel::data(const QModelIndex& index, int role) const {
    if (!checkIndex(index, CheckIndexOption::IndexIsValid)) return {};
    if (role == Qt::DisplayRole) return textOf(source(index.row()), index.column());
    // Tool tips show what a narrow column cuts; escaped, for Qt takes what looks like markup for rich text.
    if (role == Qt::ToolTipRole) return textOf(source(index.row()), index.column()).toHtmlEscaped();
    return role == Qt::TextAlignmentRole ? alignment(index.column()) : QVariant();
}

void TextTableModel::arrange() {
    std::iota(order_.begin(), order_.end(), 0U);
    if (sortColumn_ < 0 || sortColumn_ >= columnCount()) return;
    const TextColumn& column = cells_[static_cast<size_t>(sortColumn_)];
    const bool descending = sortOrder_ == Qt::DescendingOrder;
    if (column.number) {
        std::vector<Keyed> keys;
        keys.reserve(order_.size());
        for (const uint32_t row : order_)
            keys.emplace_back(descending ? ~column.number(row) : column.number(row), row);
        sortByKey(keys);
        std::ranges::transform(keys, order_.begin(), &Keyed::second);
        return;
    }
    std::vector<std::string> keys;
    keys.reserve(order_.size());
    for (const uint32_t row : order_)
        keys.push_back(column.text(row).toStdString());
    std::ranges::stable_sort(order_, [&](uint32_t a, uint32_t b) {
        return descending ? naturalLess(keys[b], keys[a]) : naturalLess(keys[a], keys[b]);
    });
}

void TextTableModel::sort(int column, Qt::SortOrder order) {
    sortColumn_ = column;
    sortOrder_ = order;
    emit layoutAboutToBeChanged({}, QAbstractItemModel::VerticalSortHint);
    const QModelIndexList held = persistentIndexList();
    const std::vector<uint32_t> before = order_;
    arrange();
    std::vector<int> now(held.isEmpty() ? 0 : order_.size());  // by row of the content
    for (size_t row = 0; row < now.size(); ++row)
        now[order_[row]] = static_cast<int>(row);
    QModelIndexList moved;
    for (const QModelIndex& each : held)
        moved.append(index(now[before[static_cast<size_t>(each.row())]], each.column()));
    changePersistentIndexList(held, moved);
    emit layoutChanged({}, QAbstractItemModel::VerticalSortHint);
}

void TextTableModel::refresh() {
    if (order_.empty()) return;
    emit dataChanged(index(0, 0), index(rowCount() - 1, columnCount() - 1));
    if (sortColumn_ >= 0) sort(sortColumn_, sortOrder_);
}

}  // namespace shardscope::ui
