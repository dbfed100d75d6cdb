// All that `shardscope convert` takes, as a value: what the wizard edits, what a job is started with, and
// what a recipe keeps. Rules stay in the text form of the command line (core/plan/request_text.h), so that
// unfinished ones can be held.
#pragma once

#include <QByteArray>
#include <QJsonArray>
#include <QJsonObject>
#include <QString>
#include <QStringList>
#include <cstdint>

#include "engine/engine.h"
#include "ui/bridge/source_options.h"

namespace shardscope::ui {

struct ConversionSpec {
    QString source, destination;
    SourceOptions options;    // with which the source is opened
    QString format, variant;  // of the target; empty = the source's format, the format's usual variant
    QStringList select, exclude;
    bool weightsOnly = false;
    QStringList rename;  // "FROM=TO"
    QStringList cast;    // "GLOB=bf16"
    QString mesh;        // "dp=2,tp=4"; empty = without
    QStringList shard;   // "GLOB:tp=0,dp=0"
    QStringList stage;   // "GLOB:pp=1"
    SplitRule split = SplitRule::torch;
    QString like, map;  // a checkpoint, a recipe: a file or one that is built in
    QStringList set;    // "NAME=VALUE" for the recipe's parameters
    // Steps of a recipe that only a file can hold: carried from file to file. A spec to be run names the file
    // as `map` instead, as loadRecipe() sees to.
    QJsonArray steps;
    QJsonObject parameters;
    uint64_t maxFileSize = 0;  // bytes; 0 = the format's default
    bool strict = false;
    FillGaps fillGaps = FillGaps::refuse;
    QString objectsFile;
    Verify verify = Verify::digest;
    // Who works: "local:4", "ssh:HOST,HOST", "slurm:nodes=4", or ranks in step on this machine:
    // "ranks:4,broadcast", "local-gpus"; empty = one process, on this machine or, when it is said, on that
    // host ("me@node7:2222"), which has all paths.
    QString where, host;
    unsigned threads = 0;                   // 0 = chosen for this machine
    uint64_t memory = uint64_t{512} << 20;  // bytes, of the whole process
    IoMode io = IoMode::automatic;
    bool overwrite = false, resume = false;

    bool operator==(const ConversionSpec&) const = default;

    // The words after `shardscope`: "convert", source, destination and what differs from the defaults. After
    // `shardscope-worker` where ranks do it, with what it takes before them.
    QStringList arguments() const;
    QString there(const QString& path) const;  // "ssh://node7/data/x" where a host does it, else as it is
    // The same as one line for a shell; as a job where others than one process do it.
    QString commandLine() const;
    // The same for the engine of this process. Errors: usage, naming the rule that is malformed.
    Result<ConvertSettings> toSettings() const;

    // As a recipe: steps where `--map` finds them, everything else under "job". fromJson() reads any recipe.
    // Errors: usage, naming the field; for toJson() a malformed rule.
    Result<QJsonObject> toJson() const;
    static Result<ConversionSpec> fromJson(const QJsonObject& recipe);
    // Files of that. Saving takes the steps of `map` into the recipe itself, so that it stands alone. Loading
    // leaves a recipe with `steps` where it is and names it as `map`. Both read and write small files.
    // Errors: those above, io.
    Status saveRecipe(const QString& path) const;
    static Result<ConversionSpec> loadRecipe(const QString& path);
};

// Whether ConversionSpec::where names places that there can be. Errors: usage.
Status checkWhere(const QString& where);

// Whether such arguments are for shardscope-worker: its options come before "convert".
bool wordsOfRanks(const QStringList& arguments);

// A byte count as the command line reads it back exactly: "512MiB", "5GB", "4097".
QString exactSizeText(uint64_t bytes);

}  // namespace shardscope::ui
