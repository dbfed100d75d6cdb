// Files of a checkpoint: size, used and dead bytes, byte strip of one, treemap of all.
#pragma once

#include <QWidget>

#include "ui/models/session.h"

namespace shardscope::ui {

class FilesPage : public QWidget {
    Q_OBJECT
  public:
    explicit FilesPage(Session& session, QWidget* parent = nullptr);

  private:
    Session& session_;
};

}  // namespace shardscope::ui
