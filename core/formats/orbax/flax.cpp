#include "formats/orbax/flax.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/numbers.h"
#include "base/rule.h"
#include "base/text.h"
#include "base/units.h"
#include "encoding/msgpack.h"
#include "formats/catalog_opener.h"

namespace shardscope::orbax {

namespace {

constexpr std::string_view kPlaceholder = "PLACEHOLDER://";
constexpr std::string_view kChunkedArray = "__msgpack_chunked_array__";
// Types of extensions.
constexpr int kArray = 1, kComplex = 2, kScalar = 3, kTuple = 4;

Error wrongLeaf(std::string message, uint64_t at) {
    return damaged(std::move(message), at).byRule(rule::metaInconsistent);
}

class FlaxReader {
  public:
    FlaxReader(const ReadFile& file, const StopToken& stop) : file_(file), stop_(stop) {}

    Result<FlaxTree> read() {
        SHARDSCOPE_ASSIGN(const MsgpackTree tree, readMsgpack(file_, 0, file_.size(), limits_, stop_));
        if (tree[tree.root()].kind != MsgpackKind::map) return wrongLeaf("its value is not a map", 0);
        SHARDSCOPE_TRY(add(tree, tree.root(), {}));
        if (out_.t5x) takeOptimizer(tree);
        return std::move(out_);
    }

    // [["params", "kernel"], bytes of a tree of its own], and so on.
    Result<FlaxTree> readStream() {
        for (uint64_t at = 0; at < file_.size();) {
            const uint64_t begin = at;
            SHARDSCOPE_ASSIGN(const MsgpackTree pair,
                              readNextMsgpack(file_, at, file_.size(), limits_, stop_));
            const auto parts = pair[pair.root()].kind == MsgpackKind::list ? pair.items(pair.root())
                                                                           : std::span<const uint32_t>();
            if (parts.size() != 2 || pair[parts[0]].kind != MsgpackKind::list ||
                pair[parts[1]].kind != MsgpackKind::bytes)
                return wrongLeaf("an entry of the stream is not a path and its bytes", begin);
            Path path;
            for (const uint32_t key : pair.items(parts[0])) {
                if (pair[key].kind != MsgpackKind::text)
                    return wrongLeaf("the path of an entry is not a list of texts", begin);
                path.push_back(keyPart(pair.text(key)));
            }
            SHARDSCOPE_ASSIGN(const MsgpackTree leaf, innerTree(pair[parts[1]]));
            SHARDSCOPE_TRY(add(leaf, leaf.root(), path));
        }
        return std::move(out_);
    }

  private:
    using Node = MsgpackTree::Node;
    using Tensor = FlaxLeaf::Tensor;

    FlaxLeaf& addLeaf(const Path& path) {
        FlaxLeaf leaf;
        leaf.path = path;
        leaf.name = pathName(path);
        out_.leaves.push_back(std::move(leaf));
        return out_.leaves.back();
    }

    template <class Fill>
    void addObject(const Path& path, Fill&& fill) {
        ValueGraph graph;
        const NodeId node = fill(graph);
        addLeaf(path).object = makeValue(std::move(graph), node);
    }

    void addNumber(const Path& path, DType dtype, std::initializer_list<uint64_t> words, size_t bytes) {
        Tensor tensor;
        tensor.dtype = dtype;
        for (const uint64_t word : words) {
            for (size_t i = 0; i < bytes; ++i)
                tensor.value.push_back(static_cast<std::byte>(word >> (8 * i)));
        }
        addLeaf(path).tensor = std::move(tensor);
    }

    Status add(const MsgpackTree& tree, uint32_t node, const Path& path) {
        const Node& value = tree[node];
        switch (value.kind) {
            case MsgpackKind::nil:
                addObject(path, [](ValueGraph& graph) { return graph.addNone(); });
                return {};
            case MsgpackKind::boolean:
                addNumber(path, DType::boolean, {static_cast<uint64_t>(value.integer)}, 1);
                return {};
            case MsgpackKind::integer:
                addNumber(path, DType::int64, {static_cast<uint64_t>(value.integer)}, 8);
                return {};
            case MsgpackKind::unsignedInteger:
                addNumber(path, DType::uint64, {static_cast<uint64_t>(value.integer)}, 8);
                return {};
            case MsgpackKind::real:
                addNumber(path, DType::float64, {std::bit_cast<uint64_t>(value.real)}, 8);
                return {};
            case MsgpackKind::text: {
                const std::string_view text = tree.text(node);
                if (text.starts_with(kPlaceholder)) {
                    addLeaf(path).elsewhere = std::string(text.substr(kPlaceholder.size()));
                } else {
                    addObject(path, [&](ValueGraph& graph) { return graph.addText(ValueKind::text, text); });
                }
                return {};
            }
            case MsgpackKind::list:
                return addList(tree, node, path, ValueKind::list);
            case MsgpackKind::map:
                return addMap(tree, node, path);
            case MsgpackKind::bytes:
                addNote(path, fmt::format("its value ({}) is not shown", counted(value.length, "byte")),
                        Note::Lacks::nothing);
                return {};
            case MsgpackKind::extension:
                return addExtension(value, path);
        }
        return {};
    }

