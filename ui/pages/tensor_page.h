// One tensor: its box with shards at their offsets, the table of its chunks, and its values on demand.
#pragma once

#include <QWidget>

#include "ui/models/session.h"

namespace shardscope::ui {

class TensorPage : public QWidget {
    Q_OBJECT
  public:
    explicit TensorPage(Session& session, QWidget* parent = nullptr);

  private:
    Session& session_;
};

}  // namespace shardscope::ui
