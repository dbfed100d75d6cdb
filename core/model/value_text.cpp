// Values as text: Python's notation for people, JSON for programs.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <unordered_map>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/text.h"
#include "model/numpy_array.h"
#include "model/value.h"

namespace shardscope {

namespace {

// ------------------------------------------------------------------ characters and numbers

std::string quoted(std::string_view text, size_t most) {
    const char quote = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
    std::string out(1, quote);
    while (!text.empty() && out.size() <= most) {
        const auto [c, length, ok] = decodeUtf8(text);
        const std::string_view bytes = text.substr(0, length);
        text.remove_prefix(length);
        if (c == static_cast<uint32_t>(quote) || c == '\\') {
            out += '\\';
            out += static_cast<char>(c);
        } else if (c == '\n') {
            out += "\\n";
        } else if (c == '\t') {
            out += "\\t";
        } else if (c == '\r') {
            out += "\\r";
        } else if (!ok || (c < 0x80 && isDeceptive(c))) {
            out += fmt::format("\\x{:02x}", c);
        } else if (isSurrogate(c) || isDeceptive(c)) {
            out += fmt::format("\\u{:04x}", c);
        } else {
            out += bytes;
        }
    }
    return out += quote;
}

std::string quotedBytes(std::string_view bytes, size_t most) {
    const char quote = bytes.find('\'') != bytes.npos && bytes.find('"') == bytes.npos ? '"' : '\'';
    std::string out = "b";
    out += quote;
    for (char byte : bytes) {
        if (out.size() > most) break;
        if (byte == quote || byte == '\\') {
            out += '\\';
            out += byte;
        } else if (byte == '\n') {
            out += "\\n";
        } else if (byte == '\t') {
            out += "\\t";
        } else if (byte == '\r') {
            out += "\\r";
        } else if (byte < 0x20 || byte == 0x7f) {
            out += fmt::format("\\x{:02x}", static_cast<uint8_t>(byte));
        } else {
            out += byte;
        }
    }
    return out += quote;
}

std::string realText(double value) {
    std::string text = fmt::format("{}", value);
    if (std::isfinite(value) && text.find_first_of(".e") == text.npos) text += ".0";
    return text;
}

// Two's complement, little-endian, in decimal.
std::string bigIntegerText(std::string_view bytes) {
    std::string magnitude(bytes);
    const bool negative = !bytes.empty() && (static_cast<uint8_t>(bytes.back()) & 0x80);
    if (negative) {
        unsigned carry = 1;
        for (char& byte : magnitude) {
            const unsigned next = static_cast<uint8_t>(~byte) + carry;
            byte = static_cast<char>(next & 0xff);
            carry = next >> 8;
        }
    }
    constexpr uint32_t kBillion = 1'000'000'000;
    std::vector<uint32_t> groups{0};
    for (size_t i = magnitude.size(); i-- > 0;) {
        uint64_t carry = static_cast<uint8_t>(magnitude[i]);
        for (uint32_t& group : groups) {
            carry += uint64_t{group} << 8;
            group = static_cast<uint32_t>(carry % kBillion);
            carry /= kBillion;
        }
        if (carry) groups.push_back(static_cast<uint32_t>(carry));
    }
    std::string out = negative ? "-" : "";
    out += std::to_string(groups.back());
    for (size_t i = groups.size() - 1; i-- > 0;)
        out += fmt::format("{:09}", groups[i]);
    return out;
}

// Names come from the file as well.
std::string safeName(std::string_view name) {
    const std::string text = quoted(name.substr(0, 200), 1000);
    return text.substr(1, text.size() - 2);
}

// ------------------------------------------------------------------ what objects are

std::string_view lastPart(std::string_view name) {
    const size_t dot = name.rfind('.');
    return dot == name.npos ? name : name.substr(dot + 1);
}

// The global that makes an object; for a class that legacy torch files name by a persistent id, that class.
NodeId classOf(const ValueGraph& g, NodeId node) {
    const NodeId callable = g.object(node).callable;
    if (callable == kNoNode) return kNoNode;
    if (g.kind(callable) == ValueKind::global) return callable;
    if (g.kind(callable) != ValueKind::persistent) return kNoNode;
    const NodeId id = g.items(callable)[0];
    if (g.kind(id) != ValueKind::tuple || g.items(id).size() < 2 || !g.isText(g.items(id)[0], "module"))
        return kNoNode;
    return g.kind(g.items(id)[1]) == ValueKind::global ? g.items(id)[1] : kNoNode;
}

bool isModule(const ValueGraph& g, NodeId node) {
    const NodeId state = g.object(node).state;
    return state != kNoNode && g.isMapping(state) && g.find(state, "_modules") != kNoNode &&
           g.find(state, "_parameters") != kNoNode && g.find(state, "_buffers") != kNoNode;
}

// Whether elements of a numpy dtype are shown; others stay the calls that make them.
bool isShown(DType dtype) {
    return dtype != DType::float16 && dtype != DType::complex64 && dtype != DType::complex128;
}

std::string numpyElement(const NumpyDType& type, const char* at) {
    const unsigned bytes = dtypeBytes(type.dtype);
    std::array<char, 8> raw{};
    std::copy_n(at, bytes, raw.begin());
    if (type.bigEndian) std::reverse(raw.begin(), raw.begin() + bytes);
    if (type.dtype == DType::boolean) return raw[0] ? "True" : "False";
    if (type.dtype == DType::float64) {
        double value = 0;
        std::memcpy(&value, raw.data(), sizeof value);
        return realText(value);
    }
    if (type.dtype == DType::float32) {
        float value = 0;
        std::memcpy(&value, raw.data(), sizeof value);
        std::string text = fmt::format("{}", value);
        if (std::isfinite(value) && text.find_first_of(".e") == text.npos) text += ".0";
        return text;
    }
    uint64_t bits = 0;
    std::memcpy(&bits, raw.data(), sizeof bits);
    if (dtypeName(type.dtype).starts_with('u')) return std::to_string(bits);
    const unsigned unused = 64 - bytes * 8;
    return std::to_string(static_cast<int64_t>(bits << unused) >> unused);
}

// ------------------------------------------------------------------ Python's notation

class Printer {
  public:
    Printer(const ValueGraph& graph, size_t most) : g_(graph), most_(most) {}

