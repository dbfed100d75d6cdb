// Files of a checkpoint: size, used and dead bytes, byte strip of one, treemap of all.
#pragma once

#include <QWidget>

#include "ui/models/file_table_model.h"
#include "ui/models/session.h"
#include "ui/models/text_table_model.h"
#include "ui/widgets/byte_strip.h"

class QComboBox;
class QLabel;
class QMenu;
class QSplitter;
class QTableView;

namespace shardscope::ui {

class ElidedLabel;
class Legend;
class Panel;
class Treemap;

class FilesPage : public QWidget {
    Q_OBJECT
  public:
    explicit FilesPage(Session& session, QWidget* parent = nullptr);

  protected:
    void resizeEvent(QResizeEvent* event) override;

  private:
    enum class Coloring { role, dtype };
    void makeTable();
    void makeTreemap();
    void makeStrip();
    void fillFileMenu(QMenu& menu);
    void refreshCheckpoint();
    void refreshFacts();
    void refreshTotals();
    void refreshTreemap();
    void refreshStrip();
    void refreshSelection(const Selected& now, const Selected& before);
    void choose(FileId file);
    void showFile(FileId file);
    void selectPiece(int piece);
    std::vector<BytePiece> piecesOf(FileId file) const;
    QColor colorOf(TensorId tensor) const;
    QString fileText(FileId file) const;
    QString pieceText(int piece) const;
    QString pieceLabel(int piece) const;
    QString rangeText(int piece) const;

    Session& session_;
    FileTableModel* model_;
    TextTableModel* pieceRows_;
    QLabel* totals_;
    ElidedLabel* stripTitle_;
    QLabel* mapCaption_;
    QSplitter *upper_, *whole_;
    bool arranged_ = false;  // by hand
    Panel *filePanel_, *mapPanel_, *stripPanel_;
    QTableView* table_;
    Treemap* treemap_;
    ByteStrip* strip_;
    Legend* legend_;
    QComboBox* coloring_;
    FileId file_ = kNone;        // in the strip
    bool following_ = false;     // the table's row is being set after the selection
    std::vector<DType> dtypes_;  // of this checkpoint, in the order of their numbers
};

}  // namespace shardscope::ui
