// Inert data: what a pickle or a JSON document says, as a graph of plain nodes. Nothing here is ever called,
// imported or executed; a class that is not plain data is a node that shows its name.
//
// Nodes live in one arena and refer to each other by index. So shared nodes stay shared (a "billion laughs"
// pickle is small here), cycles can be held, and destruction is never recursive.
// Code that walks a graph must bound its depth and the number of nodes that it visits (`kMaxValueDepth`, and
// a budget of its own).
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shardscope {

constexpr int kMaxValueDepth = 512;

enum class ValueKind : uint8_t {
    none,
    boolean,
    integer,     // fits int64
    bigInteger,  // text = two's-complement little-endian bytes, as pickle's LONG1 carries them
    real,
    text,  // UTF-8; lone surrogates as pickle encodes them (surrogatepass)
    bytes,
    byteArray,
    list,        // items
    tuple,       // items
    set,         // items
    frozenSet,   // items
    dict,        // items: key, value, key, value, ...
    global,      // a name from a module: text = "module\nname"
    object,      // a call that was not made: see Object
    persistent,  // persistent id: items[0]
};

using NodeId = uint32_t;
constexpr NodeId kNoNode = UINT32_MAX;

// How an `object` node came to be: callable(*args) or cls.__new__(cls, *args), then what was put into it.
struct ValueObject {
    enum class Made : uint8_t { reduce, newObject, newObjectWithKeywords, instance };
    Made made = Made::reduce;
    NodeId callable = kNoNode;
    NodeId arguments = kNoNode;  // a tuple (usually)
    NodeId keywords = kNoNode;   // a dict, for newObjectWithKeywords
    NodeId state = kNoNode;      // operand of BUILD
    NodeId appended = kNoNode;   // a list: APPEND(S), ADDITEMS
    NodeId pairs = kNoNode;      // a dict: SETITEM(S)
};

class ValueGraph {
  public:
    ValueGraph() = default;
    ValueGraph(ValueGraph&&) = default;
    ValueGraph& operator=(ValueGraph&&) = default;
    ValueGraph(const ValueGraph&) = delete;
    ValueGraph& operator=(const ValueGraph&) = delete;

    size_t size() const { return nodes_.size(); }

    NodeId addNone();
    NodeId addBoolean(bool value);
    NodeId addInteger(int64_t value);
    NodeId addReal(double value);
    // text, bytes, byteArray, bigInteger, global
    NodeId addText(ValueKind kind, std::string_view text);
    NodeId addGlobal(std::string_view module, std::string_view name);
    // list, tuple, set, frozenSet, dict, persistent
    NodeId addContainer(ValueKind kind, std::span<const NodeId> items = {});
    NodeId addContainer(ValueKind kind, std::initializer_list<NodeId> items) {
        return addContainer(kind, std::span<const NodeId>(items.begin(), items.size()));
    }
    NodeId addObject(const ValueObject& object);
    // Adds to the end of a container. `items` must not point into this graph.
    void append(NodeId container, std::span<const NodeId> items);
    void append(NodeId container, NodeId item) { append(container, std::span<const NodeId>(&item, 1)); }
    // As append, to the object's `appended` list or `pairs` dict, which is made when it is not there.
    void appendToObject(NodeId object, std::span<const NodeId> items);
    void setInObject(NodeId object, std::span<const NodeId> keysAndValues);

    ValueKind kind(NodeId node) const { return nodes_[node].kind; }
    bool boolean(NodeId node) const { return nodes_[node].number != 0; }
    int64_t integer(NodeId node) const { return nodes_[node].number; }
    double real(NodeId node) const;
    std::string_view text(NodeId node) const;
    std::string_view globalModule(NodeId node) const;
    std::string_view globalName(NodeId node) const;
    // Valid until the next node or item is added.
    std::span<const NodeId> items(NodeId node) const {
        return {pool_.data() + static_cast<size_t>(nodes_[node].number), nodes_[node].size};
    }
    const ValueObject& object(NodeId node) const {
        return objects_[static_cast<size_t>(nodes_[node].number)];
    }
    // What an object's callable is called with; empty where that is not a tuple.
    std::span<const NodeId> argumentsOf(NodeId object) const;
    ValueObject& object(NodeId node) { return objects_[static_cast<size_t>(nodes_[node].number)]; }

    bool isText(NodeId node, std::string_view value) const {
        return node != kNoNode && kind(node) == ValueKind::text && text(node) == value;
    }
    bool isGlobal(NodeId node, std::string_view module, std::string_view name) const {
        return node != kNoNode && kind(node) == ValueKind::global && globalModule(node) == module &&
               globalName(node) == name;
    }
    // Whether the node maps keys to values: a dict, or an object that is filled like one (OrderedDict,
    // defaultdict, ...).
    bool isMapping(NodeId node) const;
    // key, value, key, value, ... of a mapping; empty for anything else. A key may come twice: the last one
    // counts.
    std::span<const NodeId> pairs(NodeId mapping) const;
    // Value of a string key in a mapping; kNoNode when absent.
    NodeId find(NodeId mapping, std::string_view key) const;

    // Bytes held, for memory limits.
    uint64_t memoryBytes() const;

  private:
    struct Node {
        int64_t number = 0;  // value, bit pattern of a double, or index into pool_, objects_ or texts_
        uint32_t size = 0;   // of a text in bytes, of a container in items
        ValueKind kind = ValueKind::none;
        bool roomy = false;  // the pool has the capacity of this container in front of its items
    };
    NodeId add(ValueKind kind, int64_t number, uint32_t size = 0);

    std::vector<Node> nodes_;
    std::string texts_;
    std::vector<NodeId> pool_;  // items of all containers; one that outgrows its place moves to the end
    std::vector<ValueObject> objects_;
};

// A node together with the graph that keeps it alive; cheap to copy.
struct Value {
    std::shared_ptr<const ValueGraph> graph;
    NodeId node = kNoNode;

    explicit operator bool() const { return graph && node != kNoNode; }
    ValueKind kind() const { return graph->kind(node); }
};

Value makeValue(ValueGraph&& graph, NodeId node);
Value makeTextValue(std::string_view text);
Value makeIntegerValue(int64_t value);

// Copies `source` and all it reaches into `graph`, sharing kept. kNoNode when the walk passes `maxNodes`.
NodeId copyValue(const Value& source, ValueGraph& graph, size_t maxNodes = 1'000'000);

// Calls visit(module, name) for each global that the value reaches, each once; returns false when the walk
// was cut off at `maxNodes`.
bool forEachGlobal(const Value& value, const std::function<void(std::string_view, std::string_view)>& visit,
                   size_t maxNodes = 1'000'000);

// As Python would print it ("[1, 'two', None]", "torch.Size([2, 3])", "<mymodule.Thing>"), cut after
// `maxLength` bytes with "...".
std::string valueRepr(const Value& value, size_t maxLength = 400);

// One word for a listing: "int", "str", "list", "torch.Size", "numpy.ndarray", ...
std::string valueKindName(const Value& value);

// JSON text where JSON is exact (null, booleans, integers, finite reals, text, lists, dicts with text keys),
// else {"tuple": [...]}, {"dict_items": [[key, value], ...]} or {"repr": "..."}. Cut to {"repr": ...} past
// `maxNodes`.
std::string valueToJson(const Value& value, size_t maxNodes = 100'000);

}  // namespace shardscope
