#include "serve/page.h"

#include <algorithm>
#include <chrono>
#include <list>
#include <map>
#include <mutex>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "answers/conversion.h"
#include "answers/stats.h"
#include "engine/recipe_fit.h"
#include "engine/report.h"
#include "engine/several.h"
#include "engine/start_check.h"
#include "engine/whole_file.h"
#include "hosts/launch.h"
#include "plan/flow.h"
#include "storage/url.h"
#include "survey/flow_picture.h"
#include "survey/placement_change.h"
#include "survey/value_charts.h"
#include "validate/rules.h"

namespace shardscope::serve {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kMostSteps = 3, kMostPlans = 8;
constexpr std::chrono::seconds kListedFor{1};  // jobs and steps, however many pages ask

PageAnswer refused(const Error& error) {
    PageAnswer answer{dump(errorDocument(error)), 500};
    switch (error.code) {
        case ErrorCode::usage:
            answer.status = 400;
            break;
        case ErrorCode::notFound:
            answer.status = 404;
            break;
        case ErrorCode::exists:
        case ErrorCode::impossible:
        case ErrorCode::unsupported:
        case ErrorCode::damaged:
        case ErrorCode::limit:
            answer.status = 409;
            break;
        case ErrorCode::permission:
        case ErrorCode::unsafe:
            answer.status = 403;
            break;
        default:
            break;
    }
    return answer;
}

PageAnswer answerOf(Result<std::string> text, const char* type = "application/json") {
    return text.ok() ? PageAnswer{std::move(text).value(), 200, type} : refused(text.error());
}
PageAnswer answerOf(const Result<Json>& json, const char* = nullptr) {
    return json.ok() ? PageAnswer{dump(*json)} : refused(json.error());
}
PageAnswer answerOf(const Status& status, const char* = nullptr) {
    return status.ok() ? PageAnswer{R"({"schema":"shardscope.done/1"})"} : refused(status.error());
}

// What a POST brings: an object whose fields are texts.
Result<Json> bodyOf(const PageRequest& request) {
    Json body = Json::parse(request.body, nullptr, /*allow_exceptions=*/false);
    if (!body.is_object()) return makeError(ErrorCode::usage, "a JSON object is expected");
    return body;
}
Result<std::string> fieldOf(const Json& body, const char* name) {
    const auto field = body.find(name);
    if (field == body.end() || !field->is_string())
        return makeError(ErrorCode::usage, fmt::format("'{}' is expected as text", name));
    return field->get<std::string>();
}

Json rulesJson() {
    Json json{{"schema", "shardscope.rules/1"}, {"rules", Json::object()}};
    for (const RuleInfo& rule : validationRules())
        json["rules"][std::string(rule.id)] = {
            {"title", rule.title}, {"meaning", rule.meaning}, {"remedy", rule.remedy}};
    return json;
}

}  // namespace

// Read from the directories of jobs now and then.
class PageJobs {
  public:
    std::string text() {
        std::lock_guard lock(mutex_);
        const auto now = Clock::now();
        if (!text_.empty() && now - read_ < kListedFor) return text_;
        auto list = directory_.list();
        Json document = jobsJson(list.ok() ? *list : std::vector<JobRecord>());
        for (Json& job : document["jobs"]) {
            if (!job["result"].is_object()) continue;
            // Plans and digests of every tensor are for the log, not for a line of a table.
            Json shown;
            for (const char* key :
                 {"schema", "code", "message", "hint", "verified", "bytes_written", "seconds"}) {
                if (job["result"].contains(key)) shown[key] = job["result"][key];
            }
            job["result"] = std::move(shown);
        }
        text_ = dump(document);
        read_ = now;
        return text_;
    }
    // After a change.
    void forget() {
        std::lock_guard lock(mutex_);
        text_.clear();
    }

  private:
    std::mutex mutex_;
    JobDirectory directory_;
    std::string text_;
    Clock::time_point read_;
};

class Page::Impl {
  public:
    Impl(const Access& access, const PageOptions& options) : access_(access), options_(options) {}

