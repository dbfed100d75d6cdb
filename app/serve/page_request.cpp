
#include <fmt/format.h>

#include "base/numbers.h"
#include "serve/page_server.h"

namespace shardscope::serve {

std::string PageRequest::text(const std::string& name, std::string otherwise) const {
    const auto found = parameters.find(name);
    return found == parameters.end() ? std::move(otherwise) : found->second;
}

Result<uint64_t> PageRequest::number(const std::string& name, uint64_t otherwise, uint64_t most) const {
    const auto found = parameters.find(name);
    if (found == parameters.end()) return otherwise;
    if (const auto number = parseNumber<uint64_t>(found->second, 0, most)) return *number;
    return makeError(ErrorCode::usage, fmt::format("'{}' is not a number up to {}", name, most));
}

Result<PageRequest::Size> PageRequest::size(Size otherwise) const {
    constexpr uint64_t kMostPixels = 10'000;
    SHARDSCOPE_ASSIGN(const uint64_t width,
                      number("width", static_cast<uint64_t>(otherwise.width), kMostPixels));
    SHARDSCOPE_ASSIGN(const uint64_t height,
                      number("height", static_cast<uint64_t>(otherwise.height), kMostPixels));
    return Size{static_cast<double>(width), static_cast<double>(height)};
}

}  // namespace shardscope::serve
