// The files of the browser page (resources/serve), part of the program.
#pragma once

#include <string_view>
#include <vector>

namespace shardscope::serve {

struct PageFile {
    std::string_view name;  // "page.js"
    std::string_view text;
};
const std::vector<PageFile>& pageFiles();

}  // namespace shardscope::serve