    Status open() {
        if (options_.path.empty()) return {};
        auto opened = access_.openAny(options_.path);
        if (!opened.ok()) {
            if (opened.error().code == ErrorCode::usage) several_ = severalIn(options_.path);
            return several_.size() < 2 ? Status(std::move(opened).error()) : Status();
        }
        if (auto* run = std::get_if<Run>(&*opened))
            run_ = std::make_unique<Run>(std::move(*run));
        else
            only_ = std::make_shared<PageCheckpoint>(access_, std::get<Checkpoint>(*std::move(opened)),
                                                     options_.level, nullptr);
        return {};
    }

    PageContent content() {
        PageContent content;
        content.allowChanges = options_.allowJobs;
        const auto get = [&](const char* path, std::function<PageAnswer(const PageRequest&)> answer) {
            content.routes.push_back({path, std::move(answer), false});
        };
        const auto change = [&](const char* path, std::function<PageAnswer(const PageRequest&)> answer) {
            if (options_.allowJobs) content.routes.push_back({path, std::move(answer), true});
        };
        // Of the checkpoint that the request means.
        const auto of = [this](auto what, const char* type = "application/json") {
            return [this, what, type](const PageRequest& request) {
                const auto shown = shownBy(request);
                return shown.ok() ? answerOf(what(**shown, request), type) : refused(shown.error());
            };
        };
        using Shown = PageCheckpoint;
        get("/api/page", [this](const PageRequest&) { return PageAnswer{dump(pageJson())}; });
        get("/api/run", [this](const PageRequest&) { return answerOf(runText()); });
        get("/api/stats", [this](const PageRequest&) { return answerOf(statsText()); });
        get("/api/stats/svg",
            [this](const PageRequest& r) { return answerOf(statsSvg(r), "image/svg+xml"); });
        get("/api/several", [this](const PageRequest&) { return PageAnswer{dump(severalJson())}; });
        get("/api/info", of([](Shown& s, const PageRequest&) { return Result<std::string>(s.info()); }));
        get("/api/findings",
            of([](Shown& s, const PageRequest&) { return Result<std::string>(s.findings()); }));
        get("/api/ready", of([](Shown& s, const PageRequest&) { return Result<std::string>(s.ready()); }));
        get("/api/accepted",
            of([](Shown& s, const PageRequest&) { return Result<std::string>(s.accepted()); }));
        get("/api/placement", of([](Shown& s, const PageRequest& r) { return s.placement(r); }));
        get("/api/placement/tile",
            of([](Shown& s, const PageRequest& r) { return s.tile(r); }, "application/octet-stream"));
        get("/api/placement/cell", of([](Shown& s, const PageRequest& r) { return s.cell(r); }));
        get("/api/mesh", of([](Shown& s, const PageRequest&) { return s.mesh(); }));
        get("/api/mesh/svg",
            of([](Shown& s, const PageRequest& r) { return s.meshSvg(r); }, "image/svg+xml"));
        get("/api/as-if", of([](Shown& s, const PageRequest& r) { return s.asIf(r); }));
        get("/api/as-if/svg",
            of([](Shown& s, const PageRequest& r) { return s.asIfSvg(r); }, "image/svg+xml"));
        get("/api/tensors", of([](Shown& s, const PageRequest& r) { return s.tensors(r); }));
        get("/api/tensor", of([](Shown& s, const PageRequest& r) { return s.tensor(r); }));
        get("/api/files", of([](Shown& s, const PageRequest& r) { return s.files(r); }));
        get("/api/file", of([](Shown& s, const PageRequest& r) { return s.file(r); }));
        get("/api/objects", of([](Shown& s, const PageRequest& r) { return s.objects(r); }));
        get("/api/object", of([](Shown& s, const PageRequest& r) { return s.object(r); }));
        get("/api/slice", of([](Shown& s, const PageRequest& r) { return s.slice(r); }));
        get("/api/diff", of([this](Shown& s, const PageRequest& r) { return diff(s, r); }));
        get("/api/diff/svg",
            of([this](Shown& s, const PageRequest& r) { return diffSvg(s, r); }, "image/svg+xml"));
        get("/api/rules", [](const PageRequest&) { return PageAnswer{dump(rulesJson())}; });
        get("/api/formats", [](const PageRequest&) { return PageAnswer{dump(formatsJson())}; });
        get("/api/recipes", [](const PageRequest&) { return PageAnswer{dump(recipesJson())}; });
        get("/api/recipes/fitting", of([this](Shown& s, const PageRequest& r) -> Result<Json> {
                const std::string named = r.text("model");
                SHARDSCOPE_TRY(mayOpen(named));
                return recipesForJson(*s.checkpoint(), named.empty() ? modelBeside(*s.checkpoint()) : named,
                                      access_.stop);
            }));
        get("/api/jobs", [this](const PageRequest&) {
            return options_.jobs ? PageAnswer{jobs_.text()} : PageAnswer{"null"};
        });
        change("/api/validate", of([](Shown& s, const PageRequest& r) { return validate(s, r); }));
        change("/api/validate/cancel", of([](Shown& s, const PageRequest&) {
                   s.cancelValidation();
                   return Status();
               }));
        change("/api/accept", of([](Shown& s, const PageRequest& r) { return accept(s, r); }));
        change("/api/plan", of([this](Shown& s, const PageRequest& r) { return plan(s, r); }));
        get("/api/plan/flow", [this](const PageRequest& r) { return answerOf(flow(r), "image/svg+xml"); });
        change("/api/convert", [this](const PageRequest& r) { return answerOf(convert(r)); });
        change("/api/jobs/cancel", [this](const PageRequest& r) {
            return answerOf(
                changeJob(r, [](const JobDirectory& d, const JobRecord& j) { return d.cancel(j); }));
        });
        change("/api/jobs/resume", [this](const PageRequest& r) {
            return answerOf(
                changeJob(r, [](const JobDirectory& d, const JobRecord& j) { return d.resume(j); }));
        });
        content.events = [this](const PageRequest& request) { return events(request); };
        content.ending = [this] { stop(); };
        return content;
    }

