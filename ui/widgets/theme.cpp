#include "ui/widgets/theme.h"

#include <QApplication>
#include <QEvent>
#include <QFont>
#include <QPainter>
#include <QProxyStyle>
#include <QStyleOption>
#include <QToolTip>
#include <QTreeView>
#include <algorithm>
#include <array>
#include <cmath>

namespace shardscope::ui {

namespace {

bool dark = false;
constexpr int kTreeLine = 6;    // pixels between the texts of two lines
constexpr int kButtonAir = 10;  // pixels

constexpr struct {
    QPalette::ColorRole role;
    QRgb light, dark;
} kShades[] = {
    {QPalette::Window, 0xf4f5f7, 0x2f3136},      {QPalette::WindowText, 0x1f2328, 0xe4e6e9},
    {QPalette::Base, 0xffffff, 0x1e1e1e},        {QPalette::AlternateBase, 0xf6f8fa, 0x26272a},
    {QPalette::Text, 0x1f2328, 0xe4e6e9},        {QPalette::Button, 0xeceef1, 0x3f4248},
    {QPalette::ButtonText, 0x1f2328, 0xe4e6e9},  {QPalette::BrightText, 0xb04500, 0xff9b4d},
    {QPalette::ToolTipBase, 0x2b2f36, 0x3a3e45}, {QPalette::ToolTipText, 0xf4f5f7, 0xe4e6e9},
    {QPalette::Highlight, 0x0072b2, 0x2276b5},   {QPalette::HighlightedText, 0xffffff, 0xffffff},
    {QPalette::Link, 0x005f99, 0x6cb8f0},        {QPalette::PlaceholderText, 0x646b75, 0x9da3ad},
    {QPalette::Light, 0xffffff, 0x4a4e55},       {QPalette::Midlight, 0xe3e6ea, 0x3d4147},
    {QPalette::Mid, 0xc4c9d0, 0x4d5158},         {QPalette::Dark, 0x9aa1ab, 0x18191b},
    {QPalette::Shadow, 0x707680, 0x0e0f10},
};
constexpr QRgb kDisabledLight = 0x8a919b, kDisabledDark = 0x7d838c;

QPalette themePalette(bool ofDark) {
    QPalette palette;
    for (const auto& shade : kShades)
        palette.setColor(shade.role, QColor(ofDark ? shade.dark : shade.light));
    for (const auto role : {QPalette::WindowText, QPalette::Text, QPalette::ButtonText})
        palette.setColor(QPalette::Disabled, role, QColor(ofDark ? kDisabledDark : kDisabledLight));
    return palette;
}

// Fusion draws the edges of fields and boxes a little darker than the window, which hardly shows on a light
// window and not at all on a dark one; and it sets the lines of trees solid.
class ThemeStyle final : public QProxyStyle {
  public:
    ThemeStyle() : QProxyStyle(QStringLiteral("Fusion")) {}

    // Lines of trees as far apart as those of tables; long words of buttons clear of their edges.
    QSize sizeFromContents(ContentsType type, const QStyleOption* option, const QSize& size,
                           const QWidget* widget) const override {
        const QSize usual = QProxyStyle::sizeFromContents(type, option, size, widget);
        if (type == CT_PushButton)
            return {std::max(usual.width(), size.width() + 2 * kButtonAir), usual.height()};
        if (type != CT_ItemViewItem || !qobject_cast<const QTreeView*>(widget)) return usual;
        return {usual.width(), std::max(usual.height(), option->fontMetrics.height() + kTreeLine)};
    }

    void drawPrimitive(PrimitiveElement element, const QStyleOption* option, QPainter* painter,
                       const QWidget* widget) const override {
        QProxyStyle::drawPrimitive(element, option, painter, widget);
        switch (element) {
            case PE_IndicatorCheckBox:
            case PE_IndicatorItemViewItemCheck:
                return paintEdge(*option, *painter, 0);
            case PE_IndicatorRadioButton:
                return paintEdge(*option, *painter, option->rect.width() / 2.0);
            case PE_FrameLineEdit:
            case PE_PanelButtonCommand:
                if (!(option->state & State_HasFocus)) paintEdge(*option, *painter, 2);
                return;
            default:
                return;
        }
    }

    void drawComplexControl(ComplexControl control, const QStyleOptionComplex* option, QPainter* painter,
                            const QWidget* widget) const override {
        QProxyStyle::drawComplexControl(control, option, painter, widget);
        if (control == CC_SpinBox && !(option->state & State_HasFocus)) paintEdge(*option, *painter, 2);
    }

