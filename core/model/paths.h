// Parts of the paths of entries.
#pragma once

#include <initializer_list>
#include <string_view>

#include "model/path.h"

namespace shardscope {

// Without its first `levels`.
inline Path below(const Path& path, size_t levels = 1) {
    return Path(path.begin() + static_cast<std::ptrdiff_t>(levels), path.end());
}

// The keys, then `path` without its first `levels`.
inline Path joined(std::initializer_list<std::string_view> keys, const Path& path, size_t levels = 0) {
    Path out;
    for (const std::string_view key : keys)
        out.push_back(keyPart(key));
    out.insert(out.end(), path.begin() + static_cast<std::ptrdiff_t>(levels), path.end());
    return out;
}

inline Path joinedPaths(Path front, const Path& path) {
    front.insert(front.end(), path.begin(), path.end());
    return front;
}

// Of a state of a parameter: "optimizer.state.NAME.exp_avg".
inline Path statePath(std::string_view parameter, std::string_view state) {
    return {keyPart("optimizer"), keyPart("state"), keyPart(parameter), keyPart(state)};
}

inline bool isKey(const Path& path, size_t at, std::string_view text) {
    return path.size() > at && path[at].kind == PathPart::Kind::key && path[at].text == text;
}

// An integer key of a mapping.
inline PathPart numberPart(int64_t number) {
    PathPart part;
    part.kind = PathPart::Kind::integerKey;
    part.index = number;
    return part;
}

}  // namespace shardscope
