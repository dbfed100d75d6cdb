// Colors, hatches and marks, one place for all views; light and dark. Hues say what a color is about. Blue,
// green and earth tell categories apart (ranks, dtypes, roles). Orange, red and violet are trouble, and never
// the other way round. States never rely on color alone.
#pragma once

#include <QBrush>
#include <QColor>
#include <QPalette>
#include <QString>
#include <functional>

#include "survey/facts.h"
#include "survey/hues.h"
#include "validate/validate.h"

class QPainter;
class QRectF;
class QWidget;

namespace shardscope::ui {

enum class ThemeChoice { system, light, dark };

// Sets style, palette and font of the application; views repaint by themselves.
void applyTheme(ThemeChoice choice);
bool darkTheme();
// Runs when the widget has the colors of another theme; for what carries colors of its own.
void onThemeChange(QWidget* widget, std::function<void()> run);

// Categories: eight hues, repeated with another lightness above that.
QColor categoryColor(uint32_t index);
QColor rankColor(uint32_t rank);  // as categoryColor
QColor dtypeColor(DType dtype);   // the same in every view
QColor verdictColor(Verdict verdict);
QColor axisColor(AxisKind kind);  // of the mesh
QColor bytesColor();              // how much a rank holds, in the picture of the mesh
// A share 0..1 on a lightness scale (cividis).
QColor sequentialColor(double share);

// States.
QColor healthColor(Health health);
QChar healthGlyph(Health health);  // a null character for ok
// Fills `rect` as the state's tile: color, hatch, outline and glyph as far as the size allows.
void paintHealth(QPainter& painter, const QRectF& rect, Health health);

// What a rank holds, by its share on a scale of 0..1; on the map of placements.
QColor holdColor(double scale);

// Parts of a view.
QColor outlineColor();  // of tiles
QColor gridColor();     // lines between cells
QColor edgeColor();     // of fields and buttons: 3:1 against what is around them
QColor faintTextColor();
QColor accentColor();   // selection and focus frames
QColor surfaceColor();  // background of painted views
QColor panelColor();    // background of cards
// Dots on the background: nothing is known here.
QBrush unreadBrush();

}  // namespace shardscope::ui
