#include "cli/after_fault.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include <fcntl.h>
#include <unistd.h>

namespace shardscope::test {
namespace {

// Of a process that may end meanwhile, which is an error of reading.
std::string contentOf(const std::filesystem::path& path) {
    std::string text;
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    char piece[16384];
    for (ssize_t got = 0; file >= 0 && (got = read(file, piece, sizeof piece)) > 0;)
        text.append(piece, static_cast<size_t>(got));
    if (file >= 0) close(file);
    return text;
}

}  // namespace

std::vector<pid_t> childrenOf(pid_t parent) {
    const std::filesystem::path process = "/proc/" + std::to_string(parent);
    // Until it runs its own program a child shows its parent's words and environment, and the parent waits
    // for it. Ranks have the words, too, but another environment.
    const auto shows = [](const std::filesystem::path& of) {
        return contentOf(of / "cmdline") + contentOf(of / "environ");
    };
    const std::string own = shows(process);
    std::vector<pid_t> children;
    std::error_code error;
    for (const auto& task : std::filesystem::directory_iterator(process / "task", error)) {
        std::istringstream words(contentOf(task.path() / "children"));
        pid_t child = 0;
        while (words >> child) {
            if (shows("/proc/" + std::to_string(child)) != own) children.push_back(child);
        }
    }
    return children;
}

std::vector<pid_t> agentsWith(const std::string& mark) {
    std::vector<pid_t> found;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
        const std::string name = entry.path().filename().string();
        if (!std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; })) continue;
        // The first of its words is whatever copy of the program it is.
        const std::string words = contentOf(entry.path() / "cmdline");
        const size_t first = words.find('\0');
        constexpr std::string_view kWords{"\0agent\0--stdio", 14};
        if (first == words.npos || words.compare(first, kWords.size(), kWords) != 0) continue;
        if (contentOf(entry.path() / "environ").find(mark) != std::string::npos)
            found.push_back(static_cast<pid_t>(std::stol(name)));
    }
    return found;
}

uint64_t bytesRead(const std::vector<pid_t>& processes) {
    uint64_t sum = 0;
    for (const pid_t process : processes) {
        const std::string text = contentOf("/proc/" + std::to_string(process) + "/io");
        if (text.starts_with("rchar: ")) sum += std::strtoull(text.c_str() + 7, nullptr, 10);
    }
    return sum;
}

void keepSecret() {
    setenv("SHARDSCOPE_TEST_SECRET", kSecret, 1);
}

std::string secretTold(const Measured& run) {
    const auto told = [](const std::string& text) {
        return text.find(kSecret) != text.npos || text.find("PRIVATE KEY") != text.npos;
    };
    if (told(run.out) || told(run.err)) return "a secret is printed";
    std::error_code error;
    const char* state = std::getenv("XDG_STATE_HOME");
    for (const auto& entry : std::filesystem::recursive_directory_iterator(state ? state : "", error)) {
        if (entry.is_regular_file(error) && told(contentOf(entry.path())))
            return "a secret is in " + entry.path().string();
    }
    return "";
}

std::string afterFault(const Measured& run, const std::string& target, const nlohmann::json& expected,
                       const std::vector<std::string>& again) {
    if (run.timedOut) return "it hung";
    if (std::string told = secretTold(run); !told.empty()) return told;
    const bool done = run.exitCode == 0 && run.signal == 0;
    // What was ended the moment after it had published is there.
    if (done || std::filesystem::exists(target))
        return digestsOf(target) == expected ? "" : "what was published is not what one process makes";
    if (run.signal != SIGKILL) {
        const nlohmann::json said = run.json();
        if (!said.is_object() || !said.contains("message") || said["message"].get<std::string>().empty())
            return "no error is told";
    }
    const Measured rest = runMeasured(again);
    if (rest.exitCode != 0) return "it does not continue: " + rest.describe();
    return digestsOf(target) == expected ? "" : "what was resumed is not what one process makes";
}

}  // namespace shardscope::test
