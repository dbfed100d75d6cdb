#include "ui/window/windows.h"

#include "ui/window/main_window.h"

namespace shardscope::ui {

Windows::Windows(std::shared_ptr<EngineService> engine, QObject* parent)
    : QObject(parent), engine_(std::move(engine)) {}

Windows::~Windows() {
    for (const auto& window : windows_)
        delete window.data();
}

MainWindow* Windows::newWindow() {
    windows_.erase(std::remove_if(windows_.begin(), windows_.end(), [](const auto& w) { return w.isNull(); }),
                   windows_.end());
    auto* window = new MainWindow(*this);
    windows_.emplace_back(window);
    return window;
}

MainWindow* Windows::open(const QString& path, MainWindow* preferred, const SourceOptions& wanted) {
    const QString absolute = wholePath(path);
    SourceOptions options = wanted;
    // Asked once, where several formats fit.
    if (options.format.isEmpty()) options.format = Recents::chosenFormat(absolute);
    for (const auto& window : windows_) {
        if (!window || window->session().path() != withoutSecrets(absolute) ||
            window->session().state() == Session::State::failed)
            continue;
        if (window->session().options() != options) window->session().open(absolute, options);
        window->show();
        window->raise();
        window->activateWindow();
        return window;
    }
    const auto empty = [](MainWindow* window) {
        return window && (window->session().state() == Session::State::empty ||
                          window->session().state() == Session::State::failed);
    };
    MainWindow* window = empty(preferred) ? preferred : newWindow();
    window->session().open(absolute, options);
    window->show();
    return window;
}

}  // namespace shardscope::ui
