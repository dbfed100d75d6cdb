// Small things that painted views share: labels that fit their tile, tiles with an outline, the focus frame.
#pragma once

#include <QColor>
#include <QRectF>
#include <QString>

class QPainter;
class QWidget;

namespace shardscope::ui {

// Black or white, whichever reads better on `back`.
QColor textOn(const QColor& back);

// A filled tile with the outline of tiles where it is large enough for one.
void paintTile(QPainter& painter, const QRectF& rect, const QColor& color);
// `text` inside a tile, elided; left out where less than a few letters would fit.
void paintTileLabel(QPainter& painter, const QRectF& rect, const QString& text, const QColor& back);
// The frame around what is selected or current: accent, two pixels, with a gap of surface color inside.
void paintSelectionFrame(QPainter& painter, const QRectF& rect);
// The frame of a painted view that has the keyboard.
void paintFocusFrame(QPainter& painter, const QWidget& view);

// Steps of an axis in bytes that read well ("0, 256 MiB, 512 MiB"), at most five.
double bytesAxisStep(double most);

// `color` mixed into the surface: strength 1 = the color itself.
QColor softened(const QColor& color, double strength);

}  // namespace shardscope::ui
