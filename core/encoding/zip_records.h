// Signatures, sizes and flags of zip records (PKWARE's APPNOTE), and little-endian fields.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

namespace shardscope::zip {

constexpr uint32_t kLocalHeader = 0x04034b50;
constexpr uint32_t kDescriptor = 0x08074b50;
constexpr uint32_t kCentralHeader = 0x02014b50;
constexpr uint32_t kEndRecord = 0x06054b50;
constexpr uint32_t kZip64EndRecord = 0x06064b50;
constexpr uint32_t kZip64Locator = 0x07064b50;

constexpr uint64_t kLocalHeaderSize = 30;
constexpr uint64_t kCentralHeaderSize = 46;
constexpr uint64_t kEndRecordSize = 22;
constexpr uint64_t kZip64EndRecordSize = 56;
constexpr uint64_t kZip64LocatorSize = 20;

constexpr uint16_t kFlagEncrypted = 1 << 0;
constexpr uint16_t kFlagDescriptor = 1 << 3;
constexpr uint16_t kFlagPatch = 1 << 5;
constexpr uint16_t kFlagStrongEncryption = 1 << 6;
constexpr uint16_t kFlagUtf8 = 1 << 11;
constexpr uint16_t kFlagMaskedHeader = 1 << 13;

constexpr uint32_t kMax32 = UINT32_MAX;  // "see the Zip64 field"
constexpr uint16_t kMax16 = UINT16_MAX;
constexpr uint16_t kZip64Field = 1;

template <class T>
T get(const char* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

template <class T>
void put(std::string& out, T value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace shardscope::zip
