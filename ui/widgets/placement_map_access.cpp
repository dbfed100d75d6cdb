// The placement map for assistive technology: a table whose cells come into being when they are asked for, so
// that ten million of them cost nothing.
#include <QAccessible>
#include <QAccessibleWidget>
#include <map>

#include "ui/models/texts.h"
#include "ui/widgets/placement_map.h"

namespace shardscope::ui {

namespace {

class MapCell final : public QAccessibleInterface, public QAccessibleTableCellInterface {
  public:
    MapCell(PlacementMap* map, PlacementMap::Cell cell) : map_(map), cell_(cell) {}

    bool isValid() const override {
        const auto& matrix = map_->matrix();
        return matrix && cell_.row < matrix->rowCount() && cell_.column <= matrix->columnCount();
    }
    QObject* object() const override { return nullptr; }
    QWindow* window() const override { return map_->window()->windowHandle(); }
    QAccessibleInterface* childAt(int, int) const override { return nullptr; }
    QAccessibleInterface* parent() const override { return QAccessible::queryAccessibleInterface(map_); }
    QAccessibleInterface* child(int) const override { return nullptr; }
    int childCount() const override { return 0; }
    int indexOfChild(const QAccessibleInterface*) const override { return -1; }
    QString text(QAccessible::Text what) const override {
        if (!isValid() || (what != QAccessible::Name && what != QAccessible::Value)) return {};
        return toQString(map_->matrix()->cellText(cell_.row, cell_.column));
    }
    void setText(QAccessible::Text, const QString&) override {}
    QRect rect() const override {
        const QRect inView = map_->cellRect(cell_).toAlignedRect();
        return {map_->viewport()->mapToGlobal(inView.topLeft()), inView.size()};
    }
    QAccessible::Role role() const override { return QAccessible::Cell; }
    QAccessible::State state() const override {
        QAccessible::State state;
        state.focusable = state.selectable = state.readOnly = true;
        state.focused = state.selected = map_->current() == cell_;
        state.offscreen = !map_->gridRect().intersects(map_->cellRect(cell_).toAlignedRect());
        return state;
    }
    void* interface_cast(QAccessible::InterfaceType type) override {
        return type == QAccessible::TableCellInterface ? static_cast<QAccessibleTableCellInterface*>(this)
                                                       : nullptr;
    }

    bool isSelected() const override { return map_->current() == cell_; }
    QList<QAccessibleInterface*> columnHeaderCells() const override { return {}; }
    QList<QAccessibleInterface*> rowHeaderCells() const override { return {}; }
    int columnIndex() const override { return static_cast<int>(cell_.column); }
    int rowIndex() const override { return static_cast<int>(cell_.row); }
    int columnExtent() const override { return 1; }
    int rowExtent() const override { return 1; }
    QAccessibleInterface* table() const override { return parent(); }

  private:
    PlacementMap* map_;
    PlacementMap::Cell cell_;
};

class MapTable final : public QAccessibleWidget, public QAccessibleTableInterface {
  public:
    explicit MapTable(PlacementMap* map) : QAccessibleWidget(map, QAccessible::Table), map_(map) {}
    ~MapTable() override { forget(); }

    void* interface_cast(QAccessible::InterfaceType type) override {
        if (type == QAccessible::TableInterface) return static_cast<QAccessibleTableInterface*>(this);
        return QAccessibleWidget::interface_cast(type);
    }
    int childCount() const override { return rowCount() * columnCount(); }
    QAccessibleInterface* child(int index) const override {
        return columnCount() > 0 ? cellAt(index / columnCount(), index % columnCount()) : nullptr;
    }
    int indexOfChild(const QAccessibleInterface* child) const override {
        auto* cell = const_cast<QAccessibleInterface*>(child)->tableCellInterface();
        return cell ? cell->rowIndex() * columnCount() + cell->columnIndex() : -1;
    }
    QAccessibleInterface* focusChild() const override {
        const PlacementMap::Cell cell = map_->current();
        return cell.valid() ? cellAt(static_cast<int>(cell.row), static_cast<int>(cell.column)) : nullptr;
    }
    QAccessibleInterface* childAt(int x, int y) const override {
        const PlacementMap::Cell cell = map_->cellAt(map_->viewport()->mapFromGlobal(QPoint(x, y)));
        return cell.valid() ? cellAt(static_cast<int>(cell.row), static_cast<int>(cell.column)) : nullptr;
    }

    QAccessibleInterface* cellAt(int row, int column) const override {
        if (row < 0 || column < 0 || row >= rowCount() || column >= columnCount()) return nullptr;
        // Few are ever asked for at a time; those of before are not needed again.
        constexpr size_t kMostCells = 256;
        const std::pair at(row, column);
        if (const auto known = cells_.find(at); known != cells_.end())
            return QAccessible::accessibleInterface(known->second);
        if (cells_.size() >= kMostCells) forget();
        auto* cell = new MapCell(map_, {static_cast<uint32_t>(row), static_cast<uint32_t>(column)});
        cells_[at] = QAccessible::registerAccessibleInterface(cell);
        return cell;
    }
    QAccessibleInterface* caption() const override { return nullptr; }
    QAccessibleInterface* summary() const override { return nullptr; }
    QString columnDescription(int column) const override {
        return toQString(map_->matrix()->columnLabel(static_cast<uint32_t>(column)));
    }
    QString rowDescription(int row) const override {
        return toQString(map_->matrix()->rowLabel(static_cast<uint32_t>(row)));
    }
    int columnCount() const override {
        const auto& matrix = map_->matrix();
        return matrix ? static_cast<int>(matrix->columnCount()) + (matrix->hasGaps() ? 1 : 0) : 0;
    }
    int rowCount() const override {
        return map_->matrix() ? static_cast<int>(map_->matrix()->rowCount()) : 0;
    }
    int selectedCellCount() const override { return map_->current().valid() ? 1 : 0; }
    int selectedColumnCount() const override { return 0; }
    int selectedRowCount() const override { return 0; }
    QList<QAccessibleInterface*> selectedCells() const override {
        QAccessibleInterface* cell = focusChild();
        return cell ? QList<QAccessibleInterface*>{cell} : QList<QAccessibleInterface*>{};
    }
    QList<int> selectedColumns() const override { return {}; }
    QList<int> selectedRows() const override { return {}; }
    bool isColumnSelected(int) const override { return false; }
    bool isRowSelected(int) const override { return false; }
    bool selectRow(int) override { return false; }
    bool selectColumn(int) override { return false; }
    bool unselectRow(int) override { return false; }
    bool unselectColumn(int) override { return false; }
    void modelChange(QAccessibleTableModelChangeEvent*) override { forget(); }

  private:
    void forget() const {
        for (const auto& [at, id] : cells_)
            QAccessible::deleteAccessibleInterface(id);
        cells_.clear();
    }

    PlacementMap* map_;
    mutable std::map<std::pair<int, int>, QAccessible::Id> cells_;
};

}  // namespace

QAccessibleInterface* placementMapAccess(const QString&, QObject* object) {
    auto* map = qobject_cast<PlacementMap*>(object);
    return map ? new MapTable(map) : nullptr;
}

}  // namespace shardscope::ui
