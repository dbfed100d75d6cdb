// Chunks as rows: those of one tensor, of one file, of a region of the placement map, or all.
#pragma once

#include "ui/models/session.h"
#include "ui/models/text_table_model.h"

namespace shardscope::ui {

class ChunkTableModel : public TextTableModel {
    Q_OBJECT
  public:
    enum Column { tensor, rank, coordinates, box, bytes, file, range, health, columnCountValue };

    explicit ChunkTableModel(Session& session, QObject* parent = nullptr);

    void setChunks(std::vector<ChunkId> chunks);
    void setTensor(TensorId tensor);
    void setAll();
    void clear() { setChunks({}); }

    ChunkId chunk(int row) const { return chunks_[static_cast<size_t>(source(row))]; }
    int rowOf(ChunkId chunk) const;  // -1 when it is not among them; linear
    // Column texts of a row, as copied and exported.
    QString text(int row, int column) const { return textOf(source(row), column); }

    QVariant data(const QModelIndex& index, int role = Qt::DisplayRole) const override;

  private:
    std::vector<TextColumn> columns();
    ChunkInfo info(size_t at) const;
    const Facts* facts() const;  // of this checkpoint; null while they are not known

    Session& session_;
    CheckpointPtr checkpoint_;
    std::vector<ChunkId> chunks_;
    mutable TensorId tensor_ = 0;  // of the last chunk that was looked at: neighbors are of one tensor
};

}  // namespace shardscope::ui
