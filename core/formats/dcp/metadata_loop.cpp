// The opcode loop of MetadataMachine, and what comes out at the end.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

#include "encoding/pickle_text.h"
#include "formats/dcp/metadata_machine.h"

namespace shardscope::dcp {

namespace {

constexpr uint64_t kMaxLine = uint64_t{1} << 20;

using pickle_text::appendUtf8;

// The operand of UNICODE: Latin-1 bytes with \uXXXX and \UXXXXXXXX.
std::string rawUnicodeEscape(std::string_view text) {
    std::string out;
    for (size_t i = 0; i < text.size();) {
        const size_t digits = i + 1 < text.size() && text[i] == '\\' ? (text[i + 1] == 'u'   ? 4
                                                                        : text[i + 1] == 'U' ? 8
                                                                                             : 0)
                                                                     : 0;
        if (digits && i + 2 + digits <= text.size()) {
            const std::string hex(text.substr(i + 2, digits));
            char* stop = nullptr;
            const unsigned long code = std::strtoul(hex.c_str(), &stop, 16);
            if (*stop == '\0' && code <= 0x10ffff) {
                appendUtf8(out, static_cast<uint32_t>(code));
                i += 2 + digits;
                continue;
            }
        }
        appendUtf8(out, static_cast<uint8_t>(text[i]));
        ++i;
    }
    return out;
}

}  // namespace

// The text of `length` bytes that follows an opcode with `header` bytes; p_ moves behind it.
Result<std::string_view> MetadataMachine::textOperand(size_t header, uint64_t length) {
    const uint64_t start = here() + header;
    if (start > window_.fileSize() || length > window_.fileSize() - start)
        return bad(fmt::format("a string of {} bytes goes beyond the end of the file", length));
    if (length > limits_.pickleText)
        return makeError(ErrorCode::limit,
                         fmt::format("a string of {} bytes is longer than the {} that are read", length,
                                     limits_.pickleText))
            .at(here());
    p_ = opcode_;
    if (header + length > static_cast<size_t>(end_ - p_))
        SHARDSCOPE_TRY(refill(static_cast<size_t>(header + length) + 16));
    const auto* text = reinterpret_cast<const char*>(opcode_ + header);
    p_ = opcode_ + header + length;
    return std::string_view(text, static_cast<size_t>(length));
}

// The line that starts at p_; p_ moves behind it. The view holds until the next refill.
Result<std::string_view> MetadataMachine::lineOperand() {
    const uint8_t* stopAt = lineEnd(p_, end_);
    if (!stopAt && !window_.atEnd()) {
        SHARDSCOPE_TRY(refill(kMaxLine));
        stopAt = lineEnd(p_, end_);
    }
    if (!stopAt) return bad("a text line does not end");
    const std::string_view text(reinterpret_cast<const char*>(p_), static_cast<size_t>(stopAt - p_));
    p_ = stopAt + 1;
    return text;
}

// One opcode that is not among the frequent ones.
Status MetadataMachine::step() {
    const uint8_t op = *opcode_;
    p_ = opcode_ + 1;
    uint32_t first = 0;
    Value value;
    switch (op) {
        case kProto:
            p_ += 1;
            return {};
        case kFrame:
            p_ += 8;
            return {};
        case kNone_:
            return push(value);
        case kNewTrue:
        case kNewFalse:
            value.kind = Kind::boolean;
            value.b = op == kNewTrue;
            return push(value);
        case kBinFloat:
            value.kind = Kind::opaque;
            p_ += 8;
            return push(value);
        case kFloat:
        case kPersId: {
            SHARDSCOPE_ASSIGN(auto text, lineOperand());
            (void)text;
            value.kind = Kind::opaque;
            return push(value);
        }
        case kInt:
        case kLong: {
            SHARDSCOPE_ASSIGN(std::string_view text, lineOperand());
            const auto* begin = reinterpret_cast<const uint8_t*>(text.data());
            if (op == kInt && (text == "00" || text == "01")) {
                value.kind = Kind::boolean;
                value.b = text == "01";
            } else if (parseDecimal(begin, begin + text.size(), value.b)) {
                value.kind = Kind::integer;
            } else {
                value.kind = Kind::opaque;
            }
            return push(value);
        }
        case kLong1: {
            SHARDSCOPE_ASSIGN(std::string_view bytes, textOperand(2, opcode_[1]));
            return pushLong(bytes);
        }
        case kLong4: {
            SHARDSCOPE_ASSIGN(std::string_view bytes, textOperand(5, load32(opcode_ + 1)));
            return pushLong(bytes);
        }
        case kShortBinUnicode:
        case kShortBinString: {
            SHARDSCOPE_ASSIGN(std::string_view text, textOperand(2, opcode_[1]));
            return pushText(text);
        }
        case kBinUnicode:
        case kBinString: {
            SHARDSCOPE_ASSIGN(std::string_view text, textOperand(5, load32(opcode_ + 1)));
            return pushText(text);
        }
        case kBinUnicode8: {
            SHARDSCOPE_ASSIGN(std::string_view text, textOperand(9, load64(opcode_ + 1)));
            return pushText(text);
        }
        case kUnicode: {
            SHARDSCOPE_ASSIGN(std::string_view text, lineOperand());
            return pushText(rawUnicodeEscape(text));
        }
        case kString: {
            SHARDSCOPE_ASSIGN(std::string_view text, lineOperand());
            if (text.size() >= 2 && (text.front() == '\'' || text.front() == '"'))
                text = text.substr(1, text.size() - 2);
            return pushText(text);
        }
        case kShortBinBytes:
        case kBinBytes:
        case kBinBytes8:
        case kByteArray8: {
            const size_t header = op == kShortBinBytes ? 2 : op == kBinBytes ? 5 : 9;
            const uint64_t length = op == kShortBinBytes ? opcode_[1]
                                    : op == kBinBytes    ? load32(opcode_ + 1)
                                                         : load64(opcode_ + 1);
            SHARDSCOPE_ASSIGN(auto bytes, textOperand(header, length));
            (void)bytes;
            value.kind = Kind::opaque;
            return push(value);
        }
        case kBinInt2:
            value.kind = Kind::integer;
            value.b = load16(p_);
            p_ += 2;
            return push(value);
        case kTuple:
            SHARDSCOPE_TRY(popMark(first));
            return makeTuple(first);
        case kEmptyList:
        case kList:
            value.kind = Kind::list;
            if (op == kList) SHARDSCOPE_TRY(popMark(first));
            value.a = static_cast<uint32_t>(lists_.size());
            lists_.emplace_back();
            if (op == kEmptyList) return push(value);
            stack_.insert(stack_.begin() + first, value);
            return addItems(first, first + 1);
        case kDict:
            SHARDSCOPE_TRY(popMark(first));
            value.kind = Kind::dict;
            value.a = static_cast<uint32_t>(dicts_.size());
            dicts_.emplace_back();
            stack_.insert(stack_.begin() + first, value);
            return setItems(first, first + 1);
        case kEmptySet:
            value.kind = Kind::opaque;
            value.cls = Class::inert;
            return push(value);
        case kAppends:
        case kAddItems:
            SHARDSCOPE_TRY(popMark(first));
            if (first == 0) return bad("items are appended to nothing");
            return addItems(first - 1, first);
        case kAppend:
            SHARDSCOPE_TRY(need(2));
            first = static_cast<uint32_t>(stack_.size() - 1);
            return addItems(first - 1, first);
        case kSetItem:
            SHARDSCOPE_TRY(need(3));
            first = static_cast<uint32_t>(stack_.size() - 2);
            return setItems(first - 1, first);
        case kFrozenSet:
        case kInst:
        case kObj: {
            if (op == kInst) {
                SHARDSCOPE_ASSIGN(std::string_view line, lineOperand());
                const std::string module(line);
                SHARDSCOPE_ASSIGN(std::string_view name, lineOperand());
                SHARDSCOPE_TRY(pushGlobal(module, std::string(name)));
                value = stack_.back();
                stack_.pop_back();
                SHARDSCOPE_TRY(popMark(first));
            } else {
                SHARDSCOPE_TRY(popMark(first));
                if (op == kObj && first >= stack_.size()) return bad("an object without a class");
                if (op == kObj) value = stack_[first];
            }
            stack_.resize(first);
            Value made;
            made.kind = Kind::opaque;
            made.cls = Class::inert;
            if (op != kFrozenSet) {
                made = newObject(value);
                // INST and OBJ call the class with what the mark holds.
                if (value.kind == Kind::global && value.cls == Class::foreign &&
                    globals_[value.a].foreign != kNone)
                    out_.foreign[globals_[value.a].foreign].called = true;
            }
            return push(made);
        }
        case kNewObjEx:
            SHARDSCOPE_TRY(need(3));
            stack_.pop_back();
            stack_.pop_back();
            stack_.back() = newObject(stack_.back());
            return {};
        case kGlobal: {
            SHARDSCOPE_ASSIGN(std::string_view line, lineOperand());
            const std::string module(line);
            SHARDSCOPE_ASSIGN(std::string_view name, lineOperand());
            return pushGlobal(module, std::string(name));
        }
        case kStackGlobal: {
            SHARDSCOPE_TRY(need(2));
            const Value name = stack_[stack_.size() - 1];
            const Value module = stack_[stack_.size() - 2];
            if (name.kind != Kind::text || module.kind != Kind::text)
                return bad("a global is named by something else than text");
            stack_.resize(stack_.size() - 2);
            // Copies: interning may move the texts.
            return pushGlobal(std::string(out_.texts[module.a]), std::string(out_.texts[name.a]));
        }
        case kBinPersId:
            SHARDSCOPE_TRY(need(1));
            stack_.back() = Value{Kind::opaque, Class::inert, 0, 0};
            return {};
        case kPop:
            // CPython: a mark on top is popped as well.
            if (!marks_.empty() && marks_.back() == stack_.size()) {
                marks_.pop_back();
                return {};
            }
            return pop(value);
        case kPopMark:
            SHARDSCOPE_TRY(popMark(first));
            stack_.resize(first);
            return {};
        case kDup:
            SHARDSCOPE_TRY(need(1));
            value = stack_.back();
            pin(value);
            return push(value);
        case kGet:
        case kPut: {
            SHARDSCOPE_ASSIGN(std::string_view line, lineOperand());
            int64_t index = 0;
            const auto* begin = reinterpret_cast<const uint8_t*>(line.data());
            if (!parseDecimal(begin, begin + line.size(), index) || index < 0)
                return bad("a memo index is not a number");
            if (op == kGet) return fetch(static_cast<uint64_t>(index));
            counter_.put(static_cast<uint64_t>(index));
            return memoize(static_cast<uint64_t>(index));
        }
        case kBinPut:
            ++p_;
            counter_.put(opcode_[1]);
            return memoize(opcode_[1]);
        case kLongBinPut:
            p_ += 4;
            counter_.put(load32(opcode_ + 1));
            return memoize(load32(opcode_ + 1));
        default:
            break;
    }
    return bad(fmt::format("byte 0x{:02x} is no pickle opcode", op));
}

Result<Metadata> MetadataMachine::run() {
    SHARDSCOPE_TRY(window_.moveTo(0));
    p_ = opcode_ = window_.begin();
    end_ = window_.end();
    Value value;
    while (true) {
        opcode_ = p_;
        if (static_cast<size_t>(end_ - p_) < kFastWindow && !window_.atEnd())
            SHARDSCOPE_TRY(refill(kFastWindow));
        // The first pass has walked to STOP, so the file can only be short here when it changed in between.
        if (opcode_ >= end_)
            return makeError(ErrorCode::changed, "the file changed while it was read").at(here());
        switch (*opcode_) {
            case kMemoize: {
                ++p_;
                const uint64_t index = counter_.memoize();
                if (use_.fetched(index)) SHARDSCOPE_TRY(memoize(index));
                break;
            }
            case kBinGet: {
                p_ += 2;
                const Slot& slot = low_[opcode_[1]];
                if (!slot.filled)
                    return bad(fmt::format("memo entry {} is fetched before it is stored", opcode_[1]));
                if (slot.value.kind == Kind::global && fastObject(slot.value)) break;
                SHARDSCOPE_TRY(push(slot.value));
                break;
            }
            case kLongBinGet: {
                p_ += 5;
                const Slot* slot = slotOf(load32(opcode_ + 1));
                if (slot && slot->filled && slot->value.kind == Kind::global && fastObject(slot->value))
                    break;
                SHARDSCOPE_TRY(fetch(load32(opcode_ + 1)));
                break;
            }
            case kBinInt1:
                p_ += 2;
                value = Value{Kind::integer, Class::foreign, 0, opcode_[1]};
                SHARDSCOPE_TRY(push(value));
                break;
            case kBinInt2:
                p_ += 3;
                value = Value{Kind::integer, Class::foreign, 0, load16(opcode_ + 1)};
                SHARDSCOPE_TRY(push(value));
                break;
            case kBinInt:
                p_ += 5;
                value = Value{Kind::integer, Class::foreign, 0, static_cast<int32_t>(load32(opcode_ + 1))};
                SHARDSCOPE_TRY(push(value));
                break;
            case kMark:
                ++p_;
                if (marks_.size() >= size_t{4} << 20)
                    return makeError(ErrorCode::limit, "the pickle nests more than 4 million marks")
                        .at(here());
                marks_.push_back(static_cast<uint32_t>(stack_.size()));
                break;
            case kEmptyTuple:
                ++p_;
                SHARDSCOPE_TRY(push(Value{Kind::ints, Class::foreign, 0, 0}));
                break;
            case kEmptyDict:
                ++p_;
                value = Value{Kind::dict, Class::foreign, static_cast<uint32_t>(dicts_.size()), 0};
                dicts_.emplace_back();
                SHARDSCOPE_TRY(push(value));
                break;
            case kTuple1:
            case kTuple2:
            case kTuple3: {
                ++p_;
                const uint32_t count = *opcode_ - kTuple1 + 1U;
                SHARDSCOPE_TRY(need(count));
                SHARDSCOPE_TRY(makeTuple(static_cast<uint32_t>(stack_.size()) - count));
                break;
            }
            case kReduce:
                ++p_;
                SHARDSCOPE_TRY(reduce());
                break;
            case kNewObj:
                ++p_;
                SHARDSCOPE_TRY(need(2));
                release(stack_.back());
                stack_.pop_back();
                stack_.back() = newObject(stack_.back());
                break;
            case kSetItems: {
                ++p_;
                uint32_t first = 0;
                SHARDSCOPE_TRY(popMark(first));
                if (first == 0) return bad("items are set in nothing");
                SHARDSCOPE_TRY(setItems(first - 1, first));
                break;
            }
            case kBuild:
                ++p_;
                SHARDSCOPE_TRY(build());
                break;
            case kStop: {
                SHARDSCOPE_TRY(need(1));
                const Value root = stack_.back();
                return finish(root);
            }
            default:
                SHARDSCOPE_TRY(step());
                break;
        }
    }
}

// ------------------------------------------------------------------ the end

Result<Metadata> MetadataMachine::finish(const Value& root) {
    if (root.kind != Kind::object || root.cls != Class::metadata) {
        return damaged("the pickle does not hold the Metadata of a distributed checkpoint").at(here());
    }
    const RootRecord record = roots_[root.a];
    if (record.stateDict == kNone) return damaged("the Metadata has no state_dict_metadata").at(here());

    auto keep = [](auto& rows, const Slice& slice) {
        rows.erase(rows.begin() + slice.end(), rows.end());
        rows.erase(rows.begin(), rows.begin() + slice.first);
    };
    const auto takeDict = [&](uint32_t dict) { return dict == kNone ? Dict{} : dicts_[dict]; };
    const Dict stateDict = takeDict(record.stateDict);
    const Dict storageData = takeDict(record.storageData);
    const Dict plannerData = takeDict(record.plannerData);
    if (stateDict.items.count)
        return damaged("state_dict_metadata holds something else than tensors and bytes").at(here());
    if (storageData.items.count)
        return damaged("storage_data holds something else than storage entries").at(here());
    // Keys that are also attribute names were kept as plain pairs.
    Dict paths = plannerData;
    for (uint32_t i = 0; i < plannerData.items.count; i += 2) {
        const Value key = items_[plannerData.items.first + i];
        const Value path = items_[plannerData.items.first + i + 1];
        if (key.kind == Kind::text && (path.kind == Kind::tuple || path.kind == Kind::ints))
            SHARDSCOPE_TRY(addPath(paths, key.a, path));
    }
    out_.hasPlannerData = record.plannerData != kNone;
    keep(out_.entries, stateDict.entries);
    keep(out_.stored, storageData.stored);
    keep(out_.paths, paths.paths);

    out_.tensors.resize(tensors_.size());
    for (const MetaEntry& entry : out_.entries) {
        if (entry.tensor == kNone) continue;
        const TensorRecord& tensor = tensors_[entry.tensor];
        MetaTensor& made = out_.tensors[entry.tensor];
        const std::string_view name = out_.texts[entry.name];
        if (!tensor.hasShape) return damaged("the metadata of a tensor has no size").ofTensor(name);
        if (tensor.properties == kNone || properties_[tensor.properties].dtype == kNone)
            return damaged("the metadata of a tensor has no dtype").ofTensor(name);
        const TextId dtype = properties_[tensor.properties].dtype;
        const auto known = dtypeFromName(out_.texts[dtype]);
        if (known && dtypeName(*known) == out_.texts[dtype])
            made.dtype = *known;
        else
            made.unknownDtype = dtype;
        made.shape = tensor.shape;
        made.firstChunk = tensor.chunks.first;
        made.endChunk = tensor.chunks.end();
        for (uint32_t c = made.firstChunk; c < made.endChunk; ++c) {
            const MetaChunk& chunk = out_.chunks[c];
            if (chunk.offsets == kNone || chunk.lengths == kNone)
                return damaged("a chunk lacks its offsets or sizes").ofTensor(name);
            if (chunk.rank != made.shape.rank) {
                return damaged(fmt::format("a chunk has {} dimensions, its tensor has {}", chunk.rank,
                                           made.shape.rank))
                    .ofTensor(name);
            }
        }
    }
    return std::move(out_);
}

Result<Metadata> decodeMetadata(const ReadFile& file, const Limits& limits, const StopToken& stop) {
    if (file.size() > limits.pickleBytes) {
        return makeError(ErrorCode::limit,
                         fmt::format("the metadata file has {} bytes, more than the {} that are read",
                                     file.size(), limits.pickleBytes))
            .inFile(file.path());
    }
    if (file.size() == 0) return damaged("the metadata file is empty", 0).inFile(file.path());
    auto use = scanMemoUse(file, stop);
    if (!use.ok()) return std::move(use).error().inFile(file.path());
    MetadataMachine machine(file, limits, stop, *use);
    auto decoded = machine.run();
    if (!decoded.ok()) return std::move(decoded).error().inFile(file.path());
    return decoded;
}

}  // namespace shardscope::dcp
