#include "ui/widgets/task_progress.h"

#include <QHBoxLayout>
#include <QLabel>
#include <QProgressBar>

#include "ui/models/texts.h"
#include "ui/widgets/building.h"
#include "ui/widgets/labels.h"

namespace shardscope::ui {

namespace {
constexpr int kBarSteps = 1000;
constexpr int kWidestBar = 180;
}  // namespace

QString taskText(const TaskStatus& status) {
    if (status.waiting) return TaskProgress::tr("waiting for other work");
    QString text = status.total
                       ? TaskProgress::tr("%1 of %2").arg(sizeText(status.done), sizeText(status.total))
                       : TaskProgress::tr("%1 so far").arg(timeText(status.seconds));
    if (status.rate > 0) text += TaskProgress::tr(", %1/s").arg(sizeText(static_cast<uint64_t>(status.rate)));
    if (status.secondsLeft >= 0) text += TaskProgress::tr(", %1 left").arg(timeText(status.secondsLeft));
    return text;
}

TaskProgress::TaskProgress(const QString& name, QWidget* parent) : QWidget(parent) {
    auto* layout = layoutOf<QHBoxLayout>(this, {0, 0, 0, 0});
    bar_ = withName(new QProgressBar(this), name);
    bar_->setMaximumWidth(kWidestBar);
    bar_->setTextVisible(false);
    text_ = plainLabel(this);
    layout->addWidget(bar_);
    layout->addWidget(text_);
    layout->addStretch(1);
    hide();
}

void TaskProgress::setStatus(const TaskStatus& status) {
    bar_->setRange(0, status.total ? kBarSteps : 0);
    if (status.total) {
        const double share = static_cast<double>(status.done) / static_cast<double>(status.total);
        bar_->setValue(static_cast<int>(kBarSteps * share));
    }
    text_->setText(taskText(status));
    bar_->setAccessibleDescription(text_->text());
}

}  // namespace shardscope::ui
