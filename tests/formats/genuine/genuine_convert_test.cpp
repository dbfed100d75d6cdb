// Every whole checkpoint in tests/data/genuine arrives bit for bit, as one file of whole tensors and as the
// files of a framework; what does not arrive is said to be left out.
#include <QTemporaryDir>
#include <QtTest>
#include <set>

#include "engine/engine.h"
#include "support/genuine.h"
#include "support/read_checks.h"

using namespace shardscope;
using namespace shardscope::test;
using nlohmann::json;

class GenuineConvertTest : public QObject {
    Q_OBJECT

  private slots:
    void arrivesBitForBit_data() {
        QTest::addColumn<int>("index");
        for (size_t i = 0; i < allGenuineCases().size(); ++i)
            if (!allGenuineCases()[i].damaged())
                QTest::newRow(allGenuineCases()[i].id().c_str()) << static_cast<int>(i);
    }
    void arrivesBitForBit() {
        QFETCH(int, index);
        const GenuineCase& c = allGenuineCases()[static_cast<size_t>(index)];
        CheckpointOptions options;
        options.open.variant = c.variant();
        const auto source = openCheckpoint(c.openPath(), options);
        QVERIFY2(source.ok(), source.ok() ? "" : describe(source.error()).c_str());
        for (const char* format : {"safetensors", "dcp"}) {
            QTemporaryDir place;
            const std::string to = place.filePath("out").toStdString();
            ConversionRequest request;
            request.format = format;
            request.threads = 1;
            request.verify = Verify::full;
            const auto conversion = prepareConversion(*source, to, request);
            const Status can = conversion.ok() ? checkRunnable(*conversion) : Status(conversion.error());
            if (!can.ok()) {
                QVERIFY2(c.expected["tensors"].empty() || c.expected.contains("special"),
                         describe(can.error()).c_str());
                continue;
            }
            const auto report = runPrepared(*conversion, request, nullptr);
            QVERIFY2(report.ok(), report.ok() ? "" : describe(report.error()).c_str());
            const auto written = openCheckpoint(to);
            QVERIFY2(written.ok(), written.ok() ? "" : describe(written.error()).c_str());
            check(c, *source, conversion->plan, digests(*written->reader));
        }
    }

  private:
    static void check(const GenuineCase& c, const Checkpoint& source, const Plan& plan,
                      const std::map<std::string, std::string>& bytes) {
        std::map<std::string, std::string> renamed;
        for (const PlanLeftOut& entry : plan.renamed)
            renamed[entry.name] = entry.why;
        std::set<std::string> said;
        for (const auto* list : {&plan.leftOut, &plan.changed})
            for (const PlanLeftOut& entry : *list)
                said.insert(entry.name);
        for (const auto& [name, want] : c.expected["tensors"].items()) {
            if (source.catalog().find(name) == kNone) continue;  // genuine_test says whether it may be so
            const auto it = bytes.find(renamed.contains(name) ? renamed[name] : name);
            QVERIFY2(it == bytes.end() ? said.contains(name) : it->second == want["sha256"], name.c_str());
        }
    }
};

QTEST_GUILESS_MAIN(GenuineConvertTest)
#include "genuine_convert_test.moc"
