#include "engine/report.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <map>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "base/units.h"
#include "engine/embedded.h"
#include "engine/html_template.h"
#include "engine/report_forms.h"
#include "validate/rules.h"

namespace shardscope {

namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr size_t kMostRanksDrawn = 512;

OrderedJson dims(const Dims& values) {
    return OrderedJson(values);
}

// The value that has this name, of an enumeration of three.
template <class Value>
std::optional<Value> oneOfThree(std::string_view name, std::string_view (*nameOf)(Value)) {
    for (int i = 0; i < 3; ++i) {
        if (nameOf(static_cast<Value>(i)) == name) return static_cast<Value>(i);
    }
    return std::nullopt;
}

}  // namespace

const char* verdictSentence(Verdict verdict) {
    switch (verdict) {
        case Verdict::safe:
            return "Whole";
        case Verdict::care:
            return "Resume with care";
        case Verdict::unsafe:
            return "Do not resume";
    }
    return "";
}

const Suppression* suppressionOf(const Finding& finding, const std::vector<Suppression>& suppressions) {
    const auto it = std::find_if(suppressions.begin(), suppressions.end(), [&](const Suppression& s) {
        return s.rule == finding.rule && s.cause == finding.cause;
    });
    return it == suppressions.end() ? nullptr : &*it;
}

std::string Judgement::found() const {
    std::string found;
    const auto add = [&](size_t count, const char* noun, const char* what = "") {
        if (count) found += (found.empty() ? "" : ", ") + counted(count, noun) + what;
    };
    add(errors, "error");
    add(warnings, "warning");
    add(accepted, "finding", " accepted");
    return found.empty() ? "no problems" : found;
}

std::string Judgement::words() const {
    if (partly()) return fmt::format("Not all values were read: {} so far", found());
    return fmt::format("{}: {}", verdictSentence(verdict), found());
}

Judgement judgementOf(const ValidationReport& report, const std::vector<Suppression>& suppressions) {
    Judgement judgement{report.verdict, report.stopped};
    for (const Finding& finding : report.findings) {
        if (suppressionOf(finding, suppressions))
            ++judgement.accepted;
        else if (finding.severity == Severity::error)
            ++judgement.errors;
        else if (finding.severity == Severity::warning)
            ++judgement.warnings;
    }
    if (judgement.accepted)
        judgement.verdict = judgement.errors     ? Verdict::unsafe
                            : judgement.warnings ? Verdict::care
                                                 : Verdict::safe;
    return judgement;
}

Verdict verdictWithout(const ValidationReport& report, const std::vector<Suppression>& suppressions) {
    return judgementOf(report, suppressions).verdict;
}

bool anyAsSevere(const ValidationReport& report, const std::vector<Suppression>& suppressions,
                 Severity severity) {
    return std::ranges::any_of(report.findings, [&](const Finding& f) {
        return f.severity >= severity && !suppressionOf(f, suppressions);
    });
}

std::string validationJson(const ValidationReport& report, const std::vector<Suppression>& suppressions,
                           size_t mostExamples) {
    OrderedJson json;
    json["schema"] = "shardscope.validate/1";
    const Judgement judgement = judgementOf(report, suppressions);
    json["verdict"] = verdictName(judgement.verdict);
    json["verdict_strict"] = verdictName(report.verdict);
    json["words"] = judgement.words();
    json["level"] = levelName(report.level);
    json["checked"] = report.checked;
    json["not_checked"] = OrderedJson::array();
    json["not_checked_options"] = OrderedJson::array();
    for (const NotChecked& each : report.notChecked) {
        json["not_checked"].push_back(each.text());
        json["not_checked_options"].push_back(each.option.empty() ? OrderedJson() : OrderedJson(each.option));
    }
    json["findings"] = OrderedJson::array();
    for (const Finding& finding : report.findings) {
        OrderedJson entry;
        entry["rule"] = finding.rule;
        entry["severity"] = severityName(finding.severity);
        entry["count"] = finding.count;
        entry["message"] = finding.message;
        entry["cause"] = finding.cause;
        if (const std::string about = aboutText(finding); !about.empty()) entry["about"] = about;
        if (const Suppression* accepted = suppressionOf(finding, suppressions))
            entry["accepted"] = {{"reason", accepted->reason}, {"by", accepted->by}, {"at", accepted->at}};
        entry["examples"] = OrderedJson::array();
        for (const FindingExample& example : finding.examples) {
            if (entry["examples"].size() == mostExamples) break;
            OrderedJson e;
            e["tensor"] = example.tensor.empty() ? OrderedJson() : OrderedJson(example.tensor);
            e["rank"] = example.rank == kNone ? OrderedJson() : OrderedJson(example.rank);
            e["file"] = example.file.empty() ? OrderedJson() : OrderedJson(example.file);
            e["offset"] = example.offset ? OrderedJson(*example.offset) : OrderedJson();
            e["offsets"] = example.box ? dims(example.box->offsets) : OrderedJson();
            e["lengths"] = example.box ? dims(example.box->lengths) : OrderedJson();
            if (!example.detail.empty()) e["detail"] = example.detail;
            entry["examples"].push_back(std::move(e));
        }
        json["findings"].push_back(std::move(entry));
    }
    // Names from files may be invalid UTF-8; what is not is replaced rather than refused.
    return dumpJson(json);
}

