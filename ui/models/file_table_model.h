// Files of a checkpoint as rows. Columns of figures sort by the figure.
#pragma once

#include <vector>

#include "ui/models/columns.h"
#include "ui/models/session.h"

namespace shardscope::ui {

class FileTableModel : public Columns<QAbstractTableModel> {
    Q_OBJECT
  public:
    // The state stands beside the name, where a narrow view shows it.
    enum Column { path, state, size, used, dead, rank, tensors, chunks, columnCountValue };
    enum Roles { FileRole = Qt::UserRole + 1, HealthRole };

    struct Totals {
        size_t files = 0, missing = 0, unreferenced = 0;
        uint64_t size = 0, used = 0, dead = 0;
    };

    explicit FileTableModel(Session& session, QObject* parent = nullptr);

    FileId file(int row) const { return rows_[static_cast<size_t>(row)]; }
    int rowOf(FileId file) const;  // -1 when absent
    Totals totals() const;
    QString text(FileId file, int column) const;
    // What is said about a file: "ok", "missing", "not a regular file", "truncated by 12 B", "not
    // referenced", "metadata", …
    QString stateText(FileId file) const;
    // ok also for files that nothing refers to.
    Health health(FileId file) const;
    // Bytes that should be there behind the end of the file.
    uint64_t missingTail(FileId file) const;

    int rowCount(const QModelIndex& parent = {}) const override;
    QVariant data(const QModelIndex& index, int role = Qt::DisplayRole) const override;
    void sort(int column, Qt::SortOrder order) override;

  private:
    void reset();
    const FileInfo& info(FileId file) const { return checkpoint_->catalog().files()[file]; }
    const FileFacts* facts(FileId file) const;

    Session& session_;
    CheckpointPtr checkpoint_;
    std::vector<FileId> rows_;
    std::vector<int> rowOf_;  // by file
    int sortColumn_ = -1;
    Qt::SortOrder sortOrder_ = Qt::AscendingOrder;
};

}  // namespace shardscope::ui
