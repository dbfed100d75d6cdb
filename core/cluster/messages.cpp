#include "cluster/messages.h"

#include <charconv>

namespace shardscope {
namespace {

using Json = nlohmann::json;

std::optional<Digest128> digestOf(const Json& json, const char* key) {
    const auto it = json.find(key);
    if (it == json.end() || !it->is_string()) return std::nullopt;
    const std::string& hex = it->get_ref<const std::string&>();
    if (hex.size() != 32) return std::nullopt;
    Digest128 digest;
    for (uint64_t* part : {&digest.high, &digest.low}) {
        const char* begin = hex.data() + (part == &digest.low ? 16 : 0);
        const auto [end, error] = std::from_chars(begin, begin + 16, *part, 16);
        if (error != std::errc{} || end != begin + 16) return std::nullopt;
    }
    return digest;
}

}  // namespace

Json identityJson(const JobIdentity& identity) {
    return {{"plan", identity.plan.hex()},
            {"source", identity.source.hex()},
            {"tile", identity.tileBytes},
            {"largest_tile", identity.largestTileBytes},
            {"token", identity.token}};
}

Result<JobIdentity> identityFrom(const Json& json) {
    const auto plan = digestOf(json, "plan"), source = digestOf(json, "source");
    const auto tile = numberOf(json, "tile"), largest = numberOf(json, "largest_tile");
    const std::string token = textOf(json, "token", 256);
    if (!plan || !source || !tile || !largest || token.empty()) return damaged("a job without identity");
    return JobIdentity{*plan, *source, *tile, *largest, token};
}

Json unitJson(size_t id, const Unit& unit) {
    Json spans = Json::array();
    for (const TileSpan& span : unit.spans)
        spans.push_back({span.tensor, span.first, span.count});
    return {{"say", "unit"},
            {"id", id},
            {"work", unitWorkName(unit.work)},
            {"bytes", unit.bytes},
            {"spans", std::move(spans)}};
}

Result<std::pair<uint64_t, Unit>> unitFrom(const Json& json) {
    const auto id = numberOf(json, "id"), bytes = numberOf(json, "bytes");
    const auto spans = json.find("spans");
    if (!id || !bytes || spans == json.end() || !spans->is_array()) return damaged("a unit without spans");
    Unit unit;
    unit.bytes = *bytes;
    const auto work = unitWorkFrom(textOf(json, "work", 40));
    if (!work) return damaged("malformed unit of work");
    unit.work = *work;
    for (const Json& span : *spans) {
        if (!span.is_array() || span.size() != 3) return damaged("malformed span of a unit");
        for (const Json& number : span) {
            if (!number.is_number_unsigned() || number.get<uint64_t>() > (uint64_t{1} << 53))
                return damaged("malformed span of a unit");
        }
        if (span[0].get<uint64_t>() >= kNone) return damaged("malformed span of a unit");
        unit.spans.push_back({span[0].get<TensorId>(), span[1].get<int64_t>(), span[2].get<int64_t>()});
    }
    return std::pair(*id, std::move(unit));
}

}  // namespace shardscope
