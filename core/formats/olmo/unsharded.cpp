// Unsharded directories, and safetensors files with OLMo's keys.
#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "base/rule.h"
#include "base/units.h"
#include "encoding/pickle.h"
#include "encoding/pickle_globals.h"
#include "formats/olmo/keys.h"
#include "formats/olmo/layouts.h"
#include "formats/tensor_assembly.h"
#include "model/paths.h"

namespace shardscope::olmo {

namespace {

constexpr std::string_view kSafetensors = ".safetensors";
constexpr size_t kSampledTensors = 256;  // whose samples of bytes tell a stale file

struct Group {
    Path prefix;
    Role role = Role::parameter;
};

// What stands under which name: weights bare, the rest under the name of its file.
Group groupOf(std::string_view stem, bool alone) {
    if (stem == "model") return {};
    if (stem == "optim") return {{keyPart("optim")}, Role::optimizer};
    if (stem == "train" || stem == "other") return {{keyPart("train")}, Role::other};
    if (alone) return {};
    return {{keyPart(stem)}, Role::parameter};
}

class UnshardedOpener {
  public:
    UnshardedOpener(const Source& source, const OpenOptions& options)
        : source_(source), options_(options), assembly_(source, options, "olmo", "unsharded", "OLMo") {}

    Result<std::unique_ptr<Reader>> open() {
        if (!source_.entry.empty()) {
            assembly_.builder().setVariant("safetensors keys");
            SHARDSCOPE_TRY(readOne(source_.entry, {}));
            return assembly_.finish(1);
        }
        struct Pair {
            bool torch = false, safetensors = false;
        };
        std::map<std::string, Pair> stems;
        for (const DirectoryEntry& entry : source_.entries) {
            if (entry.kind != DirectoryEntry::Kind::file) continue;
            if (entry.name.ends_with(".pt") && entry.name.size() > 3)
                stems[entry.name.substr(0, entry.name.size() - 3)].torch = true;
            if (entry.name.ends_with(kSafetensors) && entry.name.size() > kSafetensors.size())
                stems[entry.name.substr(0, entry.name.size() - kSafetensors.size())].safetensors = true;
        }
        if (stems.empty())
            return unsupported("holds no .pt or .safetensors file of OLMo's").inFile(source_.display);
        (void)assembly_.addText("config.yaml");
        for (const auto& [stem, pair] : stems) {
            const Group group = groupOf(stem, stems.size() == 1);
            if (pair.torch) SHARDSCOPE_TRY(readOne(stem + ".pt", group));
            if (pair.torch && pair.safetensors) {
                SHARDSCOPE_TRY(readCopy(stem + std::string(kSafetensors), group, stem + ".pt"));
            } else if (pair.safetensors) {
                SHARDSCOPE_TRY(readOne(stem + std::string(kSafetensors), group));
            }
        }
        return assembly_.finish(1);
    }

  private:
    static Role roleOf(const Group& group, const Path& path) {
        if (group.role == Role::optimizer && !path.empty() && path[0].toString() != "state")
            return Role::other;
        // A state dict of an optimizer under another name.
        if (group.role == Role::parameter && path.size() > 2 && path[0].toString() == "state")
            return Role::optimizer;
        return group.role;
    }

    Status readOne(const std::string& name, const Group& group) {
        SHARDSCOPE_ASSIGN(const uint32_t file, assembly_.addFile(name, kNone));
        if (file == kNone) return {};
        const TensorFile& contents = assembly_.files()[file];
        for (uint32_t t = 0; t < contents.tensors.size(); ++t) {
            const StoredTensor& stored = contents.tensors[t];
            if (contents.kind == TensorFile::Kind::torch) {
                if (stored.special != kNone) continue;
                assembly_.addWhole(file, t, joinedPaths(group.prefix, stored.path),
                                   roleOf(group, stored.path), 0);
                continue;
            }
            SHARDSCOPE_TRY(addKeyed(file, t, group));
        }
        for (const SpecialTensor& special : contents.specials) {
            SpecialTensor copy = special;
            copy.path = joinedPaths(group.prefix, special.path);
            copy.name = pathName(copy.path);
            assembly_.builder().addSpecial(std::move(copy));
        }
        assembly_.addObjects(file, group.prefix, 0);
        return {};
    }

    // The key of an entry, or its plain name where the file has none of OLMo's.
    Result<Key> keyOf(const TensorFile& contents, const StoredTensor& stored) const {
        if (!looksLikeKey(stored.name)) return Key{{keyPart(stored.name)}, false};
        auto key = decodeKey(stored.name);
        if (!key.ok()) return std::move(key).error().ofTensor(stored.name).inFile(contents.name);
        return key;
    }

