#include "ui/widgets/banner.h"

#include <QApplication>
#include <QHBoxLayout>
#include <QLabel>
#include <QPainter>
#include <QPushButton>
#include <QTimer>
#include <QToolButton>

#include "ui/widgets/building.h"
#include "ui/widgets/labels.h"
#include "ui/widgets/painting.h"
#include "ui/widgets/theme.h"

namespace shardscope::ui {

namespace {
constexpr int kInfoMilliseconds = 6000;
}

Banner::Banner(QWidget* parent) : QFrame(parent) {
    setObjectName(QStringLiteral("banner"));
    setAccessibleName(tr("Message"));
    auto* layout = layoutOf<QHBoxLayout>(this, {12, 6, 6, 6}, 8);
    icon_ = new QLabel(this);
    icon_->setFixedWidth(20);
    icon_->setAlignment(Qt::AlignCenter);
    label_ = textBlock(this);
    label_->setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Preferred);
    buttons_ = new QHBoxLayout;
    buttons_->setSpacing(6);
    auto* close = new QToolButton(this);
    close->setText(QStringLiteral("✕"));
    close->setAutoRaise(true);
    close->setToolTip(tr("Dismiss"));
    close->setAccessibleName(tr("Dismiss the message"));
    connect(close, &QToolButton::clicked, this, [this] { clear(); });
    layout->addWidget(icon_);
    layout->addWidget(label_, 1);
    layout->addLayout(buttons_);
    layout->addWidget(close);
    hide();
}

void Banner::show(BannerKind kind, const QString& text, std::vector<Action> actions, const QString& key) {
    kind_ = kind;
    key_ = key;
    ++generation_;
    label_->setText(text);
    while (QLayoutItem* item = buttons_->takeAt(0)) {
        // It may be the one whose click led here.
        item->widget()->hide();
        item->widget()->setParent(nullptr);
        item->widget()->deleteLater();
        delete item;
    }
    for (Action& action : actions) {
        auto* button = new QPushButton(action.first, this);
        connect(button, &QPushButton::clicked, this, [this, run = std::move(action.second)] {
            const int before = generation_;
            run();
            if (generation_ == before) clear();
        });
        buttons_->addWidget(button);
    }
    icon_->setText(kind == BannerKind::info ? QStringLiteral("•") : QStringLiteral("▲"));
    update();
    setVisible(true);
    if (kind == BannerKind::info && actions.empty()) {
        QTimer::singleShot(kInfoMilliseconds, this, [this, generation = generation_] {
            if (generation == generation_) clear();
        });
    }
}

void Banner::clear(const QString& key) {
    if (!key.isEmpty() && key != key_) return;
    ++generation_;
    hide();
}

QString Banner::text() const {
    return isHidden() ? QString() : label_->text();
}

// In the colors of the theme as it is then; a style sheet would keep those of when it was set.
void Banner::paintEvent(QPaintEvent*) {
    const QColor mark = kind_ == BannerKind::error     ? verdictColor(Verdict::unsafe)
                        : kind_ == BannerKind::warning ? verdictColor(Verdict::care)
                                                       : accentColor();
    QPainter painter(this);
    painter.fillRect(rect(), softened(mark, 0.16));
    painter.fillRect(QRect(0, 0, 4, height()), mark);
}

void showBanner(QWidget* inside, BannerKind kind, const QString& text, std::vector<Banner::Action> actions,
                const QString& key) {
    if (!inside) return;
    if (auto* banner = inside->window()->findChild<Banner*>())
        banner->show(kind, text, std::move(actions), key);
}

}  // namespace shardscope::ui
