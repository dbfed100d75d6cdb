#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/option_words.h"
#include "encoding/safetensors_file.h"
#include "encoding/safetensors_header.h"
#include "encoding/torch_archive.h"
#include "formats/colossalai/layouts.h"

namespace shardscope::colossalai {

namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kDefaultShard = 1024 * kMiB;  // ColossalAI's size_per_shard

struct Variant {
    bool gathered = false;
    bool bin = false;
};
std::optional<Variant> variantOf(std::string_view name) {
    if (name.empty() || name == "distributed") return Variant{};
    if (name == "distributed-bin") return Variant{false, true};
    if (name == "gathered") return Variant{true, false};
    if (name == "gathered-bin") return Variant{true, true};
    return std::nullopt;
}

bool isObjectOfOptimizer(const ObjectInfo& object) {
    const std::string first = object.path.empty() ? object.name : object.path[0].toString();
    return (first == "state" && object.path.size() == 3 &&
            object.path[1].kind == PathPart::Kind::integerKey) ||
           (first == "param_groups" && object.path.size() <= 1);
}

// "state", the parameter's number, the name of the state.
bool isState(const Path& path) {
    return path.size() == 3 && path[0].toString() == "state" && path[1].kind == PathPart::Kind::integerKey;
}

std::string whyNot(const Catalog& target, TensorId t, const Variant& variant) {
    const DType dtype = target.dtype(t);
    const bool optimizer = target.role(t) == Role::optimizer;
    if (!variant.gathered && optimizer) return "the distributed layout holds parameters only";
    if (variant.gathered && optimizer && !isState(target.path(t)))
        return "optimizer states are kept under the number of their parameter, which is not known here";
    const bool bin = variant.bin || optimizer;
    if (!bin && (safetensors::storedDTypeName(dtype).empty() || dtype == DType::float4E2M1FNx2))
        return fmt::format("safetensors files hold no {}", dtypeName(dtype));
    if (bin && (dtype == DType::float6E2M3 || dtype == DType::float6E3M2 || dtype == DType::float4E2M1FNx2))
        return fmt::format("a .bin file holds no {}", dtypeName(dtype));
    if (!dtypeByteCount(dtype, static_cast<uint64_t>(target.elements(t))))
        return fmt::format("its {} elements of {} do not fill whole bytes", target.elements(t),
                           dtypeName(dtype));
    return {};
}

// As json.dump(value, indent=n) of Python writes it.
std::string pythonJson(const Json& json, int indent) {
    return json.dump(indent, ' ', true, Json::error_handler_t::replace);
}

class Layout final : public TargetLayout {
  public:
    Layout(const Catalog& target, const WriteOptions& options, Variant variant)
        : wanted_(target),
          variant_(variant),
          limit_(options.maxFileSize ? options.maxFileSize : kDefaultShard) {
        needsCrc = variant.bin || variant.gathered;
    }

    Status make() {
        chunkFile.assign(wanted_.chunkCount(), 0);
        chunkOffset.assign(wanted_.chunkCount(), 0);
        SHARDSCOPE_TRY(variant_.gathered ? makeGathered() : makeDistributed());
        for (TensorId t = 0; t < wanted_.tensorCount(); ++t) {
            const TensorId kept = wanted_.aliasOf(t);
            if (kept == kNone) continue;
            changed.push_back(
                {std::string(wanted_.name(t)),
                 fmt::format("another name of '{}', which is written; ColossalAI lists a tied tensor once",
                             wanted_.name(kept))});
            const ChunkId from = wanted_.firstChunk(kept);
            for (ChunkId c = wanted_.firstChunk(t); c < wanted_.endChunk(t); ++c) {
                const ChunkId same =
                    std::min<ChunkId>(from + (c - wanted_.firstChunk(t)), wanted_.endChunk(kept) - 1);
                chunkFile[c] = chunkFile[same];
                chunkOffset[c] = chunkOffset[same];
            }
        }
        return {};
    }

