// What the user wants, and the plan that makes it: a value that can be shown, compared and run. Planning
// opens no file.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/regular_expression.h"
#include "base/result.h"
#include "model/catalog.h"
#include "model/name_pattern.h"

namespace shardscope {

struct RecipeStep;  // plan/steps.h; code that makes a TargetRequest includes it
class TensorView;   // plan/view.h

// Shards matching tensors over mesh axes: `axisDims` in mesh order, e.g. {{"tp", 0}, {"dp", 0}}.
struct ShardRule {
    std::string pattern;
    std::vector<std::pair<std::string, int>> axisDims;
};

// Matching tensors live only on ranks with this coordinate.
struct StageRule {
    std::string pattern;
    std::string axis;
    uint32_t coordinate = 0;
};

struct RenameRule {
    std::string from;  // regular expression (RE2), replaced wherever it matches
    std::string to;
};

struct CastRule {
    std::string pattern;
    DType dtype = DType::float32;
};

enum class FillGaps : uint8_t { refuse, nan, zero };
// Whether a parameter of few bits takes its values from its fp32 master, where the optimizer's state has one.
enum class MasterWeights : uint8_t {
    automatic,  // where it is cast to a dtype of more precision than its own
    use,        // always, in the master's dtype unless a cast says another one
    ignore,
};
// How a conversion makes sure of what it has written.
enum class Verify : uint8_t {
    digest,     // reads the destination again
    full,       // and the source once more
    checksums,  // reads nothing: a storage that checks checksums on arrival has done it
    none,
};

// Which tensors and objects are converted or compared (plan/selection.h).
struct TensorChoice {
    std::vector<std::string> select;  // GLOB or re:REGEX; empty = all
    std::vector<std::string> exclude;
    bool weightsOnly = false;  // parameters and buffers: no optimizer state, nothing else of the trainer
};
// The same of a conversion, with where values come from and how dimensions that do not divide evenly are
// split.
struct TargetChoice : TensorChoice {
    MasterWeights masterWeights = MasterWeights::automatic;
    SplitRule split = SplitRule::torch;
};

// What the target is to be: the rules of a conversion's request (engine/engine.h) and of its recipe, parsed.
struct TargetRequest : TargetChoice {
    bool leavesOptimizer = false;   // as an average does; objects stay
    std::vector<RecipeStep> steps;  // on what is selected, before `rename` and `cast`
    // Names that the recipe leaves as they are, GLOB or re:REGEX. With a value, what no step matches and what
    // is not one of these is unknown to the recipe.
    std::optional<std::vector<std::string>> leaves;
    // The tensors are an adapter for PEFT, whose configuration says `alpha`.
    struct Adapter {
        int64_t alpha = 0;
        bool rootOfRank = false;  // scaled by alpha through the root of the rank (use_rslora)
        std::string missing;      // a sentence; empty = alpha is known
    };
    std::optional<Adapter> adapter;
    // For the plan: parameters of the recipe that steps use, and where their values are from.
    std::vector<std::pair<std::string, std::string>> values;
    std::vector<RenameRule> rename;
    std::vector<CastRule> cast;
    std::optional<Mesh> mesh;
    std::vector<ShardRule> shard;
    std::vector<StageRule> stage;
};

// Rename rules, compiled; applied one after the other.
class Renamer {
  public:
    // Errors: usage for a malformed regular expression.
    static Result<Renamer> make(const std::vector<RenameRule>& rules);
    std::string operator()(std::string_view name) const;

