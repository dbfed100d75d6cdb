#include "encoding/paddle_file.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include "base/rule.h"
#include "base/units.h"
#include "encoding/container_walk.h"
#include "encoding/pickle_globals.h"
#include "encoding/pickle_outline.h"
#include "encoding/pickle_text.h"
#include "model/numpy_array.h"

namespace shardscope {

namespace {

constexpr std::string_view kBigTable = "UnpackBigParamInfor@@";

// ------------------------------------------------------------------ what the pickle holds

struct Child {
    PathPart part;
    NodeId node;
};

class Walker : private ContainerWalk<Child> {
  public:
    Walker(const PickleOutline& outline, const ReadFile& file, const PaddleFileLimits& limits)
        : outline_(outline),
          g_(outline.pickle.graph),
          file_(file),
          limits_(limits),
          budget_(4 * (uint64_t{outline.pickle.graph.size()} + 25'000)),
          textBudget_(4 * outline.pickle.graph.memoryBytes() + (uint64_t{1} << 20)) {}

    Result<PaddleFile> run() {
        out_.protocol = outline_.pickle.protocol;
        const NodeId root = unwrapped(outline_.pickle.root);
        if (limits_.objects) noteGlobals();
        findTuples();
        if (g_.isMapping(root)) SHARDSCOPE_TRY(readTables(root));
        SHARDSCOPE_TRY(walkFrom({{}, root}, [&](const Child& child) { return enter(child.node); }));
        finishTables();
        return std::move(out_);
    }

  private:
    struct Big {
        NodeId info;
        Dims shape;
        std::vector<std::string> slices;
    };

    Status spend(uint64_t steps, uint64_t text) {
        if (steps > budget_ || text > textBudget_) {
            return makeError(ErrorCode::limit,
                             "the object in the pickle repeats its parts too often to be listed");
        }
        budget_ -= steps;
        textBudget_ -= text;
        return {};
    }

    // eval('data', {'data': x}), which paddle writes for its oldest tensors, is x.
    NodeId evalData(NodeId node) const {
        if (g_.kind(node) != ValueKind::object) return kNoNode;
        const ValueObject& call = g_.object(node);
        if (call.made != ValueObject::Made::reduce || !g_.isGlobal(call.callable, "builtins", "eval"))
            return kNoNode;
        const auto args = g_.items(call.arguments);
        if (args.size() != 2 || !g_.isText(args[0], "data") || g_.kind(args[1]) != ValueKind::dict)
            return kNoNode;
        const auto pairs = g_.pairs(args[1]);
        return pairs.size() == 2 && g_.isText(pairs[0], "data") ? pairs[1] : kNoNode;
    }
    // tuple((name, array)): paddle reduces a tensor to this call.
    NodeId tupleCall(NodeId node) const {
        if (g_.kind(node) != ValueKind::object) return kNoNode;
        const ValueObject& call = g_.object(node);
        if (call.made != ValueObject::Made::reduce || !g_.isGlobal(call.callable, "builtins", "tuple"))
            return kNoNode;
        const auto args = g_.items(call.arguments);
        if (args.size() != 1) return kNoNode;
        return g_.kind(args[0]) == ValueKind::tuple || g_.kind(args[0]) == ValueKind::list ? args[0]
                                                                                           : kNoNode;
    }
    NodeId unwrapped(NodeId node) const {
        for (int depth = 0; depth < 16; ++depth) {
            NodeId inner = evalData(node);
            if (inner == kNoNode) inner = tupleCall(node);
            if (inner == kNoNode) return node;
            node = inner;
        }
        return node;
    }
    // The array of a (name, array) pair.
    NodeId pairArray(NodeId node) const {
        if (g_.kind(node) != ValueKind::tuple && g_.kind(node) != ValueKind::list) return kNoNode;
        const auto items = g_.items(node);
        if (items.size() != 2 || g_.kind(items[0]) != ValueKind::text) return kNoNode;
        const NodeId array = unwrapped(items[1]);
        return isNumpyArray(g_, array) ? array : kNoNode;
    }

    // Names that would do something when the file were unpickled; eval in the one shape that paddle writes is
    // none.
    void noteGlobals() {
        bool evalIsData = true;
        for (NodeId node = 0; node < g_.size(); ++node) {
            const ValueKind kind = g_.kind(node);
            if (kind == ValueKind::object) {
                const ValueObject& call = g_.object(node);
                const bool eval = g_.isGlobal(call.callable, "builtins", "eval");
                if (eval && evalData(node) == kNoNode) evalIsData = false;
                if (g_.isGlobal(call.state, "builtins", "eval")) evalIsData = false;
            } else if (kind == ValueKind::tuple || kind == ValueKind::list || kind == ValueKind::dict) {
                for (NodeId item : g_.items(node))
                    evalIsData = evalIsData && !g_.isGlobal(item, "builtins", "eval");
            }
        }
        std::vector<std::string> names = outline_.pickle.globals;
        if (evalIsData) std::erase(names, "builtins.eval");
        for (Note& note : globalNotes(names))
            out_.notes.push_back(std::move(note));
    }

    // One (name, array) pair anywhere makes bare arrays plain arrays, as paddle.load has it.
    void findTuples() {
        for (NodeId node = 0; node < g_.size() && !out_.tuples; ++node)
            out_.tuples = g_.kind(node) == ValueKind::tuple && pairArray(node) != kNoNode;
    }

    Status readTables(NodeId root) {
        if (const NodeId table = g_.find(root, kPaddleNameTable); table != kNoNode && g_.isMapping(table)) {
            out_.named = true;
            const auto pairs = g_.pairs(table);
            for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
                if (g_.kind(pairs[i]) != ValueKind::text) continue;
                parameters_[std::string(g_.text(pairs[i]))] =
                    g_.kind(pairs[i + 1]) == ValueKind::text ? g_.text(pairs[i + 1]) : std::string_view();
            }
        }
        const NodeId info = g_.find(root, kBigTable);
        if (info == kNoNode || !g_.isMapping(info)) return {};
        const auto pairs = g_.pairs(info);
        for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
            if (g_.kind(pairs[i]) != ValueKind::text) continue;
            const std::string name(g_.text(pairs[i]));
            Big big{pairs[i + 1], {}, {}};
            const NodeId shape = g_.find(big.info, "OriginShape");
            const NodeId slices = g_.find(big.info, "slices");
            const auto isList = [&](NodeId node) {
                return node != kNoNode &&
                       (g_.kind(node) == ValueKind::list || g_.kind(node) == ValueKind::tuple);
            };
            if (!isList(shape) || !isList(slices))
                return damaged("the table of split parameters has no shape or no parts").ofTensor(name);
            for (NodeId item : g_.items(shape)) {
                if (g_.kind(item) != ValueKind::integer)
                    return damaged("the shape of a split parameter holds no size").ofTensor(name);
                big.shape.push_back(g_.integer(item));
            }
            for (NodeId item : g_.items(slices)) {
                if (g_.kind(item) != ValueKind::text)
                    return damaged("a part of a split parameter has no name").ofTensor(name);
                big.slices.emplace_back(g_.text(item));
                sliceOf_.insert(big.slices.back());
            }
            SHARDSCOPE_TRY(spend(big.slices.size(), 0));
            SHARDSCOPE_TRY(addBig(root, name, big));
        }
        return {};
    }

