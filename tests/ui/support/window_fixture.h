// The windows of the program with one checkpoint open, for tests that drive the whole.
#pragma once

#include <QPointer>
#include <QPushButton>
#include <memory>

#include "support/gui_test.h"
#include "ui/window/main_window.h"
#include "ui/window/windows.h"

namespace shardscope::ui {

// All text that the labels of a widget show.
QString shownText(const QWidget& widget);
// The visible button with this text, mnemonic aside; null when there is none.
QPushButton* shownButton(const QWidget& widget, const QString& text);
// The action of the window with this text, mnemonic aside; null when there is none.
QAction* actionOf(const QWidget& window, const QString& text);

// Pages of the wizard.
inline constexpr int kWizardPageTarget = 2, kWizardPagePlacement = 3, kWizardPageWhere = 5,
                     kWizardPagePlan = 7;

class WindowFixture {
  protected:
    // In init(): settings of a first start, no jobs, and no window yet.
    void start(std::shared_ptr<EngineService> engine = localEngine());
    // In cleanup().
    void end();

    // Waits until its facts are worked out and it is checked, or it could not be opened.
    void open(const QString& path, QSize size = {1440, 900});
    void waitUntilOpen();
    void showPane(const QString& name);  // "findings", "jobs", "log"
    static void click(const QWidget& in, const QString& text);
    Session& session() { return window_->session(); }
    Banner& banner() { return window_->banner(); }

    std::unique_ptr<Windows> windows_;
    QPointer<MainWindow> window_;
};

}  // namespace shardscope::ui
