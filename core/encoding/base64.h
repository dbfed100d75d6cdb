// Base64 (RFC 4648).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace shardscope {

// Takes the standard alphabet and the URL-safe one, with or without padding; nullopt for anything else.
std::optional<std::string> fromBase64(std::string_view text);
// In the URL-safe alphabet, with padding.
std::string toBase64(std::string_view bytes);

}  // namespace shardscope
