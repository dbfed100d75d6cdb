// The agent's end of a verb that runs where the data is. What the verb writes to standard output and error
// goes to the other side, with its progress and its exit code.
//
//   run      {words, host, color, width, progress} + words
//                                          first; as many words, each ended by a zero byte
//   out, err {size, packed} + bytes        at most kWindow of them that the other side has not yet taken
//   took     {bytes}                       from the other side
//   progress {phase, done, total, tensor, busy}
//   workers  {} + workersText()            when it is another than before
//   stop     {}                            from the other side: the verb is cancelled
//   exit     {code}                        last
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/progress.h"
#include "base/stop.h"
#include "hosts/channel.h"
#include "hosts/worker_state.h"

namespace shardscope {

// What is to run, and for whom.
struct RunOrder {
    std::vector<std::string> words;  // without the program's name
    std::string host;                // how the other side names this host: "ssh://node7"
    bool color = false;              // the output is to have colors
    unsigned width = 100;            // of the terminal, in columns
    bool progress = false;           // somebody looks at it
};
Frame runMessage(const RunOrder& order);
Result<RunOrder> runOrderFrom(const Frame& frame);  // errors: damaged

class RunService {
  public:
    static constexpr uint64_t kWindow = uint64_t{4} << 20;
    static constexpr uint64_t kBlock = uint64_t{256} << 10;  // most of one message

    // `stop` is raised when the other side cancels or is gone; it outlives this.
    RunService(Channel& channel, StopSource& stop);
    ~RunService();

    // Calls `verb` with standard output and error of this process led to the other side, and tells it the
    // exit code. Afterwards both lead nowhere. Errors: those of making pipes; a lost connection is not an
    // error, the verb was cancelled. `onEnd` is called when the stream ends before the verb does.
    Status serve(const std::function<int()>& verb, const std::function<void()>& onEnd = {});
    // `workers` are those of a conversion by several. Both from one thread.
    void showProgress(const Progress& progress, const std::vector<WorkerState>& workers);

  private:
    void listen(const std::function<void()>& onEnd);
    void pump(int out, int err);
    void forward(const char* say, std::string bytes);

    Channel& channel_;
    StopSource& stop_;
    std::string workers_;  // as last said, by showProgress()
    Mutex mutex_;
    Condition changed_;
    uint64_t untaken_ SHARDSCOPE_GUARDED_BY(mutex_) = 0;
    bool gone_ SHARDSCOPE_GUARDED_BY(mutex_) = false, done_ SHARDSCOPE_GUARDED_BY(mutex_) = false;
};

}  // namespace shardscope
