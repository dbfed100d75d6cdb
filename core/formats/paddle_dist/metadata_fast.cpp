#include "formats/paddle_dist/metadata_fast.h"

#include <algorithm>

#include "base/large_pages.h"
#include "encoding/pickle_text.h"
#include "formats/paddle_dist/metadata_machine.h"

namespace shardscope::paddle {

using namespace pickle_bytes;
using Op = PickleOpcode;

MetadataMachine::MetadataMachine(const ReadFile& file, const Limits& limits, const StopToken& stop)
    : window_(file, stop), limits_(limits) {
    // In the order of Field.
    constexpr std::array<std::string_view, kFieldCount> names{
        "global_offset", "local_shape", "global_shape", "flattened_range",     "dtype",
        "is_flattened",  "tensor_key",  "replica_id",   "state_dict_metadata", "storage_metadata",
        "flat_mapping"};
    for (const std::string_view name : names)
        texts_.intern(name);
    // Untouched reserve costs no memory: a piece and its entry take more than 100 bytes of the file and make
    // some dozen memo entries.
    const auto size = static_cast<size_t>(file.size());
    memoTag_.reserve(size / 8 + Taken::kMostEntries);
    memoAt_.reserve(size / 8 + Taken::kMostEntries);
    out_.rows.reserve(size / 90);
    out_.dims.reserve(size / 30);
    preferLargePages(memoTag_);
    preferLargePages(memoAt_);
    preferLargePages(out_.rows);
    preferLargePages(out_.dims);
}

bool MetadataMachine::refill(size_t need) {
    const uint64_t at = window_.offsetOf(p_);
    if (!window_.moveTo(at, need).ok()) return false;
    p_ = opcode_ = window_.begin();
    end_ = window_.end();
    return true;
}

bool MetadataMachine::run() {
    if (!window_.moveTo(0).ok()) return false;
    p_ = window_.begin();
    end_ = window_.end();
    for (;;) {
        if (static_cast<size_t>(end_ - p_) < kFastWindow && !window_.atEnd() && !refill(kFastWindow))
            return false;
        opcode_ = p_;
        if (p_ >= end_) return false;
        if (frameEnd_ != kNoFrame) {
            const uint64_t at = window_.offsetOf(p_);
            if (at > frameEnd_) return false;
            if (at == frameEnd_) frameEnd_ = kNoFrame;
        }
        if (Op(*p_) == Op::stop) return finish();
        if (!step() || p_ > end_) return false;
    }
}

// One opcode, or the object that begins with it. Fixed operands may lie behind the end of the file, in the
// slack of the window; that is found afterwards.
bool MetadataMachine::step() {
    const Op op{*p_++};
    size_t begin = 0;
    int64_t number = 0;
    switch (op) {
        case Op::proto:
            out_.protocol = *p_++;
            return out_.protocol >= 2 && out_.protocol <= 5;
        case Op::frame:
            return openFrame();
        case Op::none:
            return push({});
        case Op::newTrue:
        case Op::newFalse:
            return push({Kind::boolean, 0, 0, op == Op::newTrue});
        case Op::binInt:
        case Op::binInt1:
        case Op::binInt2:
            p_ = opcode_;
            return takeInteger(p_, number) && push({Kind::integer, 0, 0, number});
        case Op::long1: {
            const unsigned size = *p_;
            p_ = opcode_;
            if (size == 0) {
                p_ += 2;
                return push({Kind::integer, 0, 0, 0});
            }
            return takeInteger(p_, number) && push({Kind::integer, 0, 0, number});
        }
        case Op::shortBinUnicode:
            return textOperand(2, opcode_[1]);
        case Op::binUnicode:
            return textOperand(5, load32(opcode_ + 1));
        case Op::mark:
            marks_.push_back(stack_.size());
            return true;
        case Op::emptyTuple:
            return tuple(stack_.size());
        case Op::tuple1:
        case Op::tuple2:
        case Op::tuple3: {
            const size_t count = static_cast<uint8_t>(op) - static_cast<uint8_t>(Op::tuple1) + 1U;
            return need(count) && tuple(stack_.size() - count);
        }
        case Op::tuple:
            return popMark(begin) && tuple(begin);
        case Op::emptyList:
            lists_.emplace_back();
            return push({Kind::list, 0, static_cast<uint32_t>(lists_.size() - 1), 0});
        case Op::append:
            return need(2) && append(stack_.size() - 1);
        case Op::appends:
            return popMark(begin) && append(begin);
        case Op::emptyDict:
            return emptyDict();
        case Op::setItem:
            return need(3) && setItems(stack_.size() - 2);
        case Op::setItems:
            return popMark(begin) && setItems(begin);
        case Op::stackGlobal: {
            if (!need(2)) return false;
            const Value name = stack_.back();
            const Value module = stack_[stack_.size() - 2];
            stack_.resize(stack_.size() - 2);
            return name.kind == Kind::text && module.kind == Kind::text &&
                   cls(texts_[module.a], texts_[name.a]);
        }
        case Op::global: {
            std::string_view first, name;
            if (!line(first)) return false;
            const std::string module(first);
            return line(name) && cls(module, name);
        }
        case Op::newObj: {
            if (!need(2)) return false;
            const Value arguments = stack_.back();
            stack_.pop_back();
            Value& made = stack_.back();
            if (made.kind != Kind::cls || arguments.kind != Kind::dims || arguments.small != 0) return false;
            made.kind = Kind::instance;
            made.a = kNone;
            return true;
        }
        case Op::build:
            return need(2) && build();
        case Op::memoize:
            return need(1) && remember(memoCount_);
        case Op::binPut:
            ++p_;
            return need(1) && remember(opcode_[1]);
        case Op::longBinPut:
            p_ += 4;
            return need(1) && remember(load32(opcode_ + 1));
        case Op::binGet:
        case Op::longBinGet:
            return recall();
        default:
            return false;
    }
}

bool MetadataMachine::openFrame() {
    const uint64_t length = load64(p_);
    p_ += 8;
    if (frameEnd_ != kNoFrame || p_ > end_) return false;
    const uint64_t at = window_.offsetOf(p_);
    if (length > window_.fileSize() - at) return false;
    frameEnd_ = at + length;
    return true;
}

bool MetadataMachine::textOperand(size_t header, uint64_t length) {
    if (length > limits_.pickleText) return false;
    p_ = opcode_;
    const auto whole = static_cast<size_t>(header + length);
    if (whole > static_cast<size_t>(end_ - p_) && (!refill(whole) || whole > static_cast<size_t>(end_ - p_)))
        return false;
    const std::string_view text(reinterpret_cast<const char*>(p_ + header), static_cast<size_t>(length));
    if (!pickle_text::isUtf8(text)) return false;
    p_ += whole;
    lastSpelt_ = texts_.intern(text);
    return push({Kind::text, 0, lastSpelt_, 0});
}

// The names of globals: they end within the window, or it is none of ours.
bool MetadataMachine::line(std::string_view& out) {
    const uint8_t* stop = lineEnd(p_, end_);
    if (!stop) return false;
    out = {reinterpret_cast<const char*>(p_), static_cast<size_t>(stop - p_)};
    p_ = stop + 1;
    return true;
}

// ------------------------------------------------------------------ stack and memo

bool MetadataMachine::popMark(size_t& begin) {
    if (marks_.empty()) return false;
    begin = marks_.back();
    marks_.pop_back();
    return true;
}

// In steps, so that no more is touched than needed.
void MetadataMachine::growMemo() {
    constexpr size_t kStep = size_t{256} << 10;
    memoTag_.resize(memoTag_.size() + kStep);
    memoAt_.resize(memoAt_.size() + kStep);
}

bool MetadataMachine::remember(uint64_t index) {
    // As picklers number them: one after the other, each once. The molds rely on it.
    if (index != memoCount_) return false;
    memoRoom(1);
    const Value& v = stack_.back();
    if (v.kind == Kind::integer || v.kind == Kind::boolean) return false;
    memoTag_[memoCount_] =
        v.kind == Kind::dims ? static_cast<uint8_t>(kDimsTag + v.small) : static_cast<uint8_t>(v.kind);
    memoAt_[memoCount_++] = v.kind == Kind::cls ? v.small : v.a;
    return true;
}

// A GET. Where it hands out a class that an object is made of, that object and those that follow it, each of
// an entry's with the name of its file, are taken.
bool MetadataMachine::recall() {
    uint32_t index = 0;
    const uint8_t* p = opcode_;
    if (!takeGet(p, index)) return false;
    Value v;
    if (!fetch(index, v)) return false;
    if (v.kind != Kind::cls) {
        p_ = p;
        return push(v);
    }
    const auto cls = static_cast<Cls>(v.small);
    const auto inFrame = [&] { return frameEnd_ == kNoFrame || window_.offsetOf(p_) < frameEnd_; };
    uint32_t again = index;
    while (again == index) {
        if (!takeObject(cls)) {
            p_ = opcode_;
            (void)takeGet(p_, again);
            return push(v);
        }
        // The next opcodes may lie behind the window, or in another frame.
        if (static_cast<size_t>(end_ - p_) < kFastWindow || !inFrame()) return true;
        if (cls == kIndex) {
            const uint8_t* q = p_;
            uint32_t at = 0;
            Value file;
            if (!takeGet(q, at) || !fetch(at, file) || file.kind != Kind::text) return true;
            p_ = q;
            push(file);
            if (!inFrame()) return true;
        }
        opcode_ = p_;
        const uint8_t* q = p_;
        if (!takeGet(q, again)) return true;
    }
    return true;
}

// ------------------------------------------------------------------ building

bool MetadataMachine::cls(std::string_view module, std::string_view name) {
    const auto isPlain = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
    };
    if (!isMetadataModule(module) || !std::all_of(module.begin(), module.end(), isPlain)) return false;
    if (name == "Metadata") {
        if (named_) return false;
        named_ = true;
        out_.flexModule = module.find("flex_checkpoint") != std::string_view::npos;
        return push({Kind::cls, kMetadata, 0, 0});
    }
    if (name == "LocalTensorMetadata") return push({Kind::cls, kShard, 0, 0});
    return name == "LocalTensorIndex" && push({Kind::cls, kIndex, 0, 0});
}

