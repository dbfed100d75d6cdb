// From the source's catalog to the wanted one (plan.h: resolveTarget): selection, steps of recipes, renames,
// casts, master weights, then placement on ranks.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <unordered_map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/option_words.h"
#include "base/units.h"
#include "model/coverage.h"
#include "plan/placement.h"
#include "plan/plan.h"
#include "plan/selection.h"
#include "plan/steps.h"

namespace shardscope {
namespace {

// The path of a renamed entry: the trailing parts that the new name still ends with are kept as they are (so
// that a dot inside a key survives), what stands before them is split at its dots.
Path renamedPath(const Path& path, const std::string& newName) {
    std::string_view rest = newName;
    size_t kept = path.size();
    while (kept > 0) {
        const std::string part = path[kept - 1].toString();
        if (!rest.ends_with(part)) break;
        if (rest.size() == part.size()) {
            rest = {};
            --kept;
            break;
        }
        if (rest[rest.size() - part.size() - 1] != '.') break;
        rest.remove_suffix(part.size() + 1);
        --kept;
    }
    if (kept == path.size()) return {keyPart(newName)};
    Path out;
    while (!rest.empty()) {
        const size_t dot = rest.find('.');
        out.push_back(keyPart(rest.substr(0, dot)));
        rest = dot == std::string_view::npos ? std::string_view{} : rest.substr(dot + 1);
    }
    out.insert(out.end(), path.begin() + static_cast<std::ptrdiff_t>(kept), path.end());
    return out;
}

// Mappings that are optimizer state dicts, seen from where their tensors are: everything up to the part
// `state` (or to the flattened key "state.<fqn>...").
std::set<std::string> optimizerPrefixes(const Catalog& source) {
    std::set<std::string> prefixes;
    for (TensorId t = 0; t < source.tensorCount(); ++t) {
        if (source.role(t) != Role::optimizer) continue;
        Path path = source.path(t);
        for (size_t i = 0; i < path.size(); ++i) {
            if (path[i].kind == PathPart::Kind::key &&
                (path[i].text == "state" || path[i].text.starts_with("state."))) {
                path.resize(i);
                prefixes.insert(encodePath(path));
                break;
            }
        }
    }
    return prefixes;
}

bool underOptimizer(const Path& path, const std::set<std::string>& prefixes) {
    for (size_t i = 0; i < path.size(); ++i) {
        const std::string& text = path[i].text;
        const bool stateLike = text == "state" || text == "param_groups" || text.starts_with("state.") ||
                               text.starts_with("param_groups.");
        if (stateLike &&
            prefixes.contains(encodePath(Path(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(i)))))
            return true;
    }
    return false;
}

class TargetResolver {
  public:
    TargetResolver(const TargetInput& input, const TargetRequest& request)
        : input_(input),
          request_(request),
          source_(*input.source),
          builder_(input.format, input.variant, "shardscope") {}

