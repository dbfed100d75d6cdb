#include "ui/models/report_export.h"

#include <QSaveFile>

#include "engine/report_forms.h"
#include "ui/models/texts.h"

namespace shardscope::ui {

namespace {

// One line for each example, and one for a finding that has none.
std::string validationCsv(const ValidationReport& report, const std::vector<Suppression>& accepted) {
    QStringList lines{
        QStringLiteral("rule,severity,count,message,cause,accepted,tensor,rank,file,offset,box,detail")};
    for (const Finding& finding : report.findings) {
        const Suppression* reason = suppressionOf(finding, accepted);
        const QStringList head{
            toQString(finding.rule),        toQString(severityName(finding.severity)),
            QString::number(finding.count), toQString(finding.message),
            toQString(finding.cause),       reason ? toQString(reason->reason) : QString()};
        const auto add = [&](const FindingExample& e) {
            QStringList cells = head;
            cells << toQString(e.tensor) << (e.rank == kNone ? QString() : QString::number(e.rank))
                  << toQString(e.file) << (e.offset ? QString::number(*e.offset) : QString())
                  << (e.box ? toQString(formatBox(e.box->offsets, e.box->lengths)) : QString())
                  << toQString(e.detail);
            for (QString& cell : cells)
                cell = csvField(cell);
            lines += cells.join(',');
        };
        if (finding.examples.empty()) add({});
        for (const FindingExample& example : finding.examples)
            add(example);
    }
    return (lines.join(QStringLiteral("\r\n")) + QStringLiteral("\r\n")).toStdString();
}

}  // namespace

QString writeReport(const Session& session, const Suppressions& suppressions, ReportForm form,
                    const QString& path) {
    const ValidationReport& report = *session.validation().report();
    const std::vector<Suppression> accepted = suppressions.of(session.path());
    const std::string text = form == ReportForm::json  ? validationJson(report, accepted) + "\n"
                             : form == ReportForm::csv ? validationCsv(report, accepted)
                             : form == ReportForm::html
                                 ? validationHtml(*session.checkpoint(), report, accepted)
                                 : validationJunit(session.path().toStdString(), report, accepted);
    QSaveFile file(path);
    if (file.open(QIODevice::WriteOnly) &&
        file.write(text.data(), static_cast<qint64>(text.size())) == static_cast<qint64>(text.size()) &&
        file.commit())
        return {};
    return QObject::tr("'%1' was not written: %2.").arg(path, file.errorString());
}

}  // namespace shardscope::ui
