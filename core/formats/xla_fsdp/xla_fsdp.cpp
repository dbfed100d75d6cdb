// Source: torch_xla/distributed/fsdp/state_dict_utils.py (consolidate_sharded_state_dicts) and
// xla_fully_sharded_data_parallel.py (get_shard_metadata).
#include "formats/xla_fsdp/xla_fsdp.h"

#include <algorithm>
#include <map>
#include <string>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/numbers.h"
#include "base/regular_expression.h"
#include "base/rule.h"
#include "encoding/torch_tensor.h"
#include "formats/tensor_assembly.h"
#include "formats/tensor_files.h"
#include "model/paths.h"

namespace shardscope::xla_fsdp {

namespace {

constexpr uint32_t kMostRanks = 65'536;
constexpr std::string_view kModel = "model", kShard = "_fsdp_shard";

constexpr std::string_view kMetadata = "shard_metadata";

// "<prefix>rank-00000001-of-00000004.pth": the rank files of one prefix and one world size.
struct FileSet {
    std::string before, after;  // parts of the names around the rank
    size_t width = 1;           // digits of the rank
    uint32_t world = 0;
    std::map<uint32_t, std::string> files;  // names by rank
    std::string nameOf(uint32_t rank) const { return fmt::format("{}{:0{}}{}", before, rank, width, after); }
};

// The set with the most files; one without files where none match.
FileSet findFiles(const Source& source) {
    static const RegularExpression rule =
        RegularExpression::parse(R"((.*rank-)(\d+)(-of-(\d+)\.(?:pth|pt|ckpt|bin)))").value();
    std::map<std::string, FileSet> sets;
    std::vector<std::string_view> groups;
    for (const DirectoryEntry& entry : source.entries) {
        if (entry.kind != DirectoryEntry::Kind::file || !rule.matchWhole(entry.name, groups)) continue;
        const auto world = parseNumber<uint32_t>(groups[4], 1, kMostRanks);
        const auto rank = parseNumber<uint32_t>(groups[2], 0, world.value_or(1) - 1);
        if (!world || !rank) continue;
        FileSet& set = sets[fmt::format("{}\n{}", groups[1], groups[3])];
        set.before = groups[1];
        set.after = groups[3];
        set.width = groups[2].size();
        set.world = *world;
        set.files.emplace(*rank, entry.name);
    }
    const auto largest =
        std::ranges::max_element(sets, {}, [](const auto& named) { return named.second.files.size(); });
    return largest == sets.end() ? FileSet{} : largest->second;
}

std::string withoutWrappers(std::string name) {
    for (const std::string_view wrapper : {"_fsdp_wrapped_module.", "_fpw_module."}) {
        for (size_t at = name.find(wrapper); at != name.npos; at = name.find(wrapper, at))
            name.erase(at, wrapper.size());
    }
    return name;
}

// A parameter in a flat space of elements that the ranks cut in equal parts.
struct Target {
    std::string name;
    Dims shape;
    int64_t begin = 0;
};

class Opener {
  public:
    Opener(const Source& source, const OpenOptions& options)
        : set_(findFiles(source)), assembly_(source, options, "xla-fsdp", "", "torch_xla FSDP") {}

    Result<std::unique_ptr<Reader>> open() {
        std::vector<RankFile> files;
        for (const auto& [rank, name] : set_.files)
            files.push_back({rank, kNone});
        SHARDSCOPE_TRY(assembly_.addEach(
            files, [&](const RankFile& file) { return std::pair(set_.files.at(file.rank), file.rank); },
            Note::Lacks::anything));
        for (uint32_t rank = 0; rank < set_.world; ++rank) {
            if (!set_.files.contains(rank))
                assembly_.addMissingRank(
                    set_.nameOf(rank), rank, Severity::error,
                    fmt::format("the file of rank {} of {} is missing", rank, set_.world),
                    Note::Lacks::anything);
        }
        bool first = true;
        for (const RankFile& file : files) {
            if (file.index == kNone) continue;
            readMetadata(file.index, file.rank);
            addFile(file.index, file.rank, std::exchange(first, false));
        }
        return assembly_.finish(set_.world);
    }

  private:
    struct RankFile {
        uint32_t rank = 0;
        uint32_t index = kNone;  // in the assembly; kNone = it cannot be read
    };
    using Info = std::map<std::string, Value, std::less<>>;  // by the keys of shard_metadata, joined by '\n'

    const TensorFile& contents(uint32_t file) { return assembly_.files()[file]; }

