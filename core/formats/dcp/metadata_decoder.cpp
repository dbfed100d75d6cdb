// A `.metadata` pickle as columns: which of its objects are rows, and what their attributes mean.
#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "base/large_pages.h"
#include "base/names.h"
#include "base/units.h"
#include "encoding/pickle_rows.h"
#include "formats/dcp/metadata.h"

namespace shardscope::dcp {

namespace {

// Attribute names; their TextIds are their places here.
constexpr std::array kWords = std::to_array<std::string_view>(
    {"offsets", "sizes", "fqn", "offset", "relative_path", "length", "transform_descriptors", "properties",
     "size", "chunks", "state_dict_metadata", "planner_data", "storage_data", "version", "dtype", "strides",
     "modules", "mcore_data", "nd_reformulated_orig_global_shape"});
consteval TextId word(std::string_view name) {
    const auto at = std::ranges::find(kWords, name);
    if (at == kWords.end()) throw "not one of the words";
    return static_cast<TextId>(at - kWords.begin());
}

enum Class : uint8_t {
    kForeign,
    kTorchSize,
    kDType,
    kMetadata,
    kTensor,
    kChunk,
    kBytes,
    kProperties,
    kMemoryFormat,
    kIndex,
    kStorageInfo,
    kStorageMeta,
    kOrderedDict,
    kReconstructor,
    kGetAttribute,
    kInert
};

class MetadataRows final : public PickleRows<MetadataRows> {
  public:
    MetadataRows(const Limits& limits, uint64_t objects) : PickleRows(kWords, limits.valueMemory) {
        out_.transforms.emplace_back();
        // A chunk is one object, its storage row two; untouched reserve costs no memory.
        const auto rows = static_cast<size_t>(objects / 3) + 16;
        out_.chunks.reserve(rows);
        out_.stored.reserve(rows);
        preferLargePages(out_.chunks);
        preferLargePages(out_.stored);
    }

    Result<Metadata> finish(const RowValue& root, int protocol);

    // --- for PickleRows
    uint8_t classify(std::string_view module, std::string_view name);
    bool construct(RowValue& object);
    bool call(const RowValue& callable, const RowValue& arguments, RowValue& made);
    bool setAttributes(RowValue& object, Pairs pairs);
    bool setState(RowValue& object, const RowValue& state, bool& done);
    bool addRow(Dict& dict, const RowValue& key, const RowValue& value, bool& done);
    bool addListRow(List& list, const RowValue& value, bool& done);
    void taken(Pairs pairs) {
        if (pairs.empty() || !pairs[0].is(kIndex)) return;
        indexes_.taken(pairs[0].a);
        if (pairs[1].is(kStorageInfo)) infos_.taken(pairs[1].a);
    }
    void pin(const RowValue& value) {
        if (value.is(kIndex)) indexes_.pin();
        if (value.is(kStorageInfo)) infos_.pin();
    }

  private:
    // Rows of a dict.
    enum { kEntryRows, kStoredRows, kPathRows };
    static constexpr uint64_t kNoLength = UINT64_MAX;
    struct IndexRecord {
        TextId name = kNone;
        DimsRef offsets{kNone, 0};
    };
    struct InfoRecord {
        TextId path = kNone;
        uint16_t transforms = 0;
        uint64_t offset = 0;
        uint64_t length = kNoLength;
    };
    struct TensorRecord {
        TextId dtype = kNone;
        bool hasProperties = false, hasShape = false;
        DimsRef shape;
        RowSlice chunks;
    };
    struct Root {
        std::optional<RowValue> stateDict, plannerData, storageData, mcoreData;
    };

