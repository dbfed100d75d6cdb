// Sizes as areas, in groups (directories): squarified, largest first. Tiles that would be too small to see
// are one tile with their number. A click or the arrows select.
#pragma once

#include <QColor>
#include <QString>
#include <cstdint>
#include <functional>
#include <vector>

#include "survey/facts.h"
#include "ui/widgets/painted_view.h"

namespace shardscope::ui {

class Treemap : public PaintedView {
    Q_OBJECT
  public:
    struct Item {
        uint32_t id = 0;
        QString label;
        QString group;
        uint64_t size = 0;
        QColor color;
        Health health = Health::ok;
    };
    explicit Treemap(QWidget* parent = nullptr);

    // `text` gives the tooltip of an item by its id.
    void setItems(std::vector<Item> items, std::function<QString(uint32_t)> text);
    void setSelected(uint32_t id);  // kNone = nothing
    uint32_t selected() const { return selected_; }
    QRectF itemRect(uint32_t id) const;  // empty when it is in a tile of several
    size_t tileCount() const { return tiles_.size(); }
    // Items that stand in tiles of several.
    size_t aggregated() const;

  signals:
    void chosen(uint32_t id);

  protected:
    void paint(QPainter& painter, const QRect& exposed) override;
    QString emptyText() const override;
    QString textAt(const QPointF& position) const override;
    bool pressKey(int key) override;
    void resizeEvent(QResizeEvent* event) override;
    void mousePressEvent(QMouseEvent* event) override;

  private:
    struct Tile {
        QRectF rect;
        size_t first = 0;  // in items_
        size_t more = 0;   // > 0: stands for that many, from `first` on
        Health health = Health::ok;
        uint64_t size = 0;
    };
    struct Header {
        QRectF rect;
        QString text;
    };
    void layOut();
    void placeGroup(size_t first, size_t end, QRectF rect);
    void squarify(const std::vector<Tile>& tiles, QRectF rect);
    const Tile* tileAt(const QPointF& at) const;
    const Tile* tileOf(uint32_t id) const;
    QString tileText(const Tile& tile) const;
    void choose(const Tile* tile);

    std::vector<Item> items_;  // by group, then the largest first
    std::function<QString(uint32_t)> text_;
    std::vector<Tile> tiles_;
    std::vector<Header> headers_;
    uint32_t selected_ = kNone;
};

}  // namespace shardscope::ui