bool MetadataMachine::dims(size_t begin, DimsAt& where) {
    const size_t rank = stack_.size() - begin;
    if (rank > kMaxRank || out_.dims.size() + rank >= kNone) return false;
    where = {static_cast<uint32_t>(out_.dims.size()), static_cast<uint16_t>(rank), true};
    for (size_t i = begin; i < stack_.size(); ++i) {
        const Value& v = stack_[i];
        if (v.kind != Kind::integer || v.b > kMaxDim || v.b < -kMaxDim) return false;
        out_.dims.push_back(v.b);
    }
    return true;
}

bool MetadataMachine::tuple(size_t begin) {
    if (begin < stack_.size() && stack_[begin].kind == Kind::text) {
        std::vector<TextId> parts;
        for (size_t i = begin; i < stack_.size(); ++i) {
            if (stack_[i].kind != Kind::text) return false;
            parts.push_back(stack_[i].a);
        }
        stack_.resize(begin);
        paths_.push_back(std::move(parts));
        return push({Kind::path, 0, static_cast<uint32_t>(paths_.size() - 1), 0});
    }
    DimsAt where;
    if (!dims(begin, where)) return false;
    stack_.resize(begin);
    return push({Kind::dims, static_cast<uint8_t>(where.rank), where.at, 0});
}

