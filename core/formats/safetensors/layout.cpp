#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "base/units.h"
#include "encoding/safetensors_file.h"
#include "encoding/safetensors_header.h"
#include "formats/named_file_layout.h"
#include "formats/safetensors/layouts.h"

namespace shardscope::safetensors {

namespace {

constexpr uint64_t kMaxHeader = 100'000'000;  // of the reference implementation; longer ones nobody reads
constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::string_view kNoObjects = "safetensors holds tensors and the texts of __metadata__ only";

// The texts of a "__metadata__" object; nullopt when it is anything but texts under text keys.
std::optional<std::vector<std::pair<std::string, std::string>>> textsOf(const Value& value) {
    if (!value || value.kind() != ValueKind::dict) return std::nullopt;
    std::vector<std::pair<std::string, std::string>> texts;
    const auto& items = value.graph->items(value.node);
    for (size_t i = 0; i + 1 < items.size(); i += 2) {
        if (value.graph->kind(items[i]) != ValueKind::text ||
            value.graph->kind(items[i + 1]) != ValueKind::text)
            return std::nullopt;
        texts.emplace_back(value.graph->text(items[i]), value.graph->text(items[i + 1]));
        if (!isUtf8(texts.back().first) || !isUtf8(texts.back().second)) return std::nullopt;
    }
    return texts;
}

std::string whyNot(const Catalog& target, TensorId t) {
    const DType dtype = target.dtype(t);
    if (target.name(t) == kMetadataName) return "the name __metadata__ is reserved in safetensors";
    if (storedDTypeName(dtype).empty()) return fmt::format("safetensors has no dtype {}", dtypeName(dtype));
    if (dtype == DType::float4E2M1FNx2 && target.shape(t).empty())
        return "a 4-bit tensor needs at least one dimension in safetensors";
    if (!dtypeByteCount(dtype, static_cast<uint64_t>(target.elements(t)))) {
        return fmt::format("it does not fill whole bytes: {} of {}", counted(target.elements(t), "element"),
                           dtypeName(dtype));
    }
    if (!isUtf8(target.name(t))) return "its name is not valid UTF-8";
    return {};
}

using Texts = std::vector<std::pair<std::string, std::string>>;

void putText(Texts& texts, std::string_view key, std::string_view value) {
    if (std::none_of(texts.begin(), texts.end(), [&](const auto& t) { return t.first == key; }))
        texts.emplace_back(key, value);
}

class SafetensorsLayout final : public NamedFileLayout {
  public:
    SafetensorsLayout(const Catalog& target, const WriteOptions& options)
        : NamedFileLayout(target),
          maxFileSize_(options.maxFileSize ? options.maxFileSize : kDefaultMaxFileSize),
          variant_(options.variant) {}

    Status plan() {
        for (TensorId t = 0; t < target_.tensorCount(); ++t) {
            if (const std::string why = whyNot(target_, t); !why.empty()) {
                return makeError(ErrorCode::impossible, why).ofTensor(target_.name(t));
            }
        }
        for (const ObjectInfo& object : target_.objects()) {
            const auto texts = object.name == kMetadataName ? textsOf(object.value) : std::nullopt;
            if (!texts)
                return makeError(ErrorCode::impossible, std::string(kNoObjects)).ofTensor(object.name);
            for (const auto& [key, value] : *texts) {
                if (key != kShardingInfoKey && key != kVersionKey) sourceTexts_.emplace_back(key, value);
            }
        }
        const bool cut = isCut();
        if (cut && variant_ == "single") {
            return makeError(
                       ErrorCode::impossible,
                       "a single safetensors file holds whole tensors, here some are sharded over ranks")
                .withHint("leave the sharding out, or take the variant 'dcp-sharded'");
        }
        sharded_ = cut || variant_ == "dcp-sharded";
        if (sharded_) {
            SHARDSCOPE_TRY(groupByRank());
        } else {
            SHARDSCOPE_TRY(groupWhole(variant_ == "single"));
        }
        indexed_ = !sharded_ && (variant_ == "sharded" || groups_.size() > 1);
        addAliases();
        SHARDSCOPE_TRY(placeAll());
        for (const SpecialTensor& special : target_.specials()) {
            changed.push_back(
                {special.name, fmt::format("a {} tensor; written as its parts, which are named '{}#...'",
                                           special.kind, special.name)});
        }
        return {};
    }

  private:
    // One file: chunks in the order in which they are in it.
    struct Group {
        uint32_t rank = 0;
        uint32_t number = 1;  // among the files of its rank
        std::vector<ChunkId> chunks;
        uint64_t bytes = 0;
        uint64_t headerBound = 0;
        Texts aliases;
    };

    bool isCut() const {
        for (TensorId t = 0; t < target_.tensorCount(); ++t) {
            if (target_.aliasOf(t) != kNone) continue;
            for (ChunkId c = target_.firstChunk(t); c < target_.endChunk(t); ++c) {
                const ChunkInfo chunk = target_.chunk(t, c);
                if (chunk.flat || (chunk.elements() != 0 && chunk.elements() != target_.elements(t)))
                    return true;
            }
        }
        return false;
    }

