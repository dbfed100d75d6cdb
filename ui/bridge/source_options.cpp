#include "ui/bridge/source_options.h"

#include <QProcess>
#include <algorithm>

#include "engine/request.h"

namespace shardscope::ui {

namespace {

// Calls use(name, value) for each option; false when a word has no place.
template <class Use>
bool forEachOption(const QStringList& words, QString& wrong, Use&& use) {
    for (qsizetype i = 0; i < words.size(); ++i) {
        const qsizetype equals = words[i].startsWith(QLatin1String("--")) ? words[i].indexOf('=') : -1;
        wrong = words[i];
        if (!words[i].startsWith(QLatin1String("--"))) return false;
        if (equals > 0) {
            if (!use(words[i].left(equals), words[i].mid(equals + 1))) return false;
        } else if (i + 1 >= words.size() || !use(words[i], words[i + 1])) {
            return false;
        } else {
            ++i;
        }
    }
    return true;
}

}  // namespace

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
    QString wrong;
    const bool whole = forEachOption(words, wrong, [&](const QString& name, const QString& value) {
        if (name == QLatin1String("--format"))
            options.format = value;
        else if (name == QLatin1String("--variant"))
            options.variant = value;
        else if (std::ranges::count(formatOptions(), name.toStdString(), &FormatOption::name))
            options.own.append({name, value});
        else
            options.further << name << value;
        return true;
    });
    // What is malformed is kept, so that opening says so.
    if (!whole) options.further << wrong;
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
