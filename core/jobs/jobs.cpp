#include "jobs/jobs.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <random>
#include <sstream>
#include <utility>

#include <dirent.h>
#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/numbers.h"
#include "base/units.h"
#include "engine/whole_file.h"

extern char** environ;

namespace shardscope {
namespace {

using Json = nlohmann::json;

constexpr size_t kTail = size_t{256} << 10;  // of the progress: holds the last event of each kind
constexpr int kStartSeconds = 15;            // a shell that has not recorded itself by then never will

// Records who it is, runs the program, records how it ended. The words of the command are positional
// parameters; none becomes a part of this text. The trap lets the shell outlive a Ctrl-C that is meant for
// its child. How it ended is on disk before it says so; who it is counts until the host goes down.
constexpr const char* kWrapper = R"(trap : INT
directory=$1
cd "$2" || exit
shift 2
cat "/proc/$$/stat" > "$directory/process.new" && mv -f "$directory/process.new" "$directory/process"
"$@" < /dev/null > "$directory/result.json" 2>> "$directory/progress.ndjson"
code=$?
printf '%s' "$code" 1<> "$directory/exit.new" || exit
sync "$directory/result.json" "$directory/exit.new" 2> /dev/null
mv -f "$directory/exit.new" "$directory/exit" && sync "$directory" 2> /dev/null
)";

// For the result and some hours of events; a job that begins with less may end without a word.
constexpr uint64_t kRoomForRecord = uint64_t{1} << 20;

// Room for the exit code, made before the job runs: it is recorded also where the disk is full by then.
constexpr const char* kRoomForExit = "    \n";

std::string contents(const std::string& path, size_t tail = SIZE_MAX) {
    // Anything else may keep who reads it for ever.
    struct stat is {};
    if (::stat(path.c_str(), &is) != 0 || !S_ISREG(is.st_mode)) return {};
    std::ifstream in(path, std::ios::binary);
    if (!in) return {};
    if (tail == SIZE_MAX) {  // files of /proc do not say how long they are
        std::string text;
        std::array<char, 65536> piece;
        while (text.size() < (size_t{64} << 20) && (in.read(piece.data(), piece.size()) || in.gcount() > 0))
            text.append(piece.data(), static_cast<size_t>(in.gcount()));
        return text;
    }
    in.seekg(0, std::ios::end);
    const auto size = static_cast<uint64_t>(std::max<std::streamoff>(0, in.tellg()));
    const uint64_t take = std::min<uint64_t>(size, tail);
    in.seekg(static_cast<std::streamoff>(size - take));
    std::string text(take, '\0');
    in.read(text.data(), static_cast<std::streamsize>(take));
    text.resize(static_cast<size_t>(std::max<std::streamsize>(0, in.gcount())));
    return text;
}

std::string lineOf(const std::string& path) {
    std::string text = contents(path);
    while (!text.empty() && (text.back() == '\n' || text.back() == ' '))
        text.pop_back();
    return text;
}

std::string hostName() {
    std::array<char, 256> name{};
    gethostname(name.data(), name.size() - 1);
    return name.data();
}

std::string now() {
    const auto time =
        std::chrono::time_point_cast<std::chrono::milliseconds>(std::chrono::system_clock::now());
    const auto milliseconds = time.time_since_epoch().count() % 1000;
    return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(std::chrono::system_clock::to_time_t(time)),
                       milliseconds);
}

double secondsSince(const std::string& path) {
    struct stat info {};
    if (stat(path.c_str(), &info) != 0) return 1e9;
    return std::abs(std::difftime(std::time(nullptr), info.st_mtime));  // of a host whose clock is ahead
}

// Fields of /proc/<pid>/stat: the name, which may hold anything, ends at the last ')'.
struct ProcessStat {
    int64_t pid = 0;
    char state = 0;
    std::string start;
};
std::optional<ProcessStat> processStat(const std::string& text) {
    const size_t close = text.rfind(')');
    if (close == std::string::npos) return std::nullopt;
    ProcessStat stat;
    stat.pid = std::strtoll(text.c_str(), nullptr, 10);
    std::istringstream rest(text.substr(close + 1));
    std::string field;
    for (int i = 3; rest >> field; ++i) {
        if (i == 3) stat.state = field[0];
        if (i == 22) stat.start = field;
    }
    if (stat.pid <= 1 || stat.start.empty()) return std::nullopt;
    return stat;
}

