// Whether a checkpoint holds the model that its configuration states: layers, experts, vocabulary. Names of
// Hugging Face.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "model/catalog.h"

namespace shardscope {

struct ModelSize {
    std::optional<int64_t> layers, experts, vocabulary;
    int64_t further = 0;  // layers that predict further tokens; they come after the others
};
// Of a Hugging Face config.json; what it does not say, or says beyond all reason, is absent.
ModelSize modelSizeOf(const nlohmann::json& config);

// `atLeast` passes over what is there besides, such as another tower or a padded vocabulary.
enum class Counted : uint8_t { atLeast, exactly };
// What the weights lack of the stated size (and what they have beyond it), as notes with rule expect.missing.
// `stated` names the file that states the size. Experts are also counted by the shape of their router,
// without a configuration.
std::vector<Note> modelSizeNotes(const ModelSize& size, const std::string& stated, const Catalog& catalog,
                                 Counted counted = Counted::atLeast);

}  // namespace shardscope
