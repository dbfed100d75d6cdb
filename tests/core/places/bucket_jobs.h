// Conversions into a bucket, as tests of core/places run them.
#pragma once

#include <fstream>

#include <fmt/format.h>

#include "engine/request.h"
#include "engine/run_conversion.h"
#include "support/http_server.h"

namespace shardscope::test {

inline ConversionRequest requestOf(const std::string& source, const std::string& destination,
                                   const std::string& to = "dcp") {
    ConversionRequest request;
    request.source = source;
    request.destination = destination;
    request.format = to;
    return request;
}

// A file of four tensors of 6 MB and of rows of 6 kB, no two bytes of which need be alike.
inline void writeLarge(const std::string& file) {
    constexpr size_t kTensors = 4, kRows = 1000, kColumns = 1500, kElements = kRows * kColumns;
    std::string header = "{";
    for (size_t i = 0; i < kTensors; ++i)
        header += fmt::format("{}\"t{}\":{{\"dtype\":\"F32\",\"shape\":[{},{}],\"data_offsets\":[{},{}]}}",
                              i ? "," : "", i, kRows, kColumns, i * kElements * 4, (i + 1) * kElements * 4);
    header += "}";
    header.resize((header.size() + 7) / 8 * 8, ' ');
    std::ofstream out(file, std::ios::binary);
    const uint64_t size = header.size();
    out.write(reinterpret_cast<const char*>(&size), 8);
    out << header;
    std::vector<float> values(kElements);
    for (size_t i = 0; i < kTensors; ++i) {
        for (size_t e = 0; e < kElements; ++e)
            values[e] = static_cast<float>(e * (i + 1));
        out.write(reinterpret_cast<const char*>(values.data()), kElements * 4);
    }
}

inline bool sendsPart(const Asked& asked) {
    return asked.method == "PUT" && !asked.argument("partNumber").empty();
}

inline std::vector<std::string> keys(FakeBucket& bucket) {
    const std::lock_guard lock(bucket.mutex);
    std::vector<std::string> names;
    for (const auto& [key, object] : bucket.objects)
        names.push_back(key);
    return names;
}

}  // namespace shardscope::test
