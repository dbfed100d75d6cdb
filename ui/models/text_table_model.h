// A table whose columns say themselves what stands in them: the twin of a painted view, or a list of files,
// chunks, names. Cells are made when they are asked for; sorting permutes the rows.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "ui/models/columns.h"

namespace shardscope::ui {

struct TextColumn {
    ColumnText head;
    std::function<QString(size_t row)> text;
    // What it sorts by; without it, by text, in which numbers count as numbers.
    std::function<uint64_t(size_t row)> number{};
};
// Of figures: bytes as "1.2 GiB", counts as "2,304".
TextColumn sizeColumn(const QString& title, std::function<uint64_t(size_t row)> bytes);
TextColumn countColumn(const QString& title, std::function<uint64_t(size_t row)> count);

class TextTableModel : public Columns<QAbstractTableModel> {
    Q_OBJECT
  public:
    // Without rows: the columns' functions are not called.
    explicit TextTableModel(std::vector<TextColumn> columns, QObject* parent = nullptr);

    // The functions must own what they read, or be told of rows that are gone by setRows().
    void setContent(size_t rows, std::vector<TextColumn> columns);
    void setRows(size_t rows);
    // Row of the content that stands in row `row`, and the way back (-1 when absent; linear).
    int source(int row) const { return static_cast<int>(order_[static_cast<size_t>(row)]); }
    int rowOf(int source) const;
    QString textOf(int source, int column) const {
        return cells_[static_cast<size_t>(column)].text(static_cast<size_t>(source));
    }

    int rowCount(const QModelIndex& parent = {}) const override;
    QVariant data(const QModelIndex& index, int role = Qt::DisplayRole) const override;
    void sort(int column, Qt::SortOrder order) override;

  protected:
    // What cells say has changed: shows it, and sorts anew.
    void refresh();

  private:
    void arrange();

    std::vector<TextColumn> cells_;
    std::vector<uint32_t> order_;
    int sortColumn_ = -1;
    Qt::SortOrder sortOrder_ = Qt::AscendingOrder;
};

}  // namespace shardscope::ui