    Result<TargetSpec> make() {
        SHARDSCOPE_ASSIGN(selection_, TensorSelection::of(request_, request_.leavesOptimizer));
        SHARDSCOPE_ASSIGN(rename_, Renamer::make(request_.rename));
        for (const CastRule& rule : request_.cast) {
            SHARDSCOPE_ASSIGN(NamePattern pattern, NamePattern::parse(rule.pattern));
            casts_.push_back({std::move(pattern), rule.dtype, rule.pattern, {}});
        }
        if (selection_.leavesOptimizer()) optimizer_ = optimizerPrefixes(source_);
        SHARDSCOPE_TRY(preparePlacement());

        StepState state;
        for (TensorId t = 0; t < source_.tensorCount(); ++t) {
            if (!comesAlong(t)) continue;
            StepTensor tensor{std::string(source_.name(t)), t, nullptr, {}, false};
            if (request_.steps.empty()) {
                SHARDSCOPE_TRY(addTensor(std::move(tensor)));
            } else {
                state.tensors.push_back(std::move(tensor));
            }
        }
        for (ObjectId o = 0; o < source_.objects().size(); ++o) {
            if (comesAlong(source_.objects()[o])) state.objects.push_back({source_.objects()[o].name, o});
        }
        checkSelect();
        SHARDSCOPE_TRY(applySteps(source_, request_.steps, state));
        if (request_.leaves) SHARDSCOPE_TRY(findUnknown(state));
        for (StepTensor& tensor : state.tensors)
            SHARDSCOPE_TRY(addTensor(std::move(tensor)));
        noteCasts();
        for (auto& [name, why] : state.dropped)
            spec_.excluded.push_back({std::move(name), std::move(why)});
        for (const auto& [name, value] : request_.values)
            spec_.notes.push_back({name, value});
        for (auto& [name, note] : state.notes)
            spec_.notes.push_back({std::move(name), std::move(note)});
        spec_.reordered = std::move(state.reordered);
        SHARDSCOPE_TRY(addCopies());
        if (input_.like) {
            for (TensorId t = 0; t < input_.like->tensorCount(); ++t) {
                if (!names_.contains(std::string(input_.like->name(t)))) {
                    spec_.impossible.push_back(
                        {std::string(input_.like->name(t)),
                         fmt::format("the {} checkpoint has it, the source does not", option("like"))});
                }
            }
        }
        for (const StepObject& object : state.objects)
            addObject(object);
        spec_.target = std::move(builder_).finish();
        return std::move(spec_);
    }

  private:
    struct Cast {
        NamePattern names;
        DType dtype;
        std::string pattern;
        std::vector<std::string> left;  // that it would take in, and that hold no floating-point numbers
        bool forMany() const {
            return pattern.starts_with("re:") || pattern.find_first_of("*?") != std::string::npos;
        }
    };

    // A pattern with a slip in it would otherwise make an empty checkpoint.
    void checkSelect() {
        if (request_.select.empty()) return;
        for (TensorId t = 0; t < source_.tensorCount(); ++t) {
            if (selection_.selected(source_.name(t))) return;
        }
        for (const ObjectInfo& object : source_.objects()) {
            if (selection_.selected(object.name)) return;
        }
        spec_.impossible.push_back({fmt::format("{}", fmt::join(request_.select, " ")),
                                    "no tensor and no object matches " + option("select")});
    }

    // Weights that no step of the recipe has matched: they would stand under the source's names among those
    // of another family.
    Status findUnknown(const StepState& state) {
        SHARDSCOPE_ASSIGN(const std::vector<NamePattern> leaves, parsePatterns(*request_.leaves));
        std::set<TensorId> seen;
        for (const StepTensor& tensor : state.tensors) {
            const Role role = source_.role(tensor.origin);
            const std::string name(source_.name(tensor.origin));
            if (tensor.known || (role != Role::parameter && role != Role::buffer) ||
                rename_(tensor.name) != tensor.name || anyMatches(leaves, name) ||
                !seen.insert(tensor.origin).second)
                continue;
            spec_.unknown.push_back({name, tensor.name == name
                                               ? std::string("it keeps its name")
                                               : fmt::format("it is called '{}'", tensor.name)});
        }
        return {};
    }

    Status preparePlacement() {
        if (input_.like) {
            builder_.setRankCount(input_.like->rankCount());
            if (input_.like->mesh()) builder_.setMesh(*input_.like->mesh());
            if (request_.mesh)
                return makeError(ErrorCode::usage,
                                 fmt::format("{} and {} both say where the shards go; give one of them",
                                             option("mesh"), option("like")));
        } else if (request_.mesh) {
            SHARDSCOPE_ASSIGN(Placer placer, Placer::make(*request_.mesh, request_, input_.replicas));
            placer_ = std::move(placer);
            builder_.setRankCount(request_.mesh->ranks());
            builder_.setMesh(*request_.mesh);
            return {};
        } else if (input_.keepPlacement) {
            builder_.setRankCount(source_.rankCount());
            if (input_.replicas && source_.mesh()) builder_.setMesh(*source_.mesh());
        } else {
            builder_.setRankCount(1);
        }
        if (!request_.shard.empty() || !request_.stage.empty()) {
            return makeError(ErrorCode::usage, fmt::format("{} and {} need {}", option("shard"),
                                                           option("stage"), option("mesh")))
                .withHint("for example " + option("mesh", "'dp=2,tp=4'"));
        }
        return {};
    }

