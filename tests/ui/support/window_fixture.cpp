#include "support/window_fixture.h"

#include <QDir>
#include <QDockWidget>
#include <QLabel>
#include <QSettings>

namespace shardscope::ui {

namespace {
constexpr int kPatience = 120'000;  // milliseconds
}

QString shownText(const QWidget& widget) {
    QString text;
    for (const auto* label : widget.findChildren<QLabel*>()) {
        if (label->isVisibleTo(&widget)) text += label->text() + '\n';
    }
    return text;
}

QPushButton* shownButton(const QWidget& widget, const QString& text) {
    for (QPushButton* button : widget.findChildren<QPushButton*>()) {
        QString shown = button->text();
        if (button->isVisible() && shown.remove('&') == text) return button;
    }
    return nullptr;
}

QAction* actionOf(const QWidget& window, const QString& text) {
    for (QAction* action : window.findChildren<QAction*>()) {
        QString name = action->text();
        if (name.remove('&') == text) return action;
    }
    return nullptr;
}

void WindowFixture::start(std::shared_ptr<EngineService> engine) {
    QSettings().clear();
    // Jobs of the tests before.
    QDir(qEnvironmentVariable("XDG_STATE_HOME") + "/shardscope").removeRecursively();
    windows_ = std::make_unique<Windows>(std::move(engine));
    windows_->jobs().setProgram(QStringLiteral(SHARDSCOPE_PROGRAM));
}

void WindowFixture::end() {
    windows_.reset();
    Tasks::waitForAll();
    QCoreApplication::sendPostedEvents(nullptr, QEvent::DeferredDelete);
}

void WindowFixture::open(const QString& path, QSize size) {
    window_ = windows_->open(path);
    window_->resize(size);
    QVERIFY(QTest::qWaitForWindowExposed(window_));
    waitUntilOpen();
}

void WindowFixture::waitUntilOpen() {
    QTRY_VERIFY_WITH_TIMEOUT(window_->session().hasFacts() || window_->session().run() ||
                                 window_->session().state() == Session::State::failed,
                             kPatience);
    // What is checked by itself is checked.
    QTRY_VERIFY_WITH_TIMEOUT(!window_->session().validation().running(), kPatience);
}

void WindowFixture::showPane(const QString& name) {
    auto* pane = window_->findChild<QDockWidget*>(name);
    if (pane->isHidden()) pane->toggleViewAction()->trigger();
    QVERIFY(pane->isVisible());
}

void WindowFixture::click(const QWidget& in, const QString& text) {
    QPushButton* button = shownButton(in, text);
    QVERIFY2(button && button->isEnabled(), qPrintable(text));
    QTest::mouseClick(button, Qt::LeftButton);
}

}  // namespace shardscope::ui
