// Small checkpoints of float32 tensors: written as safetensors, read from any format.
#pragma once

#include <QtGlobal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/engine.h"

namespace shardscope::test {

struct Array {
    Dims shape;
    std::vector<float> values;
    bool operator==(const Array&) const = default;
};
using State = std::map<std::string, Array>;

inline Array numbers(Dims shape, float first) {
    Array out{std::move(shape), {}};
    for (int64_t i = 0; i < elementCount(out.shape); ++i)
        out.values.push_back(first + static_cast<float>(i));
    return out;
}

inline void writeFile(const std::string& path, const std::string& content) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << content;
}

inline void writeState(const std::string& path, const State& state) {
    nlohmann::json header = nlohmann::json::object();
    std::string data;
    for (const auto& [name, array] : state) {
        const size_t begin = data.size();
        data.append(reinterpret_cast<const char*>(array.values.data()), array.values.size() * sizeof(float));
        header[name] = {{"dtype", "F32"}, {"shape", array.shape}, {"data_offsets", {begin, data.size()}}};
    }
    const std::string text = header.dump();
    const uint64_t size = text.size();
    writeFile(path, std::string(reinterpret_cast<const char*>(&size), 8) + text + data);
}

inline State readState(const std::string& path) {
    State state;
    const auto checkpoint = openCheckpoint(path);
    if (!checkpoint.ok()) {
        qWarning("%s", describe(checkpoint.error()).c_str());
        return state;
    }
    ThreadPool pool(1);
    MemoryBudget memory(uint64_t{64} << 20);
    Resources resources;
    resources.pool = &pool;
    resources.memory = &memory;
    const Catalog& catalog = checkpoint->catalog();
    for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
        const Dims shape(catalog.shape(t).begin(), catalog.shape(t).end());
        const auto bytes =
            readRegion(*checkpoint->reader, t, {Dims(shape.size(), 0), shape}, uint64_t{1} << 20, resources);
        if (!bytes.ok() || catalog.dtype(t) != DType::float32) continue;
        Array& array = state[std::string(catalog.name(t))];
        array.shape = shape;
        array.values.resize(bytes->size() / sizeof(float));
        std::memcpy(array.values.data(), bytes->data(), bytes->size());
    }
    return state;
}

}  // namespace shardscope::test
