#include "ui/models/suppressions.h"

#include <QStandardPaths>

#include "ui/models/texts.h"

namespace shardscope::ui {

namespace {

QString usualFile() {
    return QStandardPaths::writableLocation(QStandardPaths::AppConfigLocation) + "/suppressions.json";
}

}  // namespace

Suppressions::Suppressions(QString file, QObject* parent)
    : QObject(parent), store_((file.isEmpty() ? usualFile() : file).toStdString()) {}

std::vector<Suppression> Suppressions::of(const QString& checkpoint) const {
    return store_.of(checkpoint.toStdString());
}

void Suppressions::add(const QString& checkpoint, const Finding& finding, const QString& reason) {
    changedWith(store_.add(checkpoint.toStdString(), {finding.rule, finding.cause, reason.toStdString()}));
}

void Suppressions::remove(const QString& checkpoint, const Finding& finding) {
    changedWith(store_.remove(checkpoint.toStdString(), finding.rule, finding.cause));
}

void Suppressions::changedWith(const Status& written) {
    problem_ = written.ok() ? QString()
                            : tr("'%1' was not written: %2.")
                                  .arg(toQString(store_.file()), toQString(written.error().message));
    emit changed();
}

}  // namespace shardscope::ui
