#include "cli/run_shardscope.h"

#include <QProcess>

namespace shardscope::test {
namespace {

Outcome run(QProcess& process, const QStringList& arguments, int timeoutMs) {
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
