#include "ui/models/file_watch.h"

#include <filesystem>

#include "execute/executor.h"
#include "ui/bridge/hosts.h"
#include "ui/models/texts.h"

namespace shardscope::ui {

namespace {
constexpr int kFirstLook = 1000;     // milliseconds from opening to the first look at the files
constexpr int kLookInterval = 5000;  // milliseconds from one look to the next
constexpr int kLookThere = 30'000;   // the same on another host, where a look is a listing
constexpr size_t kMostStamps = 10'000;
}  // namespace

std::vector<FileStamp> stampFiles(const Checkpoint& checkpoint, const StopToken& stop) {
    namespace fs = std::filesystem;
    std::error_code error;
    fs::path directory(checkpoint.path);
    std::vector<FileStamp> stamps;
    if (checkpoint.fileSystem && checkpoint.reader->dataElsewhere().empty()) {
        const auto sizes =
            sizesOfFiles(*checkpoint.fileSystem, directoryOf(checkpoint), checkpoint.catalog(), stop);
        for (size_t f = 0; sizes.ok() && f < sizes->size(); ++f)
            stamps.push_back({checkpoint.catalog().files()[f].path, (*sizes)[f], 0});
        return stamps;
    }
    const auto stamp = [&](const std::string& name, const fs::path& path) {
        const auto status = fs::symlink_status(path, error);
        const bool regular = !error && fs::is_regular_file(status);
        const auto size = regular ? static_cast<int64_t>(fs::file_size(path, error)) : -1;
        const auto time = regular ? fs::last_write_time(path, error).time_since_epoch().count() : 0;
        stamps.push_back({name, size, static_cast<int64_t>(time)});
    };
    // The files that an index speaks of are elsewhere.
    if (!checkpoint.reader->dataElsewhere().empty()) {
        stamp(directory.filename().string(), directory);
        return stamps;
    }
    if (!fs::is_directory(directory, error)) directory = directory.parent_path();
    for (const FileInfo& file : checkpoint.catalog().files()) {
        if (stop.stopRequested() || stamps.size() >= kMostStamps) break;
        if (file.path.empty() || file.path.find("..") != std::string::npos || file.path[0] == '/') continue;
        stamp(file.path, directory / file.path);
    }
    return stamps;
}

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
        [checkpoint = checkpoint_](const TaskContext& context) -> Result<std::vector<FileStamp>> {
            return stampFiles(*checkpoint, context.stop);
        },
        [this](Result<std::vector<FileStamp>> answer) {
            if (answer.ok()) compare(std::move(answer).value());
        });
}

// A file that grew since the last look is being written. Once all stand still, what changed is said.
void FileWatch::compare(std::vector<FileStamp> now) {
    timer_.setInterval(hostOf(toQString(checkpoint_->path)).isEmpty() ? kLookInterval : kLookThere);
    size_t changed = 0, grown = 0;
    QString first, firstGrown;
    uint64_t firstSize = 0;
    for (size_t i = 0; i < now.size() && i < stamps_.size(); ++i) {
        if (now[i].size == stamps_[i].size && now[i].modified == stamps_[i].modified) continue;
        if (changed++ == 0) first = toQString(now[i].path);
        if (now[i].size > stamps_[i].size && grown++ == 0) {
            firstGrown = toQString(now[i].path);
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
    changes_ = changed == 1 ? tr("'%1' changed at %2.").arg(first, time)
                            : tr("%1 files changed at %2, '%3' among them.").arg(changed).arg(time, first);
    growth_ = grown == 0   ? QString()
              : grown == 1 ? tr("'%1' has grown to %2.").arg(firstGrown, sizeText(firstSize))
                           : tr("%1 files grow, '%2' among them.").arg(numberText(grown), firstGrown);
    settling_ = grown > 0;
    emit this->changed();
}

}  // namespace shardscope::ui
