// What is at a path that could not be opened, for the page that says so.
#pragma once

#include <QString>
#include <QStringList>
#include <vector>

#include "engine/several.h"

namespace shardscope::ui {

struct FailedPath {
    bool exists = false, directory = false;
    QString owner;
    // Of a directory, one sentence: "Looked for .metadata, ...; found 12 .pt files." Empty otherwise.
    QString found;
    QStringList files;  // names in the directory that may be opened alone
    std::vector<OneOfSeveral> choices;
};

// Looks at names, and for `choices` at the first bytes of what is below. It waits for the file system, so it
// is not for the GUI thread. Of a path on another host nothing is known.
FailedPath lookAtFailedPath(const QString& path, bool choices);

}  // namespace shardscope::ui
