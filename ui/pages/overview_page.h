// What a checkpoint holds, at a glance: the verdict with its causes, the resume card beside the mesh,
// figures, bytes by dtype, module and rank, layers and stages.
#pragma once

#include <QWidget>

#include "ui/models/session.h"
#include "ui/models/text_table_model.h"

class QBoxLayout;
class QCheckBox;
class QLabel;
class QScrollArea;

namespace shardscope::ui {

class Icicle;
class LayerLadder;
class Panel;
class RankChart;
class ReadyPanel;
class ShareBar;
class VerdictStrip;

class OverviewPage : public QWidget {
    Q_OBJECT
  public:
    explicit OverviewPage(Session& session, QWidget* parent = nullptr);

  signals:
    void validateRequested(shardscope::ValidateLevel level);
    void convertRequested();
    void findingRequested(const QString& words);  // "rule: message"; empty = none in particular
    void causeRequested(const QString& words);    // likewise: what it is about

  protected:
    void resizeEvent(QResizeEvent* event) override;
    void changeEvent(QEvent* event) override;

  private:
    void makeDtypes();
    void makeIcicle();
    void makeRanks();
    void makeMesh();
    void makeLadder();
    void makeNotes();
    void arrange();

    void refreshCheckpoint();
    void refreshFacts();
    void refreshSelection(const Selected& now);
    void refreshFigures();
    void refreshDtypes();
    void refreshModules();
    void refreshRanks();
    void refreshMesh();
    void refreshLadder();
    void refreshNotes();

    Session& session_;
    CheckpointPtr shown_;
    QScrollArea* scroll_;
    QWidget* content_;
    VerdictStrip* verdict_;
    ReadyPanel* ready_;
    QLabel* figures_;
    QBoxLayout *upper_, *lower_;  // two panels each, side by side where there is room
    Panel *dtypePanel_, *modulePanel_, *rankPanel_, *meshPanel_, *ladderPanel_, *notePanel_;
    ShareBar* dtypes_ = nullptr;
    std::vector<DType> dtypeOf_;  // by share
    Icicle* icicle_;
    RankChart* rankChart_;
    QLabel *outliers_, *mesh_;
    QCheckBox *sorted_, *folded_;
    LayerLadder* ladder_;
    TextTableModel *dtypeRows_, *moduleRows_, *rankRows_, *layerRows_, *noteRows_;
};

}  // namespace shardscope::ui
