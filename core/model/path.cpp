#include "model/path.h"

#include <cassert>
#include <cstring>

namespace shardscope {

std::string PathPart::toString() const {
    switch (kind) {
        case Kind::integerKey:
        case Kind::index:
        case Kind::tupleIndex:
            return std::to_string(index);
        default:
            return text;
    }
}

PathPart keyPart(std::string_view text) {
    return {PathPart::Kind::key, std::string(text), 0};
}
PathPart indexPart(int64_t index) {
    return {PathPart::Kind::index, {}, index};
}

std::string pathName(const Path& path) {
    std::string name;
    for (size_t i = 0; i < path.size(); ++i) {
        if (i) name += '.';
        name += path[i].toString();
    }
    return name;
}

// Each part: kind byte, then an 8-byte integer or a 4-byte length and the text.
std::string encodePath(const Path& path) {
    std::string out;
    for (const PathPart& part : path) {
        out += static_cast<char>(part.kind);
        switch (part.kind) {
            case PathPart::Kind::integerKey:
            case PathPart::Kind::index:
            case PathPart::Kind::tupleIndex:
                out.append(reinterpret_cast<const char*>(&part.index), sizeof part.index);
                break;
            default: {
                const auto size = static_cast<uint32_t>(part.text.size());
                out.append(reinterpret_cast<const char*>(&size), sizeof size);
                out += part.text;
            }
        }
    }
    return out;
}

Path decodePath(std::string_view encoded) {
    Path path;
    while (!encoded.empty()) {
        PathPart part;
        part.kind = static_cast<PathPart::Kind>(encoded[0]);
        encoded.remove_prefix(1);
        switch (part.kind) {
            case PathPart::Kind::integerKey:
            case PathPart::Kind::index:
            case PathPart::Kind::tupleIndex:
                assert(encoded.size() >= sizeof part.index);
                std::memcpy(&part.index, encoded.data(), sizeof part.index);
                encoded.remove_prefix(sizeof part.index);
                break;
            default: {
                uint32_t size = 0;
                assert(encoded.size() >= sizeof size);
                std::memcpy(&size, encoded.data(), sizeof size);
                part.text = encoded.substr(sizeof size, size);
                encoded.remove_prefix(sizeof size + size);
            }
        }
        path.push_back(std::move(part));
    }
    return path;
}

}  // namespace shardscope
