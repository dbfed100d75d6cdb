// Findings of a validation, one row for each cause; its examples are the rows below. Before a validation has
// run it shows what opening alone has noticed.
#pragma once

#include "ui/models/columns.h"
#include "ui/models/session.h"
#include "ui/models/suppressions.h"

namespace shardscope::ui {

class FindingsModel : public Columns<QAbstractItemModel> {
    Q_OBJECT
  public:
    enum Column { severity, rule, what, where, count, columnCountValue };
    enum Roles { SeverityRole = Qt::UserRole + 1, SuppressedRole };

    FindingsModel(Session& session, Suppressions& suppressions, QObject* parent = nullptr);

    void setShowSuppressed(bool show);
    bool showSuppressed() const { return showSuppressed_; }

    // The finding of a row or of the row above an example; null when there is none.
    const Finding* finding(const QModelIndex& index) const;
    const FindingExample* example(const QModelIndex& index) const;  // null for a finding's own row
    QString reason(const QModelIndex& index) const;                 // why it is suppressed

    size_t errors() const { return errors_; }  // that are not suppressed
    size_t warnings() const { return warnings_; }
    size_t suppressed() const { return suppressed_; }

    QModelIndex index(int row, int column, const QModelIndex& parent = {}) const override;
    QModelIndex parent(const QModelIndex& index) const override;
    int rowCount(const QModelIndex& parent = {}) const override;
    Qt::ItemFlags flags(const QModelIndex& index) const override;
    QVariant data(const QModelIndex& index, int role = Qt::DisplayRole) const override;

  private:
    void rebuild();
    void fromNotes();

    Session& session_;
    Suppressions& suppressions_;
    std::vector<Finding> findings_;
    std::vector<QString> reasons_;  // of suppressed ones, else null
    std::vector<uint32_t> rows_;    // shown findings
    bool showSuppressed_ = false;
    size_t errors_ = 0, warnings_ = 0, suppressed_ = 0;
};

}  // namespace shardscope::ui
