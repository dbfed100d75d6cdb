#include "ui/models/findings_model.h"

#include "ui/models/texts.h"
#include "validate/rules.h"

namespace shardscope::ui {

namespace {

QString whereText(const FindingExample& e) {
    QStringList parts;
    if (e.box) parts += toQString(formatBox(e.box->offsets, e.box->lengths));
    if (e.rank != kNone) parts += FindingsModel::tr("rank %1").arg(e.rank);
    if (!e.file.empty()) parts += toQString(e.file);
    if (e.offset) parts += FindingsModel::tr("byte %1").arg(*e.offset);
    return parts.join(", ");
}

}  // namespace

FindingsModel::FindingsModel(Session& session, Suppressions& suppressions, QObject* parent)
    : TwoLevels({{tr("Severity")}, {tr("Rule")}, {tr("What")}, {tr("Cause and place")}, {tr("Count"), true}},
                parent),
      session_(session),
      suppressions_(suppressions) {
    connect(&session, &Session::reportChanged, this, [this] {
        if (!session_.validation().running()) rebuild();
    });
    connect(&session, &Session::stateChanged, this, &FindingsModel::rebuild);
    connect(&suppressions, &Suppressions::changed, this, &FindingsModel::rebuild);
    rebuild();
}

void FindingsModel::setShowSuppressed(bool show) {
    showSuppressed_ = show;
    rebuild();
}

void FindingsModel::rebuild() {
    beginResetModel();
    findings_.clear();
    reasons_.clear();
    rows_.clear();
    errors_ = warnings_ = suppressed_ = 0;
    if (session_.checkpoint()) {
        if (session_.validation().report()) findings_ = session_.validation().report()->findings;
        const std::vector<Suppression> accepted = suppressions_.of(session_.path());
        for (uint32_t i = 0; i < findings_.size(); ++i) {
            const Suppression* accept = suppressionOf(findings_[i], accepted);
            reasons_.push_back(accept ? toQString(accept->reason) : QString());
            if (accept) ++suppressed_;
            if (!accept && findings_[i].severity == Severity::error) ++errors_;
            if (!accept && findings_[i].severity == Severity::warning) ++warnings_;
            if (!accept || showSuppressed_) rows_.push_back(i);
        }
    }
    endResetModel();
}

const Finding* FindingsModel::finding(const QModelIndex& index) const {
    if (!index.isValid()) return nullptr;
    const auto row = static_cast<size_t>(groupRow(index));
    return row < rows_.size() ? &findings_[rows_[row]] : nullptr;
}

const FindingExample* FindingsModel::example(const QModelIndex& index) const {
    if (!index.isValid() || isGroup(index)) return nullptr;
    const Finding* above = finding(index);
    return above && static_cast<size_t>(index.row()) < above->examples.size()
               ? &above->examples[static_cast<size_t>(index.row())]
               : nullptr;
}

QString FindingsModel::reason(const QModelIndex& index) const {
    if (!index.isValid()) return {};
    return reasons_[rows_[static_cast<size_t>(groupRow(index))]];
}

QVariant FindingsModel::data(const QModelIndex& index, int role) const {
    const Finding* f = finding(index);
    if (!f) return {};
    const FindingExample* e = example(index);
    switch (role) {
        case Qt::DisplayRole:
            if (e) {
                if (index.column() == what)
                    return e->tensor.empty() ? toQString(e->detail) : toQString(e->tensor);
                if (index.column() == where) {
                    const QString place = whereText(*e);
                    if (e->tensor.empty() || e->detail.empty()) return place;
                    return place.isEmpty() ? toQString(e->detail) : place + " – " + toQString(e->detail);
                }
                return {};
            }
            switch (index.column()) {
                case severity:
                    return f->severity == Severity::error     ? tr("✕ error")
                           : f->severity == Severity::warning ? tr("▲ warning")
                                                              : tr("• info");
                case rule:
                    return toQString(f->rule);
                case what:
                    return messageText(f->message);
                case where:
                    return reason(index).isNull() ? toQString(f->cause)
                                                  : tr("accepted: %1").arg(reason(index));
                case count:
                    return numberText(f->count);
            }
            return {};
        case Qt::ToolTipRole: {
            const RuleInfo* info = findRule(f->rule);
            QString text = e ? toQString(e->tensor) + '\n' + whereText(*e) : messageText(f->message);
            if (info && !e) text += '\n' + toQString(info->meaning);
            return text;
        }
        case Qt::TextAlignmentRole:
            return alignment(index.column());
        default:
            return {};
    }
}

}  // namespace shardscope::ui