  private:
    using ShownPtr = std::shared_ptr<PageCheckpoint>;

    Json pageJson() const {
        return {{"schema", "shardscope.page/1"},
                {"version", SHARDSCOPE_VERSION},
                {"path", options_.path.empty() ? Json() : Json(options_.path)},
                {"shows", run_                ? Json("run")
                          : only_             ? Json("checkpoint")
                          : !several_.empty() ? Json("several")
                                              : Json()},
                {"jobs", options_.jobs},
                {"allow_jobs", options_.allowJobs},
                {"level", levelName(options_.level)}};
    }

    Json severalJson() const {
        Json json{{"schema", "shardscope.several/1"}, {"checkpoints", Json::array()}};
        for (const OneOfSeveral& one : several_)
            json["checkpoints"].push_back({{"name", one.path}, {"what", one.what}, {"bytes", one.bytes}});
        return json;
    }

    void stop() {
        if (only_) only_->stop();
        std::lock_guard lock(mutex_);
        for (const auto& [name, shown] : steps_)
            shown->stop();
    }

    // The only one; of a run the step that the request names, of several the checkpoint. They are opened when
    // they are asked for first.
    Result<ShownPtr> shownBy(const PageRequest& request) {
        if (only_) return only_;
        const std::string name = request.text("step");
        if (name.empty() || (!run_ && several_.empty()))
            return makeError(ErrorCode::notFound,
                             name.empty() ? "the request names no step" : "no checkpoint is open");
        std::lock_guard lock(mutex_);
        const auto known =
            std::ranges::find_if(steps_, [&](const auto& entry) { return entry.first == name; });
        if (known != steps_.end()) {
            steps_.splice(steps_.begin(), steps_, known);
            return steps_.front().second;
        }
        if (run_) return showStep(name);
        if (std::ranges::find(several_, name, &OneOfSeveral::path) == several_.end())
            return makeError(ErrorCode::notFound, "there is no such checkpoint here");
        SHARDSCOPE_ASSIGN(Checkpoint checkpoint, access_.open(joinPath(options_.path, name)));
        return show(name, std::move(checkpoint), nullptr);
    }

    // With mutex_ held, as all below that changes `steps_`.
    ShownPtr show(const std::string& name, Checkpoint checkpoint, PageCheckpoint::OnReport onReport) {
        steps_.emplace_front(name, std::make_shared<PageCheckpoint>(access_, std::move(checkpoint),
                                                                    options_.level, std::move(onReport)));
        // An answer that is being made keeps its own.
        if (steps_.size() > kMostSteps) steps_.pop_back();
        return steps_.front().second;
    }

