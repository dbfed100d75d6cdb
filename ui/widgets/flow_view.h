// The matrix of who reads what (survey/flow_picture.h), as a painted view: what is drawn is the drawing that
// the page shows and that is exported. Left and right go from rank to rank, up and down from file to file.
#pragma once

#include <QSvgRenderer>
#include <memory>

#include "survey/flow_picture.h"
#include "ui/widgets/painted_view.h"

namespace shardscope::ui {

class FlowView : public PaintedView {
    Q_OBJECT
  public:
    explicit FlowView(QWidget* parent = nullptr);
    void setFlow(std::shared_ptr<const FlowPicture> flow);
    void setNone(const QString& why);  // what stands there instead
    const std::shared_ptr<const FlowPicture>& flow() const { return flow_; }

  protected:
    void paint(QPainter& painter, const QRect& exposed) override;
    QString emptyText() const override;
    QString textAt(const QPointF& position) const override;
    bool pressKey(int key) override;
    void resizeEvent(QResizeEvent* event) override;
    void changeEvent(QEvent* event) override;

  private:
    void layOut();

    std::shared_ptr<const FlowPicture> flow_;
    FlowPicture::Drawing drawing_;
    QSvgRenderer svg_;
    QString empty_;
    int rank_ = -1, file_ = -1;  // a band that is current; one of them
};

}  // namespace shardscope::ui
