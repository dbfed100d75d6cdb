#include "ui/models/text_table_model.h"

#include <algorithm>
#include <numeric>

namespace shardscope::ui {

TextTableModel::TextTableModel(QStringList headers, QObject* parent)
    : QAbstractTableModel(parent), headers_(std::move(headers)) {}

void TextTableModel::setContent(Content content) {
    beginResetModel();
    content_ = std::move(content);
    order_.resize(static_cast<size_t>(content_.rows));
    std::iota(order_.begin(), order_.end(), 0);
    endResetModel();
    if (sortColumn_ >= 0) sort(sortColumn_, sortOrder_);
}

int TextTableModel::rowOf(int source) const {
    const auto it = std::find(order_.begin(), order_.end(), source);
    return it == order_.end() ? -1 : static_cast<int>(it - order_.begin());
}

int TextTableModel::rowCount(const QModelIndex& parent) const {
    return parent.isValid() ? 0 : static_cast<int>(order_.size());
}

int TextTableModel::columnCount(const QModelIndex& parent) const {
    return parent.isValid() ? 0 : static_cast<int>(headers_.size());
}

QVariant TextTableModel::data(const QModelIndex& index, int role) const {
    if (!index.isValid()) return {};
    const auto column = static_cast<size_t>(index.column());
    if (role == Qt::DisplayRole || role == Qt::ToolTipRole)
        return content_.text(source(index.row()), index.column());
    if (role == Qt::TextAlignmentRole && column < content_.right.size() && content_.right[column])
        return QVariant(Qt::AlignRight | Qt::AlignVCenter);
    return {};
}

QVariant TextTableModel::headerData(int section, Qt::Orientation orientation, int role) const {
    if (orientation != Qt::Horizontal) return {};
    if (role == Qt::DisplayRole) return headers_.value(section);
    const auto column = static_cast<size_t>(section);
    if (role == Qt::TextAlignmentRole && column < content_.right.size() && content_.right[column])
        return QVariant(Qt::AlignRight | Qt::AlignVCenter);
    return {};
}

void TextTableModel::sort(int column, Qt::SortOrder order) {
    sortColumn_ = column;
    sortOrder_ = order;
    emit layoutAboutToBeChanged({}, QAbstractItemModel::VerticalSortHint);
    const std::vector<int> before = order_;
    std::iota(order_.begin(), order_.end(), 0);
    if (column >= 0 && column < headers_.size()) {
        struct Key {
            QVariant value;
            int row;
        };
        std::vector<Key> keys;
        keys.reserve(order_.size());
        for (const int row : order_) {
            QVariant value = content_.key ? content_.key(row, column) : QVariant();
            keys.push_back({value.isValid() ? std::move(value) : QVariant(content_.text(row, column)), row});
        }
        std::stable_sort(keys.begin(), keys.end(), [order](const Key& a, const Key& b) {
            const QPartialOrdering less = QVariant::compare(a.value, b.value);
            return order == Qt::AscendingOrder ? less == QPartialOrdering::Less
                                               : less == QPartialOrdering::Greater;
        });
        for (size_t i = 0; i < keys.size(); ++i)
            order_[i] = keys[i].row;
    }
    const QModelIndexList held = persistentIndexList();
    QModelIndexList moved;
    for (const QModelIndex& index : held)
        moved.append(this->index(rowOf(before[static_cast<size_t>(index.row())]), index.column()));
    changePersistentIndexList(held, moved);
    emit layoutChanged({}, QAbstractItemModel::VerticalSortHint);
}

}  // namespace shardscope::ui