    Result<ShownPtr> showStep(const std::string& name) {
        SHARDSCOPE_TRY(listRun());
        const auto& all = run_->directory.steps;
        const auto step = std::ranges::find_if(all, [&](const RunStep& s) { return s.name == name; });
        if (step == all.end()) return makeError(ErrorCode::notFound, "the run has no such step");
        SHARDSCOPE_ASSIGN(const StepFiles files, listStep(*run_, *step));
        SHARDSCOPE_ASSIGN(Checkpoint checkpoint, access_.open(run_->pathOf(*step)));
        // As `validate` of the run remembers it.
        const StepVerdict opened = verdictOf(checkpoint, {});
        const auto remember = [this, run = *run_, step = *step, files,
                               opened](const ValidationReport& report) {
            StepVerdict verdict = opened;
            verdict.report = report;
            // Two steps may be done at once, and each writes the file anew.
            std::lock_guard remembering(remembering_);
            RunVerdicts(run, fmt::format("{}", fmt::join(openingWords(access_), "\n")))
                .keep(run, step, files, verdict);
        };
        return show(name, std::move(checkpoint), remember);
    }

    // Steps come and go while a run continues. With mutex_ held.
    Status listRun() {
        SHARDSCOPE_ASSIGN(auto run, openRun(options_.path, access_.openOptions()));
        if (run) *run_ = *std::move(run);
        return {};
    }

    Result<std::string> runText() {
        if (!run_) return std::string("null");
        std::lock_guard lock(mutex_);
        if (!runText_.empty() && Clock::now() - listed_ < kListedFor) return runText_;
        SHARDSCOPE_TRY(listRun());
        SHARDSCOPE_ASSIGN(const std::vector<StepLine> lines,
                          stepsOf(access_, *run_, {.level = ValidateLevel::metadata}, false));
        runText_ = dump(runJson(access_, *run_, lines));
        listed_ = Clock::now();
        return runText_;
    }

    // Of the steps whose values were read already.
    Result<Stats> stats() {
        if (!run_) return makeError(ErrorCode::notFound, "this is not the directory of a run");
        Run run;
        {
            std::lock_guard lock(mutex_);
            SHARDSCOPE_TRY(listRun());
            run = *run_;
        }
        return statsOf(access_, std::move(run), ValuesBy::module, false);
    }

    Result<std::string> statsText() {
        SHARDSCOPE_ASSIGN(const Stats known, stats());
        return dump(statsJson(access_, known));
    }

    Result<std::string> statsSvg(const PageRequest& request) {
        SHARDSCOPE_ASSIGN(const PageRequest::Size room, request.size({960, 0}));
        SHARDSCOPE_ASSIGN(const Stats known, stats());
        const auto charts = ValueCharts::of(known.history);
        if (!charts) return makeError(ErrorCode::notFound, "fewer than two steps have values that were read");
        return charts->svgOf(room.width, request.flag("dark"));
    }

    std::vector<std::pair<std::string, std::string>> events(const PageRequest& request) {
        std::vector<std::pair<std::string, std::string>> all;
        if (only_ || !request.text("step").empty()) {
            if (const auto shown = shownBy(request); shown.ok()) {
                all.emplace_back("ready", (*shown)->ready());
                all.emplace_back("findings", (*shown)->findings());
                all.emplace_back("accepted", (*shown)->accepted());
            }
        }
        if (run_ && request.text("step").empty()) {
            if (const auto text = runText(); text.ok()) all.emplace_back("run", *text);
        }
        if (options_.jobs) all.emplace_back("jobs", jobs_.text());
        return all;
    }

    // A request opens what is on this machine, and what is at or below the place that the server was started
    // for: nobody makes it ask other servers, with credentials that are not theirs.
    Status mayOpen(const std::string& path) const {
        const std::string& own = options_.path;
        const bool below = path == own || (path.starts_with(own) && path[own.size()] == '/' &&
                                           path.find("/..") == std::string::npos);
        if (!isElsewhere(path) || (isElsewhere(own) && below)) return {};
        return makeError(ErrorCode::permission, "the page opens no URL that a request names")
            .inFile(withoutSecrets(path))
            .withHint("'shardscope serve URL' shows it");
    }
    // The same of each text in what a request brings.
    Status mayOpenAll(const Json& body) const {
        if (body.is_string()) return mayOpen(body.get<std::string>());
        if (!body.is_structured()) return {};
        for (const Json& inner : body)
            SHARDSCOPE_TRY(mayOpenAll(inner));
        return {};
    }

