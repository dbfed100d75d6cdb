#include "survey/hues.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "survey/facts.h"

namespace shardscope {

AxisKind axisKind(std::string_view name) {
    // Ranks along an axis of replicas hold the same weights, whatever else they share (context parallelism:
    // sequences). As Megatron, DeepSpeed, torchtitan, Paddle, JAX and inferred meshes call them.
    constexpr std::array<std::pair<std::string_view, AxisKind>, 22> known{{
        {"pp", AxisKind::pipeline},
        {"pipe", AxisKind::pipeline},
        {"pipeline", AxisKind::pipeline},
        {"stage", AxisKind::pipeline},
        {"dp", AxisKind::data},
        {"fsdp", AxisKind::data},
        {"data", AxisKind::data},
        {"dp_shard", AxisKind::data},
        {"dp_replicate", AxisKind::replica},
        {"sharding", AxisKind::data},
        {"replica", AxisKind::replica},
        {"hsdp", AxisKind::data},
        {"tp", AxisKind::tensor},
        {"mp", AxisKind::tensor},
        {"model", AxisKind::tensor},
        {"tensor", AxisKind::tensor},
        {"ep", AxisKind::expert},
        {"expert", AxisKind::expert},
        {"cp", AxisKind::replica},
        {"context", AxisKind::replica},
        {"sep", AxisKind::replica},
        {"context_parallel", AxisKind::replica},
    }};
    for (const auto& [word, kind] : known) {
        if (word == name) return kind;
    }
    return AxisKind::other;
}

const char* axisKindName(AxisKind kind) {
    constexpr const char* names[] = {"pipeline", "data", "tensor", "expert", "replica", "other"};
    return names[static_cast<int>(kind)];
}

uint32_t axisRgb(AxisKind kind, bool dark) {
    constexpr uint32_t light[] = {0x4b5ba6, 0x2a8c6a, 0x2f86b8, 0x8a8b2f, 0x5f7f86, 0x7a828c};
    constexpr uint32_t onDark[] = {0x8593de, 0x4fb891, 0x5fb4e0, 0xb5b55a, 0x8fb0b8, 0x9ca4ae};
    return (dark ? onDark : light)[static_cast<int>(kind)];
}

uint32_t bytesRgb(bool dark) {
    return dark ? 0x35607e : 0xa9cbe4;
}

uint32_t holdRgb(double scale, bool dark) {
    const uint32_t from = dark ? 0x354b5c : 0xc9ddec, to = dark ? 0x7cc4f2 : 0x005a92;
    const double part = std::clamp(scale, 0.0, 1.0);
    uint32_t rgb = 0;
    for (const int shift : {16, 8, 0}) {
        const auto a = static_cast<int>(from >> shift & 0xff), b = static_cast<int>(to >> shift & 0xff);
        rgb |= static_cast<uint32_t>(std::lround(a + (b - a) * part)) << shift;
    }
    return rgb;
}

uint32_t healthRgb(Health health, bool dark) {
    constexpr uint32_t light[] = {0xd9d9d9, 0xc4c9d0, 0xcc79a7, 0x7b4fa8, 0xe69f00, 0xd55e00, 0x000000};
    constexpr uint32_t onDark[] = {0x6b6f76, 0x4d5158, 0xcc79a7, 0x7b4fa8, 0xe69f00, 0xd55e00, 0xffffff};
    return (dark ? onDark : light)[static_cast<int>(health)];
}

}  // namespace shardscope
