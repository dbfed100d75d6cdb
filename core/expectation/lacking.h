// What a step should hold and does not. It follows from the contract of its framework, the ranks that its own
// names tell, and earlier steps. Names and sizes only; nothing is read.
#pragma once

#include <span>
#include <vector>

#include "expectation/contract.h"

namespace shardscope {

// Files that the contract needs and that are missing or empty, and missing files of ranks of which other
// files of the step speak. `catalog` is of what was opened there; a rank file that it knows may be empty.
std::vector<Note> lackingNotes(const StepContents& step, const Contract& contract, const Catalog& catalog);

// Families of files (familyOf()) that `earlier` has and `step` lacks, of those whose absence matters;
// each with the path in the earlier step.
struct LackingFile {
    std::string family, path;
    Need need = Need::resume;
};
std::vector<LackingFile> lackingAgainst(const StepContents& step, const StepContents& earlier,
                                        const Contract& contract);
// What all of these whole earlier steps have and `step` lacks.
std::vector<Note> historyNotes(const StepContents& step, std::span<const StepContents> earlier,
                               const Contract& contract);

// Files of two saves in one step: its weights or optimizer were written long after the file that the
// framework writes last. The measure is how long the saves of the earlier steps took.
std::vector<Note> mixedSaveNotes(const StepContents& step, std::span<const StepContents> earlier,
                                 const Contract& contract);

}  // namespace shardscope
