// What a checkpoint holds, at a glance: cards, dtypes, bytes by module and by rank, mesh with its evidence, layers and
// stages, and the verdict with what was not checked.
#pragma once

#include <QWidget>

#include "ui/models/session.h"

namespace shardscope::ui {

class OverviewPage : public QWidget {
    Q_OBJECT
  public:
    explicit OverviewPage(Session& session, QWidget* parent = nullptr);

  signals:
    void validateRequested();
    void convertRequested();

  private:
    Session& session_;
};

}  // namespace shardscope::ui
