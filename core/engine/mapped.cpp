#include "engine/mapped.h"

#include <fmt/format.h>

#include "base/option_words.h"
#include "engine/masters.h"
#include "engine/recipe.h"
#include "engine/recipe_fit.h"
#include "plan/steps.h"

namespace shardscope {

Result<TargetSpec> mappedBy(const Checkpoint& checkpoint, const Mapping& mapping, const StopToken& stop,
                            std::string* said) {
    TargetRequest request;
    static_cast<TensorChoice&>(request) = mapping.choice;
    if (mapping.map == kAutomaticRecipe) {
        ConversionRequest asked;
        asked.set = mapping.set;
        asked.assets = mapping.model;
        std::string why;
        SHARDSCOPE_TRY(applyFittingRecipe(
            checkpoint, asked,
            mapping.format.empty() ? checkpoint.catalog().format() : std::string_view(mapping.format),
            request, why, stop));
        if (said) *said = std::move(why);
    } else if (!mapping.map.empty()) {
        SHARDSCOPE_TRY(applyRecipe(mapping.map, mapping.set, checkpoint, mapping.model, request));
    } else if (!mapping.set.empty()) {
        return makeError(ErrorCode::usage, fmt::format("{} gives values to a recipe, so it needs {}",
                                                       option("set"), option("map")));
    }
    request.rename.insert(request.rename.end(), mapping.rename.begin(), mapping.rename.end());
    request.masterWeights = mapping.masterWeights;
    TargetInput input;
    if (mapping.masterWeights != MasterWeights::ignore) input.masters = mastersOf(checkpoint.catalog());
    input.source = &checkpoint.catalog();
    input.objectValue = [&](ObjectId o) -> Result<Value> {
        SHARDSCOPE_TRY(stop.poll());
        return checkpoint.reader->objectValue(o);
    };
    SHARDSCOPE_ASSIGN(TargetSpec spec, resolveTarget(input, request));
    if (!spec.impossible.empty())
        return makeError(ErrorCode::impossible, spec.impossible.front().why)
            .ofTensor(spec.impossible.front().name);
    return spec;
}

}  // namespace shardscope
