// Rules over a checkpoint, and what they found.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "execute/executor.h"
#include "formats/format.h"

namespace shardscope {

enum class ValidateLevel : uint8_t { metadata, files, values };
enum class Verdict : uint8_t { safe, care, unsafe };
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

struct ValidationReport {
    Verdict verdict = Verdict::safe;
    ValidateLevel level = ValidateLevel::metadata;
    std::vector<std::string> checked;
    std::vector<std::string> notChecked;
    std::vector<Finding> findings;
};

struct ValidateOptions {
    ValidateLevel level = ValidateLevel::files;
    size_t maxExamples = 100;
    const Catalog* expect = nullptr;  // names, shapes and dtypes that must be there
};

Result<ValidationReport> validateCheckpoint(const Reader& reader, const ValidateOptions& options,
                                            const Resources& resources);

}  // namespace shardscope
