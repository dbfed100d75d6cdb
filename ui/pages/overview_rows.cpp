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

// Of all, as "12.5 %".
TextColumn shareColumn(const std::function<uint64_t(size_t)>& bytes, uint64_t total) {
    const double whole = std::max(1.0, static_cast<double>(total));
    return {{tr("Share"), true},
            [=](size_t row) { return ratioText(static_cast<double>(bytes(row)) / whole); },
            bytes};
}

QString severityText(Severity severity) {
    constexpr const char* texts[] = {"• note", "▲ warning", "✕ error"};
    return tr(texts[static_cast<int>(severity)]);
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

std::vector<TextColumn> dtypeColumns(const std::vector<DtypeShare>& shares) {
    uint64_t total = 0;
    for (const DtypeShare& share : shares)
        total += share.bytes;
    const auto bytes = [shares](size_t row) { return shares[row].bytes; };
    return {{{tr("Dtype")}, [shares](size_t row) { return toQString(dtypeName(shares[row].dtype)); }},
            sizeColumn(tr("Bytes"), bytes),
            shareColumn(bytes, total),
            countColumn(tr("Tensors"), [shares](size_t row) { return shares[row].tensors; })};
}

std::vector<ModuleTree::Node> modulesOf(const Facts& facts) {
    std::vector<ModuleTree::Node> modules;
    for (ModuleTree::Node n = 1; n < facts.tree.size(); ++n) {
        if (facts.tree.tensor(n) == kNone) modules.push_back(n);
    }
    return modules;
}

std::vector<TextColumn> moduleColumns(const CheckpointPtr& checkpoint,
                                      const std::shared_ptr<const Facts>& facts,
                                      std::vector<ModuleTree::Node> modules) {
    const auto of = std::make_shared<const std::vector<ModuleTree::Node>>(std::move(modules));
    const auto bytes = [facts, of](size_t row) { return facts->tree.bytes((*of)[row]); };
    // Names are in the catalog, so the checkpoint is held as well.
    return {
        {{tr("Module")},
         [facts, of, checkpoint](size_t row) { return toQString(facts->tree.fullName((*of)[row])); }},
        sizeColumn(tr("Bytes"), bytes),
        shareColumn(bytes, facts ? facts->tree.bytes(ModuleTree::kRoot) : 0),
        countColumn(tr("Tensors"), [facts, of](size_t row) { return facts->tree.tensorCount((*of)[row]); })};
}

std::vector<TextColumn> rankColumns(const std::shared_ptr<const Facts>& facts) {
    const auto number = [](size_t row) { return row; };
    const auto bytes = [facts](size_t row) { return facts->ranks[row].bytes; };
    const auto place = [facts](size_t row) {
        return facts->mesh ? toQString(rankLabel(facts->mesh, static_cast<uint32_t>(row))) : QString();
    };
    return {{{tr("Rank"), true}, [](size_t row) { return QString::number(row); }, number},
            {{tr("Place")}, place, number},
            sizeColumn(tr("Bytes"), bytes),
            {{tr("Against median"), true},
             [facts, bytes](size_t row) { return againstMedian(bytes(row), facts->medianRankBytes); },
             bytes},
            countColumn(tr("Tensors"), [facts](size_t row) { return facts->ranks[row].tensors; }),
            countColumn(tr("Chunks"), [facts](size_t row) { return facts->ranks[row].chunks; }),
            {{tr("State")},
             [facts](size_t row) { return toQString(rankStateText(facts->ranks[row])); },
             [facts](size_t row) { return static_cast<uint64_t>(facts->ranks[row].health); }}};
}

std::vector<TextColumn> noteColumns(const CheckpointPtr& checkpoint) {
    const auto note = [checkpoint](size_t row) -> const Note& { return checkpoint->catalog().notes()[row]; };
    const auto where = [note](size_t row) {
        const Note& of = note(row);
        QStringList parts;
        if (!of.file.empty())
            parts += of.offset ? tr("%1 at byte %2").arg(toQString(of.file), numberText(*of.offset))
                               : toQString(of.file);
        if (!of.tensor.empty()) parts += toQString(of.tensor);
        return parts.join(QStringLiteral(", "));
    };
    return {{{tr("Severity")},
             [note](size_t row) { return severityText(note(row).severity); },
             [note](size_t row) { return static_cast<uint64_t>(note(row).severity); }},
            {{tr("Note")}, [note](size_t row) { return messageText(note(row).message); }},
            {{tr("Where")}, where},
            {{tr("Rule")}, [note](size_t row) { return toQString(note(row).rule); }}};
}

}  // namespace shardscope::ui