    // An upper bound of what an entry adds to a header, so that files are split before it is too long.
    uint64_t entryBound(TensorId t) const {
        const uint64_t perDim = 20 * (sharded_ ? 3 : 1);
        return target_.name(t).size() * (sharded_ ? 8 : 2) + 128 + target_.shape(t).size() * perDim;
    }

    // Chunks of a tensor that are written: no empty ones, and one of a tensor without elements.
    std::vector<ChunkId> writtenChunks(TensorId t) const {
        std::vector<ChunkId> chunks;
        if (target_.aliasOf(t) != kNone) return chunks;
        for (ChunkId c = target_.firstChunk(t); c < target_.endChunk(t); ++c) {
            if (target_.chunk(t, c).elements() != 0) chunks.push_back(c);
        }
        if (chunks.empty() && target_.firstChunk(t) < target_.endChunk(t))
            chunks.push_back(target_.firstChunk(t));
        return chunks;
    }

    Status groupWhole(bool single) {
        groups_.emplace_back();
        for (TensorId t = 0; t < target_.tensorCount(); ++t) {
            const std::vector<ChunkId> chunks = writtenChunks(t);
            if (chunks.empty()) continue;
            if (chunks.size() > 1)
                return makeError(ErrorCode::impossible, "the tensor would be written twice")
                    .ofTensor(target_.name(t));
            const uint64_t bytes = bytesOf(chunks[0]);
            Group* group = &groups_.back();
            const bool full =
                (!group->chunks.empty() && bytes > maxFileSize_ - std::min(maxFileSize_, group->bytes)) ||
                group->headerBound + entryBound(t) > kMaxHeader - kPage - textsBound();
            if (full && !single) {
                groups_.emplace_back();
                group = &groups_.back();
            }
            group->chunks.push_back(chunks[0]);
            group->bytes += bytes;
            group->headerBound += entryBound(t);
        }
        return {};
    }

    // As torch's HuggingFaceStorageWriter: each rank has its own files. A file holds a name once, so a second
    // piece of a tensor on the same rank goes to a later file.
    Status groupByRank() {
        std::map<uint32_t, std::vector<std::vector<ChunkId>>> byRank;  // rank -> k-th pieces of their tensors
        for (TensorId t = 0; t < target_.tensorCount(); ++t) {
            std::map<uint32_t, size_t> seen;
            for (ChunkId c : writtenChunks(t)) {
                const ChunkInfo chunk = target_.chunk(t, c);
                if (chunk.flat) {
                    return makeError(ErrorCode::impossible,
                                     "safetensors cannot hold a flat range of a tensor")
                        .ofTensor(target_.name(t));
                }
                const uint32_t rank = chunk.rank == kNone ? 0 : chunk.rank;
                auto& rounds = byRank[rank];
                const size_t round = seen[rank]++;
                if (rounds.size() <= round) rounds.resize(round + 1);
                rounds[round].push_back(c);
            }
        }
        if (byRank.empty()) byRank[0].emplace_back();
        for (auto& [rank, rounds] : byRank) {
            uint32_t number = 0;
            for (const std::vector<ChunkId>& round : rounds) {
                Group group{rank, ++number, {}, 0, 0, {}};
                for (ChunkId c : round) {
                    const ChunkInfo chunk = target_.chunk(c);
                    const uint64_t bytes = bytesOf(c);
                    if (!group.chunks.empty() &&
                        (bytes > maxFileSize_ - std::min(maxFileSize_, group.bytes) ||
                         group.headerBound + entryBound(chunk.tensor) > kMaxHeader - kPage - textsBound())) {
                        groups_.push_back(std::move(group));
                        group = Group{rank, ++number, {}, 0, 0, {}};
                    }
                    group.chunks.push_back(c);
                    group.bytes += bytes;
                    group.headerBound += entryBound(chunk.tensor);
                }
                groups_.push_back(std::move(group));
            }
            filesPerRank_ = std::max(filesPerRank_, number);
        }
        return {};
    }

    uint64_t textsBound() const {
        uint64_t bytes = 256;
        for (const auto& [key, value] : sourceTexts_)
            bytes += 6 * (key.size() + value.size()) + 8;
        return std::min(bytes, kMaxHeader / 2);
    }

    // Tied names: the data once, under the first name; the other is recorded as save_model of safetensors
    // does, or in the index as huggingface_hub does.
    void addAliases() {
        std::vector<size_t> groupOf(target_.tensorCount(), SIZE_MAX);
        for (size_t g = groups_.size(); g-- > 0;) {
            for (ChunkId c : groups_[g].chunks)
                groupOf[target_.tensorOf(c)] = g;
        }
        for (TensorId t = 0; t < target_.tensorCount(); ++t) {
            const TensorId kept = target_.aliasOf(t);
            if (kept == kNone || kept >= target_.tensorCount() || groupOf[kept] == SIZE_MAX) continue;
            const std::string_view keptName = target_.name(kept);
            putText(indexed_ ? indexAliases_ : groups_[groupOf[kept]].aliases, target_.name(t), keptName);
            changed.push_back({std::string(target_.name(t)),
                               fmt::format("written as '{}'; recorded in {}", keptName,
                                           indexed_ ? "the index's metadata" : kMetadataName)});
        }
    }