// Of the text that a report has, with the option that it ends with.
static NotChecked notCheckedOf(std::string text, std::string option) {
    NotChecked each{std::move(text), std::move(option)};
    const size_t end = each.option.empty() ? 0 : each.option.size() + 3;
    if (end && each.what.size() > end) each.what.resize(each.what.size() - end);
    return each;
}

Result<ValidationReport> validationFromJson(std::string_view text) {
    try {
        const nlohmann::json json = nlohmann::json::parse(text);
        const auto textOr = [](const nlohmann::json& value) {
            return value.is_null() ? std::string() : value.get<std::string>();
        };
        ValidationReport report;
        const auto level = oneOfThree(json.at("level").get<std::string>(), levelName);
        const auto verdict = oneOfThree(json.at("verdict").get<std::string>(), verdictName);
        if (!level || !verdict) return damaged("a report with an unknown level or verdict");
        report.level = *level;
        const auto strict = oneOfThree(json.value("verdict_strict", std::string()), verdictName);
        report.verdict = strict.value_or(*verdict);
        report.checked = json.at("checked").get<std::vector<std::string>>();
        const auto notChecked = json.at("not_checked").get<std::vector<std::string>>();
        const auto options = json.value("not_checked_options", nlohmann::json::array());
        for (size_t i = 0; i < notChecked.size(); ++i)
            report.notChecked.push_back(
                notCheckedOf(notChecked[i], i < options.size() ? textOr(options[i]) : std::string()));
        for (const auto& entry : json.at("findings")) {
            Finding finding;
            finding.rule = entry.at("rule").get<std::string>();
            const auto severity = oneOfThree(entry.at("severity").get<std::string>(), severityName);
            if (!severity) return damaged("a report with an unknown severity");
            finding.severity = *severity;
            finding.count = entry.at("count").get<uint64_t>();
            finding.message = entry.at("message").get<std::string>();
            finding.cause = entry.at("cause").get<std::string>();
            for (const auto& e : entry.at("examples")) {
                FindingExample example;
                example.tensor = textOr(e.at("tensor"));
                if (!e.at("rank").is_null()) example.rank = e.at("rank").get<uint32_t>();
                example.file = textOr(e.at("file"));
                if (!e.at("offset").is_null()) example.offset = e.at("offset").get<uint64_t>();
                if (!e.at("offsets").is_null())
                    example.box = Box{e.at("offsets").get<Dims>(), e.at("lengths").get<Dims>()};
                example.detail = e.value("detail", std::string());
                finding.examples.push_back(std::move(example));
            }
            report.findings.push_back(std::move(finding));
        }
        return report;
    } catch (const nlohmann::json::exception&) {
        return damaged("not a report of a validation");
    }
}

namespace {

nlohmann::json findingsOf(const ValidationReport& report, const std::vector<Suppression>& suppressions) {
    nlohmann::json list = nlohmann::json::array();
    for (const Finding& finding : report.findings) {
        const Suppression* accept = suppressionOf(finding, suppressions);
        const RuleInfo* rule = findRule(finding.rule);
        nlohmann::json lines = nlohmann::json::array();
        for (size_t i = 0; i < finding.examples.size() && i < kMostExamplesShown; ++i)
            lines.push_back(exampleText(finding.examples[i]));
        nlohmann::json one{{"open", finding.severity == Severity::error && !accept},
                           {"severity", severityName(finding.severity)},
                           {"rule", finding.rule},
                           {"message", finding.message},
                           {"reason", accept ? accept->reason : ""},
                           {"cause", finding.cause},
                           {"about", rule ? fmt::format("{} {}", rule->meaning, rule->remedy) : ""},
                           {"all", finding.count > kMostExamplesShown && !lines.empty() ? finding.count : 0}};
        if (!lines.empty()) one["examples"]["lines"] = std::move(lines);
        list.push_back(std::move(one));
    }
    return list;
}

// Bars of the bytes that each rank holds; where there are too many, each is the largest of its neighbors.
nlohmann::json ranksOf(const std::vector<uint64_t>& ranks) {
    const size_t group = (ranks.size() + kMostRanksDrawn - 1) / kMostRanksDrawn;
    const uint64_t most = std::max<uint64_t>(1, *std::max_element(ranks.begin(), ranks.end()));
    const size_t count = (ranks.size() + group - 1) / group;
    const double width = 1024.0 / static_cast<double>(count);
    nlohmann::json bars = nlohmann::json::array();
    for (size_t b = 0; b < count; ++b) {
        const size_t end = std::min(ranks.size(), (b + 1) * group);
        const uint64_t bytes = *std::max_element(ranks.begin() + static_cast<std::ptrdiff_t>(b * group),
                                                 ranks.begin() + static_cast<std::ptrdiff_t>(end));
        const double height = 116.0 * static_cast<double>(bytes) / static_cast<double>(most);
        const auto number = [](double value) { return fmt::format("{:.2f}", value); };
        bars.push_back(
            {{"x", number(static_cast<double>(b) * width)},
             {"y", number(118 - height)},
             {"width", number(std::max(0.5, width - 1))},
             {"height", number(height)},
             {"title", fmt::format("rank {}{}: {}", b * group,
                                   group > 1 ? fmt::format(" to {} (largest)", end - 1) : std::string(),
                                   bytesText(bytes))}});
    }
    return {{"bars", std::move(bars)}, {"largest", bytesText(most)}, {"count", ranks.size()}};
}

// What the page says of one validation.
nlohmann::json judgedOf(const ValidationReport& report, const std::vector<Suppression>& suppressions) {
    const Verdict verdict = verdictWithout(report, suppressions);
    std::string notChecked;
    for (const NotChecked& each : report.notChecked)
        notChecked += (notChecked.empty() ? "" : "; ") + each.text();
    return {{"verdict", verdictName(verdict)},
            {"sentence", verdictSentence(verdict)},
            {"found", report.findings.empty() ? std::string("Nothing was found.")
                                              : counted(report.findings.size(), "finding")},
            {"accepted",
             std::count_if(report.findings.begin(), report.findings.end(),
                           [&](const Finding& f) { return suppressionOf(f, suppressions) != nullptr; })},
            {"not_checked", notChecked},
            {"findings", findingsOf(report, suppressions)}};
}

nlohmann::json pageOf(const std::string& path, ValidateLevel level) {
    return {{"path", path},
            {"time", fmt::format("{:%Y-%m-%d %H:%M}", fmt::gmtime(std::time(nullptr)))},
            {"level", levelName(level)}};
}

}  // namespace

