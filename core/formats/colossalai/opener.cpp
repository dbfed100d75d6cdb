#include "formats/colossalai/opener.h"

#include <fmt/format.h>

namespace shardscope::colossalai {

Result<std::string> Opener::readJson(const ReadFile& file, std::string_view kind) const {
    if (file.size() > options_.limits.indexJson) {
        return makeError(ErrorCode::limit, fmt::format("{} of {} bytes is longer than the {} that are read",
                                                       kind, file.size(), options_.limits.indexJson))
            .inFile(file.path());
    }
    std::string json(static_cast<size_t>(file.size()), '\0');
    SHARDSCOPE_TRY(file.readAt(0, std::as_writable_bytes(std::span(json))));
    return json;
}

}  // namespace shardscope::colossalai
