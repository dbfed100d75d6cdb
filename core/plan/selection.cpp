#include "plan/selection.h"

#include "base/option_words.h"

namespace shardscope {

Result<std::vector<NamePattern>> parsePatterns(const std::vector<std::string>& texts) {
    std::vector<NamePattern> patterns;
    for (const std::string& text : texts) {
        SHARDSCOPE_ASSIGN(NamePattern pattern, NamePattern::parse(text));
        patterns.push_back(std::move(pattern));
    }
    return patterns;
}

Result<TensorSelection> TensorSelection::of(const TensorChoice& choice, bool leavesOptimizer) {
    TensorSelection selection;
    SHARDSCOPE_ASSIGN(selection.select_, parsePatterns(choice.select));
    SHARDSCOPE_ASSIGN(selection.exclude_, parsePatterns(choice.exclude));
    selection.weightsOnly_ = choice.weightsOnly;
    selection.leavesOptimizer_ = choice.weightsOnly || leavesOptimizer;
    return selection;
}

std::string TensorSelection::whyNot(std::string_view name) const {
    if (!selected(name)) return "not matched by " + option("select");
    if (anyMatches(exclude_, name)) return "matched by " + option("exclude");
    return {};
}

std::string TensorSelection::whyNot(const Catalog& catalog, TensorId tensor) const {
    if (std::string why = whyNot(catalog.name(tensor)); !why.empty()) return why;
    const Role role = catalog.role(tensor);
    if (role == Role::optimizer && leavesOptimizer_) return kOptimizerState;
    if (role == Role::other && weightsOnly_) return kNotAWeight;
    return {};
}

}  // namespace shardscope
