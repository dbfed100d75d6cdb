// The placement map, with what steers it: axis order of ranks, folding, legend, minimap, table twin.
#pragma once

#include <QWidget>

#include "ui/models/session.h"

namespace shardscope::ui {

class PlacementPage : public QWidget {
    Q_OBJECT
  public:
    explicit PlacementPage(Session& session, QWidget* parent = nullptr);

  private:
    Session& session_;
};

}  // namespace shardscope::ui