// Processes that this one started. Those that have ended stay in the system's table until they are asked for.
class Children {
  public:
    static Children& ours() {
        static Children children;
        return children;
    }
    void add(pid_t child) {
        std::lock_guard lock(mutex_);
        reap();
        children_.push_back(child);
    }
    void look() {
        std::lock_guard lock(mutex_);
        reap();
    }

  private:
    void reap() {
        std::erase_if(children_, [](pid_t child) { return waitpid(child, nullptr, WNOHANG) != 0; });
    }
    std::mutex mutex_;
    std::vector<pid_t> children_;
};

// The shell leads its processes: while one of them is there, nothing else gets its number.
bool aliveNow(JobRecord& job) {
    Children::ours().look();
    const auto recorded = processStat(contents(job.directory + "/process"));
    if (!recorded) return false;
    job.pid = recorded->pid;
    const auto there = processStat(contents(fmt::format("/proc/{}/stat", recorded->pid)));
    if (!there) return ::kill(static_cast<pid_t>(-recorded->pid), 0) == 0;
    return there->start == recorded->start && there->state != 'Z' && there->state != 'X';
}

Json parsed(const std::string& text) {
    return Json::parse(text, nullptr, false);
}

void readProgress(JobRecord& job) {
    std::istringstream lines(contents(job.directory + "/progress.ndjson", kTail));
    std::string progress, workers, line;
    while (std::getline(lines, line)) {
        if (line.starts_with("{\"event\":\"progress\"")) progress = line;
        if (line.starts_with("{\"event\":\"workers\"")) workers = line;
        if (line.starts_with("{\"event\":\"attempt\"")) progress.clear(), workers.clear();
    }
    if (Json event = parsed(progress); event.is_object()) job.progress = std::move(event);
    if (Json event = parsed(workers); event.is_object() && event.contains("workers"))
        job.workers = std::move(event["workers"]);
}

void readOutcome(JobRecord& job) {
    // The power may have failed before it was written.
    const auto code = parseNumber<int>(lineOf(job.directory + "/exit"));
    job.exitCode = code.value_or(-1);
    job.result = parsed(contents(job.directory + "/result.json"));
    if (!job.result.is_object()) job.result = Json();
    // It says why it failed, unless there was no room for that, or it was never found (126, 127).
    if (job.exitCode > 0 && job.exitCode < 126 && job.result.is_null())
        job.result = {
            {"schema", "shardscope.error/1"},
            {"code", "io"},
            {"message", fmt::format("what became of it could not be recorded in '{}' (exit code {}); "
                                    "its destination is whole if it is there",
                                    job.directory, job.exitCode)}};
    const std::string schema = textIn(job.result, "schema");
    if (!code) {
        job.state = JobState::lost;
    } else if (job.exitCode == 0) {
        job.state = JobState::done;
    } else if (job.exitCode == 130 ||
               (schema == "shardscope.error/1" && textIn(job.result, "code") == "cancelled")) {
        job.state = JobState::cancelled;
    } else {
        job.state = job.exitCode > 128 ? JobState::lost : JobState::failed;
    }
}

// Its name is on disk, too. Errors: exists, io.
Status makeDirectory(const std::string& path) {
    if (mkdir(path.c_str(), 0700) != 0) return systemError(errno, "make a directory for the job", path);
    return systemFileSystem()->syncDirectory(splitPath(path).first);
}

Status makeDirectories(const std::string& path) {
    for (size_t at = 1; at <= path.size(); ++at) {
        if (at < path.size() && path[at] != '/') continue;
        Status made = makeDirectory(path.substr(0, at));
        if (!made.ok() && made.error().code != ErrorCode::exists) return made;
    }
    return {};
}

// The words that ask a program for the same.
std::vector<std::string> wordsOf(const JobOrder& order) {
    std::vector<std::string> words = convertWords(order.request);
    if (!order.report.empty()) words.insert(words.end(), {"--report", order.report});
    if (!order.remoteProgram.empty()) words.insert(words.end(), {"--remote-program", order.remoteProgram});
    return words;
}