    void readMetadata(uint32_t file, uint32_t rank) {
        info_.clear();
        for (const StoredObject& object : contents(file).objects) {
            if (object.path.size() < 2 || object.path[0].text != kMetadata) continue;
            std::string key;
            for (const PathPart& part : std::span(object.path).subspan(1))
                key += part.toString() + '\n';
            info_[key] = object.value;
        }
        const auto number = [&](const char* key) {
            const auto at = info_.find(key);
            return at == info_.end() ? -1 : ValueView(at->second).integer().value_or(-1);
        };
        const int64_t saidRank = number("rank\n"), saidWorld = number("world_size\n");
        if ((saidRank >= 0 && saidRank != rank) || (saidWorld >= 0 && saidWorld != set_.world))
            assembly_.wrong(fmt::format("it says that it is of rank {} of {}", saidRank, saidWorld),
                            contents(file).name, {}, Note::Lacks::anything);
    }

    ValueView infoOf(const std::string& prefix, const std::string& suffix, const char* key) const {
        const auto at = info_.find("shard_info\n" + prefix + '\n' + suffix + '\n' + key + '\n');
        return at == info_.end() ? ValueView() : at->second;
    }

    // The parameters that a tensor of the state_dict is cut of; none = nothing says it.
    std::vector<Target> targetsOf(const std::string& name) const {
        const size_t at = name.find(kShard);
        const std::string prefix = at == 0 ? std::string() : name.substr(0, at - 1);
        ValueView size = infoOf(prefix, name.substr(at), "_orig_size"),
                  original = infoOf(prefix, name.substr(at), "_orig_name");
        if (!size || !original) {
            size = infoOf("", name, "_orig_size");
            original = infoOf("", name, "_orig_name");
        }
        const auto shape = asDims(size, "_orig_size");
        if (!shape.ok() || !original.text()) return {};
        std::string full(*original.text());
        if (!prefix.empty()) full = prefix + '.' + full;
        return flattened({full, *shape, 0});
    }

    // (names, shapes, numels) of what was flattened into it, if that.
    std::vector<Target> flattened(Target target) const {
        const auto at = info_.find("flatten_info\n" + target.name + '\n');
        if (at == info_.end()) {
            target.name = withoutWrappers(std::move(target.name));
            return {target};
        }
        const std::vector<ValueView> lists = ValueView(at->second).items();
        if (lists.size() < 2) return {};
        const std::vector<ValueView> names = lists[0].items(), shapes = lists[1].items();
        if (names.size() != shapes.size()) return {};
        std::vector<Target> targets;
        const std::string prefix = target.name.substr(0, target.name.rfind('.') + 1);
        int64_t begin = 0;
        for (size_t i = 0; i < names.size(); ++i) {
            const auto shape = asDims(shapes[i], "flatten_info");
            int64_t elements = 0;
            if (!names[i].text() || !shape.ok() || !checkedProduct(*shape, elements)) return {};
            targets.push_back({withoutWrappers(prefix + std::string(*names[i].text())), *shape, begin});
            if (!checkedAdd(begin, elements, begin)) return {};
        }
        return targets;
    }

    void addFile(uint32_t file, uint32_t rank, bool first) {
        for (uint32_t t = 0; t < contents(file).tensors.size(); ++t) {
            const StoredTensor& stored = contents(file).tensors[t];
            const bool model = stored.path.size() > 1 && stored.path[0].text == kModel;
            const std::string name = model ? pathName(below(stored.path)) : std::string();
            if (model && name.find(kShard) != name.npos) {
                addShard(file, t, rank, name);
            } else if (model) {
                // Of buffers torch_xla takes those of rank 0.
                if (first) assembly_.addWhole(file, t, {keyPart(withoutWrappers(name))}, Role::buffer, rank);
            } else {
                // The optimizer numbers what it has of each rank.
                const bool optimizer = stored.path[0].text.starts_with("optim");
                assembly_.addWhole(file, t, joined({fmt::format("rank_{}", rank)}, stored.path),
                                   optimizer ? Role::optimizer : Role::other, rank);
            }
        }
        for (const StoredObject& object : contents(file).objects) {
            if (first && (object.path.empty() || object.path[0].text != kMetadata))
                assembly_.addObject(file, object.path, object.value, rank);
        }
    }

