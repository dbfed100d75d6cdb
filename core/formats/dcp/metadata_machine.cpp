#include "formats/dcp/metadata_machine.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>

namespace shardscope::dcp {

namespace {

constexpr std::array<std::string_view, kWordCount> kWords = {
    "offsets",      "sizes",         "fqn",          "index",
    "offset",       "relative_path", "length",       "transform_descriptors",
    "properties",   "size",          "chunks",       "state_dict_metadata",
    "planner_data", "storage_data",  "storage_meta", "version",
    "dtype",        "strides",       "modules"};

constexpr size_t kMaxItems = size_t{64} << 20;
constexpr uint64_t kMaxMoved = uint64_t{64} << 20;
constexpr size_t kMaxForeign = 10'000;

}  // namespace

MetadataMachine::MetadataMachine(const ReadFile& file, const Limits& limits, const StopToken& stop,
                                 const MemoUse& use)
    : window_(file, stop), limits_(limits), use_(use) {
    for (std::string_view word : kWords)
        out_.texts.intern(word);
    out_.protocol = use.protocol;
    out_.transforms.emplace_back();
    memo_.resize(use.count());
    low_.resize(256);
    // A chunk is one object, its storage row two; untouched reserve costs no memory.
    const size_t rows = static_cast<size_t>(use.objects / 3) + 16;
    out_.chunks.reserve(rows);
    out_.stored.reserve(rows);
    out_.dims.reserve(static_cast<size_t>(use.reductions / 3 * 4) + 16);
    stack_.reserve(size_t{64} << 10);
}

Error MetadataMachine::stackLimit() const {
    return makeError(ErrorCode::limit, "the pickle stacks more than 4 million values").at(here());
}

Error MetadataMachine::bad(std::string message) const {
    return damaged(std::move(message), here());
}

Status MetadataMachine::refill(size_t need) {
    const uint64_t at = window_.offsetOf(p_);
    const size_t opcodeBack = static_cast<size_t>(p_ - opcode_);
    // Keeps the opcode itself in the window, for messages.
    SHARDSCOPE_TRY(window_.moveTo(at - opcodeBack, need + opcodeBack));
    opcode_ = window_.begin();
    p_ = opcode_ + opcodeBack;
    end_ = window_.end();
    return {};
}

// ------------------------------------------------------------------ stack and memo

// What the memo may hand out again is never given back.
void MetadataMachine::pin(const Value& value) {
    switch (value.kind) {
        case Kind::ints:
        case Kind::intsIn1:
        case Kind::size:
            dimsPin_ = static_cast<uint32_t>(out_.dims.size());
            break;
        case Kind::tuple:
            itemsPin_ = static_cast<uint32_t>(items_.size());
            break;
        case Kind::list:
            listPin_ = static_cast<uint32_t>(lists_.size());
            break;
        case Kind::dict:
            dictPin_ = static_cast<uint32_t>(dicts_.size());
            break;
        case Kind::object:
            if (value.cls == Class::index) indexPin_ = static_cast<uint32_t>(indexes_.size());
            if (value.cls == Class::storageInfo) infoPin_ = static_cast<uint32_t>(infos_.size());
            break;
        default:
            break;
    }
}

Status MetadataMachine::memoize(uint64_t index) {
    if (!use_.fetched(index)) return {};
    SHARDSCOPE_TRY(need(1));
    const Value& top = stack_.back();
    pin(top);
    Slot& slot = *slotOf(index);
    slot.value = top;
    slot.filled = true;
    return {};
}

Status MetadataMachine::fetch(uint64_t index) {
    const Slot* slot = slotOf(index);
    if (!slot || !slot->filled)
        return bad(fmt::format("memo entry {} is fetched before it is stored", index));
    return push(slot->value);
}

// Gives back what `value` alone held, when it lies at the end of its table.
void MetadataMachine::release(const Value& value) {
    switch (value.kind) {
        case Kind::tuple:
            if (value.a >= itemsPin_ && value.a + static_cast<uint64_t>(value.b) == items_.size())
                items_.resize(value.a);
            break;
        case Kind::list:
            if (value.a >= listPin_ && value.a + 1 == lists_.size()) {
                const Slice slice = lists_.back().items;
                lists_.pop_back();
                if (slice.count && slice.first >= itemsPin_ && slice.end() == items_.size())
                    items_.resize(slice.first);
            }
            break;
        case Kind::dict:
            if (value.a >= dictPin_ && value.a + 1 == dicts_.size()) {
                const Slice slice = dicts_.back().items;
                dicts_.pop_back();
                if (slice.count && slice.first >= itemsPin_ && slice.end() == items_.size())
                    items_.resize(slice.first);
            }
            break;
        case Kind::object:
            if (value.cls == Class::index && value.a >= indexPin_ && value.a + 1 == indexes_.size())
                indexes_.pop_back();
            if (value.cls == Class::storageInfo && value.a >= infoPin_ && value.a + 1 == infos_.size())
                infos_.pop_back();
            break;
        default:
            break;
    }
}

// ------------------------------------------------------------------ building

template <class T>
Status MetadataMachine::appendRow(std::vector<T>& rows, Slice& slice, const T& row) {
    if (slice.count == 0) slice.first = static_cast<uint32_t>(rows.size());
    if (slice.end() != rows.size()) {
        // Another container was filled in between: move on to the end. Honest pickles never do this.
        moved_ += slice.count;
        if (moved_ > kMaxMoved)
            return makeError(ErrorCode::limit, "the pickle fills its containers in a hopelessly mixed order")
                .at(here());
        const size_t first = rows.size();
        for (uint32_t i = 0; i < slice.count; ++i)
            rows.push_back(T(rows[slice.first + i]));
        slice.first = static_cast<uint32_t>(first);
    }
    if (rows.size() >= kNone - 1) return makeError(ErrorCode::limit, "more than 4 billion rows").at(here());
    rows.push_back(row);
    ++slice.count;
    return {};
}

Status MetadataMachine::appendItem(Slice& slice, const Value& value) {
    if (items_.size() >= kMaxItems)
        return makeError(ErrorCode::limit,
                         "the pickle holds more than 64 million values that are no tensor rows")
            .at(here());
    return appendRow(items_, slice, value);
}

Status MetadataMachine::makeTuple(uint32_t first) {
    const auto count = static_cast<uint32_t>(stack_.size() - first);
    Value tuple;
    bool ints = true;
    for (uint32_t i = first; i < stack_.size(); ++i)
        ints &= stack_[i].kind == Kind::integer;
    if (ints) {
        tuple.kind = Kind::ints;
        tuple.a = static_cast<uint32_t>(out_.dims.size());
        tuple.b = count;
        for (uint32_t i = first; i < stack_.size(); ++i)
            out_.dims.push_back(stack_[i].b);
    } else if (count == 1 && stack_[first].kind == Kind::ints) {
        tuple = stack_[first];  // the arguments of torch.Size
        tuple.kind = Kind::intsIn1;
    } else {
        tuple.kind = Kind::tuple;
        tuple.a = static_cast<uint32_t>(items_.size());
        tuple.b = count;
        if (items_.size() + count > kMaxItems)
            return makeError(ErrorCode::limit,
                             "the pickle holds more than 64 million values that are no tensor rows")
                .at(here());
        items_.insert(items_.end(), stack_.begin() + first, stack_.end());
    }
    stack_.resize(first);
    return push(tuple);
}

Status MetadataMachine::pushText(std::string_view text) {
    if (out_.texts.size() >= kNone - 1)
        return makeError(ErrorCode::limit, "more than 4 billion strings").at(here());
    Value value;
    value.kind = Kind::text;
    value.a = out_.texts.intern(text);
    return push(value);
}

Status MetadataMachine::pushLong(std::string_view bytes) {
    Value value;
    if (bytes.size() > 8) {
        value.kind = Kind::opaque;
    } else {
        value.kind = Kind::integer;
        uint64_t bits = 0;
        for (size_t i = 0; i < bytes.size(); ++i)
            bits |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
        if (!bytes.empty() && bytes.size() < 8 && (bytes.back() & 0x80))
            bits |= ~uint64_t{0} << (8 * bytes.size());
        value.b = static_cast<int64_t>(bits);
    }
    return push(value);
}

MetadataMachine::Class MetadataMachine::classify(std::string_view module, std::string_view name) const {
    if (module == "__builtin__") module = "builtins";
    if (module == "copy_reg") module = "copyreg";
    if (module == "torch") {
        if (name == "Size") return Class::torchSize;
        if (name == "device" || name == "layout" || name == "memory_format") return Class::inert;
        const std::optional<DType> dtype = dtypeFromName(name);
        if (dtype && dtypeName(*dtype) == name) return Class::dtype;
        // dtypes that are not known here: uint4, int3, ... A class or function would be called, which they
        // are not.
        return Class::dtype;
    }
    if (module == "torch.serialization" && name == "_get_layout") return Class::getLayout;
    const bool checkpoint = module.starts_with("torch.distributed.checkpoint.");
    if (checkpoint || module == "torch.distributed._shard.sharded_tensor.metadata") {
        if (name == "TensorProperties") return Class::properties;
        if (name.ends_with("MEM_FORMAT_ENCODING")) return Class::memoryFormat;
    }
    if (checkpoint) {
        if (name == "Metadata") return Class::metadata;
        if (name == "TensorStorageMetadata") return Class::tensor;
        if (name == "ChunkStorageMetadata") return Class::chunk;
        if (name == "BytesStorageMetadata") return Class::bytes;
        if (name == "MetadataIndex") return Class::index;
        if (name == "StorageMeta") return Class::storageMeta;
        if (name == "_StorageInfo") return Class::storageInfo;
    }
    if (module == "collections") {
        if (name == "OrderedDict") return Class::orderedDict;
        if (name == "defaultdict" || name == "Counter" || name == "ChainMap" || name == "deque")
            return Class::inert;
    }
    if (module == "copyreg" && name == "_reconstructor") return Class::reconstructor;
    if (module == "builtins") {
        if (name == "getattr") return Class::getAttribute;
        for (std::string_view known : {"set", "frozenset", "list", "tuple", "dict", "str", "int", "float",
                                       "complex", "bytes", "bytearray", "object", "bool", "range", "slice"}) {
            if (name == known) return Class::inert;
        }
    }
    if (module == "_codecs" && name == "encode") return Class::inert;
    if (module == "pathlib" || module.starts_with("pathlib.")) {
        for (std::string_view known :
             {"PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath", "Path"}) {
            if (name == known) return Class::inert;
        }
    }
    return Class::foreign;
}

Status MetadataMachine::pushGlobal(std::string_view module, std::string_view name) {
    if (module.starts_with("torch.distributed._shard.checkpoint")) {
        return unsupported(
                   "this checkpoint was written by torch 1.12 or 1.13, whose first generation of the "
                   "distributed "
                   "checkpoint format is not read")
            .at(here())
            .withHint("load it with that torch version and save it again with torch 2.0 or later");
    }
    // Few globals per file: what is used often comes from the memo.
    Value value;
    value.kind = Kind::global;
    const TextId moduleId = out_.texts.intern(module);
    const TextId nameId = out_.texts.intern(name);
    for (size_t i = 0; i < std::min<size_t>(globals_.size(), 64); ++i) {
        if (globals_[i].module == moduleId && globals_[i].name == nameId) {
            value.a = static_cast<uint32_t>(i);
            value.cls = globals_[i].cls;
            return push(value);
        }
    }
    Global global{moduleId, nameId, classify(module, name), kNone};
    if (global.cls == Class::foreign) {
        const std::string full = fmt::format("{}.{}", module, name);
        const auto known = std::find_if(out_.foreign.begin(), out_.foreign.end(),
                                        [&](const ForeignGlobal& f) { return f.name == full; });
        if (known == out_.foreign.end() && out_.foreign.size() >= kMaxForeign)
            return makeError(ErrorCode::limit, "the pickle names more than 10,000 foreign classes")
                .at(here());
        global.foreign = static_cast<uint32_t>(known - out_.foreign.begin());
        if (known == out_.foreign.end()) out_.foreign.push_back({full, false, here()});
    }
    if (global.cls == Class::properties && module.starts_with("torch.distributed._shard"))
        out_.oldProperties = true;
    value.a = static_cast<uint32_t>(globals_.size());
    value.cls = global.cls;
    globals_.push_back(global);
    return push(value);
}

MetadataMachine::Value MetadataMachine::newObject(const Value& cls) {
    Value object;
    object.kind = Kind::opaque;
    if (cls.kind != Kind::global) return object;
    object.cls = cls.cls;
    switch (cls.cls) {
        case Class::metadata:
            object.kind = Kind::object;
            object.a = static_cast<uint32_t>(roots_.size());
            roots_.emplace_back();
            break;
        case Class::tensor:
            object.kind = Kind::object;
            object.a = static_cast<uint32_t>(tensors_.size());
            tensors_.emplace_back();
            break;
        case Class::chunk:
            object.kind = Kind::object;
            object.a = static_cast<uint32_t>(out_.chunks.size());
            out_.chunks.push_back({kNone, kNone, 0});
            break;
        case Class::properties:
            object.kind = Kind::object;
            object.a = static_cast<uint32_t>(properties_.size());
            properties_.emplace_back();
            break;
        case Class::index:
            object.kind = Kind::object;
            object.a = static_cast<uint32_t>(indexes_.size());
            indexes_.emplace_back();
            break;
        case Class::storageInfo:
            object.kind = Kind::object;
            object.a = static_cast<uint32_t>(infos_.size());
            infos_.emplace_back();
            break;
        case Class::bytes:
            object.kind = Kind::object;
            break;
        case Class::storageMeta:
            object.kind = Kind::object;
            out_.hasStorageMeta = true;
            break;
        case Class::orderedDict:
            object.kind = Kind::dict;
            object.a = static_cast<uint32_t>(dicts_.size());
            dicts_.emplace_back();
            break;
        default:
            break;
    }
    return object;
}

Status MetadataMachine::reduce() {
    SHARDSCOPE_TRY(need(2));
    const Value args = stack_.back();
    stack_.pop_back();
    const Value callable = stack_.back();
    Value& result = stack_.back();
    Value made;
    made.kind = Kind::opaque;
    if (callable.kind == Kind::global) {
        switch (callable.cls) {
            case Class::torchSize:
                if (args.kind == Kind::intsIn1) {
                    made = args;
                    made.kind = Kind::size;
                } else if (args.kind == Kind::ints && args.b == 0) {
                    made = args;
                    made.kind = Kind::size;
                } else if (args.kind == Kind::tuple && args.b == 1 && items_[args.a].kind == Kind::size) {
                    made = items_[args.a];
                } else {
                    return bad("a torch.Size is made of something else than integers");
                }
                break;
            case Class::reconstructor:  // protocols 0 and 1: _reconstructor(cls, object, None)
                if (args.kind == Kind::tuple && args.b >= 1) made = newObject(items_[args.a]);
                break;
            case Class::metadata:
            case Class::tensor:
            case Class::chunk:
            case Class::properties:
            case Class::index:
            case Class::storageInfo:
            case Class::bytes:
            case Class::storageMeta:
            case Class::orderedDict:
                made = newObject(callable);
                break;
            case Class::getAttribute: {
                const bool ofEnum = args.kind == Kind::tuple && args.b == 2 &&
                                    items_[args.a].kind == Kind::global &&
                                    items_[args.a].cls == Class::memoryFormat;
                if (!ofEnum) {
                    if (out_.foreign.size() < kMaxForeign)
                        out_.foreign.push_back({"builtins.getattr", true, here()});
                }
                break;
            }
            case Class::dtype:
                if (out_.foreign.size() < kMaxForeign) {
                    const Global& global = globals_[callable.a];
                    out_.foreign.push_back({fmt::format("torch.{}", out_.texts[global.name]), true, here()});
                }
                break;
            case Class::foreign: {
                const uint32_t foreign = globals_[callable.a].foreign;
                if (foreign != kNone) out_.foreign[foreign].called = true;
                break;
            }
            default:
                break;
        }
    }
    release(args);
    result = made;
    return {};
}

bool MetadataMachine::dimsValue(const Value& value, DimsRef& out, Error& error) const {
    if ((value.kind != Kind::size && value.kind != Kind::ints) || value.b > kMaxRank) {
        error = value.b > kMaxRank && value.kind != Kind::integer
                    ? makeError(
                          ErrorCode::limit,
                          fmt::format("{} dimensions are more than the {} that are read", value.b, kMaxRank))
                    : damaged("a shape or offset is not a torch.Size");
        error.place.offset = here();
        return false;
    }
    out.at = value.a;
    out.rank = static_cast<uint8_t>(value.b);
    return true;
}

// Storage keys among stack_[first, end): the chunk that the key's hint leads to, if it has the key's offsets.
// The keys' own copies of the offsets are then given back. In three rounds, because the rows come rank by
// rank and the chunks lie tensor by tensor: nearly every look at a chunk misses the caches, and the misses of
// one round overlap.
void MetadataMachine::matchChunks(size_t first, size_t end) {
    const auto eachKey = [&](auto&& visit) {
        for (size_t i = first; i < end; i += 2) {
            if (stack_[i].kind == Kind::object && stack_[i].cls == Class::index) visit(indexes_[stack_[i].a]);
        }
    };
    eachKey([&](IndexRecord& record) {
        record.chunk = kNone;
        if (!record.hasOffsets || record.name >= tensorByName_.size() || !tensorByName_[record.name]) return;
        const Slice& chunks = tensors_[tensorByName_[record.name] - 1].chunks;
        if (record.hint >= chunks.count) return;
        record.chunk = chunks.first + record.hint;
        __builtin_prefetch(&out_.chunks[record.chunk]);
    });
    eachKey([&](IndexRecord& record) {
        if (record.chunk == kNone) return;
        const MetaChunk& chunk = out_.chunks[record.chunk];
        if (chunk.rank != record.rank || chunk.offsets == kNone)
            record.chunk = kNone;
        else
            __builtin_prefetch(&out_.dims[chunk.offsets]);
    });
    // Everything from the first copy on belongs to these keys.
    size_t keep = out_.dims.size();
    bool all = true;
    eachKey([&](IndexRecord& record) {
        if (!record.hasOffsets) return;
        if (record.chunk != kNone) {
            const uint32_t theirs = out_.chunks[record.chunk].offsets;
            const int64_t* a = out_.dims.data() + theirs;
            const int64_t* b = out_.dims.data() + record.offsets;
            bool equal = true;
            for (uint8_t i = 0; i < record.rank; ++i)
                equal &= a[i] == b[i];
            if (equal) {
                if (record.offsets >= dimsPin_) keep = std::min<size_t>(keep, record.offsets);
                record.offsets = theirs;
                return;
            }
            record.chunk = kNone;
        }
        all = false;
    });
    if (all && keep >= dimsPin_) out_.dims.resize(keep);
}

Result<uint16_t> MetadataMachine::transformsOf(const Value& value) {
    std::vector<std::string> names;
    const Value* first = nullptr;
    size_t count = 0;
    if (value.kind == Kind::list) {
        const Slice slice = lists_[value.a].items;
        first = items_.data() + slice.first;
        count = slice.count;
    } else if (value.kind == Kind::tuple) {
        first = items_.data() + value.a;
        count = static_cast<size_t>(value.b);
    } else if (value.kind != Kind::none && !(value.kind == Kind::ints && value.b == 0)) {
        return bad("transform_descriptors is not a list of names");
    }
    for (size_t i = 0; i < count; ++i) {
        if (first[i].kind != Kind::text) return bad("transform_descriptors is not a list of names");
        names.emplace_back(out_.texts[first[i].a]);
        if (names.size() > 16)
            return makeError(ErrorCode::limit, "an entry went through more than 16 transforms").at(here());
    }
    for (size_t i = 0; i < out_.transforms.size(); ++i) {
        if (out_.transforms[i] == names) return static_cast<uint16_t>(i);
    }
    if (out_.transforms.size() >= 256)
        return makeError(ErrorCode::limit, "more than 255 kinds of transforms").at(here());
    out_.transforms.push_back(std::move(names));
    return static_cast<uint16_t>(out_.transforms.size() - 1);
}

Status MetadataMachine::apply(Value& object, const Value& key, const Value& value) {
    if (key.kind != Kind::text) return {};
    const TextId word = key.a;
    Error error;
    DimsRef ref;
    if (object.kind == Kind::opaque) {
        // A subclass of Metadata, such as Megatron's: known by its attributes.
        if (object.cls != Class::foreign || word != wStateDictMetadata || value.kind != Kind::dict) return {};
        object.kind = Kind::object;
        object.cls = Class::metadata;
        object.a = static_cast<uint32_t>(roots_.size());
        roots_.emplace_back();
    }
    switch (object.cls) {
        case Class::chunk: {
            MetaChunk& chunk = out_.chunks[object.a];
            if (word != wOffsets && word != wSizes) return {};
            if (!dimsValue(value, ref, error)) return error;
            const bool other = word == wOffsets ? chunk.lengths != kNone : chunk.offsets != kNone;
            if (other && chunk.rank != ref.rank)
                return bad("the offsets and sizes of a chunk differ in their number of dimensions");
            chunk.rank = ref.rank;
            (word == wOffsets ? chunk.offsets : chunk.lengths) = ref.at;
            return {};
        }
        case Class::index: {
            IndexRecord& record = indexes_[object.a];
            if (word == wFqn) {
                if (value.kind != Kind::text) return bad("the fqn of a storage key is not a text");
                record.name = value.a;
            } else if (word == wOffset) {
                record.hasOffsets = value.kind != Kind::none;
                if (!record.hasOffsets) return {};
                if (!dimsValue(value, ref, error)) return error;
                record.offsets = ref.at;
                record.rank = ref.rank;
            } else if (word == wIndex) {
                const bool fits = value.kind == Kind::integer && value.b >= 0 && value.b < int64_t{kNone};
                record.hint = fits ? static_cast<uint32_t>(value.b) : kNone;
            }
            return {};
        }
        case Class::storageInfo: {
            InfoRecord& record = infos_[object.a];
            if (word == wRelativePath) {
                if (value.kind != Kind::text)
                    return bad("the relative_path of a storage entry is not a text");
                record.path = value.a;
            } else if (word == wOffset || word == wLength) {
                if (value.kind != Kind::integer || value.b < 0)
                    return bad(
                        fmt::format("the {} of a storage entry is not a number of bytes", out_.texts[word]));
                (word == wOffset ? record.offset : record.length) = static_cast<uint64_t>(value.b);
            } else if (word == wTransformDescriptors) {
                SHARDSCOPE_ASSIGN(record.transforms, transformsOf(value));
                release(value);
            }
            return {};
        }
        case Class::tensor: {
            TensorRecord& record = tensors_[object.a];
            if (word == wProperties) {
                if (value.kind != Kind::object || value.cls != Class::properties)
                    return bad("the properties of a tensor are not a TensorProperties object");
                record.properties = value.a;
            } else if (word == wSize) {
                if (!dimsValue(value, ref, error)) return error;
                record.shape = ref;
                record.hasShape = true;
            } else if (word == wChunks) {
                if (value.kind != Kind::list) return bad("the chunks of a tensor are not a list");
                if (lists_[value.a].items.count)
                    return bad("the chunk list of a tensor holds something else than chunks");
                record.chunks = lists_[value.a].chunks;
                release(value);
            }
            return {};
        }
        case Class::properties:
            if (word == wDtype && value.kind == Kind::global && value.cls == Class::dtype) {
                properties_[object.a].dtype = globals_[value.a].name;
            } else if (word == wStrides) {
                out_.sixProperties = true;
            }
            return {};
        case Class::storageMeta:
            if (word == wModules) out_.storageMetaModules = true;
            return {};
        case Class::metadata: {
            RootRecord& root = roots_[object.a];
            const bool dict = value.kind == Kind::dict;
            if (word == wStateDictMetadata) {
                if (!dict) return bad("state_dict_metadata is not a dictionary");
                root.stateDict = value.a;
            } else if (word == wPlannerData) {
                root.plannerData = dict ? value.a : kNone;
            } else if (word == wStorageData) {
                root.storageData = dict ? value.a : kNone;
            } else if (word == wVersion && value.kind == Kind::text) {
                out_.version = out_.texts[value.a];
            }
            return {};
        }
        default:
            return {};
    }
}

Status MetadataMachine::applyProperties(Value& object, const Value& tuple) {
    if (tuple.b < 1) return bad("the state of TensorProperties is empty");
    const Value& first = items_[tuple.a];
    if (first.kind != Kind::global || first.cls != Class::dtype)
        return bad("the first tensor property is not a dtype");
    properties_[object.a].dtype = globals_[first.a].name;
    if (tuple.b >= 6) out_.sixProperties = true;
    return {};
}

Status MetadataMachine::build() {
    SHARDSCOPE_TRY(need(2));
    Value state = stack_.back();
    stack_.pop_back();
    Value& object = stack_.back();
    if (object.kind != Kind::object && object.kind != Kind::opaque) return {};  // attributes of a dict, ...
    const Value whole = state;
    if (object.kind == Kind::object && object.cls == Class::properties && state.kind == Kind::tuple &&
        !(state.b == 2 && items_[state.a + 1].kind == Kind::dict)) {
        SHARDSCOPE_TRY(applyProperties(object, state));
        release(whole);
        return {};
    }
    // (state, slots)
    Value parts[2];
    int count = 1;
    parts[0] = state;
    if (state.kind == Kind::tuple && state.b == 2) {
        parts[0] = items_[state.a];
        parts[1] = items_[state.a + 1];
        count = 2;
    }
    for (int i = 0; i < count; ++i) {
        if (parts[i].kind != Kind::dict) continue;
        const Slice slice = dicts_[parts[i].a].items;
        for (uint32_t k = 0; k < slice.count; k += 2) {
            const Value key = items_[slice.first + k];
            const Value value = items_[slice.first + k + 1];
            SHARDSCOPE_TRY(apply(object, key, value));
        }
        release(parts[i]);
    }
    release(whole);
    return {};
}

Status MetadataMachine::addPath(Dict& dict, TextId name, const Value& tuple) {
    std::string encoded;
    Path path;
    const auto count = static_cast<size_t>(tuple.b);
    if (count > kMaxValueDepth)
        return makeError(ErrorCode::limit, fmt::format("a state dict path has {} parts", count)).at(here());
    for (size_t i = 0; i < count; ++i) {
        if (tuple.kind == Kind::ints) {
            path.push_back(indexPart(out_.dims[tuple.a + i]));
            continue;
        }
        const Value& part = items_[tuple.a + i];
        if (part.kind == Kind::integer)
            path.push_back(indexPart(part.b));
        else if (part.kind == Kind::text)
            path.push_back(keyPart(out_.texts[part.a]));
        else
            return {};  // not the path of a state dict
    }
    MetaPath row;
    row.name = name;
    const bool single =
        path.size() == 1 && path[0].kind == PathPart::Kind::key && path[0].text == out_.texts[name];
    if (!single) {
        encoded = encodePath(path);
        row.at = out_.pathBytes.size();
        row.length = static_cast<uint32_t>(encoded.size());
        out_.pathBytes += encoded;
    }
    return appendRow(out_.paths, dict.paths, row);
}

Status MetadataMachine::addPair(Value& target, const Value& key, const Value& value) {
    Dict& dict = dicts_[target.a];
    if (key.kind == Kind::object && key.cls == Class::index) {
        if (value.kind != Kind::object || value.cls != Class::storageInfo) {
            if (value.kind == Kind::object)
                return bad("a storage key has something else than a _StorageInfo");
            return {};
        }
        const IndexRecord& index = indexes_[key.a];
        const InfoRecord& info = infos_[value.a];
        if (index.name == kNone) return bad("a storage key has no fqn");
        if (info.path == kNone || info.length == kUnset)
            return bad("a storage entry lacks its relative_path or length");
        MetaStored row;
        row.offset = info.offset;
        row.length = info.length;
        row.name = index.name;
        row.path = info.path;
        row.chunkOffsets = index.offsets;
        row.chunk = index.chunk;
        row.rank = index.rank;
        row.hasOffsets = index.hasOffsets;
        row.transforms = info.transforms;
        SHARDSCOPE_TRY(appendRow(out_.stored, dict.stored, row));
        release(value);
        release(key);
        return {};
    }
    if (key.kind == Kind::text) {
        if (value.kind == Kind::object && (value.cls == Class::tensor || value.cls == Class::bytes)) {
            const bool tensor = value.cls == Class::tensor;
            if (tensor) {
                if (tensorByName_.size() <= key.a)
                    tensorByName_.resize(std::max<size_t>(key.a + 1, tensorByName_.size() * 2));
                tensorByName_[key.a] = value.a + 1;
            }
            return appendRow(out_.entries, dict.entries, MetaEntry{key.a, tensor ? value.a : kNone});
        }
        if (key.a >= kWordCount && (value.kind == Kind::tuple || value.kind == Kind::ints)) {
            SHARDSCOPE_TRY(addPath(dict, key.a, value));
            release(value);
            return {};
        }
    }
    if (dict.items.count + 2 > kMaxItems)
        return makeError(ErrorCode::limit, "a dictionary is too large").at(here());
    SHARDSCOPE_TRY(appendItem(dict.items, key));
    return appendItem(dict.items, value);
}

Status MetadataMachine::setItems(uint32_t target, uint32_t first) {
    const size_t end = stack_.size();
    if ((end - first) % 2) return bad("a dictionary is given a key without a value");
    Value& container = stack_[target];
    if (container.kind == Kind::dict) {
        // The state of an object whose BUILD follows: straight into the object.
        const bool state = target > 0 && p_ < end_ && *p_ == kBuild && container.a >= dictPin_ &&
                           container.a + 1 == dicts_.size() && dicts_.back().empty() &&
                           stack_[target - 1].kind == Kind::object &&
                           (marks_.empty() || marks_.back() < target);
        if (state) {
            Value& object = stack_[target - 1];
            for (size_t i = first; i < end; i += 2)
                SHARDSCOPE_TRY(apply(object, stack_[i], stack_[i + 1]));
            dicts_.pop_back();
            stack_.resize(target);
            ++p_;
            return {};
        }
        if (first < end && stack_[first].kind == Kind::object && stack_[first].cls == Class::index)
            matchChunks(first, end);
        for (size_t i = first; i < end; i += 2)
            SHARDSCOPE_TRY(addPair(container, stack_[i], stack_[i + 1]));
    }
    stack_.resize(first);
    return {};
}

Status MetadataMachine::addItems(uint32_t target, uint32_t first) {
    const Value container = stack_[target];
    if (container.kind == Kind::list) {
        for (size_t i = first; i < stack_.size(); ++i) {
            const Value& value = stack_[i];
            List& list = lists_[container.a];
            if (value.kind == Kind::object && value.cls == Class::chunk) {
                Slice& slice = list.chunks;
                if (slice.count == 0) slice.first = value.a;
                if (slice.end() == value.a) {
                    ++slice.count;
                } else {
                    const MetaChunk copy = out_.chunks[value.a];
                    SHARDSCOPE_TRY(appendRow(out_.chunks, slice, copy));
                }
            } else {
                SHARDSCOPE_TRY(appendItem(list.items, value));
            }
        }
    }
    stack_.resize(first);
    return {};
}

}  // namespace shardscope::dcp
