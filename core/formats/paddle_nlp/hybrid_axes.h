// The questions about tensor-parallel dimensions that a hybrid-parallel checkpoint asks, with samples of its
// content.
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
    std::vector<int> axis;  // TpAnswer::kReplicated where it is not cut
    std::vector<const FamilyRule*> rules;
    // Experts that one tensor-parallel rank holds whole and the others lack: those ranks are the group of
    // experts.
    std::set<std::string> owned;
    std::vector<std::string> evidence;  // sentences for the mesh
};

// `disagreeing` are not asked about: their ranks have different shapes. Errors: as concludeTpAxes, io.
Result<ParameterAxes> concludeParameterAxes(const Source& source, const HybridFiles& files,
                                            const std::vector<Parameter>& parameters,
                                            const std::set<std::string>& disagreeing,
                                            const std::vector<TpRule>& stated);

// The first bytes of an entry; empty where they are not at hand.
Result<std::string> sampleOf(const Source& source, const StoredShard& held);

}  // namespace shardscope::paddle_nlp