    Status addBig(NodeId root, const std::string& name, const Big& big) {
        PaddleEntry entry;
        entry.name = name;
        entry.path = {keyPart(name)};
        entry.shape = big.shape;
        nameParameter(entry, name);
        for (const std::string& slice : big.slices) {
            const NodeId node = g_.find(root, slice);
            if (node == kNoNode)
                return damaged(fmt::format("the part '{}' of the split parameter is missing", slice))
                    .ofTensor(name);
            const NodeId array = unwrapped(node);
            if (!isNumpyArray(g_, array))
                return damaged(fmt::format("the part '{}' of the split parameter is not an array", slice))
                    .ofTensor(name);
            SHARDSCOPE_ASSIGN(PaddleArray part, arrayOf(array, name));
            entry.parts.push_back(std::move(part));
        }
        out_.entries.push_back(std::move(entry));
        return {};
    }

    void nameParameter(PaddleEntry& entry, const std::string& key) {
        const auto it = parameters_.find(key);
        entry.tensor = !out_.named || it != parameters_.end();
        if (it == parameters_.end()) return;
        entry.parameter = it->second;
        used_.insert(key);
    }

    void finishTables() {
        for (const auto& [key, parameter] : parameters_) {
            if (used_.contains(key)) continue;
            out_.notes.push_back(
                {rule::metaInconsistent,
                 Severity::warning,
                 fmt::format("the table of parameter names has '{}', which is not in the file", key),
                 {},
                 key,
                 std::nullopt});
        }
    }

