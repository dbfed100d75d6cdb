// Opens OLMo's layouts: unsharded, local and legacy. Private to this format.
#pragma once

#include <memory>
#include <optional>

#include "formats/format.h"

namespace shardscope::olmo {

// "rank12.pt" -> 12.
std::optional<uint32_t> rankOf(std::string_view fileName);

Result<std::unique_ptr<Reader>> openUnsharded(const Source& source, const OpenOptions& options);
Result<std::unique_ptr<Reader>> openLocal(const Source& source, const OpenOptions& options);
Result<std::unique_ptr<Reader>> openLegacy(const Source& source, const OpenOptions& options);

}  // namespace shardscope::olmo
