// Verbs over checkpoints in a bucket: the answers are those for the same files on a disk, in few requests;
// what fails says how, and no secret is ever said or kept.
#include <QCoreApplication>
#include <QDir>
#include <QDirIterator>
#include <QProcess>
#include <QScopeGuard>
#include <QTemporaryDir>
#include <QTest>
#include <csignal>
#include <mutex>
#include <set>

#include <sys/stat.h>

#include "cli/genuine_checks.h"
#include "cli/measured_process.h"
#include "support/http_server.h"

using namespace shardscope::test;
using nlohmann::json;

namespace {

const std::string kSecret = "SKhidden/secret+1", kSession = "hidden-session", kSignature = "hidden-signature";

QString genuine(const QString& path) {
    return QStringLiteral(SHARDSCOPE_TEST_DATA "/genuine/") + path;
}
const QString kDcp = genuine("dcp/t2.15.0-damage-base/ckpt"),
              kShards = genuine("safetensors/hf-sharded/ckpt"), kThere = "s3://b1/run/step-1";

QByteArray contentOf(const QString& path) {
    QFile file(path);
    return file.open(QIODevice::ReadOnly) ? file.readAll() : QByteArray();
}

// What does not depend on where the checkpoint is and when its files were written.
json withoutPlace(json document) {
    for (const char* field : {"path", "saved", "seconds_since_previous"})
        document.erase(field);
    return document;
}

}  // namespace

class PlacesCliTest : public QObject {
    Q_OBJECT

    std::unique_ptr<QTemporaryDir> home_;
    std::unique_ptr<FakeBucket> bucket_;
    std::string said_;

    Outcome run(const QStringList& arguments) {
        bucket_->server().forget();
        Outcome outcome = runShardscope(arguments);
        said_ += outcome.out + outcome.err;
        return outcome;
    }
    Outcome fine(const QStringList& arguments) {
        Outcome outcome = run(arguments);
        if (outcome.exitCode != 0) qWarning("%s: %s", qPrintable(arguments.join(' ')), outcome.err.c_str());
        return outcome;
    }
    QString here(const QString& name) const { return home_->filePath(name); }

    // "2 listings, 3 reads" of the last run.
    QString requests() const {
        size_t listings = 0, reads = 0, others = 0;
        for (const Asked& asked : bucket_->server().asked()) {
            const bool listing = asked.argument("list-type") == "2";
            listings += listing;
            reads += !listing && asked.method == "GET";
            others += !listing && asked.method != "GET";
        }
        return QStringLiteral("%1 listings, %2 reads, %3 others").arg(listings).arg(reads).arg(others);
    }

    int reads(const std::string& key) const {
        int count = 0;
        for (const Asked& asked : bucket_->server().asked())
            count += asked.path == "/b1/" + key;
        return count;
    }

    // Steps 1, 2 and 10 of a run; the last one lacks a file.
    void putRun() {
        for (const char* step : {"run/step-1", "run/step-2", "run/step-10"})
            bucket_->putTree(kDcp.toStdString(), step);
        const std::lock_guard lock(bucket_->mutex);
        QVERIFY(bucket_->objects.erase("run/step-10/__1_0.distcp") == 1);
    }

    // The events of `--progress json`.
    static std::vector<json> progressEvents(const Outcome& outcome) {
        std::vector<json> events;
        for (const QString& line : QString::fromStdString(outcome.err).split('\n')) {
            json event = json::parse(line.toStdString(), nullptr, false);
            if (event.is_object() && event.value("event", "") == "progress")
                events.push_back(std::move(event));
        }
        return events;
    }

    json doctorsPlace(const QString& path) {
        const json said = fine({"doctor", path, "--json"}).json();
        for (const json& place : said["places"])
            if (place["place"] == path.toStdString()) return place;
        return {};
    }

  private slots:
    void init() {
        home_ = std::make_unique<QTemporaryDir>();
        qputenv("HOME", home_->path().toUtf8());
        qputenv("XDG_STATE_HOME", here("state").toUtf8());
        qputenv("TMPDIR", home_->path().toUtf8());
        for (const char* name : {"AWS_PROFILE", "AWS_REGION", "AWS_CONFIG_FILE", "HTTP_PROXY", "http_proxy"})
            qunsetenv(name);
        qputenv("AWS_SESSION_TOKEN", QByteArray::fromStdString(kSession));
        bucket_ = std::make_unique<FakeBucket>("b1");
        bucket_->use("AKTEST", kSecret);
        said_.clear();
    }
    // Neither in what was said nor in what was written.
    void cleanup() {
        QDirIterator files(home_->path(), QDir::Files | QDir::Hidden, QDirIterator::Subdirectories);
        while (files.hasNext())
            said_ += contentOf(files.next()).toStdString();
        for (const std::string& hidden : {kSecret, kSession, kSignature})
            QVERIFY2(said_.find(hidden) == std::string::npos, "a secret was told");
        bucket_.reset();
        qunsetenv("TMPDIR");
    }

