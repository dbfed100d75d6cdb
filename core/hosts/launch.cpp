#include "hosts/launch.h"

#include <array>
#include <cstdlib>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/numbers.h"
#include "base/option_words.h"
#include "base/own_library.h"
#include "base/text.h"
#include "storage/digest.h"
#include "storage/file_system.h"
#include "storage/url.h"

namespace shardscope {
namespace {

constexpr std::chrono::seconds kLocalAnswer{10};
constexpr std::chrono::seconds kRemoteAnswer{30};
constexpr std::chrono::minutes kCopy{10};
constexpr int kSshFailed = 255;  // its own exit code; all others are the command's
constexpr std::string_view kScheme = "ssh://";
constexpr std::string_view kMissing = "SHARDSCOPE-MISSING ";

std::string shellQuoted(std::string_view word) {
    std::string text = "'";
    for (const char c : word)
        text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return text + "'";
}

std::vector<std::string> sshWords(const HostSpec& spec, const std::string& command) {
    const char* other = std::getenv("SHARDSCOPE_SSH");
    std::vector<std::string> words{other && *other ? other : "ssh",
                                   "-T",
                                   "-o",
                                   "BatchMode=yes",
                                   "-o",
                                   "ConnectTimeout=30",  // a busy host greets late
                                   "-o",
                                   "ServerAliveInterval=1",
                                   "-o",
                                   "ServerAliveCountMax=3"};
    if (spec.port) words.insert(words.end(), {"-p", std::to_string(spec.port)});
    words.insert(words.end(), {"--", spec.host, command});
    return words;
}

Result<Launched> launch(const std::string& who, const std::vector<std::string>& words,
                        std::chrono::seconds patience, const std::function<bool()>& stopping,
                        std::string* instead = nullptr, const std::function<void(Process&)>& prepare = {}) {
    Launched launched;
    SHARDSCOPE_ASSIGN(launched.process, Process::start(words));
    if (prepare) prepare(*launched.process);
    const int output = launched.process->takeOutput();
    launched.channel = std::make_unique<Channel>(output, launched.process->takeInput());
    Status status = launched.channel->greet(Channel::Clock::now() + patience, stopping);
    if (status.ok()) return launched;
    if (status.error().code == ErrorCode::cancelled) {
        launched.process->kill();
        return std::move(status).error();
    }
    Error error = endOf(who, std::move(status).error(), *launched.process);
    if (instead) *instead = launched.channel->noise();
    return error;
}

// What hosts get a copy of, all in one directory.
struct HostFile {
    std::string path, name, sha256{};
};
struct OwnProgram {
    std::vector<HostFile> files;  // the program last, which then finds the others
    std::string system;           // "Linux x86_64"
};

Result<std::string> sha256Of(const std::string& path) {
    const auto [directory, name] = splitPath(path);
    SHARDSCOPE_ASSIGN(const auto opened, systemFileSystem()->openDirectory(directory));
    SHARDSCOPE_ASSIGN(const auto file, opened->openFile(name));
    const auto sha = makeSha256();
    std::vector<std::byte> piece(size_t{1} << 20);
    for (uint64_t at = 0; at < file->size();) {
        const std::span<std::byte> part =
            std::span(piece).first(std::min<uint64_t>(piece.size(), file->size() - at));
        SHARDSCOPE_TRY(file->readAt(at, part));
        sha->update(part);
        at += part.size();
    }
    return sha->hex();
}

// The same program without libraries of the system, where it was built or installed beside this one: a host
// may lack them. This one otherwise, with the library that it is in.
std::vector<HostFile> filesForHosts(const std::string& program) {
    const std::unique_ptr<char, void (*)(void*)> own(::realpath(program.c_str(), nullptr), std::free);
    if (own) {
        std::string found =
            splitPath(splitPath(own.get()).first).first + "/libexec/shardscope/shardscope-static";
        if (::access(found.c_str(), X_OK) == 0) return {HostFile{std::move(found), "shardscope"}};
    }
    std::vector<HostFile> files;
    if (!ownLibrary().empty()) files.push_back({ownLibrary(), "_shardscope.so"});
    files.push_back({program, "shardscope"});
    return files;
}

Result<OwnProgram> programForHosts(const std::string& program) {
    utsname system{};
    uname(&system);
    OwnProgram own{filesForHosts(program), fmt::format("{} {}", system.sysname, system.machine)};
    for (HostFile& file : own.files) {
        SHARDSCOPE_ASSIGN(file.sha256, sha256Of(file.path));
    }
    return own;
}

// Puts a copy of a file where later jobs find it too; it appears whole or not at all.
Status install(const HostSpec& spec, const std::string& directory, const HostFile& own,
               const std::function<bool()>& stopping) {
    const int file = ::open(own.path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return systemError(errno, "read the program", own.path);
    const std::string command = fmt::format(
        "umask 077; d=\"$HOME\"/{0}; mkdir -p \"$d\" && t=\"$d/.new.$$\" && cat > \"$t\" && "
        "echo \"{1}  $t\" | sha256sum -c - > /dev/null && chmod 700 \"$t\" && {{ sync \"$t\" 2> /dev/null || "
        "true; }} && "
        "mv -f \"$t\" \"$d/{2}\" || {{ rm -f \"$t\"; exit 1; }}",
        directory, own.sha256, own.name);
    auto process = Process::start(sshWords(spec, command), file);
    ::close(file);
    if (!process.ok()) return std::move(process).error();
    const auto end = Channel::Clock::now() + kCopy;
    while (!(*process)->waitFor(std::chrono::milliseconds(100)) && Channel::Clock::now() < end) {
        if (!stopping || !stopping()) continue;
        (*process)->kill();
        return makeError(ErrorCode::cancelled, "canceled");
    }
    if ((*process)->exitCode() != 0)
        return endOf(spec.host, makeError(ErrorCode::remote, "the program could not be copied there"),
                     **process);
    return {};
}

Result<Launched> launchRemote(const HostSpec& spec, const AgentProgram& agent,
                              const std::function<bool()>& stopping) {
    const std::string& host = spec.host;
    SHARDSCOPE_TRY(checkHost(host));
    if (!agent.remoteProgram.empty()) {
        return launch(host, sshWords(spec, "exec " + shellQuoted(agent.remoteProgram) + " agent --stdio"),
                      kRemoteAnswer, stopping);
    }
    SHARDSCOPE_ASSIGN(const OwnProgram own, programForHosts(agent.program));
    const std::string directory =
        fmt::format(".cache/shardscope/{}-{}", agent.version, own.files.front().sha256.substr(0, 16));
    std::string sums;  // as sha256sum prints them
    for (const HostFile& file : own.files)
        sums += fmt::format(" {} \"$d/{}\"", file.sha256, file.name);
    // What a crash of the host has left short is copied again. That it is missing is said on standard output:
    // of what a host writes to the other stream, and it may write much, only the end is kept.
    const std::string command = fmt::format(
        "d=\"$HOME\"/{}; test -x \"$d/shardscope\" && printf '%s  %s\\n'{} | sha256sum -c - > /dev/null 2>&1 "
        "&& exec \"$d/shardscope\" agent --stdio; echo \"{}$(uname -s) $(uname -m)\"; exit 127",
        directory, sums, kMissing);
    std::string instead;
    auto first = launch(host, sshWords(spec, command), kRemoteAnswer, stopping, &instead);
    const size_t at = instead.rfind(kMissing);
    if (first.ok() || at == std::string::npos) return first;
    const std::string_view rest = std::string_view(instead).substr(at + kMissing.size());
    const std::string there = oneLine(rest.substr(0, rest.find('\n')), 100);
    if (there != own.system) {
        return makeError(ErrorCode::remote,
                         fmt::format("{} is {}, this program is for {}", host, there, own.system))
            .withHint("install shardscope there and name it with " + option("remote-program"));
    }
    for (const HostFile& file : own.files)
        SHARDSCOPE_TRY(install(spec, directory, file, stopping));
    instead.clear();
    auto second = launch(host, sshWords(spec, command), kRemoteAnswer, stopping, &instead);
    if (second.ok() || instead.find(kMissing) == std::string::npos) return second;
    return makeError(ErrorCode::remote,
                     fmt::format("{}: what was copied to ~/{} cannot be run from there", host, directory))
        .withHint("its file system may be mounted noexec: put shardscope elsewhere there, and name it with " +
                  option("remote-program"));
}

}  // namespace

std::string stderrTail(Process& process, size_t most) {
    const std::string said = process.said();
    // A host may greet at length before it says what is wrong.
    const std::string_view last = std::string_view(said).substr(said.size() - std::min(said.size(), most));
    return (last.size() < said.size() ? "..." : "") + oneLine(last, most);
}

Error endOf(const std::string& who, Error error, Process& process) {
    // What ssh or the program said on its way out tells more than that the stream ended.
    process.waitFor(std::chrono::milliseconds(500));
    const std::string said = stderrTail(process, 600);
    const std::string ending = process.ending();
    // But for what says what to do: that was not the end of a stream.
    const bool plain = said.empty() || !error.hint.empty();
    Error full = makeError(ErrorCode::remote, fmt::format("{}: {}", who, plain ? error.message : said));
    full.hint = error.hint;
    if (process.exitCode() >= 0 || ending.starts_with("killed")) full.message += fmt::format(" ({})", ending);
    if (said.find("Host key verification failed") != said.npos)
        full.hint = fmt::format("connect once by hand, 'ssh {}', and check its key", who);
    else if (process.exitCode() == kSshFailed && said.find("Permission denied") != said.npos)
        full.hint = fmt::format("'ssh -o BatchMode=yes {} true' must work without a question", who);
    return full;
}

Status checkHost(std::string_view host) {
    const auto good = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               std::string_view("@.-_:[]%").find(c) != std::string_view::npos;
    };
    if (host.empty() || host.front() == '-' || !std::all_of(host.begin(), host.end(), good))
        return makeError(ErrorCode::usage, fmt::format("'{}' is not a host", oneLine(host, 100)));
    return {};
}

bool isSshPath(std::string_view text) {
    return text.starts_with(kScheme);
}

bool isElsewhere(std::string_view text) {
    return isSshPath(text) || !schemeOf(text).empty();
}

Result<SshPath> parseSshPath(std::string_view text) {
    const auto wrong = [&](std::string_view why) {
        return makeError(ErrorCode::usage, fmt::format("'{}' {}", oneLine(text, 200), why))
            .withHint("a checkpoint on another host is ssh://[user@]host[:port]/absolute/path");
    };
    if (!isSshPath(text)) return wrong("does not begin with ssh://");
    const std::string_view rest = text.substr(kScheme.size());
    const size_t slash = rest.find('/');
    if (slash == std::string_view::npos) return wrong("names no path");
    if (rest.find('\0') != std::string_view::npos) return wrong("holds a zero byte");
    SshPath found;
    found.path = rest.substr(slash);
    std::string_view host = rest.substr(0, slash);
    std::string user;
    if (const size_t at = host.rfind('@'); at != std::string_view::npos) {
        user = host.substr(0, at + 1);
        host = host.substr(at + 1);
    }
    // An IPv6 address stands in brackets, which ssh does not want.
    std::string_view port;
    if (host.starts_with('[')) {
        const size_t end = host.find(']');
        if (end == std::string_view::npos) return wrong("names no host");
        port = host.substr(end + 1);
        host = host.substr(1, end - 1);
    } else if (const size_t colon = host.find(':'); colon != std::string_view::npos) {
        port = host.substr(colon);
        host = host.substr(0, colon);
    }
    if (!port.empty()) {
        found.host.port = parseNumber<decltype(found.host.port)>(port.substr(1)).value_or(0);
        if (port.front() != ':' || found.host.port == 0) return wrong("has an invalid port");
    }
    if (host.empty() || host.front() == '-' || host.find('@') != std::string_view::npos)
        return wrong("names no host");
    found.host.host = user + std::string(host);
    if (!checkHost(found.host.host).ok() || user == "@") return wrong("names no host");
    return found;
}

std::string hostText(const HostSpec& spec) {
    const size_t at = spec.host.rfind('@');
    const std::string user = at == std::string::npos ? "" : spec.host.substr(0, at + 1);
    std::string host = spec.host.substr(user.size());
    if (host.find(':') != std::string::npos) host = "[" + host + "]";
    std::string text = std::string(kScheme) + user + host;
    if (spec.port) text += fmt::format(":{}", spec.port);
    return text;
}

Result<Launched> launchProgram(const std::string& who, const std::vector<std::string>& words,
                               std::chrono::seconds patience, const std::function<void(Process&)>& prepare,
                               const std::function<bool()>& stopping) {
    return launch(who, words, patience, stopping, nullptr, prepare);
}

Result<Launched> launchAgent(const HostSpec& spec, const AgentProgram& agent,
                             const std::function<bool()>& stopping) {
    if (!spec.host.empty()) return launchRemote(spec, agent, stopping);
    return launch("a worker on this machine", {agent.program, "agent", "--stdio"}, kLocalAnswer, stopping);
}

}  // namespace shardscope
