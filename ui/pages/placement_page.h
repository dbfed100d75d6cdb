// The placement map, with what steers it: axis order of ranks, folding, legend, minimap, table twin.
#pragma once

#include <QTimer>
#include <QWidget>
#include <memory>
#include <optional>

#include "survey/placement_matrix.h"
#include "ui/models/session.h"

class QComboBox;
class QLabel;
class QPushButton;
class QSplitter;
class QStackedWidget;
class QTableView;
class QToolButton;

namespace shardscope::ui {

class ChunkTableModel;
class ElidedLabel;
class Legend;
class Minimap;
class PlacementMap;

class PlacementPage : public QWidget {
    Q_OBJECT
  public:
    explicit PlacementPage(Session& session, QWidget* parent = nullptr);
    ~PlacementPage() override;

    PlacementMap& map() { return *map_; }

  protected:
    void showEvent(QShowEvent* event) override;
    void resizeEvent(QResizeEvent* event) override;

  private:
    QWidget* makeToolbar();
    QWidget* makeEmptyState();
    QWidget* makeTable();
    void fillAxisOrders();
    void invalidate();  // builds the matrix again, now or when the page is next shown
    void build();
    void showMatrix(std::shared_ptr<const PlacementMatrix> matrix);
    void showState();
    void takeView();
    void follow(const Selected& now);
    void cellTaken(uint32_t row, uint32_t column);
    void openCell(uint32_t row, uint32_t column);
    void pickColumn(uint32_t column, bool add);
    void showTable(bool on);
    void fillTable();  // with the chunks of the region, or of the whole map
    void tableRowChosen(int row);
    void showMenu(const QPoint& position);
    void describeCell();
    void fillLegend();
    bool isPinned(uint32_t row) const;
    void togglePin(uint32_t row);

    Session& session_;
    PlacementMap* map_;
    Minimap* minimap_;
    Legend* legend_;
    QStackedWidget* stack_;
    QSplitter* splitter_;
    QComboBox* axes_;
    QLabel* axesLabel_;
    QLabel* findingsLabel_;
    QToolButton* foldRows_;
    QToolButton* foldColumns_;
    QToolButton* groups_;
    QToolButton* asTable_;
    QLabel* context_;
    ElidedLabel* cellLabel_;
    std::optional<QRectF> wantedView_;  // to be shown once its map is there
    QLabel* emptyLabel_;
    QPushButton* clearFilter_;
    QWidget* tablePane_;
    QLabel* tableLabel_;
    QTableView* table_;
    ChunkTableModel* chunks_;
    QTimer later_;
    Ticket buildTicket_, tableTicket_;
    CheckpointPtr built_;           // whose matrix is shown or being built
    std::vector<TensorId> pinned_;  // of built_
    std::vector<std::string> pinnedGroups_;
    std::map<std::string, bool> open_;  // groups that the user opened or closed
    bool outdated_ = true;
    bool applying_ = false;  // what changes the selection is this page
};

}  // namespace shardscope::ui
