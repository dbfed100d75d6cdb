#include "ui/models/plan_model.h"

#include "ui/models/texts.h"

namespace shardscope::ui {

namespace {

constexpr PlanModel::Group kGroups[] = {
    PlanModel::Group::impossible, PlanModel::Group::leftOut,     PlanModel::Group::unknown,
    PlanModel::Group::changed,    PlanModel::Group::averaged,    PlanModel::Group::notAveraged,
    PlanModel::Group::made,       PlanModel::Group::fromMasters, PlanModel::Group::notes,
    PlanModel::Group::renamed,    PlanModel::Group::excluded,    PlanModel::Group::reads,
    PlanModel::Group::files};

QString groupText(PlanModel::Group group, size_t entries) {
    const auto n = static_cast<int>(entries);
    switch (group) {
        case PlanModel::Group::impossible:
            return PlanModel::tr("Impossible (%n)", nullptr, n);
        case PlanModel::Group::leftOut:
            return PlanModel::tr("Left out, because it is damaged or the target cannot hold it (%n)", nullptr,
                                 n);
        case PlanModel::Group::unknown:
            return PlanModel::tr("Weights that the recipe does not know (%n)", nullptr, n);
        case PlanModel::Group::changed:
            return PlanModel::tr("Carried in another form (%n)", nullptr, n);
        case PlanModel::Group::averaged:
            return PlanModel::tr("Averaged checkpoints and their weights (%n)", nullptr, n);
        case PlanModel::Group::notAveraged:
            return PlanModel::tr("Not averaged (%n)", nullptr, n);
        case PlanModel::Group::made:
            return PlanModel::tr("Made of other tensors (%n)", nullptr, n);
        case PlanModel::Group::fromMasters:
            return PlanModel::tr("Values from fp32 master weights (%n)", nullptr, n);
        case PlanModel::Group::notes:
            return PlanModel::tr("Notes (%n)", nullptr, n);
        case PlanModel::Group::renamed:
            return PlanModel::tr("Renamed (%n)", nullptr, n);
        case PlanModel::Group::excluded:
            return PlanModel::tr("Excluded by request (%n)", nullptr, n);
        case PlanModel::Group::reads:
            return PlanModel::tr("Files that tensors are read from (%n)", nullptr, n);
        case PlanModel::Group::files:
            return PlanModel::tr("Files to be written (%n)", nullptr, n);
    }
    return {};
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
    for (const Group group : kGroups) {
        if (plan_ && entries(group) > 0) groups_.push_back(group);
    }
    endResetModel();
}

size_t PlanModel::entries(Group group) const {
    switch (group) {
        case Group::impossible:
            return plan_->impossible.size();
        case Group::leftOut:
            return plan_->leftOut.size();
        case Group::unknown:
            return plan_->unknown.size();
        case Group::changed:
            return plan_->changed.size();
        case Group::averaged:
            return averaged_.size();
        case Group::notAveraged:
            return plan_->notAveraged.size();
        case Group::made:
            return plan_->made.size();
        case Group::fromMasters:
            return plan_->fromMasters.size();
        case Group::notes:
            return plan_->notes.size();
        case Group::renamed:
            return plan_->renamed.size();
        case Group::excluded:
            return plan_->excluded.size();
        case Group::reads:
            return reads_.size();
        case Group::files:
            return plan_->files.size();
    }
    return 0;
}

const PlanLeftOut& PlanModel::entry(Group group, int row) const {
    const std::vector<PlanLeftOut>& list = group == Group::impossible    ? plan_->impossible
                                           : group == Group::averaged    ? averaged_
                                           : group == Group::notAveraged ? plan_->notAveraged
                                           : group == Group::leftOut     ? plan_->leftOut
                                           : group == Group::unknown     ? plan_->unknown
                                           : group == Group::changed     ? plan_->changed
                                           : group == Group::made        ? plan_->made
                                           : group == Group::fromMasters ? plan_->fromMasters
                                           : group == Group::notes       ? plan_->notes
                                           : group == Group::renamed     ? plan_->renamed
                                                                         : plan_->excluded;
    return list[static_cast<size_t>(row)];
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
    if (role == GroupRole) return static_cast<int>(group);
    if (isGroup(index)) {
        if (index.column() == 0 && role == Qt::DisplayRole) return groupText(group, entries(group));
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
    const PlanLeftOut& e = entry(group, index.row());
    if (role == NameRole) return QString::fromStdString(e.name);
    if (index.column() == 0) return e.name.empty() ? tr("(the whole conversion)") : toQString(e.name);
    return group == Group::renamed ? tr("becomes %1").arg(toQString(e.why)) : toQString(e.why);
}

}  // namespace shardscope::ui