    bool dimsOf(const RowValue& value, DimsRef& out);
    bool setChunk(MetaChunk& chunk, Pairs pairs);
    bool setIndex(IndexRecord& record, Pairs pairs);
    bool setInfo(InfoRecord& record, Pairs pairs);
    bool setTensor(TensorRecord& record, Pairs pairs);
    bool setRoot(Root& root, Pairs pairs);
    bool takeReformulated(const RowValue& mcoreData);
    bool transformsOf(const RowValue& value, uint16_t& out);
    bool addStored(Dict& dict, const RowValue& key, const RowValue& value);
    bool addPath(Dict& dict, TextId name, const RowValue& tuple);
    Status finishTensor(const MetaEntry& entry);

    Metadata out_;
    Passing<IndexRecord> indexes_;
    Passing<InfoRecord> infos_;
    std::vector<TensorRecord> tensors_;
    std::vector<TextId> properties_;  // the dtype of each TensorProperties
    std::vector<Root> roots_;
};

uint8_t MetadataRows::classify(std::string_view module, std::string_view name) {
    if (module.starts_with("torch.distributed._shard.checkpoint")) {
        in().failUnsupported(
            "this checkpoint was written by torch 1.12 or 1.13, whose first generation of the distributed "
            "checkpoint format is not read",
            "load it with that torch version and save it again with torch 2.0 or later");
        return kForeign;
    }
    if (module == "torch") {
        if (name == "Size") return kTorchSize;
        if (isAmong(name, {"device", "layout", "memory_format"})) return kInert;
        // Also dtypes that are not known here: uint4, int3, ... A class or function would be called, which
        // they are not.
        return kDType;
    }
    if (module == "torch.serialization" && name == "_get_layout") return kInert;
    const bool checkpoint = module.starts_with("torch.distributed.checkpoint.");
    if (checkpoint || module == "torch.distributed._shard.sharded_tensor.metadata") {
        if (name == "TensorProperties") {
            if (!checkpoint) out_.oldProperties = true;
            return kProperties;
        }
        if (name.ends_with("MEM_FORMAT_ENCODING")) return kMemoryFormat;
    }
    if (checkpoint) {
        if (name == "Metadata") return kMetadata;
        if (name == "TensorStorageMetadata") return kTensor;
        if (name == "ChunkStorageMetadata") return kChunk;
        if (name == "BytesStorageMetadata") return kBytes;
        if (name == "MetadataIndex") return kIndex;
        if (name == "StorageMeta") return kStorageMeta;
        if (name == "_StorageInfo") return kStorageInfo;
    }
    // OLMo-core's writer has a class of its own, with the same attributes.
    if (module == "olmo_core.distributed.checkpoint.filesystem" && name == "_StorageInfo")
        return kStorageInfo;
    if (module == "collections") {
        if (name == "OrderedDict") return kOrderedDict;
        if (isAmong(name, {"defaultdict", "Counter", "ChainMap", "deque"})) return kInert;
    }
    if (module == "copyreg" && name == "_reconstructor") return kReconstructor;
    if (module == "builtins") {
        if (name == "getattr") return kGetAttribute;
        if (isAmong(name, {"set", "frozenset", "list", "tuple", "dict", "str", "int", "float", "complex",
                           "bytes", "bytearray", "object", "bool", "range", "slice"}))
            return kInert;
    }
    if (module == "_codecs" && name == "encode") return kInert;
    const bool path = module == "pathlib" || module.starts_with("pathlib.");
    if (path && isAmong(name, {"PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath", "Path"}))
        return kInert;
    return kForeign;
}

bool MetadataRows::construct(RowValue& object) {
    switch (object.cls) {
        case kMetadata:
            return record(object, roots_);
        case kTensor:
            return record(object, tensors_);
        case kChunk:
            return record(object, out_.chunks, {kNone, kNone, 0});
        case kProperties:
            return record(object, properties_, kNone);
        case kIndex:
            return record(object, indexes_);
        case kStorageInfo:
            return record(object, infos_);
        case kStorageMeta:
            out_.hasStorageMeta = true;
            return true;
        case kBytes:
            return true;
        case kOrderedDict:
            object = {Kind::dict, 0, kNone, 0};
            return true;
        default:
            object = {Kind::opaque, 0, 0, 1};
            return true;
    }
}

bool MetadataRows::call(const RowValue& callable, const RowValue& arguments, RowValue& made) {
    RowGlobal& global = globals_[callable.a];
    switch (callable.cls) {
        case kTorchSize: {
            const auto items = itemsOf(arguments);
            const RowValue& ints = items.size() == 1 ? items[0] : arguments;
            made = {Kind::ints, 0, ints.a, ints.b};
            return arguments.kind == Kind::oneInts ||
                   (ints.kind == Kind::ints && (items.size() == 1 || ints.b == 0)) ||
                   in().fail("a torch.Size is made of something else than integers");
        }
        case kReconstructor:  // protocols 0 and 1: _reconstructor(cls, object, None)
            return itemsOf(arguments).empty() || newObject(itemsOf(arguments)[0], {}, nullptr, made);
        case kGetAttribute: {
            const auto items = itemsOf(arguments);
            if (items.size() == 2 && items[0].isGlobal(kMemoryFormat)) return true;
            global.cls = kForeign;
            global.called = true;
            return true;
        }
        case kDType:
            global.called = true;
            return true;
        default:
            made = {Kind::object, callable.cls, kNone, callable.a};
            return construct(made);
    }
}

bool MetadataRows::dimsOf(const RowValue& value, DimsRef& out) {
    if (value.kind != Kind::ints) return in().fail("a shape or offset is not a torch.Size");
    if (value.b > int64_t{kMaxRank})
        return in().failLimit(
            fmt::format("{} are more than the {} that are read", counted(value.b, "dimension"), kMaxRank));
    out = {value.a, static_cast<uint8_t>(value.b)};
    return true;
}

bool MetadataRows::transformsOf(const RowValue& value, uint16_t& out) {
    std::vector<std::string> names;
    const bool empty =
        value.kind == Kind::none || value.kind == Kind::list || (value.kind == Kind::ints && !value.b);
    if (!empty && value.kind != Kind::tuple) return in().fail("transform_descriptors is not a list of names");
    for (const RowValue& item : itemsOf(value)) {
        if (item.kind != Kind::text) return in().fail("transform_descriptors is not a list of names");
        names.emplace_back(texts_[item.a]);
        if (names.size() > 16) return in().failLimit("an entry went through more than 16 transforms");
    }
    const auto known = std::ranges::find(out_.transforms, names);
    out = static_cast<uint16_t>(known - out_.transforms.begin());
    if (known != out_.transforms.end()) return true;
    if (out_.transforms.size() >= 256) return in().failLimit("more than 255 kinds of transforms");
    out_.transforms.push_back(std::move(names));
    return true;
}

bool MetadataRows::setChunk(MetaChunk& chunk, Pairs pairs) {
    return eachAttribute(pairs, [&](TextId named, const RowValue& value) {
        const bool offsets = named == word("offsets");
        if (!offsets && named != word("sizes")) return true;
        DimsRef ref;
        if (!dimsOf(value, ref)) return false;
        if ((offsets ? chunk.lengths : chunk.offsets) != kNone && chunk.rank != ref.rank)
            return in().fail("the offsets and sizes of a chunk differ in their number of dimensions");
        chunk.rank = ref.rank;
        (offsets ? chunk.offsets : chunk.lengths) = ref.at;
        return true;
    });
}

bool MetadataRows::setIndex(IndexRecord& record, Pairs pairs) {
    return eachAttribute(pairs, [&](TextId named, const RowValue& value) {
        if (named == word("fqn")) {
            if (value.kind != Kind::text) return in().fail("the fqn of a storage key is not a text");
            record.name = value.a;
        } else if (named == word("offset")) {
            record.offsets = {kNone, 0};
            if (value.kind != Kind::none && !dimsOf(value, record.offsets)) return false;
        }
        return true;
    });
}

bool MetadataRows::setInfo(InfoRecord& record, Pairs pairs) {
    return eachAttribute(pairs, [&](TextId named, const RowValue& value) {
        if (named == word("relative_path")) {
            if (value.kind != Kind::text)
                return in().fail("the relative_path of a storage entry is not a text");
            record.path = value.a;
        } else if (named == word("offset") || named == word("length")) {
            if (value.kind != Kind::integer || value.b < 0)
                return in().fail(
                    fmt::format("the {} of a storage entry is not a number of bytes", texts_[named]));
            (named == word("offset") ? record.offset : record.length) = static_cast<uint64_t>(value.b);
        } else if (named == word("transform_descriptors")) {
            if (!transformsOf(value, record.transforms)) return false;
        }
        return true;
    });
}

bool MetadataRows::setTensor(TensorRecord& record, Pairs pairs) {
    return eachAttribute(pairs, [&](TextId named, const RowValue& value) {
        if (named == word("properties")) {
            if (!value.is(kProperties))
                return in().fail("the properties of a tensor are not a TensorProperties object");
            record.hasProperties = true;
            record.dtype = properties_[value.a];
        } else if (named == word("size")) {
            if (!dimsOf(value, record.shape)) return false;
            record.hasShape = true;
        } else if (named == word("chunks")) {
            if (value.kind != Kind::list) return in().fail("the chunks of a tensor are not a list");
            if (!itemsOf(value).empty())
                return in().fail("the chunk list of a tensor holds something else than chunks");
            record.chunks = listOf(value) ? listOf(value)->rows : RowSlice{};
        }
        return true;
    });
}

bool MetadataRows::setRoot(Root& root, Pairs pairs) {
    return eachAttribute(pairs, [&](TextId named, const RowValue& value) {
        const bool dict = value.kind == Kind::dict;
        if (named == word("state_dict_metadata")) {
            if (!dict) return in().fail("state_dict_metadata is not a dictionary");
            root.stateDict = value;
        } else if (named == word("planner_data")) {
            root.plannerData = dict ? std::optional(value) : std::nullopt;
        } else if (named == word("storage_data")) {
            root.storageData = dict ? std::optional(value) : std::nullopt;
        } else if (named == word("mcore_data")) {
            root.mcoreData = dict ? std::optional(value) : std::nullopt;
        } else if (named == word("version") && value.kind == Kind::text) {
            out_.version = texts_[value.a];
        }
        return true;
    });
}

bool MetadataRows::setAttributes(RowValue& object, Pairs pairs) {
    const auto has = [&](TextId wanted) {
        return !eachAttribute(pairs, [&](TextId named, const RowValue&) { return named != wanted; });
    };
    // A subclass of Metadata, such as Megatron's, is known by its attributes.
    if (object.kind == Kind::opaque && object.b == 0 && has(word("state_dict_metadata"))) {
        object = {Kind::object, kMetadata, kNone, 0};
        construct(object);
    }
    if (object.kind != Kind::object) return true;
    switch (object.cls) {
        case kChunk:
            return setChunk(out_.chunks[object.a], pairs);
        case kIndex:
            return object.a < indexes_.size() && setIndex(indexes_[object.a], pairs);
        case kStorageInfo:
            return object.a < infos_.size() && setInfo(infos_[object.a], pairs);
        case kTensor:
            return setTensor(tensors_[object.a], pairs);
        case kMetadata:
            return setRoot(roots_[object.a], pairs);
        case kProperties:
            eachAttribute(pairs, [&](TextId named, const RowValue& value) {
                if (named == word("dtype") && value.isGlobal(kDType))
                    properties_[object.a] = globals_[value.a].name;
                return true;
            });
            out_.sixProperties |= has(word("strides"));
            return true;
        case kStorageMeta:
            out_.storageMetaModules |= has(word("modules"));
            return true;
        default:
            return true;
    }
}

// TensorProperties give their state as a tuple.
bool MetadataRows::setState(RowValue& object, const RowValue& state, bool& done) {
    const auto items = itemsOf(state);
    done = object.is(kProperties) && state.kind == Kind::tuple &&
           !(items.size() == 2 && items[1].kind == Kind::dict);
    if (!done) return true;
    if (!items[0].isGlobal(kDType)) {
        done = false;
        return in().fail("the first tensor property is not a dtype");
    }
    properties_[object.a] = globals_[items[0].a].name;
    out_.sixProperties |= items.size() >= 6;
    return true;
}

bool MetadataRows::addListRow(List& list, const RowValue& value, bool& done) {
    done = value.is(kChunk);
    return !done || joinRow(out_.chunks, list.rows, value.a);
}

bool MetadataRows::addStored(Dict& dict, const RowValue& key, const RowValue& value) {
    if (key.a >= indexes_.size() || value.a >= infos_.size())
        return in().fail("a storage entry is used a second time");
    const IndexRecord& index = indexes_[key.a];
    const InfoRecord& info = infos_[value.a];
    if (index.name == kNone) return in().fail("a storage key has no fqn");
    if (info.path == kNone || info.length == kNoLength)
        return in().fail("a storage entry lacks its relative_path or length");
    return appendRow(out_.stored, dict.rows[kStoredRows],
                     MetaStored{info.offset, info.length, index.name, info.path, index.offsets.at,
                                index.offsets.rank, info.transforms});
}

bool MetadataRows::addPath(Dict& dict, TextId name, const RowValue& tuple) {
    Path path;
    const auto count = static_cast<size_t>(tuple.b);
    if (count > kMaxValueDepth)
        return in().failLimit(fmt::format("a state dict path has {}", counted(count, "part")));
    for (size_t i = 0; i < count; ++i) {
        const RowValue part = tuple.kind == Kind::ints ? integer(dims_[tuple.a + i]) : itemsOf(tuple)[i];
        if (part.kind == Kind::integer)
            path.push_back(indexPart(part.b));
        else if (part.kind == Kind::text)
            path.push_back(keyPart(texts_[part.a]));
        else
            return true;  // not the path of a state dict
    }
    MetaPath row;
    row.name = name;
    const bool single = count == 1 && path[0].kind == PathPart::Kind::key && path[0].text == texts_[name];
    if (!single) {
        const std::string encoded = encodePath(path);
        row.at = out_.pathBytes.size();
        row.length = static_cast<uint32_t>(encoded.size());
        out_.pathBytes += encoded;
    }
    return appendRow(out_.paths, dict.rows[kPathRows], row);
}

bool MetadataRows::addRow(Dict& dict, const RowValue& key, const RowValue& value, bool& done) {
    done = true;
    if (key.is(kIndex)) {
        if (!value.is(kStorageInfo))
            return value.kind != Kind::object ||
                   in().fail("a storage key has something else than a _StorageInfo");
        return addStored(dict, key, value);
    }
    if (key.kind == Kind::text && (value.is(kTensor) || value.is(kBytes)))
        return appendRow(out_.entries, dict.rows[kEntryRows],
                         MetaEntry{key.a, value.cls == kTensor ? value.a : kNone});
    if (key.kind == Kind::text && key.a >= wordCount_ &&
        (value.kind == Kind::tuple || value.kind == Kind::ints))
        return addPath(dict, key.a, value);
    done = false;
    return true;
}

bool MetadataRows::takeReformulated(const RowValue& mcoreData) {
    const RowSlice names = dictOf(mcoreData).items;
    for (uint32_t i = 0; i + 1 < names.count; i += 2) {
        const RowValue name = itemsOf(names)[i];
        const RowValue about = itemsOf(names)[i + 1];
        if (name.kind != Kind::text || about.kind != Kind::dict) continue;
        const RowSlice fields = dictOf(about).items;
        for (uint32_t k = 0; k + 1 < fields.count; k += 2) {
            const RowValue key = itemsOf(fields)[k];
            if (key.kind != Kind::text || key.a != word("nd_reformulated_orig_global_shape")) continue;
            MetaReformulated row{name.a, {}};
            if (!dimsOf(itemsOf(fields)[k + 1], row.shape)) return false;
            out_.reformulated.push_back(row);
        }
    }
    return true;
}

Status MetadataRows::finishTensor(const MetaEntry& entry) {
    const TensorRecord& tensor = tensors_[entry.tensor];
    const auto bad = [&](std::string message) {
        return damaged(std::move(message)).ofTensor(texts_[entry.name]);
    };
    if (!tensor.hasShape) return bad("the metadata of a tensor has no size");
    if (!tensor.hasProperties || tensor.dtype == kNone) return bad("the metadata of a tensor has no dtype");
    MetaTensor& made = out_.tensors[entry.tensor];
    const std::string_view dtype = texts_[tensor.dtype];
    const auto known = dtypeFromName(dtype);
    if (known && dtypeName(*known) == dtype)
        made.dtype = *known;
    else
        made.unknownDtype = tensor.dtype;
    made.shape = tensor.shape;
    made.firstChunk = tensor.chunks.first;
    made.endChunk = tensor.chunks.end();
    for (uint32_t c = made.firstChunk; c < made.endChunk; ++c) {
        const MetaChunk& chunk = out_.chunks[c];
        if (chunk.offsets == kNone || chunk.lengths == kNone)
            return bad("a chunk lacks its offsets or sizes");
        if (chunk.rank != made.shape.rank)
            return bad(fmt::format("a chunk has {}, its tensor has {}", counted(chunk.rank, "dimension"),
                                   made.shape.rank));
    }
    return {};
}

Result<Metadata> MetadataRows::finish(const RowValue& root, int protocol) {
    if (!root.is(kMetadata))
        return damaged("the pickle does not hold the Metadata of a distributed checkpoint");
    const Root& record = roots_[root.a];
    if (!record.stateDict) return damaged("the Metadata has no state_dict_metadata");
    const Dict entries = dictOf(*record.stateDict);
    const Dict stored = dictOf(record.storageData.value_or(RowValue{}));
    Dict paths = dictOf(record.plannerData.value_or(RowValue{}));
    if (entries.items.count)
        return damaged("state_dict_metadata holds something else than tensors and bytes");
    if (stored.items.count) return damaged("storage_data holds something else than storage entries");
    // Keys that are also attribute names were kept as plain pairs.
    for (uint32_t i = 0; i < paths.items.count; i += 2) {
        const RowValue key = itemsOf(paths.items)[i];
        const RowValue path = itemsOf(paths.items)[i + 1];
        if (key.kind == Kind::text && (path.kind == Kind::tuple || path.kind == Kind::ints) &&
            !addPath(paths, key.a, path))
            return in().takeError();
    }
    if (record.mcoreData && !takeReformulated(*record.mcoreData)) return in().takeError();
    out_.protocol = protocol;
    keepRows(out_.entries, entries.rows[kEntryRows]);
    keepRows(out_.stored, stored.rows[kStoredRows]);
    keepRows(out_.paths, paths.rows[kPathRows]);
    out_.tensors.resize(tensors_.size());
    for (const MetaEntry& entry : out_.entries) {
        if (entry.tensor != kNone) SHARDSCOPE_TRY(finishTensor(entry));
    }
    for (const RowGlobal& global : globals_) {
        if (global.cls == kForeign || (global.cls == kDType && global.called))
            out_.foreign.push_back({fmt::format("{}.{}", texts_[global.module], texts_[global.name]),
                                    global.called, global.offset});
    }
    out_.texts = std::move(texts_);
    out_.dims = std::move(dims_);
    return std::move(out_);
}

}  // namespace

Result<Metadata> decodeMetadata(const ReadFile& file, const Limits& limits, const StopToken& stop) {
    return decodeRows<MetadataRows>(file, limits, stop);
}

}  // namespace shardscope::dcp