// Fills in what is to be done. Errors: damaged.
Status takeOrder(const Json& json, JobRecord& job) {
    const auto request = json.find("request"), arguments = json.find("arguments");
    if (request != json.end()) {
        auto read = requestFromJson(request->dump());
        if (!read.ok()) return damaged("job.json holds no request: " + read.error().message);
        job.order = {std::move(read).value(), textIn(json, "report"), textIn(json, "remote_program")};
        job.arguments = wordsOf(*job.order);
    } else if (arguments != json.end() && arguments->is_array()) {
        for (const Json& word : *arguments) {
            if (word.is_string()) job.arguments.push_back(word.get<std::string>());
        }
    } else {
        return damaged("job.json does not describe a job");
    }
    return {};
}

}  // namespace

std::string_view jobStateName(JobState state) {
    constexpr std::string_view names[] = {"starting", "running", "done", "failed", "cancelled", "lost"};
    return names[static_cast<size_t>(state)];
}

JobDirectory::JobDirectory(std::string path) : path_(std::move(path)) {
    if (path_.empty()) path_ = stateDirectory("jobs");
}

Result<JobRecord> JobDirectory::read(const std::string& id, bool progress) const {
    JobRecord job;
    job.id = id;
    job.directory = path_ + "/" + id;
    const std::string file = job.directory + "/job.json";
    const Json json = parsed(contents(file));
    if (textIn(json, "schema") != "shardscope.job/1")
        return damaged("job.json does not describe a job").inFile(file);
    job.title = textIn(json, "title");
    job.source = textIn(json, "source");
    job.destination = textIn(json, "destination");
    job.program = textIn(json, "program");
    job.host = textIn(json, "host");
    job.created = textIn(json, "created");
    job.started = textIn(json, "started");
    job.workingDirectory = textIn(json, "directory");
    if (job.created.empty() || job.started.empty())
        return damaged("job.json does not say when the job began").inFile(file);
    if (Status status = takeOrder(json, job); !status.ok()) return std::move(status).error().inFile(file);
    // Ranks had a program of their own; the one that was beside it does the same for an order.
    if (const auto [directory, name] = splitPath(job.program); name == "shardscope-worker" && job.order)
        job.program = joinPath(directory, "shardscope");
    if (const auto it = json.find("attempts"); it != json.end() && it->is_number_integer())
        job.attempts = std::max(1, it->get<int>());
    job.elsewhere = job.host != hostName();
    // The process is asked before its results are looked for: what it wrote before it ended is then there.
    const bool sameBoot = textIn(json, "boot") == lineOf("/proc/sys/kernel/random/boot_id");
    const bool alive = !job.elsewhere && sameBoot && aliveNow(job);
    if (progress) readProgress(job);
    if (access((job.directory + "/exit").c_str(), F_OK) == 0) {
        readOutcome(job);
    } else if (alive || job.elsewhere) {
        job.state = JobState::running;
    } else if (sameBoot && job.pid == 0 && secondsSince(file) < kStartSeconds) {
        job.state = JobState::starting;
    } else {
        job.state = JobState::lost;
    }
    return job;
}

Result<std::vector<JobRecord>> JobDirectory::list() const {
    std::vector<JobRecord> jobs;
    DIR* directory = opendir(path_.c_str());
    if (!directory) {
        if (errno == ENOENT) return jobs;
        return systemError(errno, "list the jobs", path_);
    }
    while (const dirent* entry = readdir(directory)) {
        if (entry->d_name[0] == '.') continue;
        if (auto job = read(entry->d_name); job.ok()) jobs.push_back(std::move(job).value());
    }
    closedir(directory);
    std::sort(jobs.begin(), jobs.end(), [](const JobRecord& a, const JobRecord& b) {
        return std::pair(a.created, a.id) > std::pair(b.created, b.id);
    });
    return jobs;
}