    Result<PaddleArray> arrayOf(NodeId node, std::string_view name) {
        auto found = asNumpyArray(g_, node);
        if (!found.ok()) return std::move(found).error().ofTensor(name);
        PaddleArray array;
        array.dtype = found->dtype;
        array.bigEndian = found->bigEndian;
        array.columnMajor = found->columnMajor && found->shape.size() > 1;
        array.shape = std::move(found->shape);
        if (const PicklePayload* payload = outline_.payloadOf(found->raw)) {
            array.raw = payload->text ? PaddleArray::Raw::text : PaddleArray::Raw::plain;
            array.offset = payload->offset;
            array.length = payload->length;
        } else {
            array.raw = PaddleArray::Raw::inMemory;
            array.bytes = g_.text(found->raw);
            array.length = array.bytes.size();
            SHARDSCOPE_TRY(spend(0, array.bytes.size()));
        }
        return array;
    }

    Status enter(NodeId wrapped) {
        SHARDSCOPE_TRY(spend(1, pathBytes()));
        const NodeId node = unwrapped(wrapped);
        if (const NodeId array = pairArray(node); array != kNoNode)
            return addArray(array, std::string(g_.text(g_.items(node)[0])), true);
        if (isNumpyArray(g_, node)) return addArray(node, {}, !out_.tuples);
        if (isOpen(node)) return addObject(node);

        std::vector<Child> children;
        const ValueKind kind = g_.kind(node);
        if (g_.isMapping(node) && (!g_.pairs(node).empty() || path_.empty())) {
            mappingChildren(node, children);
        } else if ((kind == ValueKind::list || kind == ValueKind::tuple) && holdsArray(node)) {
            const auto part = kind == ValueKind::list ? PathPart::Kind::index : PathPart::Kind::tupleIndex;
            int64_t index = 0;
            for (NodeId item : g_.items(node))
                children.push_back({{part, {}, index++}, item});
        } else {
            return addObject(node);
        }
        uint64_t text = 0;
        for (const Child& child : children)
            text += child.part.text.size();
        SHARDSCOPE_TRY(spend(children.size(), text));
        open(node, std::move(children));
        return {};
    }

    void mappingChildren(NodeId node, std::vector<Child>& children) {
        const bool root = path_.empty();
        const auto pairs = g_.pairs(node);
        std::unordered_map<std::string, size_t> places;
        for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
            PathPart part;
            if (g_.kind(pairs[i]) == ValueKind::text) {
                part = keyPart(g_.text(pairs[i]));
                if (root && ((out_.named && part.text == kPaddleNameTable) || part.text == kBigTable ||
                             sliceOf_.contains(part.text)))
                    continue;
            } else if (g_.kind(pairs[i]) == ValueKind::integer) {
                part = {PathPart::Kind::integerKey, {}, g_.integer(pairs[i])};
            } else {
                part = {PathPart::Kind::otherKey, valueRepr(view(pairs[i]), 1000), 0};
            }
            const auto [it, fresh] = places.try_emplace(encodePath({part}), children.size());
            if (fresh) {
                children.push_back({std::move(part), pairs[i + 1]});
                continue;
            }
            // As in Python the last value counts, at the place of the first.
            children[it->second].node = pairs[i + 1];
            out_.notes.push_back(
                {rule::metaDuplicate,
                 Severity::warning,
                 fmt::format("the key '{}' is set twice; the last value counts", part.toString()),
                 {},
                 part.toString(),
                 std::nullopt});
        }
    }

