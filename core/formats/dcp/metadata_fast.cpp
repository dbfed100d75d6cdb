// The three objects that make up nearly all of a `.metadata` - a chunk, a storage key, a storage entry -
// recognised as the run of opcodes that CPython's pickler writes for them and taken in one step, run by run.
// Anything unexpected, and nothing happens: the ordinary opcodes are then walked one by one, with the same
// result.
#include <algorithm>

#include "formats/dcp/metadata_machine.h"

namespace shardscope::dcp {

namespace {

constexpr size_t kMostRunRows = 4096;
constexpr uint64_t kNotMemoized = UINT64_MAX;

}  // namespace

// Follows the opcodes of one object one by one, and takes its mold.
struct MetadataMachine::Follower {
    MetadataMachine& machine;
    const uint8_t* p;
    uint64_t memo;  // index that the next MEMOIZE takes
    TakenObject& taken;
    Mold mold{};
    SizeStretch stretch{};  // that begins at `from`
    const uint8_t* from;
    bool repeats = true;  // whether the mold may fit other objects

    Follower(MetadataMachine& owner, const uint8_t* start, TakenObject& into)
        : machine(owner), p(start), memo(owner.counter_.count()), taken(into), from(start) {}

    // --- the mold
    void closeStretch(SizeStretch& as, const uint8_t* end) {
        repeats = repeats && stretch.set(from, end);
        as = stretch;
        mold.memos = static_cast<uint16_t>(mold.memos + stretch.memos);
    }
    // [begin, p) was an operand.
    void cut(Mold::Operand operand, unsigned slot, unsigned rank, const uint8_t* begin) {
        if (mold.count == Mold::kMostParts) repeats = false;
        if (!repeats) return;
        Mold::Part& part = mold.parts[mold.count++];
        closeStretch(part.before, begin);
        part.operand = operand;
        part.slot = static_cast<uint8_t>(slot);
        part.rank = static_cast<uint8_t>(rank);
        stretch = {};
        from = p;
    }

    // --- opcodes
    Op peek() {
        if (Op(*p) == Op::frame) {
            p += 9;
            repeats = false;
        }
        return Op(*p);
    }
    bool take(Op opcode) {
        if (peek() != opcode) return false;
        ++p;
        return true;
    }
    // MEMOIZE or the PUT that does the same, where the writer memoizes at all. Says the index; kNotMemoized.
    bool memoizedAs(uint64_t& index) {
        index = kNotMemoized;
        const Op op = peek();
        if (op == Op::memoize) {
            ++p;
        } else if (op == Op::longBinPut) {
            if (load32(p + 1) != memo) return false;
            const auto at = static_cast<size_t>(p + 1 - from);
            if (stretch.puts == MoldStretch::kMostPuts || at + 4 > MoldStretch::kWords * 8)
                repeats = false;
            else
                stretch.putAt[stretch.puts++] = static_cast<uint8_t>(at);
            p += 5;
        } else if (op == Op::binPut) {
            if (p[1] != memo) return false;
            repeats = false;
            p += 2;
        } else {
            return true;
        }
        // PUTs and MEMOIZEs are not mixed, and the entries of a stretch are counted from its begin.
        if (stretch.puts && stretch.puts != stretch.memos + 1) repeats = false;
        ++stretch.memos;
        index = memo++;
        return true;
    }
    // False when the entry is handed out later.
    bool memoize() {
        uint64_t index = 0;
        return memoizedAs(index) && (index == kNotMemoized || !machine.use_.fetched(index));
    }
    const Value* get() {
        const Op op = peek();
        const Value* value = nullptr;
        if (op == Op::binGet) {
            value = &machine.low_[p[1]];
            p += 2;
        } else if (op == Op::longBinGet) {
            value = machine.slotOf(load32(p + 1));
            p += 5;
        }
        return value && value->kind != Kind::unset ? value : nullptr;
    }

