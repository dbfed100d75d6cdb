// Jobs of the real program, and one that works until it is told to stop.
#pragma once

#include <QDir>
#include <QFile>
#include <QProcess>
#include <QPushButton>

#include <unistd.h>

#include "support/gui_test.h"
#include "ui/models/job_store.h"

namespace shardscope::ui {

inline const QString kProgram = QStringLiteral(SHARDSCOPE_PROGRAM);
inline constexpr int kPatience = 120'000;  // milliseconds; processes share the machine with other tests

struct ProgramRun {
    int code = -1;
    QByteArray out, err;
};
inline ProgramRun runShardscope(const QStringList& arguments) {
    QProcess process;
    process.start(kProgram, arguments);
    if (!process.waitForFinished(60'000)) return {};
    return {process.exitCode(), process.readAllStandardOutput(), process.readAllStandardError()};
}

inline QString thisHost() {
    return QSysInfo::machineHostName();
}
inline QString thisBoot() {
    QFile file(QStringLiteral("/proc/sys/kernel/random/boot_id"));
    return file.open(QIODevice::ReadOnly) ? QString::fromLatin1(file.readAll().trimmed()) : QString();
}

inline void write(const QString& path, const QByteArray& text) {
    QFile file(path);
    QVERIFY(file.open(QIODevice::WriteOnly));
    file.write(text);
}

inline ConversionSpec simple(const QString& destination) {
    ConversionSpec spec;
    spec.source = sampleCheckpoint();
    spec.destination = destination;
    spec.format = QStringLiteral("safetensors");
    return spec;
}

inline QPushButton* buttonWith(QWidget& widget, const QString& text) {
    for (QPushButton* button : widget.findChildren<QPushButton*>()) {
        if (button->text() == text) return button;
    }
    return nullptr;
}

class JobsFixture : protected FreshDirectories {
  protected:
    // A program that continues until it is interrupted or killed, and that does the work when it is told to
    // resume.
    QString patientProgram() {
        const QString path = fresh() + "/patient";
        write(path,
              "#!/bin/sh\n"
              "for word in \"$@\"; do [ \"$word\" = --resume ] && exec '" +
                  kProgram.toLocal8Bit() +
                  "' \"$@\"; done\n"
                  "trap 'echo "
                  "\"{\\\"schema\\\":\\\"shardscope.error/"
                  "1\\\",\\\"code\\\":\\\"cancelled\\\",\\\"message\\\":\\\"cancelled\\\"}\"; exit 130' INT\n"
                  "echo "
                  "'{\"event\":\"progress\",\"phase\":\"write\",\"bytes_done\":1048576,\"bytes_total\":"
                  "4194304,\"rate\":2097152.0,\"eta_s\":1.5,\"tensor\":\"a.weight\"}' >&2\n"
                  "while :; do sleep 0.05; done\n");
        QFile::setPermissions(path, QFile::ReadOwner | QFile::WriteOwner | QFile::ExeOwner);
        return path;
    }
    static QString startAndWait(JobStore& store, const ConversionSpec& spec, JobState state) {
        const auto id = store.start(spec, QStringLiteral("sample to safetensors"));
        if (!id.ok()) {
            qWarning("%s", describe(id.error()).c_str());
            return {};
        }
        [&] { QTRY_VERIFY_WITH_TIMEOUT(store.find(*id) && store.find(*id)->is(state), kPatience); }();
        return *id;
    }
};

}  // namespace shardscope::ui
