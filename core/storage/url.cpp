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

std::string withoutSecrets(std::string_view path) {
    const size_t colon = path.find("://"), begin = colon + 3;
    const std::string_view scheme = path.substr(0, colon);
    if (colon == std::string_view::npos || colon == 0 ||
        scheme.find_first_of("/?#@") != std::string_view::npos)
        return std::string(path);
    for (const std::string_view name : {"s3", "gs", "hf", "ssh"})
        if (scheme == name) return std::string(path);
    path = path.substr(0, path.find_first_of("?#"));
    const std::string_view authority = path.substr(begin, path.find('/', begin) - begin);
    const size_t user = authority.rfind('@');
    std::string shown(path);
    if (user != std::string_view::npos) shown.erase(begin, user + 1);
    return shown;
}

}  // namespace shardscope
