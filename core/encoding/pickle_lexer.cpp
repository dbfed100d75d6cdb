#include "encoding/pickle_lexer.h"

#include <fmt/format.h>

namespace shardscope {

std::string_view pickleOpcodeName(PickleOpcode code) {
    switch (code) {
        case PickleOpcode::mark:
            return "MARK";
        case PickleOpcode::stop:
            return "STOP";
        case PickleOpcode::pop:
            return "POP";
        case PickleOpcode::popMark:
            return "POP_MARK";
        case PickleOpcode::dup:
            return "DUP";
        case PickleOpcode::floatText:
            return "FLOAT";
        case PickleOpcode::intText:
            return "INT";
        case PickleOpcode::binInt:
            return "BININT";
        case PickleOpcode::binInt1:
            return "BININT1";
        case PickleOpcode::longText:
            return "LONG";
        case PickleOpcode::binInt2:
            return "BININT2";
        case PickleOpcode::none:
            return "NONE";
        case PickleOpcode::persId:
            return "PERSID";
        case PickleOpcode::binPersId:
            return "BINPERSID";
        case PickleOpcode::reduce:
            return "REDUCE";
        case PickleOpcode::string:
            return "STRING";
        case PickleOpcode::binString:
            return "BINSTRING";
        case PickleOpcode::shortBinString:
            return "SHORT_BINSTRING";
        case PickleOpcode::unicode:
            return "UNICODE";
        case PickleOpcode::binUnicode:
            return "BINUNICODE";
        case PickleOpcode::append:
            return "APPEND";
        case PickleOpcode::build:
            return "BUILD";
        case PickleOpcode::global:
            return "GLOBAL";
        case PickleOpcode::dict:
            return "DICT";
        case PickleOpcode::emptyDict:
            return "EMPTY_DICT";
        case PickleOpcode::appends:
            return "APPENDS";
        case PickleOpcode::get:
            return "GET";
        case PickleOpcode::binGet:
            return "BINGET";
        case PickleOpcode::inst:
            return "INST";
        case PickleOpcode::longBinGet:
            return "LONG_BINGET";
        case PickleOpcode::list:
            return "LIST";
        case PickleOpcode::emptyList:
            return "EMPTY_LIST";
        case PickleOpcode::obj:
            return "OBJ";
        case PickleOpcode::put:
            return "PUT";
        case PickleOpcode::binPut:
            return "BINPUT";
        case PickleOpcode::longBinPut:
            return "LONG_BINPUT";
        case PickleOpcode::setItem:
            return "SETITEM";
        case PickleOpcode::tuple:
            return "TUPLE";
        case PickleOpcode::emptyTuple:
            return "EMPTY_TUPLE";
        case PickleOpcode::setItems:
            return "SETITEMS";
        case PickleOpcode::binFloat:
            return "BINFLOAT";
        case PickleOpcode::binBytes:
            return "BINBYTES";
        case PickleOpcode::shortBinBytes:
            return "SHORT_BINBYTES";
        case PickleOpcode::proto:
            return "PROTO";
        case PickleOpcode::newObj:
            return "NEWOBJ";
        case PickleOpcode::ext1:
            return "EXT1";
        case PickleOpcode::ext2:
            return "EXT2";
        case PickleOpcode::ext4:
            return "EXT4";
        case PickleOpcode::tuple1:
            return "TUPLE1";
        case PickleOpcode::tuple2:
            return "TUPLE2";
        case PickleOpcode::tuple3:
            return "TUPLE3";
        case PickleOpcode::newTrue:
            return "NEWTRUE";
        case PickleOpcode::newFalse:
            return "NEWFALSE";
        case PickleOpcode::long1:
            return "LONG1";
        case PickleOpcode::long4:
            return "LONG4";
        case PickleOpcode::shortBinUnicode:
            return "SHORT_BINUNICODE";
        case PickleOpcode::binUnicode8:
            return "BINUNICODE8";
        case PickleOpcode::binBytes8:
            return "BINBYTES8";
        case PickleOpcode::emptySet:
            return "EMPTY_SET";
        case PickleOpcode::addItems:
            return "ADDITEMS";
        case PickleOpcode::frozenSet:
            return "FROZENSET";
        case PickleOpcode::newObjEx:
            return "NEWOBJ_EX";
        case PickleOpcode::stackGlobal:
            return "STACK_GLOBAL";
        case PickleOpcode::memoize:
            return "MEMOIZE";
        case PickleOpcode::frame:
            return "FRAME";
        case PickleOpcode::byteArray8:
            return "BYTEARRAY8";
        case PickleOpcode::nextBuffer:
            return "NEXT_BUFFER";
        case PickleOpcode::readonlyBuffer:
            return "READONLY_BUFFER";
    }
    return {};
}

bool PickleLexer::line(const PickleOp& op, std::string_view& text) {
    // A name or number of this length is no name or number; only strings may be longer.
    constexpr uint64_t kNameLimit = 1 << 16;
    const bool isString = op.code == PickleOpcode::string || op.code == PickleOpcode::unicode;
    const void* newline =
        size_ > position_ ? std::memchr(data_ + position_, '\n', size_ - position_) : nullptr;
    if (!newline) {
        error_ = damaged(fmt::format("the pickle ends inside the text line of {}", pickleOpcodeName(op.code)),
                         op.offset);
        return false;
    }
    const auto length = static_cast<size_t>(static_cast<const char*>(newline) - (data_ + position_));
    if (const uint64_t most = isString ? textLimit_ : kNameLimit; length > most)
        return failLong(op, length, most);
    text = {data_ + position_, length};
    position_ += length + 1;
    return true;
}

bool PickleLexer::openFrame(const PickleOp& op) {
    uint64_t length = 0;
    if (frameEnd_ != kNoFrame) {
        error_ = damaged("a FRAME begins inside another frame", op.offset);
        return false;
    }
    if (!fixed(op, length)) return false;
    if (length > size_ - position_) return failShort(op, length);
    frameEnd_ = position_ + static_cast<size_t>(length);
    return true;
}

bool PickleLexer::failEnd() {
    error_ = damaged("the pickle ends before STOP", size_);
    return false;
}

bool PickleLexer::failShort(const PickleOp& op, uint64_t length) {
    error_ = damaged(fmt::format("{} declares {} bytes, {} remain in the pickle", pickleOpcodeName(op.code),
                                 length, size_ - position_),
                     op.offset);
    return false;
}

bool PickleLexer::failLong(const PickleOp& op, uint64_t length, uint64_t most) {
    error_ = makeError(ErrorCode::limit,
                       fmt::format("{} holds {} bytes, more than the {} that are read in one value",
                                   pickleOpcodeName(op.code), length, most))
                 .at(op.offset);
    return false;
}

bool PickleLexer::failNegative(const PickleOp& op, int32_t length) {
    error_ = damaged(fmt::format("{} declares {} bytes", pickleOpcodeName(op.code), length), op.offset);
    return false;
}

bool PickleLexer::failStraddle(const PickleOp& op) {
    error_ =
        damaged(fmt::format("{} reaches beyond the end of its frame", pickleOpcodeName(op.code)), op.offset);
    return false;
}

}  // namespace shardscope
