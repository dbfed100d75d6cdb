// MetadataMachine from outside: how it begins, its stack and memo, what comes out at the end.
#include "formats/dcp/metadata_machine.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/large_pages.h"

namespace shardscope::dcp {

namespace {

constexpr std::array<std::string_view, kWordCount> kWords = {"offsets",
                                                             "sizes",
                                                             "fqn",
                                                             "index",
                                                             "offset",
                                                             "relative_path",
                                                             "length",
                                                             "transform_descriptors",
                                                             "properties",
                                                             "size",
                                                             "chunks",
                                                             "state_dict_metadata",
                                                             "planner_data",
                                                             "storage_data",
                                                             "storage_meta",
                                                             "version",
                                                             "dtype",
                                                             "strides",
                                                             "modules",
                                                             "mcore_data",
                                                             "nd_reformulated_orig_global_shape"};

}  // namespace

MetadataMachine::MetadataMachine(const ReadFile& file, const Limits& limits, const StopToken& stop,
                                 const MemoUse& use)
    : window_(file, stop), limits_(limits), use_(use) {
    for (std::string_view word : kWords)
        out_.texts.intern(word);
    out_.protocol = use.protocol;
    out_.transforms.emplace_back();
    const Value unset{Kind::unset, Class::foreign, 0, 0};
    memo_.reserve(use.count());
    preferLargePages(memo_);
    memo_.resize(use.count(), unset);
    low_.resize(256, unset);
    // A chunk is one object, its storage row two; untouched reserve costs no memory.
    const size_t rows = static_cast<size_t>(use.objects / 3) + 16;
    out_.chunks.reserve(rows);
    out_.stored.reserve(rows);
    // Two-dimensional boxes; and shapes, and what the keys of one SETITEMS hold until they are matched.
    const size_t sizes = std::min(static_cast<size_t>(use.reductions), rows * 2) * 2;
    out_.dims.reserve(sizes + std::min<size_t>(sizes, size_t{64} << 10));
    preferLargePages(out_.chunks);
    preferLargePages(out_.stored);
    preferLargePages(out_.dims);
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
    Value& slot = *slotOf(index);
    const bool same = slot.kind == top.kind && slot.cls == top.cls && slot.a == top.a && slot.b == top.b;
    // Equal GETs may mean other values from now on.
    if (slot.kind != Kind::unset && !same) {
        for (MoldSet& set : molds_)
            set.count = set.last = set.next = 0;
    }
    slot = top;
    return {};
}

Status MetadataMachine::fetch(uint64_t index) {
    const Value* slot = slotOf(index);
    if (!slot || slot->kind == Kind::unset)
        return bad(fmt::format("memo entry {} is fetched before it is stored", index));
    return push(*slot);
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

// ------------------------------------------------------------------ the end

Status MetadataMachine::takeReformulated(const Dict& mcoreData) {
    for (uint32_t i = 0; i < mcoreData.items.count; i += 2) {
        const Value name = items_[mcoreData.items.first + i];
        const Value about = items_[mcoreData.items.first + i + 1];
        if (name.kind != Kind::text || about.kind != Kind::dict) continue;
        const Slice fields = dicts_[about.a].items;
        for (uint32_t k = 0; k < fields.count; k += 2) {
            const Value key = items_[fields.first + k];
            if (key.kind != Kind::text || key.a != wReformulated) continue;
            MetaReformulated row{name.a, {}};
            Error error;
            if (!dimsValue(items_[fields.first + k + 1], row.shape, error))
                return std::move(error).ofTensor(out_.texts[name.a]);
            out_.reformulated.push_back(row);
        }
    }
    return {};
}

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
    SHARDSCOPE_TRY(takeReformulated(takeDict(record.mcoreData)));
    out_.hasPlannerData = record.plannerData != kNone;
    keep(out_.entries, stateDict.entries);
    keep(out_.stored, storageData.stored);
    keep(out_.paths, paths.paths);

    // The offsets of storage keys are given back once they were compared. A pickle that hands them to other
    // objects as well, by tricks that no writer has, loses them.
    const auto placed = [&](uint32_t at, uint8_t rank) {
        return at <= out_.dims.size() && rank <= out_.dims.size() - at;
    };
    const auto twice = [&] {
        return damaged("a storage key shares the state of its offsets with another object").at(here());
    };
    for (const MetaChunk& chunk : out_.chunks) {
        if (chunk.offsets != kNone && !placed(chunk.offsets, chunk.rank)) return twice();
        if (chunk.lengths != kNone && !placed(chunk.lengths, chunk.rank)) return twice();
    }
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
        if (!placed(made.shape.at, made.shape.rank)) return twice();
    }
    if (unmatched_) {
        for (const MetaStored& row : out_.stored) {
            if (row.where == MetaStored::Where::dims && !placed(row.place, row.rank)) return twice();
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
