// What ranks of one program tell each other: JSON, packed. Private to this room.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "base/result.h"

namespace shardscope {

inline std::string packed(const nlohmann::json& json) {
    std::string text;
    nlohmann::json::to_msgpack(json, nlohmann::detail::output_adapter<char>(text));
    return text;
}

inline Result<nlohmann::json> unpacked(const std::string& text) {
    nlohmann::json json = nlohmann::json::from_msgpack(text, true, false);
    if (json.is_discarded()) return makeError(ErrorCode::remote, "another rank says what cannot be read");
    return json;
}

// Runs what takes such messages apart: fields that are missing, or of another kind, are an error too.
template <class Take>
auto taken(Take&& take) -> decltype(take()) {
    try {
        return take();
    } catch (const nlohmann::json::exception&) {
        return makeError(ErrorCode::remote, "another rank says what cannot be read");
    }
}

inline nlohmann::json packedText(const std::string& text) {
    return nlohmann::json::binary({text.begin(), text.end()});
}

}  // namespace shardscope
