// The three objects that make up nearly all of a `.metadata` - a chunk, a storage key, a storage entry -
// recognised as the run of opcodes that CPython's pickler writes for them and taken in one step. Anything
// unexpected, be it a value that the memo hands out again later, and nothing happens: the ordinary opcodes
// are then walked one by one, with the same result.
#include "formats/dcp/metadata_machine.h"

namespace shardscope::dcp {

namespace {

constexpr size_t kFastDims = 8;

}  // namespace

// Follows the opcodes from `p` on and counts the memo entries that they make.
struct MetadataMachine::Follower {
    MetadataMachine& machine;
    const uint8_t* p;
    uint64_t memo;  // index that the next MEMOIZE takes

    bool take(uint8_t opcode) {
        if (*p != opcode) return false;
        ++p;
        return true;
    }
    // MEMOIZE, where the writer memoizes at all; false when that entry is fetched later.
    bool memoize() {
        if (*p != kMemoize) return true;
        ++p;
        return !machine.use_.fetched(memo++);
    }
    const Value* get() {
        const Slot* slot = nullptr;
        if (*p == kBinGet) {
            slot = &machine.low_[p[1]];
            p += 2;
        } else if (*p == kLongBinGet) {
            slot = machine.slotOf(load32(p + 1));
            p += 5;
        }
        return slot && slot->filled ? &slot->value : nullptr;
    }
    bool newObject() {
        return take(kEmptyTuple) && take(kNewObj) && memoize() && take(kEmptyDict) && memoize() &&
               take(kMark);
    }
    bool word(TextId& out) {
        const Value* key = get();
        if (!key || key->kind != Kind::text) return false;
        out = key->a;
        return true;
    }
    bool text(TextId& out) {
        if (*p != kShortBinUnicode) return word(out);
        out = machine.out_.texts.intern({reinterpret_cast<const char*>(p + 2), p[1]});
        p += 2 + p[1];
        return memoize();
    }
    bool integer(int64_t& out) {
        switch (*p) {
            case kBinInt1:
                out = p[1];
                p += 2;
                return true;
            case kBinInt2:
                out = load16(p + 1);
                p += 3;
                return true;
            case kBinInt:
                out = static_cast<int32_t>(load32(p + 1));
                p += 5;
                return true;
            case kLong1: {
                const unsigned size = p[1];
                if (size == 0 || size > 8) return false;
                const unsigned shift = 64 - 8 * size;
                out = static_cast<int64_t>(load64(p + 2) << shift) >> shift;
                p += 2 + size;
                return true;
            }
            default:
                return false;
        }
    }
    // A torch.Size: made here, its integers added to the dims column, or handed out by the memo.
    bool size(DimsRef& out) {
        const Value* cls = get();
        if (!cls) return false;
        if (cls->kind == Kind::size && cls->b <= static_cast<int64_t>(kFastDims)) {
            out.at = cls->a;
            out.rank = static_cast<uint8_t>(cls->b);
            return true;
        }
        if (cls->kind != Kind::global || cls->cls != Class::torchSize) return false;
        std::vector<int64_t>& dims = machine.out_.dims;
        out.at = static_cast<uint32_t>(dims.size());
        size_t count = 0;
        const bool marked = take(kMark);
        for (int64_t value = 0; count < kFastDims && integer(value); ++count)
            dims.push_back(value);
        out.rank = static_cast<uint8_t>(count);
        if (marked) {
            if (!take(kTuple)) return false;
        } else if (count == 0) {
            if (!take(kEmptyTuple)) return false;
        } else if (count > 3 || !take(static_cast<uint8_t>(kTuple1 + count - 1))) {
            return false;
        }
        if (count > 0 && !memoize()) return false;
        if (!take(kTuple1) || !memoize() || !take(kReduce)) return false;
        if (*p == kMemoize) {
            ++p;
            machine.keepSize(memo++, out);
        }
        return true;
    }
    bool end() { return take(kSetItems) && take(kBuild); }
};

// A torch.Size that is fetched again (offsets that a chunk and its storage key share) is put where the memo
// keeps it.
void MetadataMachine::keepSize(uint64_t index, DimsRef ref) {
    if (!use_.fetched(index)) return;
    Slot& slot = *slotOf(index);
    slot.value = Value{Kind::size, Class::foreign, ref.at, ref.rank};
    slot.filled = true;
    dimsPin_ = static_cast<uint32_t>(out_.dims.size());
}

// p_ stands behind the GET that handed out `cls`. False = nothing was done.
bool MetadataMachine::fastObject(const Value& cls) {
    if (static_cast<size_t>(end_ - p_) < kFastWindow || counter_.isExplicit()) return false;
    const size_t dims = out_.dims.size();
    Follower follow{*this, p_, counter_.count()};
    Value object{Kind::object, cls.cls, 0, 0};
    bool done = false;
    switch (cls.cls) {
        case Class::chunk: {
            MetaChunk chunk{kNone, kNone, 0};
            done = follow.newObject();
            for (int i = 0; i < 2 && done; ++i) {
                TextId word = 0;
                DimsRef ref;
                done = follow.word(word) && (word == wOffsets || word == wSizes) && follow.size(ref) &&
                       (i == 0 || chunk.rank == ref.rank);
                chunk.rank = ref.rank;
                (word == wOffsets ? chunk.offsets : chunk.lengths) = ref.at;
            }
            done = done && follow.end() && chunk.offsets != kNone && chunk.lengths != kNone;
            if (!done) break;
            object.a = static_cast<uint32_t>(out_.chunks.size());
            out_.chunks.push_back(chunk);
            break;
        }
        case Class::index: {
            IndexRecord record;
            done = follow.newObject();
            while (done && *follow.p != kSetItems) {
                TextId word = 0;
                done = follow.word(word);
                if (!done) break;
                if (word == wFqn) {
                    done = follow.text(record.name);
                } else if (word == wIndex) {
                    int64_t hint = 0;
                    if (follow.take(kNone_)) continue;
                    done = follow.integer(hint) && hint >= 0 && hint < int64_t{kNone};
                    if (done) record.hint = static_cast<uint32_t>(hint);
                } else {
                    DimsRef ref;
                    done = word == wOffset && !record.hasOffsets && follow.size(ref);
                    record.hasOffsets = true;
                    record.offsets = ref.at;
                    record.rank = ref.rank;
                }
                done = done && follow.p < p_ + kFastWindow / 2;
            }
            done = done && follow.end() && record.name != kNone;
            if (!done) break;
            object.a = static_cast<uint32_t>(indexes_.size());
            indexes_.push_back(record);
            break;
        }
        case Class::storageInfo: {
            InfoRecord record;
            done = follow.newObject();
            while (done && *follow.p != kSetItems) {
                TextId word = 0;
                int64_t number = 0;
                done = follow.word(word);
                if (!done) break;
                if (word == wRelativePath) {
                    done = follow.text(record.path);
                } else if (word == wOffset || word == wLength) {
                    done = follow.integer(number) && number >= 0;
                    (word == wOffset ? record.offset : record.length) = static_cast<uint64_t>(number);
                } else {
                    done = false;
                }
                done = done && follow.p < p_ + kFastWindow / 2;
            }
            done = done && follow.end() && record.path != kNone && record.length != kUnset;
            if (!done) break;
            object.a = static_cast<uint32_t>(infos_.size());
            infos_.push_back(record);
            break;
        }
        default:
            return false;
    }
    if (!done || stack_.size() >= kMaxStack) {
        if (dims >= dimsPin_) out_.dims.resize(dims);
        return false;
    }
    p_ = follow.p;
    counter_.advance(follow.memo);
    stack_.push_back(object);
    return true;
}

}  // namespace shardscope::dcp
