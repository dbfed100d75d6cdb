// Values of one tensor, read on request only: statistics, histogram, and a slice as a heatmap. Says what it
// costs before.
#pragma once

#include <QWidget>
#include <memory>

#include "survey/box_scene.h"
#include "ui/models/session.h"

class QAbstractItemModel;
class QCheckBox;
class QLabel;
class QMenu;
class QPushButton;

namespace shardscope::ui {

class Heatmap;
class Histogram;
class TaskProgress;
class TextTableModel;

class ValuesPane : public QWidget {
    Q_OBJECT
  public:
    explicit ValuesPane(Session& session, QWidget* parent = nullptr);
    ~ValuesPane() override;

    // Forgets what was read of another tensor; reads the slice anew when the view of the same one has
    // changed.
    void setTensor(TensorId tensor, const BoxView& view);

  private:
    void read();
    void readSlice();
    void showCost();
    void showStatistics(const TensorStatistics& statistics);
    void showProgress();
    const QAbstractItemModel* rowsOf(const QWidget* picture);
    void fillMenu(QMenu& menu, QWidget* picture);

    Session& session_;
    TensorId tensor_ = kNone;
    BoxView view_;
    CheckpointPtr of_;
    QPushButton* read_;
    QPushButton* cancel_;
    QLabel* cost_;
    TaskProgress* progress_;
    QLabel* statisticsNames_;
    QLabel* statistics_;
    QCheckBox* logCounts_;
    QCheckBox* logValues_;
    QLabel* sliceLabel_;
    Histogram* histogram_;
    Heatmap* heatmap_;
    std::unique_ptr<TextTableModel> rows_;  // last exported
    Ticket statisticsTicket_, sliceTicket_;
    bool wanted_ = false;  // values of this tensor were asked for
};

}  // namespace shardscope::ui
