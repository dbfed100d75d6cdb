// The opcodes of Python pickles, protocols 0 to 5. Source: CPython's Lib/pickletools.py.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace shardscope {

// What follows an opcode: this many bytes, a length of 1, 4 or 8 bytes and then that many bytes, or lines.
constexpr uint8_t kPickleLength1 = 0x11;
constexpr uint8_t kPickleLength4 = 0x14;
constexpr uint8_t kPickleLength8 = 0x18;
constexpr uint8_t kPickleLine = 0x21;
constexpr uint8_t kPickleTwoLines = 0x22;
constexpr uint8_t kNotAPickleOpcode = 0xff;

// clang-format off
// name, byte, name in pickletools, operand
#define SHARDSCOPE_PICKLE_OPCODES(X) \
    X(mark, '(', "MARK", 0)                                      \
    X(stop, '.', "STOP", 0)                                      \
    X(pop, '0', "POP", 0)                                        \
    X(popMark, '1', "POP_MARK", 0)                               \
    X(dup, '2', "DUP", 0)                                        \
    X(floatText, 'F', "FLOAT", kPickleLine)                      \
    X(intText, 'I', "INT", kPickleLine)                          \
    X(binInt, 'J', "BININT", 4)                                  \
    X(binInt1, 'K', "BININT1", 1)                                \
    X(longText, 'L', "LONG", kPickleLine)                        \
    X(binInt2, 'M', "BININT2", 2)                                \
    X(none, 'N', "NONE", 0)                                      \
    X(persId, 'P', "PERSID", kPickleLine)                        \
    X(binPersId, 'Q', "BINPERSID", 0)                            \
    X(reduce, 'R', "REDUCE", 0)                                  \
    X(string, 'S', "STRING", kPickleLine)                        \
    X(binString, 'T', "BINSTRING", kPickleLength4)               \
    X(shortBinString, 'U', "SHORT_BINSTRING", kPickleLength1)    \
    X(unicode, 'V', "UNICODE", kPickleLine)                      \
    X(binUnicode, 'X', "BINUNICODE", kPickleLength4)             \
    X(append, 'a', "APPEND", 0)                                  \
    X(build, 'b', "BUILD", 0)                                    \
    X(global, 'c', "GLOBAL", kPickleTwoLines)                    \
    X(dict, 'd', "DICT", 0)                                      \
    X(emptyDict, '}', "EMPTY_DICT", 0)                           \
    X(appends, 'e', "APPENDS", 0)                                \
    X(get, 'g', "GET", kPickleLine)                              \
    X(binGet, 'h', "BINGET", 1)                                  \
    X(inst, 'i', "INST", kPickleTwoLines)                        \
    X(longBinGet, 'j', "LONG_BINGET", 4)                         \
    X(list, 'l', "LIST", 0)                                      \
    X(emptyList, ']', "EMPTY_LIST", 0)                           \
    X(obj, 'o', "OBJ", 0)                                        \
    X(put, 'p', "PUT", kPickleLine)                              \
    X(binPut, 'q', "BINPUT", 1)                                  \
    X(longBinPut, 'r', "LONG_BINPUT", 4)                         \
    X(setItem, 's', "SETITEM", 0)                                \
    X(tuple, 't', "TUPLE", 0)                                    \
    X(emptyTuple, ')', "EMPTY_TUPLE", 0)                         \
    X(setItems, 'u', "SETITEMS", 0)                              \
    X(binFloat, 'G', "BINFLOAT", 8)                              \
    X(binBytes, 'B', "BINBYTES", kPickleLength4)                 \
    X(shortBinBytes, 'C', "SHORT_BINBYTES", kPickleLength1)      \
    X(proto, 0x80, "PROTO", 1)                                   \
    X(newObj, 0x81, "NEWOBJ", 0)                                 \
    X(ext1, 0x82, "EXT1", 1)                                     \
    X(ext2, 0x83, "EXT2", 2)                                     \
    X(ext4, 0x84, "EXT4", 4)                                     \
    X(tuple1, 0x85, "TUPLE1", 0)                                 \
    X(tuple2, 0x86, "TUPLE2", 0)                                 \
    X(tuple3, 0x87, "TUPLE3", 0)                                 \
    X(newTrue, 0x88, "NEWTRUE", 0)                               \
    X(newFalse, 0x89, "NEWFALSE", 0)                             \
    X(long1, 0x8a, "LONG1", kPickleLength1)                      \
    X(long4, 0x8b, "LONG4", kPickleLength4)                      \
    X(shortBinUnicode, 0x8c, "SHORT_BINUNICODE", kPickleLength1) \
    X(binUnicode8, 0x8d, "BINUNICODE8", kPickleLength8)          \
    X(binBytes8, 0x8e, "BINBYTES8", kPickleLength8)              \
    X(emptySet, 0x8f, "EMPTY_SET", 0)                            \
    X(addItems, 0x90, "ADDITEMS", 0)                             \
    X(frozenSet, 0x91, "FROZENSET", 0)                           \
    X(newObjEx, 0x92, "NEWOBJ_EX", 0)                            \
    X(stackGlobal, 0x93, "STACK_GLOBAL", 0)                      \
    X(memoize, 0x94, "MEMOIZE", 0)                               \
    X(frame, 0x95, "FRAME", 8)                                   \
    X(byteArray8, 0x96, "BYTEARRAY8", kPickleLength8)            \
    X(nextBuffer, 0x97, "NEXT_BUFFER", 0)                        \
    X(readonlyBuffer, 0x98, "READONLY_BUFFER", 0)
// clang-format on

enum class PickleOpcode : uint8_t {
#define SHARDSCOPE_OPCODE(name, byte, text, operand) name = byte,
    SHARDSCOPE_PICKLE_OPCODES(SHARDSCOPE_OPCODE)
#undef SHARDSCOPE_OPCODE
};

struct PickleOpcodeInfo {
    std::string_view name;  // "BINUNICODE"; empty for a byte that is not an opcode
    uint8_t operand = kNotAPickleOpcode;
};

inline constexpr std::array<PickleOpcodeInfo, 256> kPickleOpcodes = [] {
    std::array<PickleOpcodeInfo, 256> all{};
#define SHARDSCOPE_OPCODE(name, byte, text, operand) all[byte] = {text, operand};
    SHARDSCOPE_PICKLE_OPCODES(SHARDSCOPE_OPCODE)
#undef SHARDSCOPE_OPCODE
    return all;
}();

}  // namespace shardscope
