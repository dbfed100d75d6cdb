#include "ui/widgets/symbols.h"

#include <QApplication>
#include <QIconEngine>
#include <QPainter>
#include <QSvgRenderer>

namespace shardscope::ui {

namespace {

// The `d` of one path for each symbol.
const char* pathOf(Symbol symbol) {
    switch (symbol) {
        case Symbol::back:
            return "M20 12H5M11 6l-6 6 6 6";
        case Symbol::forward:
            return "M4 12h15M13 6l6 6-6 6";
        case Symbol::open:
            return "M3 19V5h6l2 3h10v11z";
        case Symbol::validate:
            return "M12 3l8 3v6c0 5-3.5 8-8 9-4.5-1-8-4-8-9V6zM8 12l3 3 5-6";
        case Symbol::convert:
            return "M3 8h15M14 4l4 4-4 4M21 16H6M10 12l-4 4 4 4";
        case Symbol::compare:
            return "M4 4h6v16H4zM14 4h6v16h-6zM6 9h2M6 13h2M16 9h2M16 15h2";
        case Symbol::search:
            return "M10 4a6 6 0 1 0 .01 0zM14.5 14.5L20 20";
    }
    return "";
}

// Draws when it is asked to, in the color that the palette has then.
class SymbolEngine final : public QIconEngine {
  public:
    explicit SymbolEngine(Symbol symbol) : symbol_(symbol) {}

    void paint(QPainter* painter, const QRect& rect, QIcon::Mode mode, QIcon::State) override {
        const auto group = mode == QIcon::Disabled ? QPalette::Disabled : QPalette::Active;
        const QByteArray color = QApplication::palette().color(group, QPalette::ButtonText).name().toLatin1();
        QSvgRenderer svg("<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 24 24'><path d='" +
                         QByteArray(pathOf(symbol_)) + "' fill='none' stroke='" + color +
                         "' stroke-width='2' stroke-linecap='round' stroke-linejoin='round'/></svg>");
        svg.render(painter, rect);
    }

    QPixmap pixmap(const QSize& size, QIcon::Mode mode, QIcon::State state) override {
        QPixmap pixmap(size);
        pixmap.fill(Qt::transparent);
        QPainter painter(&pixmap);
        paint(&painter, QRect(QPoint(), size), mode, state);
        return pixmap;
    }

    QIconEngine* clone() const override { return new SymbolEngine(symbol_); }

  private:
    Symbol symbol_;
};

}  // namespace

QIcon symbolIcon(Symbol symbol) {
    return QIcon(new SymbolEngine(symbol));
}

}  // namespace shardscope::ui
