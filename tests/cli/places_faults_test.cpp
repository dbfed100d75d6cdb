// A bucket whose answers go wrong at random, and processes that are killed: a result that holds, or an error
// that says why; never a checkpoint that is not whole, and always a way to go on.
#include <QTemporaryDir>
#include <QTest>
#include <csignal>
#include <random>

#include "cli/genuine_checks.h"
#include "cli/measured_process.h"
#include "support/http_server.h"

using namespace shardscope::test;
using nlohmann::json;

namespace {

const std::string kThere = "s3://b1/run/out";
constexpr unsigned kParts = 3;

Answered saying(int status, const std::string& code) {
    return {status, {}, "<Error><Code>" + code + "</Code></Error>"};
}

// What a server does on a bad day, and what the program does not get over.
Answered faultOf(unsigned drawn, const Asked& asked) {
    switch (drawn % 8) {
        case 0:
            return saying(503, "SlowDown");
        case 1:
            return {200, {}, {}, Answered::End::reset};
        case 2:
            return {200, {}, "short", Answered::End::cut};
        case 3:
            return saying(500, "InternalError");
        case 4:
            return saying(400, "ExpiredToken");
        case 5:
            return {403,
                    {{"Date", "Fri, 02 Jan 2026 03:04:05 GMT"}},
                    "<Error><Code>RequestTimeTooSkewed</Code></Error>"};
        case 6:
            // A POST completes an upload: it is answered with an error within a 200, as S3 does. Others get a
            // 502.
            return asked.method == "POST" ? saying(200, "InternalError") : saying(502, "");
        default:
            return saying(403, "AccessDenied");
    }
}

}  // namespace

class PlacesFaultsTest : public QObject {
    Q_OBJECT

    QTemporaryDir home_;
    std::string source_;
    json digests_;
    std::unique_ptr<FakeBucket> bucket_;
    std::mutex mutex_;  // guards what follows
    std::minstd_rand random_;
    double share_ = 0;  // of the requests that fail

    unsigned draw() {
        const std::lock_guard lock(mutex_);
        return static_cast<unsigned>(random_());
    }
    void faults(double share) {
        const std::lock_guard lock(mutex_);
        share_ = share;
    }
    Answered answer(const Asked& asked) {
        const std::lock_guard lock(mutex_);
        if (std::uniform_real_distribution<double>(0, 1)(random_) >= share_) return {0};
        return faultOf(static_cast<unsigned>(random_()), asked);
    }

    // On a host of its own; killed after so many seconds, if not 0.
    Measured run(const std::vector<std::string>& words, unsigned host, double killedAfter) {
        MeasuredOptions options;
        options.temporaryDirectory = home_.filePath(QString::number(host)).toStdString();
        QDir().mkpath(QString::fromStdString(options.temporaryDirectory));
        options.timeoutSeconds = 240;
        if (killedAfter > 0)
            options.watch = [killedAfter](pid_t child, double elapsed) {
                if (elapsed < killedAfter) return true;
                ::kill(child, SIGKILL);
                return false;
            };
        return runMeasured(words, options);
    }

    // Whether a checkpoint is there; whatever opens is whole.
    bool isThere(QString& wrong) {
        const Measured digest = run({"digest", kThere, "--json"}, 99, 0);
        if (digest.exitCode != 0) return false;
        if (digest.json()["tensors"] != digests_) wrong = "another checkpoint is there";
        return true;
    }

    // Tries with faults, then without. The last try may find that an earlier one was killed after it had
    // published.
    QString again(const std::vector<std::string>& words, unsigned host, bool resumed) {
        QString wrong;
        for (unsigned attempt = 0; attempt < 4 && wrong.isEmpty(); ++attempt) {
            const bool last = attempt == 3;
            std::vector<std::string> line = words;
            if (resumed && attempt > 0) line.emplace_back("--resume");
            faults(last ? 0 : 0.06);
            const double killed = !last && draw() % 3 == 0 ? 0.02 + draw() % 400 / 1000.0 : 0;
            const Measured ran = run(line, host, killed);
            faults(0);
            if (ran.exitCode == 0) return wrong;
            if (ran.signal == 0 && ran.err.empty() && ran.json().value("message", "").empty())
                return "failed without a word: " + QString::fromStdString(ran.describe());
            const bool there = isThere(wrong);
            if (there && wrong.isEmpty()) return wrong;
            if (last) return QString::fromStdString("not continued: " + ran.describe());
        }
        return wrong;
    }

    QString read() {
        bucket_->putTree(home_.filePath("source").toStdString(), "run/source");
        faults(0.06);
        const Measured digest = run({"digest", "s3://b1/run/source", "--json"}, 0, 0);
        faults(0);
        if (digest.exitCode == 0) return digest.json()["tensors"] == digests_ ? "" : "other digests";
        return digest.json().value("message", "").empty() ? "failed without a word" : "";
    }
    QString written() {
        return again({"convert", source_, kThere, "--to", draw() % 2 ? "dcp" : "safetensors", "--json"}, 0,
                     true);
    }
    QString inParts() {
        const std::vector<std::string> words{"convert", source_, kThere, "--to", "dcp", "--json"};
        for (unsigned part = 0; part < kParts; ++part) {
            std::vector<std::string> line = words;
            line.insert(line.end(), {"--part", std::to_string(part) + "/" + std::to_string(kParts)});
            if (const QString wrong = again(line, part, false); !wrong.isEmpty()) return wrong;
        }
        std::vector<std::string> line = words;
        line.emplace_back("--finish");
        return again(line, 9, false);
    }

  private slots:
    void initTestCase() {
        qputenv("HOME", home_.path().toUtf8());
        QVERIFY(QDir().mkpath(home_.filePath("source")));
        source_ = home_.filePath("source/model.safetensors").toStdString();
        QVERIFY(writeRandomSource(source_, 3, 2048, 1024, 7));
        digests_ = run({"digest", source_, "--json"}, 0, 0).json()["tensors"];
        QVERIFY(digests_.size() == 3);
    }

    // SHARDSCOPE_FAULTS=N makes N rounds (with QTEST_FUNCTION_TIMEOUT=7200000 for 500), SHARDSCOPE_SEED=S
    // draws others.
    void faultsAtRandom() {
        const int rounds = qEnvironmentVariableIntValue("SHARDSCOPE_FAULTS");
        const int wanted = qEnvironmentVariableIntValue("SHARDSCOPE_SEED");
        random_.seed(wanted > 0 ? static_cast<unsigned>(wanted) : 20261127);
        std::map<std::string, int> met;
        for (int round = 0; round < (rounds > 0 ? rounds : 12); ++round) {
            bucket_ = std::make_unique<FakeBucket>("b1");
            bucket_->use();
            bucket_->before = [this](const Asked& asked) { return answer(asked); };
            const unsigned kind = draw() % 3;
            const QString wrong = kind == 0 ? read() : kind == 1 ? written() : inParts();
            QVERIFY2(wrong.isEmpty(),
                     qPrintable(QString("round %1, kind %2: %3").arg(round).arg(kind).arg(wrong)));
            QString other;
            QCOMPARE(isThere(other), kind != 0);
            QCOMPARE(other, QString());
            ++met[kind == 0 ? "read" : kind == 1 ? "written" : "in parts"];
            for (unsigned host = 0; host < 10; ++host)
                QDir(home_.filePath(QString::number(host))).removeRecursively();
        }
        for (const auto& [kind, count] : met)
            qInfo("%s: %d", kind.c_str(), count);
    }
};

QTEST_GUILESS_MAIN(PlacesFaultsTest)
#include "places_faults_test.moc"
