#include <charconv>

#include <fmt/format.h>

#include "serve/page_server.h"

namespace shardscope::cli {

std::string PageRequest::text(const std::string& name, std::string otherwise) const {
    const auto found = parameters.find(name);
    return found == parameters.end() ? std::move(otherwise) : found->second;
}

Result<uint64_t> PageRequest::number(const std::string& name, uint64_t otherwise, uint64_t most) const {
    const auto found = parameters.find(name);
    if (found == parameters.end()) return otherwise;
    const std::string& text = found->second;
    uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size() || number > most)
        return makeError(ErrorCode::usage, fmt::format("'{}' is not a number up to {}", name, most));
    return number;
}

}  // namespace shardscope::cli
