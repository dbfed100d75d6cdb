// A format whose framework has a rule of its own for what each rank of a mesh holds.
#pragma once

#include <optional>

#include "formats/format.h"

namespace shardscope {

class PlacingFormat : public Format {
  public:
    // `target` with other chunks: those that the framework's ranks would have saved. Taken where the user
    // gives no rules of his own. `asked`: the mesh that the user wants, else that of `source` where it means
    // the same ranks. Errors: usage for axes that the framework does not have.
    virtual Result<Catalog> place(const Catalog& target, const std::optional<Mesh>& asked,
                                  const Catalog& source) const = 0;
};

}  // namespace shardscope
