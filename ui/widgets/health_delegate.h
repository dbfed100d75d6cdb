// Cells of a column of states: the tile of the state before its word.
#pragma once

#include <QStyledItemDelegate>

#include "survey/facts.h"

namespace shardscope::ui {

class HealthDelegate : public QStyledItemDelegate {
    Q_OBJECT
  public:
    // `role` gives the Health of an index as a number.
    explicit HealthDelegate(int role, QObject* parent = nullptr) : QStyledItemDelegate(parent), role_(role) {}
    void paint(QPainter* painter, const QStyleOptionViewItem& option,
               const QModelIndex& index) const override;
    QSize sizeHint(const QStyleOptionViewItem& option, const QModelIndex& index) const override;

  private:
    int role_;
};

}  // namespace shardscope::ui