    std::string print(NodeId node) {
        value(node, 0);
        if (out_.size() > most_) {
            size_t end = most_ > 3 ? most_ - 3 : 0;
            while (end > 0 && (static_cast<uint8_t>(out_[end]) & 0xc0) == 0x80)
                --end;  // between characters
            out_.resize(end);
            out_ += "...";
        }
        return std::move(out_);
    }

  private:
    static constexpr int kMaxDepth = 64;
    bool full() const { return out_.size() > most_; }

    void list(std::span<const NodeId> items, int depth) {
        for (size_t i = 0; i < items.size() && !full(); ++i) {
            if (i) out_ += ", ";
            value(items[i], depth + 1);
        }
    }
    void pairs(std::span<const NodeId> items, int depth) {
        out_ += '{';
        for (size_t i = 0; i + 1 < items.size() && !full(); i += 2) {
            if (i) out_ += ", ";
            value(items[i], depth + 1);
            out_ += ": ";
            value(items[i + 1], depth + 1);
        }
        out_ += '}';
    }
    void keywords(std::span<const NodeId> items, int depth) {
        for (size_t i = 0; i + 1 < items.size() && !full(); i += 2) {
            if (i) out_ += ", ";
            if (g_.kind(items[i]) == ValueKind::text) {
                out_ += safeName(g_.text(items[i]));
            } else {
                value(items[i], depth + 1);
            }
            out_ += '=';
            value(items[i + 1], depth + 1);
        }
    }

    void value(NodeId node, int depth) {
        if (full()) return;
        if (depth > kMaxDepth) {
            out_ += "...";
            return;
        }
        switch (g_.kind(node)) {
            case ValueKind::none:
                out_ += "None";
                break;
            case ValueKind::boolean:
                out_ += g_.boolean(node) ? "True" : "False";
                break;
            case ValueKind::integer:
                out_ += std::to_string(g_.integer(node));
                break;
            case ValueKind::bigInteger:
                out_ += bigIntegerText(g_.text(node));
                break;
            case ValueKind::real:
                out_ += realText(g_.real(node));
                break;
            case ValueKind::text:
                out_ += quoted(g_.text(node), most_);
                break;
            case ValueKind::bytes:
                out_ += quotedBytes(g_.text(node), most_);
                break;
            case ValueKind::byteArray:
                out_ += "bytearray(" + quotedBytes(g_.text(node), most_) + ")";
                break;
            case ValueKind::list:
                out_ += '[';
                list(g_.items(node), depth);
                out_ += ']';
                break;
            case ValueKind::tuple:
                out_ += '(';
                list(g_.items(node), depth);
                out_ += g_.items(node).size() == 1 ? ",)" : ")";
                break;
            case ValueKind::set:
                if (g_.items(node).empty()) {
                    out_ += "set()";
                    break;
                }
                out_ += '{';
                list(g_.items(node), depth);
                out_ += '}';
                break;
            case ValueKind::frozenSet:
                out_ += g_.items(node).empty() ? "frozenset(" : "frozenset({";
                list(g_.items(node), depth);
                out_ += g_.items(node).empty() ? ")" : "})";
                break;
            case ValueKind::dict:
                pairs(g_.items(node), depth);
                break;
            case ValueKind::global:
                out_ += safeName(g_.globalModule(node)) + "." + safeName(g_.globalName(node));
                break;
            case ValueKind::persistent:
                out_ += "<persistent id ";
                value(g_.items(node)[0], depth + 1);
                out_ += '>';
                break;
            case ValueKind::object:
                object(node, depth);
                break;
        }
    }

