// Parses model_meta.json, shard_meta.tpXX_ppYY.json of older writers, and indexes. The first two map
// structured to static names, and state shapes and the sharding of the optimizer. Source:
// paddlenlp/trainer/utils/sharding_io.py (_gather_sharding_metas, _get_distributed_strategy).
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
    std::optional<Dims> shape;  // of the tensor-parallel rank's shard
    // Floating-point dtypes only: Paddle's numbers for other dtypes differ between builds.
    std::optional<DType> dtype;
    std::optional<bool> distributed;  // sharded by tensor parallelism
};

struct GroupMeta {
    std::string strategy;                   // "ShardingV1", "ShardingV2"; empty = not stated
    std::vector<MetaParameter> parameters;  // in the order of the file
};

struct ModelMeta {
    uint32_t tp = 0, pp = 0, sharding = 0;                      // degrees; 0 = not stated
    std::map<std::pair<uint32_t, uint32_t>, GroupMeta> groups;  // by (tp, pp)
};

// Errors: damaged with offset; rule meta.duplicate for a repeated key of one object.
Result<ModelMeta> parseModelMeta(std::string_view json);
Result<GroupMeta> parseShardMeta(std::string_view json);

// The floating-point dtype of a number in either of Paddle's enums.
std::optional<DType> floatOfNumber(int64_t number);

// What an index of a unified checkpoint states besides its "weight_map".
struct UnifiedIndex {
    std::string quantStage;  // "O1", "O2"; empty = not quantized
    bool map = false;        // has a weight_map
};
Result<UnifiedIndex> parseUnifiedIndex(std::string_view json);

}  // namespace shardscope::paddle_nlp
