#include "model/numpy_array.h"

#include <fmt/format.h>

#include "base/units.h"

namespace shardscope {

namespace {

bool isCall(const ValueGraph& g, NodeId node) {
    return node != kNoNode && g.kind(node) == ValueKind::object && g.object(node).callable != kNoNode &&
           g.kind(g.object(node).callable) == ValueKind::global;
}

// numpy 2 renamed numpy.core to numpy._core.
bool isNumpyCall(const ValueGraph& g, NodeId node, std::string_view module, std::string_view name) {
    if (!isCall(g, node)) return false;
    const NodeId callable = g.object(node).callable;
    std::string_view has = g.globalModule(callable);
    if (has.starts_with("numpy._core.")) {
        has.remove_prefix(12);
    } else if (has.starts_with("numpy.core.")) {
        has.remove_prefix(11);
    } else {
        return false;
    }
    return has == module && g.globalName(callable) == name;
}

struct Code {
    std::string_view code;
    DType dtype;
};
constexpr Code kCodes[] = {{"f2", DType::float16}, {"f4", DType::float32},   {"f8", DType::float64},
                           {"i1", DType::int8},    {"i2", DType::int16},     {"i4", DType::int32},
                           {"i8", DType::int64},   {"u1", DType::uint8},     {"u2", DType::uint16},
                           {"u4", DType::uint32},  {"u8", DType::uint64},    {"b1", DType::boolean},
                           {"?", DType::boolean},  {"c8", DType::complex64}, {"c16", DType::complex128}};

Result<Dims> dimsOf(const ValueGraph& g, NodeId node) {
    const ValueKind kind = g.kind(node);
    if (kind != ValueKind::tuple && kind != ValueKind::list) return damaged("the array shape is not a tuple");
    if (g.items(node).size() > kMaxRank)
        return makeError(ErrorCode::limit, "an array of more than 64 dimensions");
    Dims shape;
    for (NodeId item : g.items(node)) {
        if (g.kind(item) != ValueKind::integer)
            return damaged("the shape of an array holds something else than sizes");
        const int64_t size = g.integer(item);
        if (size < 0 || size > kMaxDim) return damaged(fmt::format("an array has the size {}", size));
        shape.push_back(size);
    }
    return shape;
}

bool isBytes(const ValueGraph& g, NodeId node) {
    const ValueKind kind = g.kind(node);
    // A Python 2 str is text where it happens to be UTF-8.
    return kind == ValueKind::bytes || kind == ValueKind::byteArray || kind == ValueKind::text;
}

Result<NumpyArray> fromParts(const ValueGraph& g, NodeId shape, NodeId dtype, bool columnMajor, NodeId raw) {
    NumpyArray array;
    SHARDSCOPE_ASSIGN(const NumpyDType type, asNumpyDType(g, dtype));
    array.dtype = type.dtype;
    array.bigEndian = type.bigEndian;
    SHARDSCOPE_ASSIGN(array.shape, dimsOf(g, shape));
    array.columnMajor = columnMajor;
    if (!isBytes(g, raw)) return damaged("an array whose data is not bytes");
    array.raw = raw;
    return array;
}

}  // namespace

Result<NumpyDType> asNumpyDType(const ValueGraph& g, NodeId node) {
    if (!isCall(g, node) || !g.isGlobal(g.object(node).callable, "numpy", "dtype"))
        return unsupported("a dtype that is not a numpy.dtype");
    const ValueObject& call = g.object(node);
    const auto args = g.argumentsOf(node);
    if (args.empty()) return damaged("numpy.dtype is called without a name");
    const NodeId first = args[0];
    if (g.kind(first) != ValueKind::text) return unsupported("a dtype that is not named by a text");
    std::string_view code = g.text(first);
    NumpyDType out;
    if (code.starts_with('<') || code.starts_with('|') || code.starts_with('=') || code.starts_with('>')) {
        out.bigEndian = code[0] == '>';
        code.remove_prefix(1);
    }
    bool known = false;
    for (const Code& c : kCodes) {
        if (c.code != code) continue;
        out.dtype = c.dtype;
        known = true;
    }
    if (!known)
        return unsupported(
            fmt::format("arrays of the dtype {}",
                        valueRepr({std::shared_ptr<const ValueGraph>(std::shared_ptr<void>(), &g), first})));
    // State: (version, byte order, ...).
    if (call.state != kNoNode && g.kind(call.state) == ValueKind::tuple && g.items(call.state).size() >= 2) {
        const NodeId order = g.items(call.state)[1];
        if (g.isText(order, ">")) {
            out.bigEndian = true;
        } else if (g.isText(order, "<") || g.isText(order, "|")) {
            out.bigEndian = false;
        } else {
            return damaged("invalid byte order of a dtype");
        }
    }
    if (dtypeSwapUnit(out.dtype) == 1) out.bigEndian = false;
    return out;
}

bool isNumpyArray(const ValueGraph& g, NodeId node) {
    return isNumpyCall(g, node, "multiarray", "_reconstruct") ||
           isNumpyCall(g, node, "numeric", "_frombuffer");
}

Result<NumpyArray> asNumpyArray(const ValueGraph& g, NodeId node) {
    const ValueObject& call = g.object(node);
    if (isNumpyCall(g, node, "numeric", "_frombuffer")) {
        const auto args = g.argumentsOf(node);
        if (args.size() < 4 || args.size() > 5)
            return damaged(fmt::format("_frombuffer has {}", counted(args.size(), "argument")));
        const bool columns = g.isText(args[3], "F");
        if (!columns && !g.isText(args[3], "C")) return unsupported("an array in another order than C or F");
        return fromParts(g, args[2], args[1], columns, args[0]);
    }
    if (call.state == kNoNode || g.kind(call.state) != ValueKind::tuple)
        return damaged("an array without a state: it was never given its data");
    auto state = g.items(call.state);
    // The oldest states have no version in front.
    if (state.size() == 5) state = state.subspan(1);
    if (state.size() != 4)
        return damaged(fmt::format("the state of an array has {}", counted(state.size(), "part")));
    if (g.kind(state[3]) == ValueKind::list) return unsupported("an array of Python objects");
    const bool columns = (g.kind(state[2]) == ValueKind::boolean && g.boolean(state[2])) ||
                         (g.kind(state[2]) == ValueKind::integer && g.integer(state[2]) != 0);
    return fromParts(g, state[0], state[1], columns, state[3]);
}

bool isNumpyScalar(const ValueGraph& g, NodeId node) {
    return isNumpyCall(g, node, "multiarray", "scalar");
}

std::optional<NumpyScalar> asNumpyScalar(const ValueGraph& g, NodeId node) {
    if (!isNumpyScalar(g, node)) return std::nullopt;
    const auto args = g.argumentsOf(node);
    if (args.size() != 2) return std::nullopt;
    const auto dtype = asNumpyDType(g, args[0]);
    if (!dtype.ok() || !isBytes(g, args[1])) return std::nullopt;
    return NumpyScalar{*dtype, args[1]};
}

}  // namespace shardscope