    void object(NodeId node, int depth) {
        const ValueObject& made = g_.object(node);
        const NodeId type = classOf(g_, node);
        if (type == kNoNode) {
            out_ += "<object>";
            return;
        }
        const std::string_view module = g_.globalModule(type);
        const std::string_view name = g_.globalName(type);
        const auto args = g_.argumentsOf(node);
        if (isModule(g_, node)) {
            out_ += "nn.Module " + safeName(lastPart(name));
            return;
        }
        if (known(node, module, name, args, depth)) return;
        if (made.made == ValueObject::Made::reduce && made.state == kNoNode && made.pairs == kNoNode &&
            made.appended == kNoNode) {
            out_ += safeName(lastPart(name)) + "(";
            list(args, depth);
            out_ += ')';
            return;
        }
        if (made.pairs != kNoNode) {
            out_ += safeName(lastPart(name)) + "(";
            pairs(g_.pairs(node), depth);
            out_ += ')';
            return;
        }
        if (made.state != kNoNode && g_.kind(made.state) == ValueKind::dict && args.empty()) {
            out_ += safeName(lastPart(name)) + "(";
            keywords(g_.items(made.state), depth);
            out_ += ')';
            return;
        }
        out_ += fmt::format("<{}.{}>", safeName(module), safeName(name));
    }

    bool known(NodeId node, std::string_view module, std::string_view name, std::span<const NodeId> args,
               int depth) {
        const ValueObject& made = g_.object(node);
        if (module == "torch" && name == "Size" && args.size() == 1) {
            const ValueKind kind = g_.kind(args[0]);
            if (kind != ValueKind::tuple && kind != ValueKind::list) return false;
            out_ += "torch.Size([";
            list(g_.items(args[0]), depth);
            out_ += "])";
            return true;
        }
        if (module == "torch" && name == "device" && !args.empty() && args.size() <= 2) {
            out_ += "device(type=";
            value(args[0], depth + 1);
            if (args.size() == 2) {
                out_ += ", index=";
                value(args[1], depth + 1);
            }
            out_ += ')';
            return true;
        }
        if (module == "builtins" && name == "complex" && args.size() == 2 &&
            g_.kind(args[0]) == ValueKind::real && g_.kind(args[1]) == ValueKind::real) {
            out_ += fmt::format("({}{:+}j)", g_.real(args[0]), g_.real(args[1]));
            return true;
        }
        if (module == "datetime") return date(name, args);
        if (module.starts_with("pathlib") && made.made == ValueObject::Made::reduce) {
            std::string path;
            for (NodeId part : args) {
                if (g_.kind(part) != ValueKind::text) return false;
                if (!path.empty() && path.back() != '/') path += '/';
                path += g_.text(part);
            }
            out_ += safeName(name) + "(" + quoted(path.empty() ? "." : path, most_) + ")";
            return true;
        }
        if (const auto scalar = asNumpyScalar(g_, node)) return numpyScalar(*scalar);
        if (isNumpyArray(g_, node)) return numpyArray(node);
        if (g_.isGlobal(made.callable, "numpy", "dtype")) {
            const auto type = asNumpyDType(g_, node);
            if (!type.ok() || !isShown(type->dtype)) return false;
            out_ += fmt::format("dtype('{}')", dtypeName(type->dtype));
            return true;
        }
        if (module == "torch._utils" && name.starts_with("_rebuild_")) {
            out_ += name.starts_with("_rebuild_parameter") ? "<Parameter>" : "<tensor>";
            return true;
        }
        if (module == "torch._tensor" && name.starts_with("_rebuild_from_type")) {
            out_ += args.size() > 1 && g_.kind(args[1]) == ValueKind::global
                        ? fmt::format("<{}>", safeName(lastPart(g_.globalName(args[1]))))
                        : "<tensor>";
            return true;
        }
        return false;
    }