    // Registers a name of the destination; false (with an `impossible` entry) when it is taken.
    bool takeName(std::string_view from, const std::string& name) {
        const auto [it, fresh] = names_.emplace(name, std::string(from));
        if (!fresh) {
            spec_.impossible.push_back(
                {name, fmt::format("'{}' and '{}' would both get this name", it->second, from)});
        }
        return fresh;
    }

    // Whether a source tensor is to be carried at all; says why not.
    bool comesAlong(TensorId t) {
        const std::string name(source_.name(t));
        if (std::string why = selection_.whyNot(source_, t); !why.empty()) {
            spec_.excluded.push_back({name, std::move(why)});
            return false;
        }
        if (std::string damage = input_.damaged ? input_.damaged(t) : std::string(); !damage.empty()) {
            spec_.leftOut.push_back({name, std::move(damage)});
            return false;
        }
        if (const uint32_t special = source_.special(t); special != kNone) {
            const SpecialTensor& whole = source_.specials()[special];
            if (specialsNamed_.insert(special).second) {
                spec_.leftOut.push_back(
                    {whole.name, fmt::format("a tensor of kind {}, which is not a plain array", whole.kind)});
            }
            return false;
        }
        return true;
    }

    Status addTensor(StepTensor tensor) {
        const TensorId t = tensor.origin;
        const std::string& name = tensor.name;  // before --rename
        const std::string_view before = source_.name(t);
        // A view that is one whole tensor under another name needs nothing of its own.
        if (tensor.view && tensor.view->sameOrderAs(source_) == t &&
            std::ranges::equal(tensor.view->shape(), source_.shape(t))) {
            tensor.view = nullptr;
            // Steps may make the same of it more than once (a row that is repeated): no tie of the source.
            tensor.copy = tensor.copy || carriers_.contains(t);
        }
        TensorInfo info;
        info.name = rename_(name);
        info.path = info.name == before ? source_.path(t) : renamedPath(source_.path(t), info.name);
        nestAsTarget(info.name, info.path, source_.role(t) == Role::optimizer);
        info.dtype = source_.dtype(t);
        info.role = source_.role(t);
        const DimSpan shape = tensor.view ? DimSpan(tensor.view->shape()) : source_.shape(t);
        info.shape.assign(shape.begin(), shape.end());
        const auto rule = std::ranges::find_if(casts_, [&](const Cast& c) { return c.names.matches(name); });
        const bool cast = rule != casts_.end() && takesCast(*rule, info);
        if (cast) info.dtype = rule->dtype;
        const bool fromMasters = takesMasters(tensor, cast, info.dtype);
        if (input_.cannotHold) {
            if (std::string reason = input_.cannotHold(info.name); !reason.empty()) {
                spec_.leftOut.push_back({name, std::move(reason)});
                return {};
            }
        }
        TensorId likeTensor = kNone;
        if (input_.like) {
            likeTensor = input_.like->find(info.name);
            if (likeTensor == kNone) {
                spec_.leftOut.push_back(
                    {name, fmt::format("the {} checkpoint does not have it", option("like"))});
                return {};
            }
            if (!std::ranges::equal(input_.like->shape(likeTensor), shape)) {
                spec_.impossible.push_back(
                    {name, fmt::format("its shape is {}, the {} checkpoint has {}", formatDims(shape),
                                       option("like"), formatDims(input_.like->shape(likeTensor)))});
                names_.emplace(info.name, name);
                return {};
            }
        }
        if (!takeName(name, info.name)) return {};
        if (fromMasters) noteMasters(tensor, info.name);
        if (tensor.view) {
            std::string from;
            for (const TensorId part : tensor.view->sources()) {
                if (from.size() > 400) {
                    from += ", ...";
                    break;
                }
                from += fmt::format("{}'{}'", from.empty() ? "" : ", ", source_.name(part));
            }
            spec_.made.push_back({info.name, fmt::format("{} of {}", tensor.made, from)});
            SHARDSCOPE_TRY(addPlaced(info, place(kNone, info, likeTensor)));
            if (fromMasters)
                tensor.view = std::make_shared<const TensorView>(tensor.view->ofOthers(input_.masters));
            spec_.sources.push_back({kNone, std::move(tensor.view)});
            return {};
        }
        const TensorId values = fromMasters ? input_.masters[t] : t;
        if (info.name != before) spec_.renamed.push_back({std::string(before), info.name});

        if (tensor.copy) {
            SHARDSCOPE_TRY(addPlaced(info, place(t, info, likeTensor)));
            spec_.sources.push_back({values, nullptr});
            return {};
        }

        // A tied name stays tied when the name that carries the storage is converted, too, and both keep one
        // dtype.
        const TensorId first = source_.aliasOf(t) == kNone ? t : source_.aliasOf(t);
        if (const auto it = carriers_.find(first); it == carriers_.end()) {
            carriers_.emplace(first, Carrier{static_cast<TensorId>(builder_.tensorCount()), info.dtype, {}});
        } else if (it->second.dtype == info.dtype && !input_.apart.contains(info.name)) {
            info.aliasOf = it->second.target;
        }

        std::vector<PlacedBox> boxes;
        if (info.aliasOf != kNone) {
            boxes = carriers_.at(first).boxes;
        } else {
            boxes = place(t, info, likeTensor);
        }
        if (source_.aliasOf(t) != kNone || hasAliases()) {
            if (info.aliasOf == kNone && carriers_.at(first).boxes.empty()) carriers_.at(first).boxes = boxes;
        }
        SHARDSCOPE_TRY(addPlaced(info, boxes));
        spec_.sources.push_back({values, nullptr});
        return {};
    }