std::string validationHtml(const Checkpoint& checkpoint, const ValidationReport& report,
                           const std::vector<Suppression>& suppressions) {
    const Catalog& catalog = checkpoint.catalog();
    nlohmann::json page = pageOf(checkpoint.path, report.level);
    page["format"] = checkpoint.format ? checkpoint.format->info().title : "";
    page["writer"] = catalog.writer();
    page["judged"] = nlohmann::json::array({judgedOf(report, suppressions)});
    const std::pair<const char*, std::string> cards[] = {
        {"Tensors", countText(catalog.tensorCount())},
        {"Parameters", countText(catalog.elementsOf(Role::parameter))},
        {"Optimizer elements", countText(catalog.elementsOf(Role::optimizer))},
        {"Bytes", bytesText(catalog.totalBytes())},
        {"Chunks", countText(catalog.chunkCount())},
        {"Objects", countText(catalog.objects().size())},
        {"Files", countText(catalog.files().size())},
        {"Ranks", countText(catalog.rankCount())}};
    for (const auto& [name, value] : cards)
        page["cards"].push_back({{"name", name}, {"value", value}});

    std::map<std::string, std::pair<uint64_t, uint64_t>> dtypes;
    std::vector<uint64_t> ranks(std::max<uint32_t>(1, catalog.rankCount()), 0);
    for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
        auto& share = dtypes[std::string(dtypeName(catalog.dtype(t)))];
        ++share.first;
        if (catalog.aliasOf(t) == kNone) share.second += catalog.bytes(t);
        for (ChunkId c = catalog.firstChunk(t); c < catalog.endChunk(t); ++c) {
            const ChunkInfo chunk = catalog.chunk(t, c);
            const uint32_t rank = chunk.rank == kNone ? 0 : chunk.rank;
            if (rank < ranks.size()) ranks[rank] += chunk.length;
        }
    }
    for (const auto& [name, share] : dtypes)
        page["content"]["dtypes"].push_back(
            {{"name", name}, {"tensors", countText(share.first)}, {"bytes", bytesText(share.second)}});
    if (const auto mesh = meshOf(catalog)) {
        page["mesh"] = {{"text", formatMesh(*mesh)},
                        {"from", mesh->source == Mesh::Source::declared ? "as the checkpoint declares it"
                                                                        : "inferred from its chunks"}};
        if (!mesh->evidence.empty()) page["mesh"]["evidence"]["sentences"] = mesh->evidence;
    }
    if (ranks.size() > 1) page["ranks"] = ranksOf(ranks);
    return fillTemplate(embeddedText("report/report.html"), page);
}

std::string runHtml(const std::string& path, std::span<const JudgedPath> steps, ValidateLevel level,
                    const std::string& resume) {
    nlohmann::json page = pageOf(path, level);
    page["format"] = fmt::format("A run with {}", counted(steps.size(), "step"));
    page["resume"] = resume;
    for (const JudgedPath& step : steps) {
        nlohmann::json judged = judgedOf(step.report, step.accepted);
        judged["step"] = step.path;
        page["judged"].push_back(std::move(judged));
    }
    return fillTemplate(embeddedText("report/report.html"), page);
}

}  // namespace shardscope
