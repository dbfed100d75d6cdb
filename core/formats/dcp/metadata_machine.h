// The second pass over a `.metadata`: a pickle machine whose values are 16 bytes and never allocated one by
// one. Rows of the big dictionaries go to their columns as soon as SETITEMS hands them over, whatever
// dictionary they are in; the dictionaries themselves remember only which rows are theirs.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "formats/dcp/memo_use.h"
#include "formats/dcp/metadata.h"
#include "formats/dcp/metadata_mold.h"

namespace shardscope::dcp {

// Attribute names and other words that the machine compares; interned first, in this order, so that they are
// constants.
enum Word : TextId {
    wOffsets,
    wSizes,
    wFqn,
    wIndex,
    wOffset,
    wRelativePath,
    wLength,
    wTransformDescriptors,
    wProperties,
    wSize,
    wChunks,
    wStateDictMetadata,
    wPlannerData,
    wStorageData,
    wStorageMeta,
    wVersion,
    wDtype,
    wStrides,
    wModules,
    wMcoreData,
    wReformulated,
    kWordCount
};

class MetadataMachine {
  public:
    MetadataMachine(const ReadFile& file, const Limits& limits, const StopToken& stop, const MemoUse& use);
    Result<Metadata> run();

  private:
    enum class Kind : uint8_t {
        none,
        boolean,
        integer,
        text,
        global,
        ints,
        intsIn1,
        size,
        tuple,
        list,
        dict,
        object,
        opaque,
        unset  // of a memo entry
    };
    enum class Class : uint8_t {
        foreign,
        torchSize,
        dtype,
        getLayout,
        metadata,
        tensor,
        chunk,
        bytes,
        properties,
        memoryFormat,
        index,
        storageInfo,
        storageMeta,
        orderedDict,
        reconstructor,
        getAttribute,
        inert
    };
    struct Value {
        Kind kind = Kind::none;
        Class cls = Class::foreign;  // of an object or a global
        uint32_t a = 0;              // text id; global; list, dict or object record; start in dims or items
        int64_t b = 0;               // number; count
    };
    static_assert(sizeof(Value) == 16);

    struct Global {
        TextId module = 0;
        TextId name = 0;
        Class cls = Class::foreign;
        uint32_t foreign = kNone;  // index into Metadata::foreign
    };
    struct Slice {
        uint32_t first = 0;
        uint32_t count = 0;
        uint32_t end() const { return first + count; }
    };
    struct List {
        Slice items;
        Slice chunks;
    };
    struct Dict {
        Slice items;  // key, value, key, value, ...
        Slice entries, stored, paths;
        bool empty() const { return !items.count && !entries.count && !stored.count && !paths.count; }
    };
    struct IndexRecord {
        TextId name = kNone;
        uint32_t offsets = 0;
        uint32_t hint = kNone;   // position in the tensor's chunk list, as the writer saw it; may be wrong
        uint32_t chunk = kNone;  // the chunk that the hint leads to, once its offsets were compared,
        uint32_t theirs = 0;     // and where these are
        uint8_t rank = 0;
        bool hasOffsets = false;
    };
    struct InfoRecord {
        TextId path = kNone;
        uint16_t transforms = 0;
        uint64_t offset = 0;
        uint64_t length = kUnset;
    };
    struct StorageRow {
        IndexRecord key;
        InfoRecord info;
    };
    struct TensorRecord {
        uint32_t properties = kNone;
        DimsRef shape;
        bool hasShape = false;
        uint8_t boxRank = 0;
        uint32_t boxes = kNone;  // where the boxes of all chunks stand one after another; kNone: they do not
        Slice chunks;
    };
    struct PropertiesRecord {
        TextId dtype = kNone;
        bool set = false;
    };
    struct RootRecord {
        uint32_t stateDict = kNone, plannerData = kNone, storageData = kNone, mcoreData = kNone;
    };
    static constexpr uint64_t kUnset = UINT64_MAX;
    // The most bytes of an object that is taken in one step: a name of 255 bytes and two sizes, amply.
    static constexpr size_t kFastWindow = 1024;
    static constexpr size_t kMaxStack = size_t{4} << 20;
    static constexpr size_t kMaxItems = size_t{64} << 20;
    static constexpr size_t kMaxForeign = 10'000;

    // --- the loop
    Status step();
    Status refill(size_t need);
    Result<std::string_view> textOperand(size_t header, uint64_t length);
    Result<std::string_view> lineOperand();
    Error bad(std::string message) const;
    Error stackLimit() const;
    uint64_t here() const { return window_.offsetOf(opcode_); }

    // --- stack and memo
    Status push(const Value& value);
    Status pop(Value& out);
    Status popMark(uint32_t& first);
    Status need(uint32_t values) const;
    Status memoize(uint64_t index);
    Status fetch(uint64_t index);
    void pin(const Value& value);

