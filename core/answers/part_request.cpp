#include "answers/part_request.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "base/numbers.h"
#include "base/option_words.h"

namespace shardscope {

Result<PartSpec> parsePart(std::string_view text) {
    const size_t slash = text.find('/');
    const auto index = parseNumber<uint32_t>(text.substr(0, slash));
    const auto count = slash == text.npos ? std::nullopt : parseNumber<uint32_t>(text.substr(slash + 1));
    if (!index || !count || *count == 0 || *count > kMostParts || *index >= *count)
        return makeError(ErrorCode::usage, fmt::format("'{}' is not a part", text))
            .withHint(
                fmt::format("parts count from 0: 0/4 to 3/4 are four; at most {}, or auto", kMostParts));
    return PartSpec{*index, *count, {}};
}

Result<PartSpec> partFromEnvironment(const Variables& variables) {
    if (const auto own = variables("SHARDSCOPE_PART")) return parsePart(*own);
    auto found = launchedAs(variables, LaunchOf::parts);
    if (!found.ok())
        return std::move(found).error().withHint(
            fmt::format("say which part this is: {} I/N", option("part")));
    if (*found)
        return PartSpec{
            .index = (*found)->index, .count = (*found)->count, .version = {}, .atOnce = (*found)->atOnce};
    return makeError(ErrorCode::usage, "no scheduler says which part this is")
        .withHint(fmt::format("give {} I/N, or set SHARDSCOPE_PART=I/N", option("part")));
}

std::string recordsPath(std::string_view given) {
    return std::string(given.substr(0, std::max<size_t>(1, given.find_last_not_of('/') + 1)));
}

Result<Parts> partsOf(const PartRequest& request) {
    Parts parts;
    parts.version = SHARDSCOPE_VERSION;
    parts.seal = request.finish == "seal";
    parts.finish = !request.finish.empty() && !parts.seal;
    if (request.part.empty()) {
        if (request.finish != "yes")
            return makeError(ErrorCode::usage, fmt::format("{} {} is for parts: the last one does it",
                                                           option("finish"), request.finish))
                .withHint(option("finish") + " alone completes a job whose parts are done");
        return parts;
    }
    if (request.finish == "yes")
        return makeError(ErrorCode::usage, option("finish") + " after a part needs all others to be done")
            .withHint(fmt::format("use {} auto, with which the last part finishes", option("finish")));
    if (request.part == "auto") {
        SHARDSCOPE_ASSIGN(parts.part, partFromEnvironment(environmentVariable));
    } else {
        SHARDSCOPE_ASSIGN(parts.part, parsePart(request.part));
    }
    parts.part->version = SHARDSCOPE_VERSION;
    return parts;
}

Json partJson(const PartReport& part) {
    return {{"schema", "shardscope.part/1"},
            {"part", part.part.index},
            {"parts", part.part.count},
            {"was_done", part.wasDone},
            {"read_back", part.readBack},
            {"published", part.published},
            {"bytes", part.bytes},
            {"bytes_read", part.bytesRead},
            {"bytes_reused", part.bytesReused},
            {"seconds", part.seconds},
            {"open", part.open},
            {"set_up_by", part.setUpBy},
            {"alone", part.alone}};
}

}  // namespace shardscope