    bool holdsArray(NodeId root) {
        std::unordered_set<NodeId> seen{root};
        std::vector<NodeId> stack{root};
        while (!stack.empty()) {
            const NodeId node = unwrapped(stack.back());
            stack.pop_back();
            if (isNumpyArray(g_, node)) return true;
            std::span<const NodeId> items = g_.pairs(node);
            if (items.empty() && (g_.kind(node) == ValueKind::list || g_.kind(node) == ValueKind::tuple))
                items = g_.items(node);
            for (NodeId item : items) {
                if (seen.insert(item).second) stack.push_back(item);
            }
            if (seen.size() > budget_) return true;  // enter() reports the limit
        }
        budget_ -= std::min<uint64_t>(budget_, seen.size());
        return false;
    }

    Status addArray(NodeId node, std::string parameter, bool tensor) {
        PaddleEntry entry;
        entry.path = path_;
        entry.name = pathName(path_);
        auto array = arrayOf(node, entry.name);
        if (!array.ok() && array.error().code == ErrorCode::unsupported) {
            out_.notes.push_back({rule::metaInconsistent,
                                  Severity::warning,
                                  fmt::format("'{}' cannot be read: {}", entry.name, array.error().message),
                                  {},
                                  entry.name,
                                  std::nullopt});
            return addObject(node);
        }
        if (!array.ok()) return std::move(array).error();
        entry.shape = array->shape;
        entry.parts.push_back(std::move(array).value());
        entry.tensor = tensor;
        entry.parameter = std::move(parameter);
        if (out_.named && path_.size() == 1 && entry.parameter.empty()) nameParameter(entry, entry.name);
        const auto [it, fresh] = arrays_.try_emplace(node, static_cast<uint32_t>(out_.entries.size()));
        if (!fresh) entry.sameAs = it->second;
        out_.entries.push_back(std::move(entry));
        return {};
    }

    Status addObject(NodeId node) {
        if (!limits_.objects) return {};
        PaddleObject object;
        object.path = path_;
        object.name = pathName(path_);
        if (const auto scalar = asNumpyScalar(g_, node)) {
            object.value = plainScalar(*scalar);
        } else if (const PicklePayload* payload = outline_.payloadOf(node)) {
            if (payload->length > limits_.objectBytes) {
                out_.notes.push_back(
                    {rule::metaInconsistent,
                     Severity::warning,
                     fmt::format("'{}' has {}, more than are read of an object; it is left out", object.name,
                                 counted(payload->length, "byte")),
                     {},
                     object.name,
                     payload->offset});
                return {};
            }
            std::string bytes(static_cast<size_t>(payload->length), '\0');
            SHARDSCOPE_TRY(file_.readAt(payload->offset, std::as_writable_bytes(std::span(bytes))));
            if (payload->text && !pickle_text::isUtf8(bytes))
                return damaged("a text is not UTF-8", payload->offset).ofTensor(object.name);
            const ValueKind kind = g_.kind(node);
            if (payload->text && kind != ValueKind::text) {
                std::string plain;
                if (!pickle_text::toLatin1(bytes, plain))
                    return damaged("a text that should be bytes has other characters", payload->offset)
                        .ofTensor(object.name);
                bytes = std::move(plain);
            }
            ValueGraph graph;
            const NodeId copy = graph.addText(kind, bytes);
            object.value = makeValue(std::move(graph), copy);
        } else {
            ValueGraph graph;
            const NodeId copy = copyValue(view(node), graph);
            if (copy == kNoNode)
                return makeError(ErrorCode::limit, "an object has more than a million parts")
                    .ofTensor(object.name);
            SHARDSCOPE_TRY(spend(graph.size(), 0));
            for (NodeId n = 0; n < graph.size(); ++n) {
                if (!isLongValue(graph, n)) continue;
                out_.notes.push_back(
                    {rule::metaInconsistent,
                     Severity::warning,
                     fmt::format("'{}' holds a long value inside a list, which is not carried; it is "
                                 "left out",
                                 object.name),
                     {},
                     object.name,
                     std::nullopt});
                return {};
            }
            object.value = makeValue(std::move(graph), copy);
        }
        out_.objects.push_back(std::move(object));
        return {};
    }