bool MetadataMachine::append(size_t begin) {
    if (begin == 0 || begin > stack_.size() || stack_[begin - 1].kind != Kind::list) return false;
    List& list = lists_[stack_[begin - 1].a];
    if (begin == stack_.size()) return true;
    if (stack_[begin].kind == Kind::integer) {
        if (list.rows || list.dims || !dims(begin, list.where)) return false;
        list.dims = true;
    } else {
        if (list.dims) return false;
        for (size_t i = begin; i < stack_.size(); ++i) {
            const Value& v = stack_[i];
            if (v.kind != Kind::instance || v.small != kShard || v.a == kNone) return false;
            if (!list.rows) list.first = v.a;
            list.rows = true;
            if (v.a != list.first + list.count) return false;
            ++list.count;
        }
    }
    stack_.resize(begin);
    return true;
}

bool MetadataMachine::emptyDict() {
    uint32_t index = 0;
    if (freeDicts_.empty()) {
        index = static_cast<uint32_t>(dicts_.size());
        dicts_.emplace_back();
    } else {
        index = freeDicts_.back();
        freeDicts_.pop_back();
        dicts_[index].what = Dict::What::empty;
        dicts_[index].mask = 0;
    }
    return push({Kind::dict, 0, index, 0});
}

uint32_t MetadataMachine::internNew(TextId text, std::vector<std::string>& list,
                                    std::vector<uint32_t>& known) {
    if (known.size() <= text) known.resize(std::max<size_t>(text + 1, known.size() * 2), kNone);
    if (known[text] == kNone) {
        known[text] = static_cast<uint32_t>(list.size());
        list.emplace_back(texts_[text]);
    }
    return known[text];
}

