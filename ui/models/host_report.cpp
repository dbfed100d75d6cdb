#include "ui/models/host_report.h"

#include <QCoreApplication>
#include <QProcess>
#include <QStandardPaths>
#include <algorithm>

#include "ui/models/session.h"
#include "ui/models/texts.h"

namespace shardscope::ui {

namespace {

using Kind = HostLine::Kind;

constexpr int kAnswerMilliseconds = 20'000;  // of Slurm's controller
constexpr int kStopLook = 100;

QString said(const char* text) {
    return QCoreApplication::translate("HostReport", text);
}

// An error, and below it what helps; in short lines, because a table cuts long ones.
void sayError(const QString& what, const Error& error, std::vector<HostLine>& lines) {
    QStringList sentences = errorSentence(error).split(QStringLiteral(". "));
    if (!what.isEmpty()) sentences.prepend(what);
    for (qsizetype i = 0; i < sentences.size(); ++i) {
        QString text = sentences[i].trimmed();
        if (!text.endsWith('.')) text += '.';
        if (i > 0 && text.startsWith('(')) {
            lines.back().text += ' ' + text;
            continue;
        }
        lines.push_back({i == 0 ? Kind::bad : Kind::unknown, text});
    }
    if (const QString hint = errorHint(error); !hint.isEmpty())
        lines.push_back({Kind::unknown, said("Next step: %1").arg(hint)});
}

void sayPaths(const HostFacts& facts, const HostNeeds& needs, std::vector<HostLine>& lines) {
    if (!facts.source.ok()) {
        sayError(said("The source '%1' is not seen there").arg(needs.source), facts.source.error(), lines);
    } else {
        const HostFacts::Source& source = *facts.source;
        const auto count = [](size_t files) { return countedText(files, said("1 file"), said("%1 files")); };
        if (source.missing || source.different)
            lines.push_back(
                {Kind::bad,
                 said("The source '%1' is another one there: of %2, %3 are missing and %4 have another "
                      "size.")
                     .arg(needs.source, count(source.files), numberText(source.missing),
                          numberText(source.different))});
        else
            lines.push_back({Kind::good, said("The source '%1' is seen there, with the same %2.")
                                             .arg(needs.source, count(source.files))});
    }
    const QString parent = toQString(facts.parent);
    if (!facts.destination.ok()) {
        sayError(said("The directory '%1', which is to hold the destination, is not seen there").arg(parent),
                 facts.destination.error(), lines);
        return;
    }
    const HostFacts::Parent& room = *facts.destination;
    lines.push_back(
        room.writable
            ? HostLine{Kind::good, said("The destination's directory '%1' can be written.").arg(parent)}
            : HostLine{Kind::bad, said("The destination's directory '%1' cannot be written. Choose "
                                       "another one, or ask for the right to write there.")
                                      .arg(parent)});
    if (room.destinationExists)
        lines.push_back(
            needs.overwrite
                ? HostLine{Kind::good, said("The destination exists and will be replaced.")}
                : HostLine{Kind::bad, said("The destination '%1' exists already.").arg(needs.destination)});
    const QString free = sizeText(room.freeBytes);
    if (!needs.bytes)
        lines.push_back(
            {Kind::unknown, said("%1 are free there; the plan does not say yet what is needed.").arg(free)});
    else if (needs.bytes > room.freeBytes)
        lines.push_back(
            {Kind::bad,
             said("The result takes %1, but only %2 are free there.").arg(sizeText(needs.bytes), free)});
    else
        lines.push_back(
            {Kind::good, said("%1 are free there; the result takes %2.").arg(free, sizeText(needs.bytes))});
}

// Runs one of Slurm's programs; what it prints. Errors: notFound, cancelled, remote with what it said.
Result<QString> ask(const QString& program, const QStringList& words, const StopToken& stop) {
    if (QStandardPaths::findExecutable(program).isEmpty())
        return makeError(ErrorCode::notFound,
                         "Slurm's program '" + program.toStdString() + "' was not found on this machine")
            .withHint("install slurm-client here, or start the job on a machine that has it");
    QProcess process;
    process.start(program, words, QIODevice::ReadOnly);
    for (int waited = 0; !process.waitForFinished(kStopLook); waited += kStopLook) {
        const bool late = waited >= kAnswerMilliseconds;
        if (process.state() == QProcess::NotRunning) break;
        if (!late && !stop.stopRequested()) continue;
        process.kill();
        process.waitForFinished();
        SHARDSCOPE_TRY(stop.poll());
        return makeError(ErrorCode::remote, "Slurm's controller does not answer");
    }
    const QString said = toQString(process.readAllStandardError().trimmed().toStdString());
    if (process.exitStatus() != QProcess::NormalExit || process.exitCode() != 0)
        return makeError(ErrorCode::remote, (program + ": " + said).toStdString());
    return QString::fromUtf8(process.readAllStandardOutput()).trimmed();
}

}  // namespace

HostLine::Kind HostReport::worst() const {
    Kind worst = Kind::good;
    for (const HostLine& line : lines)
        worst = std::max(worst, line.kind);
    return worst;
}

QString HostReport::summary() const {
    const Kind kind = worst();
    const auto is = [&](const HostLine& line) { return line.kind == kind; };
    if (kind == Kind::good) return said("Ready.");
    if (kind == Kind::bad)
        return countedText(static_cast<uint64_t>(std::count_if(lines.begin(), lines.end(), is)),
                           said("1 thing is in the way."), said("%1 things are in the way."));
    return std::find_if(lines.begin(), lines.end(), is)->text;
}

QString markOf(HostLine::Kind kind) {
    switch (kind) {
        case Kind::good:
            return QStringLiteral("✓");
        case Kind::unknown:
            return QStringLiteral("–");
        case Kind::warning:
            return QStringLiteral("▲");
        case Kind::bad:
            return QStringLiteral("✕");
    }
    return {};
}

HostReport hostReport(const QString& host, const Result<HostFacts>& facts, const HostNeeds& needs) {
    HostReport report{host, {}};
    if (!facts.ok()) {
        // The row names the host already.
        Error error = facts.error();
        if (const std::string head = host.toStdString() + ": "; error.message.starts_with(head))
            error.message.erase(0, head.size());
        sayError({}, error, report.lines);
        return report;
    }
    const QString version = toQString(facts->version);
    report.lines.push_back(
        {Kind::good, facts->seconds > 0.01
                         ? said("It answered after %1, and runs shardscope %2 as this machine does.")
                               .arg(timeText(facts->seconds), version)
                         : said("It runs shardscope %1.").arg(version)});
    sayPaths(*facts, needs, report.lines);
    return report;
}

HostReport rankReport(const QString& host, const RankNeeds& ranks, const Result<HostFacts>& here,
                      const HostNeeds& needs) {
    HostReport report = hostReport(host, here, needs);
    std::vector<HostLine> lines;
    if (ranks.torch && ranks.torch->ok())
        lines.push_back(
            {Kind::good,
             said("libtorch, which hands on what is read, is in '%1'.").arg(toQString(**ranks.torch))});
    else if (ranks.torch)
        sayError({}, ranks.torch->error(), lines);
    if (ranks.gpus && ranks.gpusHere == 0)
        lines.push_back({Kind::bad, said("This machine shows no GPU (/dev/nvidia0 and so on). Choose ranks, "
                                         "which need none.")});
    else if (ranks.gpus)
        lines.push_back({Kind::good, countedText(ranks.gpusHere, said("It has 1 GPU, so 1 rank does it all."),
                                                 said("It has %1 GPUs, so there are as many ranks."))});
    if (ranks.gpus && ranks.gpusHere > 0 && (!ranks.torch || ranks.torch->ok()))
        lines.push_back(
            {Kind::unknown, said("Whether NCCL and the driver work together shows when the job begins.")});
    report.lines.insert(report.lines.begin(), lines.begin(), lines.end());
    return report;
}

HostReport slurmReport(const QString& options, const Result<HostFacts>& here, const HostNeeds& needs,
                       const StopToken& stop) {
    HostReport report{QStringLiteral("Slurm"), {}};
    QStringList words{QStringLiteral("--noheader"), QStringLiteral("--format=%R %a %D %T")};
    QString partition;
    for (const QString& option : options.split(',')) {
        if (option.startsWith(QLatin1String("partition="))) partition = option.mid(10);
    }
    if (!partition.isEmpty()) words << QStringLiteral("--partition=") + partition;
    for (const char* program : {"salloc", "srun"}) {
        if (!QStandardPaths::findExecutable(QString::fromLatin1(program)).isEmpty()) continue;
        report.lines.push_back(
            {Kind::bad, said("Slurm's program '%1' was not found on this machine. Install slurm-client "
                             "here, or start the job on a machine that has it.")
                            .arg(QString::fromLatin1(program))});
        return report;
    }
    const auto answer = ask(QStringLiteral("sinfo"), words, stop);
    if (!answer.ok()) {
        sayError({}, answer.error(), report.lines);
    } else if (answer->isEmpty()) {
        report.lines.push_back({Kind::bad, partition.isEmpty()
                                               ? said("Slurm has no partition.")
                                               : said("Slurm has no partition '%1'.").arg(partition)});
    } else {
        for (const QString& line : answer->split('\n')) {
            const QStringList part = line.split(' ', Qt::SkipEmptyParts);
            if (part.size() < 4) continue;
            const uint64_t nodes = part[2].toULongLong();
            report.lines.push_back(
                {part[1] == QLatin1String("up") ? Kind::good : Kind::warning,
                 said("Partition %1 is %2: %3 in state '%4'.")
                     .arg(part[0], part[1], countedText(nodes, said("1 node"), said("%1 nodes")), part[3])});
        }
    }
    if (here.ok()) {
        // This machine plans the work, so it needs the paths as well.
        sayPaths(*here, needs, report.lines);
        report.lines.push_back(
            {Kind::unknown, said("Whether its nodes see the same paths shows when the job begins there.")});
    } else {
        sayError({}, here.error(), report.lines);
    }
    return report;
}

}  // namespace shardscope::ui
