// Validation: which checks, at what cost; what they found, grouped by cause; what to make of it.
#pragma once

#include <QWidget>

#include "ui/models/findings_model.h"

class QAction;
class QComboBox;
class QLabel;
class QLayout;
class QMenu;
class QPushButton;
class QTextBrowser;
class QToolButton;
class QTreeView;

namespace shardscope::ui {

class TaskProgress;

class FindingsPanel : public QWidget {
    Q_OBJECT
  public:
    FindingsPanel(Session& session, Suppressions& suppressions, QWidget* parent = nullptr);

    FindingsModel& model() { return *model_; }
    QTreeView& view() { return *view_; }
    void validate();  // at the chosen level
    void setLevel(ValidateLevel level);
    void chooseExpected();
    // Selects what the next or previous finding is about; wraps around.
    void goToNext(bool forward);
    void showFinding(const QString& words);  // "rule: message"
    bool goTo(const QString& words);         // to what it is about; false where that is nothing here

  signals:
    void titleChanged(const QString& title);  // "Findings  ✕ 2  ▲ 5"

  private:
    QLayout* makeBar();
    QWidget* makeMore();
    QWidget* makeTable(QWidget* parent);
    QWidget* makeSide(QWidget* parent);
    void follow();
    void update();
    void updateExplanation();
    bool go(const QModelIndex& index);
    QModelIndex find(const QString& words) const;
    void suppress();
    void fillMenu(QMenu& menu, const QModelIndex& index);
    void exportAs(const QString& form);

    Session& session_;
    Validation& validation_;
    Suppressions& suppressions_;
    FindingsModel* model_;
    QComboBox* level_;
    QLabel* cost_;
    QPushButton* run_;
    QPushButton* cancel_;
    QPushButton* continue_;
    QPushButton* finished_;  // takes a checkpoint that seems to be written as finished
    TaskProgress* progress_;
    QLabel* verdict_;
    QTreeView* view_;
    QLabel* empty_;
    QTextBrowser* explanation_;
    QString shownExplanation_;
    QAction *go_, *copy_, *suppress_, *explain_;
    QString expect_;
    bool asked_ = false;    // the validation that runs was begun here
    bool visited_ = false;  // the finding that is selected, by going to it
};

}  // namespace shardscope::ui
