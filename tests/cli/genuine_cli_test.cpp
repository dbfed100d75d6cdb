// Genuine checkpoints of each kind through the program: its documents and exit codes say what genuine_test
// knows of the engine.
#include <QTest>
#include <set>

#include "cli/run_shardscope.h"
#include "engine/engine.h"
#include "support/genuine.h"

using namespace shardscope;
using namespace shardscope::test;
using nlohmann::json;

class GenuineCliTest : public QObject {
    Q_OBJECT

  private slots:
    void everyKind_data() {
        QTest::addColumn<int>("index");
        for (size_t i = 0; i < samples().size(); ++i)
            QTest::newRow(samples()[i].id().c_str()) << static_cast<int>(i);
    }

    void everyKind() {
        QFETCH(int, index);
        const GenuineCase& c = samples()[static_cast<size_t>(index)];
        if (c.shown.contains("refused")) {
            checkError(c.shown["refused"], run(c, {"ls"}));
            return;
        }
        checkListing(c);
        checkReport(c);
        if (!c.damaged()) checkDigests(c);
    }

  private:
    static const std::vector<GenuineCase>& samples() {
        static const auto all = genuineSamples();
        return all;
    }
    // Of a run's directory the step that is opened, since verbs answer for all of its steps.
    static Outcome run(const GenuineCase& c, const QStringList& verb) {
        const auto checkpoint = openCheckpoint(c.openPath());
        const std::string path = checkpoint.ok() ? checkpoint->path : c.openPath();
        QStringList words = verb + QStringList{QString::fromStdString(path), "--json"};
        if (!c.variant().empty()) words << "--variant" << QString::fromStdString(c.variant());
        return runShardscope(words);
    }

    static void checkError(const json& refused, const Outcome& outcome) {
        QCOMPARE(outcome.exitCode, 3);
        const json error = outcome.json();
        COMPARE_JSON(error["schema"], json("shardscope.error/1"));
        COMPARE_JSON(error["code"], json(refused.value("code", "damaged")));
        if (refused.contains("rule")) COMPARE_JSON(error["rule"], refused["rule"]);
        QVERIFY(error["file"].get<std::string>().ends_with(refused["file"].get<std::string>()));
        if (refused.value("offset", false)) QVERIFY(error["offset"].is_number());
    }

    static void checkListing(const GenuineCase& c) {
        const Outcome ls = run(c, {"ls", "--chunks"});
        QVERIFY2(ls.exitCode == 0, (ls.out + ls.err).c_str());
        const json listing = ls.json();
        COMPARE_JSON(listing["schema"], json("shardscope.ls/1"));
        std::set<std::string> names;
        for (const json& tensor : listing["tensors"]) {
            const std::string name = tensor["name"];
            QVERIFY2(names.insert(name).second, name.c_str());
            const auto want = c.expected["tensors"].find(name);
            if (want == c.expected["tensors"].end() || c.shown.contains("shapes")) continue;
            COMPARE_JSON(tensor["shape"], (*want)["shape"]);
            if (!c.shown.contains("dtypes")) COMPARE_JSON(tensor["dtype"], (*want)["dtype"]);
            QVERIFY(tensor["chunks"].is_array());
        }
        for (const json& object : listing["objects"])
            QVERIFY2(c.damaged() || object.contains("value"), object.dump().c_str());
    }

    static void checkReport(const GenuineCase& c) {
        const Outcome outcome = run(c, {"validate", "--level", "values"});
        const json report = outcome.json();
        COMPARE_JSON(report["schema"], json("shardscope.validate/1"));
        bool unsafe = false;
        for (const json& finding : report["findings"])
            unsafe = unsafe || finding["severity"] == "error";
        QCOMPARE(outcome.exitCode, unsafe ? 1 : 0);
        QCOMPARE(report["verdict"] == "unsafe", unsafe);
        if (!c.shown.contains("findings")) QCOMPARE(unsafe, c.damaged());
    }

    static void checkDigests(const GenuineCase& c) {
        const Outcome digest = run(c, {"digest", "--algorithm", "sha256"});
        QVERIFY2(digest.exitCode == 0, (digest.out + digest.err).c_str());
        const json got = digest.json()["tensors"];
        for (const auto& [name, want] : c.expected["tensors"].items())
            if (got.contains(name)) QVERIFY2(got[name] == want["sha256"], name.c_str());
    }
};

QTEST_GUILESS_MAIN(GenuineCliTest)
#include "genuine_cli_test.moc"
