#include "cluster/messages.h"

#include <algorithm>
#include <cctype>
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

Json sharedJobJson(const SharedJob& shared) {
    return {{"plan", shared.plan.hex()}, {"source", shared.source.hex()},
            {"parts", shared.parts},     {"version", shared.version},
            {"id", shared.id},           {"run", shared.run}};
}

Result<SharedJob> sharedJobFrom(const Json& json) {
    const auto plan = digestOf(json, "plan"), source = digestOf(json, "source");
    const auto parts = numberOf(json, "parts");
    const std::string id = textOf(json, "id", 256), run = textOf(json, "run", 40);
    if (!plan || !source || !parts || *parts == 0 || *parts > kMostParts || id.empty())
        return damaged("a job without identity");
    if (!std::ranges::all_of(run, [](unsigned char c) { return std::isalnum(c) || c == '-'; }))
        return damaged("malformed name of a run");
    return SharedJob{*plan, *source, static_cast<uint32_t>(*parts), textOf(json, "version", 100), id, run};
}

Json partTaskJson(const PartTask& task) {
    return {{"say", "part"},
            {"id", task.id},
            {"work", partWorkName(task.work)},
            {"part", task.order.part},
            {"retry", task.order.retry}};
}

Result<PartTask> partTaskFrom(const Json& json) {
    const auto id = numberOf(json, "id"), part = numberOf(json, "part");
    const auto work = partWorkFrom(textOf(json, "work", 40));
    if (!id || !part || *part >= kMostParts || !work) return damaged("malformed part of the work");
    PartTask task{*id, *work};
    task.order.part = static_cast<uint32_t>(*part);
    task.order.retry = json.value("retry", Json()) == true;
    return task;
}

}  // namespace shardscope
