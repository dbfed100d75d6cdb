#include "ui/models/value_tree_model.h"

#include <algorithm>
#include <array>
#include <span>

#include "ui/models/index_id.h"
#include "ui/models/texts.h"

namespace shardscope::ui {

namespace {

constexpr size_t kMostOfText = 300;  // bytes of one value in the table
constexpr size_t kMostInToolTip = 4000;
constexpr size_t kMostSearched = 2'000'000;  // entries, since shared nodes come up again and again

// What an entry consists of: named parts for an object, pairs for a mapping, members for a sequence.
struct Parts {
    enum class Kind { none, pairs, members, named } kind = Kind::none;
    std::span<const NodeId> nodes;
    const ValueObject* object = nullptr;
};

constexpr std::array<std::pair<NodeId ValueObject::*, const char*>, 6> kNamed{{
    {&ValueObject::callable, QT_TRANSLATE_NOOP("ValueTreeModel", "made by")},
    {&ValueObject::arguments, QT_TRANSLATE_NOOP("ValueTreeModel", "arguments")},
    {&ValueObject::keywords, QT_TRANSLATE_NOOP("ValueTreeModel", "keyword arguments")},
    {&ValueObject::state, QT_TRANSLATE_NOOP("ValueTreeModel", "state")},
    {&ValueObject::appended, QT_TRANSLATE_NOOP("ValueTreeModel", "items")},
    {&ValueObject::pairs, QT_TRANSLATE_NOOP("ValueTreeModel", "entries")},
}};

Parts partsOf(const ValueGraph& graph, NodeId node) {
    switch (graph.kind(node)) {
        case ValueKind::list:
        case ValueKind::tuple:
        case ValueKind::set:
        case ValueKind::frozenSet:
        case ValueKind::persistent:
            return {Parts::Kind::members, graph.items(node)};
        case ValueKind::dict:
            return {Parts::Kind::pairs, graph.items(node)};
        case ValueKind::object:
            // An OrderedDict is a mapping to people, too.
            if (graph.isMapping(node) && graph.object(node).state == kNoNode)
                return {Parts::Kind::pairs, graph.pairs(node)};
            return {Parts::Kind::named, {}, &graph.object(node)};
        default:
            return {};
    }
}

uint32_t countOf(const Parts& parts) {
    switch (parts.kind) {
        case Parts::Kind::none:
            return 0;
        case Parts::Kind::pairs:
            return static_cast<uint32_t>(parts.nodes.size() / 2);
        case Parts::Kind::members:
            return static_cast<uint32_t>(parts.nodes.size());
        case Parts::Kind::named:
            return static_cast<uint32_t>(std::count_if(kNamed.begin(), kNamed.end(), [&](const auto& named) {
                return parts.object->*named.first != kNoNode;
            }));
    }
    return 0;
}

// Which of the named parts stands in a row.
size_t namedAt(const Parts& parts, uint32_t row) {
    for (size_t i = 0; i < kNamed.size(); ++i) {
        if (parts.object->*kNamed[i].first != kNoNode && row-- == 0) return i;
    }
    return 0;
}

NodeId partAt(const Parts& parts, uint32_t row) {
    switch (parts.kind) {
        case Parts::Kind::pairs:
            return parts.nodes[size_t{row} * 2 + 1];
        case Parts::Kind::members:
            return parts.nodes[row];
        case Parts::Kind::named:
            return parts.object->*kNamed[namedAt(parts, row)].first;
        case Parts::Kind::none:
            break;
    }
    return kNoNode;
}

std::string keyAt(const std::shared_ptr<const ValueGraph>& graph, const Parts& parts, uint32_t row) {
    switch (parts.kind) {
        case Parts::Kind::pairs: {
            const NodeId key = parts.nodes[size_t{row} * 2];
            if (graph->kind(key) == ValueKind::text) return std::string(graph->text(key));
            return valueRepr(Value{graph, key}, kMostOfText);
        }
        case Parts::Kind::members:
            return std::to_string(row);
        case Parts::Kind::named:
            return kNamed[namedAt(parts, row)].second;
        case Parts::Kind::none:
            break;
    }
    return {};
}

// What is searched of an entry that has no parts.
std::string leafText(const Value& value) {
    return value.kind() == ValueKind::text ? std::string(value.graph->text(value.node))
                                           : valueRepr(value, kMostOfText);
}

}  // namespace

ValueTreeModel::ValueTreeModel(QObject* parent)
    : Columns({{tr("Name")}, {tr("Type")}, {tr("Value")}}, parent) {}

void ValueTreeModel::setValue(const QString& name, const Value& value) {
    beginResetModel();
    name_ = name;
    value_ = value;
    items_.clear();
    firstChild_.clear();
    if (value_) items_.push_back({value_.node, 0, 0});
    endResetModel();
}

void ValueTreeModel::clear() {
    setValue({}, {});
}

uint32_t ValueTreeModel::item(const QModelIndex& index) const {
    return static_cast<uint32_t>(numberOfId(index.internalId()));
}

QModelIndex ValueTreeModel::indexOfItem(uint32_t item, int column) const {
    return createIndex(static_cast<int>(items_[item].row), column, idOfNumber(item));
}

bool ValueTreeModel::repeats(uint32_t of) const {
    int depth = 0;
    for (uint32_t i = of; i != 0; ++depth) {
        i = items_[i].parent;
        if (items_[i].node == items_[of].node || depth > kMaxValueDepth) return true;
    }
    return false;
}

uint32_t ValueTreeModel::childrenOf(uint32_t of) const {
    const auto known = firstChild_.find(of);
    if (known != firstChild_.end()) return known->second;
    const Parts parts = partsOf(*value_.graph, items_[of].node);
    const auto first = static_cast<uint32_t>(items_.size());
    for (uint32_t row = 0; row < countOf(parts); ++row)
        items_.push_back({partAt(parts, row), of, row});
    firstChild_.emplace(of, first);
    return first;
}

QModelIndex ValueTreeModel::index(int row, int column, const QModelIndex& parent) const {
    if (row < 0 || column < 0 || column >= columnCountValue || row >= rowCount(parent)) return {};
    if (!parent.isValid()) return indexOfItem(0, column);
    return indexOfItem(childrenOf(item(parent)) + static_cast<uint32_t>(row), column);
}

QModelIndex ValueTreeModel::parent(const QModelIndex& index) const {
    if (!index.isValid() || item(index) == 0) return {};
    return indexOfItem(items_[item(index)].parent, 0);
}

int ValueTreeModel::rowCount(const QModelIndex& parent) const {
    if (items_.empty() || parent.column() > 0) return 0;
    if (!parent.isValid()) return 1;
    const uint32_t of = item(parent);
    if (items_[of].node == kNoNode || repeats(of)) return 0;
    return static_cast<int>(std::min<uint32_t>(countOf(partsOf(*value_.graph, items_[of].node)), INT32_MAX));
}

QString ValueTreeModel::keyText(uint32_t of) const {
    if (of == 0) return name_;
    const Parts parts = partsOf(*value_.graph, items_[items_[of].parent].node);
    const std::string text = keyAt(value_.graph, parts, items_[of].row);
    return parts.kind == Parts::Kind::named ? tr(text.c_str()) : toQString(text);
}

Value ValueTreeModel::part(const QModelIndex& index) const {
    return index.isValid() ? Value{value_.graph, items_[item(index)].node} : Value{};
}

QStringList ValueTreeModel::path(const QModelIndex& index) const {
    QStringList keys;
    for (QModelIndex i = index.siblingAtColumn(0); i.isValid(); i = i.parent())
        keys.prepend(keyText(item(i)));
    return keys;
}

QModelIndex ValueTreeModel::indexOf(const RowPath& path) const {
    QModelIndex at = index(0, 0);
    for (const int row : path)
        at = at.isValid() ? index(row, 0, at) : at;
    return at;
}

QVariant ValueTreeModel::data(const QModelIndex& index, int role) const {
    if (!index.isValid()) return {};
    const uint32_t of = item(index);
    const Value here = part(index);
    if (!here) return {};
    switch (role) {
        case Qt::DisplayRole:
        case Qt::AccessibleTextRole:
            switch (index.column()) {
                case nameColumn:
                    return keyText(of);
                case typeColumn:
                    return toQString(valueKindName(here));
                case valueColumn: {
                    if (repeats(of)) return tr("(contains itself)");
                    const Parts parts = partsOf(*here.graph, here.node);
                    if (parts.kind == Parts::Kind::pairs)
                        return countedText(countOf(parts), tr("1 entry"), tr("%1 entries"));
                    if (parts.kind == Parts::Kind::members && parts.nodes.size() > 16)
                        return countedText(countOf(parts), tr("1 item"), tr("%1 items"));
                    return toQString(valueRepr(here, kMostOfText));
                }
            }
            return {};
        case Qt::ToolTipRole:
            return index.column() == valueColumn ? toQString(valueRepr(here, kMostInToolTip)) : QVariant();
        default:
            return {};
    }
}

Result<std::vector<ValueTreeModel::RowPath>> ValueTreeModel::find(const Value& top, const QString& text,
                                                                  size_t most, const StopToken& stop) {
    std::vector<RowPath> found;
    if (!top || text.isEmpty()) return found;
    const ValueGraph& graph = *top.graph;
    struct Open {
        NodeId node;
        Parts parts;
        uint32_t next = 0, count = 0;
    };
    // Depth first without recursion; what contains itself is on the stack already.
    std::vector<Open> open;
    const auto enter = [&](NodeId node) {
        Parts parts = partsOf(graph, node);
        const uint32_t count = countOf(parts);
        const bool inside =
            std::any_of(open.begin(), open.end(), [&](const Open& o) { return o.node == node; });
        if (count > 0 && !inside && open.size() < static_cast<size_t>(kMaxValueDepth))
            open.push_back({node, parts, 0, count});
    };
    RowPath path;
    enter(top.node);
    for (size_t visited = 0; !open.empty() && found.size() < most && visited < kMostSearched; ++visited) {
        if (visited % 4096 == 0) SHARDSCOPE_TRY(stop.poll());
        Open& here = open.back();
        path.resize(open.size());
        if (here.next == here.count) {
            open.pop_back();
            continue;
        }
        const uint32_t row = here.next++;
        path.back() = static_cast<int>(row);
        const NodeId node = partAt(here.parts, row);
        const bool leaf = countOf(partsOf(graph, node)) == 0;
        if (toQString(keyAt(top.graph, here.parts, row)).contains(text, Qt::CaseInsensitive) ||
            (leaf && toQString(leafText({top.graph, node})).contains(text, Qt::CaseInsensitive)))
            found.push_back(path);
        if (!leaf) enter(node);
    }
    return found;
}

}  // namespace shardscope::ui
