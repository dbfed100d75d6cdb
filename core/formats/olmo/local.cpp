// local: every rank's FSDP flat parameters, with the record of which range of which parameter each holds,
// and its part of the optimizer's state, which is where the parameter's part is stored.
#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/numbers.h"
#include "base/rule.h"
#include "base/units.h"
#include "encoding/flat_yaml.h"
#include "encoding/torch_tensor.h"
#include "formats/olmo/layouts.h"
#include "formats/tensor_assembly.h"
#include "model/named_values.h"
#include "model/paths.h"

namespace shardscope::olmo {

namespace {

constexpr int64_t kMaxPaddingChecked = 1 << 20;  // elements

// A range [start, stop) of a parameter on one rank, and where it begins in the flat parameter.
struct ParameterRange {
    int64_t start = 0, stop = 0, at = 0;
};

struct Parameter {
    Dims shape;
    std::map<uint32_t, ParameterRange> onRank;
};

// The fields of a NamedTuple: NEWOBJ with a tuple of them, or the bare tuple.
std::vector<ValueView> fields(ValueView record) {
    return record.is(ValueKind::object) ? record.arguments() : record.items();
}

class LocalOpener {
  public:
    LocalOpener(const Source& source, const OpenOptions& options)
        : source_(source), assembly_(source, options, "olmo", "local", "OLMo") {}

    Result<std::unique_ptr<Reader>> open() {
        (void)assembly_.addText("config.yaml");
        const std::string metadata = assembly_.addText("metadata.yaml");
        SHARDSCOPE_TRY(findWorld(metadata));
        for (uint32_t rank = 0; rank < world_; ++rank)
            SHARDSCOPE_TRY(readModel(rank));
        if (hasOptim_) {
            for (uint32_t rank = 0; rank < world_; ++rank)
                SHARDSCOPE_TRY(readOptimizer(rank));
        }
        SHARDSCOPE_TRY(readTrain());
        // What OLMo asserts when it unshards: scalars of the optimizer are the same on all ranks.
        assembly_.noteDifferentCopies(Note::Lacks::anything, TensorAssembly::Vectors::mustAgree);
        return assembly_.finish(world_);
    }

  private:
    Status findWorld(const std::string& metadata) {
        uint32_t ranks = 0;
        SHARDSCOPE_ASSIGN(const auto model, source_.directory->list("model"));
        for (const DirectoryEntry& entry : model) {
            if (const auto rank = rankOf(entry.name)) ranks = std::max(ranks, *rank + 1);
        }
        for (const DirectoryEntry& entry : source_.entries)
            hasOptim_ = hasOptim_ || (entry.kind == DirectoryEntry::Kind::directory && entry.name == "optim");
        std::optional<int64_t> stated;
        forYamlFields(metadata, [&](std::string_view key, std::string_view value) {
            if (key == "world_size") stated = parseNumber<int64_t>(value);
        });
        world_ = ranks;
        if (stated && (*stated < 1 || *stated > 1'000'000)) {
            return damaged(fmt::format("metadata.yaml states a world_size of {}", *stated))
                .inFile(source_.display);
        }
        if (stated && *stated > int64_t{ranks} + 100'000) {
            return damaged(fmt::format("metadata.yaml states {}, model holds {}", counted(*stated, "rank"),
                                       ranks))
                .inFile(source_.display)
                .byRule(rule::rankMissing);
        }
        if (!stated) {
            assembly_.note(
                rule::fileMissing, Severity::warning,
                "how many ranks there were is not stated; the highest rank file was taken for the last",
                "metadata.yaml");
        } else {
            if (*stated < ranks) {
                assembly_.note(rule::fileStale, Severity::error,
                               fmt::format("metadata.yaml states {}, files of {} are here; those from "
                                           "rank {} on are left aside",
                                           counted(*stated, "rank"), ranks, *stated),
                               fmt::format("model/rank{}.pt", *stated));
            }
            world_ = static_cast<uint32_t>(*stated);
            noteStale("optim");
            noteStale("train");
            assembly_.addObject(kNone, {keyPart("metadata"), keyPart("world_size")},
                                makeIntegerValue(*stated), 0);
        }
        return {};
    }

