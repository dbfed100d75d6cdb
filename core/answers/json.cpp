#include "answers/json.h"

#include <algorithm>
#include <cmath>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "base/text.h"

namespace shardscope {

namespace {

// Of a code point beyond ASCII, in JSON.
std::string escaped(uint32_t code) {
    if (code < 0x10000) return fmt::format("\\u{:04x}", code);
    return fmt::format("\\u{:04x}\\u{:04x}", 0xd7c0 + (code >> 10), 0xdc00 + (code & 0x3ff));
}

}  // namespace

std::string harmlessJson(std::string text) {
    const auto isSuspect = [](char c) { return static_cast<unsigned char>(c) >= 0x7f; };
    if (std::ranges::none_of(text, isSuspect)) return text;
    std::string out;
    for (size_t i = 0; i < text.size();) {
        const CodePoint point = decodeUtf8(std::string_view(text).substr(i));
        if (point.value >= 0x7f && point.valid && isDeceptive(point.value))
            out += escaped(point.value);
        else
            out.append(text, i, point.length);
        i += point.length;
    }
    return out;
}

std::string dump(const Json& json) {
    return harmlessJson(json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::string isoTime(std::time_t seconds) {
    return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(seconds));
}

Json errorDocument(const Error& error) {
    Json json;
    json["schema"] = "shardscope.error/1";
    json["code"] = errorCodeName(error.code);
    json["message"] = error.message;
    json["file"] = error.location.file.empty() ? Json() : Json(error.location.file);
    json["offset"] = error.location.offset ? Json(*error.location.offset) : Json();
    json["tensor"] = error.location.tensor.empty() ? Json() : Json(error.location.tensor);
    json["rule"] = error.location.rule.empty() ? Json() : Json(error.location.rule);
    json["hint"] = error.hint.empty() ? Json() : Json(error.hint);
    return json;
}

Json pathJson(const Path& path) {
    Json json = Json::array();
    for (const PathPart& part : path) {
        switch (part.kind) {
            case PathPart::Kind::integerKey:
            case PathPart::Kind::index:
            case PathPart::Kind::tupleIndex:
                json.push_back(part.index);
                break;
            default:
                json.push_back(part.text);
        }
    }
    return json;
}

Json dimsJson(DimSpan dims) {
    return Json(std::vector<int64_t>(dims.begin(), dims.end()));
}

Json valueJson(const Value& value) {
    if (!value) return {};
    Json json = Json::parse(valueToJson(value), nullptr, false);
    if (json.is_discarded()) return Json{{"repr", valueRepr(value)}};
    return json;
}

Json chunkJson(const Catalog& catalog, const ChunkInfo& chunk) {
    Json json;
    json["rank"] = chunk.rank == kNone ? Json() : Json(chunk.rank);
    if (chunk.flat) {
        json["flat"] = {{"offsets", dimsJson(chunk.offsets)},
                        {"lengths", dimsJson(chunk.lengths)},
                        {"start", chunk.flat->start},
                        {"stop", chunk.flat->stop}};
    } else {
        json["offsets"] = dimsJson(chunk.offsets);
        json["lengths"] = dimsJson(chunk.lengths);
    }
    json["file"] = chunk.file == kNone ? Json() : Json(catalog.files()[chunk.file].path);
    json["offset"] = chunk.offset;
    json["length"] = chunk.length;
    return json;
}

Json tensorJson(const Catalog& catalog, TensorId t, bool chunks) {
    Json json;
    json["name"] = catalog.name(t);
    json["path"] = pathJson(catalog.path(t));
    json["dtype"] = dtypeName(catalog.dtype(t));
    json["shape"] = dimsJson(catalog.shape(t));
    json["bytes"] = catalog.bytes(t);
    json["role"] = roleName(catalog.role(t));
    if (catalog.aliasOf(t) != kNone) json["alias_of"] = catalog.name(catalog.aliasOf(t));
    if (catalog.special(t) != kNone) json["part_of"] = catalog.specials()[catalog.special(t)].name;
    if (chunks) {
        Json list = Json::array();
        for (ChunkId c = catalog.firstChunk(t); c < catalog.endChunk(t); ++c)
            list.push_back(chunkJson(catalog, catalog.chunk(t, c)));
        json["chunks"] = std::move(list);
    }
    return json;
}

Json meshJson(const std::optional<Mesh>& mesh) {
    if (!mesh) return {};
    Json axes = Json::array();
    for (const MeshAxis& axis : mesh->axes)
        axes.push_back({{"name", axis.name}, {"size", axis.size}});
    return {{"axes", std::move(axes)},
            {"source", mesh->source == Mesh::Source::declared ? "declared" : "inferred"},
            {"evidence", mesh->evidence}};
}

Json planJson(const Plan& plan) {
    const auto entries = [](const std::vector<PlanLeftOut>& list, const char* second) {
        Json json = Json::array();
        for (const PlanLeftOut& entry : list)
            json.push_back({{"name", entry.name}, {second, entry.why}});
        return json;
    };
    Json json;
    json["schema"] = "shardscope.plan/1";
    json["source"] = {{"path", plan.sourcePath}, {"format", plan.sourceFormat}};
    json["target"] = {
        {"path", plan.targetPath}, {"format", plan.targetFormat}, {"variant", plan.targetVariant}};
    json["tensors"] = plan.tensors;
    json["chunks"] = plan.chunks;
    json["objects"] = plan.objects;
    json["replicas_not_compared"] = plan.replicas;
    json["bytes_read"] = plan.bytesRead;
    json["bytes_written"] = plan.bytesWritten;
    json["peak_memory"] = plan.peakMemory;
    json["files"] = Json::array();
    for (const PlanFile& file : plan.files)
        json["files"].push_back({{"path", file.path}, {"size", file.size}});
    json["assets"] = plan.assets.empty() ? Json() : Json{{"from", plan.assetsFrom}, {"files", plan.assets}};
    json["left_out"] = entries(plan.leftOut, "why");
    json["excluded"] = entries(plan.excluded, "why");
    json["impossible"] = entries(plan.impossible, "why");
    json["changed"] = entries(plan.changed, "why");
    json["made"] = entries(plan.made, "from");
    json["notes"] = entries(plan.notes, "why");
    json["unknown"] = entries(plan.unknown, "why");
    json["renamed"] = entries(plan.renamed, "to");
    json["masters"] = {{"used", entries(plan.fromMasters, "from")}, {"unused", plan.mastersUnused}};
    json["placement"] = entries(plan.placement, "why");
    json["cut_bytes"] = plan.cutBytes;
    json["whole_bytes"] = plan.wholeBytes;
    json["warning"] = plan.wholeWarning().empty() ? Json() : Json(plan.wholeWarning());
    json["recipe"] = plan.recipe.empty() ? Json() : Json(plan.recipe);
    json["transformers"] =
        plan.forTransformers ? Json{{"loads", plan.unloadable.empty()}, {"why", plan.unloadable}} : Json();
    json["checksums"] = plan.checksums.empty() ? Json() : Json(plan.checksums);
    json["estimate_s"] = plan.estimateSeconds;
    if (!plan.averaged.empty()) {
        Json inputs = Json::array();
        for (const PlanAveraged& input : plan.averaged)
            inputs.push_back({{"path", input.path}, {"weight", input.weight}});
        json["average"] = {{"inputs", inputs},
                           {"accumulate", plan.accumulate},
                           {"not_averaged", entries(plan.notAveraged, "why")}};
    }
    return json;
}

Json flowJson(const FlowPicture& flow) {
    Json json{{"exact", flow.exact()},
              {"ranks", flow.ranks().size()},
              {"files", Json::array()},
              {"cells", Json::array()}};
    for (const FlowPicture::Line& file : flow.files())
        json["files"].push_back(
            {{"path", file.name}, {"rank", file.rank == kNone ? Json() : Json(file.rank)}});
    for (const Flow::Row& row : flow.rows())
        json["cells"].push_back({row.file, row.rank, row.bytes, row.pieces});
    return json;
}

Json diffJson(const DiffReport& report) {
    const auto entries = [](const std::vector<DiffEntry>& list) {
        Json json = Json::array();
        for (const DiffEntry& e : list)
            json.push_back({{"name", e.name}, {"a", e.a}, {"b", e.b}});
        return json;
    };
    const auto leftOut = [](const std::vector<PlanLeftOut>& list) {
        Json json = Json::array();
        for (const PlanLeftOut& e : list)
            json.push_back({{"name", e.name}, {"why", e.why}});
        return json;
    };
    const auto number = [](double value) { return std::isfinite(value) ? Json(value) : Json("inf"); };
    Json json;
    json["schema"] = "shardscope.diff/1";
    json["equal"] = report.equal();
    json["only_a"] = report.onlyA;
    json["only_b"] = report.onlyB;
    json["shape"] = entries(report.shape);
    json["dtype"] = entries(report.dtype);
    json["placement"] = entries(report.placement);
    json["values"] = Json::array();
    for (const ValueDiff& v : report.values) {
        json["values"].push_back({{"name", v.name},
                                  {"different", v.different},
                                  {"max_abs", number(v.maxAbs)},
                                  {"max_rel", number(v.maxRelative)},
                                  {"max_ulp", v.maxUlp},
                                  {"cosine", number(v.cosine())},
                                  {"l2", number(v.l2())},
                                  {"rel_l2", number(v.relativeL2())}});
    }
    json["values_compared"] = report.valuesCompared();
    json["compared"] = report.compared;
    json["summary"] = nullptr;
    if (const auto& all = report.summary)
        json["summary"] = {{"equal", all->equal},
                           {"different", all->different},
                           {"max_abs", number(all->maxAbs)},
                           {"max_rel", number(all->maxRelative)},
                           {"l2", number(all->l2)},
                           {"rel_l2", number(all->relativeL2)}};
    json["left_out_a"] = leftOut(report.leftOutA);
    json["left_out_b"] = leftOut(report.leftOutB);
    json["recipe"] = report.recipe.empty() ? Json() : Json(report.recipe);
    return json;
}

}  // namespace shardscope
