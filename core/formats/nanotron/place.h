// Parses which region of a parameter a file holds, as its header states. Private to this format.
//
// Source: nanotron/parallel/parameters.py (SlicesPair), nanotron/serialize/metadata.py (TensorMetadata).
// Other programs write the pairs as JSON.
#pragma once

#include <string_view>

#include "base/result.h"
#include "formats/rank_cut.h"
#include "model/region.h"

namespace shardscope::nanotron {

struct Place {
    Dims whole;  // shape of the unsharded parameter
    RankCut cut;
};
// `shape` is "(48, 16)", `pairs` "0,24,None|None,None,None#0,24,None|None,None,None;..." (local, then global
// slices). Errors: damaged (meta.inconsistent) for other forms of text, or if they do not fit the stored
// tensor; unsupported if more than one dimension is sharded.
Result<Place> parsePlace(std::string_view shape, std::string_view pairs, DimSpan stored);

}  // namespace shardscope::nanotron
