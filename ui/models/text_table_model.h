// A table over data that stands elsewhere: the twin of a painted view, for reading, copying and export. Cells
// are made when they are asked for.
#pragma once

#include <QAbstractTableModel>
#include <QStringList>
#include <functional>
#include <vector>

namespace shardscope::ui {

class TextTableModel : public QAbstractTableModel {
    Q_OBJECT
  public:
    struct Content {
        int rows = 0;
        std::function<QString(int row, int column)> text;
        // What a column sorts by; without it, or where it gives an invalid value, by text. Numbers, text or
        // both.
        std::function<QVariant(int row, int column)> key;
        std::vector<bool> right;  // columns of figures, which stand at the right edge
    };
    explicit TextTableModel(QStringList headers, QObject* parent = nullptr);

    // `content` must own what it reads.
    void setContent(Content content);
    // Row of the content that stands in row `row`, and the way back (-1 when absent).
    int source(int row) const { return order_[static_cast<size_t>(row)]; }
    int rowOf(int source) const;

    int rowCount(const QModelIndex& parent = {}) const override;
    int columnCount(const QModelIndex& parent = {}) const override;
    QVariant data(const QModelIndex& index, int role = Qt::DisplayRole) const override;
    QVariant headerData(int section, Qt::Orientation orientation, int role) const override;
    void sort(int column, Qt::SortOrder order) override;

  private:
    QStringList headers_;
    Content content_;
    std::vector<int> order_;
    int sortColumn_ = -1;
    Qt::SortOrder sortOrder_ = Qt::AscendingOrder;
};

}  // namespace shardscope::ui