    // Files of ranks that this save did not have.
    void noteStale(const std::string& folder) {
        const auto inside = source_.directory->list(folder);
        if (!inside.ok()) return;
        for (const DirectoryEntry& entry : *inside) {
            const auto rank = rankOf(entry.name);
            if (!rank || *rank < world_) continue;
            assembly_.note(rule::fileStale, Severity::error,
                           fmt::format("metadata.yaml states {}; files of other ranks are left aside",
                                       counted(world_, "rank")),
                           fmt::format("{}/{}", folder, entry.name));
            return;
        }
    }

    // ------------------------------------------------------------------ model

    Status readModel(uint32_t rank) {
        SHARDSCOPE_ASSIGN(const uint32_t file, assembly_.addFile(fmt::format("model/rank{}.pt", rank), rank));
        if (file == kNone) return {};
        const TensorFile& contents = assembly_.files()[file];
        const NamedValues values(contents.objects);
        bool any = false;
        for (uint32_t t = 0; t < contents.tensors.size(); ++t) {
            const StoredTensor& data = contents.tensors[t];
            constexpr std::string_view kData = "flat_param.data";
            if (!data.name.ends_with("." + std::string(kData)) || data.path.size() != 5 ||
                data.special != kNone)
                continue;
            any = true;
            const std::string handle = data.name.substr(0, data.name.size() - kData.size());
            const std::string prefix =
                withoutWrapper(values[fmt::format("modules.{}.name", data.path[1].toString())].textOr({}));
            if (data.shape.size() != 1) {
                assembly_.wrong(fmt::format("a flat parameter of shape {}", formatDims(data.shape)),
                                contents.name, data.name);
                continue;
            }
            readHandle(rank, file, t, prefix, handle, values);
            SHARDSCOPE_TRY(
                checkPadding(file, t, values[handle + "flat_param._shard_numel_padded"].integer()));
        }
        if (!any) {
            assembly_.note(rule::metaInconsistent, Severity::warning, "the file holds no flat parameters",
                           contents.name);
        }
        return {};
    }

    void readHandle(uint32_t rank, uint32_t file, uint32_t t, const std::string& prefix,
                    const std::string& handle, const NamedValues& values) {
        const TensorFile& contents = assembly_.files()[file];
        const StoredTensor& data = contents.tensors[t];
        const auto wrong = [&](std::string message) {
            assembly_.wrong(std::move(message), contents.name, data.name);
        };
        const ValueView fqns = values[handle + "flat_param._fqns"],
                        shapes = values[handle + "flat_param._shapes"],
                        numels = values[handle + "flat_param._numels"];
        if (!fqns || !shapes)
            return wrong("the names or shapes of the parameters in this flat parameter are not recorded");
        const std::vector<ValueView> names = fqns.items(), sizes = shapes.items(), counts = numels.items();
        if (names.size() != sizes.size())
            return wrong(fmt::format("{} and {} are recorded", counted(names.size(), "name"),
                                     counted(sizes.size(), "shape")));
        if (numels && counts.size() != names.size())
            return wrong(fmt::format("{} and {} are recorded", counted(names.size(), "name"),
                                     counted(counts.size(), "size")));
        std::vector<ParameterRange> ranges(names.size());
        const std::string problem = findRanges(values, handle, ranges);
        if (!problem.empty()) return wrong(problem);
        for (size_t i = 0; i < names.size(); ++i) {
            const auto stated = names[i].text();
            if (!stated) return wrong("the name of a parameter is not text");
            const auto shape = asDims(sizes[i], "the shape of a parameter");
            if (!shape.ok()) return wrong(shape.error().message);
            int64_t elements = 0;
            if (numels && (!checkedProduct(*shape, elements) || counts[i].integer() != elements))
                return wrong(
                    fmt::format("the size of '{}' is not that of its shape {}", *stated, formatDims(*shape)));
            std::string name = prefix;
            const std::string fqn = withoutWrapper(*stated);
            name += (prefix.empty() || fqn.empty() ? "" : ".") + fqn;
            addRange(rank, file, t, name, *shape, ranges[i]);
        }
    }

