#include "engine/adapter_parameters.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "base/numbers.h"
#include "base/text.h"
#include "base/units.h"
#include "model/region.h"

namespace shardscope {
namespace {

constexpr size_t kMostParametersOfModule = 4;
constexpr int64_t kMostParameterRank = 1 << 20;

// How files name what transformers keeps of one expert, and the parameter of all experts that it is in.
struct ExpertLeaf {
    std::string_view leaf, parameter;
    bool second;  // behind another one
};
constexpr ExpertLeaf kExpertLeaves[] = {
    {"gate_proj", "gate_up_proj", false}, {"up_proj", "gate_up_proj", true}, {"w1", "gate_up_proj", false},
    {"w3", "gate_up_proj", true},         {"down_proj", "down_proj", false}, {"w2", "down_proj", false}};

struct ExpertName {
    std::string module;  // "model.layers.0.mlp.experts"
    int64_t expert;
    const ExpertLeaf* leaf;
};

std::optional<ExpertName> expertName(std::string_view name) {
    constexpr std::string_view kWeight = ".weight", kExperts = ".experts";
    if (!name.ends_with(kWeight)) return std::nullopt;
    name.remove_suffix(kWeight.size());
    const size_t leafDot = name.rfind('.');
    const size_t numberDot = leafDot == 0 || leafDot == name.npos ? name.npos : name.rfind('.', leafDot - 1);
    if (numberDot == name.npos || !name.substr(0, numberDot).ends_with(kExperts)) return std::nullopt;
    const auto number = parseNumber<uint32_t>(name.substr(numberDot + 1, leafDot - numberDot - 1));
    if (!number) return std::nullopt;
    for (const ExpertLeaf& leaf : kExpertLeaves) {
        if (name.substr(leafDot + 1) == leaf.leaf)
            return ExpertName{std::string(name.substr(0, numberDot)), *number, &leaf};
    }
    return std::nullopt;
}

// By their numbers, which must be 0 to N - 1.
using ByExpert = std::map<int64_t, TensorId>;

// The parameter of all experts: first[e], then second[e] (if there is any), for each of them.
std::optional<StackedParameter> stackOf(const Catalog& base, const ByExpert& first, const ByExpert& second) {
    const DimSpan shape = base.shape(first.begin()->second);
    const auto count = static_cast<int64_t>(first.size());
    if (shape.size() != 2 || (!second.empty() && second.size() != first.size())) return std::nullopt;
    const int64_t rows = shape[0] * (second.empty() ? 1 : 2);
    StackedParameter stack{{count, rows, shape[1]}, {}};
    for (const ByExpert* part : {&first, &second}) {
        int64_t expert = 0;
        for (const auto& [number, tensor] : *part) {
            if (number != expert || !std::ranges::equal(base.shape(tensor), shape)) return std::nullopt;
            stack.places.push_back({tensor, expert * rows + (part == &second ? shape[0] : 0)});
            ++expert;
        }
    }
    return stack;
}

}  // namespace

BaseNames::BaseNames(const Catalog& base, bool stacks) : base_(base) {
    if (!stacks) return;
    std::map<std::pair<std::string, std::string_view>, std::array<ByExpert, 2>> experts;
    // Files of Mixtral and others say block_sparse_moe, the model in memory says mlp.
    constexpr std::string_view kOld = ".block_sparse_moe.", kNew = ".mlp.";
    for (TensorId t = 0; t < base.tensorCount(); ++t) {
        const std::string_view name = base.name(t);
        if (const auto one = expertName(name))
            experts[{one->module, one->leaf->parameter}][one->leaf->second][one->expert] = t;
        const size_t at = name.find(kOld);
        if (at == name.npos) continue;
        std::string renamed(name);
        renamed.replace(at, kOld.size(), kNew);
        const DimSpan shape = base.shape(t);
        stacks_.emplace(std::move(renamed), StackedParameter{Dims(shape.begin(), shape.end()), {{t, 0}}});
    }
    for (const auto& [key, parts] : experts) {
        if (parts[0].empty()) continue;
        const auto stack = stackOf(base, parts[0], parts[1]);
        if (!stack) continue;
        std::string name = fmt::format("{}.{}", key.first, key.second);
        stacks_.emplace(name, *stack);
        const size_t at = name.find(kOld);
        if (at != name.npos) stacks_.emplace(name.replace(at, kOld.size(), kNew), *stack);
    }
}

StackedParameter BaseNames::parameter(const std::string& name) const {
    const TensorId t = base_.find(name);
    if (t != kNone) {
        const DimSpan shape = base_.shape(t);
        return {Dims(shape.begin(), shape.end()), {{t, 0}}};
    }
    const auto found = stacks_.find(name);
    return found == stacks_.end() ? StackedParameter() : found->second;
}

std::vector<std::string> targetedParameters(const std::vector<std::string>& targets,
                                            const std::string& module,
                                            const std::function<bool(const std::string&)>& has) {
    const std::string last = module.substr(module.rfind('.') + 1);
    std::set<std::string> found;
    for (const std::string& target : targets) {
        const size_t dot = target.rfind('.');
        const std::string of = dot == target.npos ? "" : target.substr(0, dot);
        const std::string parameter = dot == target.npos ? target : target.substr(dot + 1);
        if ((of.empty() || module == of || module.ends_with("." + of)) && has(last + "." + parameter))
            found.insert(parameter);
    }
    return {found.begin(), found.end()};
}

namespace {

// Whether a pair makes up a parameter, [experts, out, in] or [experts, in, out].
std::optional<PairedParameter> paired(const Catalog& adapter, const AdapterScaling& scaling,
                                      const std::pair<std::string, Dims>& parameter,
                                      const ParameterPair& pair, bool transposed) {
    const DimSpan down = adapter.shape(pair.down), up = adapter.shape(pair.up);
    const Dims& shape = parameter.second;
    if (down.size() != 2 || up.size() != 2 || shape.size() < 2 || shape.size() > 3 || down[0] != up[1])
        return std::nullopt;
    PairedParameter result;
    result.experts = shape.size() == 3 ? shape[0] : 1;
    if (result.experts < 1 || down[0] < 1 || down[0] % result.experts != 0) return std::nullopt;
    result.rank = down[0] / result.experts;
    result.transposed = transposed;
    const int64_t in = shape[shape.size() - (transposed ? 2 : 1)],
                  out = shape[shape.size() - (transposed ? 1 : 2)];
    if (down[1] != in || up[0] != out || result.rank > kMostParameterRank ||
        result.rank != scaling.rankOf(parameter.first, result.rank))
        return std::nullopt;
    return result;
}

}  // namespace

Result<std::vector<PairedParameter>> pairParameters(
    const Catalog& adapter, const AdapterScaling& scaling,
    const std::vector<std::pair<std::string, Dims>>& parameters, const std::vector<ParameterPair>& pairs) {
    const std::string module = parameters.front().first.substr(0, parameters.front().first.rfind('.'));
    const auto refuse = [&](std::string what) {
        return makeError(ErrorCode::impossible, std::move(what))
            .inFile(scaling.file)
            .ofTensor(std::string(adapter.name(pairs.front().down)));
    };
    if (parameters.size() != pairs.size() || pairs.size() > kMostParametersOfModule)
        return refuse(fmt::format(
            "the adapter has {} of matrices for '{}', of which target_parameters and the checkpoint name {}",
            counted(pairs.size(), "pair"), printable(module, kNameInMessage),
            counted(parameters.size(), "parameter")));
    std::vector<size_t> order(pairs.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::vector<PairedParameter> found;
    const bool cubes =
        std::ranges::any_of(parameters, [](const auto& parameter) { return parameter.second.size() == 3; });
    size_t fitting = 0;
    // All parameters of a module lie the same way round.
    for (const bool transposed : {false, true}) {
        if (transposed && !cubes) break;
        do {
            std::vector<PairedParameter> tried;
            for (size_t i = 0; i < order.size(); ++i) {
                auto one = paired(adapter, scaling, parameters[i], pairs[order[i]],
                                  transposed && parameters[i].second.size() == 3);
                if (!one) break;
                one->pair = order[i];
                tried.push_back(*one);
            }
            if (tried.size() < order.size()) continue;
            ++fitting;
            found = std::move(tried);
        } while (std::next_permutation(order.begin(), order.end()));
    }
    if (fitting == 1) return found;
    std::string shapes;
    for (const auto& [name, shape] : parameters)
        shapes += fmt::format("{}'{}' {}", shapes.empty() ? "" : ", ", printable(name, kNameInMessage),
                              formatDims(shape));
    if (fitting == 0)
        return refuse(
            fmt::format("the matrices of the adapter, with the ranks that its configuration says, "
                        "do not make up {}",
                        shapes));
    return refuse(
               fmt::format("the matrices of the adapter fit {} in {} ways, and nothing says which is meant",
                           shapes, fitting))
        .withHint("merge_and_unload() of peft knows the model");
}

}  // namespace shardscope