    Result<std::string> diff(const PageCheckpoint& shown, const PageRequest& request) const {
        DiffOptions how;
        how.values = request.flag("values");
        how.weightsOnly = request.flag("weights_only");
        if (how.values && !options_.allowJobs)
            return makeError(ErrorCode::permission, "values are compared only where jobs are allowed")
                .withHint("'shardscope serve --allow-jobs'");
        SHARDSCOPE_TRY(mayOpen(request.text("with")));
        SHARDSCOPE_ASSIGN(const Checkpoint other, access_.open(request.text("with")));
        return shown.diff(other, how);
    }

    // From metadata alone.
    Result<std::string> diffSvg(const PageCheckpoint& shown, const PageRequest& request) const {
        SHARDSCOPE_ASSIGN(const PageRequest::Size room, request.size({960, 420}));
        DiffOptions how;
        how.weightsOnly = request.flag("weights_only");
        SHARDSCOPE_TRY(mayOpen(request.text("with")));
        SHARDSCOPE_ASSIGN(const Checkpoint other, access_.open(request.text("with")));
        SHARDSCOPE_ASSIGN(const DiffReport report, diffOpen(access_, *shown.checkpoint(), other, how));
        SHARDSCOPE_ASSIGN(const auto change, PlacementChange::of(shown.checkpoint()->catalog(),
                                                                 other.catalog(), report, access_.stop));
        return change->svgOf(room.width, room.height, request.flag("dark"));
    }

    static Status validate(PageCheckpoint& shown, const PageRequest& request) {
        SHARDSCOPE_ASSIGN(const Json body, bodyOf(request));
        SHARDSCOPE_ASSIGN(const std::string name, fieldOf(body, "level"));
        SHARDSCOPE_ASSIGN(const ValidateLevel level, levelNamed(name));
        return shown.validate(level);
    }

    static Status accept(PageCheckpoint& shown, const PageRequest& request) {
        SHARDSCOPE_ASSIGN(const Json body, bodyOf(request));
        SHARDSCOPE_ASSIGN(const std::string rule, fieldOf(body, "rule"));
        SHARDSCOPE_ASSIGN(const std::string cause, fieldOf(body, "cause"));
        if (body.contains("withdraw")) return shown.withdraw(rule, cause);
        SHARDSCOPE_ASSIGN(const std::string reason, fieldOf(body, "reason"));
        return shown.accept(rule, cause, reason);
    }

    // ------------------------------------------------------------------ conversions

    // What was planned, to be started as it is.
    struct Planned {
        ConversionRequest request;
        Plan plan;
        std::shared_ptr<const FlowPicture> flow;  // null of an average
    };

    static std::vector<std::string> obstaclesOf(const Planned& planned) {
        return startObstacles(planned.plan,
                              lookAtDestination(*systemFileSystem(), planned.request.destination),
                              planned.request);
    }

    // What is averaged with the step that is shown: other steps of the run, by their names.
    Status nameInputs(std::vector<std::string>& inputs) {
        if (inputs.empty()) return {};
        std::lock_guard lock(mutex_);
        if (!run_) return makeError(ErrorCode::usage, "steps of a run are averaged");
        SHARDSCOPE_TRY(listRun());
        for (std::string& input : inputs) {
            const auto& all = run_->directory.steps;
            const auto step = std::ranges::find_if(all, [&](const RunStep& s) { return s.name == input; });
            if (step == all.end()) return makeError(ErrorCode::notFound, "the run has no such step");
            input = run_->pathOf(*step);
        }
        return {};
    }

