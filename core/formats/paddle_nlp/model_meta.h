// model_meta.json, and shard_meta.tpXX_ppYY.json of older writers: which static parameter each structured
// name is, its shape on the rank, and how the optimizer was sharded. Source:
// paddlenlp/trainer/utils/sharding_io.py
// (_gather_sharding_metas, _get_distributed_strategy).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/dtype.h"
#include "model/region.h"

namespace shardscope::paddle_nlp {

struct MetaParameter {
    std::string structured;
    std::string parameter;      // static name
    std::optional<Dims> shape;  // on the tensor-parallel rank
    // Floating-point dtypes only: the numbers of other dtypes differ between builds of Paddle.
    std::optional<DType> dtype;
    std::optional<bool> distributed;  // cut by tensor parallelism
};

struct GroupMeta {
    std::string strategy;                                // "ShardingV1", "ShardingV2"; empty = not said
    std::vector<MetaParameter> parameters;               // in the order of the file
    std::map<std::string, uint32_t, std::less<>> owner;  // static name -> sharding rank; V1 only
};

struct ModelMeta {
    uint32_t tp = 0, pp = 0, sharding = 0;                      // degrees; 0 = not said
    std::map<std::pair<uint32_t, uint32_t>, GroupMeta> groups;  // by (tp, pp)
};

// Errors: damaged with offset; rule meta.duplicate for a key that stands twice in one object.
Result<ModelMeta> parseModelMeta(std::string_view json);
Result<GroupMeta> parseShardMeta(std::string_view json);

// The dtype that a number stands for, in either of Paddle's enumerations.
std::optional<DType> floatOfNumber(int64_t number);

// What an index of the unified checkpoint says besides its "weight_map".
struct UnifiedIndex {
    std::string quantStage;  // "O1", "O2"; empty = not quantised
    bool map = false;        // has a weight_map
};
Result<UnifiedIndex> parseUnifiedIndex(std::string_view json);

// What config.json says of sizes; 0 = not said.
struct ModelConfig {
    bool present = false;
    std::string architecture;
    int64_t hidden = 0, intermediate = 0, vocabulary = 0, heads = 0, keyValueHeads = 0, headSize = 0;
    int64_t positions = 0, expert = 0;  // expert: the width of one of a mixture
};
// Errors: damaged.
Result<ModelConfig> parseModelConfig(std::string_view json);

}  // namespace shardscope::paddle_nlp