  private:
    std::vector<std::pair<RegularExpression, std::string>> rules_;
};

struct PlanLeftOut {
    std::string name;
    std::string why;
};

// How one wanted tensor is made: from one source tensor as it is, or as a view of several.
struct TensorSource {
    TensorId source = kNone;                 // in the source catalog; same shape as the wanted one
    std::shared_ptr<const TensorView> view;  // where `source` is kNone: same shape as the wanted one
    // The source tensors, each once.
    std::vector<TensorId> tensors() const;
    // The dtype of the source tensors; `empty` when there are none.
    DType dtypeIn(const Catalog& source, DType empty) const;
};

// The target before a format has made a layout of it: names, dtypes and boxes of the destination.
struct TargetSpec {
    Catalog target;                     // its chunks have no file yet; its objects carry their values
    std::vector<TensorSource> sources;  // one per wanted tensor
    std::vector<PlanLeftOut> leftOut;   // what the target cannot hold
    std::vector<PlanLeftOut> excluded;  // what the user asked to leave behind
    std::vector<PlanLeftOut> impossible;
    std::vector<PlanLeftOut> renamed;      // old name, new name
    std::vector<PlanLeftOut> made;         // name, and which steps made it of which source tensors
    std::vector<PlanLeftOut> notes;        // name, and what a step left as it is and why
    std::vector<PlanLeftOut> unknown;      // weights that the recipe does not know, and what they are called
    std::set<TensorId> reordered;          // source tensors of a known wrong order that a step puts right
    std::vector<PlanLeftOut> fromMasters;  // name, and the source tensors that give its values in its place
    size_t mastersUnused = 0;              // weights that have a master and are converted as stored
};

// One more tensor of the destination, which is a copy of another one there.
struct WantedCopy {
    Path path;
    std::string of;  // name in the destination
    DType dtype = DType::float32;
    Role role = Role::optimizer;
    std::string why;
};

struct TargetInput {
    const Catalog* source = nullptr;
    const Catalog* like = nullptr;  // a checkpoint whose names and placement are taken over; may be null
    bool replicas = false;          // each rank stores what it has, copies of other ranks' parts included
    bool keepPlacement = false;  // without mesh and `like`: chunks as the source has them, else whole tensors
    std::string format, variant;                         // of the wanted catalog
    std::function<Result<Value>(ObjectId)> objectValue;  // of a source object
    std::function<std::optional<Path>(const Path& path, bool optimizer)>
        pathFor;  // where the target nests an entry in another way. May be null
    std::function<std::string(std::string_view name)>
        cannotHold;  // why the target cannot hold it; empty = it can. May be null
    // Whether an object is the state of an optimizer or of the rest of the trainer. May be null.
    std::function<bool(const ObjectInfo&)> isState;
    // Why a source tensor is left behind as damaged; empty = it is not. May be null.
    std::function<std::string(TensorId)> damaged;
    std::vector<TensorId> masters;  // of each source tensor; kNone = it has none. Empty: there are none
    std::vector<WantedCopy> copies;
    std::set<std::string> apart;  // names that are not aliases, even where they are in the source
};

// Errors: usage (malformed patterns, axes that the mesh lacks, names that collide after renaming, steps that
// do not fit the source).
Result<TargetSpec> resolveTarget(const TargetInput& input, const TargetRequest& request);

struct PlanFile {
    std::string path;
    uint64_t size = 0;
};

struct PlanAveraged {
    std::string path;
    double weight = 0;
};

struct Plan {
    std::string sourcePath, sourceFormat;
    std::string targetPath, targetFormat, targetVariant;
    uint64_t bytesRead = 0;     // tensor data
    uint64_t bytesWritten = 0;  // all files
    uint64_t peakMemory = 0;
    std::vector<PlanFile> files;
    std::vector<std::string> assets;  // of `files`: a model's configuration and tokenizer
    std::string assetsFrom;           // the directory that they are copied from
    std::vector<PlanLeftOut> leftOut;
    std::vector<PlanLeftOut> excluded;
    std::vector<PlanLeftOut> impossible;
    std::vector<PlanLeftOut> changed;  // carried in another form
    std::vector<PlanLeftOut> renamed;
    std::vector<PlanLeftOut> made;         // put together by the steps of a recipe
    std::vector<PlanAveraged> averaged;    // the checkpoints of an average, in order; the source is the last
    std::string accumulate;                // what they are summed up in: "fp32", "fp64"
    std::vector<PlanLeftOut> notAveraged;  // tensors that are taken from one of them
    std::vector<PlanLeftOut> notes;        // what the steps of a recipe left as it is
    std::vector<PlanLeftOut> unknown;      // as TargetSpec
    std::vector<PlanLeftOut> fromMasters;  // as TargetSpec
    size_t mastersUnused = 0;
    // Of a target that is cut as the source is (source_placement.h): axes and dimensions, and which tensors
    // they cut; axes that cut nothing.
    std::vector<PlanLeftOut> placement;
    // Of tensors that the source stores in pieces and the target, on several ranks, as one: too many are a
    // mistake in the rules.
    uint64_t cutBytes = 0, wholeBytes = 0;
    std::string recipe;  // which of the built-in ones was chosen by the names, a sentence; empty = none was
    // Whether the target is a directory that transformers is meant to load, and why it will not: sentences.
    bool forTransformers = false;
    std::vector<std::string> unloadable;
    std::string checksums;  // whether those that the source stores are checked; empty = it stores none
    double estimateSeconds = 0;
    size_t tensors = 0, chunks = 0, objects = 0;
    // Chunks of the source that hold the same elements as others, of which one is read: they are not
    // compared.
    size_t replicas = 0;
    bool runnable() const { return impossible.empty(); }
    // A sentence where more than a fifth of what the source cuts stays whole; else empty.
    std::string wholeWarning() const;
};

// The plan as a person reads it.
std::string planText(const Plan& plan);

}  // namespace shardscope
