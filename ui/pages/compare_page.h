// This checkpoint against another: classes of differences with toggles, rename rules, placement, values on demand.
#pragma once

#include <QWidget>

#include "ui/models/session.h"

namespace shardscope::ui {

class ComparePage : public QWidget {
    Q_OBJECT
  public:
    explicit ComparePage(Session& session, QWidget* parent = nullptr);

  private:
    Session& session_;
};

}  // namespace shardscope::ui
