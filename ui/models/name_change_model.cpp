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

NameChangeModel::NameChangeModel(QObject* parent) : TextTableModel({}, parent) {
    const auto nameNow = [this](size_t row) { return toQString(changes_->source->name(change(row).before)); };
    const auto nameThen = [this](size_t row) {
        const TensorId t = change(row).after;
        return t == kNone ? QString() : toQString(changes_->target->name(t));
    };
    const auto dtypeNow = [this](size_t row) {
        return toQString(dtypeName(changes_->source->dtype(change(row).before)));
    };
    const auto dtypeThen = [this](size_t row) {
        const TensorId t = change(row).after;
        return t == kNone ? QString() : toQString(dtypeName(changes_->target->dtype(t)));
    };
    setContent(0, {{{tr("Name now")}, nameNow},
                   {{tr("Name in the target")}, nameThen},
                   {{tr("Dtype now")}, dtypeNow},
                   {{tr("In the target")}, dtypeThen},
                   {{tr("What happens")}, [this](size_t row) { return fateText(change(row)); }}});
}

void NameChangeModel::setChanges(std::shared_ptr<const NameChanges> changes) {
    changes_ = std::move(changes);
    setOnlyChanged(onlyChanged_);
}

void NameChangeModel::setOnlyChanged(bool on) {
    onlyChanged_ = on;
    setRows(!changes_ ? 0 : on ? changes_->changedRows.size() : changes_->rows.size());
}

const NameChange& NameChangeModel::change(size_t row) const {
    return changes_->rows[onlyChanged_ ? changes_->changedRows[row] : row];
}

QString NameChangeModel::fateText(const NameChange& change) const {
    const QString why = toQString(change.why);
    switch (change.fate) {
        case NameChange::Fate::kept:
            return tr("as it is");
        case NameChange::Fate::changed:
            return why.isEmpty() ? tr("changed") : why;
        case NameChange::Fate::excluded:
            return tr("excluded: %1").arg(why);
        case NameChange::Fate::leftOut:
            return why.isEmpty() ? tr("left out") : tr("left out: %1").arg(why);
    }
    return {};
}

}  // namespace shardscope::ui
