// Where the selection is: checkpoint > module > ... > tensor; each step can be clicked.
#pragma once

#include <QWidget>

#include "ui/models/session.h"

class QHBoxLayout;

namespace shardscope::ui {

class Breadcrumb : public QWidget {
    Q_OBJECT
  public:
    explicit Breadcrumb(Session& session, QWidget* parent = nullptr);
    QString text() const;  // "step_42000 > model > layers"
    QSize minimumSizeHint() const override { return {80, QWidget::minimumSizeHint().height()}; }

  private:
    void rebuild();
    void step(const QString& label, const QString& tip, std::function<void()> go);

    Session& session_;
    QHBoxLayout* layout_;
    QStringList labels_;
};

}  // namespace shardscope::ui
