// Opening with options: where the checkpoint lies, as what it is read, and which of several is meant. Blocks
// nothing.
#pragma once

#include <QDialog>

#include "ui/bridge/source_options.h"

class QComboBox;
class QLabel;
class QLineEdit;
class QPushButton;

namespace shardscope::ui {

class PaddleOptions;
class PathEdit;

class OpenDialog : public QDialog {
    Q_OBJECT
  public:
    explicit OpenDialog(const QString& path, const SourceOptions& options, QWidget* parent = nullptr);

    QString path() const;
    SourceOptions options() const;

  signals:
    void openRequested(const QString& path, const SourceOptions& options);

  private:
    void check();
    bool takesPaddleOptions() const;

    PathEdit* path_;
    QComboBox* format_;
    QLineEdit *variant_, *further_;
    PaddleOptions* paddle_;
    QWidget* paddleHeading_;
    QLabel* problem_;
    QPushButton* open_;
};

}  // namespace shardscope::ui