bool MetadataMachine::setItems(size_t begin) {
    if (begin == 0 || begin > stack_.size() || stack_[begin - 1].kind != Kind::dict) return false;
    if ((stack_.size() - begin) % 2 != 0) return false;
    Dict& dict = dicts_[stack_[begin - 1].a];
    for (size_t i = begin; i < stack_.size(); i += 2) {
        const Value& key = stack_[i];
        const Value& value = stack_[i + 1];
        Dict::What what = Dict::What::fields;
        if (key.kind == Kind::instance) {
            what = Dict::What::stored;
        } else if (key.kind != Kind::text) {
            return false;
        } else if (value.kind == Kind::path) {
            what = Dict::What::paths;
        } else if (value.kind == Kind::list && lists_[value.a].rows) {
            what = Dict::What::tensors;
        } else if (value.kind == Kind::list && !lists_[value.a].dims && dict.what != Dict::What::fields) {
            return false;  // empty: of what, nobody knows
        }
        if (dict.what == Dict::What::empty) dict.what = what;
        if (dict.what != what) return false;
        switch (what) {
            case Dict::What::fields:
                if (key.a >= kFieldCount) return false;
                dict.fields[key.a] = value;
                dict.mask |= 1U << key.a;
                break;
            case Dict::What::tensors:
                if (entries_ > 0) early_ = true;
                if (tensorOf_.size() <= key.a)
                    tensorOf_.resize(std::max<size_t>(key.a + 1, tensorOf_.size() * 2), kNone);
                tensorOf_[key.a] = static_cast<uint32_t>(tensors_.size());
                tensors_.push_back({key.a, lists_[value.a].first, lists_[value.a].count});
                break;
            case Dict::What::stored:
                if (key.small != kIndex || key.a == kNone || value.kind != Kind::text) return false;
                (key.joined ? out_.rows[key.a].file : out_.stored[key.a].file) =
                    intern(value.a, out_.files, fileOf_);
                ++entriesPlaced_;
                break;
            default:
                flat_.emplace_back(key.a, value.a);
        }
    }
    stack_.resize(begin);
    return true;
}

bool MetadataMachine::asDims(const Value& v, DimsAt& where) const {
    if (v.kind == Kind::dims) {
        where = {v.a, v.small, true};
        return true;
    }
    if (v.kind != Kind::list || lists_[v.a].rows) return false;
    where = lists_[v.a].where;  // of an empty list: rank 0
    where.given = true;
    return true;
}

bool MetadataMachine::readRow(const Dict& dict, Row& row) const {
    row.there = static_cast<uint16_t>(dict.mask);
    for (unsigned f = 0; f < kFieldCount; ++f) {
        if ((dict.mask >> f & 1) == 0) continue;
        const Value& v = dict.fields[f];
        if (v.kind == Kind::none) {
            row.none |= static_cast<uint16_t>(1U << f);
            continue;
        }
        if (f < kSizes) {
            if (!asDims(v, row.sizes[f])) return false;
        } else if (f == kDType || f == kKey) {
            if (v.kind != Kind::text) return false;
            row.text = v.a;
        } else if (f == kIsFlat) {
            if (v.kind != Kind::boolean) return false;
            row.flat = v.b != 0;
        } else if (f == kReplica) {
            if (v.kind != Kind::integer) return false;
            row.replica = v.b;
        } else {
            return false;
        }
    }
    return true;
}

bool MetadataMachine::rangeOf(const Row& row, DimsAt& out) const {
    if (!row.has(kIsFlat) || !row.flat || !row.has(kRange)) return true;
    out = row.sizes[kRange];
    if (out.rank != 2) return false;
    const FlatRange range = out_.rangeOf(out);
    return range.start >= 0 && range.stop >= range.start;
}

bool MetadataMachine::addShard(const Row& row, uint32_t& number) {
    ShardRow made;
    // One dtype is all the text that a row holds.
    if (!row.has(kOffset) || !row.has(kShape) || row.has(kKey)) return false;
    made.offset = row.sizes[kOffset];
    made.shape = row.sizes[kShape];
    if (made.offset.rank != made.shape.rank) return false;
    if (row.has(kGlobal)) {
        made.global = row.sizes[kGlobal];
        if (made.global.rank != made.shape.rank) return false;
    }
    if (!rangeOf(row, made.range)) return false;
    seen_.global = seen_.global || (row.there >> kGlobal & 1) != 0;
    if (row.has(kDType)) {
        seen_.dtype = true;
        made.dtype = intern(row.text, out_.dtypes, dtypeOf_);
    }
    if (out_.rows.size() >= kNone - 1) return false;
    number = static_cast<uint32_t>(out_.rows.size());
    out_.rows.push_back(made);
    return true;
}