    Status placeAll() {
        for (const Group& group : groups_) {
            std::string path = "model.safetensors";
            if (sharded_) {
                path = fmt::format("shard-{:05}-model-{:05}-of-{:05}.safetensors", group.rank + 1,
                                   group.number, filesPerRank_);
            } else if (indexed_) {
                path = fmt::format("model-{:05}-of-{:05}.safetensors", files.size() + 1, groups_.size());
            }
            std::vector<Entry> entries;
            for (ChunkId c : group.chunks)
                entries.push_back(entryOf(c));
            Status added =
                addSafetensors(std::move(path), std::move(entries), headerTexts(group), FileOrder::paged);
            if (!added.ok())
                return std::move(added).error().withHint(
                    "leave out the variant 'single', so that the tensors go to several files");
        }
        // Aliases and empty chunks have no bytes of their own; they point at those of the tensor.
        placeAliases();
        for (TensorId t = 0; t < target_.tensorCount(); ++t) {
            const std::vector<ChunkId> written = writtenChunks(t);
            if (written.empty()) continue;
            for (ChunkId c = target_.firstChunk(t); c < target_.endChunk(t); ++c) {
                if (target_.chunk(t, c).elements() != 0 || c == written[0]) continue;
                place(c, chunkFile[written[0]], chunkOffset[written[0]]);
            }
        }
        if (indexed_) addText(std::string(kIndexName), indexText());
        return {};
    }

    Texts headerTexts(const Group& group) const {
        Texts texts;
        for (const auto& [key, value] : sourceTexts_) {
            if (key == "format") putText(texts, key, value);
        }
        putText(texts, "format", "pt");
        if (&group == groups_.data()) {
            for (const auto& [key, value] : sourceTexts_)
                putText(texts, key, value);
        }
        for (const auto& [alias, kept] : group.aliases)
            putText(texts, alias, kept);
        if (sharded_) {
            putText(texts, kShardingInfoKey, shardingInfo(group));
            putText(texts, kVersionKey, "1.0");
        }
        return texts;
    }

    // Offsets as torch writes and reads them; the global shape besides, so that a missing last file shows.
    std::string shardingInfo(const Group& group) const {
        std::string text = "{";
        for (ChunkId c : group.chunks) {
            const ChunkInfo chunk = target_.chunk(c);
            Dims offsets(chunk.offsets.begin(), chunk.offsets.end());
            const DimSpan tensorShape = target_.shape(chunk.tensor);
            Dims shape(tensorShape.begin(), tensorShape.end());
            text += fmt::format("{}{}: {{\"saved_offsets\": [{}], \"global_shape\": [{}]}}",
                                text.size() > 1 ? ", " : "", jsonText(target_.name(chunk.tensor)),
                                fmt::join(offsets, ", "), fmt::join(shape, ", "));
        }
        return text + "}";
    }

    // json.dumps(indent=2, sort_keys=True) and a newline, as Hugging Face's tools write it.
    std::string indexText() const {
        uint64_t total = 0;
        std::vector<std::pair<std::string_view, size_t>> map;
        for (size_t g = 0; g < groups_.size(); ++g) {
            for (ChunkId c : groups_[g].chunks) {
                const ChunkInfo chunk = target_.chunk(c);
                total += bytesOf(c);
                map.emplace_back(target_.name(chunk.tensor), g);
            }
        }
        std::sort(map.begin(), map.end());
        std::map<std::string, std::string> metadata;
        for (const auto& [alias, kept] : indexAliases_)
            metadata.emplace(alias, jsonText(kept));
        metadata["total_size"] = std::to_string(total);
        std::string text = "{\n  \"metadata\": {";
        const char* separator = "\n    ";
        for (const auto& [key, value] : metadata) {
            text += fmt::format("{}{}: {}", separator, jsonText(key), value);
            separator = ",\n    ";
        }
        text += "\n  },\n  \"weight_map\": {";
        separator = "\n    ";
        for (const auto& [name, group] : map) {
            text += fmt::format("{}{}: \"{}\"", separator, jsonText(name), files[group].path);
            separator = ",\n    ";
        }
        text += map.empty() ? "}\n}\n" : "\n  }\n}\n";
        return text;
    }

    const uint64_t maxFileSize_;
    const std::string variant_;
    std::vector<Group> groups_;
    Texts sourceTexts_, indexAliases_;
    bool sharded_ = false, indexed_ = false;
    uint32_t filesPerRank_ = 1;
};

}  // namespace

std::vector<LeftOut> cannotHold(const Catalog& target, const WriteOptions&) {
    return leftOutOf(
        target, [&](TensorId t) { return whyNot(target, t); },
        [](const ObjectInfo& object) {
            const bool held = object.name == kMetadataName && textsOf(object.value);
            return held ? std::string() : std::string(kNoObjects);
        });
}

Result<std::unique_ptr<TargetLayout>> makeLayout(const Catalog& target, const WriteOptions& options) {
    return planned<SafetensorsLayout>(target, options);
}

}  // namespace shardscope::safetensors
