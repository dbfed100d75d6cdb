#include "ui/pages/overview_rows.h"

#include <QCoreApplication>
#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "ui/models/texts.h"

namespace shardscope::ui {

namespace {

QString tr(const char* text) {
    return QCoreApplication::translate("shardscope::ui::OverviewPage", text);
}

QVariant number(uint64_t value) {
    return QVariant::fromValue<qulonglong>(value);
}

QString severityText(Severity severity) {
    switch (severity) {
        case Severity::info:
            return tr("• note");
        case Severity::warning:
            return tr("▲ warning");
        case Severity::error:
            return tr("✕ error");
    }
    return {};
}

}  // namespace

QString contextParallelText(const std::optional<Mesh>& mesh) {
    if (!mesh) return {};
    // Megatron and torchtitan say cp, Paddle sep.
    for (const char* name : {"cp", "context", "context_parallel", "sep"}) {
        const int axis = mesh->axisIndex(name);
        if (axis < 0 || mesh->axes[static_cast<size_t>(axis)].size < 2) continue;
        return tr("%1 = %2 shards sequences, not weights: ranks along it hold replicas of the same weights, "
                  "unless "
                  "they are sharded over it as well.")
            .arg(QString::fromLatin1(name))
            .arg(mesh->axes[static_cast<size_t>(axis)].size);
    }
    return {};
}

QString againstMedian(uint64_t bytes, uint64_t median) {
    if (median == 0) return {};
    const double off = static_cast<double>(bytes) / static_cast<double>(median) - 1;
    return (off >= 0 ? QStringLiteral("+") : QStringLiteral("−")) + ratioText(std::abs(off));
}

std::vector<DtypeShare> dtypeShares(const Catalog& catalog) {
    std::array<DtypeShare, kDTypeCount> sums;
    for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
        DtypeShare& sum = sums[static_cast<size_t>(catalog.dtype(t))];
        sum.dtype = catalog.dtype(t);
        ++sum.tensors;
        if (catalog.aliasOf(t) == kNone) sum.bytes += catalog.bytes(t);
    }
    std::vector<DtypeShare> shares;
    for (const DtypeShare& sum : sums) {
        if (sum.tensors > 0) shares.push_back(sum);
    }
    std::stable_sort(shares.begin(), shares.end(),
                     [](const DtypeShare& a, const DtypeShare& b) { return a.bytes > b.bytes; });
    return shares;
}

TextTableModel::Content dtypeRows(const std::vector<DtypeShare>& shares) {
    uint64_t total = 0;
    for (const DtypeShare& share : shares)
        total += share.bytes;
    TextTableModel::Content content;
    content.rows = static_cast<int>(shares.size());
    content.right = {false, true, true, true};
    content.text = [shares, total](int row, int column) -> QString {
        const DtypeShare& share = shares[static_cast<size_t>(row)];
        switch (column) {
            case 0:
                return toQString(dtypeName(share.dtype));
            case 1:
                return sizeText(share.bytes);
            case 2:
                return ratioText(total > 0 ? static_cast<double>(share.bytes) / static_cast<double>(total)
                                           : 0);
            default:
                return numberText(share.tensors);
        }
    };
    content.key = [shares](int row, int column) -> QVariant {
        const DtypeShare& share = shares[static_cast<size_t>(row)];
        return column == 0 ? QVariant() : number(column == 3 ? share.tensors : share.bytes);
    };
    return content;
}

TextTableModel::Content moduleRows(const CheckpointPtr& checkpoint,
                                   const std::shared_ptr<const Facts>& facts) {
    auto modules = std::make_shared<std::vector<ModuleTree::Node>>();
    for (ModuleTree::Node n = 1; n < facts->tree.size(); ++n) {
        if (facts->tree.tensor(n) == kNone) modules->push_back(n);
    }
    TextTableModel::Content content;
    content.rows = static_cast<int>(modules->size());
    content.right = {false, true, true, true};
    // Names are in the catalog, so the checkpoint is held as well.
    content.text = [modules, facts, checkpoint](int row, int column) -> QString {
        const ModuleTree& tree = facts->tree;
        const ModuleTree::Node n = (*modules)[static_cast<size_t>(row)];
        const double whole = std::max(1.0, static_cast<double>(tree.bytes(ModuleTree::kRoot)));
        switch (column) {
            case 0:
                return toQString(tree.fullName(n));
            case 1:
                return sizeText(tree.bytes(n));
            case 2:
                return ratioText(static_cast<double>(tree.bytes(n)) / whole);
            default:
                return numberText(tree.tensorCount(n));
        }
    };
    content.key = [modules, facts](int row, int column) -> QVariant {
        const ModuleTree::Node n = (*modules)[static_cast<size_t>(row)];
        return column == 0 ? QVariant()
                           : number(column == 3 ? facts->tree.tensorCount(n) : facts->tree.bytes(n));
    };
    return content;
}

TextTableModel::Content rankRows(const std::shared_ptr<const Facts>& facts) {
    TextTableModel::Content content;
    content.rows = static_cast<int>(facts->ranks.size());
    content.right = {true, false, true, true, true, true, false};
    content.text = [facts](int row, int column) -> QString {
        const RankFacts& r = facts->ranks[static_cast<size_t>(row)];
        switch (column) {
            case 0:
                return QString::number(row);
            case 1:
                return facts->mesh ? toQString(rankLabel(facts->mesh, static_cast<uint32_t>(row)))
                                   : QString();
            case 2:
                return sizeText(r.bytes);
            case 3:
                return againstMedian(r.bytes, facts->medianRankBytes);
            case 4:
                return numberText(r.tensors);
            case 5:
                return numberText(r.chunks);
            default:
                return toQString(rankStateText(r));
        }
    };
    content.key = [facts](int row, int column) -> QVariant {
        const RankFacts& r = facts->ranks[static_cast<size_t>(row)];
        switch (column) {
            case 2:
            case 3:
                return number(r.bytes);
            case 4:
                return r.tensors;
            case 5:
                return r.chunks;
            case 6:
                return static_cast<int>(r.health);
            default:
                return row;
        }
    };
    return content;
}

TextTableModel::Content noteRows(const CheckpointPtr& checkpoint) {
    TextTableModel::Content content;
    content.rows = static_cast<int>(checkpoint->catalog().notes().size());
    content.text = [checkpoint](int row, int column) -> QString {
        const Note& note = checkpoint->catalog().notes()[static_cast<size_t>(row)];
        switch (column) {
            case 0:
                return severityText(note.severity);
            case 1:
                return toQString(note.message);
            case 2: {
                QStringList where;
                if (!note.file.empty())
                    where += note.offset
                                 ? tr("%1 at byte %2").arg(toQString(note.file), numberText(*note.offset))
                                 : toQString(note.file);
                if (!note.tensor.empty()) where += toQString(note.tensor);
                return where.join(QStringLiteral(", "));
            }
            default:
                return toQString(note.rule);
        }
    };
    content.key = [checkpoint](int row, int column) -> QVariant {
        if (column != 0) return {};
        return static_cast<int>(checkpoint->catalog().notes()[static_cast<size_t>(row)].severity);
    };
    return content;
}

}  // namespace shardscope::ui
