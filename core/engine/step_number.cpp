#include "engine/step_number.h"

#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include "base/numbers.h"
#include "engine/model_config.h"
#include "storage/open_files.h"

namespace shardscope {

namespace {

constexpr std::array<std::string_view, 5> kNames{"global_step", "global_steps", "iteration", "step",
                                                 "current_step"};

}  // namespace

std::optional<StatedStep> statedStep(const Checkpoint& checkpoint, const Directory* directory,
                                     const StepContents& contents) {
    if (directory && contents.find(kTrainerState)) {
        const auto state = parseConfig(kTrainerState, smallFile(*directory, kTrainerState, kMostConfig));
        if (const auto step = numberIn(state, "global_step")) return StatedStep{*step, kTrainerState};
    }
    const auto& objects = checkpoint.catalog().objects();
    for (ObjectId o = 0; o < objects.size(); ++o) {
        const std::string& name = objects[o].name;
        if (!std::ranges::count(kNames, std::string_view(name).substr(name.find_last_of(".:") + 1))) continue;
        const auto value = checkpoint.reader->objectValue(o);
        if (!value.ok() || !value->graph) continue;
        if (const auto step = parseNumber<int64_t>(valueRepr(*value, 40), 0)) return StatedStep{*step, name};
    }
    return std::nullopt;
}

}  // namespace shardscope
