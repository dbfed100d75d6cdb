// What of a source a conversion would lack or carry damaged. Private to this room.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace shardscope {

// What a conversion asks for, as far as it decides which damage matters.
struct Asked {
    std::vector<NamePattern> select, exclude;
    bool weightsOnly = false;

    // Errors: usage for malformed patterns.
    static Result<Asked> of(const TargetRequest& request);
    bool wants(std::string_view name) const;
};

struct Damage {
    std::map<TensorId, Error> tensors;  // of the catalog: errors of validation, files missing or short
    std::vector<Error> lacking;  // what the catalog lacks, or what is not a plain array; by tensor or file

    bool any() const { return !tensors.empty() || !lacking.empty(); }
    // For what is left behind, as a reason: of lacking entries with their names.
    std::vector<PlanLeftOut> list(const Catalog& source) const;
    // One error for all of it, which names them. any() holds.
    Error asError(const Catalog& source) const;
};

// `used`: the source tensors that the result is made of.
Damage damageOf(const Checkpoint& source, const std::vector<TensorId>& used, const Asked& asked);

}  // namespace shardscope
