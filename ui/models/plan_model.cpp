#include "ui/models/plan_model.h"

#include "ui/models/texts.h"

namespace shardscope::ui {

namespace {

using Group = PlanModel::Group;

struct GroupKind {
    Group group;
    const char* title;
    std::vector<PlanLeftOut> Plan::*list = nullptr;  // where the plan holds it so
};
// In the order of their numbers, which is that of the tree.
constexpr GroupKind kGroups[] = {
    {Group::impossible, QT_TRANSLATE_NOOP("PlanModel", "Impossible (%n)"), &Plan::impossible},
    {Group::leftOut,
     QT_TRANSLATE_NOOP("PlanModel", "Left out, because it is damaged or the target cannot hold it (%n)"),
     &Plan::leftOut},
    {Group::unknown, QT_TRANSLATE_NOOP("PlanModel", "Weights that the recipe does not know (%n)"),
     &Plan::unknown},
    {Group::changed, QT_TRANSLATE_NOOP("PlanModel", "Carried in another form (%n)"), &Plan::changed},
    {Group::averaged, QT_TRANSLATE_NOOP("PlanModel", "Averaged checkpoints and their weights (%n)")},
    {Group::notAveraged, QT_TRANSLATE_NOOP("PlanModel", "Not averaged (%n)"), &Plan::notAveraged},
    {Group::made, QT_TRANSLATE_NOOP("PlanModel", "Made of other tensors (%n)"), &Plan::made},
    {Group::fromMasters, QT_TRANSLATE_NOOP("PlanModel", "Values from fp32 master weights (%n)"),
     &Plan::fromMasters},
    {Group::notes, QT_TRANSLATE_NOOP("PlanModel", "Notes (%n)"), &Plan::notes},
    {Group::renamed, QT_TRANSLATE_NOOP("PlanModel", "Renamed (%n)"), &Plan::renamed},
    {Group::excluded, QT_TRANSLATE_NOOP("PlanModel", "Excluded by request (%n)"), &Plan::excluded},
    {Group::reads, QT_TRANSLATE_NOOP("PlanModel", "Files that tensors are read from (%n)")},
    {Group::files, QT_TRANSLATE_NOOP("PlanModel", "Files to be written (%n)")}};

const GroupKind& kindOf(Group group) {
    return kGroups[static_cast<size_t>(group)];
}

}  // namespace

PlanModel::PlanModel(QObject* parent) : TwoLevels({{tr("What")}, {tr("Size, origin or reason")}}, parent) {}

void PlanModel::setPlan(std::shared_ptr<const Plan> plan, std::vector<PlanFile> reads) {
    beginResetModel();
    plan_ = std::move(plan);
    reads_ = std::move(reads);
    averaged_.clear();
    for (const PlanAveraged& input : plan_ ? plan_->averaged : std::vector<PlanAveraged>())
        averaged_.push_back({input.path, QString::number(input.weight, 'g', 6).toStdString()});
    groups_.clear();
    for (const GroupKind& kind : kGroups) {
        if (plan_ && entries(kind.group) > 0) groups_.push_back(kind.group);
    }
    endResetModel();
}

size_t PlanModel::entries(Group group) const {
    return group == Group::reads   ? reads_.size()
           : group == Group::files ? plan_->files.size()
                                   : listOf(group).size();
}

const std::vector<PlanLeftOut>& PlanModel::listOf(Group group) const {
    return group == Group::averaged ? averaged_ : (*plan_).*kindOf(group).list;
}

QModelIndex PlanModel::groupIndex(Group group) const {
    for (size_t g = 0; g < groups_.size(); ++g) {
        if (groups_[g] == group) return index(static_cast<int>(g), 0);
    }
    return {};
}

QVariant PlanModel::data(const QModelIndex& index, int role) const {
    if (!checkIndex(index, CheckIndexOption::IndexIsValid)) return {};
    const Group group = groupOf(index);
    if (isGroup(index)) {
        if (index.column() == 0 && role == Qt::DisplayRole)
            return tr(kindOf(group).title, nullptr, static_cast<int>(entries(group)));
        if (index.column() == 1 && role == Qt::DisplayRole && group == Group::files)
            return sizeText(plan_->bytesWritten);
        return {};
    }
    // Tool tips show what a narrow column cuts; escaped, for Qt takes what looks like markup for rich text.
    if (role == Qt::ToolTipRole) return data(index, Qt::DisplayRole).toString().toHtmlEscaped();
    if (role != Qt::DisplayRole && role != NameRole) return {};
    if (group == Group::files || group == Group::reads) {
        const PlanFile& file =
            (group == Group::files ? plan_->files : reads_)[static_cast<size_t>(index.row())];
        if (role == NameRole) return QString::fromStdString(file.path);
        return index.column() == 0 ? toQString(file.path) : sizeText(file.size);
    }
    const PlanLeftOut& e = listOf(group)[static_cast<size_t>(index.row())];
    if (role == NameRole) return QString::fromStdString(e.name);
    if (index.column() == 0) return e.name.empty() ? tr("(the whole conversion)") : toQString(e.name);
    return group == Group::renamed ? tr("becomes %1").arg(toQString(e.why)) : toQString(e.why);
}

}  // namespace shardscope::ui
