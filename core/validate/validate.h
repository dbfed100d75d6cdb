// Applies the rules of `validate` to a checkpoint; a report holds the findings and the verdict.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "execute/executor.h"
#include "execute/value_sums.h"
#include "formats/format.h"

namespace shardscope {

enum class ValidateLevel : uint8_t { metadata, files, values };
enum class Verdict : uint8_t { safe, care, unsafe };
std::string_view levelName(ValidateLevel level);  // "files"
std::string_view verdictName(Verdict verdict);

struct FindingExample {
    std::string tensor;
    uint32_t rank = kNone;
    std::string file;
    std::optional<uint64_t> offset;
    std::optional<Box> box;
    std::string detail;
};

// All occurrences of one rule with one cause.
struct Finding {
    std::string rule;
    Severity severity = Severity::error;
    uint64_t count = 0;
    std::string message;                   // "12 tensors have gaps"
    std::string cause;                     // "__3_0.distcp is missing"
    std::vector<FindingExample> examples;  // gaps: every missing box, up to `maxExamples`
};

// What a validation left out.
struct NotChecked {
    std::string what;
    std::string option;  // the option of the command line that checks it; may be empty
    std::string text() const { return option.empty() ? what : what + " (" + option + ')'; }
    bool operator==(const NotChecked&) const = default;
};

// What all elements of one tensor are like, each counted once whatever replicas are stored.
struct TensorValues {
    std::string tensor;
    Role role = Role::other;
    ValueCounts counts;
    ValueSums sums;
};

struct ValidationReport {
    Verdict verdict = Verdict::safe;
    ValidateLevel level = ValidateLevel::metadata;
    bool stopped = false;  // while values were read: they were looked at in part (ValidateOptions::scan)
    std::vector<std::string> checked;
    std::vector<NotChecked> notChecked;
    std::vector<Finding> findings;
    // With ValidateOptions::sums: of each tensor that was read to its end, in the catalog's order. Not part
    // of the documents about a validation.
    std::vector<TensorValues> values;
};

// How far a reading of all values has come, chunk by chunk. A later validation of the same checkpoint
// continues from it. One validation uses it at a time; its counts may be read meanwhile.
class ValueScan {
  public:
    ValueScan();
    ~ValueScan();
    uint64_t chunksRead() const;
    uint64_t chunks() const;  // 0 before it began

    // As bytes, to continue in another process; may be called while a validation uses it. Only whole chunks
    // are kept. The caller checks that the files are still the same before it restores them.
    std::string save() const;
    // Errors: damaged, or of another catalog or version.
    static Result<std::shared_ptr<ValueScan>> restore(std::string_view bytes, const Catalog& catalog);

    struct State;
    State& state() { return *state_; }

  private:
    std::unique_ptr<State> state_;
};

// Elements that --fill-gaps filled because the source did not hold them. Their record is this file in the
// checkpoint's directory, or beside a checkpoint that is one file (engine/filled.h).
constexpr std::string_view kFilledName = "shardscope.filled.json";
struct FilledElements {
    struct Tensor {
        Dims shape;
        std::optional<std::vector<Box>> boxes;  // disjoint; nullopt = some elements, not known which
    };
    FillGaps fill = FillGaps::nan;
    std::map<std::string, Tensor, std::less<>> tensors;
};

class ValueParts;  // value_parts.h

struct ValidateOptions {
    ValidateLevel level = ValidateLevel::files;
    size_t maxExamples = 100;
    // Names, shapes and dtypes that must be there. NaN where this has gaps is a fill.
    const Catalog* expect = nullptr;
    const FilledElements* filled = nullptr;  // NaN (or zero) in these elements is a fill
    // Notes that the reader cannot know, such as Checkpoint::notes. A note of severity info replaces the
    // reader's own notes with its rule and file.
    const std::vector<Note>* notes = nullptr;
    // For level `values`. A reading that is stopped answers with a report of what was seen until then
    // (`stopped`) instead of an error. The scan keeps it.
    std::shared_ptr<ValueScan> scan;
    // For level `values`: what parts have read is not read again.
    const ValueParts* parts = nullptr;
    // For level `values`: also sums up what is read. Neither with a scan nor with parts, which keep no sums.
    bool sums = false;
};

// Errors: unsupported when `level` needs data that is elsewhere (Reader::dataElsewhere); cancelled.
Result<ValidationReport> validateCheckpoint(const Reader& reader, const ValidateOptions& options,
                                            const Resources& resources);

}  // namespace shardscope
