// One value of a checkpoint (a dict, a list, a number, ...) as a tree. Rows are made when a view opens their
// parent. Values are graphs: what contains itself ends there, and is marked. Classes and functions that a
// pickle names are shown by name and never looked up.
#pragma once

#include <QStringList>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "base/stop.h"
#include "model/value.h"
#include "ui/models/columns.h"

namespace shardscope::ui {

class ValueTreeModel : public Columns<QAbstractItemModel> {
    Q_OBJECT
  public:
    enum Column { nameColumn, typeColumn, valueColumn, columnCountValue };
    // Rows from the top down to one entry.
    using RowPath = std::vector<int>;

    explicit ValueTreeModel(QObject* parent = nullptr);

    // `name` is that of the value as a whole, the one top row.
    void setValue(const QString& name, const Value& value);
    void clear();
    const Value& shown() const { return value_; }

    QModelIndex index(int row, int column, const QModelIndex& parent = {}) const override;
    QModelIndex parent(const QModelIndex& index) const override;
    int rowCount(const QModelIndex& parent = {}) const override;
    QVariant data(const QModelIndex& index, int role = Qt::DisplayRole) const override;

    // The part of the value that stands in a row; empty for an invalid index.
    Value part(const QModelIndex& index) const;
    // Keys from the top row down to this one: ["optimizer", "param_groups", "0", "lr"].
    QStringList path(const QModelIndex& index) const;
    QModelIndex indexOf(const RowPath& path) const;

    // Entries whose key or text holds `text` (any case), in the order of the tree; at most `most`. Runs
    // anywhere. Errors: cancelled.
    static Result<std::vector<RowPath>> find(const Value& value, const QString& text, size_t most,
                                             const StopToken& stop);

  private:
    struct Item {
        NodeId node = kNoNode;
        uint32_t parent = 0;
        uint32_t row = 0;
    };
    uint32_t item(const QModelIndex& index) const;
    QModelIndex indexOfItem(uint32_t item, int column) const;
    uint32_t childrenOf(uint32_t item) const;  // first of its items; makes them
    bool repeats(uint32_t item) const;         // contains itself
    QString keyText(uint32_t item) const;

    Value value_;
    QString name_;
    // Item 0 is the top row. Children of one item are neighbors, made together.
    mutable std::vector<Item> items_;
    mutable std::unordered_map<uint32_t, uint32_t> firstChild_;
};

}  // namespace shardscope::ui
