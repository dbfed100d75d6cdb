#include "encoding/zarr_array.h"

#include <charconv>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/checked.h"
#include "base/rule.h"
#include "base/text.h"

namespace shardscope {

namespace {

Error wrongZarray(std::string message) {
    return damaged(std::move(message)).byRule(rule::metaInconsistent);
}

Result<Dims> zarrDims(const nlohmann::json& array, const char* key, int64_t least) {
    const auto found = array.find(key);
    if (found == array.end() || !found->is_array())
        return wrongZarray(fmt::format("'{}' of the zarr array is not a list", key));
    if (found->size() > kMaxRank)
        return makeError(ErrorCode::limit, fmt::format("{} dimensions are more than the {} that are read",
                                                       found->size(), kMaxRank));
    Dims dims;
    for (const auto& item : *found) {
        if (!item.is_number_integer() ||
            (item.is_number_unsigned() && item.get<uint64_t>() > uint64_t{kMaxDim}) ||
            item.get<int64_t>() < least)
            return wrongZarray(fmt::format("'{}' of the zarr array holds something else than sizes", key));
        dims.push_back(item.get<int64_t>());
    }
    return dims;
}

// "<f4" of numpy: the byte order, the kind and the width.
std::optional<DType> numpyDtype(std::string_view text, bool& bigEndian) {
    if (text.size() < 3) return std::nullopt;
    bigEndian = text[0] == '>';
    if (!bigEndian && text[0] != '<' && text[0] != '|') return std::nullopt;
    struct Known {
        std::string_view code;
        DType dtype;
    };
    constexpr Known known[] = {
        {"f2", DType::float16},   {"f4", DType::float32},     {"f8", DType::float64}, {"i1", DType::int8},
        {"i2", DType::int16},     {"i4", DType::int32},       {"i8", DType::int64},   {"u1", DType::uint8},
        {"u2", DType::uint16},    {"u4", DType::uint32},      {"u8", DType::uint64},  {"b1", DType::boolean},
        {"c8", DType::complex64}, {"c16", DType::complex128},
    };
    for (const Known& one : known) {
        if (text.substr(1) == one.code) return one.dtype;
    }
    return std::nullopt;
}

}  // namespace

uint64_t ZarrArray::chunkBytes() const {
    return static_cast<uint64_t>(elementCount(chunk)) * dtypeBytes(dtype);
}

Dims ZarrArray::grid() const {
    Dims out;
    for (size_t d = 0; d < shape.size(); ++d)
        out.push_back(shape[d] / chunk[d] + (shape[d] % chunk[d] != 0));
    return out;
}

std::string ZarrArray::chunkName(DimSpan place) const {
    if (place.empty()) return "0";
    std::string name;
    for (const int64_t number : place) {
        if (!name.empty()) name += '.';
        name += std::to_string(number);
    }
    return name;
}

std::optional<Dims> ZarrArray::chunkPlace(std::string_view name) const {
    if (shape.empty()) return name == "0" ? std::optional<Dims>(Dims{}) : std::nullopt;
    Dims place;
    const Dims counts = grid();
    for (size_t d = 0; d < shape.size(); ++d) {
        if (d > 0) {
            if (name.empty() || name[0] != '.') return std::nullopt;
            name.remove_prefix(1);
        }
        int64_t number = 0;
        const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
        if (error != std::errc{} || name[0] == '-' || number >= counts[d]) return std::nullopt;
        // "00" would name the same chunk as "0".
        if (name[0] == '0' && end != name.data() + 1) return std::nullopt;
        name.remove_prefix(static_cast<size_t>(end - name.data()));
        place.push_back(number);
    }
    return name.empty() ? std::optional<Dims>(std::move(place)) : std::nullopt;
}

Result<ZarrArray> parseZarray(std::string_view text) {
    const auto json = nlohmann::json::parse(text, nullptr, false);
    if (!json.is_object()) return wrongZarray("the description of the zarr array is not JSON");
    const auto at = [&](const char* key) -> nlohmann::json {
        const auto found = json.find(key);
        return found == json.end() ? nlohmann::json() : *found;
    };
    if (at("zarr_format") != 2) return unsupported("the zarr array is not of version 2 of the format");
    ZarrArray array;
    SHARDSCOPE_ASSIGN(array.shape, zarrDims(json, "shape", 0));
    SHARDSCOPE_ASSIGN(array.chunk, zarrDims(json, "chunks", 1));
    if (array.chunk.size() != array.shape.size())
        return wrongZarray(fmt::format("the zarr array has the shape {} and chunks of the shape {}",
                                       formatDims(array.shape), formatDims(array.chunk)));
    const nlohmann::json dtype = at("dtype");
    const std::string name = dtype.is_string() ? dtype.get<std::string>() : std::string();
    if (const auto numpy = numpyDtype(name, array.bigEndian)) {
        array.dtype = *numpy;
    } else if (const auto known = dtypeFromName(name); known && dtypeIsWholeBytes(*known)) {
        array.dtype = *known;
        array.bigEndian = false;
    } else {
        return unsupported(fmt::format("the dtype {} of the zarr array is not known",
                                       printable(dtype.dump(-1, ' ', true), kNameInMessage)));
    }
    if (!at("compressor").is_null() || !(at("filters").is_null() || at("filters").empty()))
        return unsupported("the chunks of the zarr array are compressed or filtered, which is not read")
            .withHint("Megatron-Core writes its arrays without a compressor");
    if (at("order") != "C") return unsupported("the zarr array is not in row-major order");
    if (const nlohmann::json separator = at("dimension_separator"); !separator.is_null() && separator != ".")
        return unsupported("the chunks of the zarr array are in directories of their own, which is not read");
    const nlohmann::json fill = at("fill_value");
    array.zeroFilled =
        (fill.is_number() && fill.get<double>() == 0) || (fill.is_boolean() && !fill.get<bool>());
    int64_t elements = 0, bytes = 0;
    if (!checkedProduct(array.shape, elements) || !checkedProduct(array.chunk, elements) ||
        !checkedMul(elements, int64_t{dtypeBytes(array.dtype)}, bytes))
        return wrongZarray(fmt::format("the size of the zarr array {} in chunks of {} overflows",
                                       formatDims(array.shape), formatDims(array.chunk)));
    return array;
}

}  // namespace shardscope
