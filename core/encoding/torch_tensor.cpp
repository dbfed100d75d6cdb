#include "encoding/torch_tensor.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/numbers.h"
#include "base/rule.h"
#include "base/text.h"
#include "base/units.h"

namespace shardscope {

namespace {

struct StorageClass {
    DType dtype;
    std::string_view name;
};
// Classes of torch; dtypes that are not here have none and go through UntypedStorage.
constexpr std::array kStorageClasses{
    StorageClass{DType::float64, "DoubleStorage"},
    StorageClass{DType::float32, "FloatStorage"},
    StorageClass{DType::float16, "HalfStorage"},
    StorageClass{DType::bfloat16, "BFloat16Storage"},
    StorageClass{DType::int64, "LongStorage"},
    StorageClass{DType::int32, "IntStorage"},
    StorageClass{DType::int16, "ShortStorage"},
    StorageClass{DType::int8, "CharStorage"},
    StorageClass{DType::uint8, "ByteStorage"},
    StorageClass{DType::boolean, "BoolStorage"},
    StorageClass{DType::complex128, "ComplexDoubleStorage"},
    StorageClass{DType::complex64, "ComplexFloatStorage"},
    StorageClass{DType::qint8, "QInt8Storage"},
    StorageClass{DType::quint8, "QUInt8Storage"},
    StorageClass{DType::qint32, "QInt32Storage"},
    StorageClass{DType::quint4x2, "QUInt4x2Storage"},
    StorageClass{DType::quint2x4, "QUInt2x4Storage"},
};

constexpr int kMaxWrappers = 16;  // a Parameter of a subclass of a Parameter ...

bool asInteger(const ValueGraph& graph, NodeId node, int64_t& value) {
    if (graph.kind(node) != ValueKind::integer) return false;
    value = graph.integer(node);
    return true;
}

Error badTensor(std::string what) {
    return damaged("a tensor in the pickle is malformed: " + std::move(what));
}

// Interprets a storage and the arguments around it.
Result<TorchTensor> denseTensor(const ValueGraph& graph, NodeId storage, NodeId offset, NodeId size,
                                NodeId stride) {
    TorchTensor tensor;
    SHARDSCOPE_ASSIGN(tensor.storage, asTorchStorage(graph, storage));
    if (!asInteger(graph, offset, tensor.storageOffset) || tensor.storageOffset < 0) {
        return badTensor("the storage offset is not a non-negative integer");
    }
    SHARDSCOPE_ASSIGN(tensor.shape, asDims(graph, size, "the size"));
    SHARDSCOPE_ASSIGN(tensor.strides, asDims(graph, stride, "the stride"));
    if (tensor.shape.size() != tensor.strides.size()) {
        return badTensor(fmt::format("{}, but {}", counted(tensor.shape.size(), "size"),
                                     counted(tensor.strides.size(), "stride")));
    }
    for (size_t i = 0; i < tensor.shape.size(); ++i) {
        if (tensor.shape[i] < 0)
            return badTensor(fmt::format("the size {} is negative", formatDims(tensor.shape)));
        if (tensor.strides[i] < 0)
            return badTensor(fmt::format("the stride {} is negative", formatDims(tensor.strides)));
    }
    int64_t count = 0;
    if (!checkedProduct(tensor.shape, count)) {
        return badTensor(fmt::format("the number of elements of {} overflows", formatDims(tensor.shape)));
    }
    return tensor;
}

Status takeMetadata(const ValueGraph& graph, NodeId metadata, TorchTensor& tensor) {
    if (graph.kind(metadata) == ValueKind::none) return {};
    if (!graph.isMapping(metadata)) return badTensor("its metadata is not a dict");
    for (const auto& [key, flag] : {std::pair{"conj", &tensor.conjugate}, std::pair{"neg", &tensor.negate}}) {
        const NodeId value = graph.find(metadata, key);
        if (value == kNoNode) continue;
        if (graph.kind(value) != ValueKind::boolean)
            return badTensor(fmt::format("its '{}' is not a bool", key));
        *flag = graph.boolean(value);
    }
    return {};
}

// The legacy view moves the tensor inside its storage.
Status applyView(TorchTensor& tensor) {
    const TorchStorage& storage = tensor.storage;
    if (!storage.viewElements) return {};
    TorchTensor inView = tensor;
    inView.storage.elements = *storage.viewElements;
    SHARDSCOPE_TRY(storageSpan(inView));
    int64_t offset = 0;
    if (!checkedAdd(tensor.storageOffset, static_cast<int64_t>(storage.viewOffset), offset)) {
        return badTensor("the storage offset overflows");
    }
    tensor.storageOffset = offset;
    return {};
}

Result<std::optional<TorchTensor>> interpret(const ValueGraph& graph, NodeId node, int wrappers);

// What rebuild function `callable` makes of `arguments`.
Result<std::optional<TorchTensor>> rebuild(const ValueGraph& graph, NodeId callable, NodeId arguments,
                                           int wrappers) {
    if (graph.kind(callable) != ValueKind::global || graph.kind(arguments) != ValueKind::tuple)
        return {std::nullopt};
    const std::span<const NodeId> args = graph.items(arguments);
    const std::string_view module = graph.globalModule(callable);
    const std::string_view name = graph.globalName(callable);
    const auto arity = [&](size_t least, size_t most) -> Status {
        if (args.size() >= least && args.size() <= most) return {};
        return badTensor(fmt::format("{} has {}", name, counted(args.size(), "argument")));
    };
    if (module == "torch._tensor" && (name == "_rebuild_from_type_v2" || name == "_rebuild_from_type")) {
        SHARDSCOPE_TRY(arity(4, 4));
        SHARDSCOPE_ASSIGN(auto inner, rebuild(graph, args[0], args[2], wrappers));
        if (inner && inner->wrapper.empty() && !graph.isGlobal(args[1], "torch", "Tensor") &&
            graph.kind(args[1]) == ValueKind::global) {
            inner->wrapper = graph.globalName(args[1]);
        }
        return inner;
    }
    if (module != "torch._utils") return {std::nullopt};
    if (name == "_rebuild_tensor") {
        SHARDSCOPE_TRY(arity(4, 4));
        SHARDSCOPE_ASSIGN(TorchTensor tensor, denseTensor(graph, args[0], args[1], args[2], args[3]));
        if (!tensor.storage.dtype) return badTensor("an untyped storage without a dtype");
        tensor.dtype = *tensor.storage.dtype;
        SHARDSCOPE_TRY(applyView(tensor));
        return {std::move(tensor)};
    }
    if (name == "_rebuild_tensor_v2") {
        SHARDSCOPE_TRY(arity(6, 7));
        SHARDSCOPE_ASSIGN(TorchTensor tensor, denseTensor(graph, args[0], args[1], args[2], args[3]));
        if (!tensor.storage.dtype) return badTensor("an untyped storage without a dtype");
        tensor.dtype = *tensor.storage.dtype;
        if (args.size() > 6) SHARDSCOPE_TRY(takeMetadata(graph, args[6], tensor));
        SHARDSCOPE_TRY(applyView(tensor));
        return {std::move(tensor)};
    }
    if (name == "_rebuild_tensor_v3") {
        SHARDSCOPE_TRY(arity(7, 8));
        SHARDSCOPE_ASSIGN(TorchTensor tensor, denseTensor(graph, args[0], args[1], args[2], args[3]));
        if (graph.kind(args[6]) != ValueKind::global) return badTensor("its dtype is not a name");
        const auto dtype = dtypeFromTorchGlobal(graph.globalModule(args[6]), graph.globalName(args[6]));
        if (!dtype) {
            return unsupported(fmt::format("the dtype {}.{} is not known",
                                           printable(graph.globalModule(args[6]), kNameInMessage),
                                           printable(graph.globalName(args[6]), kNameInMessage)));
        }
        tensor.dtype = *dtype;
        if (args.size() > 7) SHARDSCOPE_TRY(takeMetadata(graph, args[7], tensor));
        SHARDSCOPE_TRY(applyView(tensor));
        return {std::move(tensor)};
    }
    if (name == "_rebuild_parameter" || name == "_rebuild_parameter_with_state") {
        SHARDSCOPE_TRY(arity(3, 4));
        SHARDSCOPE_ASSIGN(auto inner, interpret(graph, args[0], wrappers + 1));
        if (inner) inner->wrapper = "Parameter";
        return inner;
    }
    if (name == "_rebuild_device_tensor_from_cpu_tensor") {
        SHARDSCOPE_TRY(arity(4, 4));
        SHARDSCOPE_ASSIGN(auto inner, interpret(graph, args[0], wrappers + 1));
        if (!inner) return inner;
        const auto dtype = graph.kind(args[1]) == ValueKind::global
                               ? dtypeFromTorchGlobal(graph.globalModule(args[1]), graph.globalName(args[1]))
                               : std::nullopt;
        if (dtype != inner->dtype)
            return unsupported("a device tensor is to become another dtype when it is loaded");
        return inner;
    }
    return {std::nullopt};
}

Result<std::optional<TorchTensor>> interpret(const ValueGraph& graph, NodeId node, int wrappers) {
    if (wrappers > kMaxWrappers) return badTensor("it is wrapped too many times");
    if (graph.kind(node) != ValueKind::object) return {std::nullopt};
    const ValueObject& object = graph.object(node);
    if (object.made == ValueObject::Made::reduce) {
        SHARDSCOPE_ASSIGN(auto tensor, rebuild(graph, object.callable, object.arguments, wrappers));
        // torch would replace the tensor's data with what the state says.
        if (tensor && (object.state != kNoNode || object.appended != kNoNode || object.pairs != kNoNode)) {
            return badTensor("it is changed after it was made");
        }
        return tensor;
    }
    // Before rebuild functions: cls.__new__(cls), then a state.
    if (object.made != ValueObject::Made::newObject || graph.kind(object.callable) != ValueKind::global ||
        object.state == kNoNode || graph.kind(object.state) != ValueKind::tuple) {
        return {std::nullopt};
    }
    const std::string_view module = graph.globalModule(object.callable);
    const std::string_view name = graph.globalName(object.callable);
    const std::span<const NodeId> state = graph.items(object.state);
    if (name == "Parameter" && (module == "torch.nn.parameter" || module == "torch.nn")) {
        if (state.size() < 2 || state.size() > 3)
            return badTensor("a Parameter's state has another length than 2 or 3");
        SHARDSCOPE_ASSIGN(auto inner, interpret(graph, state[0], wrappers + 1));
        if (inner) inner->wrapper = "Parameter";
        return inner;
    }
    if ((module == "torch" || module == "torch.cuda") && name.ends_with("Tensor") && state.size() == 4) {
        SHARDSCOPE_ASSIGN(TorchTensor tensor, denseTensor(graph, state[0], state[1], state[2], state[3]));
        if (!tensor.storage.dtype) return badTensor("an untyped storage without a dtype");
        tensor.dtype = *tensor.storage.dtype;
        SHARDSCOPE_TRY(applyView(tensor));
        return {std::move(tensor)};
    }
    return {std::nullopt};
}

}  // namespace

std::optional<DType> dtypeFromTorchGlobal(std::string_view module, std::string_view name) {
    if (module != "torch") return std::nullopt;
    // Only torch's own names, not the short ones that dtypeFromName also knows.
    const auto dtype = dtypeFromName(name);
    return dtype && dtypeName(*dtype) == name && dtypeIsWholeBytes(*dtype) ? dtype : std::nullopt;
}

std::optional<DType> dtypeFromStorageClass(std::string_view className) {
    for (const StorageClass& c : kStorageClasses) {
        if (c.name == className) return c.dtype;
    }
    return std::nullopt;
}

std::string_view storageClassName(DType dtype) {
    for (const StorageClass& c : kStorageClasses) {
        if (c.dtype == dtype) return c.name;
    }
    return {};
}

bool TorchTensor::rowMajor() const {
    int64_t expected = 1;
    for (size_t i = shape.size(); i-- > 0;) {
        if (shape[i] == 0) return true;
        if (shape[i] == 1) continue;
        if (strides[i] != expected) return false;
        expected *= shape[i];  // their product has been checked
    }
    return true;
}

Result<uint64_t> storageBytes(const TorchStorage& storage) {
    uint64_t bytes = storage.elements;
    if (storage.dtype && !checkedMul<uint64_t>(bytes, dtypeBytes(*storage.dtype), bytes)) {
        return badTensor(
            fmt::format("the size of its storage of {} overflows", counted(storage.elements, "element")));
    }
    return bytes;
}

Result<TorchStorage> asTorchStorage(const ValueGraph& graph, NodeId node) {
    if (graph.kind(node) != ValueKind::persistent) return badTensor("it has no storage");
    const NodeId id = graph.items(node)[0];
    if (graph.kind(id) != ValueKind::tuple)
        return badTensor("the persistent id of its storage is not a tuple");
    const std::span<const NodeId> parts = graph.items(id);
    if (parts.size() < 5 || parts.size() > 6 || !graph.isText(parts[0], "storage")) {
        return badTensor(
            "the persistent id of its storage has not the form ('storage', class, key, location, size)");
    }
    TorchStorage storage;
    if (graph.kind(parts[1]) != ValueKind::global) return badTensor("the class of its storage is not a name");
    // As torch does: by the last component, whatever the module.
    std::string_view className = graph.globalName(parts[1]);
    if (const size_t dot = className.rfind('.'); dot != className.npos) className.remove_prefix(dot + 1);
    storage.dtype = dtypeFromStorageClass(className);
    if (!storage.dtype && className != "UntypedStorage") {
        return unsupported(
            fmt::format("the storage class {} is not known", printable(className, kNameInMessage)));
    }
    if (graph.kind(parts[2]) == ValueKind::text) {
        storage.key = graph.text(parts[2]);
    } else if (graph.kind(parts[2]) == ValueKind::integer) {
        storage.key = std::to_string(graph.integer(parts[2]));
    } else {
        return badTensor("the key of its storage is neither text nor a number");
    }
    if (storage.key.empty() || storage.key.size() > 4096)
        return badTensor("the key of its storage is empty or too long");
    if (graph.kind(parts[3]) != ValueKind::text) return badTensor("the device of its storage is not text");
    storage.location = graph.text(parts[3]);
    int64_t elements = 0;
    if (!asInteger(graph, parts[4], elements) || elements < 0) {
        return badTensor("the size of its storage is not a non-negative integer");
    }
    storage.elements = static_cast<uint64_t>(elements);
    if (parts.size() == 6 && graph.kind(parts[5]) != ValueKind::none) {
        if (graph.kind(parts[5]) != ValueKind::tuple || graph.items(parts[5]).size() != 3) {
            return badTensor("its storage is a view of another form than (key, offset, size)");
        }
        int64_t offset = 0, size = 0;
        if (!asInteger(graph, graph.items(parts[5])[1], offset) ||
            !asInteger(graph, graph.items(parts[5])[2], size) || offset < 0 || size < 0 ||
            !rangeFits(static_cast<uint64_t>(offset), static_cast<uint64_t>(size), storage.elements)) {
            return badTensor("its storage is a view that leaves the storage");
        }
        storage.viewOffset = static_cast<uint64_t>(offset);
        storage.viewElements = static_cast<uint64_t>(size);
    }
    SHARDSCOPE_TRY(storageBytes(storage));
    return storage;
}

Result<Dims> asDims(ValueView value, std::string_view what) {
    if (!value) return badTensor(fmt::format("{} is missing", what));
    return asDims(value.graph(), value.node(), what);
}

Result<Dims> asDims(const ValueGraph& graph, NodeId node, std::string_view what) {
    if (graph.kind(node) == ValueKind::object &&
        graph.isGlobal(graph.object(node).callable, "torch", "Size") &&
        graph.kind(graph.object(node).arguments) == ValueKind::tuple &&
        graph.items(graph.object(node).arguments).size() == 1) {
        node = graph.items(graph.object(node).arguments)[0];
    }
    const ValueKind kind = graph.kind(node);
    if (kind != ValueKind::tuple && kind != ValueKind::list)
        return badTensor(fmt::format("{} is not a tuple", what));
    const std::span<const NodeId> items = graph.items(node);
    if (items.size() > kMaxRank) {
        return makeError(ErrorCode::limit, fmt::format("{} has {}, more than the {} that are read", what,
                                                       counted(items.size(), "dimension"), kMaxRank));
    }
    Dims dims(items.size());
    for (size_t i = 0; i < items.size(); ++i) {
        if (!asInteger(graph, items[i], dims[i]))
            return badTensor(fmt::format("{} holds something else than integers", what));
    }
    return dims;
}

Result<StorageSpan> storageSpan(const TorchTensor& tensor) {
    const uint64_t itemBytes = dtypeBytes(tensor.dtype);
    SHARDSCOPE_ASSIGN(const uint64_t available, storageBytes(tensor.storage));
    __int128 last = tensor.storageOffset;
    for (size_t i = 0; i < tensor.shape.size(); ++i) {
        if (tensor.shape[i] == 0) return StorageSpan{};
        last += static_cast<__int128>(tensor.shape[i] - 1) * tensor.strides[i];
    }
    const __int128 end = (last + 1) * static_cast<__int128>(itemBytes);
    if (end > static_cast<__int128>(available)) {
        return badTensor(
            fmt::format("shape {} with strides {} from element {} on needs more than the {} of its storage",
                        formatDims(tensor.shape), formatDims(tensor.strides), tensor.storageOffset,
                        counted(available, "byte")));
    }
    return StorageSpan{static_cast<uint64_t>(tensor.storageOffset) * itemBytes, static_cast<uint64_t>(end)};
}

Result<std::optional<TorchTensor>> asTorchTensor(const ValueGraph& graph, NodeId node) {
    return interpret(graph, node, 0);
}

// ------------------------------------------------------------------ archives

namespace {

Result<std::string> smallRecord(const TorchArchive& archive, const ZipEntry& entry) {
    constexpr uint64_t kMaxSmallRecord = 4096;
    return readZipEntry(archive.zip, entry, kMaxSmallRecord);
}

std::optional<int> numberOfLine(std::string_view text) {
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' '))
        text.remove_suffix(1);
    return parseNumber<int>(text);
}

}  // namespace

