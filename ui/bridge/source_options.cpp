#include "ui/bridge/source_options.h"

#include <QProcess>
#include <array>

namespace shardscope::ui {

namespace {

struct Option {
    const char* name;
    void (*set)(CheckpointOptions& options, const std::string& value);
};

constexpr std::array kOptions{
    Option{"--format", [](CheckpointOptions& o, const std::string& value) { o.format = value; }},
    Option{"--variant", [](CheckpointOptions& o, const std::string& value) { o.open.variant = value; }},
};

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
    return words + further;
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
        else
            options.further << name << value;
        return true;
    });
    // What is malformed is kept, so that opening says so.
    if (!whole) options.further << wrong;
    return options;
}

Result<CheckpointOptions> SourceOptions::toEngine() const {
    CheckpointOptions engine;
    QString wrong;
    const bool whole = forEachOption(words(), wrong, [&](const QString& name, const QString& value) {
        for (const Option& option : kOptions) {
            if (name != QLatin1String(option.name)) continue;
            option.set(engine, value.toStdString());
            return true;
        }
        return false;
    });
    if (!whole) {
        std::string known;
        for (const Option& option : kOptions)
            known += (known.empty() ? "" : ", ") + std::string(option.name);
        return makeError(ErrorCode::usage,
                         "'" + wrong.toStdString() + "' is not an option with a value that opening takes")
            .withHint("options of opening: " + known);
    }
    return engine;
}

}  // namespace shardscope::ui
