// Whether the parts of one checkpoint agree with each other: parameters and their optimizer state.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "model/catalog.h"

namespace shardscope {

// - A moment has the shape of its parameter. One with the shape of a rank's piece of it means that the other
//   pieces were dropped when it was saved. Factored and scalar states are left out.
// - The states of one parameter have one shape.
// - Where parameters have both moments of Adam, one that has only one of them lost the other.
// - A state belongs to a parameter that the optimizer's groups list.
// - Counters of a scheduler or trainer that each rank has for itself are the same on all ranks.
// - A weight has elements (DeepSpeed's ZeRO 3 leaves placeholders of shape [0] in a state dict that was not
//   gathered).
std::vector<Note> agreementNotes(const Catalog& catalog);

// An optimizer that keeps moments (its groups have `betas`) lists parameters, but the checkpoint has no
// optimizer state with elements. It was lost where the save was after the first step. It is nullopt where
// nothing says so.
std::optional<Note> lostMomentsNote(const Catalog& catalog);

// Parameters whose states have an element for each of theirs. Where states have numbers instead of names, all
// parameters if there are as many, else none.
std::set<TensorId> parametersInTraining(const Catalog& catalog);

// How many parameters, named or numbered, have states with an element for each of theirs.
size_t parametersWithState(const Catalog& catalog);

}  // namespace shardscope