    void addNote(const Path& path, std::string message, Note::Lacks lacks) {
        out_.notes.push_back(
            noteOf(rule::metaInconsistent, Severity::warning, std::move(message), {}, pathName(path), lacks));
    }

    Status addList(const MsgpackTree& tree, uint32_t node, const Path& path, ValueKind kind) {
        const auto items = tree.items(node);
        if (items.empty()) addObject(path, [&](ValueGraph& graph) { return graph.addContainer(kind); });
        for (size_t i = 0; i < items.size(); ++i) {
            Path below = path;
            below.push_back(indexPart(static_cast<int64_t>(i)));
            if (kind == ValueKind::tuple) below.back().kind = PathPart::Kind::tupleIndex;
            SHARDSCOPE_TRY(add(tree, items[i], below));
        }
        return {};
    }

    Status addMap(const MsgpackTree& tree, uint32_t node, const Path& path) {
        const auto items = tree.items(node);
        if (items.empty() && !path.empty())
            addObject(path, [](ValueGraph& graph) { return graph.addContainer(ValueKind::dict); });
        for (size_t i = 0; i + 1 < items.size(); i += 2) {
            if (tree.isText(items[i], kChunkedArray)) return addChunked(tree, node, path);
        }
        if (auto elsewhere = specPath(tree, node)) {
            addLeaf(path).elsewhere = *std::move(elsewhere);
            out_.t5x = true;
            return {};
        }
        for (size_t i = 0; i + 1 < items.size(); i += 2) {
            const Node& key = tree[items[i]];
            Path below = path;
            if (key.kind == MsgpackKind::text) {
                below.push_back(keyPart(tree.text(items[i])));
            } else if (key.kind == MsgpackKind::integer) {
                below.push_back(indexPart(key.integer));
                below.back().kind = PathPart::Kind::integerKey;
            } else {
                return wrongLeaf("a key of a map is neither a text nor a number", key.offset);
            }
            SHARDSCOPE_TRY(add(tree, items[i + 1], below));
        }
        return {};
    }

    static std::optional<uint32_t> find(const MsgpackTree& tree, uint32_t map, std::string_view key) {
        const auto items = tree[map].kind == MsgpackKind::map ? tree.items(map) : std::span<const uint32_t>();
        for (size_t i = 0; i + 1 < items.size(); i += 2)
            if (tree.isText(items[i], key)) return items[i + 1];
        return std::nullopt;
    }

    // {"driver": "zarr", "kvstore": {"path": "target.encoder.kernel/"}, ...}: where the array is.
    static std::optional<std::string> specPath(const MsgpackTree& tree, uint32_t map) {
        const auto driver = find(tree, map, "driver"), store = find(tree, map, "kvstore");
        if (!driver || !store || !tree.isText(*driver, "zarr")) return std::nullopt;
        const auto path = find(tree, *store, "path");
        if (!path || tree[*path].kind != MsgpackKind::text) return std::nullopt;
        std::string_view text = tree.text(*path);
        while (text.ends_with('/'))
            text.remove_suffix(1);
        return std::string(text);
    }

    // {"version": 3, "optimizer": {"target": ..., "state": ...}}, where arrays are named by what is in the
    // optimizer.
    void takeOptimizer(const MsgpackTree& tree) {
        for (FlaxLeaf& leaf : out_.leaves) {
            if (leaf.path.size() > 1 && leaf.path[0].text == "optimizer") {
                leaf.path.erase(leaf.path.begin());
                leaf.name = pathName(leaf.path);
            }
        }
        const auto version = find(tree, tree.root(), "version");
        if (!version || tree[*version].kind != MsgpackKind::integer) return;
        std::erase_if(out_.leaves, [](const FlaxLeaf& leaf) { return leaf.name == "version"; });
        addObject({keyPart("version")},
                  [&](ValueGraph& graph) { return graph.addInteger(tree[*version].integer); });
    }

