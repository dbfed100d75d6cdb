// Base of a model of groups with rows below them, and nothing below those.
#pragma once

#include "ui/models/columns.h"

namespace shardscope::ui {

class TwoLevels : public Columns<QAbstractItemModel> {
  public:
    using Columns::Columns;

    QModelIndex index(int row, int column, const QModelIndex& parent = {}) const final {
        if (!hasIndex(row, column, parent)) return {};
        return createIndex(row, column, parent.isValid() ? static_cast<quintptr>(parent.row()) + 1 : kGroup);
    }
    QModelIndex parent(const QModelIndex& index) const final {
        return index.isValid() && !isGroup(index) ? createIndex(groupRow(index), 0, kGroup) : QModelIndex();
    }
    int rowCount(const QModelIndex& parent = {}) const final {
        if (!parent.isValid()) return groupCount();
        return isGroup(parent) && parent.column() == 0 ? groupSize(parent.row()) : 0;
    }

  protected:
    virtual int groupCount() const = 0;
    virtual int groupSize(int group) const = 0;

    // Of a valid index.
    static bool isGroup(const QModelIndex& index) { return index.internalId() == kGroup; }
    static int groupRow(const QModelIndex& index) {  // of the group that it is, or is in
        return isGroup(index) ? index.row() : static_cast<int>(index.internalId() - 1);
    }

  private:
    static constexpr quintptr kGroup = 0;  // else the group's row plus one
};

}  // namespace shardscope::ui
