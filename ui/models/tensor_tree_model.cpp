#include "ui/models/tensor_tree_model.h"

#include <algorithm>

#include "ui/models/index_id.h"
#include "ui/models/texts.h"

namespace shardscope::ui {

namespace {
constexpr size_t kMostObjects = 100'000;  // rows; the page of objects lists all
constexpr size_t kShownOfValue = 60;      // bytes of text
}  // namespace

TensorTreeModel::TensorTreeModel(Session& session, QObject* parent)
    : Columns(
          {{tr("Name")}, {tr("Dtype")}, {tr("Shape")}, {tr("Size"), true}, {tr("Sharding")}, {tr("State")}},
          parent),
      session_(session) {
    connect(&session, &Session::visibleChanged, this, &TensorTreeModel::rebuild);
    connect(&session, &Session::factsChanged, this, &TensorTreeModel::rebuild);
    rebuild();
}

void TensorTreeModel::rebuild() {
    const bool same = tree_ == session_.filtered().tree() && checkpoint_ == session_.checkpoint();
    if (!same) beginResetModel();
    tree_ = session_.filtered().tree();
    checkpoint_ = session_.checkpoint();
    if (!same) chooseObjects();
    health_.clear();
    incomplete_.clear();
    states_.clear();
    if (tree_ && session_.hasFacts()) {
        health_.assign(tree_->size(), Health::ok);
        incomplete_.assign(tree_->size(), 0);
        for (ModuleTree::Node n = static_cast<ModuleTree::Node>(tree_->size()); n-- > 1;) {
            if (tree_->tensor(n) != kNone) health_[n] = session_.facts()->tensorHealth[tree_->tensor(n)];
            if (tree_->tensor(n) != kNone) incomplete_[n] = health_[n] == Health::missing;
            incomplete_[tree_->parent(n)] += incomplete_[n];
            Health& above = health_[tree_->parent(n)];
            above = std::max(above, health_[n]);
        }
    }
    if (!same) {
        endResetModel();
    } else if (tree_ && !tree_->empty()) {
        // Only colors and the last column change; views ask again for what they show.
        emit dataChanged(index(0, 0), index(rowCount() - 1, columnCountValue - 1));
    }
}

// Words of the filter narrow objects as they do tensors; what its tokens ask for, objects do not have.
void TensorTreeModel::chooseObjects() {
    objects_.clear();
    notTaken_.clear();
    if (!checkpoint_ || !tree_) return;
    QStringList words;
    if (session_.filtered().active())
        words = session_.selection().current().filter.split(' ', Qt::SkipEmptyParts);
    for (const QString& word : words) {
        if (word.startsWith('-') || word.contains(':') || word.contains('<') || word.contains('>')) return;
    }
    const auto fits = [&](std::string_view full) {
        const QString text = words.isEmpty() ? QString() : toQString(full);
        return std::all_of(words.begin(), words.end(),
                           [&](const QString& word) { return text.contains(word, Qt::CaseInsensitive); });
    };
    for (const Note* note : notTakenOver(checkpoint_->catalog())) {
        if (fits(note->tensor) && notTaken_.size() < kMostObjects) notTaken_.push_back(note);
    }
    const auto& objects = checkpoint_->catalog().objects();
    for (ObjectId o = 0; o < objects.size() && objects_.size() < kMostObjects; ++o) {
        if (fits(objects[o].name)) objects_.push_back(o);
    }
}

ModuleTree::Node TensorTreeModel::node(const QModelIndex& index) const {
    return index.isValid() ? static_cast<ModuleTree::Node>(numberOfId(index.internalId()))
                           : ModuleTree::kRoot;
}

ModuleTree::Node TensorTreeModel::lastOfChain(ModuleTree::Node n) const {
    while (n != ModuleTree::kRoot && tree_->childCount(n) == 1)
        n = tree_->child(n, 0);
    return n;
}

ModuleTree::Node TensorTreeModel::firstOfChain(ModuleTree::Node n) const {
    while (tree_->parent(n) != ModuleTree::kRoot && tree_->childCount(tree_->parent(n)) == 1)
        n = tree_->parent(n);
    return n;
}

// "mlp.down_proj.weight" where mlp has nothing but down_proj.
QString TensorTreeModel::chainText(ModuleTree::Node n) const {
    const ModuleTree::Node first = firstOfChain(n);
    return toQString(tree_->fullName(n).substr(tree_->fullName(first).size() - tree_->label(first).size()));
}

QModelIndex TensorTreeModel::indexOfNode(ModuleTree::Node node, int column) const {
    if (node == ModuleTree::kRoot) return {};
    const uint32_t behind = tree_->childCount(ModuleTree::kRoot);
    const uint32_t row = isModuleNode(node)       ? tree_->row(firstOfChain(node))
                         : node == notTakenNode() ? behind
                         : node < objectsNode()   ? node - notTakenNode() - 1
                         : node == objectsNode()  ? behind + (notTaken_.empty() ? 0 : 1)
                                                  : node - objectsNode() - 1;
    return createIndex(static_cast<int>(row), column, idOfNumber(node));
}

QModelIndex TensorTreeModel::index(int row, int column, const QModelIndex& parent) const {
    if (!tree_ || row < 0 || column < 0 || column >= columnCountValue || parent.column() > 0) return {};
    if (row >= rowCount(parent)) return {};
    const ModuleTree::Node above = node(parent);
    const auto at = static_cast<uint32_t>(row);
    if (!isModuleNode(above)) return indexOfNode(above + 1 + at, column);
    if (at >= tree_->childCount(above)) {
        const bool first = at == tree_->childCount(above) && !notTaken_.empty();
        return indexOfNode(first ? notTakenNode() : objectsNode(), column);
    }
    return indexOfNode(lastOfChain(tree_->child(above, at)), column);
}

QModelIndex TensorTreeModel::parent(const QModelIndex& index) const {
    if (!index.isValid()) return {};
    const ModuleTree::Node n = node(index);
    if (!isModuleNode(n)) {
        if (n == notTakenNode() || n == objectsNode()) return {};
        return indexOfNode(n < objectsNode() ? notTakenNode() : objectsNode(), 0);
    }
    return indexOfNode(tree_->parent(firstOfChain(n)), 0);
}

int TensorTreeModel::rowCount(const QModelIndex& parent) const {
    if (!tree_ || tree_->size() == 0 || parent.column() > 0) return 0;
    const ModuleTree::Node n = node(parent);
    if (!isModuleNode(n))
        return static_cast<int>(n == objectsNode()    ? objects_.size()
                                : n == notTakenNode() ? notTaken_.size()
                                                      : 0);
    const int behind = n == ModuleTree::kRoot ? !objects_.empty() + !notTaken_.empty() : 0;
    return static_cast<int>(tree_->childCount(n)) + behind;
}

TensorId TensorTreeModel::tensor(const QModelIndex& index) const {
    return index.isValid() && tree_ && isModuleNode(node(index)) ? tree_->tensor(node(index)) : kNone;
}

ObjectId TensorTreeModel::object(const QModelIndex& index) const {
    if (!index.isValid() || !tree_ || node(index) <= objectsNode()) return kNone;
    return objects_[node(index) - objectsNode() - 1];
}

QModelIndex TensorTreeModel::indexOfObject(ObjectId object) const {
    const auto at = std::lower_bound(objects_.begin(), objects_.end(), object);
    if (!tree_ || at == objects_.end() || *at != object) return {};
    return indexOfNode(objectsNode() + 1 + static_cast<ModuleTree::Node>(at - objects_.begin()), 0);
}

bool TensorTreeModel::notTaken(const QModelIndex& index) const {
    return index.isValid() && tree_ && !isModuleNode(node(index)) && node(index) < objectsNode();
}

bool TensorTreeModel::holdsObjects(const QModelIndex& index) const {
    return index.isValid() && tree_ && node(index) == objectsNode();
}

QString TensorTreeModel::fullName(const QModelIndex& index) const {
    if (!index.isValid() || !tree_ || holdsObjects(index)) return {};
    if (const ObjectId o = object(index); o != kNone)
        return toQString(checkpoint_->catalog().objects()[o].name);
    if (notTaken(index))
        return node(index) == notTakenNode() ? QString()
                                             : toQString(notTaken_[node(index) - notTakenNode() - 1]->tensor);
    return toQString(tree_->fullName(node(index)));
}

QModelIndex TensorTreeModel::indexOf(TensorId tensor) const {
    return tree_ && tensor != kNone ? indexOfNode(tree_->nodeOf(tensor), 0) : QModelIndex();
}

QModelIndex TensorTreeModel::indexOfModule(const QString& fullName) const {
    return tree_ ? indexOfNode(lastOfChain(tree_->find(fullName.toStdString())), 0) : QModelIndex();
}

Health TensorTreeModel::healthOf(ModuleTree::Node n) const {
    return n < health_.size() ? health_[n] : Health::unread;
}

// "ok", "31 of 32 shards"; of a module "6 tensors".
QString TensorTreeModel::stateText(ModuleTree::Node n) const {
    if (health_.empty()) return QStringLiteral("…");
    if (healthOf(n) != Health::missing) return toQString(healthName(healthOf(n)));
    if (const TensorId t = tree_->tensor(n); t != kNone && session_.hasFacts()) {
        const auto [known, fresh] = states_.try_emplace(n);
        if (fresh) known->second = toQString(tensorStateText(*session_.facts(), checkpoint_->catalog(), t));
        return known->second;
    }
    return countedText(incomplete_[n], tr("1 tensor"), tr("%1 tensors"));  // the mark says what of them
}

QVariant TensorTreeModel::data(const QModelIndex& index, int role) const {
    if (!index.isValid() || !tree_ || !checkpoint_) return {};
    const ModuleTree::Node n = node(index);
    if (notTaken(index)) return notTakenData(n, index.column(), role);
    if (!isModuleNode(n)) return objectData(n, index.column(), role);
    const TensorId t = tree_->tensor(n);
    const Catalog& catalog = checkpoint_->catalog();
    switch (role) {
        case Qt::DisplayRole:
        case Qt::AccessibleTextRole:
            switch (index.column()) {
                case name:
                    return chainText(n);
                case dtype:
                    return t == kNone ? QVariant() : toQString(dtypeName(catalog.dtype(t)));
                case shape:
                    return t == kNone ? countedText(tree_->tensorCount(n), tr("1 tensor"), tr("%1 tensors"))
                                      : toQString(formatDims(catalog.shape(t)));
                case bytes:
                    return sizeText(tree_->bytes(n));
                case cut:
                    return t == kNone ? QVariant() : toQString(cutText(catalog, t));
                case health:
                    // What is in order needs no words eight hundred times.
                    if (role == Qt::DisplayRole && !health_.empty() && healthOf(n) == Health::ok) return {};
                    return stateText(n);
            }
            return {};
        case Qt::ToolTipRole: {
            QString text = toQString(tree_->fullName(n));
            if (index.column() == health && t == kNone && healthOf(n) == Health::missing)
                text += tr("\nmissing or truncated in part: %1 of %2")
                            .arg(numberText(incomplete_[n]),
                                 countedText(tree_->tensorCount(n), tr("1 tensor"), tr("%1 tensors")));
            else if (index.column() == health)
                text += '\n' + stateText(n);
            if (t != kNone && catalog.aliasOf(t) != kNone)
                text += tr("\nthe same tensor as %1").arg(toQString(catalog.name(catalog.aliasOf(t))));
            if (t != kNone && session_.hasFacts() && session_.checkpoint() == checkpoint_) {
                const std::string notes = session_.facts()->notesOf(catalog, t);
                if (!notes.empty()) text += '\n' + QString::fromStdString(notes);
            }
            return text;
        }
        case Qt::TextAlignmentRole:
            return alignment(index.column());
        case HealthRole:
            return static_cast<int>(healthOf(n));
        default:
            return {};
    }
}

QVariant TensorTreeModel::notTakenData(ModuleTree::Node n, int column, int role) const {
    if (role == HealthRole) return static_cast<int>(Health::unread);
    const bool text = role == Qt::DisplayRole || role == Qt::AccessibleTextRole;
    if (n == notTakenNode()) {
        if (text && column == name) return tr("Not included");
        if (text && column == shape) return countedText(notTaken_.size(), tr("1 tensor"), tr("%1 tensors"));
        return {};
    }
    const Note& note = *notTaken_[n - notTakenNode() - 1];
    if (role == Qt::ToolTipRole) return QString(toQString(note.tensor) + '\n' + messageText(note.message));
    if (!text) return {};
    switch (column) {
        case name:
            return toQString(note.tensor);
        case dtype:
            return QStringLiteral("?");
        case shape:
            return messageText(note.message);
        case health:
            return tr("not checked");
        default:
            return {};
    }
}

QVariant TensorTreeModel::objectData(ModuleTree::Node n, int column, int role) const {
    const bool text = role == Qt::DisplayRole || role == Qt::AccessibleTextRole;
    if (n == objectsNode()) {
        if (text && column == name) return tr("Objects");
        if (text && column == shape) return countedText(objects_.size(), tr("1 object"), tr("%1 objects"));
        return {};
    }
    const ObjectInfo& object = checkpoint_->catalog().objects()[objects_[n - objectsNode() - 1]];
    if (role == Qt::ToolTipRole || (text && column == name)) return toQString(object.name);
    if (!text || !object.value) return {};
    if (column == dtype) return toQString(valueKindName(object.value));
    if (column == shape) return toQString(valueRepr(object.value, kShownOfValue));
    return {};
}

}  // namespace shardscope::ui
