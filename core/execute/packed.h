// What ranks of one program tell each other: JSON, packed. Private to this room.
#pragma once

#include <span>
#include <string>

#include <nlohmann/json.hpp>

#include "base/result.h"

namespace shardscope {

inline std::span<std::byte> bytesOf(std::string& text) {
    return std::as_writable_bytes(std::span(text));
}

inline Error unreadable() {
    return makeError(ErrorCode::remote, "another rank says what cannot be read");
}

inline std::string packed(const nlohmann::json& json) {
    std::string text;
    nlohmann::json::to_msgpack(json, nlohmann::detail::output_adapter<char>(text));
    return text;
}

inline Result<nlohmann::json> unpacked(const std::string& text) {
    nlohmann::json json = nlohmann::json::from_msgpack(text, true, false);
    if (json.is_discarded()) return unreadable();
    return json;
}

// Runs what takes such messages apart: fields that are missing, or of another kind, are an error too.
template <class Take>
auto taken(Take&& take) -> decltype(take()) {
    try {
        return take();
    } catch (const nlohmann::json::exception&) {
        return unreadable();
    }
}

inline nlohmann::json packedText(const std::string& text) {
    return nlohmann::json::binary({text.begin(), text.end()});
}

}  // namespace shardscope
