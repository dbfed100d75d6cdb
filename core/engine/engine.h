// The front door: opens, validates, plans and converts checkpoints, for command line, page and window.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/memory_budget.h"
#include "base/result.h"
#include "execute/executor.h"
#include "formats/format.h"
#include "plan/plan.h"
#include "validate/validate.h"

namespace shardscope {

// The formats of this build, most specific first.
const std::vector<const Format*>& builtinFormats();
const Format* findFormat(std::string_view name);
// What a name of a format stands for where that is more than the format: "hf" is a model that transformers
// loads. Null where it is the format alone.
// "tensor-parallel" with the variant "vllm" is what "vllm" is.
const FormatInfo::Model* modelAsked(std::string_view name, std::string_view variant);
// Whether the format is written as such models alone, each in a variant of its own.
bool writesModelsAlone(const FormatInfo& format);
// What any of them takes when it opens a checkpoint, each option once.
const std::vector<FormatOption>& formatOptions();
// Whether files of any format have this suffix, without the dot: "pt".
bool isCheckpointSuffix(std::string_view suffix);

// How far an opening is; other threads may read it meanwhile.
struct OpenProgress {
    std::atomic<bool> listed{false};    // the directory; before that nothing is known
    std::atomic<uint64_t> files{0};     // in the directories that were listed
    std::atomic<uint64_t> opened{0};    // of them, for their metadata
    std::atomic<bool> metadata{false};  // all of it has been read
};

// How a source is opened, as the user says it.
struct Opening {
    std::string format;   // empty = detected
    std::string variant;  // "id=3": which of several checkpoints in one directory
    std::vector<std::pair<std::string, std::string>> own;  // options of formats, by their names
    bool operator==(const Opening&) const = default;
};
// How much of this machine work may take.
struct WorkLimits {
    unsigned threads = 0;               // 0 = chosen for the machine
    uint64_t memory = kStandardMemory;  // bytes, of the whole process
    IoMode io = IoMode::automatic;
};

// How openCheckpoint() opens.
struct CheckpointOptions {
    std::string format;  // empty = detected by content
    OpenOptions open;
    IoMode io = IoMode::automatic;
    std::shared_ptr<OpenProgress> progress;  // told how far it is; may be null
    // The file system of the path, such as that of another host (hosts/remote_file_system.h); null = by the
    // path's scheme (storage/url.h), else this machine's. `io` counts for this machine's alone.
    std::shared_ptr<FileSystem> fileSystem;
};
struct FormatMatch {
    const Format* format = nullptr;
    std::string file;  // that it takes for a checkpoint
};
struct Dequantized;  // engine/quantized.h
// How a tensor that is computed while it is read comes about: "dequantized: fp8 with one scale, of 'a', 'b'".
// And the bytes that it is computed of.
struct ComputedTensor {
    std::string how;
    uint64_t stored = 0;
};
using ComputedTensors = std::map<std::string, ComputedTensor, std::less<>>;  // by name
struct Run;
struct ExchangedFiles;  // engine/exchanged_files.h

struct Checkpoint {
    std::string path;
    std::string chosen;  // why `path` is below what was named, the directory of a run; empty where it is not
    // The directory of the step that `path` is a part of: itself, or the one above that holds nothing else
    // ("global_step_5" of "global_step_5/actor"). Empty where a file was named.
    std::string root;
    const Format* format = nullptr;
    std::shared_ptr<const Reader> reader;
    std::shared_ptr<FileSystem> fileSystem;  // as in CheckpointOptions
    // What else is in the directory, where it says something about this checkpoint: files of other formats,
    // and data that no format accounts for. The latter have rule file.unreferenced: a warning, an error where
    // they are the larger share.
    std::vector<Note> notes;
    // Of a checkpoint some of whose tensors are computed (ConversionRequest::dequantize and ::adapter); null
    // = none are.
    std::shared_ptr<const ComputedTensors> computed;
    std::shared_ptr<const Dequantized> dequantized;  // what else there is to say of quantized ones
    // Other formats that fit the directory, because of files which this checkpoint does not consist of.
    std::vector<FormatMatch> others;
    // Its run, where the caller has listed that already; the caller's. Null = it is looked for.
    const Run* run = nullptr;
    std::shared_ptr<ExchangedFiles>
        exchanged;  // what was found by reading files, kept for the next plan; may be null
    std::vector<Note> allNotes() const;  // those of the catalog, then these
    const Catalog& catalog() const { return reader->catalog(); }
};
// Errors: notFound; unsupported when nothing matches (says what the bytes look like: git-lfs pointer, HTML,
// ...).
Result<Checkpoint> openCheckpoint(const std::string& path, const CheckpointOptions& options = {});
// The directory that a checkpoint is, or that its one file is in as it was named; asks its file system.
std::string directoryOf(const Checkpoint& checkpoint);

// Writes the portable index of a checkpoint (formats/index/index.h), whole or not at all; says how many bytes
// it has. Errors: exists unless `overwrite`; usage when it would be inside the checkpoint; cancelled; those
// of writing.
Result<uint64_t> writeIndex(const Checkpoint& checkpoint, const std::string& file, bool overwrite,
                            const StopToken& stop = {});
// The bytes that writeIndex() would write.
Result<std::string> indexBytes(const Checkpoint& checkpoint, const StopToken& stop = {});

// validateCheckpoint() of its reader, with the record of what a conversion filled.
Result<ValidationReport> validateCheckpoint(const Checkpoint& checkpoint, const ValidateOptions& options,
                                            const Resources& resources);

// Errors: unsupported when only an index is here; `what` begins the sentence "validating values
// needs the data".
Status needData(const Checkpoint& checkpoint, std::string_view what);

// A path as formats see it: its directory, listed, and the file in it that was meant. Errors: notFound,
// unsafe, permission.
Result<Source> sourceFor(const std::string& path, IoMode io = IoMode::automatic,
                         std::shared_ptr<FileSystem> fileSystem = nullptr);

// The mesh as the checkpoint declares it, else as its chunks suggest.
std::optional<Mesh> meshOf(const Catalog& catalog);

// Errors: notFound or damaged when the checkpoint holds tensors that its catalog lacks. A file that held them
// is missing or cannot be read. Without `optimizerState` only what may have held others counts.
Status checkComplete(const Catalog& catalog, const std::string& path, bool optimizerState);

// Another checkpoint of an average: what it would become alone.
struct PreparedInput {
    Checkpoint source;
    std::unique_ptr<TargetSpec> spec;
};

// A planned conversion: the plan to look at, and what running it needs.
struct PreparedConversion {
    Checkpoint source;
    std::string destination;
    const Format* format = nullptr;
    WriteOptions writeOptions;
    bool singleFile = false;  // the destination is one file
    // Behind a pointer: the layout refers to the spec.
    std::unique_ptr<TargetSpec> spec;
    std::unique_ptr<TargetLayout> layout;
    std::vector<PreparedInput> inputs;  // of an average, those before the source
    std::unique_ptr<Average> average;   // null = the source alone
    // What the source's computed tensors are made of besides its own: the adapter that is merged in.
    std::shared_ptr<const Reader> adapter;
    std::string adapterWords;  // all that decides its values besides its bytes
    uint64_t adapterHeld = 0;  // bytes of its matrices that are in memory
    FilledElements filled;     // which elements --fill-gaps fills
    Plan plan;
};
// As ConversionRequest::like: the placement of the source itself, over another mesh
// (plan/source_placement.h).
inline constexpr const char* kLikeSource = "source";
enum class Accumulate : uint8_t { fp32, fp64 };

// What the command line, the window, jobs and workers ask for. Rules stay in the text form of the command
// line (plan/request_text.h), so that a form can hold unfinished ones. Every field but the ends is an option
// of `shardscope convert`: the table in request.cpp is the one list of them.
struct ConversionRequest : TargetChoice, ConvertOptions, WorkLimits {
    std::string source, destination;
    Opening opening;                        // of the source
    std::string format, variant;            // of the target; empty = the source's, the format's default
    uint64_t maxFileSize = 0;               // bytes; 0 = the format's default
    std::vector<std::string> rename, cast;  // "FROM=TO", "GLOB=bf16"
    std::string dequantize;        // "bf16": quantized weights as tensors of this dtype; empty = as stored
    std::string adapter;           // a LoRA adapter that is merged into the weights
    bool takesParts = false;       // of quantized weights, too: an extraction
    std::string map;               // a recipe: a file, or one that is built in
    std::vector<std::string> set;  // "NAME=VALUE" for its parameters
    // Checkpoints of which the result is the average, in the order of training; the source comes after them.
    // The other fields for averages count only where there are some.
    std::vector<std::string> average;
    std::string weights;      // empty = uniform; average.h says what else
    bool rawWeights = false;  // not made to sum up to one
    Accumulate accumulate = Accumulate::fp32;
    Average::Rule notAveraged = Average::Rule::last;  // of integers and single elements: last or same
    bool averageOptimizer = false;                    // else optimizer state is left behind
    std::string expect;       // a model, or its config.json alone, whose tensors the result must have
    std::string objectsFile;  // objects that the target cannot hold go there
    std::string assets;       // configuration and tokenizer: "" or "auto", "none", a directory
    bool strict = false;
    std::string mesh;                       // "dp=2,tp=4"
    std::vector<std::string> shard, stage;  // "GLOB:tp=0", "GLOB:pp=1"
    std::string like;                       // a checkpoint whose names and placement are taken over
    std::string on;                         // who works: "local:4", "ranks:4"; empty = one process
    // For ranks: the backend that broadcasts what rank 0 reads for all ("gloo", "nccl"), and what casts
    // ("auto", "cpu", "gpu").
    std::string backend = "gloo", compute = "auto";
    bool ownDisks = false;  // for ranks: each keeps its files of the destination on its own disk
    // For a bucket whose store has no conditional writes: another job with the same destination may not be
    // noticed.
    bool unguarded = false;
};
// Its rules, without those of its recipe. Errors: usage, naming the malformed one.
Result<TargetRequest> targetRequest(const ConversionRequest& request);

// Plans a conversion of `source` to `destination`, whatever ends the request names; writes nothing.
Result<PreparedConversion> prepareConversion(const Checkpoint& source, const std::string& destination,
                                             const ConversionRequest& request, const StopToken& stop = {});
Status checkRunnable(const PreparedConversion& prepared);  // errors: impossible
// The job for the executor. `prepared` and `request` outlive it. `scheduler` gives the work to other
// processes; null = this one does it alone. The destination is written through `files`; null = this machine's
// own file system.
ConvertJob conversionJob(const PreparedConversion& prepared, const ConversionRequest& request,
                         PartScheduler* scheduler = nullptr, std::shared_ptr<FileSystem> files = nullptr);
// Errors: impossible when the plan is not runnable, or --strict and something is left out; else those of the
// executor.
Result<ConvertReport> runPrepared(const PreparedConversion& prepared, const ConversionRequest& request,
                                  Progress* progress, const StopToken& stop = {});

// Buffer memory that a job may take when the whole process is to stay below `memory`, given what is held
// already. Errors: limit when `memory` leaves too little to work with.
Result<uint64_t> bufferBudget(uint64_t memory, uint64_t held);

}  // namespace shardscope
