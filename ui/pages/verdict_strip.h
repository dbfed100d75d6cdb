// Whether one may continue from this checkpoint, as far as is known; what was found; what was not looked at.
#pragma once

#include <QFrame>

#include "ui/models/session.h"

class QAction;
class QLabel;
class QPushButton;

namespace shardscope::ui {

class TaskProgress;

class VerdictStrip : public QFrame {
    Q_OBJECT
  public:
    explicit VerdictStrip(Session& session, QWidget* parent = nullptr);

    QString headline() const;
    QString causes() const;  // as shown, a line for each
    QString details() const;

  signals:
    void causeRequested(const QString& words);  // "rule: message"
    void findingsRequested();
    void validateRequested(shardscope::ValidateLevel level);
    void convertRequested();

  protected:
    void paintEvent(QPaintEvent* event) override;

  private:
    void refresh();
    void showReport();
    void showUnvalidated();
    void say(std::optional<Verdict> tone, const QString& headline, const QString& details);
    void showCauses();
    void follow(const QString& link);
    QColor toneColor() const;

    Session& session_;
    Validation& validation_;
    QLabel *glyph_, *headline_, *causeLines_, *details_;
    std::vector<const Finding*> causes_;  // of the session's report
    TaskProgress* progress_;
    QPushButton *damaged_, *validate_, *convert_, *cancel_;
    QList<QAction*> levels_;       // of the menu of validate_, by level
    std::optional<Verdict> tone_;  // none = unknown
};

}  // namespace shardscope::ui
