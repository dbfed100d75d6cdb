#include <array>
#include <set>

#include <fmt/format.h>

#include "encoding/pickle.h"
#include "formats/named_file_layout.h"
#include "formats/olmo/keys.h"
#include "formats/olmo/layouts.h"
#include "model/paths.h"

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
    if (path.size() > 1 && path[0] == keyPart("optim")) return {kOptim, below(path)};
    if (path.size() > 1 && path[0] == keyPart("train")) return {kTrain, below(path)};
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
    std::string why = whyNotSafetensors(target, t, "OLMo's safetensors files");
    if (!why.empty()) return why;
    const auto key = encodeKey(target.path(t), false);
    return key.ok() ? std::string() : key.error().message;
}

class UnshardedLayout final : public NamedFileLayout {
  public:
    explicit UnshardedLayout(const Catalog& target) : NamedFileLayout(target) {}

    Status plan() {
        for (TensorId t = 0; t < target_.tensorCount(); ++t) {
            if (const TensorId kept = target_.aliasOf(t); kept != kNone) {
                changed.push_back(
                    {std::string(target_.name(t)),
                     fmt::format("another name of '{}', which is written; these files hold a tensor once",
                                 target_.name(kept))});
                continue;
            }
            SHARDSCOPE_TRY(checkWhole(t, "OLMo's files hold whole tensors"));
            if (target_.endChunk(t) - target_.firstChunk(t) != 1)
                return makeError(ErrorCode::impossible, "OLMo's files hold a tensor once")
                    .ofTensor(target_.name(t));
            SHARDSCOPE_TRY(add(target_.path(t), entryOf(target_.firstChunk(t))));
        }
        for (const ObjectInfo& object : target_.objects()) {
            auto bytes = pickled(object.value);
            if (!bytes.ok())
                return makeError(ErrorCode::impossible, bytes.error().message).ofTensor(object.name);
            const auto size = static_cast<int64_t>(bytes->size());
            SHARDSCOPE_TRY(
                add(object.path, {object.name, DType::uint8, {size}, bytes->size(), {}, std::move(*bytes)}));
        }
        for (size_t f = 0; f < contents_.size(); ++f) {
            if (!contents_[f].entries.empty())
                SHARDSCOPE_TRY(addSafetensors(kFileNames[f], std::move(contents_[f].entries)));
        }
        if (files.empty()) return makeError(ErrorCode::impossible, "there is nothing to write");
        placeAliases();
        return {};
    }

  private:
    struct Content {
        std::vector<Entry> entries;
        std::set<std::string> keys;
    };

    Status add(Path path, Entry entry) {
        const Place place = placeOf(std::move(path), entry.name);
        Content& content = contents_[place.file];
        SHARDSCOPE_ASSIGN(std::string key, encodeKey(place.path, entry.chunks.empty()));
        if (!content.keys.insert(key).second)
            return makeError(ErrorCode::impossible, "another entry has the same place in the nested object")
                .ofTensor(entry.name);
        entry.name = std::move(key);
        content.entries.push_back(std::move(entry));
        return {};
    }

    std::array<Content, std::size(kFileNames)> contents_;
};

}  // namespace

std::optional<Path> pathFor(const Path& path, bool optimizer) {
    if (path.size() < 2) return std::nullopt;
    const std::string first = path[0].toString();
    if (first == "model") return below(path);
    if (first == "optimizer") return joined({"optim"}, path, 1);
    if (first == "trainer") return joined({"train"}, path, 1);
    if (optimizer && (first == "state" || first == "param_groups")) return joined({"optim"}, path);
    return std::nullopt;
}

std::vector<LeftOut> cannotHold(const Catalog& target, const WriteOptions&) {
    return leftOutOf(
        target, [&](TensorId t) { return whyNot(target, t); },
        [&](const ObjectInfo& object) -> std::string {
            if (object.name == "metadata.world_size")
                return "the number of ranks says nothing about whole tensors";
            const auto key = encodeKey(object.path.empty() ? Path{keyPart(object.name)} : object.path, true);
            const auto bytes = pickled(object.value);
            return !key.ok() ? key.error().message : bytes.ok() ? "" : bytes.error().message;
        });
}

Result<std::unique_ptr<TargetLayout>> layOut(const Catalog& target, const WriteOptions&) {
    return planned<UnshardedLayout>(target);
}

}  // namespace shardscope::olmo
