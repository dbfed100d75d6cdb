// What a checkpoint holds, at a glance: the verdict with its causes, and the resume card beside the picture
// of the mesh. Then come figures, and bytes by dtype and module.
#pragma once

#include <QWidget>

#include "ui/models/session.h"
#include "ui/models/text_table_model.h"

class QBoxLayout;
class QLabel;
class QScrollArea;

namespace shardscope::ui {

class AsIfPanel;
class Icicle;
class MeshView;
class Panel;
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
    void reshardRequested(const QString& mesh);
    void findingRequested(const QString& words);  // "rule: message"; empty = none in particular
    void causeRequested(const QString& words);    // likewise: what it is about

  protected:
    void resizeEvent(QResizeEvent* event) override;

  private:
    void makeDtypes();
    void makeIcicle();
    void makeMesh();
    void makeNotes();
    void arrange();

    void refreshCheckpoint();
    void refreshFacts();
    void refreshSelection(const Selected& now);
    void refreshFigures();
    void refreshDtypes();
    void refreshModules();
    void refreshMesh();
    void refreshNotes();

    Session& session_;
    CheckpointPtr shown_;
    QScrollArea* scroll_;
    QWidget* content_;
    VerdictStrip* verdict_;
    ReadyPanel* ready_;
    QLabel* figures_;
    QBoxLayout* upper_;  // side by side where there is room
    Panel *dtypePanel_, *modulePanel_, *meshPanel_, *notePanel_;
    ShareBar* dtypes_;
    std::vector<DType> dtypeOf_;  // by share
    Icicle* icicle_;
    MeshView* mesh_;
    AsIfPanel* asIf_;
    QLabel *meshTitle_, *remarks_;
    QString why_;  // there is this mesh, in lines
    TextTableModel *dtypeRows_, *moduleRows_, *rankRows_, *noteRows_;
};

}  // namespace shardscope::ui
