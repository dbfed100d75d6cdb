// Opening with options: where the checkpoint is stored, here or on another host, as what it is read, and
// which of several is meant. Blocks nothing.
#pragma once

#include <QDialog>

#include "ui/bridge/source_options.h"

class QComboBox;
class QLabel;
class QLineEdit;
class QPushButton;

namespace shardscope::ui {

class FormGrid;
class FormatOptions;
class PathEdit;

class OpenDialog : public QDialog {
    Q_OBJECT
  public:
    enum class Where { here, place, otherHost };
    // `hosts` are proposed.
    OpenDialog(Where where, const QString& path, const SourceOptions& options, const QStringList& hosts = {},
               QWidget* parent = nullptr);

    QString path() const;
    SourceOptions options() const;

  signals:
    void openRequested(const QString& path, const SourceOptions& options);

  private:
    void check();
    void addHost(FormGrid& grid, const QString& path, const QStringList& hosts);
    void takeWholePath(const QString& text);

    PathEdit* path_ = nullptr;
    QComboBox* host_ = nullptr;  // and the path there, for another host
    QLineEdit* there_ = nullptr;
    QComboBox* format_;
    QLineEdit *variant_, *further_;
    FormatOptions* own_;
    QWidget* ownHeading_;
    QLabel* problem_;
    QPushButton* open_;
};

}  // namespace shardscope::ui
