// The manual pages of the command line and docs/options.md, made from its option table.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace shardscope::manual {

struct Page {
    std::string name;  // "shardscope-info"
    std::string roff;  // the file shardscope-info.1
};

struct Edition {
    std::string version;  // "1.2.3"
    std::string date;     // "2026-01-31"
};

// A text as roff prints it: nothing in it is taken for a request or an escape.
std::string roffText(const std::string& text);

// shardscope.1 and one page for each verb.
std::vector<Page> pages(const CLI::App& app, const Edition& edition);

// docs/options.md: every option of every verb, in Markdown.
std::string optionReference(const CLI::App& app);

}  // namespace shardscope::manual
