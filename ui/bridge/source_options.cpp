#include "ui/bridge/source_options.h"

#include <QProcess>

#include "engine/request.h"

namespace shardscope::ui {

QStringList SourceOptions::words() const {
    QStringList words;
    if (!format.isEmpty()) words << QStringLiteral("--format") << format;
    if (!variant.isEmpty()) words << QStringLiteral("--variant") << variant;
    for (const auto& [name, value] : own)
        words << name << value;
    return words + further;
}

QStringList SourceOptions::valuesOf(const QString& option) const {
    QStringList values;
    for (const auto& [name, value] : own) {
        if (name == option) values << value;
    }
    return values;
}

QStringList SourceOptions::split(const QString& text) {
    return QProcess::splitCommand(text);
}

SourceOptions SourceOptions::fromWords(const QStringList& words) {
    SourceOptions options;
    options.further = words;
    const auto how = options.opening();
    if (!how.ok()) return options;  // they are kept, so that opening says what is wrong
    options.further.clear();
    options.format = QString::fromStdString(how->format);
    options.variant = QString::fromStdString(how->variant);
    for (const auto& [name, value] : how->own)
        options.own.append({QString::fromStdString(name), QString::fromStdString(value)});
    return options;
}

Result<Opening> SourceOptions::opening() const {
    std::vector<std::string> all;
    for (const QString& word : words())
        all.push_back(word.toStdString());
    return openingOf(all);
}

Result<CheckpointOptions> SourceOptions::toEngine() const {
    SHARDSCOPE_ASSIGN(const Opening how, opening());
    return checkpointOptions(how);
}

}  // namespace shardscope::ui