    Result<Json> plan(const PageCheckpoint& shown, const PageRequest& body) {
        Planned planned;
        SHARDSCOPE_TRY(mayOpenAll(Json::parse(body.body, nullptr, false)));
        SHARDSCOPE_ASSIGN(planned.request, requestFromJson(body.body));
        ConversionRequest& request = planned.request;
        const Checkpoint& source = *shown.checkpoint();
        SHARDSCOPE_TRY(nameInputs(request.average));
        request.source = source.path;
        request.opening = access_;
        if (!request.destination.starts_with('/'))
            return makeError(ErrorCode::usage, "the destination is an absolute path, such as /data/model");
        SHARDSCOPE_TRY(checkOutside(request.destination, source.path));
        for (const std::string& input : request.average)
            SHARDSCOPE_TRY(checkOutside(request.destination, input));
        SHARDSCOPE_TRY(needData(source, "a conversion"));
        SHARDSCOPE_ASSIGN(const PreparedConversion prepared,
                          prepareConversion(source, request.destination, request, access_.stop));
        planned.plan = prepared.plan;
        Json json = planJson(planned.plan);
        if (request.average.empty()) {
            SHARDSCOPE_ASSIGN(const Flow flow, flowOf(source.catalog(), *prepared.spec, access_.stop));
            const uint32_t ranks = prepared.spec->target.rankCount();
            planned.flow = std::make_shared<const FlowPicture>(source.catalog(), flow, ranks);
            json["flow"] = flowJson(*planned.flow);
            json["flow"]["headline"] = planned.flow->headline();
        }
        json["obstacles"] = obstaclesOf(planned);
        SHARDSCOPE_ASSIGN(const std::string text, requestJson(request));
        json["request"] = Json::parse(text, nullptr, false);
        std::lock_guard lock(mutex_);
        json["id"] = std::to_string(++lastPlan_);
        plans_.emplace_back(lastPlan_, std::move(planned));
        if (plans_.size() > kMostPlans) plans_.pop_front();
        return json;
    }

    Result<std::string> flow(const PageRequest& request) {
        SHARDSCOPE_ASSIGN(const PageRequest::Size room, request.size({900, 420}));
        std::lock_guard lock(mutex_);
        const auto planned = std::ranges::find_if(
            plans_, [&](const auto& entry) { return std::to_string(entry.first) == request.text("plan"); });
        if (planned == plans_.end() || !planned->second.flow)
            return makeError(ErrorCode::notFound, "there is no such plan, or it was started already");
        return planned->second.flow->svgOf(room.width, room.height, request.flag("dark"));
    }

    // Exactly what was planned, and only without obstacles.
    Result<Json> convert(const PageRequest& request) {
        SHARDSCOPE_ASSIGN(const Json body, bodyOf(request));
        SHARDSCOPE_ASSIGN(const std::string id, fieldOf(body, "plan"));
        std::lock_guard lock(mutex_);
        const auto planned = std::ranges::find_if(
            plans_, [&](const auto& entry) { return std::to_string(entry.first) == id; });
        if (planned == plans_.end())
            return makeError(ErrorCode::notFound, "there is no such plan, or it was started already")
                .withHint("plan the conversion again");
        if (const auto obstacles = obstaclesOf(planned->second); !obstacles.empty())
            return makeError(ErrorCode::impossible, obstacles.front());
        SHARDSCOPE_ASSIGN(const std::string job, startAsJob(JobOrder{planned->second.request, {}, {}}));
        plans_.erase(planned);
        jobs_.forget();
        return Json{{"schema", "shardscope.job/1"}, {"id", job}, {"state", "starting"}};
    }

    template <class Change>
    Result<Json> changeJob(const PageRequest& request, Change change) {
        SHARDSCOPE_ASSIGN(const Json body, bodyOf(request));
        SHARDSCOPE_ASSIGN(const std::string id, fieldOf(body, "id"));
        const JobDirectory directory;
        SHARDSCOPE_ASSIGN(const JobRecord job, directory.find(id));
        SHARDSCOPE_TRY(change(directory, job));
        jobs_.forget();
        SHARDSCOPE_ASSIGN(const JobRecord now, directory.find(job.id));
        return jobDocument(now);
    }

    const Access& access_;
    const PageOptions options_;
    std::mutex remembering_;  // outlives the steps
    ShownPtr only_;
    std::vector<OneOfSeveral> several_;
    std::mutex mutex_;  // of everything below, but for the jobs
    std::unique_ptr<Run> run_;
    std::list<std::pair<std::string, ShownPtr>> steps_;  // the last used first
    std::string runText_;
    Clock::time_point listed_;
    uint64_t lastPlan_ = 0;
    std::list<std::pair<uint64_t, Planned>> plans_;
    PageJobs jobs_;
};

Page::Page(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Page::~Page() = default;

Result<std::unique_ptr<Page>> Page::open(const Access& access, const PageOptions& options) {
    auto impl = std::make_unique<Impl>(access, options);
    SHARDSCOPE_TRY(impl->open());
    return std::unique_ptr<Page>(new Page(std::move(impl)));
}

PageContent Page::content() {
    return impl_->content();
}

}  // namespace shardscope::serve
