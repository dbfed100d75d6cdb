// This checkpoint against another: classes of differences with toggles, rename rules, placement, values on
// demand.
#pragma once

#include <QWidget>
#include <array>

#include "ui/models/compare_model.h"
#include "ui/models/session.h"

class QLabel;
class QLineEdit;
class QMenu;
class QPushButton;
class QSplitter;
class QStackedWidget;
class QTableView;
class QTimer;
class QToolButton;

namespace shardscope::ui {

class BoxSketch;
class CompareSetup;
class Panel;
class PictureView;
class TaskProgress;

class ComparePage : public QWidget {
    Q_OBJECT
  public:
    explicit ComparePage(Session& session, QWidget* parent = nullptr);
    ~ComparePage() override;

    // Fills in the other side, as if it had been chosen.
    void setOtherPath(const QString& path);
    // Opens the other side and compares; does nothing without a checkpoint or a path.
    void compare();
    // Compares values as well, with the sides that are there.
    void compareValues();
    void cancel();
    bool running() const { return ticket_.running(); }
    const std::shared_ptr<const Comparison>& comparison() const { return model_->comparison(); }
    QString summary() const;
    // The line for a shell that does the same.
    QString command() const;

  protected:
    void dragEnterEvent(QDragEnterEvent* event) override;
    void dropEvent(QDropEvent* event) override;

  private:
    using ComparisonPtr = std::shared_ptr<const Comparison>;
    void makeToggles(class QHBoxLayout& line);
    void makeTable();
    void makeDetail();
    void makeChange();
    void showChange();
    void fillMenu(QMenu& menu);
    void start(CheckpointPtr other, const QString& path, bool values);
    void finish(Result<ComparisonPtr> answer, const QString& path);
    void showMessage(const QString& text);  // instead of the table
    void refreshCheckpoint();
    void refreshToggles();
    void refreshProgress();
    void refreshEmpty();
    void showRow(const QModelIndex& index);
    void selectRow(const QModelIndex& index);

    Session& session_;
    CheckpointPtr shown_;
    Ticket ticket_;
    CompareModel* model_;
    CompareSetup* setup_;
    QLabel *summary_, *message_, *detailA_, *detailB_;
    TaskProgress* progress_;
    QTimer* progressTimer_;
    std::array<QToolButton*, kDiffClassCount> toggles_{};
    QLineEdit* filter_;
    QPushButton *values_, *copyCommand_;
    QStackedWidget* stack_;
    QWidget *results_, *detail_;
    Panel *panel_, *changePanel_;
    PictureView* change_;
    QTableView* table_;
    BoxSketch *sketchA_, *sketchB_;
    QTimer* filterTimer_;
};

}  // namespace shardscope::ui