    bool date(std::string_view name, std::span<const NodeId> args) {
        if (name == "timedelta" && args.size() == 3) {
            constexpr const char* kUnits[] = {"days", "seconds", "microseconds"};
            out_ += "datetime.timedelta(";
            bool any = false;
            for (size_t i = 0; i < 3; ++i) {
                if (g_.kind(args[i]) != ValueKind::integer || g_.integer(args[i]) == 0) continue;
                out_ += fmt::format("{}{}={}", any ? ", " : "", kUnits[i], g_.integer(args[i]));
                any = true;
            }
            out_ += any ? ")" : "0)";
            return true;
        }
        if ((name != "datetime" && name != "date") || args.empty() || g_.kind(args[0]) != ValueKind::bytes)
            return false;
        const std::string_view b = g_.text(args[0]);
        const auto at = [&](size_t i) { return static_cast<unsigned>(static_cast<uint8_t>(b[i])); };
        if (name == "date" && b.size() == 4) {
            out_ += fmt::format("datetime.date({}, {}, {})", at(0) * 256 + at(1), at(2), at(3));
            return true;
        }
        if (name != "datetime" || b.size() != 10) return false;
        out_ += fmt::format("datetime.datetime({}, {}, {}, {}, {}", at(0) * 256 + at(1), at(2) & 0x7f, at(3),
                            at(4), at(5));
        const unsigned micro = at(7) * 65536 + at(8) * 256 + at(9);
        if (at(6) || micro) out_ += fmt::format(", {}", at(6));
        if (micro) out_ += fmt::format(", {}", micro);
        out_ += ')';
        return true;
    }

    bool numpyScalar(const NumpyScalar& scalar) {
        const std::string_view bytes = g_.text(scalar.raw);
        if (!isShown(scalar.dtype.dtype) || bytes.size() != dtypeBytes(scalar.dtype.dtype)) return false;
        out_ +=
            fmt::format("np.{}({})", dtypeName(scalar.dtype.dtype), numpyElement(scalar.dtype, bytes.data()));
        return true;
    }

    bool numpyArray(NodeId node) {
        const auto array = asNumpyArray(g_, node);
        if (!array.ok() || !isShown(array->dtype) || (array->columnMajor && array->shape.size() > 1))
            return false;
        const std::string_view bytes = g_.text(array->raw);
        int64_t count = 0;
        if (!checkedProduct(array->shape, count) ||
            dtypeByteCount(array->dtype, static_cast<uint64_t>(count)) != bytes.size())
            return false;
        out_ += "array(";
        const char* at = bytes.data();
        numpyRows({array->dtype, array->bigEndian}, array->shape, 0, at);
        out_ += fmt::format(", dtype={})", dtypeName(array->dtype));
        return true;
    }
    void numpyRows(const NumpyDType& type, DimSpan shape, size_t dim, const char*& at) {
        if (dim == shape.size()) {
            out_ += numpyElement(type, at);
            at += dtypeBytes(type.dtype);
            return;
        }
        out_ += '[';
        for (int64_t i = 0; i < shape[dim] && !full(); ++i) {
            if (i) out_ += ", ";
            numpyRows(type, shape, dim + 1, at);
        }
        out_ += ']';
    }

    const ValueGraph& g_;
    size_t most_;
    std::string out_;
};

// ------------------------------------------------------------------ JSON

// False when it cannot be JSON: no UTF-8, or lone surrogates.
bool jsonText(std::string_view text, std::string& out) {
    out += '"';
    while (!text.empty()) {
        const auto [c, length, ok] = decodeUtf8(text);
        const std::string_view bytes = text.substr(0, length);
        text.remove_prefix(length);
        if (!ok || isSurrogate(c)) return false;
        if (c == '"' || c == '\\') {
            out += '\\';
            out += static_cast<char>(c);
        } else if (c < 0x20 || c == 0x7f) {
            out += fmt::format("\\u{:04x}", c);
        } else {
            out += bytes;
        }
    }
    out += '"';
    return true;
}

class JsonWriter {
  public:
    JsonWriter(const ValueGraph& graph, size_t maxNodes) : g_(graph), left_(maxNodes) {}

    // False when the value is too large or nested too deep.
    bool write(NodeId node, int depth) {
        if (left_ == 0 || depth > kMaxValueDepth) return false;
        --left_;
        switch (g_.kind(node)) {
            case ValueKind::none:
                out += "null";
                return true;
            case ValueKind::boolean:
                out += g_.boolean(node) ? "true" : "false";
                return true;
            case ValueKind::integer:
                out += std::to_string(g_.integer(node));
                return true;
            case ValueKind::bigInteger:
                out += bigIntegerText(g_.text(node));
                return true;
            case ValueKind::real:
                if (!std::isfinite(g_.real(node))) return repr(node);
                out += realText(g_.real(node));
                return true;
            case ValueKind::text: {
                const size_t before = out.size();
                if (jsonText(g_.text(node), out)) return true;
                out.resize(before);
                return repr(node);
            }
            case ValueKind::list:
                return list(g_.items(node), depth);
            case ValueKind::tuple:
                out += "{\"tuple\": ";
                if (!list(g_.items(node), depth)) return false;
                out += '}';
                return true;
            case ValueKind::object:
            case ValueKind::dict:
                if (g_.isMapping(node)) return mapping(g_.pairs(node), depth);
                return repr(node);
            default:
                return repr(node);
        }
    }

