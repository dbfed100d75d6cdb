#include "cluster/worker_list.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "base/numbers.h"
#include "base/option_words.h"
#include "base/text.h"
#include "cluster/slurm.h"
#include "hosts/launch.h"

namespace shardscope {
namespace {

constexpr unsigned kMostRanks = 1024;
constexpr std::string_view kRanks = "ranks", kGpus = "local-gpus";

Result<SourceMode> modeOfRanks(std::string_view name) {
    for (const SourceMode mode :
         {SourceMode::automatic, SourceMode::direct, SourceMode::broadcast, SourceMode::exchange})
        if (sourceModeName(mode) == name) return mode;
    return makeError(ErrorCode::usage, fmt::format("'{}' is not a mode of ranks", oneLine(name, 100)))
        .withHint("auto, direct, broadcast or exchange, as in ranks:4,broadcast");
}

// Nothing where the text means something else.
Result<std::optional<Ranks>> parseRanks(std::string_view text) {
    const std::string_view who = text.substr(0, text.find(','));
    const std::string_view word = who.substr(0, who.find(':'));
    if (word != kRanks && who != kGpus) return std::optional<Ranks>();
    Ranks ranks;
    ranks.gpus = who == kGpus;
    if (who != word) {
        ranks.count = parseNumber<unsigned>(who.substr(word.size() + 1), 1, kMostRanks).value_or(0);
        if (ranks.count == 0)
            return makeError(ErrorCode::usage, "ranks: wants a number from 1 to 1024, as in ranks:4")
                .withHint("ranks without a number are those that a launcher starts; they work alone");
    }
    if (who != text) {
        SHARDSCOPE_ASSIGN(ranks.mode, modeOfRanks(text.substr(who.size() + 1)));
    }
    return std::optional(ranks);
}

}  // namespace

Result<WorkerList> parseWorkers(std::string_view text) {
    WorkerList all;
    SHARDSCOPE_ASSIGN(all.ranks, parseRanks(text));
    if (all.ranks) return all;
    std::vector<WorkerSpec>& workers = all.workers;
    const auto wrong = [&](std::string_view part) {
        return makeError(ErrorCode::usage, fmt::format("'{}' is not a place to work", oneLine(part, 100)))
            .withHint(
                "local:4 for four processes here, ssh:HOST,HOST for other hosts, slurm:nodes=2 for nodes of "
                "a "
                "cluster; joined by '+'");
    };
    while (!text.empty()) {
        const size_t plus = std::min(text.find('+'), text.size());
        std::string_view part = text.substr(0, plus);
        text.remove_prefix(std::min(text.size(), plus + 1));
        if (part.starts_with("local:")) {
            unsigned count = 0;
            for (const char c : part.substr(6)) {
                if (c < '0' || c > '9' || count > 1000) return wrong(part);
                count = count * 10 + static_cast<unsigned>(c - '0');
            }
            if (count == 0 || count > 256) return wrong(part);
            workers.insert(workers.end(), count, WorkerSpec{});
        } else if (part.starts_with("ssh:") && part.size() > 4) {
            for (std::string_view hosts = part.substr(4); !hosts.empty();) {
                const size_t comma = std::min(hosts.find(','), hosts.size());
                SHARDSCOPE_TRY(checkHost(hosts.substr(0, comma)));
                workers.push_back({{std::string(hosts.substr(0, comma)), 0}});
                hosts.remove_prefix(std::min(hosts.size(), comma + 1));
            }
        } else if (part == "slurm" || part.starts_with("slurm:")) {
            SHARDSCOPE_ASSIGN(SlurmRequest asked, parseSlurm(part.substr(std::min<size_t>(part.size(), 6))));
            const auto request = std::make_shared<const SlurmRequest>(std::move(asked));
            for (size_t task = 0; task < request->workers(); ++task)
                workers.push_back({.slurm = request, .task = task});
        } else {
            return wrong(part);
        }
    }
    if (workers.empty()) return wrong(text);
    return all;
}

Result<WorkerList> workersOfJob(std::string_view text) {
    SHARDSCOPE_ASSIGN(WorkerList workers, parseWorkers(text));
    if (workers.ranks && workers.ranks->count == 0 && !workers.ranks->gpus)
        return makeError(ErrorCode::usage, "a job starts its ranks itself")
            .withHint(fmt::format("say how many: {}, or local-gpus", option("on", "ranks:4")));
    return workers;
}

unsigned gpusHere() {
    constexpr std::string_view kDevice = "nvidia";
    unsigned count = 0;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator("/dev", error)) {
        const std::string name = entry.path().filename().string();
        count += name.starts_with(kDevice) && name.size() > kDevice.size() &&
                 std::all_of(name.begin() + kDevice.size(), name.end(),
                             [](char c) { return c >= '0' && c <= '9'; });
    }
    return count;
}

}  // namespace shardscope
