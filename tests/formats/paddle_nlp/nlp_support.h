// What the tests of PaddleNLP's checkpoints share: rank files put together by hand, and what they are read
// as.
#pragma once

#include <QtTest>
#include <algorithm>
#include <cstring>
#include <set>

#include "../paddle_dist/pickles.h"
#include "formats/paddle_nlp/model_meta.h"
#include "formats/paddle_nlp/names.h"
#include "formats/paddle_nlp/tp_axis.h"
#include "support/read_checks.h"

namespace shardscope::test::nlp {

using nlohmann::json;

inline const Format& format() {
    return *findFormat("paddlenlp");
}

inline GenuineCase genuine(const std::string& name) {
    return caseOf("paddle_hybrid", name);
}

inline std::string raw(int count, float first = 0, float step = 1) {
    std::string out;
    for (int i = 0; i < count; ++i) {
        const float value = first + step * static_cast<float>(i);
        out.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    return out;
}

inline ArraySpec array(std::string key, Dims shape, float first = 0, float step = 1) {
    int64_t count = 1;
    for (int64_t d : shape)
        count *= d;
    ArraySpec spec{std::move(key), std::move(shape), raw(static_cast<int>(count), first, step)};
    spec.named = false;
    return spec;
}

inline Copy made(std::map<std::string, std::string> files) {
    Copy copy;
    copy.files = std::move(files);
    return copy;
}

inline bool found(const ValidationReport& report, std::string_view rule, std::string_view says = {}) {
    return std::any_of(report.findings.begin(), report.findings.end(), [&](const Finding& f) {
        bool said = f.message.find(says) != std::string::npos || f.cause.find(says) != std::string::npos;
        for (const FindingExample& e : f.examples)
            said = said || e.tensor.find(says) != std::string::npos ||
                   e.detail.find(says) != std::string::npos || e.file.find(says) != std::string::npos;
        return f.rule == rule && said;
    });
}

inline bool lacks(const Reader& reader) {
    return !checkComplete(reader.catalog(), "/d", true).ok();
}

inline std::string safetensorsFile(const json& tensors, const std::string& data) {
    std::string header = tensors.dump();
    const uint64_t length = header.size();
    return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

inline json entryOf(const char* dtype, const Dims& shape, size_t begin, size_t end) {
    return {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {begin, end}}};
}

inline std::vector<float> valuesOf(const Reader& reader, const std::string& name) {
    const Catalog& catalog = reader.catalog();
    const TensorId t = catalog.find(name);
    if (t == kNone) return {};
    Box box;
    for (int64_t d : catalog.shape(t)) {
        box.offsets.push_back(0);
        box.lengths.push_back(d);
    }
    const auto bytes = readRegion(reader, t, box, 1 << 20, machine().resources);
    if (!bytes.ok()) return {};
    std::vector<float> out(bytes->size() / 4);
    std::memcpy(out.data(), bytes->data(), out.size() * 4);
    return out;
}

}  // namespace shardscope::test::nlp
