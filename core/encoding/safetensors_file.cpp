#include "encoding/safetensors_file.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string_view>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/checked.h"
#include "base/text.h"
#include "base/units.h"
#include "encoding/safetensors_header.h"

namespace shardscope::safetensors {

namespace {

constexpr uint64_t kMaxHeader = 100'000'000;

// By growing alignment, as the reference implementation counts its dtypes.
constexpr std::array<std::string_view, 21> kOrder{
    "BOOL",    "F4",      "F6_E2M3",     "F6_E3M2",     "U8",  "I8",  "F8_E5M2",
    "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I16", "U16", "F16",
    "BF16",    "I32",     "U32",         "F32",         "C64", "F64", "I64"};

size_t orderOf(DType dtype) {
    const std::string_view name = storedDTypeName(dtype);
    const auto it = std::find(kOrder.begin(), kOrder.end(), name);
    return static_cast<size_t>(it - kOrder.begin());  // U64 is the last
}

bool isBefore(const FileEntry& a, const FileEntry& b, FileOrder how) {
    if (how == FileOrder::reference) {
        const size_t x = orderOf(a.dtype), y = orderOf(b.dtype);
        return x != y ? x > y : a.name < b.name;
    }
    const auto key = [](const FileEntry& e) {
        const bool ragged = e.bytes == 0 || e.bytes % kPage != 0;
        return std::tuple(!ragged, ragged ? dtypeBits(e.dtype) : 0, e.bytes);
    };
    return key(a) != key(b) ? key(a) > key(b) : a.name < b.name;
}

}  // namespace

std::string jsonText(std::string_view text) {
    return dumpJson(nlohmann::json(std::string(text)));
}

Result<FileLayout> layOutFile(std::vector<FileEntry>& entries,
                              const std::vector<std::pair<std::string, std::string>>& metadata,
                              FileOrder how) {
    std::vector<size_t> order(entries.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::sort(order, [&](size_t a, size_t b) { return isBefore(entries[a], entries[b], how); });
    std::string json = "{";
    if (!metadata.empty()) {
        json += "\"__metadata__\":{";
        for (size_t i = 0; i < metadata.size(); ++i)
            json += fmt::format("{}{}:{}", i ? "," : "", jsonText(metadata[i].first),
                                jsonText(metadata[i].second));
        json += '}';
    }
    uint64_t at = 0;
    for (size_t i : order) {
        FileEntry& entry = entries[i];
        const std::string_view dtype = storedDTypeName(entry.dtype);
        const bool packed = entry.dtype == DType::float4E2M1FNx2;
        if (dtype.empty() || (packed && how == FileOrder::reference)) {
            return makeError(ErrorCode::impossible,
                             fmt::format("{} is not written here", dtypeName(entry.dtype)))
                .ofTensor(entry.name);
        }
        entry.offset = at;
        if (!checkedAdd(at, entry.bytes, at)) return makeError(ErrorCode::limit, "the file's size overflows");
        if (json.size() > 1) json += ',';
        Dims shape = entry.shape;
        if (packed) shape.back() *= 2;
        json += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                            jsonText(entry.name), dtype, fmt::join(shape, ","), entry.offset, at);
        if (json.size() > kMaxHeader) {
            return makeError(ErrorCode::limit,
                             fmt::format("the header would be longer than {}, which readers refuse",
                                         counted(kMaxHeader, "byte")));
        }
    }
    json += '}';
    json.resize(alignUp(8 + json.size(), how == FileOrder::paged ? kPage : 8) - 8, ' ');
    FileLayout layout;
    for (size_t i = 0; i < 8; ++i)
        layout.head += static_cast<char>(json.size() >> (8 * i) & 0xff);
    layout.head += json;
    for (FileEntry& entry : entries)
        entry.offset += layout.head.size();
    layout.size = layout.head.size() + at;
    return layout;
}

}  // namespace shardscope::safetensors