    void addRange(uint32_t rank, uint32_t file, uint32_t t, const std::string& name, const Dims& shape,
                  const ParameterRange& range) {
        const TensorFile& contents = assembly_.files()[file];
        int64_t elements = 0;
        int64_t end = 0;
        if (!checkedProduct(shape, elements) || range.start < 0 || range.stop < range.start ||
            range.stop > elements || range.at < 0 || !checkedAdd(range.at, range.stop - range.start, end) ||
            end > contents.tensors[t].shape[0]) {
            assembly_.wrong(
                fmt::format("elements [{}, {}) of a parameter of shape {} cannot be at {} of {}", range.start,
                            range.stop, formatDims(shape), range.at, contents.tensors[t].shape[0]),
                contents.name, name);
            return;
        }
        Parameter& parameter = parameters_[name];
        if (parameter.onRank.empty()) parameter.shape = shape;
        if (!parameter.onRank.emplace(rank, range).second) {
            assembly_.note(rule::metaDuplicate, Severity::error, "two flat parameters of this rank claim it",
                           contents.name, name);
            return;
        }
        addFlat({keyPart(name)}, contents.tensors[t].dtype, shape, Role::parameter, range,
                {rank, StoredPart::range(file, t, range.at, range.stop - range.start)});
    }

    void addFlat(const Path& path, DType dtype, const Dims& shape, Role role, const ParameterRange& range,
                 TensorAssembly::Piece piece) {
        if (range.start != 0 || range.stop != elementCount(shape))
            piece.flat = FlatRange{range.start, range.stop};
        assembly_.addPiece(path, dtype, shape, role, std::move(piece));
    }

    // Which range of each parameter is here: empty text, or what is wrong.
    static std::string findRanges(const NamedValues& values, const std::string& handle,
                                  std::vector<ParameterRange>& out) {
        if (const ValueView infos = values[handle + "flat_param._shard_param_infos"]) {
            // torch 2.1 and later: (in_shard, offset_in_shard, numel_in_shard, first, last), the last one
            // included.
            const std::vector<ValueView> list = infos.items();
            if (list.size() != out.size())
                return fmt::format("{} for {}", counted(list.size(), "record"),
                                   counted(out.size(), "parameter"));
            for (size_t i = 0; i < list.size(); ++i) {
                const std::vector<ValueView> info = fields(list[i]);
                if (info.size() != 5 || !info[0].is(ValueKind::boolean))
                    return "a record of another form than is known";
                if (!info[0].isTrue()) continue;
                for (const ValueView count : std::span(info).subspan(1)) {
                    if (count.integer().value_or(-1) < 0) return "a record with something else than counts";
                }
                const int64_t first = *info[3].integer(), last = *info[4].integer(),
                              count = *info[2].integer();
                if (last < first || last > kMaxDim || last - first + 1 != count)
                    return fmt::format("elements {} to {} are not {}", countText(first), countText(last),
                                       countText(count));
                out[i] = {first, last + 1, *info[1].integer()};
            }
            return {};
        }
        // torch 2.0 and before: parameters from the first to the last index, one behind the other.
        const ValueView indices = values[handle + "flat_param._shard_indices"],
                        offsets = values[handle + "flat_param._shard_param_offsets"];
        if (!indices || !offsets) return "which part of its parameters it holds is not recorded";
        const std::vector<ValueView> bounds = indices.items(), list = offsets.items();
        if (list.empty()) return {};
        const auto begin = bounds.size() == 2 ? bounds[0].integer() : std::nullopt;
        if (!begin) return "_shard_indices is not a pair";
        if (*begin < 0 || static_cast<uint64_t>(*begin) + list.size() > out.size())
            return "_shard_indices are outside";
        int64_t at = 0;
        for (size_t i = 0; i < list.size(); ++i) {
            const std::vector<ValueView> pair = list[i].items();
            if (pair.size() != 2 || !pair[0].integer() || !pair[1].integer())
                return "_shard_param_offsets holds something else than pairs";
            const int64_t first = *pair[0].integer(), last = *pair[1].integer();
            if (first < 0 || last < first - 1 || last > kMaxDim)
                return fmt::format("elements {} to {}", countText(first), countText(last));
            out[static_cast<size_t>(*begin) + i] = {first, last + 1, at};
            at += last + 1 - first;
        }
        return {};
    }

