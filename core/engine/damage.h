// What of a source a conversion would lack or carry damaged. Private to this room.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "plan/selection.h"

namespace shardscope {

struct Damage {
    std::map<TensorId, Error> tensors;  // of the catalog: errors of validation, files missing or short
    std::vector<Error> lacking;  // what the catalog lacks, or what is not a plain array; by tensor or file

    bool any() const { return !tensors.empty() || !lacking.empty(); }
    // For what is left behind, as a reason: of lacking entries with their names.
    std::vector<PlanLeftOut> list(const Catalog& source) const;
    // One error for all of it, which names them. any() holds.
    Error asError(const Catalog& source) const;
};

// Why the bytes of a chunk are not there: its file is missing, too short, or no regular file. Nothing where
// they are, or where the chunk has none.
std::optional<Error> whyLost(const Catalog& catalog, const ChunkInfo& chunk);

// `used`: the source tensors that the result is made of. `asked` decides which damage matters.
// Looks for copies among local files. Errors: cancelled.
Result<Damage> damageOf(const Checkpoint& source, const std::vector<TensorId>& used,
                        const TensorSelection& asked, const StopToken& stop);

}  // namespace shardscope