    static std::vector<TensorId> sourcesOf(const StepTensor& tensor) {
        return tensor.view ? tensor.view->sources() : std::vector<TensorId>{tensor.origin};
    }

    // Whether a rule changes the tensor. One for many names means their floating-point numbers.
    static bool takesCast(Cast& rule, const TensorInfo& tensor) {
        if (dtypeIsFloat(tensor.dtype) || tensor.dtype == rule.dtype || !rule.forMany()) return true;
        rule.left.push_back(tensor.name);
        return false;
    }

    void noteCasts() {
        constexpr size_t kMost = 20;
        for (const Cast& rule : casts_) {
            if (rule.left.empty()) continue;
            std::string names;
            for (size_t i = 0; i < std::min(kMost, rule.left.size()); ++i)
                names += (i ? ", " : "") + rule.left[i];
            if (rule.left.size() > kMost)
                names += fmt::format(" and {} more", countText(rule.left.size() - kMost));

            spec_.notes.push_back(
                {fmt::format("{}={}", rule.pattern, dtypeName(rule.dtype)),
                 fmt::format("{} changes floating-point tensors only and leaves {}: {}", option("dtype"),
                             counted(rule.left.size(), "other tensor"), names)});
        }
    }

    // Whether a tensor takes its values from masters; sets its dtype where that is theirs.
    bool takesMasters(const StepTensor& tensor, bool cast, DType& dtype) {
        if (input_.masters.empty()) return false;
        const std::vector<TensorId> sources = sourcesOf(tensor);
        if (sources.empty() || input_.masters[sources[0]] == kNone) return false;
        const DType stored = source_.dtype(sources[0]), precise = source_.dtype(input_.masters[sources[0]]);
        for (const TensorId source : sources) {
            const TensorId master = input_.masters[source];
            if (master == kNone || source_.dtype(master) != precise) return false;
        }
        const bool use = request_.masterWeights == MasterWeights::use;
        if (!use && dtypePrecision(dtype) <= dtypePrecision(stored)) {
            ++spec_.mastersUnused;
            return false;
        }
        if (!cast) dtype = precise;
        return true;
    }