Result<const ZipEntry*> TorchArchive::storageEntry(const TorchTensor& tensor) const {
    const ZipEntry* entry = zip.find(fmt::format("{}/data/{}", prefix, tensor.storage.key));
    if (!entry) {
        return damaged(fmt::format("the archive has no record data/{} for a storage",
                                   printable(tensor.storage.key, kNameInMessage)))
            .inFile(zip.file->path());
    }
    SHARDSCOPE_ASSIGN(const uint64_t bytes, storageBytes(tensor.storage));
    if (entry->size < bytes) {
        return damaged(fmt::format("the record '{}' has {}, its storage needs {}",
                                   printable(entry->name, kNameInMessage), counted(entry->size, "byte"),
                                   countText(bytes)),
                       zip.offset + entry->headerOffset)
            .inFile(zip.file->path())
            .byRule(rule::fileTruncated);
    }
    SHARDSCOPE_TRY(storageSpan(tensor));
    return entry;
}

Result<TorchArchive> openTorchArchive(std::shared_ptr<const ReadFile> file, uint64_t offset, uint64_t length,
                                      const PickleLimits& limits) {
    constexpr uint64_t kHeadBytes =
        2048;  // data.pkl, the small records and the first storage's header of a small archive
    constexpr uint64_t kMaxPickle = uint64_t{2} << 30;
    // A deflated pickle of a few kilobytes could otherwise claim gigabytes of values.
    constexpr uint64_t kFreeInflation = uint64_t{16} << 20;
    constexpr uint64_t kMaxInflation = 64;
    TorchArchive archive;
    SHARDSCOPE_ASSIGN(archive.zip, openZip(std::move(file), offset, length));
    ZipArchive& zip = archive.zip;
    const std::string path = zip.file->path();
    if (zip.entries.empty()) return damaged("the archive is empty", offset).inFile(path);
    const std::string& firstName = zip.entries[0].name;
    const size_t slash = firstName.find('/');
    if (slash == firstName.npos) {
        return unsupported(fmt::format("a zip archive, but not of torch.save: '{}' is in no folder",
                                       printable(firstName, kNameInMessage)))
            .inFile(path);
    }
    archive.prefix = firstName.substr(0, slash);
    for (const ZipEntry& entry : zip.entries) {
        if (!entry.name.starts_with(archive.prefix + "/")) {
            return damaged(fmt::format("the entry '{}' is not in the folder '{}' of the others",
                                       printable(entry.name, kNameInMessage),
                                       printable(archive.prefix, kNameInMessage)),
                           offset + entry.headerOffset)
                .inFile(path);
        }
    }
    const auto record = [&](std::string_view name) {
        return zip.find(fmt::format("{}/{}", archive.prefix, name));
    };
    if (record("constants.pkl")) {
        return unsupported("a TorchScript archive: it holds a program, which is never run here")
            .inFile(path)
            .withHint("save the model's state_dict() with torch.save and use that file");
    }
    const ZipEntry* pickle = record("data.pkl");
    if (!pickle)
        return unsupported("a zip archive, but not of torch.save: it has no data.pkl")
            .inFile(path)
            .withHint("if it is a directory that was packed, unpack it first");
    SHARDSCOPE_TRY(zip.readHead(kHeadBytes));

    const ZipEntry* version = record("version");
    if (!version) version = record(".data/version");
    if (version) {
        SHARDSCOPE_ASSIGN(const std::string text, smallRecord(archive, *version));
        const auto number = numberOfLine(text);
        if (!number || *number < 1 || *number > 10) {
            return unsupported(fmt::format("the archive has version '{}'; 1 to 10 are read",
                                           printable(text, kNameInMessage)))
                .inFile(path);
        }
    } else {
        zip.warnings.push_back("the archive has no version record; torch.load refuses it");
    }
    if (const ZipEntry* order = record("byteorder")) {
        SHARDSCOPE_ASSIGN(const std::string text, smallRecord(archive, *order));
        if (text != "little" && text != "big") {
            return unsupported(fmt::format("the byte order '{}' is neither little nor big",
                                           printable(text, kNameInMessage)))
                .inFile(path);
        }
        archive.bigEndian = text == "big";
    }
    if (const ZipEntry* alignment = record(".storage_alignment")) {
        SHARDSCOPE_ASSIGN(const std::string text, smallRecord(archive, *alignment));
        archive.alignment = numberOfLine(text).value_or(0);
        if (archive.alignment < 1) {
            return damaged(fmt::format("the storage alignment '{}' is not a positive number",
                                       printable(text, kNameInMessage)),
                           offset + alignment->headerOffset)
                .inFile(path);
        }
    }
    if (pickle->method != 0 && pickle->size > kFreeInflation &&
        pickle->size / kMaxInflation > pickle->compressedSize) {
        return makeError(ErrorCode::limit,
                         fmt::format("the pickle grows from {} to {} when it is inflated, more than {} times",
                                     countText(pickle->compressedSize), counted(pickle->size, "byte"),
                                     countText(kMaxInflation)))
            .inFile(path)
            .at(offset + pickle->headerOffset)
            .withHint("torch.save never deflates; if you trust this file, store its records uncompressed");
    }
    SHARDSCOPE_ASSIGN(const std::string bytes, readZipEntry(zip, *pickle, kMaxPickle));
    SHARDSCOPE_ASSIGN(const uint64_t pickleAt, zipDataOffset(zip, *pickle));
    const auto placed = [&](Error error) -> Error {
        error.location.offset = pickle->method == 0 ? pickleAt + error.location.offset.value_or(0) : pickleAt;
        return std::move(error).inFile(path);
    };
    auto decoded = decodePickle(std::as_bytes(std::span(bytes)), limits);
    if (!decoded.ok()) return placed(std::move(decoded).error());
    archive.pickle = std::move(decoded).value();
    if (archive.pickle.length != bytes.size()) {
        return placed(damaged(fmt::format("data.pkl has {} behind the end of its pickle",
                                          counted(bytes.size() - archive.pickle.length, "byte")),
                              archive.pickle.length));
    }
    return archive;
}

