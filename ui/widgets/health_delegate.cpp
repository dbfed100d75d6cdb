#include "ui/widgets/health_delegate.h"

#include <QApplication>
#include <QPainter>

#include "ui/widgets/theme.h"

namespace shardscope::ui {

namespace {
constexpr int kTile = 12;
constexpr int kLeastText = 6;  // characters; of less the mark alone says more
}  // namespace

void HealthDelegate::paint(QPainter* painter, const QStyleOptionViewItem& option,
                           const QModelIndex& index) const {
    QStyleOptionViewItem item = option;
    initStyleOption(&item, index);
    const QString text = std::exchange(item.text, QString());
    const QStyle* style = item.widget ? item.widget->style() : QApplication::style();
    style->drawControl(QStyle::CE_ItemViewItem, &item, painter, item.widget);
    QRect rect = item.rect.adjusted(6, 0, -4, 0);
    const auto health = static_cast<Health>(index.data(role_).toInt());
    if (health > Health::unread) {
        paintHealth(*painter, QRectF(rect.left(), rect.center().y() - kTile / 2, kTile + 2, kTile + 1),
                    health);
        rect.setLeft(rect.left() + kTile + 8);
    }
    if (rect.width() < kLeastText * item.fontMetrics.averageCharWidth()) return;
    const bool chosen = item.state.testFlag(QStyle::State_Selected);
    painter->save();
    painter->setPen(item.palette.color(chosen ? QPalette::HighlightedText : QPalette::Text));
    painter->drawText(rect, Qt::AlignLeft | Qt::AlignVCenter | Qt::TextSingleLine,
                      item.fontMetrics.elidedText(text, Qt::ElideRight, rect.width()));
    painter->restore();
}

QSize HealthDelegate::sizeHint(const QStyleOptionViewItem& option, const QModelIndex& index) const {
    const QSize size = QStyledItemDelegate::sizeHint(option, index);
    return {size.width() + kTile + 12, size.height()};
}

}  // namespace shardscope::ui