    void noteMasters(const StepTensor& tensor, const std::string& name) {
        std::string from;
        for (const TensorId source : sourcesOf(tensor)) {
            if (from.size() > 400) {
                from += ", ...";
                break;
            }
            from += fmt::format("{}'{}'", from.empty() ? "" : ", ", source_.name(input_.masters[source]));
        }
        spec_.fromMasters.push_back({name, std::move(from)});
    }

    // Copies of tensors that the target's format needs.
    Status addCopies() {
        for (const WantedCopy& copy : input_.copies) {
            const auto of = targets_.find(copy.of);
            if (of == targets_.end()) continue;
            TensorInfo info = of->second.second;
            info.name = pathName(copy.path);
            info.path = copy.path;
            info.dtype = copy.dtype;
            info.role = copy.role;
            info.aliasOf = kNone;
            if (!takeName(copy.of, info.name)) continue;
            spec_.made.push_back({info.name, copy.why});
            const TensorSource& from = spec_.sources[of->second.first];
            SHARDSCOPE_TRY(addPlaced(info, place(from.source, info, kNone)));
            spec_.sources.push_back(from);
        }
        return {};
    }

    void nestAsTarget(std::string& name, Path& path, bool optimizer) const {
        if (!input_.pathFor || input_.like) return;
        if (auto other = input_.pathFor(path, optimizer)) {
            path = std::move(*other);
            name = pathName(path);
        }
    }

    // Whether an optimizer's state dict is the root.
    bool bareOptimizer() {
        if (bareOptimizer_ < 0) {
            bareOptimizer_ = 0;
            for (TensorId t = 0; t < source_.tensorCount() && !bareOptimizer_; ++t) {
                if (source_.role(t) != Role::optimizer) continue;
                const Path path = source_.path(t);
                bareOptimizer_ = !path.empty() && path[0].toString() == "state";
            }
        }
        return bareOptimizer_ != 0;
    }

    Status addPlaced(const TensorInfo& info, const std::vector<PlacedBox>& boxes) {
        if (!input_.copies.empty())
            targets_.try_emplace(info.name, static_cast<TensorId>(builder_.tensorCount()), info);
        SHARDSCOPE_TRY(builder_.addTensor(info));
        for (const PlacedBox& placed : boxes) {
            SHARDSCOPE_TRY(builder_.addChunk(
                {placed.rank, kNone, 0, 0, placed.box.offsets, placed.box.lengths, std::nullopt}));
        }
        return {};
    }

    bool hasAliases() {
        if (hasAliases_ < 0) {
            hasAliases_ = 0;
            for (TensorId t = 0; t < source_.tensorCount() && !hasAliases_; ++t)
                hasAliases_ = source_.aliasOf(t) != kNone;
        }
        return hasAliases_ != 0;
    }