// ------------------------------------------------------------------ writing

void TorchTensorPickler::dims(DimSpan values) {
    if (values.empty()) return out_.emptyTuple();
    out_.beginTuple(values.size());
    for (int64_t v : values)
        out_.integer(v);
    out_.endTuple(values.size());
    out_.put();
}

void TorchTensorPickler::tensor(DType dtype, std::string_view key, uint64_t storageElements,
                                int64_t storageOffset, DimSpan shape, DimSpan strides) {
    const std::string_view storageClass = storageClassName(dtype);
    const bool typed = !storageClass.empty();
    out_.memoGlobal("torch._utils", typed ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
    out_.mark();
    out_.mark();
    out_.memoText("storage");
    if (typed) {
        out_.memoGlobal("torch", storageClass);
    } else {
        out_.memoGlobal("torch.storage", "UntypedStorage");
    }
    out_.memoText(key);
    out_.memoText("cpu");
    out_.integer(static_cast<int64_t>(typed ? storageElements : storageElements * dtypeBytes(dtype)));
    out_.tuple();
    out_.put();
    out_.persistentId();
    out_.integer(storageOffset);
    dims(shape);
    dims(strides);
    out_.boolean(false);  // requires_grad
    out_.memoGlobal("collections", "OrderedDict");
    out_.emptyTuple();
    out_.reduce();
    out_.put();
    if (!typed) out_.memoGlobal("torch", dtypeName(dtype));
    out_.tuple();
    out_.put();
    out_.reduce();
    out_.put();
}

std::string pickleOneTensor(DType dtype, DimSpan shape) {
    PickleWriter writer;
    // torch's strides of a contiguous tensor never shrink to 0 behind an empty dimension.
    Dims strides(shape.size(), 1);
    for (size_t i = shape.size(); i-- > 1;)
        strides[i - 1] = strides[i] * std::max<int64_t>(shape[i], 1);
    TorchTensorPickler(writer).tensor(dtype, "0", static_cast<uint64_t>(elementCount(shape)), 0, shape,
                                      strides);
    return writer.finish();
}

}  // namespace shardscope
