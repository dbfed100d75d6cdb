// What packages carry beside the programs: the manual says every verb and every option, desktop entry,
// metainfo and file types pass their validators (where those are installed), completions are what shells
// accept.
#include <QDir>
#include <QFile>
#include <QProcess>
#include <QStandardPaths>
#include <QTemporaryDir>
#include <QTest>

#include "cli/application.h"
#include "man/manual.h"

using namespace shardscope;

namespace {

const QString kManual = QStringLiteral(SHARDSCOPE_BINARY_DIR "/manual/");
const QString kCompletions = QStringLiteral(SHARDSCOPE_BINARY_DIR "/completions/");
const QString kMade = QStringLiteral(SHARDSCOPE_BINARY_DIR "/packaging/");
const QString kLinux = QStringLiteral(SHARDSCOPE_SOURCE_DIR "/packaging/linux/");
const QString kId = QStringLiteral("io.github.shardscope.shardscope");

std::string contents(const QString& path) {
    QFile file(path);
    if (!file.open(QIODevice::ReadOnly)) return {};
    return file.readAll().toStdString();
}

bool holds(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

struct Ran {
    int code;
    QByteArray output;
};

// Runs a program that may not be there.
std::optional<Ran> tryRun(const QString& program, const QStringList& arguments) {
    const QString path = QStandardPaths::findExecutable(program);
    if (path.isEmpty()) return std::nullopt;
    QProcess process;
    process.setProcessChannelMode(QProcess::MergedChannels);
    process.start(path, arguments);
    if (!process.waitForFinished(60'000)) return Ran{-1, "it did not end"};
    return Ran{process.exitCode(), process.readAll()};
}

}  // namespace

#define VALIDATE(program, ...)                                                      \
    do {                                                                            \
        const auto ran = tryRun(QStringLiteral(program), QStringList{__VA_ARGS__}); \
        if (!ran) QSKIP(program " is not installed");                               \
        QVERIFY2(ran->code == 0, ran->output.constData());                          \
    } while (false)

class PackagingCliTest : public QObject {
    Q_OBJECT

    cli::Context context_;
    std::unique_ptr<CLI::App> app_ = cli::makeApp(context_);

  private slots:
    void manualOfEveryVerb_data() {
        QTest::addColumn<QString>("verb");
        for (const CLI::App* verb : app_->get_subcommands([](const CLI::App*) { return true; }))
            QTest::newRow(verb->get_name().c_str()) << QString::fromStdString(verb->get_name());
        QVERIFY(!app_->get_subcommands([](const CLI::App*) { return true; }).empty());
    }
    void manualOfEveryVerb() {
        QFETCH(QString, verb);
        const CLI::App* app = app_->get_subcommand(verb.toStdString());
        const std::string page = contents(kManual + "shardscope-" + verb + ".1");
        for (const char* section :
             {"NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES", "EXIT STATUS", "SEE ALSO"})
            QVERIFY2(holds(page, std::string(".SH ") + section + "\n"), section);
        QVERIFY(holds(page, manual::roffText(app->get_description())));
        for (const CLI::Option* option : app->get_options()) {
            for (const std::string& name : option->get_lnames())
                QVERIFY2(holds(page, "\\fB" + manual::roffText("--" + name) + "\\fR"), name.c_str());
            QVERIFY2(holds(page, manual::roffText(option->get_description())), option->get_name().c_str());
            // CLI11's own words for types are not for readers.
            QVERIFY2(option->get_type_name().find_first_of(":[") == std::string::npos,
                     option->get_type_name().c_str());
        }
        const std::string all = contents(kManual + "shardscope.1");
        QVERIFY(holds(all, "\n\\fB" + manual::roffText(verb.toStdString()) + "\\fR\n"));
        QVERIFY(holds(all, manual::roffText("shardscope-" + verb.toStdString())));
    }

    void manualIsGoodRoff_data() {
        QTest::addColumn<QString>("page");
        for (const QString& name : QDir(kManual).entryList({"*.1"}))
            QTest::newRow(qPrintable(name)) << kManual + name;
#ifdef SHARDSCOPE_WITH_GUI
        QTest::newRow("shardscope-gui.1") << kMade + "shardscope-gui.1";
#endif
    }
    void manualIsGoodRoff() {
        QFETCH(QString, page);
        QVERIFY(QFile::exists(page));
        VALIDATE("mandoc", "-T", "lint", "-W", "warning", page);
    }

    // docs/options.md says what the program does; SHARDSCOPE_ACCEPT=1 writes it anew.
    void optionReferenceIsUpToDate() {
        const QString kept = QStringLiteral(SHARDSCOPE_SOURCE_DIR "/docs/options.md");
        const std::string made = manual::optionReference(*app_);
        if (qEnvironmentVariableIsSet("SHARDSCOPE_ACCEPT")) {
            QFile file(kept);
            QVERIFY(file.open(QIODevice::WriteOnly) && file.write(made.data(), qint64(made.size())) > 0);
        }
        QVERIFY2(contents(kept) == made, "docs/options.md is not up to date; SHARDSCOPE_ACCEPT=1 writes it");
        for (const CLI::App* verb : app_->get_subcommands([](const CLI::App*) { return true; }))
            QVERIFY(holds(made, "\n## `shardscope " + verb->get_name()));
    }

    void roffTextIsInert() {
        QCOMPARE(manual::roffText(".SH x"), std::string("\\&.SH x"));
        QCOMPARE(manual::roffText("'a'\n.b"), std::string("\\&\\(aqa\\(aq\n\\&.b"));
        QCOMPARE(manual::roffText("--a ^model\\.="), std::string("\\-\\-a \\(hamodel\\e.="));
    }

    void completionsParse_data() {
        QTest::addColumn<QString>("shell");
        QTest::addColumn<QString>("file");
        QTest::newRow("bash") << "bash" << kCompletions + "shardscope";
        QTest::newRow("zsh") << "zsh" << kCompletions + "_shardscope";
        QTest::newRow("fish") << "fish" << kCompletions + "shardscope.fish";
    }
    void completionsParse() {
        QFETCH(QString, shell);
        QFETCH(QString, file);
        const std::string text = contents(file);
        for (const CLI::App* verb : app_->get_subcommands([](const CLI::App*) { return true; }))
            QVERIFY2(holds(text, verb->get_name()), verb->get_name().c_str());
        if (QStandardPaths::findExecutable(shell).isEmpty()) QSKIP("this shell is not installed");
        const auto ran = tryRun(shell, {"-n", file});
        QVERIFY2(ran->code == 0 && ran->output.isEmpty(), ran->output.constData());
    }

    void theStaticProgramIsInstalled() {
#ifndef SHARDSCOPE_WITH_STATIC
        QSKIP("no shardscope-static is built here (cmake says why)");
#endif
        const QTemporaryDir prefix;
        VALIDATE("cmake", "--install", QStringLiteral(SHARDSCOPE_BINARY_DIR), "--prefix", prefix.path(),
                 "--component", "shardscope");
        // From where core/cluster takes it.
        const QString program = prefix.filePath("bin/shardscope");
        const QString copied = prefix.filePath("bin/../libexec/shardscope/shardscope-static");
        QVERIFY(QFile::exists(program) && QFile::exists(copied));
        const auto version = tryRun(copied, {"--version"});
        QVERIFY2(version && version->code == 0 && version->output.startsWith("shardscope "),
                 version ? version->output.constData() : "it does not run");
    }

#ifdef SHARDSCOPE_WITH_GUI
    void desktopEntry() {
        VALIDATE("desktop-file-validate", kLinux + kId + ".desktop");
    }

    void metainfo() {
        VALIDATE("appstreamcli", "validate", "--no-net", kMade + kId + ".metainfo.xml");
    }

    void fileTypes() {
        QTemporaryDir data;
        QVERIFY(QDir(data.path()).mkpath("mime/packages"));
        QVERIFY(QFile::copy(kLinux + kId + ".mime.xml", data.filePath("mime/packages/" + kId + ".xml")));
        VALIDATE("update-mime-database", data.filePath("mime"));
        const std::string globs = contents(data.filePath("mime/globs2"));
        QVERIFY(holds(globs, ":application/x-safetensors:*.safetensors\n"));
        QVERIFY(holds(globs, ":application/x-torch-distcp:*.distcp\n"));
        QVERIFY(holds(contents(data.filePath("mime/magic")), "[20:application/x-safetensors]"));
        // Every type that the desktop entry opens is a directory or one of these.
        for (const QString& line : QString::fromStdString(contents(kLinux + kId + ".desktop")).split('\n')) {
            if (!line.startsWith(QStringLiteral("MimeType="))) continue;
            for (const QString& type : line.mid(9).split(';', Qt::SkipEmptyParts))
                QVERIFY2(
                    type == QStringLiteral("inode/directory") || holds(globs, ':' + type.toStdString() + ':'),
                    qPrintable(type));
        }
    }
#endif
};

QTEST_GUILESS_MAIN(PackagingCliTest)
#include "packaging_cli_test.moc"
