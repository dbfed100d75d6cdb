// A ConversionRequest in Qt's types: what the wizard edits. What it means as words, JSON and settings is the
// engine's to say (engine/request.h).
#pragma once

#include <QString>
#include <QStringList>
#include <cstdint>

#include "base/memory_budget.h"
#include "engine/request.h"
#include "ui/bridge/source_options.h"

namespace shardscope::ui {

struct ConversionSpec {
    QString source, destination;
    SourceOptions options;    // with which the source is opened
    QString format, variant;  // of the target; empty = the source's format, the format's usual variant
    QStringList select, exclude;
    bool weightsOnly = false, skipDamaged = false;
    MasterWeights masterWeights = MasterWeights::automatic;
    QStringList rename;  // "FROM=TO"
    QStringList cast;    // "GLOB=bf16"
    QString mesh;        // "dp=2,tp=4"; empty = without
    QStringList shard;   // "GLOB:tp=0,dp=0"
    QStringList stage;   // "GLOB:pp=1"
    SplitRule split = SplitRule::torch;
    QString dequantize;   // dtype of quantized weights, "bf16"; empty = as stored
    QString adapter;      // a LoRA adapter to merge; empty = none
    QString like, map;    // a checkpoint, a recipe: a file or one that is built in
    QStringList set;      // "NAME=VALUE" for the recipe's parameters
    QString expect;       // a model whose tensors the result must have; empty = none
    QStringList average;  // checkpoints that come before the source; empty = no average
    QString weights;      // "minus-sqrt", "1,2,3", a file; empty = uniform
    bool rawWeights = false, averageOptimizer = false;
    Accumulate accumulate = Accumulate::fp32;
    Average::Rule notAveraged = Average::Rule::last;
    uint64_t maxFileSize = 0;  // bytes; 0 = the format's default
    bool strict = false;
    FillGaps fillGaps = FillGaps::refuse;
    QString objectsFile;
    QString assets;  // empty = those of the checkpoint; "none"; a directory
    Verify verify = Verify::digest;
    // Who works: "local:4", "ssh:HOST,HOST", "slurm:nodes=4", or ranks on this machine:
    // "ranks:4,broadcast", "local-gpus"; empty = one process, on this machine or, when it is said, on that
    // host ("me@node7:2222"), which has all paths.
    QString where, host;
    // Of ranks, as ConversionRequest has it: a recipe may hold it.
    QString backend = QStringLiteral("gloo"), compute = QStringLiteral("auto");
    bool ownDisks = false;
    void leaveRanks() {
        backend = QStringLiteral("gloo"), compute = QStringLiteral("auto"), ownDisks = false;
    }
    unsigned threads = 0;               // 0 = chosen for this machine
    uint64_t memory = kStandardMemory;  // bytes, of the whole process
    IoMode io = IoMode::automatic;
    bool overwrite = false, resume = false, unguarded = false;

    bool operator==(const ConversionSpec&) const = default;

    // The words after `shardscope`: "convert", source, destination and what differs from the defaults.
    QStringList arguments() const;
    ConversionRequest toJob() const;           // the same with paths as there()
    QString there(const QString& path) const;  // "ssh://node7/data/x" where a host does it, else as it is
    // The same as one line for a shell; as a job where others than one process do it.
    QString commandLine() const;
    // The same for the processes that a scheduler starts: each does its part, the last one finishes.
    QString partsCommandLine() const;

    // As the engine, jobs and recipes have it (engine/request.h).
    ConversionRequest toRequest() const;
    // The same for this process to run. Errors: usage, naming the rule or place that is malformed.
    Result<ConversionRequest> toCheckedRequest() const;
    static ConversionSpec fromRequest(const ConversionRequest& request);
    // As files. Saving takes the recipe of `map` in, so that the file stands alone; loading names a recipe
    // with steps as `map`. Both read and write small files. Errors: usage, naming the field or rule; io.
    Status saveRecipe(const QString& path) const;
    static Result<ConversionSpec> loadRecipe(const QString& path);
};

// Whether ConversionSpec::where names places that there can be. Errors: usage.
Status checkWhere(const QString& where);

// A byte count as the command line reads it back exactly: "512MiB", "5GB", "4097".
QString exactSizeText(uint64_t bytes);

}  // namespace shardscope::ui