    // --- attributes
    bool newObject(Class cls) {
        const Value* global = get();
        return global && global->kind == Kind::global && global->cls == cls && take(Op::emptyTuple) &&
               take(Op::newObj) && memoize() && take(Op::emptyDict) && memoize() && take(Op::mark);
    }
    bool word(TextId& out) {
        const Value* key = get();
        if (!key || key->kind != Kind::text) return false;
        out = key->a;
        return true;
    }
    // A text that is spelt out.
    static bool spelt(MetadataMachine& machine, const uint8_t*& p, TextId& out) {
        const bool isShort = Op(*p) == Op::shortBinUnicode;
        const uint32_t length = isShort ? p[1] : load32(p + 1);
        if (length > 255) return false;
        p += isShort ? 2 : 5;
        out = machine.out_.texts.intern({reinterpret_cast<const char*>(p), length});
        p += length;
        return true;
    }
    bool text() {
        if (taken.has & TakenObject::kText) return false;
        taken.has |= TakenObject::kText;
        const Op op = peek();
        const uint8_t* begin = p;
        if (op != Op::shortBinUnicode && op != Op::binUnicode) {
            if (!word(taken.text)) return false;
            cut(Mold::Operand::text, 0, 0, begin);
            return true;
        }
        if (!spelt(machine, p, taken.text)) return false;
        // Its memo entry belongs to the operand, not to a stretch.
        const SizeStretch open = stretch;
        const bool repeated = repeats;
        if (!memoizedAs(taken.textMemo)) return false;
        stretch = open;
        repeats = repeated;
        taken.textFetched = taken.textMemo != kNotMemoized && machine.use_.fetched(taken.textMemo);
        cut(Mold::Operand::text, 0, 0, begin);
        return true;
    }
    bool number(unsigned slot) {
        const auto bit = static_cast<uint8_t>(TakenObject::kNumber << slot);
        if (taken.has & bit) return false;
        taken.has |= bit;
        peek();
        const uint8_t* begin = p;
        if (!takeInteger(p, taken.numbers[slot])) return false;
        cut(Mold::Operand::number, slot, 0, begin);
        return true;
    }
    // A torch.Size: made here, or handed out by the memo.
    bool size(unsigned slot) {
        const auto bit = static_cast<uint8_t>(TakenObject::kSize << slot);
        if (taken.has & bit) return false;
        taken.has |= bit;
        TakenObject::Size& size = taken.sizes[slot];
        size.made = size.fetched = false;
        peek();
        const uint8_t* begin = p;
        const Value* value = get();
        if (!value) return false;
        if (value->kind == Kind::size && value->b <= TakenObject::kMostDims) {
            size.at = value->a;
            size.rank = static_cast<uint8_t>(value->b);
            cut(Mold::Operand::fetchedSize, slot, size.rank, begin);
            return true;
        }
        if (value->kind != Kind::global || value->cls != Class::torchSize) return false;
        const bool marked = take(Op::mark);
        unsigned count = 0;
        peek();
        begin = p;
        while (count < TakenObject::kMostDims && takeInteger(p, size.values[count])) {
            ++count;
            peek();
        }
        size.made = true;
        size.rank = static_cast<uint8_t>(count);
        cut(Mold::Operand::size, slot, count, begin);
        if (marked) {
            if (!take(Op::tuple)) return false;
        } else if (count == 0) {
            if (!take(Op::emptyTuple)) return false;
        } else if (count > 3 || !take(Op(static_cast<unsigned>(Op::tuple1) + count - 1))) {
            return false;
        }
        if (count > 0 && !memoize()) return false;
        if (!take(Op::tuple1) || !memoize() || !take(Op::reduce)) return false;
        if (!memoizedAs(size.memo)) return false;
        if (size.memo == kNotMemoized) return true;
        size.fetched = machine.use_.fetched(size.memo);
        stretch.size = static_cast<uint8_t>(stretch.memos - 1);
        stretch.sizeSlot = static_cast<uint8_t>(slot);
        return true;
    }
    bool attribute(Class cls, TextId word) {
        switch (cls) {
            case Class::chunk:
                return (word == wOffsets || word == wSizes) && size(word == wSizes);
            case Class::index:
                if (word == wFqn) return text();
                if (word == wIndex) return take(Op::none) || number(0);
                return word == wOffset && size(0);
            default:
                if (word == wRelativePath) return text();
                return (word == wOffset || word == wLength) && number(word == wLength);
        }
    }
    bool object(Class cls) {
        const uint8_t* limit = p + kFastWindow / 2;
        if (!newObject(cls)) return false;
        while (peek() != Op::setItems) {
            TextId key = 0;
            if (!word(key) || !attribute(cls, key) || p > limit) return false;
        }
        if (!take(Op::setItems) || !take(Op::build)) return false;
        closeStretch(mold.after, p);
        mold.has = taken.has;
        return true;
    }
};

// Lays the mold over the opcodes at `p`. False where it does not fit.
bool MetadataMachine::takeMolded(const Mold& mold, const uint8_t*& from, uint64_t& memo, TakenObject& taken) {
    const uint8_t* p = from;
    const uint64_t firstMemo = memo;
    uint64_t index = firstMemo;
    uint64_t kept = 0;  // entries that may be handed out later, by their distance from the first
    const auto pass = [&](const SizeStretch& stretch) {
        if (!stretch.matches(p, index)) return false;
        if (stretch.size != SizeStretch::kNoSize) {
            taken.sizes[stretch.sizeSlot].memo = index + stretch.size;
            kept |= uint64_t{1} << (index + stretch.size - firstMemo);
        }
        index += stretch.memos;
        p += stretch.length;
        return true;
    };
    for (unsigned i = 0; i < mold.count; ++i) {
        const Mold::Part& part = mold.parts[i];
        if (!pass(part.before)) return false;
        switch (part.operand) {
            case Mold::Operand::text: {
                uint32_t at = 0;
                taken.textMemo = kNotMemoized;
                if (Op(*p) == Op::longBinGet) {
                    at = load32(p + 1);
                    p += 5;
                } else if (Op(*p) == Op::binGet) {
                    at = p[1];
                    p += 2;
                } else if (Op(*p) == Op::shortBinUnicode || Op(*p) == Op::binUnicode) {
                    if (!Follower::spelt(*this, p, taken.text)) return false;
                    if (Op(*p) == Op::memoize)
                        ++p;
                    else if (Op(*p) == Op::longBinPut && load32(p + 1) == index)
                        p += 5;
                    else
                        return false;
                    kept |= uint64_t{1} << (index - firstMemo);
                    taken.textMemo = index++;
                    break;
                } else {
                    return false;
                }
                if (at != part.lastIndex) {
                    const Value* value = slotOf(at);
                    if (!value || value->kind != Kind::text) return false;
                    part.lastIndex = at;
                    part.lastText = value->a;
                }
                taken.text = part.lastText;
                break;
            }
            case Mold::Operand::number:
                if (!takeInteger(p, taken.numbers[part.slot])) return false;
                break;
            case Mold::Operand::size: {
                TakenObject::Size& size = taken.sizes[part.slot];
                for (unsigned k = 0; k < part.rank; ++k) {
                    if (!takeInteger(p, size.values[k])) return false;
                }
                size.rank = part.rank;
                size.made = true;
                size.fetched = false;
                size.memo = kNotMemoized;
                break;
            }
            case Mold::Operand::fetchedSize: {
                if (Op(*p) != Op::longBinGet) return false;
                const Value* value = slotOf(load32(p + 1));
                if (!value || value->kind != Kind::size || value->b != part.rank) return false;
                p += 5;
                TakenObject::Size& size = taken.sizes[part.slot];
                size.at = value->a;
                size.rank = part.rank;
                size.made = size.fetched = false;
                break;
            }
        }
    }
    if (!pass(mold.after)) return false;
    // Entries that are handed out later have to be kept, which is done for sizes and texts only.
    const uint64_t fetched = use_.flags(firstMemo) & ((uint64_t{1} << (index - firstMemo)) - 1);
    taken.textFetched = false;
    if (fetched) {
        if (fetched & ~kept) return false;
        for (unsigned slot = 0; slot < taken.sizes.size(); ++slot) {
            TakenObject::Size& size = taken.sizes[slot];
            if ((mold.has & TakenObject::kSize << slot) && size.made && size.memo != kNotMemoized)
                size.fetched = fetched >> (size.memo - firstMemo) & 1;
        }
        if (mold.has & TakenObject::kText && taken.textMemo != kNotMemoized)
            taken.textFetched = fetched >> (taken.textMemo - firstMemo) & 1;
    }
    taken.has = mold.has;
    from = p;
    memo = index;
    return true;
}

// Takes the object of class `cls` at `p`, whose attributes the caller wants in this form; then `p` stands
// behind it. False = nothing was done.
template <class Accept>
bool MetadataMachine::takeObject(Class cls, MoldSet& set, const uint8_t*& p, Accept&& accept) {
    if (static_cast<size_t>(end_ - p) < kFastWindow || counter_.isExplicit()) return false;
    const uint8_t* at = p;
    uint64_t memo = counter_.count();
    TakenObject& taken = taken_;
    bool done = false;
    for (unsigned i = 0; i < set.count && !done; ++i) {
        const unsigned k = (set.last + i) % set.count;
        done = takeMolded(set.molds[k], at, memo, taken);
        if (done) set.last = static_cast<uint8_t>(k);
    }
    if (!done) {
        taken.has = 0;
        taken.textFetched = false;
        Follower follow(*this, p, taken);
        if (!follow.object(cls)) return false;
        at = follow.p;
        memo = follow.memo;
        if (follow.repeats && follow.mold.memos < 56) {
            set.last = set.next;
            set.molds[set.next] = follow.mold;
            set.count = std::max<uint8_t>(set.count, static_cast<uint8_t>(set.next + 1));
            set.next = static_cast<uint8_t>((set.next + 1) % set.molds.size());
        }
    }
    if (!accept(taken)) return false;
    if (taken.textFetched) keep(taken.textMemo, Value{Kind::text, Class::foreign, taken.text, 0});
    counter_.advance(memo);
    p = at;
    return true;
}

void MetadataMachine::keep(uint64_t index, const Value& value) {
    *slotOf(index) = value;
    pin(value);
}

// The size as a stretch of the dims column, and kept where the memo hands it out again (offsets that a chunk
// and its storage key share).
inline DimsRef MetadataMachine::place(const TakenObject::Size& size) {
    DimsRef ref{size.at, size.rank};
    if (!size.made) return ref;
    ref.at = static_cast<uint32_t>(out_.dims.size());
    for (unsigned k = 0; k < size.rank; ++k)
        out_.dims.push_back(size.values[k]);
    if (size.fetched) keep(size.memo, Value{Kind::size, Class::foreign, ref.at, ref.rank});
    return ref;
}

bool MetadataMachine::takeChunk(const uint8_t*& p, uint32_t& chunk) {
    return takeObject(Class::chunk, molds_[0], p, [&](const TakenObject& taken) {
        if (taken.has != 3 * TakenObject::kSize || taken.sizes[0].rank != taken.sizes[1].rank) return false;
        MetaChunk made;
        made.offsets = place(taken.sizes[0]).at;
        made.lengths = place(taken.sizes[1]).at;
        made.rank = taken.sizes[0].rank;
        chunk = static_cast<uint32_t>(out_.chunks.size());
        out_.chunks.push_back(made);
        return true;
    });
}

bool MetadataMachine::takeKey(const uint8_t*& p, IndexRecord& key) {
    return takeObject(Class::index, molds_[1], p, [&](const TakenObject& taken) {
        if (!(taken.has & TakenObject::kText)) return false;
        key = {};
        key.name = taken.text;
        if (taken.has & TakenObject::kNumber) {
            if (taken.numbers[0] < 0 || taken.numbers[0] >= int64_t{kNone}) return false;
            key.hint = static_cast<uint32_t>(taken.numbers[0]);
        }
        key.hasOffsets = (taken.has & TakenObject::kSize) != 0;
        if (key.hasOffsets) {
            const DimsRef ref = place(taken.sizes[0]);
            key.offsets = ref.at;
            key.rank = ref.rank;
        }
        return true;
    });
}

bool MetadataMachine::takeInfo(const uint8_t*& p, InfoRecord& info) {
    return takeObject(Class::storageInfo, molds_[2], p, [&](const TakenObject& taken) {
        const bool hasOffset = (taken.has & TakenObject::kNumber) != 0;
        if (!(taken.has & TakenObject::kText) || !(taken.has & TakenObject::kNumber << 1)) return false;
        if (taken.numbers[1] < 0 || (hasOffset && taken.numbers[0] < 0)) return false;
        info = {};
        info.path = taken.text;
        info.offset = hasOffset ? static_cast<uint64_t>(taken.numbers[0]) : 0;
        info.length = static_cast<uint64_t>(taken.numbers[1]);
        return true;
    });
}

// Moves the window on where `p` is near its end.
Status MetadataMachine::room(const uint8_t*& p) {
    if (static_cast<size_t>(end_ - p) >= kFastWindow || window_.atEnd()) return {};
    opcode_ = p_ = p;
    SHARDSCOPE_TRY(refill(kFastWindow));
    p = p_;
    return {};
}

// The opcode at opcode_ is a GET that hands out a class. Takes the object that is made of it, and those of
// its kind that follow; p_ then stands behind them. done = false: nothing was done.
Status MetadataMachine::takeRun(Class cls, bool& done) {
    done = false;
    const uint8_t* p = opcode_;
    Value value{Kind::object, cls, 0, 0};
    if (cls == Class::chunk) {
        while (takeChunk(p, value.a)) {
            done = true;
            SHARDSCOPE_TRY(push(value));
            p_ = p;
            SHARDSCOPE_TRY(room(p));
        }
    } else if (cls == Class::storageInfo) {
        InfoRecord info;
        done = takeInfo(p, info);
        if (!done) return {};
        p_ = p;
        return pushInfo(info);
    } else if (cls == Class::index) {
        return takeRows(done);
    }
    return {};
}

Status MetadataMachine::pushKey(const IndexRecord& key) {
    indexes_.push_back(key);
    return push(Value{Kind::object, Class::index, static_cast<uint32_t>(indexes_.size() - 1), 0});
}

Status MetadataMachine::pushInfo(const InfoRecord& info) {
    infos_.push_back(info);
    return push(Value{Kind::object, Class::storageInfo, static_cast<uint32_t>(infos_.size() - 1), 0});
}

// Storage keys with their entries. Where they are all that a SETITEMS puts into a dictionary, they go there
// without coming to the stack.
Status MetadataMachine::takeRows(bool& done) {
    const uint8_t* p = opcode_;
    run_.clear();
    bool loneKey = false;
    StorageRow row;
    while (run_.size() < kMostRunRows && takeKey(p, row.key)) {
        p_ = p;
        SHARDSCOPE_TRY(room(p));
        loneKey = !takeInfo(p, row.info);
        if (loneKey) break;
        run_.push_back(row);
        p_ = p;
        SHARDSCOPE_TRY(room(p));
    }
    done = loneKey || !run_.empty();
    if (!done) return {};
    const size_t top = stack_.size();
    const bool whole = !loneKey && static_cast<size_t>(end_ - p_) >= 2 && Op(p_[0]) == Op::setItems &&
                       Op(p_[1]) != Op::build && !marks_.empty() && marks_.back() == top && top > 0 &&
                       stack_[top - 1].kind == Kind::dict;
    if (whole) {
        ++p_;
        marks_.pop_back();
        return addRun(dicts_[stack_[top - 1].a]);
    }
    for (const StorageRow& taken : run_) {
        SHARDSCOPE_TRY(pushKey(taken.key));
        SHARDSCOPE_TRY(pushInfo(taken.info));
    }
    return loneKey ? pushKey(row.key) : Status();
}

}  // namespace shardscope::dcp
