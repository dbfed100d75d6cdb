#include "ui/models/filtered_tensors.h"

#include <numeric>

#include "survey/filter.h"

namespace shardscope::ui {

namespace {
constexpr int kDelay = 80;  // milliseconds after the last key
}

FilteredTensors::FilteredTensors(Tasks& tasks, QObject* parent) : QObject(parent), tasks_(tasks) {
    timer_.setSingleShot(true);
    timer_.setInterval(kDelay);
    connect(&timer_, &QTimer::timeout, this, &FilteredTensors::start);
}

void FilteredTensors::begin(CheckpointPtr checkpoint, std::shared_ptr<const ModuleTree> tree) {
    end();
    checkpoint_ = std::move(checkpoint);
    whole_ = std::move(tree);
    takeAll();
}

void FilteredTensors::end() {
    ticket_.drop();
    checkpoint_.reset();
    facts_.reset();
    whole_.reset();
    tree_.reset();
    tensors_.clear();
    active_ = false;
    error_.clear();
}

void FilteredTensors::takeAll() {
    active_ = false;
    tree_ = whole_;
    tensors_.resize(checkpoint_->catalog().tensorCount());
    std::iota(tensors_.begin(), tensors_.end(), 0U);
}

void FilteredTensors::setText(const QString& text) {
    text_ = text.trimmed();
    timer_.start();
}

void FilteredTensors::setFacts(std::shared_ptr<const Facts> facts) {
    facts_ = std::move(facts);
    if (text_.contains("status:")) start();
}

void FilteredTensors::start() {
    ticket_.drop();
    if (!checkpoint_) return;
    auto parsed = Filter::parse(text_.toStdString());
    if (!parsed.ok()) {
        // What is shown stays while a token is being typed.
        error_ = QString::fromStdString(parsed.error().message);
        emit changed();
        return;
    }
    error_.clear();
    if (parsed->empty()) {
        takeAll();
        emit changed();
        return;
    }
    ticket_ = tasks_.run<Passed>(
        Work::query, tr("Filtering"),
        [checkpoint = checkpoint_, facts = facts_,
         filter = std::move(parsed).value()](const TaskContext& context) -> Result<Passed> {
            Passed passed;
            passed.tensors = filter.apply(checkpoint->catalog(), facts.get(), context.stop);
            passed.tree = std::make_shared<ModuleTree>(
                ModuleTree::build(checkpoint->catalog(), passed.tensors, context.stop));
            SHARDSCOPE_TRY(context.stop.poll());
            return passed;
        },
        [this](Result<Passed> answer) {
            if (!answer.ok()) {
                error_ = QString::fromStdString(answer.error().message);
            } else {
                active_ = true;
                tensors_ = std::move(answer->tensors);
                tree_ = std::move(answer->tree);
            }
            emit changed();
        });
}

}  // namespace shardscope::ui
