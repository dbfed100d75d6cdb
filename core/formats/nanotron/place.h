// The shard of a parameter that a file holds, as its safetensors header states it. Private to this format.
//
// Source: nanotron/parallel/parameters.py (SlicesPair), nanotron/serialize/metadata.py (TensorMetadata).
// Other programs write the slice pairs as JSON.
#pragma once

#include <string_view>

#include "base/result.h"
#include "formats/rank_cut.h"
#include "model/region.h"

namespace shardscope::nanotron {

struct Place {
    Dims whole;  // global shape
    RankCut cut;
};
// `shape`: global shape, "(48, 16)". `pairs`: local slices, then global ones,
// "0,24,None|None,None,None#0,24,None|None,None,None;...". `stored`: shape of the stored tensor. Errors:
// damaged (meta.inconsistent) for malformed text or slices that do not fit `stored`; unsupported where more
// than one dimension is sharded.
Result<Place> parsePlace(std::string_view shape, std::string_view pairs, DimSpan stored);

}  // namespace shardscope::nanotron
