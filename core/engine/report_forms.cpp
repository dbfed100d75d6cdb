#include "engine/report_forms.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "base/units.h"
#include "engine/html_template.h"
#include "storage/digest.h"
#include "storage/file_system.h"
#include "storage/url.h"
#include "validate/rules.h"

namespace shardscope {
namespace {

using OrderedJson = nlohmann::ordered_json;

// One finding of one path, with what all forms say of it.
struct Issue {
    const JudgedPath& of;
    const Finding& finding;
    const Suppression* accepted;  // null = it counts

    std::string text() const {
        return finding.cause.empty() ? finding.message
                                     : fmt::format("{} (cause: {})", finding.message, finding.cause);
    }
    // The file that it is about, else the checkpoint.
    std::string file() const {
        for (const FindingExample& example : finding.examples)
            if (!example.file.empty()) return fileOf(example);
        return of.path;
    }
    std::string fileOf(const FindingExample& example) const {
        return example.file.empty() || of.path.ends_with("/" + example.file)
                   ? of.path
                   : joinPath(of.path, example.file);
    }
    // Stays the same from run to run.
    std::string fingerprint() const {
        const std::string text = of.path + '\0' + finding.rule + '\0' + finding.cause;
        return cellDigest(std::as_bytes(std::span(text))).hex();
    }
};

template <class Use>
void forEachIssue(std::span<const JudgedPath> judged, Severity least, Use&& use) {
    for (const JudgedPath& of : judged) {
        for (const Finding& finding : of.report.findings)
            if (finding.severity >= least) use(Issue{of, finding, suppressionOf(finding, of.accepted)});
    }
}

// ------------------------------------------------------------------ JUnit

bool wasLookedAt(const RuleInfo& rule, const ValidationReport& report) {
    return rule.level <= report.level && (!rule.id.starts_with("expect.") ||
                                          std::ranges::any_of(report.checked, [](const std::string& text) {
                                              return text.find("expect") != std::string::npos;
                                          }));
}

// One test case a rule, so that CI shows which ones ran; findings of a rule are its failures.
std::string suiteOf(const JudgedPath& of) {
    std::map<std::string_view, std::pair<std::string, bool>> bodies;  // by rule: text, and whether it failed
    forEachIssue(std::span(&of, 1), Severity::warning, [&](const Issue& issue) {
        auto& [body, failed] = bodies[issue.finding.rule];
        if (issue.accepted) {
            body += fmt::format("      <system-out>accepted: {} ({})</system-out>\n",
                                escapedMarkup(issue.finding.message), escapedMarkup(issue.accepted->reason));
            return;
        }
        failed = true;
        body += fmt::format("      <failure type=\"{}\" message=\"{}\">",
                            severityName(issue.finding.severity), escapedMarkup(issue.finding.message));
        if (!issue.finding.cause.empty()) body += escapedMarkup("cause: " + issue.finding.cause) + "\n";
        for (size_t i = 0; i < std::min(issue.finding.examples.size(), kMostExamplesShown); ++i)
            body += escapedMarkup(exampleText(issue.finding.examples[i])) + "\n";
        body += "</failure>\n";
    });
    std::string cases;
    size_t failures = 0, skipped = 0;
    for (const RuleInfo& rule : validationRules()) {
        auto& [body, failed] = bodies[rule.id];
        if (body.empty() && !wasLookedAt(rule, of.report)) {
            body = "      <skipped message=\"not looked at by this level\"/>\n";
            ++skipped;
        }
        failures += failed;
        cases +=
            fmt::format("    <testcase classname=\"shardscope.validate\" name=\"{}\">\n{}    </testcase>\n",
                        rule.id, body);
    }
    return fmt::format(
        "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\">\n{}"
        "  </testsuite>\n",
        escapedMarkup(of.path), validationRules().size(), failures, skipped, cases);
}

std::string junit(std::span<const JudgedPath> judged) {
    std::string suites;
    for (const JudgedPath& of : judged)
        suites += suiteOf(of);
    return fmt::format("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n{}</testsuites>\n", suites);
}

// ------------------------------------------------------------------ GitHub's workflow commands

// What would end a command or begin another is %XX there.
std::string commandText(std::string_view text, std::string_view special) {
    std::string out;
    for (const char c : text) {
        if (special.find(c) != std::string_view::npos)
            out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
        else
            out += c;
    }
    return out;
}

std::string github(std::span<const JudgedPath> judged) {
    constexpr std::string_view kInText = "%\r\n", kInValue = "%\r\n:,";
    std::string out;
    forEachIssue(judged, Severity::warning, [&](const Issue& issue) {
        const char* kind = issue.accepted                              ? "notice"
                           : issue.finding.severity == Severity::error ? "error"
                                                                       : "warning";
        std::string text = issue.text();
        if (issue.accepted) text = fmt::format("accepted ({}): {}", issue.accepted->reason, text);
        out += fmt::format("::{} file={},title={}::{}\n", kind, commandText(issue.file(), kInValue),
                           commandText(issue.finding.rule, kInValue), commandText(text, kInText));
    });
    return out;
}

// ------------------------------------------------------------------ GitLab's code quality

std::string gitlab(std::span<const JudgedPath> judged) {
    OrderedJson list = OrderedJson::array();
    forEachIssue(judged, Severity::warning, [&](const Issue& issue) {
        if (issue.accepted) return;
        list.push_back({{"description", issue.text()},
                        {"check_name", issue.finding.rule},
                        {"fingerprint", issue.fingerprint()},
                        {"severity", issue.finding.severity == Severity::error ? "critical" : "minor"},
                        {"location", {{"path", issue.file()}, {"lines", {{"begin", 1}}}}}});
    });
    return dumpJson(list) + "\n";
}

// ------------------------------------------------------------------ SARIF

// A path as a URI reference (RFC 3986).
std::string uriOf(const std::string& path) {
    std::string uri = path.starts_with('/') ? "file://" : "";
    const size_t keep = placeLength(path);
    uri += path.substr(0, keep);
    for (const char c : path.substr(keep)) {
        const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                           std::string_view("/-._~").find(c) != std::string_view::npos;
        uri += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
    return uri;
}

const char* sarifLevel(Severity severity) {
    return severity == Severity::error ? "error" : severity == Severity::warning ? "warning" : "note";
}

OrderedJson sarifRules(std::vector<std::string>& ids) {
    OrderedJson rules = OrderedJson::array();
    for (const RuleInfo& rule : validationRules()) {
        ids.emplace_back(rule.id);
        rules.push_back({{"id", rule.id},
                         {"shortDescription", {{"text", rule.title}}},
                         {"fullDescription", {{"text", rule.meaning}}},
                         {"help", {{"text", fmt::format("{} {}", rule.meaning, rule.remedy)}}}});
    }
    return rules;
}

OrderedJson sarifLocation(const std::string& file, const FindingExample& example) {
    OrderedJson location;
    location["physicalLocation"]["artifactLocation"]["uri"] = uriOf(file);
    if (example.offset) location["physicalLocation"]["region"]["byteOffset"] = *example.offset;
    if (!example.tensor.empty())
        location["logicalLocations"].push_back({{"fullyQualifiedName", example.tensor}, {"kind", "member"}});
    const std::string text = exampleText(example);
    if (!text.empty()) location["message"]["text"] = text;
    return location;
}

OrderedJson sarifResult(const Issue& issue, const std::vector<std::string>& ids) {
    OrderedJson result{{"ruleId", issue.finding.rule}};
    if (const auto at = std::ranges::find(ids, issue.finding.rule); at != ids.end())
        result["ruleIndex"] = at - ids.begin();
    result["level"] = sarifLevel(issue.finding.severity);
    result["message"]["text"] = issue.text();
    result["locations"] = OrderedJson::array();
    const auto& examples = issue.finding.examples;
    for (size_t i = 0; i < std::min(examples.size(), kMostExamplesShown); ++i)
        result["locations"].push_back(sarifLocation(issue.fileOf(examples[i]), examples[i]));
    if (examples.empty()) result["locations"].push_back(sarifLocation(issue.of.path, {}));
    result["occurrenceCount"] = std::max<uint64_t>(1, issue.finding.count);
    result["partialFingerprints"]["shardscope/v1"] = issue.fingerprint();
    if (issue.accepted)
        result["suppressions"].push_back({{"kind", "external"}, {"justification", issue.accepted->reason}});
    return result;
}

std::string sarif(std::span<const JudgedPath> judged) {
    std::vector<std::string> ids;
    OrderedJson run;
    run["tool"]["driver"] = {
        {"name", "shardscope"}, {"version", SHARDSCOPE_VERSION}, {"rules", sarifRules(ids)}};
    run["results"] = OrderedJson::array();
    forEachIssue(judged, Severity::info,
                 [&](const Issue& issue) { run["results"].push_back(sarifResult(issue, ids)); });
    OrderedJson log{{"$schema", "https://json.schemastore.org/sarif-2.1.0.json"}, {"version", "2.1.0"}};
    log["runs"].push_back(std::move(run));
    return dumpJson(log) + "\n";
}

}  // namespace

std::span<const std::pair<const char*, ReportForm>> ciForms() {
    static constexpr std::pair<const char*, ReportForm> kForms[] = {{"junit", ReportForm::junit},
                                                                    {"github", ReportForm::github},
                                                                    {"gitlab", ReportForm::gitlab},
                                                                    {"sarif", ReportForm::sarif}};
    return kForms;
}

std::string validationForm(ReportForm form, std::span<const JudgedPath> judged) {
    switch (form) {
        case ReportForm::junit:
            return junit(judged);
        case ReportForm::github:
            return github(judged);
        case ReportForm::gitlab:
            return gitlab(judged);
        case ReportForm::sarif:
            return sarif(judged);
        default:
            return {};
    }
}

std::string validationJunit(const std::string& path, const ValidationReport& report,
                            const std::vector<Suppression>& accepted) {
    const JudgedPath of{path, report, accepted};
    return junit(std::span(&of, 1));
}

std::string aboutText(const Finding& finding) {
    std::set<uint32_t> ranks;
    std::set<std::string_view> tensors;
    for (const FindingExample& example : finding.examples) {
        if (example.rank != kNone) ranks.insert(example.rank);
        if (!example.tensor.empty()) tensors.insert(example.tensor);
    }
    std::string text;
    if (ranks.size() == 1) text = fmt::format("rank {}", *ranks.begin());
    if (ranks.size() > 1) text = counted(ranks.size(), "rank");
    // A message without a cause counts by itself.
    if (!finding.cause.empty() && finding.examples.size() >= finding.count && !tensors.empty())
        text += (text.empty() ? "" : ", ") + counted(tensors.size(), "tensor");
    return text;
}

std::string exampleText(const FindingExample& e) {
    std::string text;
    const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
    if (!e.tensor.empty()) add(e.tensor);
    if (e.box) add(formatBox(e.box->offsets, e.box->lengths));
    if (e.rank != kNone) add(fmt::format("rank {}", e.rank));
    if (!e.file.empty()) add(e.file);
    if (e.offset) add("byte " + countText(*e.offset));
    if (!e.detail.empty()) add(e.detail);
    return text;
}

}  // namespace shardscope
