// What the filter line lets through of the open checkpoint.
#pragma once

#include <QObject>
#include <QTimer>
#include <memory>
#include <vector>

#include "survey/facts.h"
#include "survey/module_tree.h"
#include "ui/bridge/engine_service.h"
#include "ui/bridge/tasks.h"

namespace shardscope::ui {

class FilteredTensors : public QObject {
    Q_OBJECT
  public:
    explicit FilteredTensors(Tasks& tasks, QObject* parent = nullptr);

    // All tensors of this checkpoint; `tree` has them all. Neither of both tells by a signal.
    void begin(CheckpointPtr checkpoint, std::shared_ptr<const ModuleTree> tree);
    void end();

    // What the filter line says; applied once no key was pressed for a moment.
    void setText(const QString& text);
    // Known some time after the checkpoint is open, and again with findings: what is filtered by status
    // changes with them.
    void setFacts(std::shared_ptr<const Facts> facts);

    const std::vector<TensorId>& tensors() const { return tensors_; }  // ascending
    const std::shared_ptr<const ModuleTree>& tree() const { return tree_; }
    bool active() const { return active_; }          // the filter line says something
    const QString& error() const { return error_; }  // what is wrong with the text; what is shown stays

  signals:
    void changed();

  private:
    struct Passed {
        std::vector<TensorId> tensors;
        std::shared_ptr<const ModuleTree> tree;
    };
    void start();
    void takeAll();

    Tasks& tasks_;
    QTimer timer_;
    Ticket ticket_;
    QString text_;
    CheckpointPtr checkpoint_;
    std::shared_ptr<const Facts> facts_;
    std::shared_ptr<const ModuleTree> whole_, tree_;
    std::vector<TensorId> tensors_;
    bool active_ = false;
    QString error_;
};

}  // namespace shardscope::ui
