#include "encoding/zarr_array.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/checked.h"
#include "base/numbers.h"
#include "base/rule.h"
#include "base/text.h"
#include "base/units.h"

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
        return makeError(ErrorCode::limit, fmt::format("{} are more than the {} that are read",
                                                       counted(found->size(), "dimension"), kMaxRank));
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

// Dtypes by name: those that are known, and those that are kept as other ones of the same width.
bool setNamedDtype(std::string_view name, ZarrArray& array) {
    struct Shown {
        std::string_view name;
        DType as;
    };
    // TensorStore keeps an element in a byte each; the integers are extended to it.
    constexpr Shown shown[] = {
        {"int2", DType::int8},
        {"int4", DType::int8},
        {"uint2", DType::uint8},
        {"uint4", DType::uint8},
        {"float8_e3m4", DType::bits8},
        {"float8_e4m3", DType::bits8},
        {"float8_e4m3b11fnuz", DType::bits8},
        {"float4_e2m1fn", DType::bits8},
        {"float6_e2m3fn", DType::bits8},
        {"float6_e3m2fn", DType::bits8},
    };
    for (const Shown& one : shown) {
        if (name != one.name) continue;
        array.dtype = one.as;
        array.shownAs = name;
        return true;
    }
    const auto known = dtypeFromName(name);
    if (!known || !dtypeIsWholeBytes(*known)) return false;
    array.dtype = *known;
    return true;
}

Error unknownDtype(const nlohmann::json& dtype) {
    return unsupported(fmt::format("the dtype {} of the zarr array is not known",
                                   printable(dtype.dump(-1, ' ', true), kNameInMessage)));
}

nlohmann::json member(const nlohmann::json& json, const char* key) {
    if (!json.is_object()) return {};
    const auto found = json.find(key);
    return found == json.end() ? nlohmann::json() : *found;
}

std::string textOfJson(const nlohmann::json& json) {
    return json.is_string() ? json.get<std::string>() : std::string();
}

Status checkZarrSizes(const ZarrArray& array) {
    int64_t elements = 0, bytes = 0;
    if (!checkedProduct(array.shape, elements) || !checkedProduct(array.chunk, elements) ||
        !checkedMul(elements, int64_t{dtypeBytes(array.dtype)}, bytes))
        return wrongZarray(fmt::format("the size of the zarr array {} in chunks of {} overflows",
                                       formatDims(array.shape), formatDims(array.chunk)));
    return {};
}

// ------------------------------------------------------------------ fill values

void appendBits(uint64_t bits, size_t bytes, std::vector<std::byte>& out) {
    for (size_t i = 0; i < bytes; ++i)
        out.push_back(static_cast<std::byte>(bits >> (8 * i)));
}

// "NaN", "-Infinity" and numbers.
std::optional<double> fillNumber(const nlohmann::json& fill) {
    if (fill.is_number()) return fill.get<double>();
    if (fill.is_boolean()) return fill.get<bool>() ? 1 : 0;
    const std::string text = textOfJson(fill);
    if (text == "NaN") return std::nan("");
    if (text == "Infinity") return HUGE_VAL;
    if (text == "-Infinity") return -HUGE_VAL;
    return std::nullopt;
}

// One real number, little-endian; false where it has no exact form in the dtype.
bool appendReal(double value, DType dtype, std::vector<std::byte>& out) {
    const auto bits32 = std::bit_cast<uint32_t>(static_cast<float>(value));
    const bool exact32 = std::isnan(value) || static_cast<double>(static_cast<float>(value)) == value;
    if (value == 0 && !std::signbit(value)) {
        appendBits(0, dtypeBytes(dtype), out);
        return true;
    }
    switch (dtype) {
        case DType::float64:
            appendBits(std::bit_cast<uint64_t>(value), 8, out);
            return true;
        case DType::float32:
            appendBits(bits32, 4, out);
            return exact32;
        case DType::bfloat16:
            appendBits(bits32 >> 16, 2, out);
            return exact32 && (bits32 & 0xffff) == 0;
        case DType::float16: {
            if (std::isnan(value) || std::isinf(value)) {
                appendBits(std::isnan(value) ? 0x7e00 : value > 0 ? 0x7c00 : 0xfc00, 2, out);
                return true;
            }
            const int exponent = static_cast<int>(bits32 >> 23 & 0xff) - 127;
            appendBits(
                (bits32 >> 16 & 0x8000) | static_cast<uint32_t>(exponent + 15) << 10 | (bits32 >> 13 & 0x3ff),
                2, out);
            return exact32 && exponent >= -14 && exponent <= 15 && (bits32 & 0x1fff) == 0;
        }
        default:
            return false;
    }
}

