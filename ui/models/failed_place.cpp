#include "ui/models/failed_place.h"

#include <QCoreApplication>
#include <QDir>
#include <QFileInfo>
#include <algorithm>
#include <map>
#include <optional>

#include "engine/run_directory.h"
#include "engine/surroundings.h"
#include "ui/bridge/hosts.h"
#include "ui/models/texts.h"

namespace shardscope::ui {

namespace {

constexpr qsizetype kMostChoices = 200;

void lookIntoDirectory(FailedPlace& place, const QString& path) {
    const auto translated = [](const char* text) { return QCoreApplication::translate("FailedPlace", text); };
    std::map<QString, uint64_t> suffixes;
    uint64_t directories = 0;
    const QFileInfoList entries =
        QDir(path).entryInfoList(QDir::AllEntries | QDir::Hidden | QDir::NoDotAndDotDot);
    for (const QFileInfo& entry : entries) {
        if (entry.isDir()) {
            ++directories;
            continue;
        }
        ++suffixes[entry.suffix().isEmpty() ? QString() : '.' + entry.suffix()];
        if (isCheckpointSuffix(entry.suffix().toStdString())) place.files += entry.fileName();
    }
    QStringList found;
    for (const auto& [suffix, count] : suffixes) {
        found += suffix.isEmpty() ? countedText(count, translated("1 file without a suffix"),
                                                translated("%1 files without a suffix"))
                                  : countedText(count, translated("1 %1 file").arg(suffix),
                                                translated("%1 %2 files").arg(QStringLiteral("%1"), suffix));
    }
    if (directories)
        found += countedText(directories, translated("1 directory"), translated("%1 directories"));
    if (found.isEmpty()) found += translated("nothing");
    place.found = translated("Looked for .metadata, *.index.json, *.safetensors, *.pt; found %1.")
                      .arg(found.join(", "));
}

std::optional<PlaceChoice> choiceIn(const QString& path, const QString& name) {
    const auto source = sourceFor((path + '/' + name).toStdString());
    if (!source.ok()) return std::nullopt;
    PlaceChoice choice{name, {}, 0};
    for (const DirectoryEntry& entry : source->entries)
        choice.bytes += entry.size;
    if (const Format* format = detectFormat(*source)) {
        choice.what = toQString(format->info().title);
    } else if (const auto run = findRun(*source)) {
        choice.bytes = 0;
        choice.what =
            QCoreApplication::translate("FailedPlace", "run, %1")
                .arg(countedText(run->steps.size(), QCoreApplication::translate("FailedPlace", "1 step"),
                                 QCoreApplication::translate("FailedPlace", "%1 steps")));
    } else if (const auto below = chooseInRun(*source); !below.ok() || !*below) {
        return std::nullopt;
    }
    return choice;
}

}  // namespace

FailedPlace lookAtFailedPlace(const QString& path, bool choices) {
    FailedPlace place;
    if (!hostOf(path).isEmpty()) return place;
    const QFileInfo info(path);
    place.exists = info.exists();
    place.directory = info.isDir();
    place.owner = info.owner();
    if (place.directory) lookIntoDirectory(place, path);
    if (!place.directory || !choices) return place;
    const QStringList names = QDir(path).entryList(QDir::Dirs | QDir::NoDotAndDotDot);
    for (const QString& name : names.first(std::min(names.size(), kMostChoices))) {
        if (auto choice = choiceIn(path, name)) place.choices.push_back(*std::move(choice));
    }
    return place;
}

}  // namespace shardscope::ui
