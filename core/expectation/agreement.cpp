#include "expectation/agreement.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>

#include <fmt/format.h>

#include "base/numbers.h"
#include "base/regular_expression.h"
#include "base/rule.h"
#include "base/text.h"
#include "model/value_view.h"

namespace shardscope {

namespace {

// States that have an element for each element of their parameter. Sources: torch/optim, Megatron-Core's
// distrib_optimizer.py, Paddle's adamw.py.
constexpr std::array<std::string_view, 14> kElementwise{
    "exp_avg",  "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer", "exp_inf",   "square_avg", "acc_delta",
    "grad_avg", "moment1",    "moment2",        "moment1_0",       "moment2_0", "fp32",       "fp32_param"};
constexpr std::array<std::array<std::string_view, 2>, 3> kPairs{
    {{"exp_avg", "exp_avg_sq"}, {"moment1", "moment2"}, {"moment1_0", "moment2_0"}}};

bool isElementwise(std::string_view slot) {
    return std::ranges::count(kElementwise, slot) > 0;
}

// What one parameter has in the optimizer.
struct Owner {
    TensorId parameter = kNone;  // kNone = only known by a number
    std::map<std::string_view, TensorId> slots;
};

bool isParameter(const Catalog& catalog, TensorId t) {
    return t != kNone && catalog.role(t) != Role::optimizer && catalog.role(t) != Role::other;
}

// The parameter whose name `text` ends with, by whole components.
TensorId parameterBehind(const Catalog& catalog, std::string_view text) {
    for (;;) {
        if (const TensorId t = catalog.find(text); isParameter(catalog, t)) return t;
        const size_t dot = text.find_first_of(".:");
        if (dot == text.npos) return kNone;
        text.remove_prefix(dot + 1);
    }
}

using Owners = std::map<std::string_view, Owner>;

Owners ownersOf(const Catalog& catalog) {
    Owners owners;
    for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
        if (catalog.role(t) != Role::optimizer || catalog.special(t) != kNone) continue;
        const std::string_view name = catalog.name(t);
        const size_t dot = name.rfind('.');
        if (dot == name.npos) continue;
        const std::string_view slot = name.substr(dot + 1), rest = name.substr(0, dot);
        if (!isElementwise(slot)) continue;
        Owner& owner = owners[rest];
        if (owner.slots.empty()) owner.parameter = parameterBehind(catalog, rest);
        owner.slots.emplace(slot, t);
    }
    return owners;
}

class Agreement {
  public:
    explicit Agreement(const Catalog& catalog) : catalog_(catalog), owners_(ownersOf(catalog)) {}

    std::vector<Note> notes() && {
        for (const auto& [name, owner] : owners_) {
            checkAgainstParameter(owner);
            checkAgainstEachOther(owner);
        }
        checkPairs();
        checkNumbered();
        checkGroups();
        checkCounters();
        checkPlaceholders();
        return std::move(notes_);
    }

  private:
    void add(const char* rule, TensorId t, std::string message) {
        Note note;
        note.rule = rule;
        note.severity = Severity::error;
        note.tensor = catalog_.name(t);
        note.message = std::move(message);
        notes_.push_back(std::move(note));
    }

    // The box of one of its chunks: what one rank held.
    bool isChunkOf(DimSpan shape, TensorId t) const {
        if (catalog_.endChunk(t) - catalog_.firstChunk(t) < 2) return false;
        for (ChunkId c = catalog_.firstChunk(t); c < catalog_.endChunk(t); ++c)
            if (std::ranges::equal(catalog_.chunk(t, c).lengths, shape)) return true;
        return false;
    }

    // Other differences have reasons, such as a padded vocabulary.
    void checkAgainstParameter(const Owner& owner) {
        if (owner.parameter == kNone) return;
        const DimSpan whole = catalog_.shape(owner.parameter);
        for (const auto& [slot, t] : owner.slots) {
            const DimSpan shape = catalog_.shape(t);
            if (shape.size() != whole.size() || std::ranges::equal(shape, whole)) continue;
            if (!isShard(shape, whole) && !isChunkOf(shape, owner.parameter)) continue;
            add(rule::stateDiffers, t,
                fmt::format("its shape is {}, that of its parameter {}: what other ranks held of it was not "
                            "saved",
                            formatDims(shape), formatDims(whole)));
        }
    }

    void checkAgainstEachOther(const Owner& owner) {
        if (owner.parameter != kNone || owner.slots.empty()) return;
        const TensorId first = owner.slots.begin()->second;
        for (const auto& [slot, t] : owner.slots) {
            if (catalog_.shape(t).size() != catalog_.shape(first).size() ||
                std::ranges::equal(catalog_.shape(t), catalog_.shape(first)))
                continue;
            add(rule::stateDiffers, t,
                fmt::format("its shape is {}, that of '{}' of the same parameter {}: states of several "
                            "parameters are mixed",
                            formatDims(catalog_.shape(t)), owner.slots.begin()->first,
                            formatDims(catalog_.shape(first))));
        }
    }

