#include "ui/models/name_change_model.h"

#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "ui/models/texts.h"

namespace shardscope::ui {

Result<std::shared_ptr<const NameChanges>> nameChanges(std::shared_ptr<const Catalog> source,
                                                       std::shared_ptr<const Catalog> target,
                                                       const Plan& plan, const StopToken& stop) {
    auto changes = std::make_shared<NameChanges>();
    std::unordered_map<std::string_view, std::string_view> renamed;
    std::unordered_map<std::string_view, const PlanLeftOut*> excluded, leftOut;
    for (const PlanLeftOut& entry : plan.renamed)
        renamed.emplace(entry.name, entry.why);
    for (const PlanLeftOut& entry : plan.excluded)
        excluded.emplace(entry.name, &entry);
    for (const auto* list : {&plan.impossible, &plan.leftOut}) {
        for (const PlanLeftOut& entry : *list)
            leftOut.emplace(entry.name, &entry);
    }
    std::unordered_set<std::string_view> asInLast;  // of an average
    for (const PlanLeftOut& entry : plan.notAveraged)
        asInLast.insert(entry.name);
    changes->rows.reserve(source->tensorCount());
    for (TensorId t = 0; t < source->tensorCount(); ++t) {
        if (t % 4096 == 0) SHARDSCOPE_TRY(stop.poll());
        const std::string_view name = source->name(t);
        NameChange row;
        row.before = t;
        if (const auto it = excluded.find(name); it != excluded.end()) {
            row.fate = NameChange::Fate::excluded;
            row.why = it->second->why;
        } else {
            const auto other = renamed.find(name);
            row.after = target->find(other == renamed.end() ? name : other->second);
            if (row.after == kNone) {
                row.fate = NameChange::Fate::leftOut;
                if (const auto left = leftOut.find(name); left != leftOut.end()) row.why = left->second->why;
            } else if (other != renamed.end() || target->dtype(row.after) != source->dtype(t)) {
                row.fate = NameChange::Fate::changed;
            }
            if (row.after != kNone && !plan.averaged.empty() && !asInLast.contains(target->name(row.after))) {
                row.fate = NameChange::Fate::changed;
                row.why = "averaged";
            }
        }
        if (row.fate != NameChange::Fate::kept)
            changes->changedRows.push_back(static_cast<uint32_t>(changes->rows.size()));
        changes->rows.push_back(std::move(row));
    }
    changes->source = std::move(source);
    changes->target = std::move(target);
    return std::shared_ptr<const NameChanges>(changes);
}

NameChangeModel::NameChangeModel(QObject* parent)
    : Columns({{tr("Name now")},
               {tr("Name in the target")},
               {tr("Dtype now")},
               {tr("In the target")},
               {tr("What happens")}},
              parent) {}

void NameChangeModel::setChanges(std::shared_ptr<const NameChanges> changes) {
    beginResetModel();
    changes_ = std::move(changes);
    endResetModel();
}

void NameChangeModel::setOnlyChanged(bool on) {
    beginResetModel();
    onlyChanged_ = on;
    endResetModel();
}

int NameChangeModel::rowCount(const QModelIndex& parent) const {
    if (parent.isValid() || !changes_) return 0;
    return static_cast<int>(onlyChanged_ ? changes_->changedRows.size() : changes_->rows.size());
}
QVariant NameChangeModel::data(const QModelIndex& index, int role) const {
    // Tool tips show what a narrow column cuts; escaped, for Qt takes what looks like markup for rich text.
    if (role == Qt::ToolTipRole) return data(index, Qt::DisplayRole).toString().toHtmlEscaped();
    if (role != Qt::DisplayRole || !checkIndex(index, CheckIndexOption::IndexIsValid)) return {};
    const auto r = static_cast<size_t>(index.row());
    const NameChange& row = changes_->rows[onlyChanged_ ? changes_->changedRows[r] : r];
    switch (index.column()) {
        case before:
            return toQString(changes_->source->name(row.before));
        case after:
            return row.after == kNone ? QString() : toQString(changes_->target->name(row.after));
        case dtypeBefore:
            return toQString(dtypeName(changes_->source->dtype(row.before)));
        case dtypeAfter:
            return row.after == kNone ? QString() : toQString(dtypeName(changes_->target->dtype(row.after)));
        case fate:
            break;
        default:
            return {};
    }
    switch (row.fate) {
        case NameChange::Fate::kept:
            return tr("as it is");
        case NameChange::Fate::changed:
            return row.why.empty() ? tr("changed") : toQString(row.why);
        case NameChange::Fate::excluded:
            return tr("excluded: %1").arg(toQString(row.why));
        case NameChange::Fate::leftOut:
            return row.why.empty() ? tr("left out") : tr("left out: %1").arg(toQString(row.why));
    }
    return {};
}

}  // namespace shardscope::ui
