#include "ui/models/job_table_model.h"

#include <algorithm>

#include "cluster/worker_list.h"
#include "ui/bridge/hosts.h"
#include "ui/models/texts.h"

namespace shardscope::ui {

JobTableModel::JobTableModel(JobStore& store, QObject* parent)
    : Columns({{tr("Job")},
               {tr("State")},
               {tr("Progress"), false, tr("Of the whole job")},
               {tr("Bytes"), true, tr("Of the present phase")},
               {tr("Rate"), true, tr("Of the present phase")},
               {tr("Time left"), true, tr("Of the whole job")},
               {tr("Where")},
               {tr("Started")}},
              parent),
      store_(store) {
    connect(&store, &JobStore::listChanged, this, &JobTableModel::sync);
    connect(&store, &JobStore::changed, this, [this](const QString& id) {
        const int row = rowOf(id);
        if (row >= 0) emit dataChanged(index(row, 0), index(row, columnCountValue - 1));
    });
    sync();
}

// Rows go and come one by one, so that views keep their selection.
void JobTableModel::sync() {
    QStringList now;
    for (const auto& job : store_.jobs())
        now += job->id;
    for (int row = static_cast<int>(ids_.size()); row-- > 0;) {
        if (now.contains(ids_[row])) continue;
        beginRemoveRows({}, row, row);
        ids_.removeAt(row);
        endRemoveRows();
    }
    for (int row = 0; row < now.size(); ++row) {
        if (row < ids_.size() && ids_[row] == now[row]) continue;
        const int old = rowOf(now[row]);
        if (old >= 0) {  // the order of two jobs has changed: take it out, and put it where it belongs
            beginRemoveRows({}, old, old);
            ids_.removeAt(old);
            endRemoveRows();
        }
        beginInsertRows({}, row, row);
        ids_.insert(row, now[row]);
        endInsertRows();
    }
}

int JobTableModel::rowCount(const QModelIndex& parent) const {
    return parent.isValid() ? 0 : static_cast<int>(ids_.size());
}
QVariant JobTableModel::data(const QModelIndex& index, int role) const {
    if (!checkIndex(index, CheckIndexOption::IndexIsValid)) return {};
    const Job* job = store_.find(ids_[index.row()]);
    if (!job) return {};
    switch (role) {
        case ShareRole:
            return job->share();
        case Qt::ToolTipRole:
            // Escaped, because Qt takes what looks like markup in a tool tip for rich text.
            return QStringLiteral("<p style='white-space:pre'>%1</p>")
                .arg(tr("%1\nto %2")
                         .arg(toQString(job->record.source), toQString(job->record.destination))
                         .toHtmlEscaped());
        case Qt::TextAlignmentRole:
            return alignment(index.column());
        case Qt::DisplayRole:
            break;
        default:
            return {};
    }
    const bool running = job->is(JobState::running);
    switch (index.column()) {
        case title:
            return toQString(job->record.title);
        case state:
            return store_.cancelling(job->id) ? tr("Canceling") : jobStateText(*job);
        case progress: {
            const double share = job->share();
            return job->active() || job->is(JobState::done)
                       ? (share < 0 ? QString() : QString::fromStdString(jobShareText(share)))
                       : QString();
        }
        case bytes:
            if (job->report) return sizeText(job->report->bytesWritten);
            return job->progress.bytesTotal
                       ? tr("%1 of %2")
                             .arg(sizeText(job->progress.bytesDone), sizeText(job->progress.bytesTotal))
                       : QString();
        case rate:
            if (job->report) {
                return job->report->seconds > 0
                           ? tr("%1/s").arg(sizeText(static_cast<uint64_t>(
                                 static_cast<double>(job->report->bytesWritten) / job->report->seconds)))
                           : QString();
            }
            return running && job->progress.rate > 0
                       ? tr("%1/s").arg(sizeText(static_cast<uint64_t>(job->progress.rate)))
                       : QString();
        case left:
            return running && job->progress.secondsLeft >= 0 ? timeText(job->progress.secondsLeft)
                                                             : QString();
        case where: {
            // Who works, then where that was started.
            const QStringList arguments = job->arguments();
            const qsizetype option = arguments.indexOf(QStringLiteral("--on"));
            QString on = option < 0 ? QString() : toQString(arguments.value(option + 1).toStdString());
            if (const auto places = parseWorkers(on.toStdString()); places.ok() && places->ranks)
                on = places->ranks->gpus ? tr("a rank on each GPU")
                                         : countedText(places->ranks->count, tr("1 rank"), tr("%1 ranks"));
            if (const QString there = hostOf(job->source()); !there.isEmpty()) on = there;
            const QString host = job->record.elsewhere ? toQString(job->record.host) : tr("here");
            return on.isEmpty() ? host : tr("%1, from %2").arg(on, host);
        }
        case started:
            return momentText(
                QDateTime::fromString(QString::fromStdString(job->record.started), Qt::ISODateWithMs));
        default:
            return {};
    }
}

std::vector<TextColumn> rateColumns(std::vector<JobRate> rates, double step) {
    const auto of = std::make_shared<const std::vector<JobRate>>(std::move(rates));
    const auto bytes = [=](const QString& title, double JobRate::*amount) -> TextColumn {
        return {{title, true}, [=](size_t at) {
                    const double rate = (*of)[at].*amount / step;
                    return JobTableModel::tr("%1/s").arg(sizeText(static_cast<uint64_t>(rate)));
                }};
    };
    const auto threads = [=](const QString& title, double JobBusy::*seconds) -> TextColumn {
        return {{title, true},
                [=](size_t at) { return QString::number((*of)[at].busy.*seconds / step, 'f', 1); }};
    };
    std::vector<TextColumn> columns{{{JobTableModel::tr("Time"), true},
                                     [step](size_t at) { return timeText(step * static_cast<double>(at)); }},
                                    bytes(JobTableModel::tr("Read"), &JobRate::read),
                                    bytes(JobTableModel::tr("Written"), &JobRate::written)};
    if (std::ranges::any_of(*of, [](const JobRate& rate) { return rate.busy.any(); })) {
        columns.push_back(threads(JobTableModel::tr("Threads reading"), &JobBusy::read));
        columns.push_back(threads(JobTableModel::tr("Threads computing"), &JobBusy::compute));
        columns.push_back(threads(JobTableModel::tr("Threads writing"), &JobBusy::write));
    }
    return columns;
}

}  // namespace shardscope::ui
