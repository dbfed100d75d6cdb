#include "ui/models/compare_model.h"

#include <QCoreApplication>
#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_map>

#include "survey/facts.h"
#include "survey/layer_name.h"
#include "ui/models/texts.h"

namespace shardscope::ui {

namespace {

constexpr size_t kSortedAtOnce = 20'000;  // rows; more are sorted off the GUI thread

QString tr(const char* text) {
    return QCoreApplication::translate("shardscope::ui::CompareModel", text);
}

QString described(const Catalog& catalog, TensorId t) {
    return t == kNone
               ? QString()
               : toQString(dtypeName(catalog.dtype(t))) + ' ' + toQString(formatDims(catalog.shape(t)));
}

// What a side is, as its column says it.
QString sideText(const Comparison& comparison, const Comparison::Row& row, bool a) {
    if (row.cls == DiffClass::placement) {
        const DiffEntry& entry = comparison.report.placement[row.index];
        return toQString(a ? entry.a : entry.b);
    }
    return described(a ? comparison.catalogA() : comparison.b->catalog(), a ? row.a : row.b);
}

char lower(char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
}

bool holds(std::string_view text, const std::string& word) {
    return std::search(text.begin(), text.end(), word.begin(), word.end(),
                       [](char a, char b) { return lower(a) == b; }) != text.end();
}

QString measure(double value) {
    return QString::number(value, 'g', 4);
}

}  // namespace

QString diffClassName(DiffClass cls) {
    switch (cls) {
        case DiffClass::onlyA:
            return tr("only in A");
        case DiffClass::onlyB:
            return tr("only in B");
        case DiffClass::shape:
            return tr("shape");
        case DiffClass::dtype:
            return tr("dtype");
        case DiffClass::placement:
            return tr("placement");
        case DiffClass::values:
            return tr("values");
    }
    return {};
}

// ------------------------------------------------------------------ Comparison

Result<std::shared_ptr<const Comparison>> Comparison::make(CheckpointPtr a, CheckpointPtr b,
                                                           DiffReport report, DiffOptions options,
                                                           const StopToken& stop) {
    auto made = std::make_shared<Comparison>();
    made->a = std::move(a);
    made->b = std::move(b);
    made->report = std::move(report);
    made->options = std::move(options);
    const Catalog& ca = made->catalogA();
    const Catalog& cb = made->b->catalog();
    // The report names tensors of A as the rules rename them; a recipe has renamed its own already.
    const bool renames = !made->options.rename.empty() && !made->report.mapped;
    std::unordered_map<std::string, TensorId> renamed;
    if (renames) {
        SHARDSCOPE_ASSIGN(const Renamer rename, Renamer::make(made->options.rename));
        renamed.reserve(ca.tensorCount());
        for (TensorId t = 0; t < ca.tensorCount(); ++t) {
            if (t % 4096 == 0) SHARDSCOPE_TRY(stop.poll());
            renamed.emplace(rename(ca.name(t)), t);
        }
    }
    const auto inA = [&](const std::string& name) {
        if (!renames) return ca.find(name);
        const auto it = renamed.find(name);
        return it == renamed.end() ? kNone : it->second;
    };
    if (!renames) {
        SHARDSCOPE_ASSIGN(made->change, PlacementChange::of(ca, cb, made->report, stop));
    }
    std::vector<bool> unmatched(ca.tensorCount(), false);
    const auto add = [&](DiffClass cls, const auto& list, const auto& nameOf) -> Status {
        made->counts[static_cast<size_t>(cls)] = list.size();
        for (uint32_t i = 0; i < list.size(); ++i) {
            if (i % 4096 == 0) SHARDSCOPE_TRY(stop.poll());
            Row row;
            row.cls = cls;
            row.index = i;
            if (cls != DiffClass::onlyB) row.a = inA(nameOf(list[i]));
            if (cls != DiffClass::onlyA) row.b = cb.find(nameOf(list[i]));
            if (row.a != kNone && cls < DiffClass::placement) unmatched[row.a] = true;
            made->rows.push_back(row);
        }
        return {};
    };
    const auto itself = [](const std::string& name) -> const std::string& { return name; };
    const auto named = [](const auto& entry) -> const std::string& { return entry.name; };
    SHARDSCOPE_TRY(add(DiffClass::onlyA, made->report.onlyA, itself));
    SHARDSCOPE_TRY(add(DiffClass::onlyB, made->report.onlyB, itself));
    SHARDSCOPE_TRY(add(DiffClass::shape, made->report.shape, named));
    SHARDSCOPE_TRY(add(DiffClass::dtype, made->report.dtype, named));
    SHARDSCOPE_TRY(add(DiffClass::placement, made->report.placement, named));
    SHARDSCOPE_TRY(add(DiffClass::values, made->report.values, named));
    for (const PlanLeftOut& entry : made->report.leftOutA) {
        if (const TensorId t = ca.find(entry.name); t != kNone && !made->report.mapped) unmatched[t] = true;
    }
    for (TensorId t = 0; t < ca.tensorCount(); ++t) {
        if (unmatched[t]) continue;
        ++made->matched;
        made->valueBytes += 2 * ca.bytes(t);
    }
    return std::shared_ptr<const Comparison>(made);
}

std::string_view Comparison::name(const Row& row) const {
    switch (row.cls) {
        case DiffClass::onlyA:
            return report.onlyA[row.index];
        case DiffClass::onlyB:
            return report.onlyB[row.index];
        case DiffClass::shape:
            return report.shape[row.index].name;
        case DiffClass::dtype:
            return report.dtype[row.index].name;
        case DiffClass::placement:
            return report.placement[row.index].name;
        case DiffClass::values:
            return report.values[row.index].name;
    }
    return {};
}

const ValueDiff* Comparison::values(const Row& row) const {
    return row.cls == DiffClass::values ? &report.values[row.index] : nullptr;
}

QString Comparison::summary() const {
    const auto count = [&](DiffClass cls) { return counts[static_cast<size_t>(cls)]; };
    const size_t moved = count(DiffClass::placement);
    const QString tensors = countedText(matched, tr("1 tensor"), tr("%1 tensors"));
    QString values = report.valuesCompared() ? QString() : tr(" Values were not compared.");
    if (report.summary && report.summary->different > 0)
        values = tr(" The L2 norm of the difference is %1, %2 of that of A.")
                     .arg(measure(report.summary->l2), measure(report.summary->relativeL2));
    if (const std::string left = report.leftOutText(); !left.empty())
        values += tr(" Left out: %1.").arg(toQString(left));
    if (report.equal() && moved == 0) {
        return (report.valuesCompared()
                    ? tr("Equal: %1 with the same names, shapes, dtypes, placement and values.")
                    : tr("Equal as far as metadata tells: %1 with the same names, shapes, dtypes "
                         "and placement."))
                   .arg(tensors) +
               values;
    }
    const QString elsewhere = countedText(moved, tr("1 tensor is sharded or placed differently"),
                                          tr("%1 tensors are sharded or placed differently"));
    if (report.equal())
        return (report.valuesCompared() ? tr("Equal but for placement, values included: %1.")
                                        : tr("Equal but for placement: %1."))
                   .arg(elsewhere) +
               values;
    QStringList parts;
    const auto say = [&](DiffClass cls, const QString& one, const QString& many) {
        if (count(cls) > 0) parts += countedText(count(cls), one, many);
    };
    say(DiffClass::onlyA, tr("1 tensor is only in A"), tr("%1 tensors are only in A"));
    say(DiffClass::onlyB, tr("1 tensor is only in B"), tr("%1 tensors are only in B"));
    say(DiffClass::shape, tr("1 tensor has another shape"), tr("%1 tensors have another shape"));
    say(DiffClass::dtype, tr("1 tensor has another dtype"), tr("%1 tensors have another dtype"));
    say(DiffClass::values, tr("1 tensor has other values"), tr("%1 tensors have other values"));
    if (moved > 0) parts += elsewhere;
    return tr("They differ: %1.").arg(parts.join(QStringLiteral(", "))) + values;
}

// ------------------------------------------------------------------ CompareModel

CompareModel::CompareModel(Tasks& tasks, QObject* parent)
    : Columns({{tr("Difference")},
               {tr("Tensor")},
               {tr("A")},
               {tr("B")},
               {tr("Different elements"), true},
               {tr("Max abs"), true},
               {tr("Max relative"), true},
               {tr("Max ULP"), true},
               {tr("Cosine"), true},
               {tr("L2"), true},
               {tr("Relative L2"), true}},
              parent),
      tasks_(tasks) {}

void CompareModel::setComparison(std::shared_ptr<const Comparison> comparison) {
    ticket_.drop();
    beginResetModel();
    comparison_ = std::move(comparison);
    rows_.clear();
    layers_.clear();
    endResetModel();
    startArranging();
}

void CompareModel::setShown(DiffClass cls, bool shown) {
    if (shown_[static_cast<size_t>(cls)] == shown) return;
    shown_[static_cast<size_t>(cls)] = shown;
    startArranging();
}

void CompareModel::setFolded(bool folded) {
    if (folded_ == folded) return;
    folded_ = folded;
    startArranging();
}

void CompareModel::setFilter(const QString& words) {
    if (words == filter_) return;
    filter_ = words;
    startArranging();
}

void CompareModel::sort(int column, Qt::SortOrder order) {
    if (column == sortColumn_ && order == sortOrder_) return;
    sortColumn_ = column;
    sortOrder_ = order;
    startArranging();
}

void CompareModel::startArranging() {
    ticket_.drop();
    Order order;
    order.shown = shown_;
    order.column = sortColumn_;
    order.order = sortOrder_;
    order.folded = folded_;
    for (const QString& word : filter_.toLower().split(' ', Qt::SkipEmptyParts))
        order.words.push_back(word.toStdString());
    if (!comparison_ || comparison_->rows.size() <= kSortedAtOnce)
        return take(comparison_ ? arrange(*comparison_, order, {}) : Arranged());
    ticket_ = tasks_.run<Arranged>(
        Work::query, tr("Sorting differences"),
        [comparison = comparison_, order](const TaskContext& context) -> Result<Arranged> {
            Arranged rows = arrange(*comparison, order, context.stop);
            SHARDSCOPE_TRY(context.stop.poll());
            return rows;
        },
        [this](Result<Arranged> answer) {
            if (answer.ok()) take(std::move(answer).value());
        });
}

void CompareModel::take(Arranged now) {
    beginResetModel();
    rows_ = std::move(now.rows);
    layers_ = std::move(now.layers);
    endResetModel();
    emit arranged();
}

void CompareModel::fold(const Comparison& comparison, Arranged& arranged, const StopToken& stop) {
    std::unordered_map<std::string, uint32_t> first;
    std::vector<uint32_t> kept;
    for (size_t i = 0; i < arranged.rows.size(); ++i) {
        if (i % 4096 == 0 && stop.stopRequested()) return;
        const uint32_t index = arranged.rows[i];
        const Comparison::Row& row = comparison.rows[index];
        const LayerName layer = splitLayer(comparison.name(row));
        if (row.cls == DiffClass::values || layer.number < 0 || layer.number > UINT32_MAX) {
            kept.push_back(index);
            continue;
        }
        std::string key = std::to_string(static_cast<int>(row.cls)) + '\n' + std::string(layer.before) +
                          '\n' + std::string(layer.after);
        for (const bool a : {true, false})
            key += '\n' + sideText(comparison, row, a).toStdString();
        const auto [known, fresh] = first.emplace(std::move(key), index);
        if (fresh) kept.push_back(index);
        arranged.layers[known->second].push_back(static_cast<uint32_t>(layer.number));
    }
    std::erase_if(arranged.layers, [](const auto& entry) { return entry.second.size() < 2; });
    for (auto& [row, layers] : arranged.layers)
        std::ranges::sort(layers);
    arranged.rows = std::move(kept);
}

QString CompareModel::nameOf(int index) const {
    const std::string_view first = comparison_->name(row(index));
    const auto several = layers_.find(rows_[static_cast<size_t>(index)]);
    if (several == layers_.end()) return toQString(first);
    const LayerName layer = splitLayer(first);
    return toQString(std::string(layer.before) + spansText(several->second) + std::string(layer.after));
}

CompareModel::Arranged CompareModel::arrange(const Comparison& comparison, const Order& order,
                                             const StopToken& stop) {
    Arranged arranged;
    std::vector<uint32_t>& rows = arranged.rows;
    rows.reserve(comparison.rows.size());
    for (uint32_t i = 0; i < comparison.rows.size(); ++i) {
        if (i % 4096 == 0 && stop.stopRequested()) return {};
        const Comparison::Row& row = comparison.rows[i];
        if (!order.shown[static_cast<size_t>(row.cls)]) continue;
        const std::string_view text = comparison.name(row);
        if (std::all_of(order.words.begin(), order.words.end(),
                        [&](const std::string& w) { return holds(text, w); }))
            rows.push_back(i);
    }
    if (order.folded) fold(comparison, arranged, stop);
    if (order.column < 0) return arranged;
    if (order.column == sideA || order.column == sideB) {
        // Texts that are made, not stored: once for each row.
        std::vector<QString> keys(comparison.rows.size());
        for (const uint32_t i : rows) {
            keys[i] = sideText(comparison, comparison.rows[i], order.column == sideA);
        }
        std::stable_sort(rows.begin(), rows.end(), [&](uint32_t x, uint32_t y) {
            return order.order == Qt::AscendingOrder ? keys[x] < keys[y] : keys[y] < keys[x];
        });
        return arranged;
    }
    std::stable_sort(rows.begin(), rows.end(), [&](uint32_t x, uint32_t y) {
        return order.order == Qt::AscendingOrder ? less(comparison, order.column, x, y)
                                                 : less(comparison, order.column, y, x);
    });
    return arranged;
}

bool CompareModel::less(const Comparison& comparison, int column, uint32_t x, uint32_t y) {
    const Comparison::Row &a = comparison.rows[x], &b = comparison.rows[y];
    if (column == difference) return a.cls < b.cls;
    if (column == name) return comparison.name(a) < comparison.name(b);
    const ValueDiff *va = comparison.values(a), *vb = comparison.values(b);
    if (!va || !vb) return !va && vb;
    switch (column) {
        case different:
            return va->different < vb->different;
        case maxAbs:
            return va->maxAbs < vb->maxAbs;
        case maxRelative:
            return va->maxRelative < vb->maxRelative;
        case cosine:
            // What has none comes first.
            return std::isnan(va->cosine()) ? !std::isnan(vb->cosine()) : va->cosine() < vb->cosine();
        case l2:
            return va->l2() < vb->l2();
        case relativeL2:
            return va->relativeL2() < vb->relativeL2();
        default:
            return va->maxUlp < vb->maxUlp;
    }
}

QString CompareModel::text(const Comparison::Row& row, int column) const {
    switch (column) {
        case difference:
            return diffClassName(row.cls);
        case name:
            return toQString(comparison_->name(row));
        case sideA:
        case sideB:
            return sideText(*comparison_, row, column == sideA);
        default:
            break;
    }
    const ValueDiff* values = comparison_->values(row);
    if (!values) return {};
    switch (column) {
        case different:
            return numberText(values->different);
        case maxAbs:
            return measure(values->maxAbs);
        case maxRelative:
            return measure(values->maxRelative);
        case maxUlp:
            return numberText(values->maxUlp);
        case cosine:
            return std::isnan(values->cosine()) ? QStringLiteral("–")
                                                : QString::number(values->cosine(), 'g', 9);
        case l2:
            return measure(values->l2());
        case relativeL2:
            return measure(values->relativeL2());
        default:
            return {};
    }
}

int CompareModel::rowCount(const QModelIndex& parent) const {
    return parent.isValid() ? 0 : static_cast<int>(rows_.size());
}

QVariant CompareModel::data(const QModelIndex& index, int role) const {
    if (!index.isValid() || !comparison_) return {};
    switch (role) {
        case Qt::DisplayRole:
        case Qt::ToolTipRole:
            return index.column() == name ? nameOf(index.row()) : text(row(index.row()), index.column());
        case Qt::TextAlignmentRole:
            return alignment(index.column());
        default:
            return {};
    }
}

}  // namespace shardscope::ui
