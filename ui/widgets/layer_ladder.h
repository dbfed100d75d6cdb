// Layers as rows, pipeline stages (or ranks) as columns: which holds which. Layers in a row that are alike
// are one row, so the odd one stands alone. A layer in two stages, or in none, is marked. Up and down move,
// Enter or a click selects.
#pragma once

#include <QString>
#include <vector>

#include "survey/facts.h"
#include "ui/widgets/painted_view.h"

namespace shardscope::ui {

class LayerLadder : public PaintedView {
    Q_OBJECT
  public:
    struct Layer {
        QString name;   // full name of the module
        QString group;  // of its parent
        int64_t number = 0;
        std::vector<uint32_t> columns;  // that hold a part of it, ascending
        uint64_t bytes = 0;
        Health health = Health::ok;
        QString state;  // "6 of 9 tensors incomplete"; empty = the word of its health
    };
    struct Row {
        size_t first = 0, end = 0;  // layers
        QString label;              // "model.layers 0–11"
        QString remark;             // what is odd about it
        bool odd = false;
    };
    explicit LayerLadder(QWidget* parent = nullptr);

    // `exclusive`: a layer belongs into one column (stages); else into any number of them (ranks).
    void setLayers(std::vector<Layer> layers, uint32_t columns, const QString& columnWord, bool exclusive);
    const std::vector<Layer>& layers() const { return layers_; }
    const std::vector<Row>& rows() const { return rows_; }
    void setFolded(bool folded);
    bool folded() const { return folded_; }
    void setSelected(const QString& moduleName);
    int current() const { return current_; }
    QRectF rowRect(int row) const;

    QSize sizeHint() const override;
    QSize minimumSizeHint() const override;

  signals:
    void selected(const QString& moduleName);

  protected:
    void paint(QPainter& painter, const QRect& exposed) override;
    QString emptyText() const override;
    QString textAt(const QPointF& position) const override;
    bool pressKey(int key) override;
    bool hasFocusFrame() const override { return current_ < 0; }
    void mousePressEvent(QMouseEvent* event) override;

  private:
    void build();
    double labelWidth() const;
    double remarkWidth() const;
    double headerHeight() const;
    double rowHeight() const;
    int rowAt(const QPoint& at) const;
    QString rowText(int row) const;
    void paintHeader(QPainter& painter) const;
    void paintRow(QPainter& painter, int row) const;
    void choose(int row);

    std::vector<Layer> layers_;
    std::vector<Row> rows_;
    uint32_t columns_ = 0;
    QString columnWord_, selected_;
    bool exclusive_ = false, folded_ = true;
    int current_ = -1;
};

}  // namespace shardscope::ui
