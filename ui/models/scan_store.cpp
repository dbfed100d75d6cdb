#include "ui/models/scan_store.h"

#include <QDir>
#include <QFile>
#include <QFileInfo>
#include <QSaveFile>
#include <QStandardPaths>

#include "storage/digest.h"
#include "ui/bridge/file_stamps.h"

namespace shardscope::ui {

namespace {

constexpr size_t kKeyBytes = 32;  // hexadecimal digits before the reading itself

std::string hexDigest(const std::string& text) {
    return cellDigest(std::as_bytes(std::span(text.data(), text.size()))).hex();
}

QString asQString(const std::string& text) {
    return QString::fromStdString(text);
}

}  // namespace

std::string ScanStore::fileOf(const Checkpoint& checkpoint, const std::string& openedHow) {
    const QString directory = QStandardPaths::writableLocation(QStandardPaths::AppDataLocation) + "/scans/";
    return (directory + asQString(hexDigest(checkpoint.path + '\0' + openedHow)) + ".scan").toStdString();
}

std::string ScanStore::keyOf(const Checkpoint& checkpoint, const std::string& openedHow,
                             const StopToken& stop) {
    namespace fs = std::filesystem;
    // Of files on another host the time may be unknown, or too coarse to tell whether they changed.
    if (!checkpoint.reader->dataElsewhere().empty() || checkpoint.fileSystem) return {};
    const auto stamps = stampsOf(checkpoint, true, stop);
    if (!stamps.ok()) return {};
    std::string text = checkpoint.path + '\0' + openedHow + '\0' +
                       std::to_string(checkpoint.catalog().tensorCount()) + '\0' +
                       std::to_string(checkpoint.catalog().chunkCount());
    for (size_t f = 0; f < stamps->size(); ++f) {
        for (const std::string& part :
             {checkpoint.catalog().files()[f].path, std::to_string((*stamps)[f].size),
              std::to_string((*stamps)[f].modifiedNs)})
            text += '\0' + part;
    }
    return hexDigest(text);
}

ScanStore::Kept ScanStore::load(const Checkpoint& checkpoint, const std::string& openedHow,
                                const StopToken& stop) {
    QFile file(asQString(fileOf(checkpoint, openedHow)));
    if (!file.open(QIODevice::ReadOnly)) return {};
    const QByteArray bytes = file.readAll();
    const std::string key = keyOf(checkpoint, openedHow, stop);
    if (stop.stopRequested()) return {};
    const std::string_view all(bytes.constData(), static_cast<size_t>(bytes.size()));
    if (!key.empty() && all.substr(0, kKeyBytes) == key) {
        auto scan = ValueScan::restore(all.substr(kKeyBytes), checkpoint.catalog());
        if (scan.ok()) return {std::move(scan).value(), key};
    }
    file.remove();
    return {};
}

Status ScanStore::save(const Checkpoint& checkpoint, const std::string& openedHow, const std::string& key,
                       const ValueScan& scan) {
    if (key.size() != kKeyBytes || scan.chunksRead() == 0) return {};
    const QString path = asQString(fileOf(checkpoint, openedHow));
    QDir().mkpath(QFileInfo(path).path());
    const std::string bytes = key + scan.save();
    QSaveFile file(path);
    if (!file.open(QIODevice::WriteOnly) ||
        file.write(bytes.data(), static_cast<qint64>(bytes.size())) != static_cast<qint64>(bytes.size()) ||
        !file.commit())
        return makeError(ErrorCode::io,
                         "cannot keep how far the values were read: " + file.errorString().toStdString())
            .inFile(path.toStdString());
    return {};
}

void ScanStore::remove(const Checkpoint& checkpoint, const std::string& openedHow) {
    QFile::remove(asQString(fileOf(checkpoint, openedHow)));
}

}  // namespace shardscope::ui
