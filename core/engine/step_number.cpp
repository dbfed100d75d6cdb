#include "engine/step_number.h"

#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include "base/numbers.h"
#include "engine/model_config.h"
#include "formats/open_files.h"

namespace shardscope {

namespace {

constexpr std::array<std::string_view, 5> kNames{"global_step", "global_steps", "iteration", "step",
                                                 "current_step"};
constexpr const char* kTrainerState = "trainer_state.json";

}  // namespace

std::optional<StatedStep> statedStep(const Checkpoint& checkpoint, const Directory* directory,
                                     const StepContents& contents) {
    if (directory && contents.find(kTrainerState)) {
        const auto state = parseConfig(kTrainerState, smallFile(*directory, kTrainerState, kMostConfig));
        if (const auto step = numberIn(state, "global_step")) return StatedStep{*step, kTrainerState};
    }
    for (const ObjectInfo& object : checkpoint.catalog().objects()) {
        const std::string_view last =
            std::string_view(object.name).substr(object.name.find_last_of(".:") + 1);
        if (!std::ranges::count(kNames, last) || !object.value.graph) continue;
        if (const auto step = parseNumber<int64_t>(valueRepr(object.value, 40), 0))
            return StatedStep{*step, object.name};
    }
    return std::nullopt;
}

}  // namespace shardscope
