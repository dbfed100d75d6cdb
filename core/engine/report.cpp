#include "engine/report.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <map>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "validate/rules.h"

namespace shardscope {

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostRanksDrawn = 512;
constexpr size_t kMostExamplesShown = 50;

Json dims(const Dims& values) {
    return Json(values);
}

// For HTML and XML alike. Control characters that XML forbids become question marks.
std::string escaped(std::string_view text) {
    std::string out;
    for (const char c : text) {
        switch (c) {
            case '&':
                out += "&amp;";
                break;
            case '<':
                out += "&lt;";
                break;
            case '>':
                out += "&gt;";
                break;
            case '"':
                out += "&quot;";
                break;
            case '\'':
                out += "&#39;";
                break;
            default:
                out += static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' ? '?' : c;
        }
    }
    return out;
}

std::string exampleText(const FindingExample& e) {
    std::string text;
    const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
    if (!e.tensor.empty()) add(e.tensor);
    if (e.box) add(formatBox(e.box->offsets, e.box->lengths));
    if (e.rank != kNone) add(fmt::format("rank {}", e.rank));
    if (!e.file.empty()) add(e.file);
    if (e.offset) add(fmt::format("byte {}", *e.offset));
    if (!e.detail.empty()) add(e.detail);
    return text;
}

constexpr const char* kLevels[] = {"metadata", "files", "values"};

const char* verdictSentence(Verdict verdict) {
    switch (verdict) {
        case Verdict::safe:
            return "Safe to resume";
        case Verdict::care:
            return "Resume with care";
        case Verdict::unsafe:
            return "Do not resume";
    }
    return "";
}

constexpr const char* kStyle = R"(
:root{color-scheme:light dark;--ink:#1f2328;--soft:#5f6670;--back:#fff;--card:#f4f5f7;--line:#dde0e4;--bar:#0072b2}
@media(prefers-color-scheme:dark){:root{--ink:#e4e6e9;--soft:#9ca2ab;--back:#1e1e1e;--card:#2b2d31;--line:#3a3d42;--bar:#56b4e9}}
body{font:15px/1.45 system-ui,sans-serif;color:var(--ink);background:var(--back);max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.4rem;margin:0 0 .2rem}h2{font-size:1.1rem;margin:2rem 0 .6rem}code,.m{font-family:ui-monospace,monospace;font-size:.9em;overflow-wrap:anywhere}
.soft{color:var(--soft)}.verdict{padding:.8rem 1rem;border-left:6px solid;background:var(--card);margin:1rem 0}
.safe{border-color:#009e73}.care{border-color:#e69f00}.unsafe{border-color:#d55e00}
.cards{display:flex;flex-wrap:wrap;gap:.6rem}.cards div{background:var(--card);padding:.5rem .8rem;border-radius:.3rem}.cards b{display:block;font-size:1.1rem}
details{border:1px solid var(--line);border-radius:.3rem;margin:.5rem 0;padding:.5rem .8rem}summary{cursor:pointer}
.tag{display:inline-block;min-width:4.2em;font-weight:600}.error{color:#d55e00}.warning{color:#b87900}.info{color:var(--soft)}
table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.2rem .6rem .2rem 0;border-bottom:1px solid var(--line)}td.n,th.n{text-align:right}
svg{width:100%;height:auto}rect{fill:var(--bar)}
)";

}  // namespace

const Suppression* suppressionOf(const Finding& finding, const std::vector<Suppression>& suppressions) {
    const auto it = std::find_if(suppressions.begin(), suppressions.end(), [&](const Suppression& s) {
        return s.rule == finding.rule && s.cause == finding.cause;
    });
    return it == suppressions.end() ? nullptr : &*it;
}

Verdict verdictWithout(const ValidationReport& report, const std::vector<Suppression>& suppressions) {
    Verdict verdict = Verdict::safe;
    for (const Finding& finding : report.findings) {
        if (suppressionOf(finding, suppressions)) continue;
        if (finding.severity == Severity::error) verdict = Verdict::unsafe;
        if (finding.severity == Severity::warning && verdict == Verdict::safe) verdict = Verdict::care;
    }
    return verdict;
}

std::string validationJson(const ValidationReport& report) {
    Json json;
    json["schema"] = "shardscope.validate/1";
    json["verdict"] = verdictName(report.verdict);
    json["level"] = kLevels[static_cast<int>(report.level)];
    json["checked"] = report.checked;
    json["not_checked"] = report.notChecked;
    json["findings"] = Json::array();
    for (const Finding& finding : report.findings) {
        Json entry;
        entry["rule"] = finding.rule;
        entry["severity"] = severityName(finding.severity);
        entry["count"] = finding.count;
        entry["message"] = finding.message;
        entry["cause"] = finding.cause;
        entry["examples"] = Json::array();
        for (const FindingExample& example : finding.examples) {
            Json e;
            e["tensor"] = example.tensor.empty() ? Json() : Json(example.tensor);
            e["rank"] = example.rank == kNone ? Json() : Json(example.rank);
            e["file"] = example.file.empty() ? Json() : Json(example.file);
            e["offset"] = example.offset ? Json(*example.offset) : Json();
            e["offsets"] = example.box ? dims(example.box->offsets) : Json();
            e["lengths"] = example.box ? dims(example.box->lengths) : Json();
            if (!example.detail.empty()) e["detail"] = example.detail;
            entry["examples"].push_back(std::move(e));
        }
        json["findings"].push_back(std::move(entry));
    }
    // Names from files may be no valid UTF-8; what is not is replaced rather than refused.
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// One test case a rule, so that CI shows which ones ran; findings of a rule are its failures.
std::string validationJunit(const std::string& path, const ValidationReport& report,
                            const std::vector<Suppression>& suppressions) {
    std::string cases;
    size_t tests = 0, failures = 0, skipped = 0;
    for (const RuleInfo& rule : validationRules()) {
        std::string body;
        bool failed = false;
        for (const Finding& finding : report.findings) {
            if (finding.rule != rule.id || finding.severity == Severity::info) continue;
            if (const Suppression* accepted = suppressionOf(finding, suppressions)) {
                body += fmt::format("      <system-out>accepted: {} ({})</system-out>\n",
                                    escaped(finding.message), escaped(accepted->reason));
                continue;
            }
            failed = true;
            body += fmt::format("      <failure type=\"{}\" message=\"{}\">", severityName(finding.severity),
                                escaped(finding.message));
            if (!finding.cause.empty()) body += escaped("cause: " + finding.cause) + "\n";
            for (size_t i = 0; i < finding.examples.size() && i < kMostExamplesShown; ++i)
                body += escaped(exampleText(finding.examples[i])) + "\n";
            body += "</failure>\n";
        }
        const bool ran =
            rule.level <= report.level &&
            (!rule.id.starts_with("expect.") ||
             std::any_of(report.checked.begin(), report.checked.end(),
                         [](const std::string& text) { return text.find("expect") != std::string::npos; }));
        if (body.empty() && !ran) {
            body = "      <skipped message=\"not looked at by this level\"/>\n";
            ++skipped;
        }
        ++tests;
        failures += failed;
        cases +=
            fmt::format("    <testcase classname=\"shardscope.validate\" name=\"{}\">\n{}    </testcase>\n",
                        rule.id, body);
    }
    return fmt::format(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"{}\" tests=\"{}\" "
        "failures=\"{}\" "
        "errors=\"0\" skipped=\"{}\">\n{}  </testsuite>\n</testsuites>\n",
        escaped(path), tests, failures, skipped, cases);
}

std::string validationHtml(const Checkpoint& checkpoint, const ValidationReport& report,
                           const std::vector<Suppression>& suppressions) {
    const Catalog& catalog = checkpoint.catalog();
    std::string html = fmt::format(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
        "content=\"width=device-width\">\n<title>{} - Shardscope</title>\n<style>{}</style></head><body>\n",
        escaped(checkpoint.path), kStyle);
    html += fmt::format(
        "<h1>{}</h1>\n<p class=\"soft\">{}{}{}, looked at {:%Y-%m-%d %H:%M} UTC, level {}</p>\n",
        escaped(checkpoint.path), escaped(checkpoint.format ? checkpoint.format->info().title : ""),
        catalog.writer().empty() ? "" : ", written by ", escaped(catalog.writer()),
        fmt::gmtime(std::time(nullptr)), kLevels[static_cast<int>(report.level)]);

    const Verdict verdict = verdictWithout(report, suppressions);
    const auto accepted = static_cast<size_t>(
        std::count_if(report.findings.begin(), report.findings.end(),
                      [&](const Finding& f) { return suppressionOf(f, suppressions) != nullptr; }));
    html +=
        fmt::format("<div class=\"verdict {}\"><b>{}</b>", verdictName(verdict), verdictSentence(verdict));
    html += report.findings.empty() ? "<br>Nothing was found."
                                    : fmt::format("<br>{} finding{}", report.findings.size(),
                                                  report.findings.size() == 1 ? "" : "s");
    if (accepted) html += fmt::format(", {} of them accepted", accepted);
    if (!report.notChecked.empty()) {
        html += "<br><span class=\"soft\">Not checked: ";
        for (size_t i = 0; i < report.notChecked.size(); ++i)
            html += (i ? "; " : "") + escaped(report.notChecked[i]);
        html += "</span>";
    }
    html += "</div>\n<div class=\"cards\">";
    const auto card = [&](const char* name, const std::string& value) {
        html += fmt::format("<div><span class=\"soft\">{}</span><b>{}</b></div>", name, escaped(value));
    };
    card("Tensors", countText(catalog.tensorCount()));
    card("Parameters", countText(catalog.totalParameters()));
    card("Bytes", bytesText(catalog.totalBytes()));
    card("Chunks", countText(catalog.chunkCount()));
    card("Objects", countText(catalog.objects().size()));
    card("Files", countText(catalog.files().size()));
    card("Ranks", countText(catalog.rankCount()));
    html += "</div>\n";

    html += "<h2>Findings</h2>\n";
    if (report.findings.empty()) html += "<p>None.</p>\n";
    for (const Finding& finding : report.findings) {
        const Suppression* accept = suppressionOf(finding, suppressions);
        const RuleInfo* rule = findRule(finding.rule);
        const std::string severity(severityName(finding.severity));
        html += fmt::format(
            "<details{}><summary><span class=\"tag {}\">{}</span> <code>{}</code> {}{}</summary>\n",
            finding.severity == Severity::error && !accept ? " open" : "", severity, severity,
            escaped(finding.rule), escaped(finding.message),
            accept ? fmt::format(" <span class=\"soft\">(accepted: {})</span>", escaped(accept->reason))
                   : std::string());
        if (!finding.cause.empty()) html += fmt::format("<p>Cause: {}</p>", escaped(finding.cause));
        if (rule) html += fmt::format("<p>{} {}</p>", escaped(rule->meaning), escaped(rule->remedy));
        if (!finding.examples.empty()) {
            html += "<ul class=\"m\">";
            for (size_t i = 0; i < finding.examples.size() && i < kMostExamplesShown; ++i)
                html += "<li>" + escaped(exampleText(finding.examples[i])) + "</li>";
            html += "</ul>";
            if (finding.count > kMostExamplesShown)
                html += fmt::format("<p class=\"soft\">{} in all.</p>", finding.count);
        }
        html += "</details>\n";
    }

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
    html +=
        "<h2>Dtypes</h2>\n<table><tr><th>dtype</th><th class=\"n\">tensors</th><th "
        "class=\"n\">bytes</th></tr>";
    for (const auto& [name, share] : dtypes)
        html += fmt::format("<tr><td><code>{}</code></td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
                            name, countText(share.first), bytesText(share.second));
    html += "</table>\n";

    if (const auto mesh = meshOf(catalog)) {
        html += fmt::format("<h2>Mesh</h2>\n<p><code>{}</code>, {}</p>", escaped(formatMesh(*mesh)),
                            mesh->source == Mesh::Source::declared ? "as the checkpoint declares it"
                                                                   : "inferred from its chunks");
        if (!mesh->evidence.empty()) {
            html += "<ul>";
            for (const std::string& sentence : mesh->evidence)
                html += "<li>" + escaped(sentence) + "</li>";
            html += "</ul>\n";
        }
    }
    if (ranks.size() > 1) {
        const size_t group = (ranks.size() + kMostRanksDrawn - 1) / kMostRanksDrawn;
        const uint64_t most = std::max<uint64_t>(1, *std::max_element(ranks.begin(), ranks.end()));
        html +=
            "<h2>Bytes by rank</h2>\n<svg viewBox=\"0 0 1024 120\" role=\"img\" aria-label=\"Bytes by "
            "rank\">";
        const size_t bars = (ranks.size() + group - 1) / group;
        const double width = 1024.0 / static_cast<double>(bars);
        for (size_t b = 0; b < bars; ++b) {
            const auto begin = ranks.begin() + static_cast<std::ptrdiff_t>(b * group);
            const auto end =
                ranks.begin() + static_cast<std::ptrdiff_t>(std::min(ranks.size(), (b + 1) * group));
            const uint64_t bytes = *std::max_element(begin, end);
            const double height = 116.0 * static_cast<double>(bytes) / static_cast<double>(most);
            html += fmt::format(
                "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\"><title>rank {}{}: "
                "{}</title></rect>",
                static_cast<double>(b) * width, 118 - height, std::max(0.5, width - 1), height, b * group,
                group > 1 ? fmt::format(" to {} (largest)", std::min(ranks.size(), (b + 1) * group) - 1) : "",
                bytesText(bytes));
        }
        html += fmt::format("</svg>\n<p class=\"soft\">Largest {}, {} ranks.</p>\n", bytesText(most),
                            ranks.size());
    }
    html +=
        "<p class=\"soft\">Made by Shardscope. This file holds everything that it "
        "shows.</p>\n</body></html>\n";
    return html;
}

}  // namespace shardscope
