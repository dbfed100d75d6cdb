// What a call of Python asks for, from the options of the verb that it stands for: "--tp-dim=GLOB=0" is
// tp_dim="GLOB=0".
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "answers/conversion.h"

namespace shardscope::python {

struct Asked {
    Access access;
    AgentProgram program;
    ConversionRequest request;  // of a conversion
    PartRequest parts;          // of a conversion; of a validation and of digests who reads
    bool dryRun = false;        // of a conversion only its plan
    DiffOptions difference;     // of `diff`
};

// Words options in messages as keyword arguments (base/option_words.h).
std::string keywordOption(std::string_view name, std::string_view value);

// The options that say how a checkpoint is opened, as keywords.
std::vector<std::string> openingOptions();

// Of a verb with the options after it. Errors: usage.
Result<std::shared_ptr<Asked>> askedBy(std::string_view verb, const std::vector<std::string>& options,
                                       const std::string& program);

}  // namespace shardscope::python
