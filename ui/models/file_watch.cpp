#include "ui/models/file_watch.h"

#include "execute/executor.h"
#include "hosts/launch.h"
#include "ui/models/texts.h"

namespace shardscope::ui {

namespace {
constexpr int kFirstLook = 1000;     // milliseconds from opening to the first look at the files
constexpr int kLookInterval = 5000;  // milliseconds from one look to the next
constexpr int kLookThere = 30'000;   // the same in places elsewhere, where a look is a request
}  // namespace

FileWatch::FileWatch(Tasks& tasks, HostConnection& connection, QObject* parent)
    : QObject(parent), tasks_(tasks), connection_(connection) {
    connect(&timer_, &QTimer::timeout, this, &FileWatch::look);
}

void FileWatch::begin(CheckpointPtr checkpoint, std::vector<FileStamp> stamps, bool again) {
    ticket_.drop();
    checkpoint_ = std::move(checkpoint);
    stamps_ = std::move(stamps);
    changes_.clear();
    settling_ = settling_ && again;
    growth_ = settling_ ? tr("Files were still growing; checking again.") : QString();
    timer_.start(kFirstLook);
}

void FileWatch::end() {
    ticket_.drop();
    timer_.stop();
    checkpoint_.reset();
    changes_.clear();
    growth_.clear();
    settling_ = false;
}

void FileWatch::look() {
    if (!checkpoint_ || ticket_.running()) return;
    connection_.look();
    if (connection_.lost()) return;
    ticket_ = tasks_.run<std::vector<FileStamp>>(
        Work::metadata, tr("Looking at the files"),
        [checkpoint = checkpoint_](const TaskContext& context) {
            return stampsOf(*checkpoint, true, context.stop);
        },
        [this](Result<std::vector<FileStamp>> answer) {
            if (answer.ok()) compare(std::move(answer).value());
        });
}

// A file that grew since the last look is being written. Once all stand still, what changed is said.
void FileWatch::compare(std::vector<FileStamp> now) {
    timer_.setInterval(isElsewhere(checkpoint_->path) ? kLookThere : kLookInterval);
    const auto nameOf = [this](size_t i) {
        if (!checkpoint_->reader->dataElsewhere().empty())
            return toQString(splitPath(checkpoint_->path).second);
        return toQString(checkpoint_->catalog().files()[i].path);
    };
    size_t changed = 0, grown = 0;
    QString first, firstGrown;
    uint64_t firstSize = 0;
    for (size_t i = 0; i < now.size() && i < stamps_.size(); ++i) {
        if (now[i] == stamps_[i]) continue;
        if (changed++ == 0) first = nameOf(i);
        if (now[i].size > stamps_[i].size && grown++ == 0) {
            firstGrown = nameOf(i);
            firstSize = static_cast<uint64_t>(now[i].size);
        }
    }
    if (changed == 0) {
        settling_ = false;
        if (growth_.isEmpty()) return;
        growth_.clear();
        emit this->changed();
        return;
    }
    stamps_ = std::move(now);
    const QString time = momentText(QDateTime::currentDateTime());
    changes_ = changed == 1
                   ? tr("'%1' changed at %2.").arg(first, time)
                   : tr("%1 files changed at %2, '%3' among them.").arg(numberText(changed), time, first);
    growth_ = grown == 0   ? QString()
              : grown == 1 ? tr("'%1' has grown to %2.").arg(firstGrown, sizeText(firstSize))
                           : tr("%1 files grow, '%2' among them.").arg(numberText(grown), firstGrown);
    settling_ = grown > 0;
    emit this->changed();
}

}  // namespace shardscope::ui
