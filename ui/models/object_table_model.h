// The non-tensor entries of a checkpoint as a table. What is part of the metadata shows its value; the rest
// is read when it is looked at.
#pragma once

#include <vector>

#include "ui/models/columns.h"
#include "ui/models/session.h"

namespace shardscope::ui {

class ObjectTableModel : public Columns<QAbstractTableModel> {
    Q_OBJECT
  public:
    enum Column { nameColumn, typeColumn, valueColumn, rankColumn, fileColumn, columnCountValue };

    explicit ObjectTableModel(Session& session, QObject* parent = nullptr);

    // Only those whose names hold all words (any case).
    void setFilter(const QString& words);
    ObjectId object(int row) const { return rows_[static_cast<size_t>(row)]; }
    int rowOf(ObjectId object) const;  // -1 when the filter hides it
    // A value that was read meanwhile.
    void setValue(ObjectId object, const Value& value);

    int rowCount(const QModelIndex& parent = {}) const override;
    QVariant data(const QModelIndex& index, int role = Qt::DisplayRole) const override;

  private:
    void reset();
    const Value& valueOf(ObjectId object) const;

    Session& session_;
    CheckpointPtr checkpoint_;
    std::vector<ObjectId> rows_;                    // ascending
    std::vector<std::pair<ObjectId, Value>> read_;  // the last ones
    QString filter_;
};

}  // namespace shardscope::ui
