#include "ui/models/report_export.h"

#include <QSaveFile>

#include "engine/report.h"

namespace shardscope::ui {

QString writeReport(const Session& session, const Suppressions& suppressions, ReportForm form,
                    const QString& path) {
    const ValidationReport& report = *session.report();
    const std::vector<Suppression> accepted = suppressions.of(session.path());
    const std::string text = form == ReportForm::json ? validationJson(report) + "\n"
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
