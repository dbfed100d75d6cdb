// Bytes by module, as layers of tiles under each other. A module's width is its share of bytes. Its children
// stand below it in the order of the tree. A click selects, a double click zooms in, Backspace or Escape
// zooms out, the arrows walk the tree.
#pragma once

#include <memory>
#include <vector>

#include "survey/facts.h"
#include "ui/bridge/engine_service.h"
#include "ui/widgets/painted_view.h"

namespace shardscope::ui {

class Icicle : public PaintedView {
    Q_OBJECT
  public:
    using Node = ModuleTree::Node;
    explicit Icicle(QWidget* parent = nullptr);

    // `facts` may be null: then nothing is shown. The checkpoint is kept alive with them.
    void setFacts(CheckpointPtr checkpoint, std::shared_ptr<const Facts> facts);
    // Marks a module or tensor; kRoot marks none.
    void setCurrent(Node node);
    Node current() const { return current_; }
    Node top() const { return top_; }  // the module that fills the width
    void zoomTo(Node node);
    void zoomOut();

    // Where a node is painted; empty when it is too small or out of the zoom.
    QRectF nodeRect(Node node) const;

    QSize sizeHint() const override;
    int mostHeight() const;  // that it fills, whatever the room
    QSize minimumSizeHint() const override;

  signals:
    void selected(shardscope::ModuleTree::Node node);
    void zoomed(shardscope::ModuleTree::Node top);

  protected:
    void paint(QPainter& painter, const QRect& exposed) override;
    QString emptyText() const override;
    QString textAt(const QPointF& position) const override;
    bool pressKey(int key) override;
    void resizeEvent(QResizeEvent* event) override;
    void mousePressEvent(QMouseEvent* event) override;
    void mouseDoubleClickEvent(QMouseEvent* event) override;

  private:
    struct Tile {
        Node node = 0;
        uint32_t more = 0;  // stands for that many neighbors, which are too small
        uint32_t branch = 0;
        int row = 0;
        double left = 0, right = 0;
        bool odd = false;
        Health health = Health::ok;  // the worst of what it stands for
        double bytes = 0, lost = 0;  // of what it stands for, and what of it is missing or truncated
    };
    void layOut();
    void place(Node node, int row, double left, double right, uint32_t branch, bool odd);
    void paintHealthOf(QPainter& painter, const Tile& tile, QRectF& label) const;
    double rowHeight() const;
    QRectF tileRect(const Tile& tile) const;
    const Tile* tileAt(const QPointF& at) const;
    QColor tileColor(const Tile& tile) const;
    QString tileText(const Tile& tile) const;
    Health healthOf(Node node) const { return node < health_.size() ? health_[node] : Health::ok; }
    void choose(Node node);
    void describeCurrent();  // what is marked, to those who do not see it
    void rebuildHealth();

    CheckpointPtr checkpoint_;
    std::shared_ptr<const Facts> facts_;
    std::vector<Health> health_;  // by node, the worst below
    std::vector<double> lost_;    // by node, bytes below that are missing or truncated
    std::vector<Tile> tiles_;
    Node top_ = ModuleTree::kRoot, current_ = ModuleTree::kRoot;
    int depth_ = 0;  // rows below the top
};

}  // namespace shardscope::ui