    std::string out;

  private:
    bool repr(NodeId node) {
        constexpr size_t kMaxRepr = 4000;
        out += "{\"repr\": ";
        if (!jsonText(Printer(g_, kMaxRepr).print(node), out)) return false;
        out += '}';
        return true;
    }
    bool list(std::span<const NodeId> items, int depth) {
        out += '[';
        for (size_t i = 0; i < items.size(); ++i) {
            if (i) out += ", ";
            if (!write(items[i], depth + 1)) return false;
        }
        out += ']';
        return true;
    }
    bool mapping(std::span<const NodeId> pairs, int depth) {
        bool textual = true;
        for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
            std::string scratch;
            textual = textual && g_.kind(pairs[i]) == ValueKind::text && jsonText(g_.text(pairs[i]), scratch);
        }
        if (!textual) {
            out += "{\"dict_items\": [";
            for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
                out += i ? ", [" : "[";
                if (!write(pairs[i], depth + 1)) return false;
                out += ", ";
                if (!write(pairs[i + 1], depth + 1)) return false;
                out += ']';
            }
            out += "]}";
            return true;
        }
        // A key that comes again replaces the value, but keeps its place, as in Python.
        std::unordered_map<std::string_view, size_t> last;
        for (size_t i = 0; i + 1 < pairs.size(); i += 2)
            last[g_.text(pairs[i])] = i;
        out += '{';
        bool any = false;
        for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
            const auto it = last.find(g_.text(pairs[i]));
            if (it == last.end()) continue;
            if (any) out += ", ";
            any = true;
            jsonText(g_.text(pairs[i]), out);
            out += ": ";
            if (!write(pairs[it->second + 1], depth + 1)) return false;
            last.erase(it);
        }
        out += '}';
        return true;
    }

    const ValueGraph& g_;
    size_t left_;
};

}  // namespace

std::string valueRepr(const Value& value, size_t maxLength) {
    if (!value) return "";
    return Printer(*value.graph, maxLength).print(value.node);
}

std::string valueKindName(const Value& value) {
    if (!value) return "";
    const ValueGraph& g = *value.graph;
    switch (value.kind()) {
        case ValueKind::none:
            return "None";
        case ValueKind::boolean:
            return "bool";
        case ValueKind::integer:
        case ValueKind::bigInteger:
            return "int";
        case ValueKind::real:
            return "float";
        case ValueKind::text:
            return "str";
        case ValueKind::bytes:
            return "bytes";
        case ValueKind::byteArray:
            return "bytearray";
        case ValueKind::list:
            return "list";
        case ValueKind::tuple:
            return "tuple";
        case ValueKind::set:
            return "set";
        case ValueKind::frozenSet:
            return "frozenset";
        case ValueKind::dict:
            return "dict";
        case ValueKind::global:
            return g.globalModule(value.node) == "torch" ? "torch.dtype" : "class";
        case ValueKind::persistent:
            return "persistent";
        case ValueKind::object:
            break;
    }
    if (isNumpyArray(g, value.node)) return "numpy.ndarray";
    if (isNumpyScalar(g, value.node)) {
        const auto scalar = asNumpyScalar(g, value.node);
        if (!scalar || !isShown(scalar->dtype.dtype)) return "numpy.generic";
        return fmt::format("numpy.{}", dtypeName(scalar->dtype.dtype));
    }
    const NodeId type = classOf(g, value.node);
    if (type == kNoNode) return "object";
    if (g.globalModule(type) == "builtins" || g.globalModule(type) == "collections")
        return safeName(g.globalName(type));
    return safeName(g.globalModule(type)) + "." + safeName(g.globalName(type));
}

std::string valueToJson(const Value& value, size_t maxNodes) {
    if (!value) return "null";
    JsonWriter writer(*value.graph, maxNodes);
    if (writer.write(value.node, 0)) return std::move(writer.out);
    std::string out = "{\"repr\": ";
    jsonText(valueRepr(value), out);
    return out + "}";
}

}  // namespace shardscope
