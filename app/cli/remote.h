// Verbs on checkpoints of other hosts: `shardscope info ssh://node7/data/x` has an agent there run the same
// words, shows what it says, and writes files here.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/application.h"
#include "hosts/channel.h"
#include "hosts/launch.h"

namespace shardscope::cli {

// What a command line asks of another host.
struct RemoteCall {
    HostSpec host;
    std::vector<std::string> words;  // with paths as they are there
};

// Nothing when the words, parsed by `app`, name no ssh:// path. Errors: usage, impossible (a verb or an
// option that needs this machine's files, two hosts).
Result<std::optional<RemoteCall>> remoteCall(const CLI::App& app, const Context& context);
Result<int> runRemote(const Context& context, const CLI::App& app, const RemoteCall& call);

// The agent's end: runs what `first` orders and returns when the other side has all of it.
Result<int> serveRemote(Channel& channel, const Frame& first);

// Ends this process within ten seconds, whatever hangs: for an agent whose other side is gone.
void exitWithinSeconds();

// What may go to a terminal of text that came from elsewhere: complete lines. Control characters are escaped
// but for line feeds and the colors that Style uses. Feed it pieces; flush() gives an unfinished line.
class TerminalText {
  public:
    std::string take(std::string_view bytes);
    std::string flush();

  private:
    std::string unfinished_;
};

// Of the verbs that write a file here.
int printIndexed(const Context& context, const std::string& path, const std::string& file, uint64_t bytes,
                 const Catalog& catalog);

}  // namespace shardscope::cli
