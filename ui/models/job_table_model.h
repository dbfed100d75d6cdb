// Jobs as rows, newest first; and what one job read and wrote over time, as rows beside its charts.
#pragma once

#include <QAbstractTableModel>
#include <memory>
#include <vector>

#include "ui/models/job_store.h"
#include "ui/models/text_table_model.h"

namespace shardscope::ui {

class JobTableModel : public Columns<QAbstractTableModel> {
    Q_OBJECT
  public:
    enum Column { title, state, progress, bytes, rate, left, where, started, columnCountValue };
    enum Roles { ShareRole = Qt::UserRole + 1 };  // 0..1, negative = not known

    explicit JobTableModel(JobStore& store, QObject* parent = nullptr);

    QString id(int row) const { return ids_[row]; }
    int rowOf(const QString& id) const { return static_cast<int>(ids_.indexOf(id)); }  // -1 when absent

    int rowCount(const QModelIndex& parent = {}) const override;
    QVariant data(const QModelIndex& index, int role) const override;

  private:
    void sync();

    JobStore& store_;
    QStringList ids_;
};

// Time, bytes a second read and written, and how many threads read, computed and wrote where that is known,
// in each stretch of `step` seconds.
std::vector<TextColumn> rateColumns(std::vector<JobRate> rates, double step);

}  // namespace shardscope::ui