Result<JobRecord> JobDirectory::find(const std::string& id) const {
    SHARDSCOPE_ASSIGN(std::vector<JobRecord> jobs, list());
    JobRecord* found = nullptr;
    for (JobRecord& job : jobs) {
        if (job.id == id) return std::move(job);
        if (!id.empty() && job.id.starts_with(id)) {
            if (found) return makeError(ErrorCode::usage, fmt::format("several jobs begin with '{}'", id));
            found = &job;
        }
    }
    // One that is damaged is not in the list.
    if (!found && !id.empty() && id.find('/') == std::string::npos && id.front() != '.' &&
        access((path_ + "/" + id).c_str(), F_OK) == 0) {
        auto job = read(id);
        return job.ok() ? job : std::move(job).error().withHint("its log and result are beside this file");
    }
    if (!found)
        return makeError(ErrorCode::notFound, fmt::format("there is no job '{}'", id))
            .withHint("'shardscope jobs list' names them");
    return std::move(*found);
}

namespace {

// What job.json holds; what is shown of a job is another document. Errors: usage.
Result<std::string> descriptionOf(const JobRecord& job) {
    Json json{{"schema", "shardscope.job/1"}, {"title", job.title},
              {"source", job.source},         {"destination", job.destination},
              {"program", job.program},       {"directory", job.workingDirectory},
              {"host", hostName()},           {"boot", lineOf("/proc/sys/kernel/random/boot_id")},
              {"created", job.created},       {"started", now()},
              {"attempts", job.attempts}};
    if (job.order) {
        SHARDSCOPE_ASSIGN(const std::string request, requestJson(job.order->request));
        json["request"] = parsed(request);
        json["report"] = job.order->report;
        json["remote_program"] = job.order->remoteProgram;
    } else {
        json["arguments"] = job.arguments;
    }
    try {
        return json.dump(2) + "\n";
    } catch (const Json::exception&) {
        return makeError(ErrorCode::usage, "a job whose paths are not UTF-8 cannot be kept as JSON");
    }
}

// Held while a job is started, so that of several who want to one does.
class StartLock {
  public:
    static Result<StartLock> take(const JobRecord& job) {
        const std::string path = job.directory + "/lock";
        StartLock lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
        if (lock.file_ < 0) return systemError(errno, "lock the job", path);
        // Where the file system cannot lock, everyone gets it.
        if (flock(lock.file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
            return makeError(ErrorCode::exists, fmt::format("the job {} is being started", job.id));
        return lock;
    }
    StartLock(StartLock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
    ~StartLock() {
        if (file_ >= 0) ::close(file_);
    }

  private:
    explicit StartLock(int file) : file_(file) {}
    int file_;
};

}  // namespace

Status JobDirectory::launch(JobRecord job, bool resume) const {
    const std::string where = job.workingDirectory.empty() ? "." : job.workingDirectory;
    if (access((where + "/.").c_str(), X_OK) != 0)
        return systemError(errno, "enter the job's directory", where);
    SHARDSCOPE_ASSIGN(const std::string record, descriptionOf(job));
    std::error_code unknown;
    if (const auto space = std::filesystem::space(job.directory, unknown);
        !unknown && space.capacity > 0 && space.available < kRoomForRecord)
        return makeError(ErrorCode::noSpace, "there is no room for the record of a job")
            .inFile(job.directory)
            .withHint("make a mebibyte free there, or name another place with XDG_STATE_HOME");
    for (const char* name : {"/exit", "/process", "/result.json"})
        unlink((job.directory + name).c_str());
    SHARDSCOPE_TRY(putWholeFile(systemFileSystem(), job.directory + "/job.json", record, true));
    {
        std::ofstream out(job.directory + "/exit.new", std::ios::binary | std::ios::trunc);
        out << kRoomForExit;
        if (!out.flush()) return systemError(errno, "record the job", job.directory + "/exit.new");
    }
    {
        std::ofstream out(logPath(job), std::ios::app);
        out << fmt::format("{{\"event\":\"attempt\",\"number\":{}}}\n", job.attempts);
        if (!out.flush()) return systemError(errno, "record the job", logPath(job));
    }
    std::vector<std::string> words{"/bin/sh",     "-c",  kWrapper,   "shardscope-job",
                                   job.directory, where, job.program};
    // What follows "--" is not an option.
    const auto paths = std::find(job.arguments.begin(), job.arguments.end(), "--");
    words.insert(words.end(), job.arguments.begin(), paths);
    if (resume && std::find(words.begin(), words.end(), "--resume") == words.end())
        words.push_back("--resume");
    words.insert(words.end(), {"--progress", "json", "--json"});
    words.insert(words.end(), paths, job.arguments.end());
    std::vector<char*> arguments;
    for (std::string& word : words)
        arguments.push_back(word.data());
    arguments.push_back(nullptr);

    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    for (const int fd : {0, 1, 2})
        posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", fd == 0 ? O_RDONLY : O_WRONLY, 0);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t defaults;
    sigemptyset(&defaults);
    for (const int signal : {SIGPIPE, SIGINT, SIGTERM, SIGHUP})
        sigaddset(&defaults, signal);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
    pid_t child = 0;
    const int failed =
        posix_spawn(&child, words[0].c_str(), &actions, &attributes, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (failed != 0) return systemError(failed, "start the job", words[0]);
    Children::ours().add(child);
    return {};
}

std::string JobDirectory::newId() {
    std::random_device random;
    return fmt::format("{:%Y%m%d-%H%M%S}-{:08x}", fmt::gmtime(std::time(nullptr)), random());
}

Status JobDirectory::start(JobRecord job) const {
    std::error_code none;
    const std::string here = std::filesystem::current_path(none).string();
    if (none) return systemError(none.value(), "find the directory that the job is started in", "");
    SHARDSCOPE_TRY(makeDirectories(path_));
    job.workingDirectory = here;
    job.directory = path_ + "/" + job.id;
    job.created = now();
    job.source = job.order->request.source;
    job.destination = job.order->request.destination;
    job.arguments = wordsOf(*job.order);
    // Paths and names of a job are its owner's business.
    SHARDSCOPE_TRY(makeDirectory(job.directory));
    Status status = launch(job, false);
    std::error_code ignored;
    if (!status.ok()) std::filesystem::remove_all(job.directory, ignored);
    return status;
}

Status JobDirectory::again(const JobRecord& job, bool resume) const {
    SHARDSCOPE_ASSIGN(const StartLock lock, StartLock::take(job));
    // Others may have started it since, and it may have ended.
    SHARDSCOPE_ASSIGN(const JobRecord found, read(job.id, false));
    if (found.active()) return makeError(ErrorCode::exists, fmt::format("the job {} runs", job.id));
    if (resume && found.state == JobState::done)
        return makeError(ErrorCode::exists, fmt::format("the job {} is done", job.id))
            .withHint("start a new one to do it again");
    if (!found.order && splitPath(found.program).second == "shardscope-worker")
        return unsupported("the job is one of shardscope-worker, which this version does not have")
            .withHint("start a new one: shardscope jobs run --on ranks:N convert ...");
    JobRecord next = job;
    next.attempts = found.attempts + 1;
    return launch(std::move(next), resume);
}

Status JobDirectory::remove(const JobRecord& job) const {
    if (job.active() && !job.elsewhere)
        return makeError(ErrorCode::exists, fmt::format("the job {} still runs", job.id))
            .withHint("cancel it first");
    // The description goes first: without it the rest is no longer a job, even when removing it fails half
    // way.
    if (unlink((job.directory + "/job.json").c_str()) != 0)
        return systemError(errno, "remove the job", job.directory + "/job.json");
    std::error_code error;
    std::filesystem::remove_all(job.directory, error);
    if (error) return systemError(error.value(), "remove the job", job.directory);
    return {};
}

Status JobDirectory::cancel(const JobRecord& job) const {
    if (!job.active()) return makeError(ErrorCode::notFound, fmt::format("the job {} does not run", job.id));
    if (job.elsewhere)
        return unsupported(fmt::format("the job runs on '{}' and can only be canceled there", job.host));
    if (job.pid <= 1) return makeError(ErrorCode::notFound, "the job has not begun yet");
    const auto group = static_cast<pid_t>(job.pid);
    if (group == getpgrp() || ::kill(-group, SIGINT) != 0)
        return makeError(ErrorCode::notFound, "the job has just ended");
    return {};
}

}  // namespace shardscope
