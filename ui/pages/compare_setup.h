// What to compare with, and how. It is the other checkpoint's path (typed, chosen, recent or dropped), the
// recipe that this one goes through first, and rules that rename its tensors.
#pragma once

#include <QWidget>

#include "base/result.h"
#include "engine/diff.h"

class QCheckBox;
class QComboBox;
class QLabel;
class QPlainTextEdit;
class QPushButton;
class QToolButton;

namespace shardscope::ui {

class RecipeEdit;

class CompareSetup : public QWidget {
    Q_OBJECT
  public:
    explicit CompareSetup(QWidget* parent = nullptr);

    void setThisPath(const QString& path);
    QString otherPath() const;
    void setOtherPath(const QString& path);
    // Errors: usage, with the line that is not understood.
    Result<DiffOptions> options() const;  // but for `values`
    void setRules(const QString& text);
    void setRecipe(const QString& map, const QStringList& set);
    void setBusy(bool busy);
    void setReady(bool ready);  // there is something to compare with
    // Puts the path in front of the recent ones, which outlive the program.
    void remember(const QString& path);

  signals:
    void compareRequested();
    void cancelRequested();
    void changed();

  private:
    void browse(bool file);
    void refresh();
    Result<std::vector<RenameRule>> rules() const;

    QLabel* thisPath_;
    QString whole_;
    QComboBox* other_;
    QPushButton *browse_, *compare_, *cancel_;
    QCheckBox* weightsOnly_;
    QToolButton* rulesButton_;
    QWidget* names_;  // what changes the names of A: recipe and rules
    RecipeEdit* recipe_;
    QPlainTextEdit* rules_;
    QLabel* rulesProblem_;
    bool busy_ = false, ready_ = false;
};

}  // namespace shardscope::ui
