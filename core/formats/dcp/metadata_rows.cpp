// How lists and dictionaries of MetadataMachine are filled, and how their rows come to their columns.
#include <algorithm>

#include <fmt/format.h>

#include "formats/dcp/metadata_machine.h"

namespace shardscope::dcp {

namespace {

constexpr uint64_t kMaxMoved = uint64_t{64} << 20;

}  // namespace

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

// Where the boxes (offsets, lengths) of these chunks begin, if they follow one another; kNone.
uint32_t MetadataMachine::boxesOf(const Slice& chunks) const {
    if (chunks.count == 0) return kNone;
    const MetaChunk& first = out_.chunks[chunks.first];
    uint64_t at = first.offsets;
    for (uint32_t c = chunks.first; c < chunks.end(); ++c, at += 2 * first.rank) {
        const MetaChunk& chunk = out_.chunks[c];
        if (chunk.offsets != at || chunk.lengths != at + first.rank || chunk.rank != first.rank) return kNone;
    }
    return at <= out_.dims.size() ? first.offsets : kNone;
}

// Storage keys that are about to become rows: the chunk that the key's hint leads to, if it has the key's
// offsets. The keys' own copies of the offsets are then given back. In rounds, because the rows come rank by
// rank and the chunks lie tensor by tensor: nearly every look at a chunk misses the caches, and the misses of
// one round overlap.
template <class EachKey>
void MetadataMachine::matchChunks(EachKey&& eachKey) {
    const size_t dimCount = out_.dims.size();
    bool scattered = false;
    eachKey([&](IndexRecord& record) {
        record.chunk = kNone;
        if (!record.hasOffsets || record.name >= tensorByName_.size() || !tensorByName_[record.name]) return;
        const TensorRecord& tensor = tensors_[tensorByName_[record.name] - 1];
        if (record.hint >= tensor.chunks.count || record.offsets + uint64_t{record.rank} > dimCount) return;
        if (tensor.boxes == kNone) {
            scattered = true;
            record.theirs = kNone;
            record.chunk = tensor.chunks.first + record.hint;
            __builtin_prefetch(&out_.chunks[record.chunk]);
        } else if (tensor.boxRank == record.rank) {
            record.theirs = tensor.boxes + record.hint * 2 * record.rank;
            if (record.theirs + uint64_t{record.rank} > dimCount) return;
            record.chunk = tensor.chunks.first + record.hint;
            if (record.theirs != record.offsets) __builtin_prefetch(&out_.dims[record.theirs]);
        }
    });
    if (scattered) {
        eachKey([&](IndexRecord& record) {
            if (record.chunk == kNone || record.theirs != kNone) return;
            const MetaChunk& chunk = out_.chunks[record.chunk];
            if (chunk.rank == record.rank && chunk.offsets + uint64_t{chunk.rank} <= dimCount) {
                record.theirs = chunk.offsets;
                __builtin_prefetch(&out_.dims[record.theirs]);
            } else {
                record.chunk = kNone;
            }
        });
    }
    // What the keys alone hold is the stretch [copies, copiesEnd) at the end of the column, one after
    // another.
    size_t copies = dimCount, copiesEnd = dimCount;
    bool all = true;
    eachKey([&](IndexRecord& record) {
        if (!record.hasOffsets) return;
        if (record.chunk != kNone) {
            if (record.theirs == record.offsets) return;
            const int64_t* a = out_.dims.data() + record.theirs;
            const int64_t* b = out_.dims.data() + record.offsets;
            bool equal = true;
            for (uint8_t i = 0; i < record.rank; ++i)
                equal &= a[i] == b[i];
            if (equal) {
                if (record.offsets >= dimsPin_) {
                    if (copies == dimCount) copies = copiesEnd = record.offsets;
                    all = all && record.offsets == copiesEnd;
                    copiesEnd += record.rank;
                }
                record.offsets = record.theirs;
                return;
            }
            record.chunk = kNone;
        }
        all = false;
    });
    if (all && copiesEnd == dimCount) out_.dims.resize(copies);
}

inline Status MetadataMachine::addRow(Dict& dict, const IndexRecord& key, const InfoRecord& info) {
    if (key.name == kNone) return bad("a storage key has no fqn");
    if (info.path == kNone || info.length == kUnset)
        return bad("a storage entry lacks its relative_path or length");
    MetaStored row;
    row.offset = info.offset;
    row.length = info.length;
    row.name = key.name;
    row.path = info.path;
    row.transforms = info.transforms;
    row.rank = key.rank;
    if (key.chunk != kNone) {
        row.where = MetaStored::Where::chunk;
        row.place = key.chunk;
    } else if (key.hasOffsets) {
        row.where = MetaStored::Where::dims;
        row.place = key.offsets;
        ++unmatched_;
    }
    if (dict.stored.count && dict.stored.end() == out_.stored.size() && out_.stored.size() < kNone - 1) {
        out_.stored.push_back(row);
        ++dict.stored.count;
        return {};
    }
    return appendRow(out_.stored, dict.stored, row);
}

// The rows of run_, which are all that a SETITEMS hands over.
Status MetadataMachine::addRun(Dict& dict) {
    matchChunks([&](auto&& visit) {
        for (StorageRow& row : run_)
            visit(row.key);
    });
    for (const StorageRow& taken : run_)
        SHARDSCOPE_TRY(addRow(dict, taken.key, taken.info));
    return {};
}

Status MetadataMachine::addPath(Dict& dict, TextId name, const Value& tuple) {
    std::string encoded;
    Path path;
    const auto count = static_cast<size_t>(tuple.b);
    if (count > kMaxValueDepth)
        return makeError(ErrorCode::limit, fmt::format("a state dict path has {} parts", count)).at(here());
    if (tuple.kind == Kind::ints && tuple.a + uint64_t{count} > out_.dims.size()) return {};
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
        SHARDSCOPE_TRY(addRow(dict, indexes_[key.a], infos_[value.a]));
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
        const bool state = target > 0 && p_ < end_ && Op(*p_) == Op::build && container.a >= dictPin_ &&
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
            matchChunks([&](auto&& visit) {
                for (size_t i = first; i < end; i += 2) {
                    if (stack_[i].kind == Kind::object && stack_[i].cls == Class::index)
                        visit(indexes_[stack_[i].a]);
                }
            });
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
