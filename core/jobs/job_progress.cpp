#include "jobs/job_progress.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/units.h"

namespace shardscope {
namespace {

using Json = nlohmann::json;

// How often all bytes of the destination are gone through.
int passesOf(const std::vector<std::string>& arguments) {
    constexpr std::string_view kOption = "--verify";
    std::string_view how;
    for (size_t i = 0; i < arguments.size(); ++i) {
        const std::string_view word = arguments[i];
        if (word == kOption && i + 1 < arguments.size()) how = arguments[i + 1];
        if (word.starts_with("--verify=")) how = word.substr(kOption.size() + 1);
    }
    return how == "none" ? 1 : how == "full" ? 3 : 2;
}

}  // namespace

std::string textIn(const Json& object, const char* key) {
    const auto it = object.is_object() ? object.find(key) : object.end();
    return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

double numberIn(const Json& object, const char* key) {
    const auto it = object.is_object() ? object.find(key) : object.end();
    return it != object.end() && it->is_number() ? std::max(0.0, it->get<double>()) : 0.0;
}

JobProgress jobProgress(const Json& event, const std::vector<std::string>& arguments) {
    JobProgress now;
    if (!event.is_object()) return now;
    now.phase = textIn(event, "phase");
    // What is said of sizes is a double in case it is more than any disk holds.
    constexpr double kMost = 9e18;
    const double done = std::min(numberIn(event, "bytes_done"), kMost),
                 total = std::min(numberIn(event, "bytes_total"), kMost);
    now.bytesDone = static_cast<uint64_t>(done);
    now.bytesTotal = static_cast<uint64_t>(total);
    now.rate = numberIn(event, "rate");
    if (now.phase == "commit") {
        now.share = 1;
        now.secondsLeft = 0;
        return now;
    }
    if ((now.phase != "write" && now.phase != "verify") || total <= 0) return now;
    const int passes = passesOf(arguments);
    // Programs before 0.2 do not number the passes.
    const double said = numberIn(event, "pass");
    const int pass = std::clamp(said > 0               ? static_cast<int>(std::min(said, 3.0))
                                : now.phase == "write" ? 1
                                                       : 2,
                                1, passes);
    const double left = std::max(0.0, total - done) + total * (passes - pass);
    now.share = std::clamp(1 - left / (total * passes), 0.0, 1.0);
    if (now.rate > 0) now.secondsLeft = left / now.rate;
    return now;
}

std::string_view jobPhaseText(const std::string& phase) {
    if (phase == "write") return "converting";
    if (phase == "verify") return "verifying";
    if (phase == "commit") return "finishing";
    return "running";
}

std::string jobShareText(double share) {
    const double percent = share * 100;
    if (percent > 0 && percent < 0.05) return "<0.1 %";  // a little is not nothing
    const bool fine = (percent > 0 && percent < 10) || (percent > 99 && percent < 100);
    return fmt::format("{:.{}f} %", percent, fine ? 1 : 0);
}

std::string JobProgress::text() const {
    if (phase.empty()) return {};
    std::string words(jobPhaseText(phase));
    if (share >= 0) words = jobShareText(share) + ", " + words;
    if (rate > 0 && secondsLeft > 0)
        words +=
            fmt::format(", {}/s, {} left", bytesText(static_cast<uint64_t>(rate)), durationText(secondsLeft));
    return words;
}

}  // namespace shardscope
