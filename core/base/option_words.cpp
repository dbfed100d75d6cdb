#include "base/option_words.h"

#include <atomic>

#include <fmt/format.h>

namespace shardscope {
namespace {

std::atomic<OptionWords> wording = commandOption;

}  // namespace

std::string option(std::string_view name, std::string_view value) {
    return wording.load(std::memory_order_relaxed)(name, value);
}

std::string commandOption(std::string_view name, std::string_view value) {
    return fmt::format("--{}{}{}", name, value.empty() ? "" : " ", value);
}

void wordOptions(OptionWords words) {
    wording.store(words, std::memory_order_relaxed);
}

}  // namespace shardscope
