#include "cli/progress.h"

#include <fmt/format.h>

#include "base/text.h"
#include "base/units.h"
#include "cli/text.h"
#include "places/http.h"

namespace shardscope::cli {
namespace {

Json busyJson(const Progress::Busy& busy) {
    const auto seconds = [&](Progress::Work work) {
        return static_cast<double>(busy[static_cast<size_t>(work)] / 1000) / 1e6;
    };
    return {{"read", seconds(Progress::Work::read)},
            {"compute", seconds(Progress::Work::compute)},
            {"write", seconds(Progress::Work::write)}};
}

// "  12 transfers, 3 retries, throttled 1×"; empty while no place is used.
std::string trafficText(const Http::Traffic& traffic) {
    if (!traffic.transfers) return {};
    std::string text = fmt::format("  {}", counted(traffic.transfers, "transfer"));
    if (traffic.retries) text += fmt::format(", {}", counted(traffic.retries, "retry"));
    if (traffic.throttled) text += fmt::format(", throttled {}×", countText(traffic.throttled));
    return text;
}

double fraction(uint64_t done, uint64_t total) {
    return std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
}

}  // namespace

bool Pace::due() {
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < period_) return false;
    last_ = now;
    return true;
}

ProgressPrinter::ProgressPrinter(const Output& output, const Progress& progress, Access::Workers workers,
                                 Pace pace)
    : output_(output),
      progress_(progress),
      workers_(std::move(workers)),
      bar_(output.progressBar()),
      json_(output.progress == ProgressMode::json),
      lines_(output.progressLines()),
      pace_(pace),
      start_(std::chrono::steady_clock::now()),
      phaseStart_(start_) {
    if (!bar_ && !json_ && !lines_ && !output_.onProgress) return;
    try {
        thread_ = std::thread([this] { run(); });
    } catch (const std::system_error&) {
        // The work counts, not what is said about it.
    }
}

ProgressPrinter::~ProgressPrinter() {
    if (!thread_.joinable()) return;
    {
        std::lock_guard lock(mutex_);
        ending_ = true;
    }
    wake_.notify_all();
    thread_.join();
    if (json_ || output_.onProgress) show(true);
    if (drawn_) {
        std::fputs("\r\x1b[K", stderr);
        std::fflush(stderr);
    }
}

void ProgressPrinter::run() {
    std::unique_lock lock(mutex_);
    while (!wake_.wait_for(lock, std::chrono::milliseconds(100), [this] { return ending_; })) {
        // A bar for what takes less than a second would only flicker.
        if (json_ || output_.onProgress ||
            std::chrono::steady_clock::now() - start_ > std::chrono::milliseconds(500))
            show(false);
    }
}

void ProgressPrinter::now() {
    if (!json_ || !thread_.joinable()) return;
    std::lock_guard lock(mutex_);
    show(true);
}

// Takes the time of the phases and passes, and prints what is due.
void ProgressPrinter::show(bool last) {
    const std::vector<WorkerState> states = workers_ ? workers_() : std::vector<WorkerState>();
    if (output_.onProgress) return output_.onProgress(progress_, states);
    const auto now = std::chrono::steady_clock::now();
    if (progress_.phase() != phase_) {
        phase_ = progress_.phase();
        phaseStart_ = now;
        lastDone_ = 0;
        if (phase_ != Progress::Phase::open) ++pass_;
    }
    const uint64_t done = progress_.bytesDone(), total = progress_.bytesTotal();
    if (phase_ == Progress::Phase::verify && done < lastDone_ / 2) {  // of the source, after the destination
        phaseStart_ = now;
        ++pass_;
    }
    lastDone_ = done;
    const double seconds = std::chrono::duration<double>(now - phaseStart_).count();
    const double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
    at_ = {done, total, rate, rate > 0 && total > done ? static_cast<double>(total - done) / rate : 0};
    if (json_) return sayJson(states, now);
    if (last || (lines_ && !pace_.due())) return;
    std::string said;
    if (done == 0) {
        // Slurm may let it wait for hours.
        for (const WorkerState& worker : states) {
            if (worker.phase == WorkerState::Phase::starting && said.empty()) said = printable(worker.why);
        }
    }
    if (lines_) {
        fmt::print(stderr, "{}\n", said.empty() ? line({}) : said);
        std::fflush(stderr);
        return;
    }
    if (said.empty() && total == 0) return;
    constexpr int kWidth = 24;
    const int filled = total ? static_cast<int>(fraction(done, total) * kWidth) : 0;
    std::string bar = " ";
    for (int i = 0; i < kWidth; ++i)
        bar += i < filled ? "█" : "░";
    fmt::print(stderr, "\r\x1b[K{}", cutToWidth(said.empty() ? line(bar) : said, terminalWidth()));
    std::fflush(stderr);
    drawn_ = true;
}

// "write   42 %  1.2 GiB of 2.9 GiB  512 MiB/s  3 s left", with a bar after the phase.
std::string ProgressPrinter::line(std::string_view bar) const {
    const std::string_view phase = Progress::phaseName(phase_);
    if (at_.total == 0) {
        const auto since = std::chrono::steady_clock::now() - phaseStart_;
        return fmt::format("{:<6}  for {} so far", phase,
                           durationText(std::chrono::duration<double>(since).count()));
    }
    return fmt::format("{:<6}{} {:3.0f} %  {} of {}  {}/s  {} left{}", phase, bar,
                       fraction(at_.done, at_.total) * 100, bytesText(at_.done), bytesText(at_.total),
                       bytesText(static_cast<uint64_t>(at_.rate)), durationText(at_.left),
                       trafficText(Http::traffic()));
}

void ProgressPrinter::sayJson(const std::vector<WorkerState>& states,
                              std::chrono::steady_clock::time_point now) {
    Json event;
    event["event"] = "progress";
    event["phase"] = Progress::phaseName(phase_);
    if (phase_ != Progress::Phase::open) event["pass"] = pass_;
    event["bytes_done"] = at_.done;
    event["bytes_total"] = at_.total;
    event["rate"] = at_.rate;
    event["eta_s"] = at_.left;
    event["tensor"] = progress_.tensor();
    event["busy_s"] = busyJson(progress_.busy());
    if (const Http::Traffic traffic = Http::traffic(); traffic.transfers) {
        event["transfers"] = traffic.transfers;
        event["retries"] = traffic.retries;
        event["throttled"] = traffic.throttled;
    }
    // Who waits for hours says so now and then.
    Json lasting = event;
    lasting.erase("rate");
    lasting.erase("eta_s");
    if (std::string text = dumpJson(lasting);
        text != saidOfProgress_ || now - said_ >= std::chrono::seconds(10)) {
        saidOfProgress_ = std::move(text);
        said_ = now;
        printLine(stderr, event);
    }
    if (states.empty()) return;
    Json workers = Json::array();
    for (const WorkerState& worker : states) {
        workers.push_back({{"name", worker.name},
                           {"state", phaseName(worker.phase)},
                           {"bytes", worker.bytes},
                           {"units", worker.units},
                           {"busy_s", busyJson(worker.busy)},
                           {"why", worker.why}});
        if (!worker.slurmJob.empty()) workers.back()["slurm_job"] = worker.slurmJob;
    }
    const Json said{{"event", "workers"}, {"workers", std::move(workers)}};
    if (std::string text = dump(said); text != saidOfWorkers_) {
        saidOfWorkers_ = std::move(text);
        printLine(stderr, said);
    }
}

}  // namespace shardscope::cli
