// Places a model's tensors on the ranks of a mesh, as Megatron-Core's ranks would save them. Private to this
// format.
//
// Source: megatron/core/parallel_state.py (the order tp-cp-ep-dp-pp), transformer/transformer_layer.py
// (get_transformer_layer_offset) and dist_checkpointing/strategies/fully_parallel.py of megatron-core 0.16.
#pragma once

#include <optional>

#include "formats/format.h"
#include "formats/megatron/run_state.h"

namespace shardscope::megatron {

// Implements Format::placing. Each layer and each expert is its own chunk, sharded over tensor-parallel ranks
// by the parameter's name. Optimizer states are sharded like their weight. A tensor with an unknown name
// stays whole, or keeps its chunks if no mesh is asked for. Of data-parallel replicas the rank with the
// fewest bytes so far saves a chunk.
Result<Catalog> place(const Catalog& target, const std::optional<Mesh>& asked, const Catalog& source,
                      const WriteOptions& options);

// nullopt if the mesh has axes that Megatron does not know.
std::optional<ParallelSizes> sizesOf(const Mesh& mesh);

}  // namespace shardscope::megatron
