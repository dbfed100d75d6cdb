// What a conversion would do, as a tree of two levels: groups (impossible, left out, ..., files), and their
// entries. Groups without entries are not there.
#pragma once

#include <memory>
#include <vector>

#include "plan/plan.h"
#include "ui/models/two_levels.h"

namespace shardscope::ui {

class PlanModel : public TwoLevels {
    Q_OBJECT
  public:
    enum class Group : uint8_t {
        impossible,
        leftOut,
        unknown,
        changed,
        averaged,
        notAveraged,
        made,
        fromMasters,
        notes,
        renamed,
        excluded,
        reads,
        files
    };
    enum Roles { NameRole = Qt::UserRole + 1 };  // as it is in the checkpoint, for copying

    explicit PlanModel(QObject* parent = nullptr);

    // Shown until another one comes; null shows nothing.
    void setPlan(std::shared_ptr<const Plan> plan, std::vector<PlanFile> reads = {});
    const std::shared_ptr<const Plan>& plan() const { return plan_; }
    QModelIndex groupIndex(Group group) const;  // invalid when it has no entries

    QVariant data(const QModelIndex& index, int role) const override;

  protected:
    int groupCount() const override { return static_cast<int>(groups_.size()); }
    int groupSize(int group) const override {
        return static_cast<int>(entries(groups_[static_cast<size_t>(group)]));
    }

  private:
    size_t entries(Group group) const;
    const std::vector<PlanLeftOut>& listOf(Group group) const;
    Group groupOf(const QModelIndex& index) const { return groups_[static_cast<size_t>(groupRow(index))]; }

    std::shared_ptr<const Plan> plan_;
    std::vector<PlanFile> reads_;
    std::vector<PlanLeftOut> averaged_;  // path and weight
    std::vector<Group> groups_;
};

}  // namespace shardscope::ui
