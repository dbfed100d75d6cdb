// The way of metadata as Paddle itself writes it: a pickle machine over a window of the file, whose rows go
// to their columns as the pickle goes by. The two objects that make up nearly all of the file are taken in
// one step.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "encoding/pickle_lexer.h"
#include "encoding/pickle_mold.h"
#include "encoding/pickle_window.h"
#include "encoding/text_table.h"
#include "formats/paddle_dist/metadata.h"
#include "formats/paddle_dist/metadata_fast.h"

namespace shardscope::paddle {

// Anything that is not as Paddle writes it ends the machine, errors included: then the general decoder has
// the last word.
class MetadataMachine {
  public:
    MetadataMachine(const ReadFile& file, const Limits& limits, const StopToken& stop);
    bool run();
    Metadata take() { return std::move(out_); }

  private:
    enum class Kind : uint8_t { none, boolean, integer, text, dims, path, list, dict, cls, instance };
    enum Cls : uint8_t { kMetadata, kShard, kIndex, kClassCount };
    // The names of the fields are interned first, so that these are their TextIds as well.
    enum Field : uint8_t {
        kOffset,
        kShape,
        kGlobal,
        kRange,
        kSizes,  // those above are stretches of dims
        kDType = kSizes,
        kIsFlat,
        kKey,
        kReplica,
        kStateDict,
        kStorage,
        kMapping,
        kFieldCount
    };
    struct Value {
        Kind kind = Kind::none;
        uint8_t small = 0;  // rank of dims; Cls of a class or an instance
        // TextId; place in Metadata::dims; path, list, dict; row of an instance, kNone before BUILD
        uint32_t a = 0;
        int64_t b = 0;        // boolean, integer
        bool joined = false;  // of an entry: `a` is the row of its piece
    };
    struct List {
        bool rows = false, dims = false;
        uint32_t first = 0, count = 0;
        DimsAt where;
    };
    struct Dict {
        enum class What : uint8_t { empty, fields, tensors, stored, paths } what = What::empty;
        uint32_t mask = 0;
        std::array<Value, kFieldCount> fields;
    };
    struct Tensor {
        TextId key;
        uint32_t first = 0, count = 0;
        uint32_t joined = 0;  // of its rows have their entries
    };
    // The fields of a LocalTensorMetadata or LocalTensorIndex.
    struct Row {
        uint16_t there = 0;  // bits of Field,
        uint16_t none = 0;   // and those that are None
        bool flat = false;
        std::array<DimsAt, kSizes> sizes;
        TextId text = 0;  // dtype or key
        int64_t replica = 0;
        bool has(Field f) const { return ((there & ~none) >> f & 1) != 0; }
    };

    // --- frequent objects in one step (metadata_molds.cpp)
    enum class Operand : uint8_t { text, number, dims, fetchedDims };
    struct Stretch : MoldStretch {
        static constexpr uint8_t kNothing = 0xff;  // an object or its dict
        std::array<uint8_t, MoldStretch::kMostPuts>
            entries{};  // its memo entries: a Field of dims, or kNothing
    };
    struct Part {
        Stretch before;
        Operand operand = Operand::number;
        uint8_t field = 0;
        uint8_t rank = 0;
        // The text that was fetched last, which is likely to be the next one.
        uint32_t lastIndex = kNone;
        TextId lastText = 0;
    };
    struct Mold {
        static constexpr size_t kMostParts = 6;
        std::array<Part, kMostParts> parts;
        Stretch after;
        uint8_t count = 0;
        uint16_t there = 0, none = 0;
        bool flat = false;
    };
    // Several, because tensors differ in their number of dimensions and in what the memo hands out.
    struct MoldSet {
        std::array<Mold, 8> molds;
        uint8_t count = 0;
        uint8_t last = 0;  // that fitted
        uint8_t next = 0;  // to be replaced
    };
    struct Taken {
        static constexpr size_t kMostDims = 8;
        static constexpr size_t kMostEntries = 16;
        struct Size {
            std::array<int64_t, kMostDims> values;
            DimsAt at;  // where it was fetched
            uint8_t rank = 0;
            bool made = false;
        };
        Row row;
        std::array<Size, kSizes> sizes;
        // Memo entries in order: a Field, or Stretch::kNothing. The entries of a stretch are copied whole.
        std::array<uint8_t, kMostEntries + MoldStretch::kMostPuts> entries;
        uint8_t entryCount = 0;
        bool spelt = false;  // the text, which is then in the memo
    };
    // The most bytes of an object that is taken in one step.
    static constexpr size_t kFastWindow = 1024;
    struct Follower;
    bool takeObject(Cls cls);
    bool takeMolded(Mold& mold, const uint8_t*& from, Taken& taken);
    bool placeSizes(Cls cls, Taken& taken);
    bool joinTaken(Taken& taken, uint32_t& number);
    void prefetchRows(TextId key);
    bool speltText(const uint8_t*& p, TextId& out);
    void speltIn(TextId text, uint8_t mold);

    // --- the loop
    bool step();
    bool refill(size_t need);
    bool textOperand(size_t header, uint64_t length);
    bool line(std::string_view& out);
    bool openFrame();