    Status chunkLiterals(ChunkId, uint32_t, const LiteralSink&) const override { return {}; }

    Status fileLiterals(FileId file, std::span<const uint32_t> chunkCrcs,
                        const LiteralSink& sink) const override {
        if (file >= contents_.size()) return makeError(ErrorCode::internal, "there is no such file");
        const Content& content = contents_[file];
        if (!content.archive) return sink(file, 0, std::as_bytes(std::span(content.text)));
        std::vector<uint32_t> crcs;
        for (ChunkId c : content.chunks)
            crcs.push_back(c < chunkCrcs.size() ? chunkCrcs[c] : 0);
        return content.archive->literals(
            crcs, [&](uint64_t at, std::span<const std::byte> bytes) { return sink(file, at, bytes); });
    }

  private:
    // A file: its text (JSON, or the header of a safetensors file), or an archive with its chunks' storages.
    struct Content {
        std::string text;
        std::unique_ptr<TorchArchiveWriter> archive;
        std::vector<ChunkId> chunks;
    };

    uint64_t bytesOf(ChunkId c) const {
        const ChunkInfo chunk = wanted_.chunk(c);
        return dtypeByteCount(wanted_.dtype(chunk.tensor), static_cast<uint64_t>(chunk.elements()))
            .value_or(0);
    }

    void addText(std::string path, std::string text) {
        files.push_back({std::move(path), text.size(), true});
        contents_.push_back({std::move(text), nullptr, {}});
    }

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

    Status addModelFile(const std::string& stem, const std::vector<ChunkId>& chunks) {
        const auto id = static_cast<FileId>(files.size());
        if (variant_.bin) {
            Content content;
            content.archive = std::make_unique<TorchArchiveWriter>(stem.substr(0, stem.rfind('.')));
            content.chunks = chunks;
            PickleWriter& pickle = content.archive->pickle();
            pickle.emptyDict();
            pickle.put();
            if (!chunks.empty()) pickle.mark();
            for (size_t i = 0; i < chunks.size(); ++i) {
                const ChunkInfo chunk = wanted_.chunk(chunks[i]);
                pickle.text(wanted_.name(chunk.tensor));
                pickle.put();
                content.archive->tensor(wanted_.dtype(chunk.tensor), chunk.lengths, i, bytesOf(chunks[i]));
            }
            if (!chunks.empty()) pickle.setItems();
            addArchive(stem, std::move(content));
            return {};
        }
        std::vector<safetensors::FileEntry> entries;
        for (ChunkId c : chunks) {
            const ChunkInfo chunk = wanted_.chunk(c);
            entries.push_back({std::string(wanted_.name(chunk.tensor)), wanted_.dtype(chunk.tensor),
                               Dims(chunk.lengths.begin(), chunk.lengths.end()), bytesOf(c), 0});
        }
        SHARDSCOPE_ASSIGN(safetensors::FileLayout layout,
                          safetensors::layOutFile(entries, {{"format", "pt"}}));
        files.push_back({stem, layout.size, false});
        contents_.push_back({std::move(layout.head), nullptr, {}});
        for (size_t i = 0; i < chunks.size(); ++i) {
            chunkFile[chunks[i]] = id;
            chunkOffset[chunks[i]] = entries[i].offset;
        }
        return {};
    }

    void addArchive(const std::string& path, Content content) {
        const auto id = static_cast<FileId>(files.size());
        content.archive->finish();
        for (size_t i = 0; i < content.chunks.size(); ++i) {
            chunkFile[content.chunks[i]] = id;
            chunkOffset[content.chunks[i]] = content.archive->storageOffset(i);
        }
        files.push_back({path, content.archive->size(), false});
        contents_.push_back(std::move(content));
    }

    // ------------------------------------------------------------------ distributed

