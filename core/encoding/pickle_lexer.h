// The opcodes of a pickle stream, one after the other, each with its argument; every length is checked
// against the bytes that remain and against the frame it stands in. No stack, no memo: for decoders that
// build something other than a ValueGraph. Source: CPython's pickletools.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "base/error.h"

namespace shardscope {

enum class PickleOpcode : uint8_t {
    mark = '(',
    stop = '.',
    pop = '0',
    popMark = '1',
    dup = '2',
    floatText = 'F',
    intText = 'I',
    binInt = 'J',
    binInt1 = 'K',
    longText = 'L',
    binInt2 = 'M',
    none = 'N',
    persId = 'P',
    binPersId = 'Q',
    reduce = 'R',
    string = 'S',
    binString = 'T',
    shortBinString = 'U',
    unicode = 'V',
    binUnicode = 'X',
    append = 'a',
    build = 'b',
    global = 'c',
    dict = 'd',
    emptyDict = '}',
    appends = 'e',
    get = 'g',
    binGet = 'h',
    inst = 'i',
    longBinGet = 'j',
    list = 'l',
    emptyList = ']',
    obj = 'o',
    put = 'p',
    binPut = 'q',
    longBinPut = 'r',
    setItem = 's',
    tuple = 't',
    emptyTuple = ')',
    setItems = 'u',
    binFloat = 'G',
    binBytes = 'B',
    shortBinBytes = 'C',
    proto = 0x80,
    newObj = 0x81,
    ext1 = 0x82,
    ext2 = 0x83,
    ext4 = 0x84,
    tuple1 = 0x85,
    tuple2 = 0x86,
    tuple3 = 0x87,
    newTrue = 0x88,
    newFalse = 0x89,
    long1 = 0x8a,
    long4 = 0x8b,
    shortBinUnicode = 0x8c,
    binUnicode8 = 0x8d,
    binBytes8 = 0x8e,
    emptySet = 0x8f,
    addItems = 0x90,
    frozenSet = 0x91,
    newObjEx = 0x92,
    stackGlobal = 0x93,
    memoize = 0x94,
    frame = 0x95,
    byteArray8 = 0x96,
    nextBuffer = 0x97,
    readonlyBuffer = 0x98,
};

// "BINUNICODE"; empty for a byte that is no opcode.
std::string_view pickleOpcodeName(PickleOpcode code);

struct PickleOp {
    PickleOpcode code = PickleOpcode::stop;
    size_t offset = 0;    // of the opcode
    uint64_t number = 0;  // BININT (sign-extended), BININT1/2, BINGET, BINPUT, PROTO, ...
    double real = 0;      // BINFLOAT
    std::string_view
        text;  // string, bytes, LONG's bytes, or a text line without its newline; points into the stream
    std::string_view text2;  // second line of GLOBAL and INST
};

class PickleLexer {
  public:
    // `textLimit`: bytes of one string or bytes value.
    PickleLexer(std::span<const std::byte> bytes, uint64_t textLimit)
        : data_(reinterpret_cast<const char*>(bytes.data())), size_(bytes.size()), textLimit_(textLimit) {}

    // Reads the next opcode; FRAME is taken care of and not handed out. False when the stream is damaged, see
    // error().
    bool next(PickleOp& op) {
        for (;;) {
            if (position_ == frameEnd_) frameEnd_ = kNoFrame;
            if (position_ >= size_) return failEnd();
            op.offset = position_;
            op.code = static_cast<PickleOpcode>(static_cast<uint8_t>(data_[position_]));
            ++position_;
            if (!argument(op)) return false;
            if (frameEnd_ != kNoFrame && position_ > frameEnd_) return failStraddle(op);
            if (op.code != PickleOpcode::frame) return true;
        }
    }

    size_t position() const { return position_; }  // of the next opcode
    Error& error() { return error_; }

  private:
    static constexpr size_t kNoFrame = SIZE_MAX;

    template <class T>
    bool fixed(const PickleOp& op, T& value) {
        if (size_ - position_ < sizeof(T)) return failShort(op, sizeof(T));
        std::memcpy(&value, data_ + position_, sizeof(T));  // pickles are little-endian
        position_ += sizeof(T);
        return true;
    }
    bool bytes(PickleOp& op, uint64_t length) {
        if (length > size_ - position_) return failShort(op, length);
        if (length > textLimit_) return failLong(op, length, textLimit_);
        op.text = {data_ + position_, static_cast<size_t>(length)};
        position_ += static_cast<size_t>(length);
        return true;
    }
    template <class T>
    bool counted(PickleOp& op) {
        T length = 0;
        return fixed(op, length) && bytes(op, length);
    }
    template <class T>
    bool number(PickleOp& op) {
        T value = 0;
        if (!fixed(op, value)) return false;
        op.number = static_cast<uint64_t>(static_cast<int64_t>(value));
        return true;
    }

    bool argument(PickleOp& op) {
        switch (op.code) {
            case PickleOpcode::binInt:
                return number<int32_t>(op);
            case PickleOpcode::binInt1:
            case PickleOpcode::binGet:
            case PickleOpcode::binPut:
            case PickleOpcode::proto:
            case PickleOpcode::ext1:
                return number<uint8_t>(op);
            case PickleOpcode::binInt2:
            case PickleOpcode::ext2:
                return number<uint16_t>(op);
            case PickleOpcode::longBinGet:
            case PickleOpcode::longBinPut:
            case PickleOpcode::ext4:
                return number<uint32_t>(op);
            case PickleOpcode::binUnicode:
            case PickleOpcode::binBytes:
                return counted<uint32_t>(op);
            case PickleOpcode::shortBinUnicode:
            case PickleOpcode::shortBinBytes:
            case PickleOpcode::shortBinString:
            case PickleOpcode::long1:
                return counted<uint8_t>(op);
            case PickleOpcode::binUnicode8:
            case PickleOpcode::binBytes8:
            case PickleOpcode::byteArray8:
                return counted<uint64_t>(op);
            case PickleOpcode::binString:
            case PickleOpcode::long4: {
                int32_t length = 0;
                if (!fixed(op, length)) return false;
                if (length < 0) return failNegative(op, length);
                return bytes(op, static_cast<uint64_t>(length));
            }
            case PickleOpcode::binFloat: {
                uint64_t bits = 0;
                if (!fixed(op, bits)) return false;
                bits = __builtin_bswap64(bits);
                std::memcpy(&op.real, &bits, sizeof bits);
                return true;
            }
            case PickleOpcode::frame:
                return openFrame(op);
            case PickleOpcode::floatText:
            case PickleOpcode::intText:
            case PickleOpcode::longText:
            case PickleOpcode::persId:
            case PickleOpcode::string:
            case PickleOpcode::unicode:
            case PickleOpcode::get:
            case PickleOpcode::put:
                return line(op, op.text);
            case PickleOpcode::global:
            case PickleOpcode::inst:
                return line(op, op.text) && line(op, op.text2);
            default:
                return true;  // no argument, or no opcode at all: the caller knows
        }
    }

    bool line(const PickleOp& op, std::string_view& text);
    bool openFrame(const PickleOp& op);
    bool failEnd();
    bool failShort(const PickleOp& op, uint64_t length);
    bool failLong(const PickleOp& op, uint64_t length, uint64_t most);
    bool failNegative(const PickleOp& op, int32_t length);
    bool failStraddle(const PickleOp& op);

    const char* data_;
    size_t size_;
    uint64_t textLimit_;
    size_t position_ = 0;
    size_t frameEnd_ = kNoFrame;
    Error error_;
};

}  // namespace shardscope
