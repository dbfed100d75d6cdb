#include "ui/models/recents.h"

#include <QSettings>
#include <algorithm>

namespace shardscope::ui {

Recents::Recents(QObject* parent) : QObject(parent) {
    QSettings settings;
    const int count = std::min(settings.beginReadArray(QStringLiteral("recent")), kMost);
    for (int i = 0; i < count; ++i) {
        settings.setArrayIndex(i);
        Recent recent{settings.value("path").toString(),
                      settings.value("format").toString(),
                      settings.value("verdict").toString(),
                      settings.value("bytes").toULongLong(),
                      settings.value("time").toDateTime(),
                      SourceOptions::fromWords(settings.value("options").toStringList())};
        if (!recent.path.isEmpty()) list_.push_back(std::move(recent));
    }
    settings.endArray();
}

void Recents::save() {
    QSettings settings;
    settings.beginWriteArray(QStringLiteral("recent"), static_cast<int>(list_.size()));
    for (size_t i = 0; i < list_.size(); ++i) {
        settings.setArrayIndex(static_cast<int>(i));
        settings.setValue("path", list_[i].path);
        settings.setValue("format", list_[i].format);
        settings.setValue("verdict", list_[i].verdict);
        settings.setValue("bytes", list_[i].bytes);
        settings.setValue("time", list_[i].time);
        settings.setValue("options", list_[i].options.words());
    }
    settings.endArray();
    emit changed();
}

SourceOptions Recents::optionsOf(const QString& path) const {
    const auto found =
        std::find_if(list_.begin(), list_.end(), [&](const Recent& r) { return r.path == path; });
    return found == list_.end() ? SourceOptions() : found->options;
}

namespace {
constexpr qsizetype kMostChoices = 200;
const QString kChoices = QStringLiteral("formats");  // "path", "format", ..., the latest last
}  // namespace

QString Recents::chosenFormat(const QString& path) {
    const QStringList choices = QSettings().value(kChoices).toStringList();
    for (qsizetype i = 0; i + 1 < choices.size(); i += 2) {
        if (choices[i] == path) return choices[i + 1];
    }
    return {};
}

void Recents::chooseFormat(const QString& path, const QString& format) {
    QSettings settings;
    QStringList choices = settings.value(kChoices).toStringList();
    for (qsizetype i = 0; i + 1 < choices.size(); i += 2) {
        if (choices[i] != path) continue;
        choices.remove(i, 2);
        i -= 2;
    }
    if (!format.isEmpty()) choices << path << format;
    if (choices.size() > 2 * kMostChoices) choices.remove(0, choices.size() - 2 * kMostChoices);
    settings.setValue(kChoices, choices);
}

void Recents::opened(const QString& path, const QString& format, const SourceOptions& options,
                     quint64 bytes) {
    Recent recent{path, format, {}, bytes, QDateTime::currentDateTime(), options};
    const auto old =
        std::find_if(list_.begin(), list_.end(), [&](const Recent& r) { return r.path == path; });
    if (old != list_.end()) {
        recent.verdict = old->verdict;
        list_.erase(old);
    }
    list_.insert(list_.begin(), std::move(recent));
    if (list_.size() > kMost) list_.resize(kMost);
    save();
}

void Recents::validated(const QString& path, const QString& verdict) {
    for (Recent& recent : list_) {
        if (recent.path != path || recent.verdict == verdict) continue;
        recent.verdict = verdict;
        save();
    }
}

void Recents::remove(const QString& path) {
    list_.erase(std::remove_if(list_.begin(), list_.end(), [&](const Recent& r) { return r.path == path; }),
                list_.end());
    save();
}

void Recents::clear() {
    list_.clear();
    save();
}

}  // namespace shardscope::ui
