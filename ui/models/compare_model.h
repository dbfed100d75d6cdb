// What differs between two checkpoints, one row for each difference. Made off the GUI thread; filtering and
// sorting a million rows happen there too.
#pragma once

#include <array>
#include <memory>
#include <unordered_map>
#include <vector>

#include "survey/placement_change.h"
#include "ui/bridge/engine_service.h"
#include "ui/bridge/tasks.h"
#include "ui/models/columns.h"

namespace shardscope::ui {

enum class DiffClass : uint8_t { onlyA, onlyB, shape, dtype, placement, values };
constexpr int kDiffClassCount = 6;
QString diffClassName(DiffClass cls);  // "only in A", "shape", ...

// A finished comparison with the tensors that its rows speak of. Immutable.
struct Comparison {
    struct Row {
        DiffClass cls = DiffClass::onlyA;
        uint32_t index = 0;             // into the report's list of that class
        TensorId a = kNone, b = kNone;  // kNone where the side has none
    };
    CheckpointPtr a, b;
    DiffOptions options;
    DiffReport report;
    std::vector<Row> rows;
    std::array<size_t, kDiffClassCount> counts{};
    std::shared_ptr<const PlacementChange> change;  // null where rules rename tensors
    size_t matched = 0;       // tensors with the same name, shape and dtype on both sides
    uint64_t valueBytes = 0;  // that comparing their values reads, both sides together

    // Errors: cancelled, and usage for rename rules that do not compile.
    static Result<std::shared_ptr<const Comparison>> make(CheckpointPtr a, CheckpointPtr b, DiffReport report,
                                                          DiffOptions options, const StopToken& stop);
    // What the rows' tensors of A are those of: A itself, or what a recipe makes of it.
    const Catalog& catalogA() const { return report.mapped ? *report.mapped : a->catalog(); }
    std::string_view name(const Row& row) const;
    const ValueDiff* values(const Row& row) const;  // null for other classes
    // "Equal but for placement: 12 tensors are elsewhere. Values were not compared."
    QString summary() const;
};

class CompareModel : public Columns<QAbstractTableModel> {
    Q_OBJECT
  public:
    enum Column {
        difference,
        name,
        sideA,
        sideB,
        different,
        maxAbs,
        maxRelative,
        maxUlp,
        cosine,
        l2,
        relativeL2,
        columnCountValue
    };

    explicit CompareModel(Tasks& tasks, QObject* parent = nullptr);
    ~CompareModel() override { ticket_.drop(); }

    void setComparison(std::shared_ptr<const Comparison> comparison);  // null = nothing compared
    const std::shared_ptr<const Comparison>& comparison() const { return comparison_; }
    // Classes that are shown; all to begin with.
    void setShown(DiffClass cls, bool shown);
    // Whether rows that differ in the number of their layer alone are one, but for those with values. Not, to
    // begin with.
    void setFolded(bool folded);
    bool shown(DiffClass cls) const { return shown_[static_cast<size_t>(cls)]; }
    // Words that a name must hold, whatever their case.
    void setFilter(const QString& words);
    bool busy() const { return ticket_.running(); }

    const Comparison::Row& row(int row) const { return comparison_->rows[rows_[static_cast<size_t>(row)]]; }
    QString text(const Comparison::Row& row, int column) const;

    int rowCount(const QModelIndex& parent = {}) const override;
    QVariant data(const QModelIndex& index, int role = Qt::DisplayRole) const override;
    void sort(int column, Qt::SortOrder order) override;

  signals:
    void arranged();  // rows are new

  private:
    struct Order {
        std::array<bool, kDiffClassCount> shown{};
        std::vector<std::string> words;
        int column = -1;
        Qt::SortOrder order = Qt::AscendingOrder;
        bool folded = false;
    };
    struct Arranged {
        std::vector<uint32_t> rows;
        std::unordered_map<uint32_t, std::vector<uint32_t>> layers;  // of rows that stand for several
    };
    static Arranged arrange(const Comparison& comparison, const Order& order, const StopToken& stop);
    static void fold(const Comparison& comparison, Arranged& arranged, const StopToken& stop);
    static bool less(const Comparison& comparison, int column, uint32_t x, uint32_t y);
    void startArranging();
    void take(Arranged now);
    QString nameOf(int row) const;  // "model.layers.0–31.w", where it stands for several

    Tasks& tasks_;
    Ticket ticket_;
    std::shared_ptr<const Comparison> comparison_;
    std::vector<uint32_t> rows_;
    std::unordered_map<uint32_t, std::vector<uint32_t>> layers_;
    bool folded_ = false;
    std::array<bool, kDiffClassCount> shown_{true, true, true, true, true, true};
    QString filter_;
    int sortColumn_ = -1;
    Qt::SortOrder sortOrder_ = Qt::AscendingOrder;
};

}  // namespace shardscope::ui
