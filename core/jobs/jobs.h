// Conversions that outlive the terminal or window that started them. Each is a child process of its own
// session. Its directory under $XDG_STATE_HOME/shardscope/jobs is all that is known of it, for the command
// line and the window:
// - job.json: shardscope.job/1: the request (engine/request.h), program, title, host, boot, times, attempts
// - process: /proc/<pid>/stat of the shell that records the exit code: pid, and start time against reused
//   pids
// - progress.ndjson: stderr of all attempts: events of --progress json; other lines are messages
// - result.json: stdout of the last attempt: shardscope.report/1 or shardscope.error/1
// - exit: exit code of the last attempt; exit.new: the room for it
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "engine/request.h"
#include "jobs/job_progress.h"

namespace shardscope {

enum class JobState : uint8_t { starting, running, done, failed, cancelled, lost };
std::string_view jobStateName(JobState state);

// What a job does.
struct JobOrder {
    ConversionRequest request;  // without `resume` of later attempts
    std::string report;         // a file for the report; empty = none
    std::string remoteProgram;  // shardscope on other hosts; empty = `program` is copied there
};

struct JobRecord {
    std::string id, directory;
    std::string title, source, destination, program, host;
    std::optional<JobOrder> order;       // nothing in the records of version 0.1, which hold `arguments`
    std::vector<std::string> arguments;  // of `program`: without --resume of later attempts, output options
    std::string workingDirectory;        // that relative paths belong to; empty = not known
    std::string created, started;        // UTC, ISO 8601; `started` is that of the last attempt
    int attempts = 1;

    JobState state = JobState::starting;
    bool elsewhere =
        false;        // on another machine that shares the directory: its process cannot be seen from here
    int64_t pid = 0;  // of the recording shell, which leads the job's processes; 0 = not known
    int exitCode = -1;
    nlohmann::json progress;  // the last progress event; null before the first
    nlohmann::json workers;   // the last list of workers; null without
    nlohmann::json result;    // result.json; null while it runs

    JobProgress at() const { return jobProgress(progress, arguments); }  // while it runs
    bool active() const { return state == JobState::starting || state == JobState::running; }
};

class JobDirectory {
  public:
    // Empty = $XDG_STATE_HOME/shardscope/jobs.
    explicit JobDirectory(std::string path = {});
    const std::string& path() const { return path_; }

    // Newest first. Directories that hold no readable job are left out.
    Result<std::vector<JobRecord>> list() const;
    // By its id, or by the beginning of one. Errors: notFound, usage (several begin so), damaged.
    Result<JobRecord> find(const std::string& id) const;
    // The one with this id. Without `progress` the files of what it said so far are left unread, for a caller
    // that follows them. Errors: damaged.
    Result<JobRecord> read(const std::string& id, bool progress = true) const;

    static std::string newId();
    // Starts a new one with this `id` (of newId()), title, program and order in a session of its own, in this
    // process's directory. Errors: io, permission, notFound, usage (text that a record cannot hold).
    Status start(JobRecord job) const;
    // Runs it again with the record's program, in its directory, from where it stopped. Errors: exists (it
    // runs, or is done), those of start().
    Status resume(const JobRecord& job) const { return again(job, true); }
    // The same unless `resume`: from the beginning, also one that is done.
    Status again(const JobRecord& job, bool resume) const;
    // Forgets the job; what it wrote stays. Errors: exists (it runs), io.
    Status remove(const JobRecord& job) const;
    // Ends the job: the first call in order, keeping what can be resumed, a second call at once. Errors:
    // notFound, unsupported (it runs elsewhere).
    Status cancel(const JobRecord& job) const;

    std::string logPath(const JobRecord& job) const { return job.directory + "/progress.ndjson"; }

  private:
    Status launch(JobRecord job, bool resume) const;
    std::string path_;
};

}  // namespace shardscope
