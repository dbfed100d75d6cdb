#include "ui/models/failed_path.h"

#include <QCoreApplication>
#include <QDir>
#include <QFileInfo>
#include <map>

#include "engine/engine.h"
#include "ui/bridge/hosts.h"
#include "ui/models/texts.h"

namespace shardscope::ui {

namespace {

void lookIntoDirectory(FailedPath& at, const QString& path) {
    const auto translated = [](const char* text) { return QCoreApplication::translate("FailedPath", text); };
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
        if (isCheckpointSuffix(entry.suffix().toStdString())) at.files += entry.fileName();
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
    at.found = translated("Looked for .metadata, *.index.json, *.safetensors, *.pt; found %1.")
                   .arg(found.join(", "));
}

}  // namespace

FailedPath lookAtFailedPath(const QString& path, bool choices) {
    FailedPath at;
    if (!hostOf(path).isEmpty()) return at;
    const QFileInfo info(path);
    at.exists = info.exists();
    at.directory = info.isDir();
    at.owner = info.owner();
    if (at.directory) lookIntoDirectory(at, path);
    if (at.directory && choices) at.choices = severalIn(path.toStdString());
    return at;
}

}  // namespace shardscope::ui
