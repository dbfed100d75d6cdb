#include "validate/findings.h"

#include <algorithm>

#include "validate/rules.h"

namespace shardscope {

bool isValidationRule(std::string_view rule) {
    return findRule(rule) != nullptr;
}

void Findings::add(std::string_view rule, Severity severity, std::string_view cause, std::string_view message,
                   FindingExample example, uint64_t count) {
    std::lock_guard lock(mutex_);
    Finding& finding = findings_[{std::string(rule), std::string(cause)}];
    if (finding.count == 0) {
        finding.rule = rule;
        finding.cause = cause;
        finding.severity = severity;
        finding.message = message;
    }
    finding.severity = std::max(finding.severity, severity);
    finding.count += count;
    if (finding.examples.size() < maxExamples_) finding.examples.push_back(std::move(example));
}

void Findings::addExample(std::string_view rule, std::string_view cause, FindingExample example) {
    std::lock_guard lock(mutex_);
    const auto it = findings_.find({std::string(rule), std::string(cause)});
    if (it != findings_.end() && it->second.examples.size() < maxExamples_)
        it->second.examples.push_back(std::move(example));
}

void Findings::setMessage(std::string_view rule, std::string_view cause, std::string message) {
    std::lock_guard lock(mutex_);
    const auto it = findings_.find({std::string(rule), std::string(cause)});
    if (it != findings_.end()) it->second.message = std::move(message);
}

bool Findings::has(std::string_view rule, std::string_view cause) const {
    std::lock_guard lock(mutex_);
    return findings_.contains({std::string(rule), std::string(cause)});
}

bool Findings::hasRule(std::string_view rule) const {
    std::lock_guard lock(mutex_);
    return std::any_of(findings_.begin(), findings_.end(),
                       [&](const auto& f) { return f.first.first == rule; });
}

std::vector<Finding> Findings::take() && {
    std::vector<Finding> list;
    for (auto& [key, finding] : findings_) {
        // Workers add in any order.
        std::stable_sort(finding.examples.begin(), finding.examples.end(),
                         [](const FindingExample& a, const FindingExample& b) {
                             if (a.tensor != b.tensor) return a.tensor < b.tensor;
                             if (a.box.has_value() != b.box.has_value()) return b.box.has_value();
                             if (a.box && a.box->offsets != b.box->offsets)
                                 return a.box->offsets < b.box->offsets;
                             return a.rank < b.rank;
                         });
        list.push_back(std::move(finding));
    }
    std::stable_sort(list.begin(), list.end(),
                     [](const Finding& a, const Finding& b) { return a.severity > b.severity; });
    return list;
}

FindingExample exampleOf(const Catalog& catalog, const ChunkInfo& chunk, std::string detail) {
    FindingExample example;
    example.tensor = catalog.name(chunk.tensor);
    example.rank = chunk.rank;
    if (chunk.file != kNone) example.file = catalog.files()[chunk.file].path;
    example.offset = chunk.offset;
    example.box = Box{Dims(chunk.offsets.begin(), chunk.offsets.end()),
                      Dims(chunk.lengths.begin(), chunk.lengths.end())};
    example.detail = std::move(detail);
    return example;
}

}  // namespace shardscope