std::optional<std::vector<std::byte>> fillOf(const nlohmann::json& fill, const ZarrArray& array) {
    std::vector<std::byte> out;
    const size_t bytes = dtypeBytes(array.dtype);
    const std::string text = textOfJson(fill);
    bool known = false;
    if (text.starts_with("0x") && text.size() == 2 + 2 * bytes) {
        // The bits, most significant first.
        known = true;
        for (size_t i = bytes; i-- > 0;) {
            unsigned value = 0;
            const char* at = text.data() + 2 + 2 * i;
            known = known && std::from_chars(at, at + 2, value, 16).ptr == at + 2;
            out.push_back(static_cast<std::byte>(value));
        }
    } else if (dtypeIsComplex(array.dtype)) {
        const DType part = array.dtype == DType::complex128 ? DType::float64 : DType::float32;
        nlohmann::json parts = fill.is_array() ? fill : nlohmann::json{fill, 0};
        known = parts.size() == 2 && (array.dtype == DType::complex64 || array.dtype == DType::complex128);
        for (size_t i = 0; known && i < 2; ++i) {
            const auto number = fillNumber(parts[i]);
            known = number && appendReal(*number, part, out);
        }
    } else if (const auto number = fillNumber(fill)) {
        if (fill.is_number_integer() && !dtypeIsFloat(array.dtype)) {
            const uint64_t bits = fill.get<uint64_t>();
            appendBits(bits, bytes, out);
            known = true;
        } else if (fill.is_boolean()) {
            appendBits(fill.get<bool>(), bytes, out);
            known = !dtypeIsFloat(array.dtype) || !fill.get<bool>();
        } else {
            known = appendReal(*number, array.dtype, out);
        }
    }
    if (!known || out.size() != bytes) return std::nullopt;
    if (array.bigEndian) {
        const size_t unit = dtypeSwapUnit(array.dtype);
        for (size_t i = 0; i + unit <= out.size(); i += unit)
            std::reverse(out.begin() + static_cast<ptrdiff_t>(i),
                         out.begin() + static_cast<ptrdiff_t>(i + unit));
    }
    return out;
}

// ------------------------------------------------------------------ codecs of version 3

Error unsupportedCodec(std::string_view name) {
    return unsupported(
        fmt::format("the codec '{}' of the zarr array is not read", printable(name, kNameInMessage)));
}

// The codecs after the elements have become bytes.
Status addCodec(const nlohmann::json& codec, ZarrArray& array, bool& sawBytes) {
    const std::string name = codec.is_string() ? textOfJson(codec) : textOfJson(member(codec, "name"));
    const nlohmann::json settings = member(codec, "configuration");
    if (name == "bytes" || name == "endian") {
        if (sawBytes) return wrongZarray("the codecs of the zarr array make bytes of bytes");
        sawBytes = true;
        const nlohmann::json endian = member(settings, "endian");
        if (!endian.is_null() && endian != "little" && endian != "big")
            return wrongZarray("the byte order of the zarr array is neither little nor big");
        array.bigEndian = endian == "big";
        return {};
    }
    if (!sawBytes) {
        if (name == "transpose") {
            const nlohmann::json order = member(settings, "order");
            bool identity = order.is_array() && order.size() == array.shape.size();
            for (size_t d = 0; identity && d < order.size(); ++d)
                identity = order[d].is_number_integer() && order[d] == d;
            if (identity || order == "C") return {};
        }
        return unsupportedCodec(name);
    }
    if (name == "zstd")
        array.codecs.push_back(ZarrArray::Codec::zstd);
    else if (name == "gzip")
        array.codecs.push_back(ZarrArray::Codec::gzip);
    else if (name == "crc32c")
        array.codecs.push_back(ZarrArray::Codec::crc32c);
    else
        return unsupportedCodec(name);
    if (array.codecs.size() > 8) return unsupported("the zarr array has more than 8 codecs");
    return {};
}

Status addCodecs(const nlohmann::json& codecs, ZarrArray& array) {
    if (!codecs.is_array() || codecs.empty())
        return wrongZarray("the codecs of the zarr array are not a list");
    bool sawBytes = false;
    for (const auto& codec : codecs)
        SHARDSCOPE_TRY(addCodec(codec, array, sawBytes));
    if (!sawBytes) return wrongZarray("no codec of the zarr array makes bytes of its elements");
    return {};
}

