// The resume card: may a run resume from this checkpoint, and with what? Ten lines; what a line is about is a
// click away. Hidden until a validation has ended.
#pragma once

#include <vector>

#include "ui/models/session.h"
#include "ui/widgets/card.h"

class QBoxLayout;
class QGridLayout;

namespace shardscope::ui {

class ReadyPanel : public Panel {
    Q_OBJECT
  public:
    explicit ReadyPanel(Session& session, QWidget* parent = nullptr);

    QString text() const;  // as `shardscope ready` prints it

  signals:
    void findingRequested(const QString& words);  // "rule: message"

  protected:
    void resizeEvent(QResizeEvent* event) override;

  private:
    struct Row {
        QLabel *mark, *title, *body;
    };
    void addRow(QGridLayout& grid);
    void addRows(const std::vector<ReadyLine>& lines);
    void refresh();
    void show(const Row& row, const ReadyLine& line) const;
    void arrange();
    void go(size_t row, const QString& link);

    Session& session_;
    QWidget* view_;
    QBoxLayout* halves_;  // of the lines, side by side where there is room
    std::vector<Row> rows_;
};

}  // namespace shardscope::ui
