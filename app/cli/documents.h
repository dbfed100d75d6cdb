// Answers that both the verbs and the browser page give.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/json.h"
#include "jobs/jobs.h"

namespace shardscope::cli {

// What `info` says beside the catalog's own totals.
struct Summary {
    struct Share {
        uint64_t tensors = 0, bytes = 0;
    };
    struct Module {
        std::string name;
        uint64_t tensors = 0, bytes = 0;
    };
    std::map<std::string, Share> dtypes;
    std::vector<Module> modules;  // the biggest, by the first components of names
    uint64_t optimizerBytes = 0, fileBytes = 0;
};
Summary summaryOf(const Catalog& catalog);
Json infoJson(const Checkpoint& checkpoint, const std::string& path,
              const Summary& summary);  // shardscope.info/1

// How much of a tensor each rank holds, one digit for a rank: '0' nothing, '1' up to an eighth, '2' a
// quarter, '3' a half, '4' nearly all, '5' all.
std::string placementCells(const Catalog& catalog, TensorId tensor);

Json jobJson(const JobRecord& job);  // shardscope.job/1, without its "schema"

}  // namespace shardscope::cli
