// Columns of tables and trees, described once: titles, alignment, tooltips.
#pragma once

#include <QAbstractItemModel>
#include <type_traits>
#include <utility>
#include <vector>

namespace shardscope::ui {

struct ColumnText {
    QString title;
    bool figures = false;  // which stand at the right edge, title and cells
    QString tip{};         // of the title
};

// Base of a model with fixed columns; `Base` is QAbstractTableModel or QAbstractItemModel.
template <class Base>
class Columns : public Base {
  public:
    Columns(std::vector<ColumnText> columns, QObject* parent) : Base(parent), columns_(std::move(columns)) {}

    int columnCount(const QModelIndex& parent = {}) const override {
        // A row of a table has no children.
        const bool none = std::is_same_v<Base, QAbstractTableModel> && parent.isValid();
        return none ? 0 : static_cast<int>(columns_.size());
    }
    QVariant headerData(int section, Qt::Orientation orientation, int role) const override {
        if (orientation != Qt::Horizontal || section < 0 || section >= static_cast<int>(columns_.size()))
            return {};
        const ColumnText& column = columns_[static_cast<size_t>(section)];
        if (role == Qt::DisplayRole) return column.title;
        if (role == Qt::ToolTipRole && !column.tip.isEmpty()) return column.tip;
        return role == Qt::TextAlignmentRole ? alignment(section) : QVariant();
    }

    Qt::ItemFlags flags(const QModelIndex& index) const override {
        Qt::ItemFlags flags = Base::flags(index);
        if (index.isValid() && this->rowCount(index.siblingAtColumn(0)) == 0)
            flags |= Qt::ItemNeverHasChildren;
        return flags;
    }

  protected:
    void setHeads(std::vector<ColumnText> columns) { columns_ = std::move(columns); }
    // Of a column's cells, for Qt::TextAlignmentRole.
    QVariant alignment(int column) const {
        return columns_[static_cast<size_t>(column)].figures ? QVariant(Qt::AlignRight | Qt::AlignVCenter)
                                                             : QVariant();
    }

  private:
    std::vector<ColumnText> columns_;
};

}  // namespace shardscope::ui
