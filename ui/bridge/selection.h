// What is selected, shared by all views of one checkpoint; with the way back. A step of the history holds
// selection, filter and page together.
#pragma once

#include <QObject>
#include <QRectF>
#include <QString>
#include <vector>

#include "model/catalog.h"

namespace shardscope::ui {

enum class Page { overview, placement, tensor, files, compare, objects };

struct Selected {
    TensorId tensor = kNone;
    QString module;               // full name of a module; empty when a tensor or nothing is selected
    std::vector<uint32_t> ranks;  // ascending; empty = none in particular
    ChunkId chunk = kNone;
    FileId file = kNone;
    QString filter;
    Page page = Page::overview;
    ObjectId object = kNone;  // a non-tensor entry; then no tensor and no module
    // Of the placement map: center as a share of the whole, width and height of a cell; null = all in view.
    QRectF mapView;
    bool operator==(const Selected&) const = default;
};

class Selection : public QObject {
    Q_OBJECT
  public:
    using QObject::QObject;

    const Selected& current() const { return current_; }
    // Each sets what it names and forgets what no longer fits (another tensor's chunk).
    void selectTensor(TensorId tensor);
    void selectModule(const QString& fullName);
    void selectObject(ObjectId object);
    void selectChunk(TensorId tensor, ChunkId chunk, uint32_t rank, FileId file);
    void selectRanks(std::vector<uint32_t> ranks);
    void selectCell(TensorId tensor, uint32_t rank, ChunkId chunk);  // of the placement map
    void selectFile(FileId file);
    void setFilter(const QString& text);
    void setPage(Page page);
    // Goes with where one is, and is not a step of its own.
    void keepMapView(const QRectF& view);
    void clear();

    bool canGoBack() const { return at_ > 0; }
    bool canGoForward() const { return at_ + 1 < history_.size(); }
    void back();
    void forward();

  signals:
    void changed(const Selected& now, const Selected& before);
    void historyChanged();

  private:
    void selectWhat(TensorId tensor, const QString& module, ObjectId object);
    void set(Selected next);
    void show(Selected next);

    Selected current_;
    std::vector<Selected> history_{Selected{}};
    size_t at_ = 0;
};

}  // namespace shardscope::ui
