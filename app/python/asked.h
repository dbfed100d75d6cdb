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
    ConversionRequest request;  // of a conversion; of `diff` what it shares with one
    PartRequest parts;          // of a conversion; of a validation and of digests who reads
    bool dryRun = false;        // of a conversion only its plan
    bool values = false;        // of `diff`
};

// Words options in messages as keyword arguments (base/option_words.h).
std::string keywordOption(std::string_view name, std::string_view value);
// A message that begins with an option as command lines have it, with the keyword argument instead.
std::string inKeywords(std::string message);

// An option as Python has it.
struct KnownOption {
    std::string name;  // "weights_only"
    enum class Takes : uint8_t { text, texts, yes, number, size, name } takes = Takes::text;
    std::vector<std::string> names;  // of `name`: all that there are
};
// All of a verb. Of "open" those of opening.
std::vector<KnownOption> optionsOf(std::string_view verb);

// Of a verb with the options after it. Errors: usage.
Result<std::shared_ptr<Asked>> askedBy(std::string_view verb, const std::vector<std::string>& options,
                                       const std::string& program);

}  // namespace shardscope::python
