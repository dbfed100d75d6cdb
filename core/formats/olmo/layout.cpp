#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "encoding/pickle.h"
#include "encoding/safetensors_file.h"
#include "encoding/safetensors_header.h"
#include "formats/olmo/keys.h"
#include "formats/olmo/layouts.h"

namespace shardscope::olmo {

namespace {

enum File : uint8_t { kModel, kOptim, kTrain };
constexpr const char* kFileNames[] = {"model.safetensors", "optim.safetensors", "train.safetensors"};

struct Place {
    File file = kModel;
    Path path;  // inside the file
};

// Where an entry goes, so that it is read under its name again: what is under "optim" or "train" to the
// file of that name, the rest to the model's.
Place placeOf(Path path, std::string_view name) {
    if (path.empty()) path = {keyPart(name)};
    if (path.size() > 1 && path[0] == keyPart("optim")) return {kOptim, Path(path.begin() + 1, path.end())};
    if (path.size() > 1 && path[0] == keyPart("train")) return {kTrain, Path(path.begin() + 1, path.end())};
    return {kModel, path};
}

// As OLMo pickles it; values that are not plain data in protocol 2, which reads the same.
Result<std::string> pickled(const Value& value) {
    if (!value) return unsupported("a value that was not read");
    auto bytes = encodePickle(value, PickleWriter::For::framed);
    if (bytes.ok() || bytes.error().code != ErrorCode::unsupported) return bytes;
    return encodePickle(value);
}

std::string whyNot(const Catalog& target, TensorId t) {
    const DType dtype = target.dtype(t);
    if (safetensors::storedDTypeName(dtype).empty() || dtype == DType::float4E2M1FNx2)
        return fmt::format("OLMo's safetensors files hold no {}", dtypeName(dtype));
    if (!dtypeByteCount(dtype, static_cast<uint64_t>(target.elements(t))))
        return fmt::format("its {} elements of {} do not fill whole bytes", target.elements(t),
                           dtypeName(dtype));
    const auto key = encodeKey(target.path(t), false);
    return key.ok() ? std::string() : key.error().message;
}

class UnshardedLayout final : public TargetLayout {
  public:
    explicit UnshardedLayout(const Catalog& target) : wanted_(target) {}

    Status make() {
        chunkFile.assign(wanted_.chunkCount(), 0);
        chunkOffset.assign(wanted_.chunkCount(), 0);
        std::vector<Content> contents(3);
        for (TensorId t = 0; t < wanted_.tensorCount(); ++t) {
            if (const TensorId kept = wanted_.aliasOf(t); kept != kNone) {
                changed.push_back(
                    {std::string(wanted_.name(t)),
                     fmt::format("another name of '{}', which is written; these files hold a tensor once",
                                 wanted_.name(kept))});
                continue;
            }
            if (wanted_.endChunk(t) - wanted_.firstChunk(t) != 1 ||
                wanted_.chunk(t, wanted_.firstChunk(t)).flat)
                return makeError(ErrorCode::impossible, "OLMo's files hold whole tensors")
                    .ofTensor(wanted_.name(t));
            const Place place = placeOf(wanted_.path(t), wanted_.name(t));
            SHARDSCOPE_ASSIGN(std::string key, encodeKey(place.path, false));
            Content& content = contents[place.file];
            content.chunks.push_back(wanted_.firstChunk(t));
            SHARDSCOPE_TRY(add(content, std::move(key), wanted_.name(t), wanted_.dtype(t), wanted_.shape(t),
                               wanted_.bytes(t)));
        }
        for (const ObjectInfo& object : wanted_.objects()) {
            auto bytes = pickled(object.value);
            if (!bytes.ok())
                return makeError(ErrorCode::impossible, bytes.error().message).ofTensor(object.name);
            const Place place = placeOf(object.path, object.name);
            SHARDSCOPE_ASSIGN(std::string key, encodeKey(place.path, true));
            Content& content = contents[place.file];
            content.chunks.push_back(kNone);
            const Dims shape{static_cast<int64_t>(bytes->size())};
            SHARDSCOPE_TRY(add(content, std::move(key), object.name, DType::uint8, shape, bytes->size()));
            content.values.emplace_back(content.entries.size() - 1, std::move(*bytes));
        }
        for (size_t f = 0; f < contents.size(); ++f) {
            Content& content = contents[f];
            if (content.entries.empty()) continue;
            SHARDSCOPE_ASSIGN(const safetensors::FileLayout layout,
                              safetensors::layOutFile(content.entries, {}));
            const auto id = static_cast<FileId>(files.size());
            files.push_back({kFileNames[f], layout.size, false});
            for (size_t e = 0; e < content.entries.size(); ++e) {
                if (content.chunks[e] == kNone) continue;
                chunkFile[content.chunks[e]] = id;
                chunkOffset[content.chunks[e]] = content.entries[e].offset;
            }
            std::vector<std::pair<uint64_t, std::string>> literals{{0, layout.head}};
            for (auto& [entry, bytes] : content.values)
                literals.emplace_back(content.entries[entry].offset, std::move(bytes));
            literals_.push_back(std::move(literals));
        }
        if (files.empty()) return makeError(ErrorCode::impossible, "there is nothing to write");
        for (TensorId t = 0; t < wanted_.tensorCount(); ++t) {
            if (wanted_.aliasOf(t) == kNone) continue;
            for (ChunkId c = wanted_.firstChunk(t); c < wanted_.endChunk(t); ++c) {
                chunkFile[c] = chunkFile[wanted_.firstChunk(wanted_.aliasOf(t))];
                chunkOffset[c] = chunkOffset[wanted_.firstChunk(wanted_.aliasOf(t))];
            }
        }
        return {};
    }

