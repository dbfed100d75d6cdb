#include "ui/models/tensor_tree_model.h"

#include "ui/models/texts.h"

namespace shardscope::ui {

namespace {
// Odd, so that the product is a different number for every node and has an inverse.
constexpr quintptr kSpread = sizeof(quintptr) == 8 ? quintptr(0x9E3779B97F4A7C15ULL) : quintptr(0x9E3779B1UL);
constexpr quintptr inverseOf(quintptr odd) {
    quintptr inverse = odd;
    for (int i = 0; i < 6; ++i)
        inverse *= 2 - odd * inverse;
    return inverse;
}
constexpr quintptr kGather = inverseOf(kSpread);
static_assert(kSpread * kGather == 1);
}  // namespace

TensorTreeModel::TensorTreeModel(Session& session, QObject* parent)
    : QAbstractItemModel(parent), session_(session) {
    connect(&session, &Session::visibleChanged, this, &TensorTreeModel::rebuild);
    connect(&session, &Session::factsChanged, this, [this] {
        if (tree_ != session_.visibleTree()) return rebuild();
        rebuild();
    });
    rebuild();
}

void TensorTreeModel::rebuild() {
    const bool same = tree_ == session_.visibleTree() && checkpoint_ == session_.checkpoint();
    if (!same) beginResetModel();
    tree_ = session_.visibleTree();
    checkpoint_ = session_.checkpoint();
    health_.clear();
    if (tree_ && session_.hasFacts()) {
        health_.assign(tree_->size(), Health::ok);
        for (ModuleTree::Node n = static_cast<ModuleTree::Node>(tree_->size()); n-- > 1;) {
            if (tree_->tensor(n) != kNone) health_[n] = session_.facts()->tensorHealth[tree_->tensor(n)];
            Health& above = health_[tree_->parent(n)];
            above = std::max(above, health_[n]);
        }
    }
    if (!same) {
        endResetModel();
    } else if (tree_ && !tree_->empty()) {
        // Only colours and the last column change; views ask again for what they show.
        emit dataChanged(index(0, 0), index(rowCount() - 1, columnCountValue - 1));
    }
}

ModuleTree::Node TensorTreeModel::node(const QModelIndex& index) const {
    return index.isValid() ? static_cast<ModuleTree::Node>(index.internalId() * kGather) : ModuleTree::kRoot;
}

QModelIndex TensorTreeModel::indexOfNode(ModuleTree::Node node, int column) const {
    if (node == ModuleTree::kRoot) return {};
    return createIndex(static_cast<int>(tree_->row(node)), column, quintptr(node) * kSpread);
}

QModelIndex TensorTreeModel::index(int row, int column, const QModelIndex& parent) const {
    if (!tree_ || row < 0 || column < 0 || column >= columnCountValue || parent.column() > 0) return {};
    const ModuleTree::Node above = node(parent);
    if (static_cast<uint32_t>(row) >= (tree_->size() ? tree_->childCount(above) : 0)) return {};
    return indexOfNode(tree_->child(above, static_cast<uint32_t>(row)), column);
}

QModelIndex TensorTreeModel::parent(const QModelIndex& index) const {
    if (!index.isValid()) return {};
    return indexOfNode(tree_->parent(node(index)), 0);
}

int TensorTreeModel::rowCount(const QModelIndex& parent) const {
    if (!tree_ || tree_->size() == 0 || parent.column() > 0) return 0;
    return static_cast<int>(tree_->childCount(node(parent)));
}

int TensorTreeModel::columnCount(const QModelIndex&) const {
    return columnCountValue;
}

bool TensorTreeModel::hasChildren(const QModelIndex& parent) const {
    return rowCount(parent) > 0;
}

Qt::ItemFlags TensorTreeModel::flags(const QModelIndex& index) const {
    if (!index.isValid()) return Qt::NoItemFlags;
    Qt::ItemFlags flags = Qt::ItemIsEnabled | Qt::ItemIsSelectable;
    if (tree_->childCount(node(index)) == 0) flags |= Qt::ItemNeverHasChildren;
    return flags;
}

TensorId TensorTreeModel::tensor(const QModelIndex& index) const {
    return index.isValid() && tree_ ? tree_->tensor(node(index)) : kNone;
}

QString TensorTreeModel::fullName(const QModelIndex& index) const {
    return index.isValid() && tree_ ? toQString(tree_->fullName(node(index))) : QString();
}

QModelIndex TensorTreeModel::indexOf(TensorId tensor) const {
    return tree_ && tensor != kNone ? indexOfNode(tree_->nodeOf(tensor), 0) : QModelIndex();
}

QModelIndex TensorTreeModel::indexOfModule(const QString& fullName) const {
    return tree_ ? indexOfNode(tree_->find(fullName.toStdString()), 0) : QModelIndex();
}

Health TensorTreeModel::healthOf(ModuleTree::Node n) const {
    return n < health_.size() ? health_[n] : Health::unread;
}

QVariant TensorTreeModel::data(const QModelIndex& index, int role) const {
    if (!index.isValid() || !tree_ || !checkpoint_) return {};
    const ModuleTree::Node n = node(index);
    const TensorId t = tree_->tensor(n);
    const Catalog& catalog = checkpoint_->catalog();
    switch (role) {
        case Qt::DisplayRole:
        case Qt::AccessibleTextRole:
            switch (index.column()) {
                case name:
                    return toQString(tree_->label(n));
                case dtype:
                    return t == kNone ? QVariant() : toQString(dtypeName(catalog.dtype(t)));
                case shape:
                    return t == kNone ? counted(tree_->tensorCount(n), tr("tensor"), tr("tensors"))
                                      : toQString(formatDims(catalog.shape(t)));
                case bytes:
                    return sizeText(tree_->bytes(n));
                case cut:
                    return t == kNone ? QVariant() : toQString(cutText(catalog, t));
                case health: {
                    if (health_.empty()) return QStringLiteral("…");
                    const Health h = healthOf(n);
                    return h == Health::ok ? tr("ok") : toQString(healthName(h));
                }
            }
            return {};
        case Qt::ToolTipRole: {
            QString text = toQString(tree_->fullName(n));
            if (t != kNone && catalog.aliasOf(t) != kNone)
                text += tr("\nthe same tensor as %1").arg(toQString(catalog.name(catalog.aliasOf(t))));
            return text;
        }
        case Qt::TextAlignmentRole:
            if (index.column() == bytes) return QVariant(Qt::AlignRight | Qt::AlignVCenter);
            return {};
        case TensorRole:
            return t;
        case ModuleRole:
            return toQString(tree_->fullName(n));
        case HealthRole:
            return static_cast<int>(healthOf(n));
        default:
            return {};
    }
}

QVariant TensorTreeModel::headerData(int section, Qt::Orientation orientation, int role) const {
    if (orientation != Qt::Horizontal || role != Qt::DisplayRole) return {};
    switch (section) {
        case name:
            return tr("Name");
        case dtype:
            return tr("Dtype");
        case shape:
            return tr("Shape");
        case bytes:
            return tr("Size");
        case cut:
            return tr("Cut");
        case health:
            return tr("State");
    }
    return {};
}

}  // namespace shardscope::ui
