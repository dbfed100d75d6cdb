// What tests of a family of genuine checkpoints ask the built program, and how they copy cases to damage
// them.
#pragma once

#include <QDir>
#include <QDirIterator>
#include <QFileInfo>
#include <string>

#include "cli/run_shardscope.h"
#include "support/genuine.h"

namespace shardscope::test {

inline GenuineCase genuineCase(const std::string& family, const QString& name) {
    for (GenuineCase& c : genuineCases(family)) {
        if (c.name == name.toStdString()) return std::move(c);
    }
    qFatal("no case %s", qPrintable(name));
}

// sha256 by name; null where the program refuses.
inline nlohmann::json digestsOf(const QString& path, const QStringList& more = {}) {
    const Outcome digest =
        runShardscope(QStringList{"digest", path, "--algorithm", "sha256", "--json"} + more);
    return digest.exitCode == 0 ? digest.json()["tensors"] : nlohmann::json();
}

inline Outcome validate(const QString& path, const QString& level = "values") {
    return runShardscope({"validate", path, "--level", level, "--json"});
}

// The finding of the rule that speaks of the text, if there is one.
inline nlohmann::json findingOf(const nlohmann::json& report, const std::string& rule,
                                const std::string& text = {}) {
    for (const nlohmann::json& finding : report.value("findings", nlohmann::json::array())) {
        if (finding["rule"] == rule && finding.dump().find(text) != std::string::npos) return finding;
    }
    return {};
}

inline std::string boxOf(const nlohmann::json& chunk) {
    return chunk["offsets"].dump() + chunk["lengths"].dump() + "@" + chunk["rank"].dump();
}

// All files below a directory, hidden ones too; the copies can be written.
inline void copyTree(const QString& from, const QString& to) {
    if (!QDir().mkpath(to)) qFatal("cannot make %s", qPrintable(to));
    QDirIterator files(from, QDir::Files | QDir::Hidden, QDirIterator::Subdirectories);
    while (files.hasNext()) {
        const QString file = files.next(), copy = to + '/' + QDir(from).relativeFilePath(file);
        if (!QDir().mkpath(QFileInfo(copy).path()) || !QFile::copy(file, copy))
            qFatal("cannot copy %s", qPrintable(file));
        QFile::setPermissions(copy, QFile::ReadOwner | QFile::WriteOwner);
    }
}

}  // namespace shardscope::test
