#include "storage/url.h"

#include <algorithm>

namespace shardscope {

std::string_view schemeOf(std::string_view path) {
    for (const std::string_view scheme : {"s3", "gs", "hf", "https", "http"}) {
        if (path.starts_with(scheme) && path.substr(scheme.size()).starts_with("://")) return scheme;
    }
    return {};
}

size_t placeLength(std::string_view path) {
    const std::string_view scheme = schemeOf(path);
    if (scheme.empty()) return 0;
    const auto next = [&](size_t from) { return std::min(path.find('/', from), path.size()); };
    const size_t first = scheme.size() + 3;
    size_t end = next(first);
    if (scheme != "hf") return end;
    const std::string_view kind = path.substr(first, end - first);
    const int more = kind == "models" || kind == "datasets" || kind == "spaces" || kind == "buckets" ? 2 : 1;
    for (int i = 0; i < more && end < path.size(); ++i)
        end = next(end + 1);
    return end;
}

}  // namespace shardscope