    // What FSDP adds at the end, so that all ranks hold equally much, is zero.
    Status checkPadding(uint32_t file, uint32_t t, std::optional<int64_t> padded) {
        const TensorFile& contents = assembly_.files()[file];
        const int64_t size = contents.tensors[t].shape[0];
        if (!padded || *padded <= 0) return {};
        if (*padded > size) {
            assembly_.wrong(fmt::format("{} of padding in a flat parameter of {}",
                                        counted(*padded, "element"), countText(size)),
                            contents.name, contents.tensors[t].name);
            return {};
        }
        const int64_t count = std::min(*padded, kMaxPaddingChecked);
        const auto extent = assembly_.files().extent(StoredPart::range(file, t, size - count, count));
        if (!extent.ok()) return {};
        std::vector<std::byte> bytes(extent->length);
        SHARDSCOPE_TRY(extent->file->readAt(extent->offset, bytes));
        if (std::any_of(bytes.begin(), bytes.end(), [](std::byte b) { return b != std::byte{}; })) {
            assembly_.wrong(
                fmt::format("the padding behind its last {} is not zero: the record of what is where "
                            "may be wrong",
                            counted(*padded, "element")),
                contents.name, contents.tensors[t].name);
        }
        return {};
    }

    // ------------------------------------------------------------------ optimizer

    Status readOptimizer(uint32_t rank) {
        SHARDSCOPE_ASSIGN(const uint32_t file, assembly_.addFile(fmt::format("optim/rank{}.pt", rank), rank));
        if (file == kNone) return {};
        const TensorFile& contents = assembly_.files()[file];
        const std::map<int64_t, std::string> names = namesById(contents);
        for (uint32_t t = 0; t < contents.tensors.size(); ++t) {
            const StoredTensor& stored = contents.tensors[t];
            const bool state = stored.path.size() >= 3 && stored.path[0].toString() == "state";
            if (!state || stored.special != kNone) {
                if (!firstOptim_) continue;
                assembly_.addWhole(file, t, joined({"optim"}, stored.path), Role::other, rank);
                continue;
            }
            SHARDSCOPE_TRY(addState(rank, file, t, names));
        }
        if (firstOptim_) assembly_.addObjects(file, {keyPart("optim")}, rank);
        firstOptim_ = false;
        return {};
    }

