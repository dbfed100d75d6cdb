// The bits of floating-point formats, and the one rounding of all casts (executor.h), in integers. Read by
// the compilers of processors and of GPUs (core/accelerator/gpu compiles it at run time), so it includes
// nothing.
#pragma once

namespace shardscope {

enum class Special : unsigned char {
    ieee,    // all-ones exponent: infinity or NaN
    fn,      // no infinity; NaN is all ones
    fnuz,    // no infinity, no negative zero; NaN is the sign bit alone
    finite,  // neither
};

// A binary format with a sign bit. float8_e8m0fnu has neither sign nor mantissa and goes its own way.
struct FloatShape {
    int exponentBits;
    int mantissaBits;
    int bias;
    Special special;
};

constexpr FloatShape kFloat16{5, 10, 15, Special::ieee};
constexpr FloatShape kBFloat16{8, 7, 127, Special::ieee};
constexpr FloatShape kFloat32{8, 23, 127, Special::ieee};
constexpr FloatShape kFloat64{11, 52, 1023, Special::ieee};
constexpr FloatShape kFloat8E4M3FN{4, 3, 7, Special::fn};
constexpr FloatShape kFloat8E5M2{5, 2, 15, Special::ieee};
constexpr FloatShape kFloat8E4M3FNUZ{4, 3, 8, Special::fnuz};
constexpr FloatShape kFloat8E5M2FNUZ{5, 2, 16, Special::fnuz};
constexpr FloatShape kFloat6E2M3{2, 3, 1, Special::finite};
constexpr FloatShape kFloat6E3M2{3, 2, 3, Special::finite};

// What a value is on its way from one format to another. Float32 holds every value of the formats of at most
// 16 bits and of float32, Float64 every value of all.
struct AsFloat32 {
    using Bits = unsigned int;
    static constexpr FloatShape kShape = kFloat32;
};
struct AsFloat64 {
    using Bits = unsigned long long;
    static constexpr FloatShape kShape = kFloat64;
};

// Exact. A NaN keeps the upper bits of its payload and becomes quiet.
template <class As>
constexpr typename As::Bits widenFloat(FloatShape f, typename As::Bits bits) {
    using Bits = typename As::Bits;
    constexpr FloatShape wide = As::kShape;
    constexpr Bits infinity = ((Bits{1} << wide.exponentBits) - 1) << wide.mantissaBits;
    constexpr Bits quiet = Bits{1} << (wide.mantissaBits - 1);
    const int width = 1 + f.exponentBits + f.mantissaBits;
    const int more = wide.mantissaBits - f.mantissaBits;
    const Bits top = (Bits{1} << f.exponentBits) - 1;
    const Bits one = Bits{1} << f.mantissaBits;
    const Bits exponent = bits >> f.mantissaBits & top;
    Bits mantissa = bits & (one - 1);
    const Bits sign = (bits >> (width - 1) & 1) << (wide.exponentBits + wide.mantissaBits);

    if (f.special == Special::ieee && exponent == top)
        return sign | infinity | (mantissa == 0 ? 0 : mantissa << more | quiet);
    if (f.special == Special::fn && exponent == top && mantissa == one - 1) return sign | infinity | quiet;
    if (f.special == Special::fnuz && sign != 0 && exponent == 0 && mantissa == 0) return infinity | quiet;
    if (f.exponentBits == wide.exponentBits) return sign | exponent << wide.mantissaBits | mantissa << more;
    int field = static_cast<int>(exponent) - f.bias + wide.bias;
    if (exponent == 0) {
        if (mantissa == 0) return sign;
        for (++field; (mantissa & one) == 0; --field)
            mantissa <<= 1;
        mantissa &= one - 1;
    }
    return sign | static_cast<Bits>(field) << wide.mantissaBits | mantissa << more;
}

// To nearest, ties to even: no intermediate rounding.
template <class As>
constexpr typename As::Bits narrowFloat(FloatShape f, typename As::Bits bits) {
    using Bits = typename As::Bits;
    constexpr FloatShape wide = As::kShape;
    constexpr Bits wideTop = (Bits{1} << wide.exponentBits) - 1;
    constexpr int kMostShift = static_cast<int>(sizeof(Bits)) * 8 - 4;
    const int width = 1 + f.exponentBits + f.mantissaBits;
    const Bits sign = (bits >> (wide.exponentBits + wide.mantissaBits)) << (width - 1);
    const Bits exponentField = bits >> wide.mantissaBits & wideTop;
    const Bits fraction = bits & ((Bits{1} << wide.mantissaBits) - 1);
    const Bits infinity = ((Bits{1} << f.exponentBits) - 1) << f.mantissaBits;
    const Bits allOnes = infinity | ((Bits{1} << f.mantissaBits) - 1);
    const Bits fnuzNan = Bits{1} << (width - 1);
    const Bits overflow = f.special == Special::ieee   ? sign | infinity
                          : f.special == Special::fnuz ? fnuzNan
                                                       : sign | allOnes;

    if (exponentField == wideTop) {
        if (fraction == 0) return overflow;
        if (f.special == Special::fnuz) return fnuzNan;
        if (f.special == Special::fn || width == 8) return sign | allOnes;
        return sign | infinity | Bits{1} << (f.mantissaBits - 1) |
               fraction >> (wide.mantissaBits - f.mantissaBits);
    }
    const int more = wide.mantissaBits - f.mantissaBits;
    const int lowest = wide.bias - f.bias;  // exponents up to this are subnormal in the narrow format
    Bits result = 0;
    if (static_cast<int>(exponentField) > lowest) {
        const Bits magnitude = (exponentField - static_cast<Bits>(lowest)) << wide.mantissaBits | fraction;
        // The carry of a rounded-up mantissa runs into the exponent, as it should.
        result = more == 0 ? magnitude
                           : (magnitude + ((Bits{1} << (more - 1)) - 1) + (magnitude >> more & 1)) >> more;
        const Bits limit = f.special == Special::ieee ? infinity
                           : f.special == Special::fn ? allOnes
                                                      : allOnes + 1;
        if (result >= limit) return overflow;
    } else if (exponentField != 0 || f.exponentBits == wide.exponentBits) {
        // Subnormals of the wide format only matter to formats with as many exponents.
        const Bits mantissa = exponentField == 0 ? fraction : fraction | Bits{1} << wide.mantissaBits;
        int shift = more + (exponentField == 0 ? 0 : lowest + 1 - static_cast<int>(exponentField));
        if (shift > kMostShift) shift = kMostShift;
        result = mantissa;
        if (shift > 0) {
            const Bits rest = mantissa & ((Bits{1} << shift) - 1);
            const Bits half = Bits{1} << (shift - 1);
            result >>= shift;
            if (rest > half || (rest == half && (result & 1))) ++result;
        }
    }
    if (result == 0 && f.special == Special::fnuz) return 0;
    return sign | result;
}

template <class As>
constexpr typename As::Bits widenE8M0(unsigned bits) {
    constexpr FloatShape wide = As::kShape;
    using Bits = typename As::Bits;
    if (bits == 0xff) {
        return ((Bits{1} << wide.exponentBits) - 1) << wide.mantissaBits | Bits{1} << (wide.mantissaBits - 1);
    }
    const int field = static_cast<int>(bits) - 127 + wide.bias;
    if (field == 0) return Bits{1} << (wide.mantissaBits - 1);
    return static_cast<Bits>(field) << wide.mantissaBits;
}

// Of the bits of a float32. As torch does it: the nearest power of two of the magnitude, halves up.
constexpr unsigned narrowE8M0(unsigned bits) {
    const unsigned exponent = bits >> 23 & 0xff;
    if (exponent == 0xff) return 0xff;
    const bool half = (bits & 0x400000) != 0;
    const bool more = (bits & 0x3fffff) != 0;
    return exponent + (half && (exponent > 0 || more) ? 1 : 0);
}

// The two that most bytes go through, in few instructions.
constexpr unsigned floatFromBfloat16(unsigned bits) {
    const unsigned wide = bits << 16;
    // Signalling NaNs become quiet, as everywhere.
    return (wide & 0x7fffffff) > 0x7f800000 ? wide | 0x400000 : wide;
}
constexpr unsigned bfloat16FromFloat(unsigned bits) {
    const unsigned rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    const unsigned nan = bits >> 16 | 0x40;
    return (bits & 0x7fffffff) > 0x7f800000 ? nan : rounded;
}

}  // namespace shardscope
