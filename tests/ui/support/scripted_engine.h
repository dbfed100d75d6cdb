// An engine whose answers a test decides: late, failing, or out of nothing. Calls that no script is given for
// go to the real engine.
#pragma once

#include <QThread>
#include <atomic>
#include <functional>
#include <memory>

#include "ui/bridge/engine_service.h"

namespace shardscope::ui {

// Lets work wait until the test opens the gate.
class Gate {
  public:
    void open() { open_.store(true); }
    Status wait(const TaskContext& context) const {
        while (!open_.load()) {
            SHARDSCOPE_TRY(context.stop.poll());
            QThread::msleep(2);
        }
        return {};
    }

  private:
    std::atomic<bool> open_{false};
};

class ScriptedEngine : public EngineService {
  public:
    // When set, every path opens as this catalog.
    std::shared_ptr<const Catalog> catalog;
    // Run before the call of that name ("open", "validate", ...), on its worker thread; an error is the
    // call's answer.
    std::function<Status(const std::string& call, const TaskContext& context)> before;
    // Changes what a validation found, on its worker thread.
    std::function<void(ValidationReport& report)> afterValidate;

    std::atomic<bool> lost{false};  // what connectionLost() says

    Status connect(const std::string& path, bool anew, const TaskContext& context) override {
        SHARDSCOPE_TRY(announce("connect", context));
        return catalog ? Status() : real_->connect(path, anew, context);
    }
    bool connectionLost(const std::string& path) const override {
        return lost || real_->connectionLost(path);
    }
    Result<HostFacts> lookAt(const HostSpec& where, const CheckpointPtr& checkpoint,
                             const HostQuestion& question, const TaskContext& context) override {
        SHARDSCOPE_TRY(announce("lookAt", context));
        return real_->lookAt(where, checkpoint, question, context);
    }
    Result<CheckpointPtr> open(const std::string& path, const CheckpointOptions& options,
                               const TaskContext& context) override;
    Result<std::variant<CheckpointPtr, RunPtr>> openAny(const std::string& path,
                                                        const CheckpointOptions& options,
                                                        const TaskContext& context) override {
        if (catalog) {
            SHARDSCOPE_ASSIGN(CheckpointPtr checkpoint, open(path, options, context));
            return std::variant<CheckpointPtr, RunPtr>(std::move(checkpoint));
        }
        SHARDSCOPE_TRY(announce("open", context));
        return real_->openAny(path, options, context);
    }
    Result<RunListingPtr> listRun(const std::string& path, const CheckpointOptions& options,
                                  const std::string& openedHow, ValidateLevel level,
                                  const TaskContext& context) override {
        SHARDSCOPE_TRY(announce("listRun", context));
        return catalog ? RunListingPtr() : real_->listRun(path, options, openedHow, level, context);
    }
    Result<StepVerdict> judgeStep(const RunListingPtr& run, size_t row, const CheckpointOptions& options,
                                  const std::string& openedHow, ValidateLevel level,
                                  const TaskContext& context) override {
        SHARDSCOPE_TRY(announce("judgeStep", context));
        return real_->judgeStep(run, row, options, openedHow, level, context);
    }
    Result<std::vector<TensorValues>> stepValues(const RunListingPtr& run, size_t row,
                                                 const std::string& openedHow) override {
        return real_->stepValues(run, row, openedHow);
    }
    Result<uint64_t> saveIndex(const CheckpointPtr& checkpoint, const std::string& file, bool overwrite,
                               const TaskContext& context) override;
    Result<ValidationReport> validate(const CheckpointPtr& checkpoint, const ValidateOptions& options,
                                      const CheckpointPtr& expect, const TaskContext& context) override;
    Result<DiffReport> diff(const CheckpointPtr& a, const CheckpointPtr& b, const DiffOptions& options,
                            const TaskContext& context) override;
    Result<Preview> preview(const CheckpointPtr& source, const std::string& destination,
                            const ConversionRequest& request, const TaskContext& context) override;
    Result<TensorStatistics> statistics(const CheckpointPtr& checkpoint, TensorId tensor, size_t bins,
                                        const TaskContext& context) override;
    Result<SliceValues> slice(const CheckpointPtr& checkpoint, const SliceRequest& request,
                              const TaskContext& context) override;
    Result<Value> object(const CheckpointPtr& checkpoint, ObjectId object,
                         const TaskContext& context) override;

  private:
    Status announce(const char* call, const TaskContext& context) const {
        return before ? before(call, context) : Status();
    }
    std::shared_ptr<EngineService> real_ = localEngine();
};

}  // namespace shardscope::ui
