// The non-tensor entries of a checkpoint as a table. What is part of the metadata shows its value; the rest
// is read when it is looked at.
#pragma once

#include <utility>
#include <vector>

#include "ui/models/session.h"
#include "ui/models/text_table_model.h"

namespace shardscope::ui {

class ObjectTableModel : public TextTableModel {
    Q_OBJECT
  public:
    enum Column { nameColumn, typeColumn, valueColumn, rankColumn, fileColumn };

    explicit ObjectTableModel(Session& session, QObject* parent = nullptr);

    // Only those whose names hold all words (any case).
    void setFilter(const QString& words);
    ObjectId object(int row) const { return shown_[static_cast<size_t>(source(row))]; }
    int rowOf(ObjectId object) const;  // -1 when the filter hides it
    // A value that was read meanwhile.
    void setValue(ObjectId object, const Value& value);

  private:
    void reset();
    const ObjectInfo& info(size_t at) const { return checkpoint_->catalog().objects()[shown_[at]]; }
    const Value& valueOf(size_t at) const;

    Session& session_;
    CheckpointPtr checkpoint_;
    std::vector<ObjectId> shown_;                   // ascending
    std::vector<std::pair<ObjectId, Value>> read_;  // the last ones
    QString filter_;
};

}  // namespace shardscope::ui
