// One tensor: its box with shards at their offsets, the table of its chunks, and its values on demand.
#pragma once

#include <QTimer>
#include <QWidget>
#include <memory>
#include <vector>

#include "survey/box_scene.h"
#include "ui/models/session.h"

class QCheckBox;
class QComboBox;
class QGridLayout;
class QLabel;
class QLineEdit;
class QMenu;
class QScrollArea;
class QSplitter;
class QStackedWidget;
class QTabWidget;
class QTableView;

namespace shardscope::ui {

class ChunkTableModel;
class Legend;
class TensorBox;
class ValuesPane;

class TensorPage : public QWidget {
    Q_OBJECT
  public:
    explicit TensorPage(Session& session, QWidget* parent = nullptr);
    ~TensorPage() override;

    TensorBox& box() { return *box_; }

  protected:
    void showEvent(QShowEvent* event) override;

  private:
    QWidget* makeHead();
    QWidget* makeControls();
    QWidget* makeTable();
    QWidget* makePicture();
    QWidget* makeTabs();
    void follow();
    void giveValuesRoom();
    void invalidate();
    void refresh();  // brings everything up to the selection
    void showEmptyState();
    void showTitle();
    void fillAxes();  // combo boxes and sliders of another tensor
    void fillSliders();
    void axisChosen(bool downChanged);
    void viewChanged();  // draws the scene anew
    void showScene(std::shared_ptr<const BoxScene> scene);
    void showGhosts();
    void chunkTaken(ChunkId chunk);
    void fillMenu(QMenu& menu);

    Session& session_;
    TensorId tensor_ = kNone;
    CheckpointPtr of_;
    BoxView view_;
    QStackedWidget* stack_;
    QLabel* emptyLabel_;
    QLabel* name_;
    QLabel* facts_;
    QComboBox* down_;
    QComboBox* across_;
    QCheckBox* log_;
    QLineEdit* ghostMesh_;
    QLineEdit* ghostRule_;
    QLabel* ghostNote_;
    QScrollArea* sliderArea_;
    QWidget* sliders_ = nullptr;
    TensorBox* box_;
    QLabel* boxNote_;
    Legend* legend_;
    QTabWidget* tabs_;
    QSplitter* splitter_;
    QTableView* table_;
    ChunkTableModel* chunks_;
    ValuesPane* values_;
    QTimer later_;
    Ticket sceneTicket_;
    bool outdated_ = true;
    bool applying_ = false;  // what changes the selection is this page
};

}  // namespace shardscope::ui
