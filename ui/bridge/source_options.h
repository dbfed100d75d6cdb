// How a checkpoint is opened beyond its path, in the words of the command line. So commands, jobs and the
// list of recent checkpoints can repeat it (engine/request.h: openingOf).
#pragma once

#include <QList>
#include <QString>
#include <QStringList>
#include <utility>

#include "engine/engine.h"

namespace shardscope::ui {

struct SourceOptions {
    QString format;   // --format; empty = found by content
    QString variant;  // --variant KEY=VALUE: which of several checkpoints, or how it is read
    QList<std::pair<QString, QString>> own;  // options of formats: ("--tp-dim", "GLOB=1")
    QStringList further;                     // other options, as words: "--name", "value"

    bool operator==(const SourceOptions&) const = default;
    bool empty() const { return words().isEmpty(); }
    // All of it: "--format", "dcp", ...
    QStringList words() const;
    QStringList valuesOf(const QString& option) const;  // of `own`
    // `text` is a piece of a command line; quotes group words.
    static QStringList split(const QString& text);
    static SourceOptions fromWords(const QStringList& words);
    // Errors: usage, naming the word.
    Result<Opening> opening() const;
    Result<CheckpointOptions> toEngine() const;  // the same
};

}  // namespace shardscope::ui
