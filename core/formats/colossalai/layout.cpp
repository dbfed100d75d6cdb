#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/option_words.h"
#include "base/units.h"
#include "formats/colossalai/layouts.h"
#include "formats/named_file_layout.h"

namespace shardscope::colossalai {

namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kDefaultShard = 1024 * kMiB;  // ColossalAI's size_per_shard

struct Variant {
    explicit Variant(std::string_view name)
        : gathered(name.starts_with("gathered")), bin(name.ends_with("-bin")) {}
    bool gathered, bin;
};

// "state", the parameter's number, the name of the state.
bool isState(const Path& path) {
    return path.size() == 3 && path[0].toString() == "state" && path[1].kind == PathPart::Kind::integerKey;
}

bool isGroups(const ObjectInfo& object) {
    const std::string first = object.path.empty() ? object.name : object.path[0].toString();
    return first == "param_groups" && object.path.size() <= 1;
}

std::string whyNot(const Catalog& target, TensorId t, const Variant& variant) {
    const DType dtype = target.dtype(t);
    const bool optimizer = target.role(t) == Role::optimizer;
    if (!variant.gathered && optimizer) return "the distributed layout holds parameters only";
    if (variant.gathered && optimizer && !isState(target.path(t)))
        return "optimizer states are kept under the number of their parameter, which is not known here";
    if (!variant.bin && !optimizer) return whyNotSafetensors(target, t, "safetensors files");
    if (dtype == DType::float6E2M3 || dtype == DType::float6E3M2 || dtype == DType::float4E2M1FNx2)
        return fmt::format("a .bin file holds no {}", dtypeName(dtype));
    if (!dtypeByteCount(dtype, static_cast<uint64_t>(target.elements(t))))
        return fmt::format("it does not fill whole bytes: {} of {}", counted(target.elements(t), "element"),
                           dtypeName(dtype));
    return {};
}

// As json.dump(value, indent=n) of Python writes it.
std::string pythonJson(const Json& json, int indent) {
    return json.dump(indent, ' ', true, Json::error_handler_t::replace);
}

class Layout final : public NamedFileLayout {
  public:
    Layout(const Catalog& target, const WriteOptions& options)
        : NamedFileLayout(target),
          variant_(options.variant),
          limit_(options.maxFileSize ? options.maxFileSize : kDefaultShard) {
        needsCrc = variant_.bin || variant_.gathered;
    }

    Status plan() {
        SHARDSCOPE_TRY(variant_.gathered ? makeGathered() : makeDistributed());
        for (TensorId t = 0; t < target_.tensorCount(); ++t) {
            const TensorId kept = target_.aliasOf(t);
            if (kept == kNone) continue;
            changed.push_back(
                {std::string(target_.name(t)),
                 fmt::format("another name of '{}', which is written; ColossalAI lists a tied tensor once",
                             target_.name(kept))});
        }
        placeAliases();
        return {};
    }

  private:
    // In blocks as ColossalAI makes them: a new one when the limit would be passed.
    std::vector<std::vector<ChunkId>> blocks(const std::vector<ChunkId>& chunks) const {
        std::vector<std::vector<ChunkId>> out(1);
        uint64_t size = 0;
        for (ChunkId c : chunks) {
            const uint64_t bytes = bytesOf(c);
            if (!out.back().empty() && (size >= limit_ || bytes > limit_ - size)) {
                out.emplace_back();
                size = 0;
            }
            out.back().push_back(c);
            size += bytes;
        }
        return out;
    }

    Status addModelFile(const std::string& name, const std::vector<ChunkId>& chunks) {
        std::vector<Entry> entries;
        for (ChunkId c : chunks)
            entries.push_back(entryOf(c));
        if (!variant_.bin) return addSafetensors(name, std::move(entries), {{"format", "pt"}});
        addStateDict(name, entries, true);
        return {};
    }

    // ------------------------------------------------------------------ distributed

