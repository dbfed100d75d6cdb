// A model of a few tensors, written as a directory of Hugging Face.
#pragma once

#include <QDir>
#include <QString>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace shardscope::test {

struct Stored {
    std::string dtype;
    std::vector<int> shape;
    std::string bytes;
};
using Model = std::map<std::string, Stored>;

inline std::string floats(const std::vector<float>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

inline void writeText(const QString& path, const std::string& text) {
    std::ofstream(path.toStdString(), std::ios::binary) << text;
}

inline void writeModel(const QString& directory, const Model& model, const nlohmann::json& config,
                       const QString& name = QStringLiteral("model")) {
    QDir().mkpath(directory);
    nlohmann::json header;
    std::string data;
    for (const auto& [key, tensor] : model) {
        header[key] = {{"dtype", tensor.dtype},
                       {"shape", tensor.shape},
                       {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
        data += tensor.bytes;
    }
    const std::string text = header.dump();
    uint64_t size = text.size();
    writeText(directory + "/" + name + ".safetensors",
              std::string(reinterpret_cast<const char*>(&size), sizeof(size)) + text + data);
    if (!config.is_null()) writeText(directory + "/config.json", config.dump());
}

}  // namespace shardscope::test
