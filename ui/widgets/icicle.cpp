#include "ui/widgets/icicle.h"

#include <QPainter>
#include <algorithm>

#include "ui/models/texts.h"
#include "ui/widgets/painting.h"
#include "ui/widgets/theme.h"

namespace shardscope::ui {

namespace {

constexpr double kIcicleMargin = 3;
constexpr double kLeastTile = 3;  // pixels; smaller neighbors become one tile
constexpr double kHighestRow = 80;
constexpr double kLowestRow = 19;
constexpr int kMostRows = 12;
constexpr double kGlyphWidth = 16;
constexpr double kLeastMark = 6;
constexpr double kLeastShare = 4;  // of a tile that lost little

bool isNumber(std::string_view label) {
    return !label.empty() &&
           std::all_of(label.begin(), label.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

Icicle::Icicle(QWidget* parent) : PaintedView(tr("Bytes by module"), {}, {}, parent) {}

void Icicle::setFacts(CheckpointPtr checkpoint, std::shared_ptr<const Facts> facts) {
    // New findings change the marks, not the tree: zoom and selection stay.
    if (!facts || checkpoint != checkpoint_) top_ = current_ = ModuleTree::kRoot;
    facts_ = std::move(facts);
    checkpoint_ = std::move(checkpoint);
    rebuildHealth();
    layOut();
    updateGeometry();
    update();
}

void Icicle::rebuildHealth() {
    health_.clear();
    lost_.clear();
    if (!facts_) return;
    const ModuleTree& tree = facts_->tree;
    health_.assign(tree.size(), Health::ok);
    lost_.assign(tree.size(), 0);
    // Each tensor climbs as far as it changes something.
    for (Node n = 1; n < tree.size(); ++n) {
        if (tree.tensor(n) == kNone) continue;
        const Health health = facts_->tensorHealth[tree.tensor(n)];
        for (Node at = n; health_[at] < health; at = tree.parent(at)) {
            health_[at] = health;
            if (at == ModuleTree::kRoot) break;
        }
        if (health != Health::missing) continue;
        const double lost =
            lostShare(*facts_, checkpoint_->catalog(), tree.tensor(n)) * static_cast<double>(tree.bytes(n));
        for (Node at = n; lost > 0; at = tree.parent(at)) {
            lost_[at] += lost;
            if (at == ModuleTree::kRoot) break;
        }
    }
}

void Icicle::layOut() {
    tiles_.clear();
    depth_ = 0;
    if (!facts_ || facts_->tree.empty()) return;
    place(top_, 0, 0, std::max(1.0, width() - 2 * kIcicleMargin), 0, false);
}

void Icicle::place(Node node, int row, double left, double right, uint32_t branch, bool odd) {
    const ModuleTree& tree = facts_->tree;
    tiles_.push_back({node, 0, branch, row, left, right, odd, healthOf(node),
                      static_cast<double>(tree.bytes(node)), lost_[node]});
    depth_ = std::max(depth_, row);
    if (row + 1 >= kMostRows) return;
    const uint32_t count = tree.childCount(node);
    const double total = static_cast<double>(tree.bytes(node));
    if (count == 0) return;
    // Colors begin where the tree branches first, so that siblings differ; numbered ones (layers) are alike
    // and differ in lightness only.
    const bool branches = count > 1;
    double before = 0;
    Tile rest;
    const auto flush = [&] {
        if (rest.more > 0) tiles_.push_back(rest);
        rest = {};
    };
    for (uint32_t i = 0; i < count; ++i) {
        const Node child = tree.child(node, i);
        const double share = total > 0 ? static_cast<double>(tree.bytes(child)) / total : 1.0 / count;
        const double x0 = left + (right - left) * before;
        before += share;
        const double x1 = left + (right - left) * std::min(1.0, before);
        const uint32_t own = branch != 0 ? branch : !branches ? 0 : isNumber(tree.label(child)) ? 1 : i + 1;
        if (x1 - x0 >= kLeastTile) {
            flush();
            place(child, row + 1, x0, x1, own, (branch != 0 || own == 1) && i % 2 == 1);
            continue;
        }
        if (rest.more == 0) {
            rest = {.node = node, .branch = own, .row = row + 1, .left = x0};
        }
        ++rest.more;
        rest.health = std::max(rest.health, healthOf(child));
        rest.bytes += static_cast<double>(tree.bytes(child));
        rest.lost += lost_[child];
        rest.right = std::max(x1, rest.left + 1);
        depth_ = std::max(depth_, rest.row);
        if (rest.right - rest.left >= 4 * kLeastTile) flush();
    }
    flush();
}

double Icicle::rowHeight() const {
    return std::clamp((height() - 2 * kIcicleMargin) / std::max(1, depth_ + 1), kLowestRow, kHighestRow);
}

QRectF Icicle::tileRect(const Tile& tile) const {
    const double h = rowHeight();
    return {kIcicleMargin + tile.left, kIcicleMargin + tile.row * h, tile.right - tile.left, h - 1};
}

QRectF Icicle::nodeRect(Node node) const {
    for (const Tile& tile : tiles_) {
        if (tile.node == node && tile.more == 0) return tileRect(tile);
    }
    return {};
}

const Icicle::Tile* Icicle::tileAt(const QPointF& at) const {
    for (const Tile& tile : tiles_) {
        if (tileRect(tile).contains(at)) return &tile;
    }
    return nullptr;
}

QColor Icicle::tileColor(const Tile& tile) const {
    if (tile.branch == 0) return softened(faintTextColor(), 0.25);
    return softened(categoryColor((tile.branch - 1) % 6), tile.odd ? 0.42 : 0.6);
}

QString Icicle::tileText(const Tile& tile) const {
    const ModuleTree& tree = facts_->tree;
    const TensorId tensor = tile.more > 0 ? kNone : tree.tensor(tile.node);
    const QString state =
        tile.health == Health::ok ? QString()
        : tensor != kNone
            ? tr("\nState: %1").arg(toQString(tensorStateText(*facts_, checkpoint_->catalog(), tensor)))
        : tile.health == Health::missing && tile.bytes > 0
            ? tr("\n%1 missing or truncated").arg(ratioText(tile.lost / tile.bytes))
            : tr("\nWorst state: %1").arg(healthName(tile.health));
    if (tile.more > 0) {
        return tr("%1 of %2")
                   .arg(countedText(tile.more, tr("1 smaller part"), tr("%1 smaller parts")),
                        tile.node == ModuleTree::kRoot ? tr("the model")
                                                       : toQString(tree.fullName(tile.node))) +
               state;
    }
    const double whole = static_cast<double>(tree.bytes(ModuleTree::kRoot));
    const QString name =
        tile.node == ModuleTree::kRoot ? tr("All tensors") : toQString(tree.fullName(tile.node));
    return tr("%1\n%2, %3 of all\n%4")
               .arg(name, sizeText(tree.bytes(tile.node)),
                    ratioText(whole > 0 ? static_cast<double>(tree.bytes(tile.node)) / whole : 0),
                    countedText(tree.tensorCount(tile.node), tr("1 tensor"), tr("%1 tensors"))) +
           state;
}

// Damage is seen however small the tile is, and what is missing or truncated in proportion; `label` becomes
// what is left for text.
void Icicle::paintHealthOf(QPainter& painter, const Tile& tile, QRectF& label) const {
    if (tile.health <= Health::unread) return;
    const QRectF rect = tileRect(tile);
    const double share = tile.health == Health::missing && tile.bytes > 0 ? tile.lost / tile.bytes : 1;
    if (rect.width() < (share < 1 ? kGlyphWidth : kLeastMark) || (tile.more > 0 && share < 1)) {
        const double height = std::max(2.0, rect.height() * share);
        painter.fillRect(QRectF(rect.left(), rect.bottom() - height, rect.width(), height),
                         healthColor(tile.health));
        return;
    }
    QRectF mark = rect.adjusted(1, 1, -1, -1);
    const double wide =
        tile.health == Health::missing ? std::max(kLeastShare, mark.width() * share) : kGlyphWidth;
    mark.setWidth(std::min(mark.width(), wide));
    paintHealth(painter, mark, tile.health);
    label.setLeft(mark.right());
}

QString Icicle::emptyText() const {
    if (!tiles_.empty()) return {};
    return facts_ ? tr("There are no tensors here.") : tr("Adding up the bytes of modules…");
}

QString Icicle::textAt(const QPointF& position) const {
    const Tile* tile = tileAt(position);
    return tile ? tileText(*tile) : QString();
}

void Icicle::paint(QPainter& painter, const QRect&) {
    const ModuleTree& tree = facts_->tree;
    const Tile* marked = nullptr;
    for (const Tile& tile : tiles_) {
        const QRectF rect = tileRect(tile);
        const QColor color = tileColor(tile);
        if (tile.more > 0) {
            painter.fillRect(rect, color);
            painter.fillRect(rect, QBrush(outlineColor(), Qt::Dense6Pattern));
            QRectF unused = rect;
            paintHealthOf(painter, tile, unused);
            continue;
        }
        paintTile(painter, rect, color);
        QRectF label = rect;
        paintHealthOf(painter, tile, label);
        QString text = tile.node == ModuleTree::kRoot ? tr("All tensors") : toQString(tree.label(tile.node));
        if (tile.node == top_ && top_ != ModuleTree::kRoot) text = "↑ " + toQString(tree.fullName(tile.node));
        const QString wide = text + "   " + sizeText(tree.bytes(tile.node));
        if (painter.fontMetrics().horizontalAdvance(wide) + 10 < label.width()) text = wide;
        paintTileLabel(painter, label, text, color);
        if (tile.node == current_ && current_ != ModuleTree::kRoot) marked = &tile;
    }
    if (marked) paintSelectionFrame(painter, tileRect(*marked));
}

void Icicle::resizeEvent(QResizeEvent* event) {
    QWidget::resizeEvent(event);
    layOut();
}

void Icicle::setCurrent(Node node) {
    if (!facts_ || node >= facts_->tree.size()) node = ModuleTree::kRoot;
    current_ = node;
    describeCurrent();
    update();
}

void Icicle::describeCurrent() {
    if (!facts_ || current_ == ModuleTree::kRoot) return describe({});
    describe(tileText({.node = current_,
                       .health = healthOf(current_),
                       .bytes = static_cast<double>(facts_->tree.bytes(current_)),
                       .lost = lost_[current_]}));
}

void Icicle::choose(Node node) {
    current_ = node;
    describeCurrent();
    // What is marked stays in sight.
    if (node != ModuleTree::kRoot && nodeRect(node).isEmpty()) zoomTo(facts_->tree.parent(node));
    if (node != ModuleTree::kRoot) emit selected(node);
    update();
}

void Icicle::zoomTo(Node node) {
    if (!facts_ || node >= facts_->tree.size() || facts_->tree.childCount(node) == 0) return;
    top_ = node;
    layOut();
    update();
    emit zoomed(top_);
}

void Icicle::zoomOut() {
    if (!facts_ || top_ == ModuleTree::kRoot) return;
    zoomTo(facts_->tree.parent(top_));
}

void Icicle::mousePressEvent(QMouseEvent* event) {
    const Tile* tile = event->button() == Qt::LeftButton ? tileAt(event->position()) : nullptr;
    if (!tile) return QWidget::mousePressEvent(event);
    choose(tile->node);
}

void Icicle::mouseDoubleClickEvent(QMouseEvent* event) {
    const Tile* tile = event->button() == Qt::LeftButton ? tileAt(event->position()) : nullptr;
    if (!tile) return;
    if (tile->node == top_ && tile->more == 0)
        zoomOut();
    else
        zoomTo(tile->node);
}

bool Icicle::pressKey(int key) {
    if (!facts_ || facts_->tree.empty()) return false;
    const ModuleTree& tree = facts_->tree;
    const Node at = current_ == ModuleTree::kRoot ? top_ : current_;
    const auto sibling = [&](int step) {
        if (at == ModuleTree::kRoot) return choose(tree.child(at, 0));
        const Node parent = tree.parent(at);
        const int64_t row = int64_t{tree.row(at)} + step;
        if (row >= 0 && row < int64_t{tree.childCount(parent)})
            choose(tree.child(parent, static_cast<uint32_t>(row)));
    };
    switch (key) {
        case Qt::Key_Left:
            sibling(-1);
            break;
        case Qt::Key_Right:
            sibling(1);
            break;
        case Qt::Key_Down:
            if (tree.childCount(at) > 0) choose(tree.child(at, 0));
            break;
        case Qt::Key_Up:
            if (at != ModuleTree::kRoot && tree.parent(at) != ModuleTree::kRoot) {
                const Node parent = tree.parent(at);
                if (at == top_) zoomOut();
                choose(parent);
            }
            break;
        case Qt::Key_Return:
        case Qt::Key_Enter:
            zoomTo(at);
            break;
        case Qt::Key_Backspace:
            zoomOut();
            break;
        case Qt::Key_Escape:
            // At the outermost level Escape is left to the others that handle it.
            if (top_ == ModuleTree::kRoot) return false;
            zoomOut();
            break;
        default:
            return false;
    }
    return true;
}

QSize Icicle::sizeHint() const {
    return {600, static_cast<int>(2 * kIcicleMargin + (depth_ + 1) * 26.0)};
}
int Icicle::mostHeight() const {
    return static_cast<int>(2 * kIcicleMargin + std::max(4, depth_ + 1) * kHighestRow);
}
QSize Icicle::minimumSizeHint() const {
    return {300, static_cast<int>(2 * kIcicleMargin + std::max(4, depth_ + 1) * kLowestRow) + 2};
}

}  // namespace shardscope::ui