    Status makeDistributed() {
        std::map<uint32_t, std::vector<ChunkId>> byRank;
        std::set<DType> dtypes;
        for (TensorId t = 0; t < wanted_.tensorCount(); ++t) {
            if (wanted_.aliasOf(t) != kNone) continue;
            std::set<uint32_t> ranks;
            for (ChunkId c = wanted_.firstChunk(t); c < wanted_.endChunk(t); ++c) {
                const ChunkInfo chunk = wanted_.chunk(t, c);
                if (chunk.flat) {
                    return makeError(ErrorCode::impossible, "ColossalAI's pieces are boxes, not flat ranges")
                        .ofTensor(wanted_.name(t));
                }
                const uint32_t rank = chunk.rank == kNone ? 0 : chunk.rank;
                if (!ranks.insert(rank).second) {
                    return makeError(
                               ErrorCode::impossible,
                               fmt::format("rank {} has two pieces of it, its metadata can name one", rank))
                        .ofTensor(wanted_.name(t));
                }
                byRank[rank].push_back(c);
            }
            dtypes.insert(wanted_.dtype(t));
            if (wanted_.shape(t).empty()) {
                changed.push_back(
                    {std::string(wanted_.name(t)),
                     "has no dimensions: ColossalAI's loader finds no piece of it and makes it 0"});
            } else if (dtypes.size() > 1 && wanted_.dtype(t) != wanted_.dtype(0)) {
                changed.push_back(
                    {std::string(wanted_.name(t)),
                     fmt::format("is {}: ColossalAI's loader gives all tensors the dtype of the first",
                                 dtypeName(wanted_.dtype(t)))});
            }
        }
        if (byRank.empty()) return makeError(ErrorCode::impossible, "there is nothing to write");
        const uint32_t last = std::max(byRank.rbegin()->first, std::max(wanted_.rankCount(), 1U) - 1);
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
                const ChunkInfo chunk = wanted_.chunk(c);
                const DimSpan shape = wanted_.shape(chunk.tensor);
                Json entry = Json::object();
                entry["offsets"] = Dims(chunk.offsets.begin(), chunk.offsets.end());
                entry["lengths"] = Dims(chunk.lengths.begin(), chunk.lengths.end());
                entry["global_shape"] = Dims(shape.begin(), shape.end());
                entry["file"] = name;
                entry["rank"] = rank;
                entries[std::string(wanted_.name(chunk.tensor))] = std::move(entry);
                total += bytesOf(c);
            }
        }
        Json metadata = Json::object();
        metadata["checkpoint_version"] = "1.0";
        metadata["total_size"] = static_cast<double>(total) / static_cast<double>(kMiB);
        metadata["metadata"] = std::move(entries);
        addText(fmt::format("pytorch_model-meta-dist-{:05}{}.json", rank, variant_.bin ? "" : ".index"),
                pythonJson(metadata, 4));
        return {};
    }

    // ------------------------------------------------------------------ gathered

    Status makeGathered() {
        std::vector<ChunkId> model;
        std::map<int64_t, std::vector<ChunkId>> states;
        for (TensorId t = 0; t < wanted_.tensorCount(); ++t) {
            if (wanted_.aliasOf(t) != kNone) continue;
            if (wanted_.endChunk(t) - wanted_.firstChunk(t) != 1 ||
                wanted_.chunk(t, wanted_.firstChunk(t)).elements() != wanted_.elements(t)) {
                return makeError(ErrorCode::impossible, "the gathered layouts hold whole tensors")
                    .ofTensor(wanted_.name(t))
                    .withHint(fmt::format("leave {} out, or take the variant 'distributed'", option("mesh")));
            }
            const Path path = wanted_.path(t);
            if (wanted_.role(t) == Role::optimizer && isState(path)) {
                states[path[1].index].push_back(wanted_.firstChunk(t));
            } else {
                model.push_back(wanted_.firstChunk(t));
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
                map[std::string(wanted_.name(wanted_.tensorOf(c)))] = name;
                total += bytesOf(c);
            }
        }
        Json index = Json::object();
        index["metadata"]["total_size"] = inMiB(total);
        index["weight_map"] = std::move(map);
        addText(variant_.bin ? "pytorch_model.bin.index.json" : "model.safetensors.index.json",
                pythonJson(index, 2) + "\n");
        return {};
    }

    Status addOptimizer(std::map<int64_t, std::vector<ChunkId>>& states) {
        std::map<int64_t, std::vector<const ObjectInfo*>> values;
        const ObjectInfo* groups = nullptr;
        for (const ObjectInfo& object : wanted_.objects()) {
            if (!isObjectOfOptimizer(object))
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
        Json index = Json::object();
        index["metadata"] = Json::object();
        if (groups) {
            Content content;
            content.archive = std::make_unique<TorchArchiveWriter>("pytorch_optim_group");
            auto written = content.archive->pickle().value(groups->value);
            if (!written.ok()) return std::move(written).error().ofTensor(groups->name);
            addArchive("pytorch_optim_group.bin", std::move(content));
            index["metadata"]["param_groups"] = "pytorch_optim_group.bin";
        }
        index["metadata"]["total_size"] = inMiB(total);
        index["weight_map"] = std::move(map);
        addText("pytorch_optim.bin.index.json", pythonJson(index, 2) + "\n");
        return {};
    }

    // {id: {"step": ..., "exp_avg": tensor, ...}, ...}
    Status addStates(const std::string& path, const std::vector<int64_t>& ids,
                     std::map<int64_t, std::vector<ChunkId>>& states,
                     std::map<int64_t, std::vector<const ObjectInfo*>>& values) {
        Content content;
        content.archive = std::make_unique<TorchArchiveWriter>(path.substr(0, path.rfind('.')));
        PickleWriter& pickle = content.archive->pickle();
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
                const TensorId t = wanted_.tensorOf(c);
                pickle.memoText(wanted_.path(t)[2].toString());
                content.archive->tensor(wanted_.dtype(t), wanted_.shape(t), content.chunks.size(),
                                        bytesOf(c));
                content.chunks.push_back(c);
            }
            pickle.setItems();
        }
        if (!ids.empty()) pickle.setItems();
        addArchive(path, std::move(content));
        return {};
    }

    const Catalog& wanted_;
    const Variant variant_;
    const uint64_t limit_;
    std::vector<Content> contents_;
};

}  // namespace