bool MetadataMachine::addIndex(const Row& row, Value& index) {
    StoredRow made;
    if (!row.has(kOffset) || !row.has(kKey) || row.has(kDType)) return false;
    made.offset = row.sizes[kOffset];
    made.key = row.text;
    if (row.has(kShape)) made.shape = row.sizes[kShape];
    if (!rangeOf(row, made.range)) return false;
    seen_.replica = seen_.replica || (row.there >> kReplica & 1) != 0;
    if (row.has(kReplica)) made.replica = row.replica;
    ++entries_;
    if (const uint32_t number = nextRowOf(row.text, made.replica); number != kNone) {
        const ShardRow& piece = out_.rows[number];
        const auto same = [&](DimsAt a, DimsAt b) {
            return a.given == b.given && std::ranges::equal(out_.dimsOf(a), out_.dimsOf(b));
        };
        if (same(made.offset, piece.offset) && same(made.range, piece.range) &&
            (!made.shape || same(made.shape, piece.shape))) {
            join(row.text, number, made.replica);
            index.a = number;
            index.joined = true;
            return true;
        }
    }
    if (out_.stored.size() >= kNone - 1) return false;
    index.a = static_cast<uint32_t>(out_.stored.size());
    out_.stored.push_back(made);
    return true;
}

// Each of the tables is one dict of the Metadata.
bool MetadataMachine::buildRoot(const Dict& dict) {
    const auto table = [&](Field f, Dict::What what) {
        const Value& v = dict.fields[f];
        if ((dict.mask >> f & 1) == 0 || v.kind == Kind::none) return true;
        return v.kind == Kind::dict && (dicts_[v.a].what == what || dicts_[v.a].what == Dict::What::empty);
    };
    if (built_ || !table(kStateDict, Dict::What::tensors) || !table(kStorage, Dict::What::stored) ||
        !table(kMapping, Dict::What::paths))
        return false;
    seen_.mapping = (dict.mask >> kMapping & 1) != 0;
    built_ = true;
    return true;
}

bool MetadataMachine::build() {
    const Value state = stack_.back();
    stack_.pop_back();
    Value& target = stack_.back();
    if (state.kind != Kind::dict || target.kind != Kind::instance || target.a != kNone) return false;
    const Dict& dict = dicts_[state.a];
    if (dict.what != Dict::What::fields) return false;
    if (target.small == kMetadata) {
        target.a = 0;
        return buildRoot(dict);
    }
    Row row;
    if (!readRow(dict, row)) return false;
    if (!(target.small == kShard ? addShard(row, target.a) : addIndex(row, target))) return false;
    freeDicts_.push_back(state.a);
    return true;
}

bool MetadataMachine::finish() {
    if (stack_.size() != 1 || !marks_.empty() || !built_) return false;
    if (stack_[0].kind != Kind::instance || stack_[0].small != kMetadata) return false;
    // Every row has its place, and only one.
    size_t listed = 0;
    for (const Tensor& tensor : tensors_)
        listed += tensor.count;
    if (listed != out_.rows.size() || entriesPlaced_ != entries_ || early_) return false;
    std::vector<uint32_t> places(texts_.size(), kNone);
    out_.tensors.reserve(tensors_.size());
    for (const Tensor& tensor : tensors_) {
        if (places[tensor.key] != kNone) return false;
        places[tensor.key] = static_cast<uint32_t>(out_.tensors.size());
        out_.tensors.push_back({std::string(texts_[tensor.key]), tensor.first, tensor.count});
    }
    for (StoredRow& row : out_.stored) {
        uint32_t& place = places[row.key];
        if (place == kNone) {
            place = static_cast<uint32_t>(out_.tensors.size() + out_.strangers.size());
            out_.strangers.emplace_back(texts_[row.key]);
        }
        row.key = place;
    }
    for (const auto& [key, index] : flat_) {
        const std::vector<TextId>& parts = paths_[index];
        if (parts.size() < 2) continue;
        if (parts.size() > static_cast<size_t>(kMaxValueDepth)) return false;
        FlatPath path{std::string(texts_[key]), {}};
        for (const TextId part : parts)
            path.parts.emplace_back(texts_[part]);
        out_.paths.push_back(std::move(path));
    }
    seen_.tensors = !out_.tensors.empty();
    out_.generation = generationOf(seen_, out_.flexModule);
    return true;
}

std::optional<Metadata> decodeMetadataFast(const ReadFile& file, const Limits& limits,
                                           const StopToken& stop) {
    MetadataMachine machine(file, limits, stop);
    if (!machine.run()) return std::nullopt;
    return machine.take();
}

}  // namespace shardscope::paddle
