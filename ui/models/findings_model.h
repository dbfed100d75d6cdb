// Findings of a validation, one row for each cause; its examples are the rows below.
#pragma once

#include "ui/models/session.h"
#include "ui/models/suppressions.h"
#include "ui/models/two_levels.h"

namespace shardscope::ui {

class FindingsModel : public TwoLevels {
    Q_OBJECT
  public:
    enum Column { severity, rule, what, where, count, columnCountValue };

    FindingsModel(Session& session, Suppressions& suppressions, QObject* parent = nullptr);

    void setShowSuppressed(bool show);

    // The finding of a row or of the row above an example; null when there is none.
    const Finding* finding(const QModelIndex& index) const;
    const FindingExample* example(const QModelIndex& index) const;  // null for a finding's own row
    QString reason(const QModelIndex& index) const;                 // why it is suppressed

    size_t errors() const { return errors_; }  // that are not suppressed
    size_t warnings() const { return warnings_; }
    size_t suppressed() const { return suppressed_; }

    QVariant data(const QModelIndex& index, int role = Qt::DisplayRole) const override;

  protected:
    int groupCount() const override { return static_cast<int>(rows_.size()); }
    int groupSize(int group) const override {
        return static_cast<int>(findings_[rows_[static_cast<size_t>(group)]].examples.size());
    }

  private:
    void rebuild();

    Session& session_;
    Suppressions& suppressions_;
    std::vector<Finding> findings_;
    std::vector<QString> reasons_;  // of suppressed ones, else null
    std::vector<uint32_t> rows_;    // shown findings
    bool showSuppressed_ = false;
    size_t errors_ = 0, warnings_ = 0, suppressed_ = 0;
};

}  // namespace shardscope::ui
