#include "engine/element.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "execute/executor.h"

namespace shardscope {
namespace {

template <class T>
T load(const std::byte* bytes) {
    T value;
    std::memcpy(&value, bytes, sizeof value);
    return value;
}

double realValue(DType dtype, const std::byte* bytes) {
    if (dtype == DType::float64) return load<double>(bytes);
    if (dtype == DType::float32) return load<float>(bytes);
    double value = 0;
    castElements(dtype, bytes, DType::float64, reinterpret_cast<std::byte*>(&value), 1);
    return value;
}

uint64_t bitsOf(const std::byte* bytes, unsigned size) {
    uint64_t bits = 0;
    std::memcpy(&bits, bytes, std::min<unsigned>(size, 8));
    return bits;
}

}  // namespace

double elementValue(DType dtype, const std::byte* bytes) {
    switch (dtype) {
        case DType::boolean:
            return load<uint8_t>(bytes) != 0;
        case DType::uint8:
        case DType::quint8:
            return load<uint8_t>(bytes);
        case DType::int8:
        case DType::qint8:
            return load<int8_t>(bytes);
        case DType::uint16:
            return load<uint16_t>(bytes);
        case DType::int16:
            return load<int16_t>(bytes);
        case DType::uint32:
            return load<uint32_t>(bytes);
        case DType::int32:
        case DType::qint32:
            return load<int32_t>(bytes);
        case DType::uint64:
            return static_cast<double>(load<uint64_t>(bytes));
        case DType::int64:
            return static_cast<double>(load<int64_t>(bytes));
        case DType::complex64:
            return std::hypot(load<float>(bytes), load<float>(bytes + 4));
        case DType::complex128:
            return std::hypot(load<double>(bytes), load<double>(bytes + 8));
        case DType::complex32:
            return std::hypot(realValue(DType::float16, bytes), realValue(DType::float16, bytes + 2));
        case DType::bcomplex32:
            return std::hypot(realValue(DType::bfloat16, bytes), realValue(DType::bfloat16, bytes + 2));
        default:
            break;
    }
    if (dtypeIsFloat(dtype) && dtypeIsWholeBytes(dtype) && castSupported(dtype, DType::float64) &&
        dtype != DType::float4E2M1FNx2) {
        return realValue(dtype, bytes);
    }
    return static_cast<double>(bitsOf(bytes, dtypeBytes(dtype)));
}

std::string elementText(DType dtype, const std::byte* bytes) {
    switch (dtype) {
        case DType::boolean:
            return load<uint8_t>(bytes) ? "true" : "false";
        case DType::uint64:
            return fmt::format("{}", load<uint64_t>(bytes));
        case DType::int64:
            return fmt::format("{}", load<int64_t>(bytes));
        case DType::complex64:
            return fmt::format("{}{:+}j", load<float>(bytes), load<float>(bytes + 4));
        case DType::complex128:
            return fmt::format("{}{:+}j", load<double>(bytes), load<double>(bytes + 8));
        case DType::float32:
            return fmt::format("{}", load<float>(bytes));
        default:
            return fmt::format("{}", elementValue(dtype, bytes));
    }
}

}  // namespace shardscope
