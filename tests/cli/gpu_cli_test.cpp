// Conversions over NCCL with real GPUs: the same bytes as without them. Skipped where there is none.
#include <QFileInfo>
#include <QTemporaryDir>
#include <QTest>

#include "cli/measured_process.h"

using namespace shardscope::test;
using nlohmann::json;

class GpuCliTest : public QObject {
    Q_OBJECT

    QTemporaryDir directory_;
    QString source_;

    Measured convert(const std::vector<std::string>& ranks, const QString& target) const {
        std::vector<std::string> line;
        for (const QString& word : {QString("convert"), source_, target, QString("--to"), QString("dcp"),
                                    QString("--mesh"), QString("tp=4"), QString("--shard"), QString("*:tp=1"),
                                    QString("--dtype"), QString("*.weight=bfloat16"), QString("--json")})
            line.push_back(word.toStdString());
        line.insert(line.end(), ranks.begin(), ranks.end());
        MeasuredOptions options;
        options.timeoutSeconds = 300;
        return runMeasured(line, options);
    }

  private slots:
    void initTestCase() {
#ifndef SHARDSCOPE_WITH_NCCL
        QSKIP("no NCCL was found beside libtorch: packaging/libtorch nccl gets it");
#endif
        if (!QFileInfo::exists("/dev/nvidia0")) QSKIP("no GPU: there is no /dev/nvidia0");
        source_ = directory_.filePath("floats.safetensors");
        QVERIFY(writeRandomSource(source_.toStdString(), 8, 2043, 4096, 5, "F32"));
    }

    void asByTheProcessor_data() {
        QTest::addColumn<QStringList>("words");
        QTest::newRow("one rank over NCCL") << QStringList{"--on", "ranks:1", "--backend", "nccl"};
        QTest::newRow("one rank over Gloo") << QStringList{"--on", "ranks:1", "--compute", "gpu"};
        QTest::newRow("each GPU") << QStringList{"--on", "local-gpus"};
        QTest::newRow("each GPU, one reads") << QStringList{"--on", "local-gpus,broadcast"};
        QTest::newRow("each GPU, exchange") << QStringList{"--on", "local-gpus,exchange"};
    }
    void asByTheProcessor() {
        QFETCH(QStringList, words);
        std::vector<std::string> ranks;
        for (const QString& word : words)
            ranks.push_back(word.toStdString());
        const QTemporaryDir out;
        const Measured gpu = convert(ranks, out.filePath("gpu")),
                       cpu = convert({"--on", "ranks:1", "--compute", "cpu"}, out.filePath("cpu"));
        QVERIFY2(gpu.exitCode == 0, gpu.describe().c_str());
        QVERIFY2(cpu.exitCode == 0, cpu.describe().c_str());
        const json byGpu = gpu.json(), byCpu = cpu.json();
        QCOMPARE(byGpu["group"]["compute"].get<std::string>(), std::string("gpu"));
        // Random bits: each tensor has NaN and infinite values, which the findings count.
        QCOMPARE(byGpu.at("digests").size(), size_t{8});
        QCOMPARE(byGpu.at("findings").size(), size_t{8});
        for (const char* key : {"digests", "findings"})
            QCOMPARE(byGpu.at(key).dump(), byCpu.at(key).dump());
    }
};

QTEST_GUILESS_MAIN(GpuCliTest)
#include "gpu_cli_test.moc"
