// What the ranks of a mesh hold of a model, as Megatron-Core's ranks would save it. Private to this format.
//
// Source: megatron/core/parallel_state.py (the order tp-cp-ep-dp-pp), transformer/transformer_layer.py
// (get_transformer_layer_offset) and dist_checkpointing/strategies/fully_parallel.py of megatron-core 0.16.
#pragma once

#include <optional>

#include "formats/format.h"
#include "formats/megatron/run_state.h"

namespace shardscope::megatron {

// As Format::placing. Each layer and each expert is a chunk of its own, cut among tensor-parallel
// ranks as the parameter's name says; states of the optimizer as their weight. A name that says nothing
// leaves a tensor whole, or as it is cut where no mesh is asked for. Of data-parallel replicas the rank with
// the fewest bytes so far saves a chunk.
Result<Catalog> place(const Catalog& target, const std::optional<Mesh>& asked, const Catalog& source);

// nullopt where the mesh has axes that Megatron does not know.
std::optional<ParallelSizes> sizesOf(const Mesh& mesh);

}  // namespace shardscope::megatron