  private:
    static void paintEdge(const QStyleOption& option, QPainter& painter, double radius) {
        QColor edge = edgeColor();
        if (!(option.state & State_Enabled)) edge.setAlpha(110);
        painter.save();
        painter.setRenderHint(QPainter::Antialiasing, radius > 0);
        painter.setPen(QPen(edge, 1));
        painter.setBrush(Qt::NoBrush);
        painter.drawRoundedRect(QRectF(option.rect).adjusted(0.5, 0.5, -0.5, -0.5), radius, radius);
        painter.restore();
    }
};

class ThemeFilter final : public QObject {
  public:
    ThemeFilter(QWidget* widget, std::function<void()> run) : QObject(widget), run_(std::move(run)) {
        widget->installEventFilter(this);
    }
    bool eventFilter(QObject* widget, QEvent* event) override {
        if (event->type() == QEvent::PaletteChange) run_();
        return QObject::eventFilter(widget, event);
    }

  private:
    const std::function<void()> run_;
};

}  // namespace

void onThemeChange(QWidget* widget, std::function<void()> run) {
    new ThemeFilter(widget, std::move(run));
}

void applyTheme(ThemeChoice choice) {
    static const QPalette systemPalette = QApplication::palette();
    if (choice == ThemeChoice::system)
        dark = systemPalette.color(QPalette::Window).lightness() < 128;
    else
        dark = choice == ThemeChoice::dark;
    // As long as it is the application's, widgets have taken it over.
    static bool styled = false;
    if (!styled) QApplication::setStyle(new ThemeStyle);
    styled = true;
    const QPalette palette = themePalette(dark);
    QApplication::setPalette(palette);
    QToolTip::setPalette(palette);
}

bool darkTheme() {
    return dark;
}

QColor categoryColor(uint32_t index) {
    // Neighbors differ in lightness too, for those who see few hues; none is as warm as a state's color. The
    // darkest hue is lighter on the dark theme's background.
    constexpr std::array<QRgb, 8> hues = {0x4B5BA6, 0xDDCC77, 0x2A9D8F, 0x88CCEE,
                                          0x8A8B2F, 0xA9B4C2, 0x3B7EA1, 0xBFDDA0};
    const uint32_t hue = index % hues.size();
    QColor color = QColor::fromRgb(hues[hue] | 0xff000000U);
    if (hue == 0 && dark) color = color.lighter(140);
    const uint32_t round = index / hues.size() % 4;
    if (round == 0) return color;
    return round == 1 ? color.lighter(125) : round == 2 ? color.darker(135) : color.darker(165);
}

QColor dtypeColor(DType dtype) {
    // Those of weights and optimizer states first, so that a usual checkpoint has the clearest hues.
    constexpr DType first[] = {DType::float32, DType::bfloat16, DType::float16, DType::int64};
    const auto* const found = std::find(std::begin(first), std::end(first), dtype);
    if (found != std::end(first)) return categoryColor(static_cast<uint32_t>(found - first));
    return categoryColor(static_cast<uint32_t>(std::size(first)) + static_cast<uint32_t>(dtype));
}

QColor verdictColor(Verdict verdict) {
    switch (verdict) {
        case Verdict::safe:
            return dark ? QColor(0x4f, 0xc9, 0xa0) : QColor(0x00, 0x71, 0x4f);
        case Verdict::care:
            return dark ? QColor(0xf2, 0xb8, 0x4b) : QColor(0x85, 0x59, 0x00);
        case Verdict::unsafe:
            return dark ? QColor(0xff, 0x9b, 0x4d) : QColor(0xb0, 0x45, 0x00);
    }
    return {};
}

QColor rankColor(uint32_t rank) {
    return categoryColor(rank);
}

QColor sequentialColor(double share) {
    // Nine points of cividis.
    constexpr std::array<std::array<uint8_t, 3>, 9> points = {{{0, 34, 78},
                                                               {18, 53, 112},
                                                               {59, 73, 108},
                                                               {87, 93, 109},
                                                               {112, 113, 115},
                                                               {138, 134, 120},
                                                               {165, 156, 116},
                                                               {195, 179, 105},
                                                               {254, 232, 56}}};
    const double at = std::clamp(std::isfinite(share) ? share : 0.0, 0.0, 1.0) * (points.size() - 1);
    const size_t low = std::min(static_cast<size_t>(at), points.size() - 2);
    const double part = at - static_cast<double>(low);
    const auto mix = [&](int i) {
        return static_cast<int>(std::lround(points[low][static_cast<size_t>(i)] * (1 - part) +
                                            points[low + 1][static_cast<size_t>(i)] * part));
    };
    return QColor(mix(0), mix(1), mix(2));
}

QColor healthColor(Health health) {
    return QColor::fromRgb(healthRgb(health, dark));
}

QColor axisColor(AxisKind kind) {
    return QColor::fromRgb(axisRgb(kind, dark));
}

QColor bytesColor() {
    return QColor::fromRgb(bytesRgb(dark));
}

QChar healthGlyph(Health health) {
    constexpr char16_t glyphs[] = {0, 0, u'N', u'≠', u'2', u'/', u'X'};  // by Health; 2: claimed twice
    return QChar(glyphs[static_cast<int>(health)]);
}

QBrush unreadBrush() {
    return QBrush(faintTextColor(), Qt::Dense7Pattern);
}

void paintHealth(QPainter& painter, const QRectF& rect, Health health) {
    painter.save();
    const QColor color = healthColor(health);
    switch (health) {
        case Health::ok:
            painter.fillRect(rect, color);
            break;
        case Health::unread:
            painter.fillRect(rect, surfaceColor());
            painter.fillRect(rect, unreadBrush());
            break;
        case Health::nonFinite:
            painter.fillRect(rect, color);
            break;
        case Health::differs:
        case Health::overlap:
        case Health::missing:
            painter.fillRect(rect, color);
            if (rect.width() >= 6 && rect.height() >= 6)
                painter.fillRect(
                    rect, QBrush(QColor(0, 0, 0, 150), health == Health::differs   ? Qt::HorPattern
                                                       : health == Health::overlap ? Qt::BDiagPattern
                                                                                   : Qt::FDiagPattern));
            break;
        case Health::gap:
            painter.fillRect(rect, dark ? QColor(0x1e, 0x1e, 0x1e) : QColor(Qt::white));
            painter.fillRect(rect,
                             QBrush(color, rect.width() >= 6 && rect.height() >= 6 ? Qt::DiagCrossPattern
                                                                                   : Qt::SolidPattern));
            break;
    }
    if (rect.width() >= 6 && rect.height() >= 6) {
        painter.setPen(QPen(health == Health::gap ? color : outlineColor(), 1));
        painter.setBrush(Qt::NoBrush);
        painter.drawRect(rect.adjusted(0.5, 0.5, -0.5, -0.5));
    }
    if (rect.width() > 10 && rect.height() > 10 && !healthGlyph(health).isNull()) {
        const QString glyph(healthGlyph(health));
        QFont font = painter.font();
        font.setBold(true);
        painter.setFont(font);
        // On a small mark the plate of the glyph is as narrow as can be, so that the color shows around it.
        constexpr double kSmall = 18;
        const double margin = rect.width() < kSmall ? 0 : 2;
        const QRectF box = QRectF(painter.fontMetrics().boundingRect(glyph)).adjusted(-margin, 0, margin, 0);
        if (box.width() < rect.width() && box.height() < rect.height() + 4) {
            QRectF plate(0, 0, box.width(),
                         std::min(box.height(), rect.height() - (rect.width() < kSmall ? 6 : 2)));
            plate.moveCenter(rect.center());
            painter.fillRect(plate, surfaceColor());
            painter.setPen(QApplication::palette().color(QPalette::Text));
            painter.drawText(rect, Qt::AlignCenter, glyph);
        }
    }
    painter.restore();
}

QColor holdColor(double scale) {
    return QColor::fromRgb(holdRgb(scale, dark));
}

QColor outlineColor() {
    return dark ? QColor(0xb0, 0xb4, 0xba) : QColor(0x3c, 0x41, 0x48);
}
QColor gridColor() {
    return dark ? QColor(0x3a, 0x3d, 0x42) : QColor(0xdd, 0xe0, 0xe4);
}
QColor edgeColor() {
    return dark ? QColor(0x80, 0x85, 0x8d) : QColor(0x86, 0x8d, 0x97);
}
QColor faintTextColor() {
    return dark ? QColor(0x9c, 0xa2, 0xab) : QColor(0x5f, 0x66, 0x70);
}
QColor accentColor() {
    return dark ? QColor(0x6c, 0xb8, 0xf0) : QColor(0x00, 0x5f, 0x99);
}
QColor surfaceColor() {
    return dark ? QColor(0x1e, 0x1e, 0x1e) : QColor(Qt::white);
}
QColor panelColor() {
    return dark ? QColor(0x36, 0x38, 0x3d) : QColor(0xfb, 0xfb, 0xfc);
}

}  // namespace shardscope::ui