    void addShard(uint32_t file, uint32_t t, uint32_t rank, const std::string& name) {
        const StoredTensor& stored = contents(file).tensors[t];
        const std::vector<Target> targets = targetsOf(name);
        if (targets.empty())
            return assembly_.note(rule::layoutFused, Severity::error,
                                  "shard_metadata does not say what it is a part of", contents(file).name,
                                  name, Note::Lacks::anything);
        if (stored.shape.size() > 1) return addRows(file, t, rank, targets[0]);
        int64_t from = 0, to = 0;
        const int64_t held = elementCount(stored.shape);
        if (!checkedMul(held, int64_t{rank}, from) || !checkedAdd(from, held, to)) return;
        for (const Target& target : targets) {
            int64_t elements = 0, end = 0;
            if (!checkedProduct(target.shape, elements) || !checkedAdd(target.begin, elements, end)) continue;
            const int64_t start = std::max(from, target.begin), stop = std::max(start, std::min(to, end));
            // Where nothing is left it is padding, or of the parameters before and behind.
            assembly_.addTensor({keyPart(target.name)}, stored.dtype, target.shape, Role::parameter);
            if (stop > start)
                assembly_.addPiece({keyPart(target.name)}, stored.dtype, target.shape, Role::parameter,
                                   TensorAssembly::Piece::range(rank, file, t, start - from,
                                                                {start - target.begin, stop - target.begin}));
        }
    }

    // shard_param_on_dim_0: rows of the parameter, padded at its end.
    void addRows(uint32_t file, uint32_t t, uint32_t rank, const Target& target) {
        const StoredTensor& stored = contents(file).tensors[t];
        const bool fits =
            stored.shape.size() == target.shape.size() &&
            std::ranges::equal(std::span(stored.shape).subspan(1), std::span(target.shape).subspan(1));
        int64_t from = 0;
        if (!fits || !checkedMul(stored.shape[0], int64_t{rank}, from)) {
            return assembly_.wrong(
                fmt::format("its rows are not those of a parameter {}", formatDims(target.shape)),
                contents(file).name, target.name, Note::Lacks::anything);
        }
        Dims offsets(stored.shape.size(), 0), lengths = stored.shape;
        lengths[0] = std::clamp<int64_t>(target.shape[0] - from, 0, stored.shape[0]);
        const Path path{keyPart(target.name)};
        assembly_.addTensor(path, stored.dtype, target.shape, Role::parameter);
        if (lengths[0] == 0) return;
        const StoredPart part = StoredPart::box(file, t, offsets, lengths);
        offsets[0] = from;
        assembly_.addPiece(path, stored.dtype, target.shape, Role::parameter,
                           {rank, part, offsets, lengths, {}});
    }

    FileSet set_;
    TensorAssembly assembly_;
    Info info_;
};

// Whether one of the first files that can be read says what its parameters were.
bool saysShards(const Source& source, const FileSet& set) {
    constexpr int kMostLooks = 4;
    int looks = 0;
    for (const auto& [rank, name] : set.files) {
        TensorFiles files(source, {});
        const auto index = files.add(name);
        if (index.ok())
            return std::ranges::any_of(files[*index].objects, [](const StoredObject& object) {
                return object.path.size() > 1 && object.path[0].text == kMetadata;
            });
        if (++looks == kMostLooks) break;
    }
    return false;
}

Probe probe(const Source& source) {
    if (!source.entry.empty()) return {};
    const FileSet set = findFiles(source);
    if (set.files.empty() || !saysShards(source, set)) return {};
    return {Probe::Match::certain,
            "has " + set.files.begin()->second + ", a rank's part with shard_metadata"};
}

Result<std::unique_ptr<Reader>> open(const Source& source, const OpenOptions& options) {
    if (findFiles(source).files.empty())
        return unsupported("holds no files of ranks of torch_xla's FSDP").inFile(source.display);
    return Opener(source, options).open();
}

}  // namespace

}  // namespace shardscope::xla_fsdp

namespace shardscope {

const Format& xlaFsdpFormat() {
    static const Format format{
        .about = {.name = "xla-fsdp",
                  .title = "torch_xla FSDP",
                  .synonyms = {"xla_fsdp", "torch-xla"},
                  .before = {{"torch-ranks", "its files are those of torch.save, one for each rank"},
                             {"torch", "its files are those of torch.save, one for each rank"}},
                  .reads = true,
                  .generations = {"files with shard_metadata: flat parameters, or sharded along dimension 0"},
                  .shards = true,
                  .objects = true},
        .probe = xla_fsdp::probe,
        .open = xla_fsdp::open};
    return format;
}

}  // namespace shardscope
