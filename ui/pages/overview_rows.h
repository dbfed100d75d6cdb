// The tables behind the overview's pictures: what is painted there, as rows.
#pragma once

#include "survey/facts.h"
#include "ui/bridge/engine_service.h"
#include "ui/models/text_table_model.h"

namespace shardscope::ui {

struct DtypeShare {
    DType dtype = DType::float32;
    uint64_t bytes = 0;  // aliases counted once
    size_t tensors = 0;
};
// The dtype with the most bytes first.
std::vector<DtypeShare> dtypeShares(const Catalog& catalog);

// Columns over rows of these; without rows they may be null.
std::vector<TextColumn> dtypeColumns(const std::vector<DtypeShare>& shares);
// Modules only; tensors are rows of the tree.
std::vector<ModuleTree::Node> modulesOf(const Facts& facts);
std::vector<TextColumn> moduleColumns(const CheckpointPtr& checkpoint,
                                      const std::shared_ptr<const Facts>& facts,
                                      std::vector<ModuleTree::Node> modules);
std::vector<TextColumn> rankColumns(const std::shared_ptr<const Facts>& facts);
std::vector<TextColumn> noteColumns(const CheckpointPtr& checkpoint);

// What an axis of context parallelism means for weights, as a sentence; empty when the mesh has none.
QString contextParallelText(const std::optional<Mesh>& mesh);

// "+12 %" or "−3.1 %" off the median; empty without one.
QString againstMedian(uint64_t bytes, uint64_t median);

}  // namespace shardscope::ui