    Status chunkLiterals(ChunkId, uint32_t, const LiteralSink&) const override { return {}; }
    Status fileLiterals(FileId file, std::span<const uint32_t>, const LiteralSink& sink) const override {
        if (file >= literals_.size()) return makeError(ErrorCode::internal, "there is no such file");
        for (const auto& [offset, bytes] : literals_[file])
            SHARDSCOPE_TRY(sink(file, offset, std::as_bytes(std::span(bytes))));
        return {};
    }

  private:
    struct Content {
        std::vector<safetensors::FileEntry> entries;
        std::vector<ChunkId> chunks;  // of each entry; kNone = a pickled value
        std::vector<std::pair<size_t, std::string>> values;
        std::set<std::string> keys;
    };

    static Status add(Content& content, std::string key, std::string_view name, DType dtype, DimSpan shape,
                      uint64_t bytes) {
        if (!content.keys.insert(key).second)
            return makeError(ErrorCode::impossible, "another entry has the same place in the nested object")
                .ofTensor(name);
        content.entries.push_back({std::move(key), dtype, Dims(shape.begin(), shape.end()), bytes, 0});
        return {};
    }

    const Catalog& wanted_;
    std::vector<std::vector<std::pair<uint64_t, std::string>>> literals_;  // of each file
};

}  // namespace

std::optional<Path> pathFor(const Path& path, bool optimizer) {
    if (path.size() < 2) return std::nullopt;
    const std::string first = path[0].toString();
    Path rest(path.begin() + 1, path.end());
    if (first == "model") return rest;
    if (first == "optimizer" || first == "trainer") {
        Path out{keyPart(first == "trainer" ? "train" : "optim")};
        out.insert(out.end(), rest.begin(), rest.end());
        return out;
    }
    if (optimizer && (first == "state" || first == "param_groups")) {
        Path out{keyPart("optim")};
        out.insert(out.end(), path.begin(), path.end());
        return out;
    }
    return std::nullopt;
}

std::vector<LeftOut> cannotHold(const Catalog& target, const WriteOptions&) {
    std::vector<LeftOut> out;
    for (TensorId t = 0; t < target.tensorCount(); ++t) {
        if (std::string why = whyNot(target, t); !why.empty())
            out.push_back({std::string(target.name(t)), std::move(why)});
    }
    for (const ObjectInfo& object : target.objects()) {
        if (object.name == "metadata.world_size") {
            out.push_back({object.name, "the number of ranks says nothing about whole tensors"});
            continue;
        }
        const auto key = encodeKey(object.path.empty() ? Path{keyPart(object.name)} : object.path, true);
        const auto bytes = pickled(object.value);
        if (!key.ok() || !bytes.ok())
            out.push_back({object.name, key.ok() ? bytes.error().message : key.error().message});
    }
    return out;
}

Result<std::unique_ptr<TargetLayout>> layOut(const Catalog& target, const WriteOptions&) {
    auto layout = std::make_unique<UnshardedLayout>(target);
    SHARDSCOPE_TRY(layout->make());
    return std::unique_ptr<TargetLayout>(std::move(layout));
}

}  // namespace shardscope::olmo
