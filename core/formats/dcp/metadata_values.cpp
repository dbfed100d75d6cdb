// The values of MetadataMachine that are not rows: tuples, numbers, texts and what globals mean.
#include <algorithm>

#include <fmt/format.h>

#include "encoding/pickle_text.h"
#include "formats/dcp/metadata_machine.h"

namespace shardscope::dcp {

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
        value.b = pickle_text::smallInteger(bytes);
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

}  // namespace shardscope::dcp
