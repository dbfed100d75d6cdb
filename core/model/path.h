// Where an entry is in the nested state dict. A full name is its parts joined with ".". The parts are kept,
// because names alone cannot tell a dot inside a key, an integer key or a list index.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shardscope {

struct PathPart {
    enum class Kind : uint8_t {
        key,         // string key of a mapping: `text`
        integerKey,  // integer key of a mapping: `index`
        index,       // position in a list: `index`
        tupleIndex,  // position in a tuple: `index`
        otherKey,    // any other hashable key (tuple, float, bool, None): `text` is its Python repr
        attribute,   // attribute of an object, such as a tensor of a pickled nn.Module: `text`
    };
    Kind kind = Kind::key;
    std::string text;
    int64_t index = 0;

    std::string toString() const;
    bool operator==(const PathPart&) const = default;
};

using Path = std::vector<PathPart>;

PathPart keyPart(std::string_view text);
PathPart indexPart(int64_t index);

// Parts joined with ".".
std::string pathName(const Path& path);

// Compact form for columns; decodePath accepts only what encodePath makes.
std::string encodePath(const Path& path);
Path decodePath(std::string_view encoded);

}  // namespace shardscope
