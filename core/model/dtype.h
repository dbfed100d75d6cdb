// Element types. Names are torch's (without "torch."), the widest vocabulary of the formats that are read.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace shardscope {

enum class DType : uint8_t {
    boolean,
    uint8,
    int8,
    uint16,
    int16,
    uint32,
    int32,
    uint64,
    int64,
    float16,
    bfloat16,
    float32,
    float64,
    complex32,
    bcomplex32,
    complex64,
    complex128,
    float8E4M3FN,
    float8E5M2,
    float8E4M3FNUZ,
    float8E5M2FNUZ,
    float8E8M0FNU,
    float4E2M1FNx2,  // one element = one byte = two values, as torch counts it
    float6E2M3,      // 6 bits; safetensors only
    float6E3M2,      // 6 bits; safetensors only
    qint8,
    quint8,
    qint32,
    quint4x2,  // one element = one byte = two values
    quint2x4,  // one element = one byte = four values
    bits8,
    bits16,
    bits1x8,
    bits2x4,
    bits4x2,
};
constexpr int kDTypeCount = static_cast<int>(DType::bits4x2) + 1;

std::string_view dtypeName(DType dtype);
// Also accepts the short names of safetensors (BF16, F8_E4M3) and of common use (bf16, fp32, half).
std::optional<DType> dtypeFromName(std::string_view name);

unsigned dtypeBits(DType dtype);  // of one element
inline bool dtypeIsWholeBytes(DType dtype) {
    return dtypeBits(dtype) % 8 == 0;
}
inline unsigned dtypeBytes(DType dtype) {
    return (dtypeBits(dtype) + 7) / 8;
}
bool dtypeIsComplex(DType dtype);
// Real floating point, of any width (float4 and float6 included).
bool dtypeIsFloat(DType dtype);
// Significant bits of a float, the leading one among them: 24 of float32, 8 of bfloat16; 0 for anything else.
unsigned dtypePrecision(DType dtype);
// Width in bytes of the unit that a byte-order swap reverses: half the element for complex types.
unsigned dtypeSwapUnit(DType dtype);

// Bytes of `elements` elements laid end to end; nullopt on overflow or when they do not fill whole bytes.
std::optional<uint64_t> dtypeByteCount(DType dtype, uint64_t elements);

}  // namespace shardscope