Status addSharding(const nlohmann::json& settings, ZarrArray& array) {
    ZarrArray::Sharding sharding;
    if (!settings.is_object()) return wrongZarray("the sharding of the zarr array has no configuration");
    SHARDSCOPE_ASSIGN(sharding.inner, zarrDims(settings, "chunk_shape", 1));
    if (sharding.inner.size() != array.chunk.size())
        return wrongZarray("the inner chunks of the zarr array have another rank");
    int64_t count = 1;
    for (size_t d = 0; d < array.chunk.size(); ++d) {
        if (array.chunk[d] % sharding.inner[d] != 0 ||
            !checkedMul(count, array.chunk[d] / sharding.inner[d], count))
            return wrongZarray(fmt::format("inner chunks of {} do not divide chunks of {}",
                                           formatDims(sharding.inner), formatDims(array.chunk)));
    }
    SHARDSCOPE_TRY(addCodecs(member(settings, "codecs"), array));
    const nlohmann::json location = member(settings, "index_location");
    if (!location.is_null() && location != "start" && location != "end")
        return wrongZarray("the index of the zarr array is neither at the start nor at the end");
    sharding.indexAtStart = location == "start";
    ZarrArray index;
    SHARDSCOPE_TRY(addCodecs(member(settings, "index_codecs"), index));
    sharding.indexHasChecksum = index.codecs == std::vector{ZarrArray::Codec::crc32c};
    if (index.bigEndian || (!index.codecs.empty() && !sharding.indexHasChecksum))
        return unsupported("the index of the zarr array is compressed or big-endian, which is not read");
    int64_t bytes = 0;
    if (!checkedMul(count, int64_t{16}, bytes) || !checkedAdd(bytes, int64_t{4}, bytes))
        return wrongZarray("the zarr array has too many inner chunks");
    sharding.indexBytes = static_cast<uint64_t>(bytes) - (sharding.indexHasChecksum ? 0 : 4);
    array.sharding = std::move(sharding);
    return {};
}

}  // namespace

uint64_t ZarrArray::chunkBytes() const {
    return static_cast<uint64_t>(elementCount(chunk)) * dtypeBytes(dtype);
}

ZarrArray::Cut ZarrArray::cut(DimSpan lengths) const {
    const Dims strides = rowMajorStrides(chunk);
    int64_t last = 0;
    for (size_t d = 0; d < lengths.size(); ++d)
        last += (lengths[d] - 1) * strides[d];
    Cut cut{static_cast<uint64_t>(last + 1) * dtypeBytes(dtype), {}};
    if (!std::ranges::equal(lengths, chunk) && strides != rowMajorStrides(lengths)) cut.strides = strides;
    return cut;
}

Dims ZarrArray::grid() const {
    Dims out;
    for (size_t d = 0; d < shape.size(); ++d)
        out.push_back(gridAlong(d));
    return out;
}

int64_t ZarrArray::gridAlong(size_t d) const {
    return shape[d] / chunk[d] + (shape[d] % chunk[d] != 0);
}

std::string ZarrArray::chunkName(DimSpan place) const {
    std::string name = prefixedKeys ? "c" : "";
    for (const int64_t number : place) {
        if (!name.empty()) name += separator;
        name += std::to_string(number);
    }
    return name.empty() ? "0" : name;
}

std::optional<Dims> ZarrArray::chunkPlace(std::string_view name) const {
    if (shape.empty()) return name == chunkName({}) ? std::optional<Dims>(Dims{}) : std::nullopt;
    Dims place;
    place.reserve(shape.size());
    if (prefixedKeys) {
        if (name.empty() || name[0] != 'c') return std::nullopt;
        name.remove_prefix(1);
    }
    for (size_t d = 0; d < shape.size(); ++d) {
        if (d > 0 || prefixedKeys) {
            if (name.empty() || name[0] != separator) return std::nullopt;
            name.remove_prefix(1);
        }
        const std::string_view spelled = name;
        const auto number = takeNumber<int64_t>(name);
        if (!number || *number >= gridAlong(d)) return std::nullopt;
        // "00" would name the same chunk as "0".
        if (spelled[0] == '0' && spelled.size() - name.size() > 1) return std::nullopt;
        place.push_back(*number);
    }
    return name.empty() ? std::optional<Dims>(std::move(place)) : std::nullopt;
}

