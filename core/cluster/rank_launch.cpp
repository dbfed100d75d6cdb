#include "cluster/rank_launch.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include <fmt/format.h>
#include <unistd.h>

namespace shardscope {
namespace {

constexpr unsigned kMostRanks = 1024;
constexpr std::string_view kRanks = "ranks:", kGpus = "local-gpus";

}  // namespace

std::vector<std::string> RankLaunch::words() const {
    std::vector<std::string> words;
    if (ranks > 0)
        words = {"--ranks", std::to_string(ranks)};
    else
        words = {"--gpus"};
    if (!mode.empty()) words.insert(words.end(), {"--mode", mode});
    return words;
}

Result<std::optional<RankLaunch>> parseRankPlaces(std::string_view text) {
    RankLaunch places;
    std::string_view rest = text;
    if (text.starts_with(kRanks)) {
        rest.remove_prefix(kRanks.size());
        const std::string_view number = rest.substr(0, rest.find(','));
        const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), places.ranks);
        if (error != std::errc{} || end != number.data() + number.size() || places.ranks == 0 ||
            places.ranks > kMostRanks)
            return makeError(ErrorCode::usage, "ranks: wants a number from 1 to 1024, as in ranks:4");
        rest.remove_prefix(number.size());
    } else if (text == kGpus || text.starts_with(std::string(kGpus) + ",")) {
        rest.remove_prefix(kGpus.size());
    } else {
        return std::optional<RankLaunch>();
    }
    if (!rest.empty()) {
        places.mode = rest.substr(1);
        constexpr std::string_view kModes[] = {"auto", "direct", "broadcast", "exchange"};
        if (std::find(std::begin(kModes), std::end(kModes), places.mode) == std::end(kModes))
            return makeError(ErrorCode::usage, fmt::format("'{}' is not a mode of ranks", places.mode))
                .withHint("auto, direct, broadcast or exchange, as in ranks:4,broadcast");
    }
    return std::optional(std::move(places));
}

Result<std::string> workerBeside(const std::string& program) {
    std::string worker = (std::filesystem::path(program).parent_path() / "shardscope-worker").string();
    if (access(worker.c_str(), X_OK) != 0)
        return makeError(ErrorCode::notFound,
                         "rank mode requires shardscope-worker in the same directory as shardscope")
            .inFile(worker)
            .withHint("it is built where libtorch is: packaging/libtorch, then build again");
    return worker;
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
