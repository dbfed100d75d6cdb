#include <chrono>
#include <csignal>
#include <cstdio>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include "cli/application.h"
#include "cli/documents.h"
#include "cli/validate_words.h"
#include "engine/report.h"
#include "model/name_pattern.h"
#include "serve/page_server.h"

namespace shardscope::cli {
namespace {

struct ServeOptions {
    std::string path;
    bool jobs = false;
    int port = 0;
    int idleMinutes = 30;
    ValidateLevel level = ValidateLevel::files;
};

// What the page shows of one checkpoint. Its validation continues beside the answers.
class Shown {
  public:
    Shown(const Context& context, Checkpoint checkpoint, ValidateLevel level)
        : checkpoint_(std::move(checkpoint)), level_(level) {
        quiet_.progress = ProgressMode::none;
        quiet_.memory = context.memory;
        quiet_.threads = context.threads;
        overview_ = dump(infoJson(checkpoint_, checkpoint_.path, summaryOf(catalog())));
        findings_ = R"({"state":"running"})";
        validation_ = std::thread([this] { validate(); });
    }
    ~Shown() {
        quiet_.stop.requestStop();
        validation_.join();
    }

    const std::string& overview() const { return overview_; }
    std::string findings() const {
        std::lock_guard lock(mutex_);
        return findings_;
    }

    Result<std::string> map(const MapQuery& query) const {
        SHARDSCOPE_ASSIGN(const NamePattern pattern, NamePattern::parse(query.pattern));
        Json rows = Json::array();
        uint64_t matches = 0;
        for (TensorId t = 0; t < catalog().tensorCount(); ++t) {
            if (!pattern.matches(catalog().name(t))) continue;
            const uint64_t row = matches++;
            if (row < query.first || row - query.first >= query.count) continue;
            rows.push_back({{"name", catalog().name(t)},
                            {"dtype", dtypeName(catalog().dtype(t))},
                            {"shape", formatDims(catalog().shape(t))},
                            {"bytes", catalog().bytes(t)},
                            {"cells", placementCells(catalog(), t)}});
        }
        return dump({{"schema", "shardscope.map/1"},
                     {"ranks", catalog().rankCount()},
                     {"total", matches},
                     {"first", query.first},
                     {"rows", std::move(rows)}});
    }

  private:
    const Catalog& catalog() const { return checkpoint_.catalog(); }

    void validate() {
        const auto done = [&]() -> Result<ValidationReport> {
            ValidateOptions how;
            how.level = level_;
            Work work(quiet_, catalog().memoryBytes());
            SHARDSCOPE_TRY(work.start());
            return validateCheckpoint(checkpoint_, how, work.resources());
        }();
        std::lock_guard lock(mutex_);
        findings_ = done.ok() ? validationJson(*done) : dump(errorDocument(done.error()));
    }

    const Checkpoint checkpoint_;
    const ValidateLevel level_;
    std::string overview_;
    mutable std::mutex mutex_;
    std::string findings_;
    Context quiet_;  // of the validation, which prints nothing
    std::thread validation_;
};

// The list of jobs, read from their directories once a second however many pages ask.
class JobList {
  public:
    std::string text() {
        std::lock_guard lock(mutex_);
        const auto now = std::chrono::steady_clock::now();
        if (!text_.empty() && now - read_ < std::chrono::seconds(1)) return text_;
        Json jobs = Json::array();
        const auto list = directory_.list();
        if (list.ok()) {
            for (const JobRecord& job : *list) {
                Json one = jobJson(job);
                if (one["result"].is_object()) {
                    // Plans and digests of every tensor are for the log, not for a line of a table.
                    Json shown;
                    for (const char* key :
                         {"schema", "code", "message", "verified", "bytes_written", "seconds"}) {
                        if (one["result"].contains(key)) shown[key] = one["result"][key];
                    }
                    one["result"] = std::move(shown);
                }
                jobs.push_back(std::move(one));
            }
        }
        text_ = dump({{"schema", "shardscope.jobs/1"}, {"jobs", std::move(jobs)}});
        read_ = now;
        return text_;
    }

  private:
    std::mutex mutex_;
    JobDirectory directory_;
    std::string text_;
    std::chrono::steady_clock::time_point read_;
};

Result<int> serve(const Context& context, const ServeOptions& options) {
    SHARDSCOPE_TRY(PageServer::available());
    if (options.path.empty() && !options.jobs)
        return makeError(ErrorCode::usage, "there is nothing to show: name a checkpoint, or --jobs");
    std::signal(SIGPIPE, SIG_IGN);
    PageDocuments documents;
    std::unique_ptr<Shown> shown;
    JobList jobs;
    if (!options.path.empty()) {
        SHARDSCOPE_ASSIGN(Checkpoint checkpoint, context.open(options.path));
        shown = std::make_unique<Shown>(context, std::move(checkpoint), options.level);
        documents.overview = [&] { return shown->overview(); };
        documents.map = [&](const MapQuery& query) { return shown->map(query); };
        documents.findings = [&] { return shown->findings(); };
    }
    if (options.jobs) documents.jobs = [&] { return jobs.text(); };
    SHARDSCOPE_ASSIGN(const auto server, PageServer::listen(std::move(documents), options.port));
    if (context.json) {
        printJson({{"schema", "shardscope.serve/1"}, {"url", server->url()}, {"port", server->port()}});
    } else {
        fmt::print("{}\n", server->url());
    }
    std::fflush(stdout);
    if (!context.json) {
        fmt::print(stderr,
                   "The page is for this machine only; from another one:\n"
                   "  ssh -L {0}:127.0.0.1:{0} HOST\nand open the same address there. Ctrl-C ends it.\n",
                   server->port());
    }
    server->serve(context.stop, std::chrono::minutes(options.idleMinutes));
    return 0;
}

}  // namespace

void addServe(CLI::App& app, Context& context) {
    CLI::App* verb = app.add_subcommand(
        "serve", "A page for the browser: overview, placement map, findings, jobs; it only shows");
    verb->footer(
        "Examples:\n  shardscope serve /checkpoints/step-1000\n  shardscope serve --jobs\n\n"
        "It listens on 127.0.0.1 only and answers whoever has the token of the address that it prints.");
    auto options = std::make_shared<ServeOptions>();
    verb->add_option("path", options->path, "Checkpoint: a directory or a file")->type_name("PATH");
    verb->add_flag("--jobs", options->jobs, "Show the jobs of this machine's user, as they run");
    verb->add_option("--port", options->port, "Port of 127.0.0.1; 0 (default) takes a free one")
        ->check(CLI::Range(0, 65535).description(""))
        ->type_name("N");
    verb->add_option("--idle", options->idleMinutes,
                     "End when no page has asked for this many minutes; 0 = never")
        ->check(CLI::Range(0, 100000).description(""))
        ->default_str("30")
        ->type_name("MINUTES");
    addLevel(*verb, options->level,
             "How deep it validates: metadata, files (default) or values (reads every byte)");
    addCommon(*verb, context, true);
    verb->callback(
        [&context, options] { context.verb = [&context, options] { return serve(context, *options); }; });
}

}  // namespace shardscope::cli