Result<ZarrArray> parseZarray(std::string_view text) {
    const auto json = nlohmann::json::parse(text, nullptr, false);
    if (!json.is_object()) return wrongZarray("the description of the zarr array is not JSON");
    const auto at = [&](const char* key) { return member(json, key); };
    if (at("zarr_format") != 2) return unsupported("the zarr array is not of version 2 of the format");
    ZarrArray array;
    SHARDSCOPE_ASSIGN(array.shape, zarrDims(json, "shape", 0));
    SHARDSCOPE_ASSIGN(array.chunk, zarrDims(json, "chunks", 1));
    if (array.chunk.size() != array.shape.size())
        return wrongZarray(fmt::format("the zarr array has the shape {} and chunks of the shape {}",
                                       formatDims(array.shape), formatDims(array.chunk)));
    const nlohmann::json dtype = at("dtype");
    const std::string name = textOfJson(dtype);
    if (const auto numpy = numpyDtype(name, array.bigEndian)) {
        array.dtype = *numpy;
    } else {
        array.bigEndian = false;
        if (!setNamedDtype(name, array)) return unknownDtype(dtype);
    }
    if (!(at("filters").is_null() || at("filters").empty()))
        return unsupported("the chunks of the zarr array are filtered, which is not read");
    if (const nlohmann::json compressor = at("compressor"); !compressor.is_null()) {
        const std::string id = textOfJson(member(compressor, "id"));
        if (id == "zstd") {
            array.codecs = {ZarrArray::Codec::zstd};
        } else if (id == "zlib" || id == "gzip") {
            array.codecs = {ZarrArray::Codec::gzip};
        } else {
            return unsupported(
                fmt::format("the compressor '{}' of the zarr array is not read (zstd, zlib and gzip are)",
                            printable(id, kNameInMessage)));
        }
    }
    if (at("order") != "C") return unsupported("the zarr array is not in row-major order");
    if (const nlohmann::json separator = at("dimension_separator"); !separator.is_null()) {
        if (separator != "." && separator != "/")
            return wrongZarray("the separator in the names of the chunks is neither '.' nor '/'");
        array.separator = separator == "/" ? '/' : '.';
    }
    SHARDSCOPE_TRY(checkZarrSizes(array));
    array.fill = fillOf(at("fill_value"), array);
    return array;
}

Result<ZarrArray> parseZarrJson(std::string_view text) {
    const auto json = nlohmann::json::parse(text, nullptr, false);
    if (!json.is_object()) return wrongZarray("the description of the zarr array is not JSON");
    const auto at = [&](const char* key) { return member(json, key); };
    if (at("zarr_format") != 3) return unsupported("the zarr array is not of version 3 of the format");
    if (at("node_type") != "array") return unsupported("the zarr node is not an array");
    ZarrArray array;
    array.version = 3;
    SHARDSCOPE_ASSIGN(array.shape, zarrDims(json, "shape", 0));
    const nlohmann::json grid = at("chunk_grid");
    if (member(grid, "name") != "regular") return unsupported("the zarr array has no regular grid of chunks");
    const nlohmann::json sizes = member(grid, "configuration");
    if (!sizes.is_object()) return wrongZarray("the grid of the zarr array has no configuration");
    SHARDSCOPE_ASSIGN(array.chunk, zarrDims(sizes, "chunk_shape", 1));
    if (array.chunk.size() != array.shape.size())
        return wrongZarray(fmt::format("the zarr array has the shape {} and chunks of the shape {}",
                                       formatDims(array.shape), formatDims(array.chunk)));
    if (!at("storage_transformers").is_null() && !at("storage_transformers").empty())
        return unsupported("the zarr array has storage transformers, which are not read");
    const nlohmann::json keys = at("chunk_key_encoding");
    const nlohmann::json separator = member(member(keys, "configuration"), "separator");
    const std::string encoding = keys.is_string() ? textOfJson(keys) : textOfJson(member(keys, "name"));
    if (encoding != "default" && encoding != "v2")
        return unsupported(
            "the names of the chunks of the zarr array are encoded in a way that is not known");
    if (!separator.is_null() && separator != "." && separator != "/")
        return wrongZarray("the separator in the names of the chunks is neither '.' nor '/'");
    array.prefixedKeys = encoding == "default";
    array.separator = separator.is_null() ? (array.prefixedKeys ? '/' : '.') : textOfJson(separator)[0];
    const nlohmann::json dtype = at("data_type");
    if (!setNamedDtype(textOfJson(dtype), array)) return unknownDtype(dtype);
    SHARDSCOPE_TRY(checkZarrSizes(array));
    const nlohmann::json codecs = at("codecs");
    if (codecs.is_array() && codecs.size() == 1 && member(codecs[0], "name") == "sharding_indexed") {
        SHARDSCOPE_TRY(addSharding(member(codecs[0], "configuration"), array));
    } else {
        SHARDSCOPE_TRY(addCodecs(codecs, array));
    }
    array.fill = fillOf(at("fill_value"), array);
    return array;
}

}  // namespace shardscope