    // --- stack and memo
    bool push(Value value) {
        stack_.push_back(value);
        return true;
    }
    bool need(size_t count) const { return stack_.size() - (marks_.empty() ? 0 : marks_.back()) >= count; }
    bool popMark(size_t& begin);
    bool remember(uint64_t index);
    void memoRoom(size_t count) {
        if (memoCount_ + count > memoTag_.size()) growMemo();
    }
    void growMemo();
    bool fetch(uint64_t index, Value& out) const {
        if (index >= memoCount_) return false;
        const uint8_t tag = memoTag_[index];
        out = {};
        if (tag >= kDimsTag) {
            out.kind = Kind::dims;
            out.small = static_cast<uint8_t>(tag - kDimsTag);
            out.a = memoAt_[index];
            return true;
        }
        out.kind = static_cast<Kind>(tag);
        if (out.kind == Kind::cls)
            out.small = static_cast<uint8_t>(memoAt_[index]);
        else
            out.a = memoAt_[index];
        // What may have changed since is not taken.
        return out.kind != Kind::dict && out.kind != Kind::instance;
    }
    bool recall();

    // --- building
    bool cls(std::string_view module, std::string_view name);
    bool dims(size_t begin, DimsAt& where);
    bool tuple(size_t begin);
    bool append(size_t begin);
    bool emptyDict();
    bool setItems(size_t begin);
    bool build();
    bool asDims(const Value& v, DimsAt& where) const;
    bool readRow(const Dict& dict, Row& row) const;
    bool buildRoot(const Dict& dict);
    bool rangeOf(const Row& row, DimsAt& out) const;
    bool addShard(const Row& row, uint32_t& number);
    bool addIndex(const Row& row, Value& index);
    // The row of the piece that the next entry of this tensor is likely to be of; kNone.
    uint32_t nextRowOf(TextId key, int64_t replica) const {
        if (key >= tensorOf_.size() || tensorOf_[key] == kNone || replica < 0 || replica > INT32_MAX)
            return kNone;
        const Tensor& tensor = tensors_[tensorOf_[key]];
        return tensor.joined < tensor.count ? tensor.first + tensor.joined : kNone;
    }
    void join(TextId key, uint32_t number, int64_t replica) {
        out_.rows[number].replica = static_cast<int32_t>(replica);
        ++tensors_[tensorOf_[key]].joined;
    }
    uint32_t intern(TextId text, std::vector<std::string>& list, std::vector<uint32_t>& known) {
        return text < known.size() && known[text] != kNone ? known[text] : internNew(text, list, known);
    }
    uint32_t internNew(TextId text, std::vector<std::string>& list, std::vector<uint32_t>& known);
    bool finish();

    PickleWindow window_;
    const Limits& limits_;
    const uint8_t* p_ = nullptr;
    const uint8_t* end_ = nullptr;
    const uint8_t* opcode_ = nullptr;
    uint64_t frameEnd_ = kNoFrame;
    static constexpr uint64_t kNoFrame = UINT64_MAX;

    std::vector<Value> stack_;
    std::vector<size_t> marks_;
    // The memo: what each entry is, and its Value::a. Picklers number them one after the other.
    std::vector<uint8_t> memoTag_;  // kDimsTag + rank, else a Kind
    std::vector<uint32_t> memoAt_;
    size_t memoCount_ = 0;  // the columns are longer
    static constexpr uint8_t kDimsTag = 0x80;
    // The index of a LONG_BINGET or BINGET; then `p` stands behind it. Reads 5 bytes.
    static bool takeGet(const uint8_t*& p, uint32_t& index) {
        if (PickleOpcode(*p) == PickleOpcode::longBinGet) {
            index = pickle_bytes::load32(p + 1);
            p += 5;
        } else if (PickleOpcode(*p) == PickleOpcode::binGet) {
            index = p[1];
            p += 2;
        } else {
            return false;
        }
        return true;
    }

    std::array<MoldSet, kClassCount> molds_;
    Taken taken_;
    std::array<std::array<DimsAt, kSizes>, kClassCount> lastSizes_;
    // The keys of storage_metadata come rank by rank, each time in the same order.
    std::vector<TextId> textAfter_;
    std::vector<uint8_t> moldOfText_;
    TextId nearKey_ = kNone, farKey_ = kNone;  // whose rows are being prefetched
    uint32_t walked_ = 0;
    TextId lastSpelt_ = 0;

    TextTable texts_;
    std::vector<List> lists_;
    std::vector<Dict> dicts_;
    std::vector<uint32_t> freeDicts_;
    std::vector<std::vector<TextId>> paths_;
    std::vector<std::pair<TextId, uint32_t>> flat_;
    std::vector<Tensor> tensors_;
    std::vector<uint32_t> fileOf_, dtypeOf_;  // by TextId
    std::vector<uint32_t> tensorOf_;          // by TextId, in tensors_
    size_t entries_ = 0, entriesPlaced_ = 0;
    bool early_ = false;  // entries came before all tensors were known
    SeenFields seen_;
    bool built_ = false, named_ = false;
    Metadata out_;  // the keys of stored rows are TextIds until the end
};

}  // namespace shardscope::paddle
