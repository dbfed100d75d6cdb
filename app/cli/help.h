// What --help, `help` and wrong words show.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/result.h"

namespace shardscope::cli {

// Groups of options that --help-all alone shows: few need them.
constexpr const char* kOtherFormats =
    "For formats that do not record everything (PaddleNLP, DeepSpeed, Megatron)";
constexpr const char* kForRanks = "For ranks (--on ranks)";  // as core/engine/request.cpp calls it

// Lines as wide as the terminal, 80 to 120 columns.
std::shared_ptr<CLI::FormatterBase> helpFormatter();

// What `app` said to the words, as an error with what may be meant.
Error usageError(CLI::App& app, const std::vector<std::string>& words, const CLI::ParseError& error);

}  // namespace shardscope::cli
