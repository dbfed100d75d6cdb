#include "cli/run_shardscope.h"

#include <QProcess>
#include <QTemporaryDir>

#include "cli/schema_check.h"

namespace shardscope::test {
namespace {

Outcome run(QProcess& process, const QStringList& arguments, int timeoutMs) {
    // What a program remembers stays out of the user's home.
    static const QTemporaryDir state;
    QProcessEnvironment environment = QProcessEnvironment::systemEnvironment();
    for (const char* home : {"XDG_STATE_HOME", "XDG_CONFIG_HOME"}) {
        if (!environment.contains(home)) environment.insert(home, state.path());
    }
    process.setProcessEnvironment(environment);
    process.start(SHARDSCOPE_PROGRAM, arguments);
    Outcome outcome;
    if (!process.waitForStarted()) return outcome;
    process.closeWriteChannel();
    if (!process.waitForFinished(timeoutMs)) {
        process.kill();
        process.waitForFinished();
        outcome.err = "timed out";
        return outcome;
    }
    outcome.out = process.readAllStandardOutput().toStdString();
    outcome.err = process.readAllStandardError().toStdString();
    if (process.exitStatus() == QProcess::NormalExit) outcome.exitCode = process.exitCode();
    return outcome;
}

}  // namespace

nlohmann::json Outcome::json() const {
    auto document = nlohmann::json::parse(out, nullptr, false);
    if (const std::string wrong = schemaViolation(document); !wrong.empty())
        qFatal("not as docs/schemas says: %s", wrong.c_str());
    return document;
}

Outcome runShardscope(const QStringList& arguments, int timeoutMs) {
    QProcess process;
    return run(process, arguments, timeoutMs);
}

Outcome runShardscopeInto(const QString& file, const QStringList& arguments) {
    QProcess process;
    process.setStandardOutputFile(file);
    return run(process, arguments, 120'000);
}

}  // namespace shardscope::test
