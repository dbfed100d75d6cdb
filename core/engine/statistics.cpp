#include "engine/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/element.h"

namespace shardscope {
namespace {

// Calls use(value) for each element of the tile, as doubles.
template <class Use>
void forEachValue(DType dtype, std::span<const std::byte> bytes, Use&& use) {
    const unsigned item = dtypeBytes(dtype);
    if (dtypeIsFloat(dtype) && castSupported(dtype, DType::float64) && dtypeIsWholeBytes(dtype)) {
        constexpr size_t kBlock = 1024;
        double values[kBlock];
        for (size_t i = 0; i < bytes.size() / item; i += kBlock) {
            const size_t n = std::min(kBlock, bytes.size() / item - i);
            castElements(dtype, bytes.data() + i * item, DType::float64, reinterpret_cast<std::byte*>(values),
                         n);
            for (size_t k = 0; k < n; ++k)
                use(values[k]);
        }
        return;
    }
    for (size_t i = 0; i + item <= bytes.size(); i += item)
        use(elementValue(dtype, bytes.data() + i));
}

}  // namespace

Result<TensorStatistics> tensorStatistics(const Reader& reader, TensorId tensor, size_t bins,
                                          const Resources& resources) {
    const DType dtype = reader.catalog().dtype(tensor);
    TensorStatistics s;
    s.elements = static_cast<uint64_t>(reader.catalog().elements(tensor));
    s.min = std::numeric_limits<double>::infinity();
    s.max = -s.min;
    double sum = 0;
    double squares = 0;  // about `origin`, so that a large mean does not swallow a small spread
    double origin = 0;
    ScanOptions ordered;
    ordered.ordered = true;
    SHARDSCOPE_TRY(scanTensors(reader, {tensor}, ordered, resources, [&](const TileView& tile) -> Status {
        forEachValue(dtype, tile.bytes, [&](double v) {
            if (std::isnan(v)) {
                ++s.nan;
            } else if (std::isinf(v)) {
                ++s.inf;
            } else {
                if (s.finite == 0) origin = v;
                ++s.finite;
                s.zero += v == 0;
                s.min = std::min(s.min, v);
                s.max = std::max(s.max, v);
                sum += v - origin;
                squares += (v - origin) * (v - origin);
            }
        });
        return {};
    }));
    s.histogram.assign(bins, 0);
    if (s.finite == 0) {
        s.min = s.max = 0;
        return s;
    }
    const auto n = static_cast<double>(s.finite);
    s.mean = origin + sum / n;
    s.deviation = std::sqrt(std::max(0.0, squares / n - (sum / n) * (sum / n)));
    const double scale = s.max > s.min ? static_cast<double>(bins) / (s.max - s.min) : 0;
    SHARDSCOPE_TRY(scanTensors(reader, {tensor}, ordered, resources, [&](const TileView& tile) -> Status {
        forEachValue(dtype, tile.bytes, [&](double v) {
            if (std::isfinite(v)) ++s.histogram[std::min(bins - 1, static_cast<size_t>((v - s.min) * scale))];
        });
        return {};
    }));
    return s;
}

}  // namespace shardscope
