// A small picture of how one tensor is stored: its last two dimensions as a box, its chunks in the colors of
// their ranks.
#pragma once

#include <QString>
#include <vector>

#include "model/catalog.h"
#include "ui/widgets/painted_view.h"

namespace shardscope::ui {

class BoxSketch : public PaintedView {
    Q_OBJECT
  public:
    explicit BoxSketch(QWidget* parent = nullptr);

    // kNone shows `message` instead. The catalog is not kept.
    void show(const Catalog& catalog, TensorId tensor, const QString& message);
    void showMessage(const QString& message);

  protected:
    void paint(QPainter& painter, const QRect& exposed) override;
    QString emptyText() const override { return pieces_.empty() ? message_ : QString(); }
    QString textAt(const QPointF& position) const override;

  private:
    struct Piece {
        QRectF share;  // of the box, 0..1
        uint32_t rank;
    };
    QRectF box() const;

    std::vector<Piece> pieces_;
    QString message_;
    double across_ = 1, down_ = 1;  // elements
    QString dimensions_;
};

}  // namespace shardscope::ui