    // --- building
    Status makeTuple(uint32_t first);
    Status pushText(std::string_view text);
    Status pushLong(std::string_view bytes);
    Status pushGlobal(std::string_view module, std::string_view name);
    Class classify(std::string_view module, std::string_view name) const;
    Value newObject(const Value& cls);
    Status reduce();
    Status build();
    Status apply(Value& object, const Value& key, const Value& value);
    Status applyProperties(Value& object, const Value& tuple);
    Status setItems(uint32_t target, uint32_t first);
    Status addPair(Value& dict, const Value& key, const Value& value);
    Status addItems(uint32_t target, uint32_t first);
    Status appendItem(Slice& slice, const Value& value);
    template <class T>
    Status appendRow(std::vector<T>& rows, Slice& slice, const T& row);
    void release(const Value& value);
    Status addPath(Dict& dict, TextId name, const Value& tuple);
    Result<uint16_t> transformsOf(const Value& value);
    bool dimsValue(const Value& value, DimsRef& out, Error& error) const;
    uint32_t boxesOf(const Slice& chunks) const;
    template <class EachKey>
    void matchChunks(EachKey&& eachKey);
    Status addRow(Dict& dict, const IndexRecord& key, const InfoRecord& info);
    Status addRun(Dict& dict);

    // --- frequent objects in one step (metadata_fast.cpp)
    struct Follower;
    Status takeRun(Class cls, bool& done);
    Status takeRows(bool& done);
    template <class Accept>
    bool takeObject(Class cls, MoldSet& set, const uint8_t*& p, Accept&& accept);
    bool takeMolded(const Mold& mold, const uint8_t*& from, uint64_t& memo, TakenObject& taken);
    bool takeChunk(const uint8_t*& p, uint32_t& chunk);
    bool takeKey(const uint8_t*& p, IndexRecord& key);
    bool takeInfo(const uint8_t*& p, InfoRecord& info);
    DimsRef place(const TakenObject::Size& size);
    void keep(uint64_t index, const Value& value);
    Status room(const uint8_t*& p);
    Status pushKey(const IndexRecord& key);
    Status pushInfo(const InfoRecord& info);
    Value* slotOf(uint64_t index);

    Result<Metadata> finish(const Value& root);
    Status takeReformulated(const Dict& mcoreData);

    PickleWindow window_;
    const Limits& limits_;
    const MemoUse& use_;
    MemoCounter counter_;
    Metadata out_;

    const uint8_t* p_ = nullptr;
    const uint8_t* end_ = nullptr;
    const uint8_t* opcode_ = nullptr;

    std::vector<Value> stack_;
    std::vector<uint32_t> marks_;
    std::vector<Value> memo_;  // by rank among the fetched
    std::vector<Value> low_;   // the first 256 indices, by index

    std::array<MoldSet, 3> molds_;  // of chunks, storage keys and storage entries
    TakenObject taken_;
    std::vector<StorageRow> run_;

    std::vector<Value> items_;
    std::vector<List> lists_;
    std::vector<Dict> dicts_;
    std::vector<Global> globals_;
    std::vector<IndexRecord> indexes_;
    std::vector<InfoRecord> infos_;
    std::vector<TensorRecord> tensors_;
    std::vector<PropertiesRecord> properties_;
    std::vector<RootRecord> roots_;
    std::vector<uint32_t> tensorByName_;  // last TensorRecord of each name, + 1

    // Below these, records may be referred to by the memo and stay.
    uint32_t itemsPin_ = 0, listPin_ = 0, dictPin_ = 0, indexPin_ = 0, infoPin_ = 0, dimsPin_ = 0;
    uint64_t moved_ = 0;
    uint64_t unmatched_ = 0;  // storage rows that hold their offsets themselves
};

// nullptr for an index that the first pass saw no fetch of.
inline MetadataMachine::Value* MetadataMachine::slotOf(uint64_t index) {
    if (index < low_.size()) return &low_[index];
    return use_.fetched(index) ? &memo_[use_.rank(index)] : nullptr;
}

inline Status MetadataMachine::need(uint32_t values) const {
    const uint32_t base = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() - base < values) return bad("an opcode wants more values than the stack holds");
    return {};
}

inline Status MetadataMachine::push(const Value& value) {
    if (stack_.size() >= kMaxStack) return stackLimit();
    stack_.push_back(value);
    return {};
}

inline Status MetadataMachine::pop(Value& out) {
    SHARDSCOPE_TRY(need(1));
    out = stack_.back();
    stack_.pop_back();
    return {};
}

inline Status MetadataMachine::popMark(uint32_t& first) {
    if (marks_.empty()) return bad("an opcode looks for a mark that is not there");
    first = marks_.back();
    marks_.pop_back();
    return {};
}

}  // namespace shardscope::dcp
