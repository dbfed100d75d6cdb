#include "ui/bridge/source_options.h"

#include <QProcess>
#include <array>

namespace shardscope::ui {

namespace {

struct Option {
    const char* name;
    bool (*set)(CheckpointOptions& options, const std::string& value);  // false = no such value
};

constexpr std::array kOptions{
    Option{"--format", [](CheckpointOptions& o, const std::string& value) { return o.format = value, true; }},
    Option{"--variant",
           [](CheckpointOptions& o, const std::string& value) { return o.open.variant = value, true; }},
    Option{"--tp-dim",
           [](CheckpointOptions& o, const std::string& value) {
               o.open.tpDim.push_back(value);
               return true;
           }},
    Option{"--master-weights",
           [](CheckpointOptions& o, const std::string& value) {
               if (value != "use" && value != "ignore") return false;
               o.open.masterWeights = value == "use" ? MasterWeights::use : MasterWeights::ignore;
               return true;
           }},
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
    for (const QString& rule : tpDim)
        words << QStringLiteral("--tp-dim") << rule;
    if (!masterWeights.isEmpty()) words << QStringLiteral("--master-weights") << masterWeights;
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
        else if (name == QLatin1String("--tp-dim"))
            options.tpDim << value;
        else if (name == QLatin1String("--master-weights"))
            options.masterWeights = value;
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
            return option.set(engine, value.toStdString());
        }
        return false;
    });
    if (!whole && wrong == QLatin1String("--master-weights"))
        return makeError(ErrorCode::usage, "--master-weights takes 'use' or 'ignore'");
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
