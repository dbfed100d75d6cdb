#include "ui/models/suppressions.h"

#include <QDateTime>
#include <QDir>
#include <QFile>
#include <QFileInfo>
#include <QJsonArray>
#include <QJsonDocument>
#include <QJsonObject>
#include <QSaveFile>
#include <QStandardPaths>
#include <algorithm>

namespace shardscope::ui {

Suppressions::Suppressions(QString file, QObject* parent) : QObject(parent), file_(std::move(file)) {
    if (file_.isEmpty())
        file_ = QStandardPaths::writableLocation(QStandardPaths::AppConfigLocation) + "/suppressions.json";
    load();
}

void Suppressions::load() {
    QFile file(file_);
    if (!file.open(QIODevice::ReadOnly)) return;
    const QJsonDocument document = QJsonDocument::fromJson(file.readAll());
    unreadable_ = !document.isArray();
    for (const QJsonValue value : document.array()) {
        const QJsonObject object = value.toObject();
        entries_.push_back(
            {object["checkpoint"].toString(),
             {object["rule"].toString().toStdString(), object["cause"].toString().toStdString(),
              object["reason"].toString().toStdString()}});
    }
}

void Suppressions::save() {
    if (unreadable_) QFile::rename(file_, file_ + ".unreadable");
    unreadable_ = false;
    QJsonArray array;
    for (const Entry& e : entries_) {
        array.append(QJsonObject{{"checkpoint", e.checkpoint},
                                 {"rule", QString::fromStdString(e.suppression.rule)},
                                 {"cause", QString::fromStdString(e.suppression.cause)},
                                 {"reason", QString::fromStdString(e.suppression.reason)}});
    }
    QDir().mkpath(QFileInfo(file_).path());
    QSaveFile file(file_);
    problem_.clear();
    if (!file.open(QIODevice::WriteOnly) || file.write(QJsonDocument(array).toJson()) < 0 || !file.commit())
        problem_ = tr("'%1' was not written: %2.").arg(file_, file.errorString());
}

std::vector<Suppression> Suppressions::of(const QString& checkpoint) const {
    std::vector<Suppression> list;
    for (const Entry& e : entries_) {
        if (e.checkpoint.isEmpty() || e.checkpoint == checkpoint) list.push_back(e.suppression);
    }
    return list;
}

void Suppressions::add(const QString& checkpoint, const Finding& finding, const QString& reason) {
    remove(checkpoint, finding);
    entries_.push_back({checkpoint, {finding.rule, finding.cause, reason.toStdString()}});
    save();
    emit changed();
}

void Suppressions::remove(const QString& checkpoint, const Finding& finding) {
    const auto old = std::remove_if(entries_.begin(), entries_.end(), [&](const Entry& e) {
        return (e.checkpoint == checkpoint || e.checkpoint.isEmpty()) && e.suppression.rule == finding.rule &&
               e.suppression.cause == finding.cause;
    });
    if (old == entries_.end()) return;
    entries_.erase(old, entries_.end());
    save();
    emit changed();
}

}  // namespace shardscope::ui
