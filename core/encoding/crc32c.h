// CRC-32C (Castagnoli): reflected, initial value and final exclusive or ffffffff; RFC 3720, appendix B.4.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace shardscope {

uint32_t crc32cOf(std::span<const std::byte> bytes);

}  // namespace shardscope
