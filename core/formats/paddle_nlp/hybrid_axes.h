// Finds the tensor-parallel dimension of each parameter of a hybrid-parallel checkpoint. Samples the files'
// content for tp_axis.h.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "formats/format.h"
#include "formats/paddle_nlp/parameters.h"
#include "formats/paddle_nlp/tp_axis.h"

namespace shardscope::paddle_nlp {

// By parameter.
struct ParameterAxes {
    std::vector<int> axis;  // TpAnswer::kReplicated = not sharded
    std::vector<const FamilyRule*> rules;
    // Names of experts that one tensor-parallel rank holds whole and the others lack: here these ranks are
    // expert-parallel.
    std::set<std::string> owned;
    std::vector<std::string> evidence;  // sentences for the mesh
};

// Skips `disagreeing`: names of parameters whose ranks have different shapes. Errors: as concludeTpAxes(),
// io.
Result<ParameterAxes> concludeParameterAxes(const Source& source, const HybridFiles& files,
                                            const std::vector<Parameter>& parameters,
                                            const std::set<std::string>& disagreeing,
                                            const std::vector<TpRule>& stated);

// The first bytes of an entry; empty if unavailable.
Result<std::string> sampleOf(const Source& source, const StoredShard& held);

}  // namespace shardscope::paddle_nlp
