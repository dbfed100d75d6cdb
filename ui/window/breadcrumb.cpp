#include "ui/window/breadcrumb.h"

#include <QHBoxLayout>
#include <QLabel>
#include <QToolButton>

#include "ui/models/texts.h"

namespace shardscope::ui {

namespace {
constexpr int kMostSteps = 5;
constexpr int kLongestLabel = 28;
constexpr int kLongestFilter = 40;
}  // namespace

Breadcrumb::Breadcrumb(Session& session, QWidget* parent) : QWidget(parent), session_(session) {
    setAccessibleName(tr("Where the selection is"));
    layout_ = new QHBoxLayout(this);
    layout_->setContentsMargins(0, 0, 0, 0);
    layout_->setSpacing(0);
    connect(&session_, &Session::stateChanged, this, &Breadcrumb::rebuild);
    connect(&session_.selection(), &Selection::changed, this,
            [this](const Selected& now, const Selected& before) {
                if (now.tensor != before.tensor || now.module != before.module ||
                    now.object != before.object || now.filter != before.filter)
                    rebuild();
            });
    rebuild();
}

QString Breadcrumb::text() const {
    return labels_.join(" > ");
}

void Breadcrumb::step(const QString& label, const QString& tip, std::function<void()> go) {
    if (!labels_.isEmpty()) layout_->addWidget(new QLabel(QStringLiteral("›"), this));
    labels_ += label;
    auto* button = new QToolButton(this);
    button->setAutoRaise(true);
    button->setText(label.size() <= kLongestLabel ? label
                                                  : label.left(kLongestLabel / 2) + QStringLiteral("…") +
                                                        label.right(kLongestLabel / 2 - 1));
    button->setToolTip(tip);
    button->setAccessibleName(tip);
    connect(button, &QToolButton::clicked, this, go);
    layout_->addWidget(button);
}

void Breadcrumb::rebuild() {
    while (QLayoutItem* item = layout_->takeAt(0)) {
        if (QWidget* widget = item->widget()) {
            // A click may be what brought us here: the button is still needed for a moment.
            widget->hide();
            widget->deleteLater();
        }
        delete item;
    }
    labels_.clear();
    if (session_.checkpoint()) {
        const QString path = session_.path();
        step(toQString(titleOf(path).toStdString()), path, [this] { session_.selection().selectModule({}); });
        const Selected& now = session_.selection().current();
        const QString name =
            now.tensor != kNone ? toQString(session_.catalog().name(now.tensor)) : now.module;
        if (now.object != kNone) {
            const QString object = toQString(session_.catalog().objects()[now.object].name);
            step(tr("objects"), tr("Objects"), [this] { session_.selection().setPage(Page::objects); });
            step(object, object, [this] { session_.selection().setPage(Page::objects); });
        }
        const QStringList parts = name.isEmpty() ? QStringList() : name.split('.');
        qsizetype begin = 0;
        if (parts.size() > kMostSteps) {
            begin = parts.size() - kMostSteps;
            layout_->addWidget(new QLabel(QStringLiteral(" › …"), this));
        }
        for (qsizetype i = begin; i < parts.size(); ++i) {
            const QString full = parts.mid(0, i + 1).join('.');
            const bool tensor = now.tensor != kNone && i + 1 == parts.size();
            step(parts[i], full, [this, full, tensor] {
                if (tensor)
                    session_.selection().setPage(Page::tensor);
                else
                    session_.selection().selectModule(full);
            });
        }
    }
    // What narrows all views is said also where the tree is hidden.
    if (const QString filter = session_.selection().current().filter.trimmed();
        session_.checkpoint() && !filter.isEmpty()) {
        layout_->addSpacing(12);
        auto* clear = new QToolButton(this);
        clear->setObjectName(QStringLiteral("clearFilter"));
        const QString shown =
            filter.size() <= kLongestFilter ? filter : filter.left(kLongestFilter - 1) + QStringLiteral("…");
        clear->setText(tr("filter: %1  ✕").arg(toQString(shown.toStdString())));
        clear->setToolTip(tr("Clear the filter “%1”").arg(filter.toHtmlEscaped()));
        clear->setAccessibleName(tr("Clear the filter"));
        connect(clear, &QToolButton::clicked, this, [this] { session_.selection().setFilter({}); });
        layout_->addWidget(clear);
    }
    layout_->addStretch(1);
}

}  // namespace shardscope::ui
