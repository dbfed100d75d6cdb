#include "formats/olmo/keys.h"

#include <map>

#include <fmt/format.h>

#include "base/rule.h"
#include "encoding/base64.h"
#include "encoding/key_literal.h"
#include "encoding/pickle.h"

namespace shardscope::olmo {

bool looksLikeKey(std::string_view name) {
    // 0x80 and a protocol from 2 to 5.
    return name.size() >= 8 && name.starts_with("gA") && name[2] >= 'I' && name[2] <= 'X';
}

Result<Key> decodeKey(std::string_view name) {
    const auto bytes = fromBase64(name);
    // With its padding, and in the one alphabet.
    if (!bytes || toBase64(*bytes) != name) return damaged("its key is not base64");
    auto decoded = decodePickle(std::as_bytes(std::span(*bytes)));
    if (!decoded.ok()) {
        Error error = std::move(decoded).error();
        error.message = "its key is not a pickle: " + error.message;
        error.location.offset.reset();
        return error;
    }
    const ValueGraph& g = decoded->graph;
    if (!decoded->globals.empty()) {
        return damaged(fmt::format("its key names '{}', keys hold plain values only", decoded->globals[0]))
            .byRule(rule::securityGlobal);
    }
    const NodeId root = decoded->root;
    if (decoded->length != bytes->size() || g.kind(root) != ValueKind::tuple || g.items(root).size() != 2 ||
        g.kind(g.items(root)[0]) != ValueKind::tuple || g.kind(g.items(root)[1]) != ValueKind::boolean) {
        return damaged("its key is not a pair of a path and a flag");
    }
    Key key;
    key.pickled = g.boolean(g.items(root)[1]);
    const NodeId path = g.items(root)[0];
    const Value view{std::shared_ptr<const ValueGraph>(std::shared_ptr<void>(), &g), root};
    for (NodeId part : g.items(path)) {
        switch (g.kind(part)) {
            case ValueKind::text:
                key.path.push_back(keyPart(g.text(part)));
                break;
            case ValueKind::integer:
                key.path.push_back({PathPart::Kind::integerKey, {}, g.integer(part)});
                break;
            default:
                key.path.push_back({PathPart::Kind::otherKey, valueRepr({view.graph, part}, 1000), 0});
        }
    }
    if (key.path.empty()) return damaged("its key is an empty path");
    return key;
}

Result<std::string> encodeKey(const Path& path, bool pickled) {
    ValueGraph graph;
    std::vector<NodeId> parts;
    std::map<std::string_view, NodeId> texts;  // equal keys of a state dict are one object in Python
    for (const PathPart& part : path) {
        switch (part.kind) {
            case PathPart::Kind::integerKey:
            case PathPart::Kind::index:
            case PathPart::Kind::tupleIndex:
                parts.push_back(graph.addInteger(part.index));
                continue;
            case PathPart::Kind::otherKey: {
                const Value literal = torch_save::parseKeyLiteral(part.text);
                if (!literal) return unsupported(fmt::format("the key {} cannot be written", part.text));
                parts.push_back(copyValue(literal, graph));
                continue;
            }
            default:
                break;
        }
        const auto [it, fresh] = texts.try_emplace(part.text, kNoNode);
        if (fresh) it->second = graph.addText(ValueKind::text, part.text);
        parts.push_back(it->second);
    }
    const NodeId tuple = graph.addContainer(ValueKind::tuple, parts);
    const NodeId flag = graph.addBoolean(pickled);
    const NodeId root = graph.addContainer(ValueKind::tuple, {tuple, flag});
    SHARDSCOPE_ASSIGN(const std::string bytes,
                      encodePickle(makeValue(std::move(graph), root), PickleWriter::For::framed));
    return toBase64(bytes);
}

}  // namespace shardscope::olmo
