// Writes what the findings panel shows: JSON, one HTML file, JUnit, CSV.
#pragma once

#include <QString>

#include "ui/models/session.h"
#include "ui/models/suppressions.h"

namespace shardscope::ui {

enum class ReportForm { json, html, junit, csv };

// An empty string means it worked; else the reason as a sentence. The session must have a report.
QString writeReport(const Session& session, const Suppressions& suppressions, ReportForm form,
                    const QString& path);

}  // namespace shardscope::ui