    Status addExtension(const Node& value, const Path& path) {
        if (value.extension == kArray || value.extension == kScalar) {
            SHARDSCOPE_ASSIGN(Tensor tensor, arrayIn(value));
            addLeaf(path).tensor = std::move(tensor);
            return {};
        }
        if (value.extension != kComplex && value.extension != kTuple) {
            addNote(path,
                    fmt::format("it is of the extension type {}, which is not known", int{value.extension}),
                    Note::Lacks::anything);
            return {};
        }
        if (++nested_ > limits_.depth)
            return makeError(ErrorCode::limit, "tuples are nested too deep").at(value.offset);
        SHARDSCOPE_ASSIGN(const MsgpackTree inner, innerTree(value));
        const Node& root = inner[inner.root()];
        Status status;
        if (root.kind != MsgpackKind::list) {
            status = wrongLeaf("a tuple or a complex number is not a list", value.offset);
        } else if (value.extension == kTuple) {
            status = addList(inner, inner.root(), path, ValueKind::tuple);
        } else if (const auto parts = inner.items(inner.root()); parts.size() != 2 ||
                                                                 inner[parts[0]].kind != MsgpackKind::real ||
                                                                 inner[parts[1]].kind != MsgpackKind::real) {
            status = wrongLeaf("a complex number is not two numbers", value.offset);
        } else {
            addNumber(path, DType::complex128,
                      {std::bit_cast<uint64_t>(inner[parts[0]].real),
                       std::bit_cast<uint64_t>(inner[parts[1]].real)},
                      8);
        }
        --nested_;
        return status;
    }

    Result<MsgpackTree> innerTree(const Node& value) {
        // All trees together are as large as one may be: what is inside of one is not read in another, and
        // nesting is bounded.
        return readMsgpack(file_, value.offset, value.length, limits_, stop_);
    }

    // [shape, dtype name, bytes]
    Result<Tensor> arrayIn(const Node& value) {
        SHARDSCOPE_ASSIGN(const MsgpackTree inner, innerTree(value));
        const auto parts = inner[inner.root()].kind == MsgpackKind::list ? inner.items(inner.root())
                                                                         : std::span<const uint32_t>();
        if (parts.size() != 3 || inner[parts[0]].kind != MsgpackKind::list ||
            inner[parts[1]].kind != MsgpackKind::text || inner[parts[2]].kind != MsgpackKind::bytes)
            return wrongLeaf("an array is not its shape, dtype and bytes", value.offset);
        Tensor tensor;
        SHARDSCOPE_ASSIGN(tensor.shape, dimsOf(inner, inner.items(parts[0]), value.offset));
        const std::string_view name = inner.text(parts[1]);
        const auto dtype = name == "int4" ? std::optional(DType::int8) : dtypeFromName(name);
        if (!dtype || !dtypeIsWholeBytes(*dtype))
            return unsupported(fmt::format("the dtype '{}' of an array is not known",
                                           printable(name, kNameInMessage)))
                .at(value.offset);
        tensor.dtype = *dtype;
        const Node& bytes = inner[parts[2]];
        int64_t elements = 0;
        if (!checkedProduct(tensor.shape, elements) ||
            dtypeByteCount(*dtype, static_cast<uint64_t>(elements)) != bytes.length)
            return wrongLeaf(fmt::format("an array {} of {} has {}", formatDims(tensor.shape),
                                         dtypeName(*dtype), counted(bytes.length, "byte")),
                             value.offset);
        tensor.parts.push_back({{0, elements}, bytes.offset, bytes.length});
        return tensor;
    }

    static Result<Dims> dimsOf(const MsgpackTree& tree, std::span<const uint32_t> items, uint64_t at) {
        Dims dims;
        for (const uint32_t item : items) {
            const Node& size = tree[item];
            if (size.kind != MsgpackKind::integer || size.integer < 0 || size.integer > kMaxDim ||
                dims.size() == static_cast<size_t>(kMaxRank))
                return wrongLeaf("the shape of an array is not a list of sizes", at);
            dims.push_back(size.integer);
        }
        return dims;
    }

