// The windows of the program: one for each checkpoint; and what they share.
#pragma once

#include <QObject>
#include <QPointer>
#include <memory>
#include <vector>

#include "ui/bridge/engine_service.h"
#include "ui/models/job_store.h"
#include "ui/models/recents.h"
#include "ui/models/suppressions.h"

namespace shardscope::ui {

class MainWindow;

class Windows : public QObject {
    Q_OBJECT
  public:
    explicit Windows(std::shared_ptr<EngineService> engine = localEngine(), QObject* parent = nullptr);
    ~Windows() override;

    // Opens in `preferred` when that shows nothing, in the window that shows this path already, else in a new
    // one.
    MainWindow* open(const QString& path, MainWindow* preferred = nullptr, const SourceOptions& options = {});
    MainWindow* newWindow();

    std::shared_ptr<EngineService> engine() const { return engine_; }
    Recents& recents() { return recents_; }
    Suppressions& suppressions() { return suppressions_; }
    JobStore& jobs() { return jobs_; }

  private:
    std::shared_ptr<EngineService> engine_;
    Recents recents_;
    Suppressions suppressions_;
    JobStore jobs_;
    std::vector<QPointer<MainWindow>> windows_;
};

}  // namespace shardscope::ui