    // Where the pieces of a tensor go; `t` is the source tensor that it is, if it is one.
    std::vector<PlacedBox> place(TensorId t, const TensorInfo& info, TensorId likeTensor) {
        if (placer_) return placer_->place(info.name, info.dtype, info.shape, info.role);
        std::vector<PlacedBox> boxes;
        const Catalog* pattern = input_.like                          ? input_.like
                                 : input_.keepPlacement && t != kNone ? &source_
                                                                      : nullptr;
        if (pattern) {
            const TensorId p = input_.like ? likeTensor : t;
            bool plain = checkCoverage(*pattern, p, 1, 1).whole();
            std::vector<ChunkId> chunks = coveringChunks(*pattern, p);
            if (input_.replicas) {
                chunks.resize(pattern->endChunk(p) - pattern->firstChunk(p));
                std::iota(chunks.begin(), chunks.end(), pattern->firstChunk(p));
            }
            for (ChunkId c : chunks) {
                const ChunkInfo chunk = pattern->chunk(p, c);
                if (chunk.flat) plain = false;
                boxes.push_back({chunk.rank == kNone ? 0 : chunk.rank,
                                 {Dims(chunk.offsets.begin(), chunk.offsets.end()),
                                  Dims(chunk.lengths.begin(), chunk.lengths.end())}});
            }
            if (plain && !boxes.empty()) return boxes;
            boxes.clear();  // gaps, overlaps or flat ranges cannot be a pattern for writing
        }
        boxes.push_back({0, {Dims(info.shape.size(), 0), info.shape}});
        return boxes;
    }

    bool comesAlong(const ObjectInfo& object) {
        if (std::string why = selection_.whyNot(object.name); !why.empty()) {
            spec_.excluded.push_back({object.name, std::move(why)});
            return false;
        }
        const bool optimizer = selection_.leavesOptimizer() && underOptimizer(object.path, optimizer_);
        if (optimizer || (request_.weightsOnly && input_.isState && input_.isState(object))) {
            spec_.excluded.push_back({object.name, optimizer ? kOptimizerState : kNotAWeight});
            return false;
        }
        return true;
    }

    void addObject(const StepObject& from) {
        const ObjectInfo& object = source_.objects()[from.origin];
        ObjectInfo target;
        target.name = rename_(from.name);
        target.path = target.name == object.name ? object.path : renamedPath(object.path, target.name);
        nestAsTarget(target.name, target.path, bareOptimizer());
        target.rank = 0;
        if (input_.cannotHold) {
            if (std::string reason = input_.cannotHold(target.name); !reason.empty()) {
                spec_.leftOut.push_back({object.name, std::move(reason)});
                return;
            }
        }
        auto value = input_.objectValue(from.origin);
        if (!value.ok()) {
            spec_.leftOut.push_back(
                {object.name, fmt::format("its value cannot be read: {}", describe(value.error()))});
            return;
        }
        target.value = std::move(value).value();
        if (!takeName(object.name, target.name)) return;
        if (target.name != object.name) spec_.renamed.push_back({object.name, target.name});
        builder_.addObject(std::move(target));
    }

    struct Carrier {
        TensorId target;
        DType dtype;
        std::vector<PlacedBox> boxes;
    };

    const TargetInput& input_;
    const TargetRequest& request_;
    const Catalog& source_;
    CatalogBuilder builder_;
    TargetSpec spec_;
    TensorSelection selection_;
    Renamer rename_;
    std::vector<Cast> casts_;
    std::set<std::string> optimizer_;
    std::optional<Placer> placer_;
    std::unordered_map<std::string, std::string> names_;  // wanted name -> source name
    std::unordered_map<TensorId, Carrier> carriers_;      // first name of a storage -> its wanted tensor
    std::unordered_map<std::string, std::pair<TensorId, TensorInfo>> targets_;  // for copies
    std::set<uint32_t> specialsNamed_;
    int hasAliases_ = -1, bareOptimizer_ = -1;
};

}  // namespace

std::vector<TensorId> TensorSource::tensors() const {
    return view ? view->sources() : std::vector<TensorId>{source};
}

DType TensorSource::dtypeIn(const Catalog& have, DType empty) const {
    for (const TensorId t : tensors()) {
        if (t < have.tensorCount()) return have.dtype(t);
    }
    return empty;
}

Result<TargetSpec> resolveTarget(const TargetInput& input, const TargetRequest& request) {
    return TargetResolver(input, request).make();
}

}  // namespace shardscope
