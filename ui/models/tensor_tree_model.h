// Modules and tensors as a tree for views, over a ModuleTree. Behind them, each under a row of their own, are
// the tensors that could not be taken over, and the objects. A module whose only child is a module or tensor
// shares its row, that of the last one. There is no object per row. The internal id of an index is its node's
// number spread over 64 bits: Qt's own hash of persistent indexes piles up small consecutive ids.
#pragma once

#include <memory>
#include <unordered_map>

#include "ui/models/columns.h"
#include "ui/models/session.h"

namespace shardscope::ui {

class TensorTreeModel : public Columns<QAbstractItemModel> {
    Q_OBJECT
  public:
    enum Column { name, dtype, shape, bytes, cut, health, columnCountValue };
    enum Roles { HealthRole = Qt::UserRole + 1 };

    explicit TensorTreeModel(Session& session, QObject* parent = nullptr);

    QModelIndex index(int row, int column, const QModelIndex& parent = {}) const override;
    QModelIndex parent(const QModelIndex& index) const override;
    int rowCount(const QModelIndex& parent = {}) const override;
    QVariant data(const QModelIndex& index, int role = Qt::DisplayRole) const override;

    // The tensor of an index, or kNone for a module.
    TensorId tensor(const QModelIndex& index) const;
    QString fullName(const QModelIndex& index) const;
    QModelIndex indexOf(TensorId tensor) const;
    QModelIndex indexOfModule(const QString& fullName) const;
    // The object of an index, kNone for anything else; the row that all objects are under.
    ObjectId object(const QModelIndex& index) const;
    QModelIndex indexOfObject(ObjectId object) const;
    bool holdsObjects(const QModelIndex& index) const;
    // A tensor that could not be taken over, or the row above them.
    bool notTaken(const QModelIndex& index) const;

  private:
    ModuleTree::Node node(const QModelIndex& index) const;
    // `node` is the last of its chain of only children.
    QModelIndex indexOfNode(ModuleTree::Node node, int column) const;
    ModuleTree::Node lastOfChain(ModuleTree::Node node) const;
    ModuleTree::Node firstOfChain(ModuleTree::Node node) const;
    QString chainText(ModuleTree::Node node) const;
    Health healthOf(ModuleTree::Node node) const;
    QString stateText(ModuleTree::Node node) const;
    QVariant objectData(ModuleTree::Node node, int column, int role) const;
    bool isModuleNode(ModuleTree::Node node) const { return node < tree_->size(); }
    QVariant notTakenData(ModuleTree::Node node, int column, int role) const;
    // Nodes behind those of the tree: a row, and what is under it.
    ModuleTree::Node notTakenNode() const { return static_cast<ModuleTree::Node>(tree_->size()); }
    ModuleTree::Node objectsNode() const {
        return notTakenNode() + 1 + static_cast<ModuleTree::Node>(notTaken_.size());
    }
    void chooseObjects();
    void rebuild();

    Session& session_;
    std::shared_ptr<const ModuleTree> tree_;
    CheckpointPtr checkpoint_;
    std::vector<Health> health_;                                    // by node, the worst below
    std::vector<uint32_t> incomplete_;                              // by node, tensors that lack bytes
    mutable std::unordered_map<ModuleTree::Node, QString> states_;  // in words, of tensors that were shown
    // Those that the filter lets through.
    std::vector<ObjectId> objects_;
    std::vector<const Note*> notTaken_;
};

}  // namespace shardscope::ui