    Status addState(uint32_t rank, uint32_t file, uint32_t t, const std::map<int64_t, std::string>& names) {
        const TensorFile& contents = assembly_.files()[file];
        const StoredTensor& stored = contents.tensors[t];
        std::string parameter;
        if (stored.path[1].kind == PathPart::Kind::integerKey) {
            const auto it = names.find(stored.path[1].index);
            if (it == names.end()) {
                assembly_.wrong(fmt::format("no parameter group names parameter {}, whose state is here",
                                            stored.path[1].index),
                                contents.name, stored.name);
                return {};
            }
            parameter = it->second;
        } else {
            parameter = withoutWrapper(stored.path[1].text);
        }
        const Path path = joined({"optim", "state", parameter}, stored.path, 2);
        if (stored.shape.empty()) {
            assembly_.addWhole(file, t, path, Role::optimizer, rank);
            return {};
        }
        const auto it = parameters_.find(parameter);
        const auto piece = it == parameters_.end() ? std::map<uint32_t, ParameterRange>::const_iterator{}
                                                   : it->second.onRank.find(rank);
        if (it == parameters_.end() || piece == it->second.onRank.end()) {
            assembly_.wrong(it == parameters_.end()
                                ? "the model has no parameter of this name, whose state is here"
                                : "this rank has state of a parameter of which model says nothing",
                            contents.name, pathName(path));
            return {};
        }
        const ParameterRange& range = piece->second;
        const int64_t count = range.stop - range.start;
        // FSDP that does not shard, as on one rank, leaves whole parameters their shape.
        if (!(stored.shape.size() == 1 && stored.shape[0] == count) &&
            !(stored.shape == it->second.shape && elementCount(stored.shape) == count)) {
            assembly_.wrong(fmt::format("the state has shape {}, the rank holds {} of the parameter",
                                        formatDims(stored.shape), counted(count, "element")),
                            contents.name, pathName(path));
            return {};
        }
        addFlat(path, stored.dtype, it->second.shape, Role::optimizer, range,
                {rank, StoredPart::range(file, t, 0, count)});
        return {};
    }

    // Ids count over all groups; each group lists its ids and names side by side.
    std::map<int64_t, std::string> namesById(const TensorFile& contents) {
        std::map<int64_t, std::string> names;
        const auto join = [&](ValueView params, ValueView texts) {
            const std::vector<ValueView> ids = params.items(), list = texts.items();
            for (size_t i = 0; i < std::min(ids.size(), list.size()); ++i) {
                if (ids[i].integer() && list[i].text())
                    names.emplace(*ids[i].integer(), withoutWrapper(*list[i].text()));
            }
        };
        const NamedValues values(contents.objects);
        for (const ValueView group : values["param_groups"].items())
            join(group["params"], group["param_names"]);
        // Groups that hold a tensor are listed entry by entry.
        for (const auto& [name, path, params] : contents.objects) {
            if (name.starts_with("param_groups.") && name.ends_with(".params"))
                join(params, values[name.substr(0, name.size() - 6) + "param_names"]);
        }
        return names;
    }

    // ------------------------------------------------------------------ the trainer

    // Ranks differ in their random generators only, so that of the lowest is shown. OLMo resumes with those
    // of all.
    Status readTrain() {
        const auto train = source_.directory->list("train");
        if (!train.ok() || std::ranges::none_of(*train, [](const DirectoryEntry& entry) {
                return rankOf(entry.name).has_value();
            }))
            return {};
        std::vector<std::pair<std::string, uint32_t>> names;
        for (uint32_t rank = 0; rank < world_; ++rank)
            names.emplace_back(fmt::format("train/rank{}.pt", rank), rank);
        SHARDSCOPE_ASSIGN(const std::vector<uint32_t> files, assembly_.addFiles(names));
        TrainerCounters counters(assembly_, world_);
        for (uint32_t rank = 0; rank < world_; ++rank) {
            const uint32_t file = files[rank];
            if (file == kNone) continue;
            if (!counters.add(file)) continue;
            const TensorFile& contents = assembly_.files()[file];
            for (uint32_t t = 0; t < contents.tensors.size(); ++t) {
                if (contents.tensors[t].special != kNone) continue;
                assembly_.addWhole(file, t, joined({"train"}, contents.tensors[t].path), Role::other, rank);
            }
            assembly_.addObjects(file, {keyPart("train")}, rank);
        }
        return {};
    }

    const Source& source_;
    TensorAssembly assembly_;
    uint32_t world_ = 0;
    bool hasOptim_ = false;
    bool firstOptim_ = true;
    std::map<std::string, Parameter> parameters_;
};

}  // namespace

Result<std::unique_ptr<Reader>> openLocal(const Source& source, const OpenOptions& options) {
    return LocalOpener(source, options).open();
}

}  // namespace shardscope::olmo
