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

inline Error malformedMessage() {
    return makeError(ErrorCode::remote, "malformed message from another rank");
}

inline std::string packed(const nlohmann::json& json) {
    std::string text;
    nlohmann::json::to_msgpack(json, nlohmann::detail::output_adapter<char>(text));
    return text;
}

inline Result<nlohmann::json> unpacked(const std::string& text) {
    nlohmann::json json = nlohmann::json::from_msgpack(text, true, false);
    if (json.is_discarded()) return malformedMessage();
    return json;
}

// Runs what takes such messages apart: fields that are missing, or of another kind, are an error too.
template <class Take>
auto taken(Take&& take) -> decltype(take()) {
    try {
        return take();
    } catch (const nlohmann::json::exception&) {
        return malformedMessage();
    }
}

inline nlohmann::json packedError(const Error& error) {
    nlohmann::json json{{"code", static_cast<int>(error.code)}, {"message", error.message},
                        {"file", error.location.file},          {"tensor", error.location.tensor},
                        {"rule", error.location.rule},          {"hint", error.hint}};
    if (error.location.offset) json["offset"] = *error.location.offset;
    return json;
}

inline Error unpackedError(const nlohmann::json& json, const std::string& rank) {
    const auto text = [&](const char* key) { return json.value(key, std::string()); };
    const int code = json.value("code", static_cast<int>(ErrorCode::remote));
    const bool known = code >= 0 && code <= static_cast<int>(ErrorCode::internal);
    Error error =
        makeError(known ? static_cast<ErrorCode>(code) : ErrorCode::remote, rank + ": " + text("message"));
    error.location.file = text("file");
    error.location.tensor = text("tensor");
    error.location.rule = text("rule");
    if (json.contains("offset") && json["offset"].is_number_unsigned())
        error.location.offset = json["offset"].get<uint64_t>();
    error.hint = text("hint");
    return error;
}

inline nlohmann::json toBinaryJson(const std::string& text) {
    return nlohmann::json::binary({text.begin(), text.end()});
}

}  // namespace shardscope