    void answersAreThoseOfADisk_data() {
        QTest::addColumn<QStringList>("words");
        QTest::newRow("info") << QStringList{"info", kThere};
        QTest::newRow("ls") << QStringList{"ls", kThere, "--chunks"};
        QTest::newRow("show") << QStringList{"show", kThere, "model.w", "--values"};
        QTest::newRow("validate") << QStringList{"validate", kThere, "--level", "values"};
        QTest::newRow("ready") << QStringList{"ready", kThere};
        QTest::newRow("digest") << QStringList{"digest", kThere};
    }
    void answersAreThoseOfADisk() {
        QFETCH(QStringList, words);
        copyTree(kDcp, here("run/step-1"));
        bucket_->putTree(kDcp.toStdString(), "run/step-1");
        const Outcome there = run(words + QStringList{"--json"});
        words.replace(1, here("run/step-1"));
        const Outcome disk = runShardscope(words + QStringList{"--json"});
        QCOMPARE(there.exitCode, disk.exitCode);
        QVERIFY(there.json().is_object());
        if (there.json().contains("path"))
            QCOMPARE(there.json().value("path", ""), std::string("s3://b1/run/step-1"));
        COMPARE_JSON(withoutPlace(there.json()), withoutPlace(disk.json()));
    }

    void fewRequests() {
        bucket_->putTree(kDcp.toStdString(), "run/step-1");
        QCOMPARE(fine({"info", "s3://b1/run/step-1"}).exitCode, 0);
        QCOMPARE(requests(), QString("1 listings, 1 reads, 0 others"));
        bucket_->putTree(kShards.toStdString(), "model");
        QCOMPARE(fine({"info", "s3://b1/model"}).exitCode, 0);
        const int shards = QDir(kShards).entryList({"*.safetensors"}).size();
        QVERIFY(shards > 2);
        const int most = shards + 1;  // and the index
        QVERIFY2(bucket_->server().asked().size() <= 1u + most, qPrintable(requests()));
        QCOMPARE(reads("model/model-00002-of-00003.safetensors"), 1);
        QCOMPARE(reads("model/model.safetensors.index.json"), 1);
    }

    // What stores each file several times, so that many can read it at once, is one checkpoint.
    void copiesOfEachFile() {
        bucket_->putTree(kDcp.toStdString(), "copies");
        {
            const std::lock_guard lock(bucket_->mutex);
            for (const std::string rank : {"0", "1", "2", "3"}) {
                auto file = bucket_->objects.extract("copies/__" + rank + "_0.distcp");
                QVERIFY(!file.empty());
                for (const std::string copy : {"0", "1", "2"})
                    bucket_->objects["copies/copy-" + copy + "/__" + rank + "_0.distcp"] = file.mapped();
            }
        }
        COMPARE_JSON(digestsOf(QString("s3://b1/copies")), digestsOf(kDcp));
        COMPARE_JSON(fine({"validate", "s3://b1/copies", "--level", "values", "--json"}).json()["findings"],
                     fine({"validate", kDcp, "--level", "values", "--json"}).json()["findings"]);
    }

    void stepsOfARun() {
        putRun();
        const Outcome latest = fine({"latest", "s3://b1/run", "--good"});
        QCOMPARE(latest.out, std::string("s3://b1/run/step-2\n"));
        QVERIFY2(latest.err.find("step-10") != std::string::npos, latest.err.c_str());
        QCOMPARE(fine({"latest", "s3://b1/run", "--good", "--json"}).json().value("path", ""),
                 std::string("s3://b1/run/step-2"));
        const json listed = fine({"info", "s3://b1/run", "--json"}).json();
        QCOMPARE(listed.value("schema", ""), std::string("shardscope.run/1"));
        QCOMPARE(listed["steps"].size(), size_t{3});
        QCOMPARE(listed["steps"][0].value("path", ""), std::string("s3://b1/run/step-10"));
        const Outcome torn = run({"validate", "s3://b1/run/step-10", "--level", "files", "--json"});
        QCOMPARE(torn.exitCode, 1);
        QVERIFY(findingOf(torn.json(), "file.missing", "__1_0.distcp").is_object());
        QCOMPARE(run({"ready", "s3://b1/run/step-10"}).exitCode, 1);
    }

