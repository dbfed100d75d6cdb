// Colors that mean the same in window, page and drawings: axes of the mesh, states, shares. Blue, green and
// earth tell axes apart; orange, red and violet are trouble.
#pragma once

#include <cstdint>
#include <string_view>

namespace shardscope {

enum class Health : uint8_t;

// What ranks along an axis have in common, whatever the framework calls it.
enum class AxisKind : uint8_t { pipeline, data, tensor, expert, replica, other };
AxisKind axisKind(std::string_view name);  // "fsdp" -> data
const char* axisKindName(AxisKind kind);   // "data"

// As 0xRRGGBB.
uint32_t axisRgb(AxisKind kind, bool dark);
uint32_t bytesRgb(bool dark);               // how much a rank holds, in the picture of the mesh
uint32_t holdRgb(double scale, bool dark);  // of an amount on a scale of 0..1
uint32_t healthRgb(Health health, bool dark);

}  // namespace shardscope
