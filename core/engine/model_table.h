// Which tensors transformers' own classes want of a checkpoint, by the values of a config.json. Private to
// this room.
//
// Source: resources/transformers/models.json, which tests/peers/make_transformers_models.py makes from the
// classes of transformers. A line there is "NAME|DIMENSIONS|CONDITIONS": "{…}" in a name counts from 0 to a
// number, conditions are joined by "&", `i` is the first count.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "model/catalog.h"

namespace shardscope {

struct WantedTensor {
    std::string name;
    std::vector<std::optional<int64_t>> shape;  // nullopt = any
    bool optional = false;                      // it may be there: tied, or not known from the configuration
};

struct WantedModel {
    std::vector<std::vector<WantedTensor>> spellings;  // as save_pretrained() writes it, as it is in memory
    std::vector<std::string>
        ignored;  // regular expressions, parts of names that from_pretrained() passes over
};

// nullopt where the table does not know the class, or says nothing of such a configuration.
std::optional<WantedModel> wantedOfModel(const nlohmann::json& config, const std::string& modelType,
                                         const std::string& className, const Catalog& target);

}  // namespace shardscope