    // The newest good step of a long run costs what it takes to look at one step.
    void latestOfManySteps() {
        for (int step = 1; step <= 100; ++step)
            bucket_->putTree(kDcp.toStdString(), "run/step-" + std::to_string(step));
        const json latest = fine({"latest", "s3://b1/run", "--good", "--json"}).json();
        QCOMPARE(latest["path"].get<std::string>(), std::string("s3://b1/run/step-100"));
        QVERIFY2(bucket_->server().asked().size() <= 12, qPrintable(requests()));
    }

    // Each look at a run in which nothing is new is one listing.
    void savesAreWatched() {
        putRun();
        bucket_->server().forget();
        QProcess watch;
        watch.start(SHARDSCOPE_PROGRAM,
                    {"watch", "s3://b1/run", "--settle", "0", "--interval", "1", "--as", "json"});
        QVERIFY(watch.waitForStarted());
        QByteArray said;
        const auto judged = [&](const char* step) {
            said += watch.readAllStandardOutput();
            return said.contains(QByteArray("\"name\":\"") + step + '"');
        };
        QTRY_VERIFY_WITH_TIMEOUT(judged("step-1") && judged("step-2") && judged("step-10"), 60'000);
        const size_t asked = bucket_->server().asked().size();
        QTRY_VERIFY_WITH_TIMEOUT(bucket_->server().asked().size() >= asked + 3, 60'000);
        const std::vector<Asked> all = bucket_->server().asked();
        for (size_t i = asked; i < all.size(); ++i)
            QVERIFY2(all[i].argument("list-type") == "2", all[i].path.c_str());
        bucket_->putTree(kDcp.toStdString(), "run/step-20");
        QTRY_VERIFY_WITH_TIMEOUT(judged("step-20"), 60'000);
        ::kill(static_cast<pid_t>(watch.processId()), SIGINT);
        QVERIFY(watch.waitForFinished(60'000));
        QCOMPARE(watch.exitCode(), 1);  // step-10 is torn
    }

    void comparedWithADisk() {
        putRun();
        QVERIFY(fine({"diff", "s3://b1/run/step-1", kDcp, "--values", "--json"}).json()["equal"] == true);
        QVERIFY(fine({"diff", kDcp, "s3://b1/run/step-2", "--values", "--json"}).json()["equal"] == true);
        QVERIFY(run({"diff", kDcp, "s3://b1/run/step-10", "--values"}).exitCode != 0);
    }

    // gs:// with keys, as Amazon's clients use them, and with a token and Google's own headers.
    void googleStorage_data() {
        QTest::addColumn<bool>("token");
        QTest::newRow("token") << true;
        QTest::newRow("keys") << false;
    }
    void googleStorage() {
        QFETCH(bool, token);
        const auto leave = qScopeGuard([] {
            for (const char* name : {"STORAGE_EMULATOR_HOST", "GOOGLE_OAUTH_ACCESS_TOKEN", "GS_ACCESS_KEY_ID",
                                     "GS_SECRET_ACCESS_KEY"})
                qunsetenv(name);
        });
        bucket_->useAsGoogle(token ? kSession : std::string(), kSecret);
        bucket_->putTree(kDcp.toStdString(), "run/step-1");
        const QTemporaryDir source;  // of several parts
        QVERIFY(writeRandomSource(source.filePath("m.safetensors").toStdString(), 3, 3000, 1000, 7));
        const QString step = "gs://b1/run/step-1", large = source.path();
        COMPARE_JSON(digestsOf(step), digestsOf(kDcp));
        COMPARE_JSON(fine({"validate", step, "--level", "values", "--json"}).json()["findings"],
                     fine({"validate", kDcp, "--level", "values", "--json"}).json()["findings"]);
        for (const QString& to : {QString("gs://b1/dcp"), QString("gs://b1/m.safetensors")}) {
            const QString format = to.endsWith("dcp") ? "dcp" : "safetensors";
            QCOMPARE(fine({"convert", large, to, "--to", format}).exitCode, 0);
            COMPARE_JSON(digestsOf(to), digestsOf(large));
            QVERIFY(run({"convert", large, to, "--to", format}).exitCode != 0);  // it is there
        }
        QVERIFY(bucket_->uploads.empty());
        QCOMPARE(fine({"convert", step, "gs://b1/parts", "--to", "safetensors", "--part", "0/2"}).exitCode,
                 0);
        QCOMPARE(fine({"convert", step, "gs://b1/parts", "--to", "safetensors", "--part", "1/2", "--finish",
                       "auto"})
                     .exitCode,
                 0);
        COMPARE_JSON(digestsOf(QString("gs://b1/parts")), digestsOf(kDcp));
    }

    void convertedFromAndTo() {
        bucket_->putTree(kDcp.toStdString(), "run/step-1");
        const json digests = digestsOf(kDcp);
        QCOMPARE(fine({"convert", "s3://b1/run/step-1", here("model"), "--to", "safetensors"}).exitCode, 0);
        COMPARE_JSON(digestsOf(here("model")), digests);
        const Outcome there = fine({"convert", here("model"), "s3://b1/out/dcp", "--to", "dcp", "--report",
                                    here("report.json"), "--json"});
        QCOMPARE(there.exitCode, 0);
        QVERIFY2(there.out.find("s3://b1/out/dcp") != std::string::npos, there.out.c_str());
        COMPARE_JSON(digestsOf(QString("s3://b1/out/dcp")), digests);
        QCOMPARE(fine({"convert", "s3://b1/out/dcp", "s3://b1/out/model", "--to", "safetensors"}).exitCode,
                 0);
        COMPARE_JSON(digestsOf(QString("s3://b1/out/model")), digests);
        // What is there stays.
        const Outcome again = run({"convert", kDcp, "s3://b1/out/dcp", "--to", "dcp"});
        QCOMPARE(again.exitCode, 4);
        QVERIFY2(again.err.find("s3://b1/out/dcp") != std::string::npos, again.err.c_str());
        const Outcome over = run({"convert", kDcp, "s3://b1/out/dcp", "--to", "dcp", "--overwrite"});
        QVERIFY(over.exitCode == 2 || over.exitCode == 5);
        COMPARE_JSON(digestsOf(QString("s3://b1/out/dcp")), digests);
    }

    // From bucket to bucket: within the limit, and without a copy on this machine.
    void littleMemoryAndDisk() {
        constexpr uint64_t kMiB = uint64_t{1} << 20;
        constexpr int kTensors = kSanitized ? 2 : 16;
        {
            const QTemporaryDir source;
            const std::string file = source.filePath("m.safetensors").toStdString();
            QVERIFY(writeRandomSource(file, kTensors, 4096, 1024, 7));  // of 16 MiB
            bucket_->putTree(source.path().toStdString(), "large");
        }
        const QTemporaryDir unsent;
        uint64_t most = 0;
        MeasuredOptions options;
        options.temporaryDirectory = unsent.path().toStdString();
        options.watch = [&](pid_t, double) {
            uint64_t bytes = 0;
            QDirIterator files(unsent.path(), QDir::Files, QDirIterator::Subdirectories);
            while (files.hasNext()) {
                struct stat found {};
                if (stat(files.next().toUtf8(), &found) == 0)
                    bytes += static_cast<uint64_t>(found.st_blocks) * 512;
            }
            most = std::max(most, bytes);
            return true;
        };
        const Measured run = runMeasured(
            {"convert", "s3://b1/large", "s3://b1/out", "--to", "dcp", "--memory", "128MiB"}, options);
        QVERIFY2(run.exitCode == 0, run.describe().c_str());
        if (!kSanitized) {
            QVERIFY2(run.peakBytes <= (128 + 64) * kMiB, qPrintable(QString::number(run.peakBytes / kMiB)));
            QVERIFY2(most <= 160 * kMiB, qPrintable(QString::number(most / kMiB)));
        }
        COMPARE_JSON(digestsOf(QString("s3://b1/out")), digestsOf(QString("s3://b1/large")));
    }

    void extractedAndIndexed() {
        bucket_->putTree(kDcp.toStdString(), "run/step-1");
        const QString tensor = "model.w";
        QCOMPARE(fine({"extract", "s3://b1/run/step-1", tensor, here("there.npy")}).exitCode, 0);
        QCOMPARE(runShardscope({"extract", kDcp, tensor, here("here.npy")}).exitCode, 0);
        QVERIFY(!contentOf(here("here.npy")).isEmpty());
        QCOMPARE(contentOf(here("there.npy")), contentOf(here("here.npy")));
        QCOMPARE(fine({"index", "s3://b1/run/step-1", "-o", here("i.ssidx")}).exitCode, 0);
        const json indexed = fine({"info", here("i.ssidx"), "--json"}).json();
        QVERIFY2(indexed["data_elsewhere"].dump().find("s3://b1/run/step-1") != std::string::npos,
                 indexed.dump().c_str());
        COMPARE_JSON(indexed["totals"], runShardscope({"info", kDcp, "--json"}).json()["totals"]);
    }

    // Indexes and reports are objects of their own: new, never in the checkpoint, never over something else.
    void indexesAndReportsInBuckets() {
        bucket_->putTree(kDcp.toStdString(), "run/step-1");
        const QString index = "s3://b1/out/i.ssidx", report = "s3://b1/out/r.html";
        QCOMPARE(fine({"index", kThere, "-o", index}).exitCode, 0);
        QCOMPARE(fine({"report", kThere, "-o", report}).exitCode, 0);
        COMPARE_JSON(fine({"info", index, "--json"}).json()["totals"],
                     runShardscope({"info", kDcp, "--json"}).json()["totals"]);
        QCOMPARE(fine({"convert", kThere, "s3://b1/out/model", "--to", "safetensors", "--report",
                       "s3://b1/out/r.json"})
                     .exitCode,
                 0);
        {
            const std::lock_guard lock(bucket_->mutex);
            QVERIFY(bucket_->objects["out/r.html"].bytes.find("<html") != std::string::npos);
            QVERIFY(json::parse(bucket_->objects["out/r.json"].bytes).is_object());
        }
        for (const QString& place : {index, kThere + "/i.ssidx", QString("hf://org/m/i.ssidx")}) {
            QVERIFY(run({"index", kThere, "-o", place}).exitCode != 0);
            QVERIFY(run({"report", kThere, "-o", place, "--overwrite"}).exitCode != 0);
            QCOMPARE(bucket_->server().count("PUT"), size_t{0});
        }
        QVERIFY(run({"extract", kThere, "model.w", "s3://b1/out/w.npy"}).exitCode != 0);
        bucket_->before = [&](const Asked& asked) -> Answered {  // of a store that keeps other bytes
            if (asked.method != "PUT") return {0};
            bucket_->put("out/x.ssidx", "other");
            const std::lock_guard lock(bucket_->mutex);
            bucket_->objects["out/x.ssidx"].mark = asked.header("x-amz-meta-shardscope");
            return {200};
        };
        QVERIFY(run({"index", kThere, "-o", "s3://b1/out/x.ssidx"}).exitCode != 0);
        const std::lock_guard lock(bucket_->mutex);
        QVERIFY(!bucket_->objects.contains("out/x.ssidx"));
    }

    // What follows '?' in a web address is sent, and never shown.
    void signedAddresses() {
        const std::string bytes =
            contentOf(genuine("safetensors/shapes/ckpt/model.safetensors")).toStdString();
        HttpServer server([&](const Asked& asked) -> Answered {
            if (asked.path != "/d/m.safetensors" || asked.argument("sig") != kSignature) return {404};
            return rangeOf(bytes, asked);
        });
        const QString plain = QString::fromStdString(server.url() + "/d/m.safetensors"),
                      address = plain + "?sig=" + QString::fromStdString(kSignature);
        for (const char* how : {"--json", "--color=never"}) {
            for (const QStringList& words : {QStringList{"info", address},
                                             {"ls", address},
                                             {"validate", address, "--level", "values"},
                                             {"ready", address},
                                             {"latest", address},
                                             {"show", address, "none"},
                                             {"digest", address},
                                             {"diff", address, address},
                                             {"plan", address, "--to", "dcp"},
                                             {"report", address},
                                             {"convert", address, here("out"), "--to", "dcp"},
                                             {"index", address, "-o", here("i.ssidx")},
                                             {"info", plain + "x?" + QString::fromStdString(kSignature)},
                                             {"info", "https://?" + QString::fromStdString(kSignature)}})
                run(words + QStringList{how});
        }
        QCOMPARE(fine({"info", address, "--json"}).json().value("path", ""), plain.toStdString());
        COMPARE_JSON(digestsOf(here("out")), digestsOf(genuine("safetensors/shapes/ckpt/model.safetensors")));
    }

    // The words of a process are for all of its machine to see. Those of processes that a verb starts name no
    // key and no signature: workers, what runs through ssh, and the user's own program for credentials.
    void notInTheProcessList() {
        bucket_->putTree(kDcp.toStdString(), "run/step-1");
        const std::string bytes =
            contentOf(genuine("safetensors/shapes/ckpt/model.safetensors")).toStdString();
        const QByteArray ours = "HOME=" + home_->path().toUtf8();
        std::mutex mutex;
        std::set<QString> told, others;  // command lines
        QByteArray given;                // words of the verb that runs
        const auto give = [&](const QStringList& words) {
            {
                const std::lock_guard lock(mutex);
                given = words.join(QChar(0)).toUtf8() + '\0';
            }
            return fine(words).exitCode;
        };
        const auto look = [&] {
            const std::lock_guard lock(mutex);
            for (const QString& pid : QDir("/proc").entryList(QDir::Dirs)) {
                const QString process = "/proc/" + pid + "/";
                if (!contentOf(process + "environ").split('\0').contains(ours)) continue;
                const QByteArray words = contentOf(process + "cmdline");
                // What was typed, also while that process starts another one: then the address is in it.
                const bool typed = words.mid(words.indexOf('\0') + 1) == given;
                const QString shown = QString::fromUtf8(words).replace(QChar(0), ' ');
                if (!typed) others.insert(shown);
                if (words.contains(kSecret.c_str()) || words.contains(kSession.c_str()) ||
                    (!typed && words.contains(kSignature.c_str())))
                    told.insert(shown);
            }
        };
        bucket_->before = [&](const Asked&) -> Answered {
            look();
            return {0};
        };
        HttpServer web([&](const Asked& asked) -> Answered {
            look();
            if (asked.path != "/m.safetensors" || asked.argument("sig") != kSignature) return {404};
            return rangeOf(bytes, asked);
        });
        const QTemporaryDir tools;  // what is in them is the user's
        const auto script = [&](const QString& name, const QByteArray& text) {
            QFile file(tools.filePath(name));
            return file.open(QIODevice::WriteOnly) && file.write("#!/bin/sh\n" + text) > 0 &&
                   file.setPermissions(QFile::ReadOwner | QFile::ExeOwner);
        };
        const auto startedAnother = [&](const char* word) {
            const std::lock_guard lock(mutex);
            const bool found = std::ranges::any_of(
                others, [&](const QString& words) { return words.contains(QLatin1String(word)); });
            if (!found) qWarning("%s", qPrintable(QStringList(others.begin(), others.end()).join('\n')));
            others.clear();
            return found;
        };

        QCOMPARE(give({"convert", kThere, here("by workers"), "--to", "safetensors", "--on", "local:2"}), 0);
        QVERIFY(startedAnother("shardscope"));
        QCOMPARE(give({"convert", QString::fromStdString(web.url() + "/m.safetensors?sig=" + kSignature),
                       here("signed"), "--to", "dcp", "--on", "local:2"}),
                 0);
        QVERIFY(startedAnother("shardscope"));

        const QByteArray path = qgetenv("PATH");
        const auto leave = qScopeGuard([&] {
            qputenv("PATH", path);
            qunsetenv("AWS_CONFIG_FILE");
        });
        QVERIFY(script("ssh", "for command; do :; done\nexec sh -c \"$command\"\n"));
        qputenv("PATH", tools.path().toUtf8() + ":" + path);
        QCOMPARE(give({"convert", "ssh://node7" + kDcp, "s3://b1/run/copy", "--to", "safetensors",
                       "--remote-program", SHARDSCOPE_PROGRAM}),
                 0);
        QVERIFY(startedAnother("shardscope"));

        const QByteArray said = tools.filePath("said").toUtf8();
        QVERIFY(
            script("keys", "cat /proc/$$/cmdline /proc/$PPID/cmdline > '" + said +
                               "'\necho '{\"Version\":1,\"AccessKeyId\":\"AKTEST\",\"SecretAccessKey\":\"" +
                               QByteArray::fromStdString(kSecret) + "\"}'\n"));
        QFile config(tools.filePath("config"));
        QVERIFY(config.open(QIODevice::WriteOnly));
        config.write("[default]\ncredential_process = " + tools.filePath("keys").toUtf8() + "\n");
        config.close();
        qputenv("AWS_CONFIG_FILE", config.fileName().toUtf8());
        qunsetenv("AWS_ACCESS_KEY_ID");
        QCOMPARE(fine({"info", kThere, "--json"}).exitCode, 0);
        QVERIFY(contentOf(said).contains("shardscope"));
        QVERIFY(!contentOf(said).contains(kSecret.c_str()));

        QVERIFY2(told.empty(), qPrintable(QStringList(told.begin(), told.end()).join('\n')));
    }

    void whatFailsSaysHow() {
        bucket_->putTree(kDcp.toStdString(), "run/step-1");
        const auto fails = [&](const QString& path, int exitCode, const char* words) {
            const Outcome outcome = run({"info", path, "--json"});
            if (outcome.exitCode == exitCode && outcome.json().value("schema", "") == "shardscope.error/1" &&
                outcome.out.find(words) != std::string::npos)
                return true;
            qWarning("%d %s%s", outcome.exitCode, outcome.out.c_str(), outcome.err.c_str());
            return false;
        };
        QVERIFY(fails("s3://b2/run", 3, "no such bucket"));
        QVERIFY(fails("s3://b1/run/step-7", 3, "s3://b1/run/step-7"));
        QVERIFY(fails("s3://", 2, "needs a name"));
        bucket_->use("WRONG", kSecret);
        QVERIFY(fails("s3://b1/run/step-1", 4, "the credentials are those of the environment"));
        qunsetenv("AWS_ACCESS_KEY_ID");
        QVERIFY(fails("s3://b1/run/step-1", 4, "no credentials were found; set AWS_ACCESS_KEY_ID"));
        qputenv("AWS_ENDPOINT_URL", "nonsense");
        QVERIFY(fails("s3://b1/run/step-1", 2, "is no endpoint of a store"));
    }

    void progressSaysTransfersAndRetries() {
        bucket_->putTree(kDcp.toStdString(), "run/step-1");
        std::atomic<int> busy{1};
        bucket_->before = [&](const Asked& asked) -> Answered {
            if (asked.header("range").empty() || busy-- <= 0) return {0};
            return {503, {}, "<Error><Code>SlowDown</Code></Error>"};
        };
        auto events = progressEvents(
            fine({"convert", kThere, here("model"), "--to", "safetensors", "--progress", "json"}));
        QVERIFY(!events.empty());
        const json& last = events.back();
        const size_t transfers = last.value("transfers", size_t{0});
        QVERIFY(transfers > 2 && transfers <= bucket_->server().asked().size());
        QCOMPARE(last.value("retries", 0), 1);
        QCOMPARE(last.value("throttled", 0), 1);
        events = progressEvents(
            fine({"convert", kDcp, here("local"), "--to", "safetensors", "--progress", "json"}));
        QVERIFY(!events.empty());
        QVERIFY(!events.back().contains("transfers"));
    }

    void doctorSaysWhatIsReached() {
        bucket_->putTree(kDcp.toStdString(), "run/step-1");
        qputenv("NO_GCE_CHECK", "true");
        qputenv("HF_ENDPOINT", QByteArray::fromStdString(bucket_->server().url()));
        qputenv("HF_TOKEN", QByteArray::fromStdString(kSession));
        qputenv("STORAGE_EMULATOR_HOST", "127.0.0.1:1");
        qputenv("https_proxy", QByteArray::fromStdString("http://me:" + kSession + "@127.0.0.1:1"));
        const auto leave = qScopeGuard([] {
            for (const char* name :
                 {"NO_GCE_CHECK", "HF_ENDPOINT", "HF_TOKEN", "STORAGE_EMULATOR_HOST", "https_proxy"})
                qunsetenv(name);
        });
        const std::string url = bucket_->server().url();
        const json s3 = doctorsPlace("s3://");
        QCOMPARE(s3.value("endpoint", ""), url);
        QCOMPARE(s3.value("region", ""), std::string("us-east-1"));
        QCOMPARE(s3.value("credentials", ""), std::string("the environment"));
        QVERIFY(s3.value("reached", false));
        const json google = doctorsPlace("gs://");
        QCOMPARE(google.value("credentials", ""), std::string("none"));
        QVERIFY(!google.value("reached", true));
        QVERIFY(!google.value("said", "").empty());
        QCOMPARE(doctorsPlace("hf://").value("credentials", ""), std::string("HF_TOKEN"));
        for (const Asked& asked : bucket_->server().asked())
            QVERIFY(asked.header("authorization").empty());  // hosts learn nobody's name
        const json http = fine({"doctor", "--json"}).json()["http"];
        QVERIFY(http.value("built_in", false));
        QCOMPARE(http.value("proxy", ""), std::string("http://127.0.0.1:1"));

        const json there = doctorsPlace("s3://b1/run");
        QVERIFY(there.value("reached", false));
        QCOMPARE(there.value("said", ""), std::string("1 name"));
        QCOMPARE(requests(), QString("1 listings, 0 reads, 3 others"));  // and each host
        QCOMPARE(doctorsPlace("s3://b1/no").value("said", ""), std::string("nothing of this name is there"));
        QVERIFY(doctorsPlace("s3://b2/run").value("said", "").find("no such bucket") != std::string::npos);
        bucket_->use("WRONG", kSecret);
        const json refused = doctorsPlace("s3://b1/run");
        QVERIFY(!refused.value("reached", true));
        QVERIFY(refused.value("said", "").find("access is refused") != std::string::npos);
        const Outcome table = fine({"doctor", "s3://b1/run",
                                    "http://u:" + QString::fromStdString(kSession) + "@127.0.0.1:1/x?" +
                                        QString::fromStdString(kSignature)});
        QCOMPARE(table.exitCode, 0);
        QVERIFY2(table.out.find("not reached: ") != std::string::npos, table.out.c_str());
        QVERIFY2(table.out.find("http://127.0.0.1:1/x") != std::string::npos, table.out.c_str());
        qputenv("AWS_PROFILE", "absent");
        qunsetenv("AWS_ACCESS_KEY_ID");
        QVERIFY(doctorsPlace("s3://").value("credentials", "").find("no such profile") != std::string::npos);
    }

    // What is left of jobs that never ended: listed first, removed on demand, claims last; never a file of a
    // checkpoint.
    void leftovers() {
        bucket_->putTree(kDcp.toStdString(), "run/step-1");
        for (const char* key :
             {"run/.step-2.shardscope-partial/claim", "run/.step-2.shardscope-partial/data/a/0-1",
              "run/step-2/.a.shardscope-partial", ".run.shardscope-partial/claim",
              "other/.step-2.shardscope-partial/claim"})
            bucket_->put(key, "x");
        const auto upload = [](const std::string& key, const std::string& id, const char* begun) {
            return "<Upload><Key>" + key + "</Key><UploadId>" + id + "</UploadId><Initiated>" + begun +
                   "-01-02T03:04:05.000Z</Initiated></Upload>";
        };
        bool refuses = false;
        bucket_->before = [&](const Asked& asked) -> Answered {
            if (asked.method == "DELETE" && refuses) return {403};
            if (asked.method != "GET" || asked.query.find("uploads=") == std::string::npos) return {0};
            const bool second = asked.argument("key-marker") == "run/step-2/b & c";
            return {200,
                    {},
                    "<ListMultipartUploadsResult>" +
                        (second ? upload("run/step-2/d", "u 2", "2026") + upload("running/e", "u 3", "2026")
                                : upload("run/step-2/b &amp; c", "u 1", "2999") +
                                      "<IsTruncated>true</IsTruncated><NextKeyMarker>run/step-2/b &amp; c"
                                      "</NextKeyMarker><NextUploadIdMarker>u 1</NextUploadIdMarker>") +
                        "</ListMultipartUploadsResult>"};
        };
        const auto removed = [&] {
            QStringList all;
            for (const Asked& asked : bucket_->server().asked()) {
                if (asked.method == "DELETE")
                    all << QString::fromStdString(percentDecoded(asked.path) + " " +
                                                  asked.argument("uploadId"));
            }
            return all;
        };
        const Outcome list = fine({"cleanup", "s3://b1/run/"});
        QVERIFY(removed().empty());
        QVERIFY2(list.out.find("s3://b1/run/step-2/b & c (upload)") != std::string::npos, list.out.c_str());
        QVERIFY2(list.out.find("--yes removes 4 leftovers") != std::string::npos, list.out.c_str());
        QVERIFY2(list.out.find("kept: too new") != std::string::npos, list.out.c_str());
        QVERIFY(list.out.find("running") == std::string::npos && list.out.find("other") == std::string::npos);

        const json some = fine({"cleanup", "s3://b1/run", "--yes", "--json"}).json();
        QCOMPARE(
            removed(),
            QStringList({"/b1/run/step-2/d u 2", "/b1/run/.step-2.shardscope-partial/data/a/0-1 ",
                         "/b1/run/.step-2.shardscope-partial/claim ", "/b1/.run.shardscope-partial/claim "}));
        QCOMPARE(some["leftovers"].size(), size_t(5));

        refuses = true;
        const Outcome refused = run({"cleanup", "s3://b1/run", "--older-than", "0", "--yes"});
        QCOMPARE(refused.exitCode, 4);
        QCOMPARE(removed().size(), qsizetype(1));
        refuses = false;
        fine({"cleanup", "s3://b1/run", "--older-than", "0", "--yes"});
        QCOMPARE(removed(), QStringList({"/b1/run/step-2/b & c u 1", "/b1/run/step-2/d u 2"}));
        const std::lock_guard lock(bucket_->mutex);
        QVERIFY(bucket_->objects.contains("run/step-1/.metadata"));
        QVERIFY(bucket_->objects.contains("run/step-2/.a.shardscope-partial"));
        QVERIFY(bucket_->objects.contains("other/.step-2.shardscope-partial/claim"));
    }

    void onlyBucketsAreWritten() {
        QCOMPARE(run({"cleanup", "hf://org/model"}).exitCode, 2);
        QCOMPARE(run({"cleanup", here("x")}).exitCode, 2);
        // Before anything is sent.
        const Outcome sealed =
            run({"convert", kDcp, "s3://b1/x", "--to", "dcp", "--part", "0/2", "--finish", "seal"});
        QCOMPARE(sealed.exitCode, 5);
        QVERIFY2(sealed.err.find("--finish auto has the last part verify") != std::string::npos,
                 sealed.err.c_str());
        QCOMPARE(bucket_->server().count("PUT"), size_t(0));
        bucket_->server().forget();
        for (const auto& [place, words] :
             {std::pair("hf://org/model", "hf upload"), std::pair("hf://org/model/sub", "hf upload"),
              std::pair("https://host/model", "written to a web server"),
              std::pair("s3://b1", "a bucket itself cannot be the destination")}) {
            const Outcome outcome = run({"convert", kDcp, place, "--to", "safetensors"});
            QCOMPARE(outcome.exitCode, 5);
            QVERIFY2(outcome.err.find(words) != std::string::npos, outcome.err.c_str());
        }
        QVERIFY(bucket_->server().asked().empty());
    }
};

QTEST_GUILESS_MAIN(PlacesCliTest)
#include "places_cli_test.moc"