    Status makeDistributed() {
        std::map<uint32_t, std::vector<ChunkId>> byRank;
        std::set<DType> dtypes;
        for (TensorId t = 0; t < target_.tensorCount(); ++t) {
            if (target_.aliasOf(t) != kNone) continue;
            std::set<uint32_t> ranks;
            for (ChunkId c = target_.firstChunk(t); c < target_.endChunk(t); ++c) {
                const ChunkInfo chunk = target_.chunk(t, c);
                if (chunk.flat) {
                    return makeError(ErrorCode::impossible, "ColossalAI's chunks are boxes, not flat ranges")
                        .ofTensor(target_.name(t));
                }
                const uint32_t rank = chunk.rank == kNone ? 0 : chunk.rank;
                if (!ranks.insert(rank).second) {
                    return makeError(
                               ErrorCode::impossible,
                               fmt::format("rank {} has two chunks of it, its metadata can name one", rank))
                        .ofTensor(target_.name(t));
                }
                byRank[rank].push_back(c);
            }
            dtypes.insert(target_.dtype(t));
            if (target_.shape(t).empty()) {
                changed.push_back(
                    {std::string(target_.name(t)),
                     "has no dimensions: ColossalAI's loader finds no chunk of it and makes it 0"});
            } else if (dtypes.size() > 1 && target_.dtype(t) != target_.dtype(0)) {
                changed.push_back(
                    {std::string(target_.name(t)),
                     fmt::format("is {}: ColossalAI's loader gives all tensors the dtype of the first",
                                 dtypeName(target_.dtype(t)))});
            }
        }
        if (byRank.empty()) return makeError(ErrorCode::impossible, "there is nothing to write");
        const uint32_t last = std::max(byRank.rbegin()->first, std::max(target_.rankCount(), 1U) - 1);
        if (last > 99'999) return makeError(ErrorCode::impossible, "the names have room for 100000 ranks");
        for (uint32_t rank = 0; rank <= last; ++rank)
            SHARDSCOPE_TRY(addRank(rank, byRank[rank]));
        return {};
    }

    Status addRank(uint32_t rank, const std::vector<ChunkId>& chunks) {
        Json entries = Json::object();
        uint64_t total = 0;
        const auto parts = blocks(chunks);
        for (size_t s = 0; s < parts.size(); ++s) {
            const std::string name = variant_.bin
                                         ? fmt::format("pytorch_model-dist-{:05}-shard-{:05}.bin", rank, s)
                                         : fmt::format("model-dist-{:05}-shard-{:05}.safetensors", rank, s);
            SHARDSCOPE_TRY(addModelFile(name, parts[s]));
            for (ChunkId c : parts[s]) {
                const ChunkInfo chunk = target_.chunk(c);
                const DimSpan shape = target_.shape(chunk.tensor);
                Json entry = Json::object();
                entry["offsets"] = Dims(chunk.offsets.begin(), chunk.offsets.end());
                entry["lengths"] = Dims(chunk.lengths.begin(), chunk.lengths.end());
                entry["global_shape"] = Dims(shape.begin(), shape.end());
                entry["file"] = name;
                entry["rank"] = rank;
                entries[std::string(target_.name(chunk.tensor))] = std::move(entry);
                total += bytesOf(c);
            }
        }
        Json metadata = Json::object();
        metadata["checkpoint_version"] = "1.0";
        metadata["total_size"] = inMiB(total);
        metadata["metadata"] = std::move(entries);
        addText(fmt::format("pytorch_model-meta-dist-{:05}{}.json", rank, variant_.bin ? "" : ".index"),
                pythonJson(metadata, 4));
        return {};
    }

    // ------------------------------------------------------------------ gathered

    Status makeGathered() {
        std::vector<ChunkId> model;
        std::map<int64_t, std::vector<ChunkId>> states;
        for (TensorId t = 0; t < target_.tensorCount(); ++t) {
            if (target_.aliasOf(t) != kNone) continue;
            if (Status whole = checkWhole(t, "the gathered layouts hold whole tensors"); !whole.ok())
                return std::move(whole).error().withHint(
                    fmt::format("leave {} out, or take the variant 'distributed'", option("mesh")));
            const Path path = target_.path(t);
            if (target_.role(t) == Role::optimizer && isState(path)) {
                states[path[1].index].push_back(target_.firstChunk(t));
            } else {
                model.push_back(target_.firstChunk(t));
            }
        }
        if (!model.empty()) SHARDSCOPE_TRY(addModel(model));
        return addOptimizer(states);
    }

    static double inMiB(uint64_t bytes) { return static_cast<double>(bytes) / static_cast<double>(kMiB); }

    Status addModel(const std::vector<ChunkId>& chunks) {
        Json map = Json::object();
        uint64_t total = 0;
        const auto parts = blocks(chunks);
        for (size_t s = 0; s < parts.size(); ++s) {
            const std::string name = variant_.bin ? fmt::format("pytorch_model-{:05}.bin", s + 1)
                                                  : fmt::format("model-{:05}.safetensors", s + 1);
            SHARDSCOPE_TRY(addModelFile(name, parts[s]));
            for (ChunkId c : parts[s]) {
                map[std::string(target_.name(target_.tensorOf(c)))] = name;
                total += bytesOf(c);
            }
        }
        addIndex(variant_.bin ? "pytorch_model.bin.index.json" : "model.safetensors.index.json",
                 Json::object(), total, std::move(map));
        return {};
    }

    void addIndex(std::string path, Json metadata, uint64_t total, Json map) {
        metadata["total_size"] = inMiB(total);
        Json index = Json::object();
        index["metadata"] = std::move(metadata);
        index["weight_map"] = std::move(map);
        addText(std::move(path), pythonJson(index, 2) + "\n");
    }

    Status addOptimizer(std::map<int64_t, std::vector<ChunkId>>& states) {
        std::map<int64_t, std::vector<const ObjectInfo*>> values;
        const ObjectInfo* groups = nullptr;
        for (const ObjectInfo& object : target_.objects()) {
            if (!isState(object.path) && !isGroups(object))
                return makeError(ErrorCode::impossible, "ColossalAI's files have no place for it")
                    .ofTensor(object.name);
            if (object.path.size() == 3) {
                values[object.path[1].index].push_back(&object);
                states[object.path[1].index];
            } else {
                groups = &object;
            }
        }
        if (states.empty() && !groups) return {};
        Json map = Json::object();
        uint64_t total = 0, size = 0;
        std::vector<int64_t> block;
        size_t number = 0;
        const auto flush = [&]() -> Status {
            const std::string name = fmt::format("pytorch_optim-{:05}.bin", ++number);
            SHARDSCOPE_TRY(addStates(name, block, states, values));
            for (int64_t id : block)
                map[std::to_string(id)] = name;
            block.clear();
            size = 0;
            return {};
        };
        for (const auto& [id, chunks] : states) {
            uint64_t bytes = 0;
            for (ChunkId c : chunks)
                bytes += bytesOf(c);
            if (!block.empty() && (size >= limit_ || bytes > limit_ - size)) SHARDSCOPE_TRY(flush());
            block.push_back(id);
            size += bytes;
            total += bytes;
        }
        SHARDSCOPE_TRY(flush());
        Json metadata = Json::object();
        if (groups) {
            auto archive = std::make_unique<TorchArchiveWriter>("pytorch_optim_group");
            auto written = archive->pickle().value(groups->value);
            if (!written.ok()) return std::move(written).error().ofTensor(groups->name);
            archive->finish();
            addArchive("pytorch_optim_group.bin", std::move(archive), {});
            metadata["param_groups"] = "pytorch_optim_group.bin";
        }
        addIndex("pytorch_optim.bin.index.json", std::move(metadata), total, std::move(map));
        return {};
    }

    // {id: {"step": ..., "exp_avg": tensor, ...}, ...}
    Status addStates(const std::string& path, const std::vector<int64_t>& ids,
                     std::map<int64_t, std::vector<ChunkId>>& states,
                     std::map<int64_t, std::vector<const ObjectInfo*>>& values) {
        auto archive = std::make_unique<TorchArchiveWriter>(archiveNameOf(path));
        std::vector<ChunkId> storages;
        PickleWriter& pickle = archive->pickle();
        pickle.emptyDict();
        pickle.put();
        if (!ids.empty()) pickle.mark();
        for (int64_t id : ids) {
            pickle.integer(id);
            pickle.emptyDict();
            pickle.put();
            pickle.mark();
            for (const ObjectInfo* object : values[id]) {
                pickle.memoText(object->path[2].toString());
                auto written = pickle.value(object->value);
                if (!written.ok()) return std::move(written).error().ofTensor(object->name);
            }
            for (ChunkId c : states[id]) {
                const TensorId t = target_.tensorOf(c);
                pickle.memoText(target_.path(t)[2].toString());
                archive->tensor(target_.dtype(t), target_.shape(t), storages.size(), bytesOf(c));
                storages.push_back(c);
            }
            pickle.setItems();
        }
        if (!ids.empty()) pickle.setItems();
        archive->finish();
        addArchive(path, std::move(archive), std::move(storages));
        return {};
    }

    const Variant variant_;
    const uint64_t limit_;
};

}  // namespace

std::vector<LeftOut> cannotHold(const Catalog& target, const WriteOptions& options) {
    const Variant variant(options.variant);
    return leftOutOf(
        target, [&](TensorId t) { return whyNot(target, t, variant); },
        [&](const ObjectInfo& object) -> std::string {
            if (!variant.gathered) return "the distributed layout holds parameters only";
            if (!isState(object.path) && !isGroups(object))
                return "ColossalAI's files hold states under the number of a parameter, and parameter groups";
            const auto bytes = encodePickle(object.value);
            return bytes.ok() ? "" : bytes.error().message;
        });
}

Result<std::unique_ptr<TargetLayout>> layOut(const Catalog& target, const WriteOptions& options) {
    return planned<Layout>(target, options);
}

}  // namespace shardscope::colossalai
