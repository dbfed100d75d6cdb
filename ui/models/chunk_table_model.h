// Chunks as rows: those of one tensor, of one file, of a region of the placement map, or all. Rows are chunk
// ids; sorting permutes them.
#pragma once

#include <vector>

#include "ui/models/columns.h"
#include "ui/models/session.h"

namespace shardscope::ui {

class ChunkTableModel : public Columns<QAbstractTableModel> {
    Q_OBJECT
  public:
    enum Column { tensor, rank, coordinates, box, bytes, file, range, health, columnCountValue };
    enum Roles { ChunkRole = Qt::UserRole + 1, HealthRole };

    explicit ChunkTableModel(Session& session, QObject* parent = nullptr);

    void setChunks(std::vector<ChunkId> chunks);
    void setTensor(TensorId tensor);
    void setAll();
    void clear() { setChunks({}); }

    ChunkId chunk(int row) const { return rows_[static_cast<size_t>(row)]; }
    int rowOf(ChunkId chunk) const;  // -1 when it is not among them; linear
    // Column texts of a row, as copied and exported.
    QString text(int row, int column) const;

    int rowCount(const QModelIndex& parent = {}) const override;
    QVariant data(const QModelIndex& index, int role = Qt::DisplayRole) const override;
    void sort(int column, Qt::SortOrder order) override;

  private:
    Session& session_;
    CheckpointPtr checkpoint_;
    std::vector<ChunkId> given_, rows_;  // as they came, as they are shown
    int sortColumn_ = -1;
    Qt::SortOrder sortOrder_ = Qt::AscendingOrder;
};

}  // namespace shardscope::ui