std::vector<LeftOut> cannotHold(const Catalog& target, const WriteOptions& options) {
    std::vector<LeftOut> out;
    const auto variant = variantOf(options.variant);
    if (!variant) return out;  // layOut() says so
    for (TensorId t = 0; t < target.tensorCount(); ++t) {
        if (std::string why = whyNot(target, t, *variant); !why.empty())
            out.push_back({std::string(target.name(t)), std::move(why)});
    }
    for (const ObjectInfo& object : target.objects()) {
        if (!variant->gathered) {
            out.push_back({object.name, "the distributed layout holds parameters only"});
        } else if (!isObjectOfOptimizer(object)) {
            out.push_back(
                {object.name,
                 "ColossalAI's files hold states under the number of a parameter, and parameter groups"});
        } else if (const auto bytes = encodePickle(object.value); !bytes.ok()) {
            out.push_back({object.name, bytes.error().message});
        }
    }
    return out;
}

Result<std::unique_ptr<TargetLayout>> layOut(const Catalog& target, const WriteOptions& options) {
    const auto variant = variantOf(options.variant);
    if (!variant) {
        return makeError(ErrorCode::usage,
                         fmt::format("'{}' is not a variant of colossalai", options.variant))
            .withHint("distributed, distributed-bin, gathered or gathered-bin");
    }
    auto layout = std::make_unique<Layout>(target, options, *variant);
    SHARDSCOPE_TRY(layout->make());
    return std::unique_ptr<TargetLayout>(std::move(layout));
}

}  // namespace shardscope::colossalai
