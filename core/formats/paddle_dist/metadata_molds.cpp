// A LocalTensorMetadata or LocalTensorIndex recognised as the run of opcodes that CPython's pickler writes
// for it, and taken in one step. Anything unexpected, and nothing happens: the opcodes are then walked one by
// one.
#include <algorithm>
#include <cstring>

#include "encoding/pickle_text.h"
#include "formats/paddle_dist/metadata_machine.h"

namespace shardscope::paddle {

using namespace pickle_bytes;
using Op = PickleOpcode;

// Follows the opcodes of one object and takes its mold. What it says is taken by the mold then.
struct MetadataMachine::Follower {
    const MetadataMachine& machine;
    const uint8_t* p;
    const uint8_t* from;  // where the open stretch begins
    Mold mold{};
    Stretch stretch{};

    Follower(const MetadataMachine& owner, const uint8_t* start) : machine(owner), p(start), from(start) {}

    bool take(Op opcode) {
        if (Op(*p) != opcode) return false;
        ++p;
        return true;
    }
    // MEMOIZE or the PUT that does the same, where the writer memoizes at all.
    bool memoize(uint8_t entry) {
        if (Op(*p) == Op::memoize) {
            ++p;
        } else if (Op(*p) == Op::longBinPut) {
            const auto at = static_cast<size_t>(p + 1 - from);
            if (stretch.puts == MoldStretch::kMostPuts || at + 4 > MoldStretch::kWords * 8) return false;
            stretch.putAt[stretch.puts++] = static_cast<uint8_t>(at);
            p += 5;
        } else {
            return Op(*p) != Op::binPut;
        }
        if (stretch.memos == stretch.entries.size()) return false;
        stretch.entries[stretch.memos++] = entry;
        // PUTs and MEMOIZEs are not mixed.
        return stretch.puts == 0 || stretch.puts == stretch.memos;
    }
    bool get(Value& value) {
        uint32_t index = 0;
        return takeGet(p, index) && machine.fetch(index, value);
    }
    // [begin, p) is an operand.
    bool cut(Operand operand, uint8_t field, unsigned rank, const uint8_t* begin) {
        if (mold.count == Mold::kMostParts || !stretch.set(from, begin)) return false;
        Part& part = mold.parts[mold.count++];
        part.before = stretch;
        part.operand = operand;
        part.field = field;
        part.rank = static_cast<uint8_t>(rank);
        stretch = {};
        from = p;
        return true;
    }
    bool size(uint8_t field) {
        const uint8_t* begin = p;
        if (Op(*p) == Op::binGet || Op(*p) == Op::longBinGet) {
            Value value;
            return get(value) && value.kind == Kind::dims &&
                   cut(Operand::fetchedDims, field, value.small, begin);
        }
        const bool marked = take(Op::mark);
        begin = p;
        unsigned count = 0;
        int64_t value = 0;
        while (count < Taken::kMostDims && takeInteger(p, value))
            ++count;
        if (!cut(Operand::dims, field, count, begin)) return false;
        if (marked) {
            if (!take(Op::tuple)) return false;
        } else if (count == 0) {
            return take(Op::emptyTuple);
        } else if (count > 3 || !take(Op(static_cast<unsigned>(Op::tuple1) + count - 1))) {
            return false;
        }
        return memoize(field);
    }
    bool text(uint8_t field) {
        const uint8_t* begin = p;
        if (Op(*p) == Op::shortBinUnicode || (Op(*p) == Op::binUnicode && load32(p + 1) <= 255)) {
            p += Op(*p) == Op::binUnicode ? 5 + load32(p + 1) : 2U + p[1];
            // Its memo entry belongs to the operand.
            p += Op(*p) == Op::memoize ? 1 : Op(*p) == Op::longBinPut ? 5 : 0;
            return cut(Operand::text, field, 0, begin);
        }
        Value value;
        return get(value) && value.kind == Kind::text && cut(Operand::text, field, 0, begin);
    }
    bool attribute(Cls cls, uint8_t field) {
        const auto bit = static_cast<uint16_t>(1U << field);
        if (mold.there & bit) return false;
        mold.there |= bit;
        if (Op(*p) == Op::none) {
            ++p;
            mold.none |= bit;
            return true;
        }
        if (field < kSizes) return size(field);
        switch (field) {
            case kIsFlat:
                mold.flat = Op(*p) == Op::newTrue;
                return take(Op::newTrue) || take(Op::newFalse);
            case kDType:
            case kKey:
                return (field == kDType) == (cls == kShard) && text(field);
            case kReplica: {
                const uint8_t* begin = p;
                int64_t value = 0;
                return cls == kIndex && takeInteger(p, value) && cut(Operand::number, field, 0, begin);
            }
            default:
                return false;
        }
    }
    bool object(Cls cls) {
        const uint8_t* limit = p + kFastWindow / 2;
        Value value;
        if (!get(value) || value.kind != Kind::cls || value.small != cls || !take(Op::emptyTuple) ||
            !take(Op::newObj) || !memoize(Stretch::kNothing) || !take(Op::emptyDict) ||
            !memoize(Stretch::kNothing) || !take(Op::mark))
            return false;
        while (Op(*p) != Op::setItems) {
            if (p > limit || !get(value) || value.kind != Kind::text || value.a >= kFieldCount ||
                !attribute(cls, static_cast<uint8_t>(value.a)))
                return false;
        }
        if (!take(Op::setItems) || !take(Op::build) || !stretch.set(from, p)) return false;
        mold.after = stretch;
        return true;
    }
};

// Of short texts, for which a call takes longer than the comparison.
inline bool sameText(std::string_view a, std::string_view b) {
    const auto* p = reinterpret_cast<const uint8_t*>(a.data());
    const auto* q = reinterpret_cast<const uint8_t*>(b.data());
    const size_t size = a.size();
    if (size != b.size()) return false;
    if (size < 8) return a == b;
    uint64_t differs = load64(p + size - 8) ^ load64(q + size - 8);
    for (size_t i = 0; i + 8 < size; i += 8)
        differs |= load64(p + i) ^ load64(q + i);
    return differs == 0;
}

// A text that is spelt out, of at most 255 bytes.
inline bool MetadataMachine::speltText(const uint8_t*& p, TextId& out) {
    const bool isShort = Op(*p) == Op::shortBinUnicode;
    const uint32_t length = isShort ? p[1] : load32(p + 1);
    p += isShort ? 2 : 5;
    const std::string_view text(reinterpret_cast<const char*>(p), length);
    if (length > 255 || length > limits_.pickleText) return false;
    if (lastSpelt_ < textAfter_.size() && textAfter_[lastSpelt_] < texts_.size() &&
        sameText(texts_[textAfter_[lastSpelt_]], text)) {
        out = textAfter_[lastSpelt_];
    } else {
        if (!pickle_text::isUtf8(text)) return false;
        out = texts_.intern(text);
    }
    p += length;
    return true;
}

// Lays the mold over the opcodes at `from`, which then stands behind them. False where it does not fit.
bool MetadataMachine::takeMolded(Mold& mold, const uint8_t*& from, Taken& taken) {
    const uint8_t* p = from;
    uint64_t index = memoCount_;
    taken.entryCount = 0;
    taken.spelt = false;
    const auto pass = [&](const Stretch& stretch) {
        if (!stretch.matches(p, index)) return false;
        if (taken.entryCount + stretch.memos > Taken::kMostEntries) return false;
        std::memcpy(taken.entries.data() + taken.entryCount, stretch.entries.data(), stretch.entries.size());
        taken.entryCount = static_cast<uint8_t>(taken.entryCount + stretch.memos);
        index += stretch.memos;
        p += stretch.length;
        return true;
    };
    for (unsigned i = 0; i < mold.count; ++i) {
        Part& part = mold.parts[i];
        if (!pass(part.before)) return false;
        switch (part.operand) {
            case Operand::text: {
                if (Op(*p) == Op::shortBinUnicode || Op(*p) == Op::binUnicode) {
                    if (!speltText(p, taken.row.text)) return false;
                    if (Op(*p) == Op::memoize)
                        ++p;
                    else if (Op(*p) == Op::longBinPut && load32(p + 1) == index)
                        p += 5;
                    else
                        return false;
                    if (taken.entryCount == Taken::kMostEntries) return false;
                    taken.entries[taken.entryCount++] = part.field;
                    taken.spelt = true;
                    ++index;
                    break;
                }
                uint32_t at = 0;
                if (!takeGet(p, at)) return false;
                if (at != part.lastIndex) {
                    Value value;
                    if (!fetch(at, value) || value.kind != Kind::text) return false;
                    part.lastIndex = at;
                    part.lastText = value.a;
                }
                taken.row.text = part.lastText;
                break;
            }
            case Operand::number:
                if (!takeInteger(p, taken.row.replica)) return false;
                break;
            case Operand::dims: {
                Taken::Size& size = taken.sizes[part.field];
                for (unsigned k = 0; k < part.rank; ++k) {
                    if (!takeInteger(p, size.values[k])) return false;
                }
                size.rank = part.rank;
                size.made = true;
                break;
            }
            case Operand::fetchedDims: {
                uint32_t at = 0;
                if (!takeGet(p, at)) return false;
                Value value;
                if (!fetch(at, value) || value.kind != Kind::dims) return false;
                Taken::Size& size = taken.sizes[part.field];
                size.at = {value.a, value.small, true};
                size.made = false;
                break;
            }
        }
    }
    if (!pass(mold.after)) return false;
    taken.row.there = mold.there;
    taken.row.none = mold.none;
    taken.row.flat = mold.flat;
    from = p;
    return true;
}

// The sizes to the column; one that is as in the row before is not written again.
bool MetadataMachine::placeSizes(Cls cls, Taken& taken) {
    for (unsigned f = 0; f < kSizes; ++f) {
        if (!taken.row.has(static_cast<Field>(f))) continue;
        const Taken::Size& size = taken.sizes[f];
        DimsAt& where = taken.row.sizes[f];
        if (!size.made) {
            where = size.at;
            continue;
        }
        DimsAt& last = lastSizes_[cls][f];
        const auto begin = size.values.begin();
        if (!last || last.rank != size.rank ||
            !std::equal(begin, begin + size.rank, out_.dims.begin() + last.at)) {
            if (out_.dims.size() + size.rank >= kNone) return false;
            last = {static_cast<uint32_t>(out_.dims.size()), size.rank, true};
            for (unsigned k = 0; k < size.rank; ++k) {
                if (size.values[k] > kMaxDim || size.values[k] < -kMaxDim) return false;
                out_.dims.push_back(size.values[k]);
            }
        }
        where = last;
    }
    return true;
}

// An entry goes into the row of its piece, whose sizes are its own.
bool MetadataMachine::joinTaken(Taken& taken, uint32_t& number) {
    Row& row = taken.row;
    if (!row.has(kOffset) || !row.has(kKey) || row.has(kDType) || row.has(kGlobal)) return false;
    const int64_t replica = row.has(kReplica) ? row.replica : 0;
    prefetchRows(row.text);
    number = nextRowOf(row.text, replica);
    if (number == kNone) return false;
    const ShardRow& piece = out_.rows[number];
    const auto same = [&](Field f, DimsAt theirs) {
        const Taken::Size& size = taken.sizes[f];
        const uint16_t rank = size.made ? size.rank : size.at.rank;
        if (!theirs || rank != theirs.rank) return false;
        const int64_t* mine = size.made ? size.values.data() : out_.dims.data() + size.at.at;
        const int64_t* other = out_.dims.data() + theirs.at;
        for (unsigned k = 0; k < rank; ++k) {
            if (mine[k] != other[k]) return false;
        }
        return true;
    };
    if (!same(kOffset, piece.offset) || (row.has(kShape) && !same(kShape, piece.shape))) return false;
    const bool flat = row.has(kIsFlat) && row.flat && row.has(kRange);
    if (flat != piece.range.given || (flat && !same(kRange, piece.range)) || (!flat && row.has(kRange)))
        return false;
    row.sizes[kOffset] = piece.offset;
    row.sizes[kShape] = piece.shape;
    row.sizes[kRange] = piece.range;
    seen_.replica = seen_.replica || (row.there >> kReplica & 1) != 0;
    ++entries_;
    join(row.text, number, replica);
    return true;
}

// Of the tensors whose entries come next, by the order of the keys: nearly every row is in no cache.
void MetadataMachine::prefetchRows(TextId key) {
    constexpr unsigned kNear = 6, kFar = 12, kTogether = 64;
    const auto after = [&](TextId text) { return text < textAfter_.size() ? textAfter_[text] : kNone; };
    if (walked_++ % kTogether == 0) {
        nearKey_ = key;
        for (unsigned i = 0; i < kNear; ++i)
            nearKey_ = after(nearKey_);
        farKey_ = nearKey_;
        for (unsigned i = kNear; i < kFar; ++i)
            farKey_ = after(farKey_);
    } else {
        nearKey_ = after(nearKey_);
        farKey_ = after(farKey_);
    }
    if (const uint32_t row = nextRowOf(farKey_, 0); row != kNone) __builtin_prefetch(&out_.rows[row], 1);
    if (const uint32_t row = nextRowOf(nearKey_, 0); row != kNone) {
        __builtin_prefetch(out_.dims.data() + out_.rows[row].offset.at);
        if (out_.rows[row].range) __builtin_prefetch(out_.dims.data() + out_.rows[row].range.at);
    }
}

// Remembers the order of texts, and which mold each had.
void MetadataMachine::speltIn(TextId text, uint8_t mold) {
    const size_t size = std::max<size_t>(std::max(text, lastSpelt_) + 1, 64);
    if (textAfter_.size() < size) {
        textAfter_.resize(size * 2, kNone);
        moldOfText_.resize(size * 2, 0);
    }
    textAfter_[lastSpelt_] = text;
    moldOfText_[text] = mold;
    lastSpelt_ = text;
}

// The opcode at opcode_ is a GET that hands out the class `cls`. Takes the object that is made of it, pushes
// it and moves p_ behind it. False = nothing was done.
bool MetadataMachine::takeObject(Cls cls) {
    if (cls == kMetadata || static_cast<size_t>(end_ - opcode_) < kFastWindow) return false;
    MoldSet& set = molds_[cls];
    const uint8_t* p = opcode_;
    bool done = false;
    // The mold that fitted where this text, if it is the one, was spelt out before.
    const TextId likely = lastSpelt_ < textAfter_.size() ? textAfter_[lastSpelt_] : kNone;
    if (cls == kIndex && likely < moldOfText_.size() && moldOfText_[likely] < set.count)
        set.last = moldOfText_[likely];
    for (unsigned i = 0; i < set.count && !done; ++i) {
        const unsigned k = (set.last + i) % set.count;
        done = takeMolded(set.molds[k], p, taken_);
        if (done) set.last = static_cast<uint8_t>(k);
    }
    if (!done) {
        Follower follow(*this, opcode_);
        if (!follow.object(cls)) return false;
        set.last = set.next;
        set.molds[set.next] = follow.mold;
        set.count = std::max<uint8_t>(set.count, static_cast<uint8_t>(set.next + 1));
        set.next = static_cast<uint8_t>((set.next + 1) % set.molds.size());
        if (!takeMolded(set.molds[set.last], p, taken_)) return false;
    }
    // An object that leaves its frame is for the opcodes to find.
    if (frameEnd_ != kNoFrame && window_.offsetOf(p) > frameEnd_) return false;
    Value object{Kind::instance, cls};
    const size_t dimCount = out_.dims.size();
    bool added = false;
    if (cls == kIndex && joinTaken(taken_, object.a)) {
        object.joined = added = true;
    } else {
        added = placeSizes(cls, taken_) &&
                (cls == kShard ? addShard(taken_.row, object.a) : addIndex(taken_.row, object));
    }
    if (!added) {
        out_.dims.resize(dimCount);
        lastSizes_[cls] = {};
        return false;
    }
    memoRoom(Taken::kMostEntries);
    uint8_t* tags = memoTag_.data() + memoCount_;
    uint32_t* places = memoAt_.data() + memoCount_;
    for (unsigned i = 0; i < taken_.entryCount; ++i) {
        const uint8_t entry = taken_.entries[i];
        if (entry == Stretch::kNothing) {
            tags[i] = static_cast<uint8_t>(Kind::instance);
        } else if (entry < kSizes) {
            tags[i] = static_cast<uint8_t>(kDimsTag + taken_.row.sizes[entry].rank);
            places[i] = taken_.row.sizes[entry].at;
        } else {
            tags[i] = static_cast<uint8_t>(Kind::text);
            places[i] = taken_.row.text;
        }
    }
    memoCount_ += taken_.entryCount;
    if (taken_.spelt) speltIn(taken_.row.text, cls == kIndex ? set.last : 0);
    p_ = p;
    return push(object);
}

}  // namespace shardscope::paddle