    void checkPairs() {
        for (const auto& [a, b] : kPairs) {
            const bool both = std::ranges::any_of(owners_, [&, a = a, b = b](const auto& owner) {
                return owner.second.slots.contains(a) && owner.second.slots.contains(b);
            });
            if (!both) continue;
            for (const auto& [name, owner] : owners_) {
                const auto one = owner.slots.find(a), other = owner.slots.find(b);
                if ((one == owner.slots.end()) == (other == owner.slots.end())) continue;
                const bool first = one != owner.slots.end();
                add(rule::stateMissing, first ? one->second : other->second,
                    fmt::format("its parameter has no '{}', other parameters have both", first ? b : a));
            }
        }
    }

    // States by number: which parameter they belong to is not written, but it has their shape.
    void checkNumbered() {
        std::set<Dims> shapes;
        for (TensorId t = 0; t < catalog_.tensorCount(); ++t) {
            const DimSpan shape = catalog_.shape(t);
            if (isParameter(catalog_, t)) shapes.insert(Dims(shape.begin(), shape.end()));
        }
        for (const auto& [name, owner] : owners_) {
            if (owner.parameter != kNone || owner.slots.empty()) continue;
            const TensorId t = owner.slots.begin()->second;
            const DimSpan shape = catalog_.shape(t);
            if (shape.size() < 2 || shapes.contains(Dims(shape.begin(), shape.end()))) continue;
            const auto whole = std::ranges::find_if(shapes, [&](const Dims& s) { return isShard(shape, s); });
            if (whole != shapes.end())
                add(rule::stateDiffers, t,
                    fmt::format("no parameter has its shape {}; it is that of a rank's shard of {}",
                                formatDims(shape), formatDims(*whole)));
        }
    }

    // States of parameters that no group of their optimizer lists are those of another optimizer. The other
    // way round nothing is wrong: a parameter without gradients has no state.
    void checkGroups() {
        constexpr std::string_view kGroups = "param_groups";
        for (const ObjectInfo& object : catalog_.objects()) {
            if (!object.name.ends_with(kGroups) || !object.value.graph) continue;
            const std::set<std::string> listed = parametersIn(object.value);
            const std::string prefix = object.name.substr(0, object.name.size() - kGroups.size()) + "state.";
            for (const auto& [name, owner] : owners_) {
                if (listed.empty() || !name.starts_with(prefix)) continue;
                const std::string_view number = name.substr(prefix.size());
                if (!parseNumber<int64_t>(number) || listed.contains(std::string(number))) continue;
                add(rule::stateDiffers, owner.slots.begin()->second,
                    fmt::format("'{}' lists no such parameter: it is the state of another optimizer",
                                printable(object.name, kNameInMessage)));
            }
        }
    }

    // What each rank has for itself: "extra_state.rank_1.lr_scheduler", "sched@1".
    void checkCounters() {
        static const RegularExpression ofRank =
            RegularExpression::parse(R"((.*)(?:rank_|@)([0-9]+)((?:\..*)?))").value();
        std::vector<std::string_view> groups;
        for (const ObjectInfo& object : catalog_.objects())
            if (object.value.graph && ofRank.matchWhole(object.name, groups))
                addCounters(object.value, fmt::format("{}*{}", groups[1], groups[3]), object, 0);
        for (const auto& [what, values] : counters_) {
            if (values.size() < 2) continue;
            // The fewest ranks are those whose file is of another save.
            const auto odd =
                std::ranges::min_element(values, {}, [](const auto& value) { return value.second.size(); });
            const auto most =
                std::ranges::max_element(values, {}, [](const auto& value) { return value.second.size(); });
            const auto other = most == odd ? std::next(values.begin()) : most;
            const auto nameOf = [](const ObjectInfo* object) {
                return printable(object->name, kNameInMessage);
            };
            Note note;
            note.rule = rule::saveMixed;
            note.severity = Severity::warning;
            const ObjectInfo* const object = odd->second.front();
            if (object->file < catalog_.files().size()) note.file = catalog_.files()[object->file].path;
            note.message =
                fmt::format("{} is {} in '{}' and {} in '{}': the files of the ranks are of two saves",
                            what.substr(what.rfind('/') + 1), odd->first, nameOf(object), other->first,
                            nameOf(other->second.front()));
            notes_.push_back(std::move(note));
            return;
        }
    }

