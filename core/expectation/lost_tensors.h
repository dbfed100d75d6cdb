// What the earlier whole steps of a run hold and a step does not: tensors by name and shape.
#pragma once

#include <vector>

#include "expectation/contract.h"
#include "model/catalog.h"

namespace shardscope {

// Whether files of tensors that both steps have differ in size, so that it is worth to compare the tensors.
bool sizesDiffer(const StepContents& step, const StepContents& earlier);

// Parameters and optimizer states of `earlier`, the step of that name, which `catalog` lacks while it has
// others of their role. Parameters of another shape, too. Nothing where most of them differ: that is another
// model. Parameters are errors; optimizer state is a warning, since parameters can be frozen on purpose.
std::vector<Note> lostTensorNotes(const Catalog& catalog, const Catalog& earlier, std::string_view name);

}  // namespace shardscope
