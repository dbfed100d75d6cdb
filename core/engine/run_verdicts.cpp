#include "engine/run_verdicts.h"

#include <algorithm>
#include <cfloat>
#include <filesystem>
#include <fstream>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/rule.h"
#include "engine/surroundings.h"
#include "engine/whole_file.h"
#include "expectation/contract.h"

namespace shardscope {

namespace {

using Json = nlohmann::json;

constexpr uintmax_t kMostRemembered = 64 << 20;  // bytes of the file
constexpr size_t kExamplesRemembered = 100;      // of a finding
constexpr char kBeforeReport = '\t';             // no JSON here holds one
// Another version may judge otherwise.
constexpr std::string_view kRemembers = "shardscope.verdicts/3 of " SHARDSCOPE_VERSION;
constexpr std::string_view kRemembersValues = "shardscope.values/1 of " SHARDSCOPE_VERSION;

Digest128 digestOf(std::string_view text) {
    return cellDigest(std::as_bytes(std::span(text)));
}

// Of this boot of the machine; empty where the kernel does not say.
std::string bootId() {
    std::ifstream in("/proc/sys/kernel/random/boot_id");
    std::string id;
    std::getline(in, id);
    return id;
}

// 0 where neither the metadata nor the names of files say a rank.
uint32_t ranksThatWrote(const Catalog& catalog) {
    const auto& files = catalog.files();
    const bool known =
        catalog.rankCount() > 1 || catalog.mesh() ||
        (catalog.chunkCount() > 0 && catalog.chunk(0).rank != kNone) ||
        std::any_of(files.begin(), files.end(), [](const FileInfo& file) { return file.rank != kNone; });
    return known ? catalog.rankCount() : 0;
}

// Null where it is not as keepValues() wrote it.
std::optional<TensorValues> valuesOf(const Json& json) {
    if (!json.is_array() || json.size() != 10 || !json[0].is_string()) return std::nullopt;
    for (size_t i = 1; i < json.size(); ++i)
        if (i < 7 ? !json[i].is_number_unsigned() : !json[i].is_number()) return std::nullopt;
    TensorValues values;
    values.tensor = json[0].get<std::string>();
    values.role =
        static_cast<Role>(std::min<uint64_t>(json[1].get<uint64_t>(), static_cast<uint64_t>(Role::other)));
    values.counts = {json[2].get<uint64_t>(), json[3].get<uint64_t>(), json[4].get<uint64_t>(),
                     json[5].get<uint64_t>()};
    values.sums = {json[6].get<uint64_t>(), json[7].get<double>(), json[8].get<double>(),
                   json[9].get<double>()};
    return values;
}

// A line of the file: what it is of, as JSON, and the report (validationJson).
struct Record {
    std::string step, identity, format, mesh;
    uint32_t ranks = 0;
    std::string_view report;  // in the line
};
Record recordOf(std::string_view line) {
    const size_t tab = std::min(line.find(kBeforeReport), line.size());
    const Json json = Json::parse(line.substr(0, tab), nullptr, false);
    const auto text = [&](const char* key) {
        const auto value = json.is_object() ? json.find(key) : json.end();
        return value != json.end() && value->is_string() ? value->get<std::string>() : std::string();
    };
    const auto ranks = json.is_object() ? json.find("ranks") : json.end();
    const bool counted = ranks != json.end() && ranks->is_number_unsigned();
    return {text("step"),
            text("identity"),
            text("format"),
            text("mesh"),
            counted ? ranks->get<uint32_t>() : 0,
            line.substr(std::min(tab + 1, line.size()))};
}

}  // namespace

namespace {

Result<StepContents> contentsOf(const Run& run, const RunStep& step) {
    if (!step.file) {
        // By its path: a step may be a link to another disk.
        SHARDSCOPE_ASSIGN(const auto directory, run.source.fileSystem->openDirectory(run.pathOf(step)));
        return listContents(*directory, "");
    }
    SHARDSCOPE_ASSIGN(const DirectoryEntry entry, run.source.fileSystem->stat(run.pathOf(step)));
    StepContents contents;
    contents.files.push_back({step.name, entry.size, entry.modifiedNs, entry.inode, entry.changedNs});
    return contents;
}

}  // namespace

Result<StepFiles> listStep(const Run& run, const RunStep& step) {
    StepFiles found;
    const auto contents = contentsOf(run, step);
    if (!contents.ok()) {
        if (contents.error().code == ErrorCode::limit) return contents.error();
        found.error = contents.error();
        return found;
    }
    std::string all = bootId() + '\0';
    for (const StepFile& file : contents->files) {
        ++found.files;
        found.bytes += file.size;
        found.modifiedNs = std::max(found.modifiedNs, file.modifiedNs);
        all += fmt::format("{}\n{} {} {} {}", file.path, file.size, file.modifiedNs, file.inode,
                           file.changedNs) +
               '\0';
    }
    found.identity = digestOf(all);
    return found;
}

std::string formatOfStep(const Run& run, const RunStep& step) {
    const auto source = sourceFor(run.pathOf(step), IoMode::automatic, run.source.fileSystem);
    const Format* format = source.ok() ? detectFormat(*source) : nullptr;
    return format ? format->info().title : std::string();
}

bool SaveWatch::isComplete(const Run& run, const RunStep& step, const StepFiles& files) {
    const auto now = std::chrono::steady_clock::now();
    const bool tracked = run.directory.tracks(step);
    const auto [seen, fresh] = seen_.try_emplace(step.name, Seen{files.identity, now, tracked});
    Seen& before = seen->second;
    if (!(before.identity == files.identity)) {
        before.identity = files.identity;
        before.since = now;
    }
    if (tracked && !before.tracked) return true;
    return now - before.since >= settle_;
}

bool SaveWatch::isOld(const StepFiles& files) const {
    const std::chrono::nanoseconds modified(files.modifiedNs);
    return files.modifiedNs > 0 && std::chrono::system_clock::now().time_since_epoch() - modified > settle_;
}

const Finding* StepVerdict::reason() const {
    for (const Finding& finding : report.findings) {
        const bool doubt = finding.rule == rule::saveMixed || finding.rule == rule::saveTorn;
        if ((doubt || finding.severity == Severity::error) && !suppressionOf(finding, accepted))
            return &finding;
    }
    return nullptr;
}

StepVerdict verdictOf(const Checkpoint& checkpoint, ValidationReport report) {
    StepVerdict verdict;
    verdict.format = checkpoint.format->info().title;
    verdict.report = std::move(report);
    verdict.ranks = ranksThatWrote(checkpoint.catalog());
    if (const auto& mesh = checkpoint.catalog().mesh(); mesh && mesh->source == Mesh::Source::declared)
        verdict.mesh = formatMesh(*mesh);
    return verdict;
}

std::vector<Suppression> acceptedOf(const SuppressionStore& store, const Run& run, const RunStep& step) {
    return store.of(acceptedName(run.pathOf(step)));
}

RunVerdicts::RunVerdicts(const Run& run, const std::string& openedHow, std::string directory) {
    if (directory.empty()) directory = stateDirectory("verdicts");
    file_ = joinPath(directory, digestOf(run.source.directory->path() + '\0' + openedHow).hex() + ".jsonl");
    std::ifstream in(file_, std::ios::binary | std::ios::ate);
    if (!in || in.tellg() < 0 || static_cast<uintmax_t>(in.tellg()) > kMostRemembered) return;
    in.seekg(0);
    std::string line;
    if (!std::getline(in, line) || line != kRemembers) return;
    readable_ = true;
    while (std::getline(in, line)) {
        Record record = recordOf(line);
        ++added_;
        if (!record.step.empty()) records_[std::move(record.step)] = std::move(line);
    }
}

std::optional<StepVerdict> RunVerdicts::find(const RunStep& step, const StepFiles& files,
                                             ValidateLevel level) const {
    const auto it = records_.find(step.name);
    if (it == records_.end()) return std::nullopt;
    Record record = recordOf(it->second);
    if (record.identity != files.identity.hex()) return std::nullopt;
    auto report = validationFromJson(record.report);
    if (!report.ok() || report->level < level) return std::nullopt;
    return StepVerdict{std::move(record.format), std::nullopt, std::move(report).value(), true, record.ranks,
                       std::move(record.mesh)};
}

std::string RunVerdicts::valuesFile(const std::string& step) const {
    return file_.substr(0, file_.rfind('.')) + '-' + digestOf(step).hex() + ".values";
}

std::optional<std::vector<TensorValues>> RunVerdicts::values(const RunStep& step,
                                                             const StepFiles& files) const {
    std::ifstream in(valuesFile(step.name), std::ios::binary | std::ios::ate);
    if (!in || in.tellg() < 0 || static_cast<uintmax_t>(in.tellg()) > kMostRemembered) return std::nullopt;
    in.seekg(0);
    std::string line;
    if (!std::getline(in, line) || line != kRemembersValues) return std::nullopt;
    if (!std::getline(in, line) || line != files.identity.hex()) return std::nullopt;
    std::vector<TensorValues> all;
    while (std::getline(in, line)) {
        auto one = valuesOf(Json::parse(line, nullptr, false));
        if (!one) return std::nullopt;
        all.push_back(*std::move(one));
    }
    return all;
}

void RunVerdicts::keepValues(const RunStep& step, const StepFiles& files,
                             const std::vector<TensorValues>& values) const {
    std::string text = fmt::format("{}\n{}\n", kRemembersValues, files.identity.hex());
    const auto finite = [](double value) { return std::clamp(value, -DBL_MAX, DBL_MAX); };
    for (const TensorValues& one : values) {
        const Json json{one.tensor,
                        static_cast<uint64_t>(one.role),
                        one.counts.elements,
                        one.counts.nan,
                        one.counts.inf,
                        one.counts.zero,
                        one.sums.counted,
                        finite(one.sums.sum),
                        finite(one.sums.squares),
                        finite(one.sums.largest)};
        text += json.dump(-1, ' ', true, Json::error_handler_t::replace) + '\n';
        if (text.size() > kMostRemembered) return;
    }
    (void)putWholeFile(systemFileSystem(), valuesFile(step.name), text, true);
}

bool RunVerdicts::forgetGone(const Run& run) {
    if (looked_ && records_.size() <= run.directory.steps.size()) return false;
    looked_ = true;
    std::set<std::string_view> steps;
    for (const RunStep& step : run.directory.steps)
        steps.insert(step.name);
    std::error_code ignored;
    return std::erase_if(records_, [&](const auto& record) {
               const bool gone = !steps.contains(record.first);
               if (gone) std::filesystem::remove(valuesFile(record.first), ignored);
               return gone;
           }) > 0;
}

bool RunVerdicts::addLine(const std::string& line) {
    std::ofstream out(file_, std::ios::binary | std::ios::app | std::ios::ate);
    if (!out || out.tellp() <= 0) return false;
    out << line + '\n' << std::flush;
    ++added_;
    return out.good();
}

void RunVerdicts::writeAll() {
    std::string text = std::string(kRemembers) + '\n';
    for (const auto& [name, line] : records_)
        text += line + '\n';
    (void)putWholeFile(systemFileSystem(), file_, text, true);
    added_ = records_.size();
    readable_ = true;
}

void RunVerdicts::keep(const Run& run, const RunStep& step, const StepFiles& files,
                       const StepVerdict& verdict) {
    // What does not open may do so after an update, or when the disk answers again.
    if (verdict.error || verdict.report.stopped) return;
    ValidationReport report = verdict.report;
    for (Finding& finding : report.findings)
        finding.examples.resize(std::min(finding.examples.size(), kExamplesRemembered));
    const Json json{{"step", step.name},
                    {"identity", files.identity.hex()},
                    {"format", verdict.format},
                    {"ranks", verdict.ranks},
                    {"mesh", verdict.mesh}};
    const std::string line =
        json.dump(-1, ' ', true, Json::error_handler_t::replace) + kBeforeReport + validationJson(report);
    records_[step.name] = line;
    // The file is written anew once half of it is out of date; between, lines are added.
    const bool gone = forgetGone(run);
    std::error_code ignored;
    std::filesystem::create_directories(splitPath(file_).first, ignored);
    if (gone || !readable_ || added_ > 2 * records_.size() || !addLine(line)) writeAll();
    if (verdict.report.level == ValidateLevel::values && !verdict.report.values.empty())
        keepValues(step, files, verdict.report.values);
}

Result<StepVerdict> judgeStep(const Run& run, const RunStep& step, const StepFiles& files,
                              ValidateLevel level, const CheckpointOptions& options,
                              const std::function<Result<ValidationReport>(const Checkpoint&)>& validate,
                              RunVerdicts* verdicts, bool values) {
    if (verdicts) {
        auto known = verdicts->find(step, files, level);
        auto sums = known && values ? verdicts->values(step, files) : std::nullopt;
        if (known && (!values || sums)) {
            if (sums) known->report.values = *std::move(sums);
            known->accepted = acceptedOf(SuppressionStore(), run, step);
            return *std::move(known);
        }
    }
    const auto isOurs = [](const Error& error) {
        return error.code == ErrorCode::cancelled || error.code == ErrorCode::limit ||
               error.code == ErrorCode::usage;
    };
    StepVerdict failed;
    failed.report.level = level;
    if (files.error) {
        failed.error = files.error;
        return failed;
    }
    auto checkpoint = openCheckpoint(run.pathOf(step), options);
    if (!checkpoint.ok()) {
        if (checkpoint.error().code == ErrorCode::cancelled) return checkpoint.error();
        failed.error = checkpoint.error();
        return failed;
    }
    checkpoint->run = &run;
    auto report = validate(*checkpoint);
    if (!report.ok()) {
        if (isOurs(report.error())) return report.error();
        failed.format = checkpoint->format->info().title;
        failed.error = report.error();
        return failed;
    }
    StepVerdict verdict = verdictOf(*checkpoint, std::move(report).value());
    verdict.accepted = acceptedOf(SuppressionStore(), run, step);
    if (verdicts) verdicts->keep(run, step, files, verdict);
    if (!values) verdict.report.values = {};
    return verdict;
}

}  // namespace shardscope
