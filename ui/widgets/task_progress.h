// How far a piece of work is: a bar and "3.2 GiB of 8.0 GiB, 1.1 GiB/s, 4 s left", the same wherever work is
// shown.
#pragma once

#include <QWidget>

#include "ui/bridge/tasks.h"

class QLabel;
class QProgressBar;

namespace shardscope::ui {

// "3.2 GiB of 8.0 GiB, 1.1 GiB/s, 4 s left"; what is not known is left out.
QString taskText(const TaskStatus& status);

class TaskProgress : public QWidget {
    Q_OBJECT
  public:
    // Hidden until it is shown. `name` is read out.
    explicit TaskProgress(const QString& name, QWidget* parent = nullptr);

    void setStatus(const TaskStatus& status);

  private:
    QProgressBar* bar_;
    QLabel* text_;
};

}  // namespace shardscope::ui