    Status addKeyed(uint32_t file, uint32_t t, const Group& group) {
        const TensorFile& contents = assembly_.files()[file];
        const StoredTensor& stored = contents.tensors[t];
        SHARDSCOPE_ASSIGN(const Key key, keyOf(contents, stored));
        const Path path = joinedPaths(group.prefix, key.path);
        if (!key.pickled) {
            assembly_.addWhole(file, t, path, roleOf(group, key.path), 0);
            return {};
        }
        if (stored.dtype != DType::uint8 || stored.shape.size() != 1) {
            assembly_.wrong(fmt::format("its key says that it is pickled, but it is {} of shape {}",
                                        dtypeName(stored.dtype), formatDims(stored.shape)),
                            contents.name, pathName(path));
            return {};
        }
        auto bytes = assembly_.files().bytesOf(file, t);
        if (!bytes.ok()) {
            const Error& error = bytes.error();
            if (error.code != ErrorCode::damaged && error.code != ErrorCode::limit) return error;
            assembly_.note(error.location.rule.empty() ? rule::metaInconsistent : error.location.rule,
                           Severity::error, error.message, contents.name, pathName(path));
            return {};
        }
        const PickleLimits limits{.textBytes = options_.limits.pickleText,
                                  .memory = options_.limits.valueMemory};
        auto value = decodePickle(std::as_bytes(std::span(*bytes)), limits);
        if (!value.ok()) {
            assembly_.wrong("its pickled value: " + value.error().message, contents.name, pathName(path));
            return {};
        }
        for (Note& note : globalNotes(value->globals)) {
            note.file = contents.name;
            note.tensor = pathName(path);
            assembly_.builder().addNote(std::move(note));
        }
        const NodeId root = value->root;
        assembly_.addObject(file, path, makeValue(std::move(value->graph), root), 0, stored.offset,
                            stored.bytes);
        return {};
    }

    // X.safetensors beside X.pt: OLMo reads it in place of the other, so both must hold the same. Its tensors
    // are replicas, which `validate --level values` compares in full; here a sample of each tells a stale
    // file.
    Status readCopy(const std::string& name, const Group& group, const std::string& original) {
        SHARDSCOPE_ASSIGN(const uint32_t file, assembly_.addFile(name, 0));
        if (file == kNone) return {};
        const TensorFile& contents = assembly_.files()[file];
        const uint32_t first = file - 1;  // of `original`, which was read just before
        const TensorFile& from = assembly_.files()[first];
        if (from.name != original) return {};
        std::map<std::string, uint32_t> byPath;
        for (uint32_t t = 0; t < from.tensors.size(); ++t) {
            if (from.tensors[t].special == kNone) byPath.emplace(encodePath(from.tensors[t].path), t);
        }
        size_t differing = 0, same = 0, sampled = 0;
        std::string example;
        for (uint32_t t = 0; t < contents.tensors.size(); ++t) {
            const StoredTensor& stored = contents.tensors[t];
            SHARDSCOPE_ASSIGN(const Key key, keyOf(contents, stored));
            if (key.pickled) continue;
            const auto it = byPath.find(encodePath(key.path));
            bool equal = it != byPath.end() && from.tensors[it->second].dtype == stored.dtype &&
                         from.tensors[it->second].shape == stored.shape;
            if (equal) {
                assembly_.addWhole(file, t, joinedPaths(group.prefix, key.path), roleOf(group, key.path), 0);
                // What cannot be compared is found where the tensor is read.
                equal = sampled++ >= kSampledTensors ||
                        !assembly_.files().partsDiffer(StoredPart::whole(file, t),
                                                       StoredPart::whole(first, it->second));
            }
            if (equal) {
                ++same;
            } else if (differing++ == 0) {
                example = pathName(key.path);
            }
        }
        if (differing > 0) {
            assembly_.note(rule::fileStale, Severity::error,
                           fmt::format("it differs from '{}' in {} of {}, such as '{}'. OLMo reads '{}' "
                                       "without a word; here '{}' was taken",
                                       original, countText(differing), counted(differing + same, "tensor"),
                                       example, name, original),
                           name);
        }
        return {};
    }

    const Source& source_;
    const OpenOptions& options_;
    TensorAssembly assembly_;
};

}  // namespace

Result<std::unique_ptr<Reader>> openUnsharded(const Source& source, const OpenOptions& options) {
    return UnshardedOpener(source, options).open();
}

}  // namespace shardscope::olmo
