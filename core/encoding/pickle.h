// Python pickles, protocols 0 to 5, read as data and written. Nothing is ever imported or called: a class or
// function is a `global` node, a call is an `object` node (model/value.h). Calls that only spell plain data
// in old protocols become that data: bytes (_codecs.encode to latin1), bytearray, set, frozenset. OrderedDict
// and Counter given their items as an argument get them as pairs. Python 2 names are given as Python 3 has
// them (__builtin__ is builtins).
//
// Source of the facts: CPython's pickletools; docs/formats/torch_save.md has the list of opcodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "encoding/pickle_opcodes.h"
#include "model/value.h"

namespace shardscope {

struct PickleLimits {
    uint64_t textBytes = uint64_t{16} << 20;  // one string or bytes value, unless it is in `allowLargeBytes`
    uint64_t nodes = 0;                       // 0 = 4 per byte of the stream, at most 256 million
    uint64_t memory = uint64_t{256} << 20;    // that the values may take; some 60 bytes for the smallest
    int depth = kMaxValueDepth;               // of the finished graph
};

struct Pickle {
    ValueGraph graph;
    NodeId root = kNoNode;
    size_t length = 0;  // bytes up to and including STOP
    int protocol = 0;
    // Every global that the stream names or calls, in order of appearance, each once, "module.name"; also
    // those whose result was thrown away.
    std::vector<std::string> globals;
};

// Decodes the pickle at the start of `bytes`; bytes after STOP are the caller's business (see
// Pickle::length). Errors: damaged with the offset in `bytes` and the opcode (truncation, stack underflow,
// lengths beyond the end, opcodes that straddle a frame, missing memo entries, ...); unsupported (EXT1/2/4,
// NEXT_BUFFER, protocol above 5); limit.
Result<Pickle> decodePickle(std::span<const std::byte> bytes, const PickleLimits& limits = {});

// A stream that is put together piece by piece, for pickles that are not held as a Value. These are torch's
// data.pkl with its storages, DCP's .metadata, Paddle's files of arrays. Memo indices are the caller's: put()
// returns one.
class PickleWriter {
  public:
    // python: byte for byte what CPython's pickler writes. weightsOnly: the same, with empty bytes as
    // torch.load(weights_only=True) accepts them. python3: protocol 4, for readers of Python 3 only. Bytes
    // are bytes, globals keep their names. framed: protocol 4 with frames and MEMOIZE, byte for byte what
    // pickle.dumps() of Python 3.8 to 3.13 writes. It has no persistent ids and no frozensets.
    enum class For : uint8_t { python, weightsOnly, python3, framed };
    explicit PickleWriter(For reader = For::python);  // writes PROTO

    void none();
    void boolean(bool value);
    void integer(int64_t value);
    void real(double value);
    void text(std::string_view utf8);
    void bytes(std::string_view bytes);  // as protocol 2 spells them: _codecs.encode(text, "latin1")
    // python3 only: the start of a bytes value whose `length` bytes the caller puts behind it.
    void beginBytes(uint64_t length);
    void global(std::string_view module,
                std::string_view name);  // builtins become __builtin__, as Python 2 calls them
    // As global() and put(), or get() when this writer has written it before.
    void memoGlobal(std::string_view module, std::string_view name);
    void memoText(std::string_view utf8);
    void mark();
    void tuple();  // up to the last mark
    void tuple1();
    void tuple2();
    void tuple3();
    void emptyTuple();
    // Around the `size` items of a tuple: the shortest opcodes for that size, as CPython's pickler chooses
    // them.
    void beginTuple(size_t size);
    void endTuple(size_t size);
    void emptyList();
    void appends();  // up to the last mark
    void emptyDict();
    void setItems();  // up to the last mark
    void append();
    void setItem();
    void reduce();
    void newObject();
    void build();
    void persistentId();
    void pop();
    uint32_t put();  // memoizes the top of the stack
    void get(uint32_t memo);
    // Appends opcodes that a writer for the same reader has written (take()), without anything memoized.
    void written(std::string_view opcodes);
    // Any inert value, as CPython's pickler writes it. Errors as encodePickle; what was written before the
    // error stays.
    Status value(const Value& value);

    size_t size() const { return out_.size(); }
    // Returns and forgets what was written so far; for streaming very large pickles.
    std::string take();
    std::string finish();  // writes STOP

  private:
    friend class ValueEncoder;
    static constexpr size_t kFrame = 64 << 10;  // a frame ends behind the value that reaches this
    bool isProtocol4() const { return reader_ >= For::python3; }
    void counted(uint64_t length, PickleOpcode byOne, PickleOpcode byFour, PickleOpcode byEight);
    bool beginLong(uint64_t length);
    void endFrame();

    For reader_;
    size_t frame_ = 0;  // where the frame begins in out_
    std::string out_;
    uint32_t memo_ = 0;
    std::unordered_map<std::string, uint32_t> globals_, texts_;
};

// A whole pickle of one value; shared nodes are memoized. For::python is protocol 2, whose opcodes torch's
// weights_only unpickler accepts whenever the values allow it. Errors: unsupported (naming the value) for
// what cannot be written; limit for depth.
Result<std::string> encodePickle(const Value& value, PickleWriter::For reader = PickleWriter::For::python);

}  // namespace shardscope
