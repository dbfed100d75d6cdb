// Objects of MetadataMachine: how they are made and how their attributes are set.
#include <fmt/format.h>

#include "formats/dcp/metadata_machine.h"

namespace shardscope::dcp {

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
        error.location.offset = here();
        return false;
    }
    out.at = value.a;
    out.rank = static_cast<uint8_t>(value.b);
    return true;
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
        const bool known = word == wStateDictMetadata || word == wMcoreData;
        if (object.cls != Class::foreign || !known || value.kind != Kind::dict) return {};
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
                record.boxes = boxesOf(record.chunks);
                if (record.boxes != kNone) record.boxRank = out_.chunks[record.chunks.first].rank;
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
            } else if (word == wMcoreData) {
                root.mcoreData = dict ? value.a : kNone;
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

}  // namespace shardscope::dcp