    // Whether a text of a copied value stands for a payload.
    bool isLongValue(const ValueGraph& graph, NodeId node) const {
        const ValueKind kind = graph.kind(node);
        if (kind != ValueKind::bytes && kind != ValueKind::byteArray && kind != ValueKind::text) return false;
        return outline_.isPlaceholder(graph.text(node));
    }

    Value plainScalar(const NumpyScalar& scalar) const {
        ValueGraph graph;
        NodeId node = kNoNode;
        std::string bytes(g_.text(scalar.raw));
        const unsigned size = dtypeBytes(scalar.dtype.dtype);
        if (bytes.size() == size && size <= 8) {
            if (scalar.dtype.bigEndian) std::reverse(bytes.begin(), bytes.end());
            const auto as = [&]<class T>(T) {
                T value{};
                std::memcpy(&value, bytes.data(), sizeof value);
                return value;
            };
            switch (scalar.dtype.dtype) {
                case DType::boolean:
                    node = graph.addBoolean(bytes[0] != 0);
                    break;
                case DType::int8:
                    node = graph.addInteger(as(int8_t{}));
                    break;
                case DType::uint8:
                    node = graph.addInteger(as(uint8_t{}));
                    break;
                case DType::int16:
                    node = graph.addInteger(as(int16_t{}));
                    break;
                case DType::uint16:
                    node = graph.addInteger(as(uint16_t{}));
                    break;
                case DType::int32:
                    node = graph.addInteger(as(int32_t{}));
                    break;
                case DType::uint32:
                    node = graph.addInteger(as(uint32_t{}));
                    break;
                case DType::int64:
                    node = graph.addInteger(as(int64_t{}));
                    break;
                case DType::float32:
                    node = graph.addReal(static_cast<double>(as(float{})));
                    break;
                case DType::float64:
                    node = graph.addReal(as(double{}));
                    break;
                default:
                    break;
            }
        }
        if (node == kNoNode) node = graph.addText(ValueKind::bytes, bytes);
        return makeValue(std::move(graph), node);
    }

    Value view(NodeId node) const {
        return {std::shared_ptr<const ValueGraph>(std::shared_ptr<void>(), &g_), node};
    }

    const PickleOutline& outline_;
    const ValueGraph& g_;
    const ReadFile& file_;
    const PaddleFileLimits& limits_;
    uint64_t budget_, textBudget_;
    std::map<std::string, std::string> parameters_;
    std::unordered_set<std::string> used_, sliceOf_;
    std::unordered_map<NodeId, uint32_t> arrays_;
    PaddleFile out_;
};

}  // namespace

Result<PaddleFile> readPaddleFile(const ReadFile& file, const PaddleFileLimits& limits,
                                  const StopToken& stop) {
    OutlineLimits outlineLimits;
    outlineLimits.outlineBytes = limits.outlineBytes;
    SHARDSCOPE_ASSIGN(const PickleOutline outline, outlinePickle(file, 0, outlineLimits, stop));
    auto out = Walker(outline, file, limits).run();
    if (!out.ok()) return std::move(out).error().inFile(file.path());
    if (outline.pickle.length < file.size()) {
        out->notes.push_back({rule::metaInconsistent,
                              Severity::warning,
                              fmt::format("paddle.load ignores {} behind the pickle",
                                          counted(file.size() - outline.pickle.length, "byte")),
                              {},
                              {},
                              outline.pickle.length});
    }
    return out;
}

DType paddleDType(DType stored) {
    return stored == DType::uint16 ? DType::bfloat16 : stored;
}

bool startsAsPickle(std::string_view first) {
    return first.size() >= 2 && first[0] == '\x80' && first[1] >= 2 && first[1] <= 5;
}

}  // namespace shardscope
