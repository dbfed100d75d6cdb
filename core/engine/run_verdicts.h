// Judges the steps of a run one by one and remembers what it found. So a step which did not change is not
// read again.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "engine/run_directory.h"
#include "engine/suppressions.h"
#include "storage/digest.h"
#include "validate/validate.h"

namespace shardscope {

// What a listing says of a step; nothing is opened.
struct StepFiles {
    uint64_t files = 0, bytes = 0;
    int64_t modifiedNs = 0;  // of the newest file, since 1970; 0 = unknown
    // Of all names, sizes, times and inodes, and of the boot of this machine. A change of any file shows, and
    // what was only in memory when the power went is looked at again.
    Digest128 identity;
    std::optional<Error> error;  // why it cannot be listed: it vanished, or leads nowhere
};
// Looks into the directories of the step, too. Errors: limit for more than a million files.
Result<StepFiles> listStep(const Run& run, const RunStep& step);
// Title of the format that a step looks like; empty where none is recognized without opening it.
std::string formatOfStep(const Run& run, const RunStep& step);

// Tells when the save of a step has ended. Writers name it in their tracker last, so a tracker that names it
// only after the step was seen ends the wait. Else the save has ended when nothing was seen to change for
// `settle`. Times of files do not count: copies keep old ones.
class SaveWatch {
  public:
    explicit SaveWatch(std::chrono::seconds settle) : settle_(settle) {}
    bool isComplete(const Run& run, const RunStep& step, const StepFiles& files);
    // Whether the newest file is older than that wait: by its time, which a copy may keep.
    bool isOld(const StepFiles& files) const;

  private:
    struct Seen {
        Digest128 identity;
        std::chrono::steady_clock::time_point since;
        bool tracked = false;  // when it was first seen
    };
    const std::chrono::seconds settle_;
    std::map<std::string, Seen> seen_;  // by name of the step
};

struct StepVerdict {
    std::string format;                      // title of the format; empty where it does not open
    std::optional<Error> error;              // why it does not open
    ValidationReport report;                 // where it does
    bool remembered = false;                 // nothing was read for it
    uint32_t ranks = 0;                      // that wrote it; 0 = the format does not say
    std::string mesh;                        // "dp=2,tp=4" as the checkpoint declares it; may be empty
    std::vector<Suppression> accepted = {};  // findings that do not count
    Verdict verdict() const { return error ? Verdict::unsafe : verdictWithout(report, accepted); }
    // A run can resume from it: no errors, and no sign that its files are not those of one save.
    bool whole() const { return verdict() != Verdict::unsafe && !reason(); }
    // The finding because of which a run cannot resume from it; null where there is none, or the step does
    // not open.
    const Finding* reason() const;
};
// Of a step that opens.
StepVerdict verdictOf(const Checkpoint& checkpoint, ValidationReport report);

// What the user has accepted of a step.
std::vector<Suppression> acceptedOf(const SuppressionStore& store, const Run& run, const RunStep& step);

// What was found before, for the steps of one run opened in one way. It is a file below
// $XDG_STATE_HOME/shardscope/verdicts. A file beside it has the sums of values of each step that was read at
// level `values`. Not thread-safe. What cannot be read or written counts as not there.
class RunVerdicts {
  public:
    // `openedHow`: options that change what is opened (engine/request.h, openingWords). `directory` empty =
    // as above.
    RunVerdicts(const Run& run, const std::string& openedHow, std::string directory = {});

    // At this level or a deeper one, when the step is as it was then. Without ValidationReport::values.
    std::optional<StepVerdict> find(const RunStep& step, const StepFiles& files, ValidateLevel level) const;
    // The sums of its values, when the step is as it was then. Of more tensors than fit into 64 MiB none are
    // kept.
    std::optional<std::vector<TensorValues>> values(const RunStep& step, const StepFiles& files) const;
    // Forgets steps that the run holds no longer.
    void keep(const Run& run, const RunStep& step, const StepFiles& files, const StepVerdict& verdict);

  private:
    std::string valuesFile(const std::string& step) const;
    void keepValues(const RunStep& step, const StepFiles& files,
                    const std::vector<TensorValues>& values) const;

    // Steps that the run holds no longer; whether there were any.
    bool forgetGone(const Run& run);
    bool addLine(const std::string& line);
    void writeAll();

    std::string file_;
    bool readable_ = false;                       // the file is one of ours; else it is written anew
    bool looked_ = false;                         // for steps that are gone
    size_t added_ = 0;                            // lines of the file
    std::map<std::string, std::string> records_;  // lines of the file, by name of the step
};

// Returns the remembered verdict of a step, or opens and validates it. `validate` checks what was opened at
// `level`. `verdicts` may be null. With `values` the report has those (ValidationReport::values), and a step
// whose values are not remembered is read anew; `validate` sums them up. Errors: cancelled, limit, usage;
// what is wrong with the step is in the answer.
Result<StepVerdict> judgeStep(const Run& run, const RunStep& step, const StepFiles& files,
                              ValidateLevel level, const CheckpointOptions& options,
                              const std::function<Result<ValidationReport>(const Checkpoint&)>& validate,
                              RunVerdicts* verdicts, bool values = false);

}  // namespace shardscope
