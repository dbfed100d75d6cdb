#include "model/dtype.h"

#include <array>
#include <cctype>
#include <string>

#include "base/checked.h"

namespace shardscope {
namespace {

struct Info {
    DType dtype;
    std::string_view name;
    uint8_t bits;
    bool isFloat;
    bool isComplex;
};

constexpr std::array<Info, kDTypeCount> kInfos{{
    {DType::boolean, "bool", 8, false, false},
    {DType::uint8, "uint8", 8, false, false},
    {DType::int8, "int8", 8, false, false},
    {DType::uint16, "uint16", 16, false, false},
    {DType::int16, "int16", 16, false, false},
    {DType::uint32, "uint32", 32, false, false},
    {DType::int32, "int32", 32, false, false},
    {DType::uint64, "uint64", 64, false, false},
    {DType::int64, "int64", 64, false, false},
    {DType::float16, "float16", 16, true, false},
    {DType::bfloat16, "bfloat16", 16, true, false},
    {DType::float32, "float32", 32, true, false},
    {DType::float64, "float64", 64, true, false},
    {DType::complex32, "complex32", 32, false, true},
    {DType::bcomplex32, "bcomplex32", 32, false, true},
    {DType::complex64, "complex64", 64, false, true},
    {DType::complex128, "complex128", 128, false, true},
    {DType::float8E4M3FN, "float8_e4m3fn", 8, true, false},
    {DType::float8E5M2, "float8_e5m2", 8, true, false},
    {DType::float8E4M3FNUZ, "float8_e4m3fnuz", 8, true, false},
    {DType::float8E5M2FNUZ, "float8_e5m2fnuz", 8, true, false},
    {DType::float8E8M0FNU, "float8_e8m0fnu", 8, true, false},
    {DType::float4E2M1FNx2, "float4_e2m1fn_x2", 8, true, false},
    {DType::float6E2M3, "float6_e2m3", 6, true, false},
    {DType::float6E3M2, "float6_e3m2", 6, true, false},
    {DType::qint8, "qint8", 8, false, false},
    {DType::quint8, "quint8", 8, false, false},
    {DType::qint32, "qint32", 32, false, false},
    {DType::quint4x2, "quint4x2", 8, false, false},
    {DType::quint2x4, "quint2x4", 8, false, false},
    {DType::bits8, "bits8", 8, false, false},
    {DType::bits16, "bits16", 16, false, false},
    {DType::bits1x8, "bits1x8", 8, false, false},
    {DType::bits2x4, "bits2x4", 8, false, false},
    {DType::bits4x2, "bits4x2", 8, false, false},
}};

constexpr bool tableIsInOrder() {
    for (int i = 0; i < kDTypeCount; ++i) {
        if (static_cast<int>(kInfos[i].dtype) != i) return false;
    }
    return true;
}
static_assert(tableIsInOrder());

struct Alias {
    std::string_view name;
    DType dtype;
};

constexpr Alias kAliases[] = {
    {"u8", DType::uint8},
    {"i8", DType::int8},
    {"u16", DType::uint16},
    {"i16", DType::int16},
    {"short", DType::int16},
    {"u32", DType::uint32},
    {"i32", DType::int32},
    {"int", DType::int32},
    {"u64", DType::uint64},
    {"i64", DType::int64},
    {"long", DType::int64},
    {"f16", DType::float16},
    {"fp16", DType::float16},
    {"half", DType::float16},
    {"bf16", DType::bfloat16},
    {"f32", DType::float32},
    {"fp32", DType::float32},
    {"float", DType::float32},
    {"f64", DType::float64},
    {"fp64", DType::float64},
    {"double", DType::float64},
    {"c64", DType::complex64},
    {"c128", DType::complex128},
    {"f8_e4m3", DType::float8E4M3FN},
    {"f8_e5m2", DType::float8E5M2},
    {"f8_e8m0", DType::float8E8M0FNU},
    {"f8_e4m3fnuz", DType::float8E4M3FNUZ},
    {"f8_e5m2fnuz", DType::float8E5M2FNUZ},
    {"f6_e2m3", DType::float6E2M3},
    {"f6_e3m2", DType::float6E3M2},
};

}  // namespace

std::string_view dtypeName(DType dtype) {
    return kInfos[static_cast<int>(dtype)].name;
}

std::optional<DType> dtypeFromName(std::string_view name) {
    std::string lower;
    for (char c : name)
        lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (lower.starts_with("torch.")) lower.erase(0, 6);
    for (const Info& info : kInfos) {
        if (info.name == lower) return info.dtype;
    }
    for (const Alias& alias : kAliases) {
        if (alias.name == lower) return alias.dtype;
    }
    return std::nullopt;
}

unsigned dtypeBits(DType dtype) {
    return kInfos[static_cast<int>(dtype)].bits;
}
bool dtypeIsComplex(DType dtype) {
    return kInfos[static_cast<int>(dtype)].isComplex;
}
unsigned dtypePrecision(DType dtype) {
    switch (dtype) {
        case DType::float64:
            return 53;
        case DType::float32:
            return 24;
        case DType::float16:
            return 11;
        case DType::bfloat16:
            return 8;
        case DType::float8E4M3FN:
        case DType::float8E4M3FNUZ:
        case DType::float6E2M3:
            return 4;
        case DType::float8E5M2:
        case DType::float8E5M2FNUZ:
        case DType::float6E3M2:
            return 3;
        case DType::float4E2M1FNx2:
            return 2;
        case DType::float8E8M0FNU:
            return 1;
        default:
            return 0;
    }
}

bool dtypeIsFloat(DType dtype) {
    return kInfos[static_cast<int>(dtype)].isFloat;
}

unsigned dtypeSwapUnit(DType dtype) {
    const unsigned bytes = dtypeBytes(dtype);
    return dtypeIsComplex(dtype) ? bytes / 2 : bytes;
}

std::optional<uint64_t> dtypeByteCount(DType dtype, uint64_t elements) {
    uint64_t bits = 0;
    if (!checkedMul<uint64_t>(elements, dtypeBits(dtype), bits) || bits % 8 != 0) {
        // 2^61 elements of 8 bits still fit when counted in bytes.
        if (!dtypeIsWholeBytes(dtype)) return std::nullopt;
        uint64_t bytes = 0;
        if (!checkedMul<uint64_t>(elements, dtypeBytes(dtype), bytes)) return std::nullopt;
        return bytes;
    }
    return bits / 8;
}

}  // namespace shardscope