    // A tuple as Flax keeps it: a map of the keys "0", "1", ..., or a list.
    static std::vector<uint32_t> inOrder(const MsgpackTree& tree, uint32_t node) {
        const auto items = tree.items(node);
        if (tree[node].kind == MsgpackKind::list) return {items.begin(), items.end()};
        std::vector<std::pair<uint64_t, uint32_t>> numbered;
        for (size_t i = 0; i + 1 < items.size(); i += 2) {
            uint64_t number = UINT64_MAX;
            if (tree[items[i]].kind == MsgpackKind::text)
                number = parseNumber<uint64_t>(tree.text(items[i])).value_or(number);
            numbered.emplace_back(number, items[i + 1]);
        }
        std::ranges::stable_sort(numbered, {}, &std::pair<uint64_t, uint32_t>::first);
        std::vector<uint32_t> out;
        for (const auto& [number, item] : numbered)
            out.push_back(item);
        return out;
    }

    // {"__msgpack_chunked_array__": true, "shape": ..., "chunks": ...}: an array of 2^30 bytes or more.
    Status addChunked(const MsgpackTree& tree, uint32_t node, const Path& path) {
        const uint64_t at = tree[node].offset;
        std::optional<uint32_t> shape, chunks;
        const auto items = tree.items(node);
        for (size_t i = 0; i + 1 < items.size(); i += 2) {
            const MsgpackKind kind = tree[items[i + 1]].kind;
            if (kind != MsgpackKind::map && kind != MsgpackKind::list) continue;
            if (tree.isText(items[i], "shape")) shape = items[i + 1];
            if (tree.isText(items[i], "chunks")) chunks = items[i + 1];
        }
        if (!shape || !chunks) return wrongLeaf("a chunked array has no shape or no chunks", at);
        Tensor tensor;
        SHARDSCOPE_ASSIGN(tensor.shape, dimsOf(tree, inOrder(tree, *shape), at));
        int64_t elements = 0;
        for (const uint32_t item : inOrder(tree, *chunks)) {
            if (tree[item].kind != MsgpackKind::extension || tree[item].extension != kArray)
                return wrongLeaf("a chunk of a chunked array is not an array", tree[item].offset);
            SHARDSCOPE_ASSIGN(const Tensor part, arrayIn(tree[item]));
            if (!tensor.parts.empty() && part.dtype != tensor.dtype)
                return wrongLeaf("the chunks of a chunked array have several dtypes", tree[item].offset);
            tensor.dtype = part.dtype;
            const int64_t begin = elements;
            if (!checkedAdd(elements, part.parts[0].elements.stop, elements))
                return wrongLeaf("the chunks of a chunked array overflow", at);
            tensor.parts.push_back({{begin, elements}, part.parts[0].offset, part.parts[0].length});
        }
        int64_t wanted = 0;
        if (!checkedProduct(tensor.shape, wanted) || wanted != elements)
            return wrongLeaf(fmt::format("the chunks of a chunked array {} have {}", formatDims(tensor.shape),
                                         counted(elements, "element")),
                             at);
        addLeaf(path).tensor = std::move(tensor);
        return {};
    }

    const ReadFile& file_;
    const StopToken& stop_;
    const MsgpackLimits limits_;
    int nested_ = 0;
    FlaxTree out_;
};

}  // namespace

bool isFlaxStart(std::string_view head) {
    if (head.size() < 2) return false;
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(head[i]); };
    const size_t key = byte(0) > 0x80 && byte(0) < 0x90 ? 1 : byte(0) == 0xde ? 3 : byte(0) == 0xdf ? 5 : 0;
    return key != 0 && head.size() > key && ((byte(key) >= 0xa0 && byte(key) < 0xc0) || byte(key) == 0xd9);
}

bool isStreamStart(std::string_view head) {
    if (head.size() < 3 || head[0] != '\x92') return false;
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(head[i]); };
    return byte(1) > 0x90 && byte(1) < 0xa0 && ((byte(2) > 0xa0 && byte(2) < 0xc0) || byte(2) == 0xd9);
}

Result<FlaxTree> readFlaxStream(const ReadFile& file, const StopToken& stop) {
    return FlaxReader(file, stop).readStream();
}

Result<FlaxTree> readFlax(const ReadFile& file, const StopToken& stop) {
    return FlaxReader(file, stop).read();
}

}  // namespace shardscope::orbax
