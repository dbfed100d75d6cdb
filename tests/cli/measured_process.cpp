#include "cli/measured_process.h"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <thread>

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace shardscope::test {
namespace {

constexpr double kPatience = kSanitized ? 10 : 1;

std::string contentOf(int fd) {
    std::string content(static_cast<size_t>(std::max<off_t>(0, lseek(fd, 0, SEEK_END))), '\0');
    const ssize_t got = pread(fd, content.data(), content.size(), 0);
    content.resize(got > 0 ? static_cast<size_t>(got) : 0);
    return content;
}

// The highest resident size of a running process so far. Not from wait4(): what that says includes the memory
// of this program, from which the child was made. A process that ends between two looks has had its peak
// before. A child that has only just replaced this program still shows the memory of this one: its name
// changes after its memory has.
uint64_t peakOf(pid_t process, const std::string& name) {
    char text[4096] = {};
    const int fd = open(("/proc/" + std::to_string(process) + "/status").c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    const ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    if (got <= 0 || std::strncmp(text, name.c_str(), name.size()) != 0) return 0;
    const char* line = std::strstr(text, "VmHWM:");
    return line ? std::strtoull(line + 6, nullptr, 10) * 1024 : 0;
}

double secondsOf(const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

}  // namespace

std::string Measured::describe() const {
    std::string text = !started ? "did not start"
                       : signal ? std::string("ended by signal ") + strsignal(signal)
                                : "exit code " + std::to_string(exitCode);
    if (timedOut) text += " (hung, was killed)";
    text += ", " + std::to_string(seconds) + " s, " + std::to_string(peakBytes >> 20) + " MiB\n";
    return text + out.substr(0, 4000) + err.substr(0, 4000);
}

Measured runMeasured(const std::vector<std::string>& arguments, const MeasuredOptions& options) {
    Measured result;
    std::vector<std::string> words{options.program.empty() ? SHARDSCOPE_PROGRAM : options.program};
    // As the kernel knows the program: fifteen bytes of its name.
    const std::string childName = "Name:\t" + words[0].substr(words[0].rfind('/') + 1).substr(0, 15) + "\n";
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words)
        argv.push_back(word.data());
    argv.push_back(nullptr);
    std::vector<std::string> variables;
    for (char** variable = environ; *variable; ++variable) {
        if (options.temporaryDirectory.empty() || std::strncmp(*variable, "TMPDIR=", 7) != 0)
            variables.emplace_back(*variable);
    }
    if (!options.temporaryDirectory.empty()) variables.push_back("TMPDIR=" + options.temporaryDirectory);
    std::vector<char*> environment;
    for (std::string& variable : variables)
        environment.push_back(variable.data());
    environment.push_back(nullptr);

    const int out = memfd_create("out", MFD_CLOEXEC);
    const int err = memfd_create("err", MFD_CLOEXEC);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out, 1);
    posix_spawn_file_actions_adddup2(&actions, err, 2);
    if (!options.workingDirectory.empty())
        posix_spawn_file_actions_addchdir_np(&actions, options.workingDirectory.c_str());
    pid_t child = 0;
    const auto start = std::chrono::steady_clock::now();
    const int failed =
        posix_spawn(&child, words[0].c_str(), &actions, nullptr, argv.data(), environment.data());
    posix_spawn_file_actions_destroy(&actions);
    if (failed == 0) {
        result.started = true;
        int status = 0;
        rusage usage{};
        bool watching = static_cast<bool>(options.watch);
        while (wait4(child, &status, WNOHANG, &usage) == 0) {
            result.wallSeconds =
                std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
            result.peakBytes = std::max(result.peakBytes, peakOf(child, childName));
            if (watching) watching = options.watch(child, result.wallSeconds);
            if (!result.timedOut && result.wallSeconds > kPatience * options.timeoutSeconds) {
                kill(child, SIGKILL);
                result.timedOut = true;
            }
            std::this_thread::sleep_for(std::chrono::microseconds(500));
        }
        if (WIFEXITED(status)) result.exitCode = WEXITSTATUS(status);
        if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
        result.seconds = secondsOf(usage.ru_utime) + secondsOf(usage.ru_stime);
        result.out = contentOf(out);
        result.err = contentOf(err);
    }
    close(out);
    close(err);
    return result;
}

nlohmann::json digestsOf(const std::string& path) {
    const Measured run = runMeasured({"digest", path, "--json"});
    return run.exitCode == 0 ? run.json()["tensors"] : nlohmann::json(run.describe());
}

std::vector<std::string> convertWords(const std::string& source, const std::string& target,
                                      const std::vector<std::string>& more) {
    std::vector<std::string> all{"convert", source, target,    "--to",   "dcp",
                                 "--mesh",  "tp=3", "--shard", "*:tp=1", "--json"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
}

bool writeRandomSource(const std::string& path, int tensors, uint64_t rows, uint64_t columns, uint32_t seed,
                       const std::string& dtype) {
    const uint64_t bytes = rows * columns * 4;
    nlohmann::json header;
    for (int t = 0; t < tensors; ++t) {
        header["layer." + std::to_string(t) + ".weight"] = {
            {"dtype", dtype}, {"shape", {rows, columns}}, {"data_offsets", {t * bytes, (t + 1) * bytes}}};
    }
    std::string text = header.dump();
    text.resize((text.size() + 8 + 63) / 64 * 64 - 8, ' ');
    std::ofstream file(path, std::ios::binary);
    const uint64_t size = text.size();
    file.write(reinterpret_cast<const char*>(&size), 8);
    file << text;
    std::minstd_rand random(seed);
    std::vector<uint32_t> block(bytes / 4);
    for (int t = 0; t < tensors; ++t) {
        for (uint32_t& word : block)
            word = static_cast<uint32_t>(random());
        file.write(reinterpret_cast<const char*>(block.data()), static_cast<std::streamsize>(bytes));
    }
    return file.flush().good();
}

}  // namespace shardscope::test
