// Collects what the rules find, one entry for each cause.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "validate/validate.h"

namespace shardscope {

// Whether a rule is one of the published ones; notes of other kinds are not findings.
bool isValidationRule(std::string_view rule);

class Findings {
  public:
    explicit Findings(size_t maxExamples) : maxExamples_(maxExamples) {}

    // Occurrences with the same rule and cause are one finding; `cause` may be empty. The severity is the
    // worst of them, the message the first one unless setMessage() gives another. Thread-safe.
    void add(std::string_view rule, Severity severity, std::string_view cause, std::string_view message,
             FindingExample example, uint64_t count = 1);
    // Adds examples beyond the first to a finding without counting them.
    void addExample(std::string_view rule, std::string_view cause, FindingExample example);
    void setMessage(std::string_view rule, std::string_view cause, std::string message);
    bool has(std::string_view rule, std::string_view cause) const;
    bool hasRule(std::string_view rule) const;

    // Errors first, then by rule and cause.
    std::vector<Finding> take() &&;

  private:
    mutable std::mutex mutex_;
    std::map<std::pair<std::string, std::string>, Finding> findings_;
    const size_t maxExamples_;
};

FindingExample exampleOf(const Catalog& catalog, const ChunkInfo& chunk, std::string detail = {});

// What the rules that read every value work on, and what they fill in (validate.h).
struct ValueScope {
    const Reader& reader;
    const std::vector<bool>& readable;  // chunks that the files level could locate
    const Resources& resources;
    Findings& findings;
    std::vector<NotChecked>& notChecked;
    const Catalog* expect = nullptr;  // see ValidateOptions
    const FilledElements* filled = nullptr;
    ValueScan* scan = nullptr;
    const ValueParts* parts = nullptr;
    bool sums = false;
    bool stopped = false;                // out: with a scan, the reading was stopped
    std::vector<TensorValues> values{};  // out: ValidationReport::values
};
// Errors: cancelled, limit.
Status checkValues(ValueScope& scope);

}  // namespace shardscope