    void addCounters(ValueView value, const std::string& what, const ObjectInfo& object, int depth) {
        constexpr std::array<std::string_view, 6> kCounters{"last_epoch",   "_step_count", "global_step",
                                                            "global_steps", "iteration",   "num_updates"};
        constexpr int kDeepest = 3;
        for (const auto& [key, inner] : value.pairs()) {
            const std::string_view name = key.text().value_or("");
            const auto number = inner.integer();
            if (number && std::ranges::count(kCounters, name))
                counters_[fmt::format("{}/{}", what, name)][*number].push_back(&object);
            else if (depth < kDeepest && inner.isMapping())
                addCounters(inner, fmt::format("{}/{}", what, name), object, depth + 1);
        }
    }

    // The numbers that `params` of all groups lists. Readers give states that have one in a file the names of
    // their parameters where they know them.
    static std::set<std::string> parametersIn(const Value& groups) {
        const ValueGraph& graph = *groups.graph;
        std::set<std::string> listed;
        if (graph.kind(groups.node) != ValueKind::list) return listed;
        for (const NodeId group : graph.items(groups.node)) {
            const NodeId parameters = graph.find(group, "params");
            if (parameters == kNoNode || graph.kind(parameters) != ValueKind::list) return {};
            for (const NodeId one : graph.items(parameters)) {
                if (graph.kind(one) != ValueKind::integer) return {};
                listed.insert(std::to_string(graph.integer(one)));
            }
        }
        return listed;
    }

    // Cut evenly along one dimension.
    static bool isShard(DimSpan piece, DimSpan whole) {
        if (piece.size() != whole.size()) return false;
        size_t cut = 0;
        for (size_t d = 0; d < piece.size(); ++d) {
            if (piece[d] == whole[d]) continue;
            if (piece[d] == 0 || whole[d] % piece[d] != 0) return false;
            ++cut;
        }
        return cut == 1;
    }

    void checkPlaceholders() {
        for (TensorId t = 0; t < catalog_.tensorCount(); ++t) {
            const DimSpan shape = catalog_.shape(t);
            const std::string_view name = catalog_.name(t);
            if (catalog_.role(t) != Role::parameter || shape.size() != 1 || shape[0] != 0) continue;
            if (name.ends_with("weight") || name.ends_with("bias") || name.find("lora_") != name.npos)
                add(rule::stateMissing, t,
                    "it has no elements: a placeholder of a parameter that was partitioned when it was "
                    "saved");
        }
    }

    const Catalog& catalog_;
    const Owners owners_;
    std::map<std::string, std::map<int64_t, std::vector<const ObjectInfo*>>> counters_;  // by value
    std::vector<Note> notes_;
};

}  // namespace

std::vector<Note> agreementNotes(const Catalog& catalog) {
    return Agreement(catalog).notes();
}

std::optional<Note> lostMomentsNote(const Catalog& catalog) {
    for (TensorId t = 0; t < catalog.tensorCount(); ++t)
        if ((catalog.role(t) == Role::optimizer && catalog.elements(t) > 1) ||
            catalog.name(t).find("state.") != std::string_view::npos)
            return std::nullopt;
    for (const ObjectInfo& object : catalog.objects()) {
        if (!object.name.ends_with("param_groups") || !object.value.graph) continue;
        const ValueGraph& graph = *object.value.graph;
        if (graph.kind(object.value.node) != ValueKind::list) continue;
        for (const NodeId group : graph.items(object.value.node)) {
            const NodeId parameters = graph.find(group, "params");
            if (graph.find(group, "betas") == kNoNode || parameters == kNoNode ||
                graph.kind(parameters) != ValueKind::list || graph.items(parameters).empty())
                continue;
            Note note;
            note.rule = rule::stateMissing;
            note.severity = Severity::error;
            note.message = fmt::format(
                "'{}' lists parameters of an optimizer that keeps moments, and none are "
                "here",
                printable(object.name, kNameInMessage));
            return note;
        }
    }
    return std::nullopt;
}

std::set<TensorId> parametersInTraining(const Catalog& catalog) {
    std::set<TensorId> parameters, trained;
    for (TensorId t = 0; t < catalog.tensorCount(); ++t)
        if (catalog.role(t) == Role::parameter) parameters.insert(t);
    size_t numbered = 0;
    for (const auto& [name, owner] : ownersOf(catalog)) {
        if (owner.parameter != kNone)
            trained.insert(owner.parameter);
        else
            ++numbered;
    }
    return numbered >= parameters.size() ? parameters : trained;
}

size_t parametersWithState(const Catalog& catalog) {
    return ownersOf(catalog).size();
}

}  // namespace shardscope
