// Rules taken from how a checkpoint is cut: over another mesh they cut it as its own rules would.
#include "plan/source_placement.h"

#include <QTest>

#include "model/infer_mesh.h"
#include "plan/request_text.h"
#include "plan/steps.h"

using namespace shardscope;

namespace {

// Two layers of a model with its moments, and what is no layer's.
Catalog model() {
    CatalogBuilder builder("dcp", "", "");
    const FileId file = builder.addFile({"f", 1 << 20, FileInfo::State::present, false, 0, true});
    const auto add = [&](const std::string& name, Dims shape) {
        TensorInfo info;
        info.name = name;
        info.path = {keyPart(name)};
        info.shape = std::move(shape);
        QVERIFY(builder.addTensor(info).ok());
        QVERIFY(builder.addWhole(0, file, 0, 0).ok());
    };
    for (const std::string prefix : {"", "optim.exp_avg."}) {
        for (const std::string layer : {"layers.0.", "layers.1.", "layers.2."}) {
            add(prefix + layer + "q.weight", {64, 32});
            add(prefix + layer + "o.weight", {32, 64});
            add(prefix + layer + "norm.weight", {32});
        }
        add(prefix + "embed.weight", {100, 32});
        add(prefix + "tiny", {3});
    }
    return std::move(builder).finish();
}

Catalog placed(const Catalog& source, const QString& mesh, const QStringList& rules) {
    TargetRequest request;
    request.mesh = parseMesh(mesh.toStdString()).value();
    for (const QString& rule : rules)
        request.shard.push_back(parseShardRule(rule.toStdString()).value());
    TargetInput input;
    input.source = &source;
    input.format = "dcp";
    input.objectValue = [](ObjectId) -> Result<Value> { return makeIntegerValue(1); };
    return std::move(resolveTarget(input, request).value().target);
}

// The boxes of each tensor, in order.
QStringList boxes(const Catalog& catalog) {
    QStringList lines;
    for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
        QStringList pieces;
        for (ChunkId c = catalog.firstChunk(t); c < catalog.endChunk(t); ++c) {
            const ChunkInfo chunk = catalog.chunk(t, c);
            pieces += QString::fromStdString(formatDims(chunk.offsets) + "+" + formatDims(chunk.lengths));
        }
        pieces.sort();
        lines += QString::fromStdString(std::string(catalog.name(t))) + " " + pieces.join(' ');
    }
    return lines;
}

QStringList textsOf(const SourcePlacement& placement) {
    QStringList rules;
    for (const ShardRule& rule : placement.rules())
        rules += QString::fromStdString(formatShardRule(rule));
    return rules;
}

}  // namespace

class SourcePlacementTest : public QObject {
    Q_OBJECT

  private slots:
    void cutAsTheSource_data() {
        QTest::addColumn<QString>("from");
        QTest::addColumn<QStringList>("rules");
        QTest::addColumn<QString>("to");
        QTest::addColumn<QStringList>("expected");  // rules; none = the same
        const QStringList megatron{"*q.weight:tp=0", "*o.weight:tp=1", "*embed.weight:tp=0"};
        QTest::newRow("more tensor-parallel ranks") << "tp=2" << megatron << "tp=4" << QStringList();
        QTest::newRow("fewer") << "tp=4" << megatron << "tp=2" << QStringList();
        QTest::newRow("an axis more, which copies") << "tp=2" << megatron << "dp=2,tp=4" << QStringList();
        const QStringList both{"*q.weight:dp=0,tp=0", "*o.weight:dp=0,tp=1", "*embed.weight:dp=0,tp=0",
                               "*norm.weight:dp=0", "*tiny:dp=0"};
        QTest::newRow("two axes") << "dp=2,tp=4" << both << "dp=4,tp=2" << QStringList();
        QTest::newRow("axes of one size") << "dp=2,tp=2" << both << "dp=4,tp=8" << QStringList();
        QTest::newRow("an axis fewer")
            << "dp=2,tp=4" << both << "dp=4"
            << QStringList{"*q.weight:dp=0", "*o.weight:dp=0", "*embed.weight:dp=0", "*norm.weight:dp=0",
                           "*tiny:dp=0"};
        QTest::newRow("the axis has another name")
            << "dp=4" << QStringList{"*:dp=0"} << "fsdp=3" << QStringList{"*:fsdp=0"};
        QTest::newRow("one layer is whole")
            << "tp=2" << QStringList{"layers.1.*:tp=7", "*q.weight:tp=0"} << "tp=4" << QStringList();
        QTest::newRow("one layer is cut otherwise")
            << "tp=2" << QStringList{"layers.1.q.weight:tp=1", "*q.weight:tp=0"} << "tp=4" << QStringList();
        QTest::newRow("smaller than the mesh") << "dp=8" << QStringList{"*:dp=0"} << "dp=2" << QStringList();
    }
    void cutAsTheSource() {
        QFETCH(QString, from);
        QFETCH(QStringList, rules);
        QFETCH(QString, to);
        QFETCH(QStringList, expected);
        const Catalog whole = model(), source = placed(whole, from, rules);
        const SourcePlacement placement = placementOfSource(source, parseMesh(from.toStdString()).value(),
                                                            parseMesh(to.toStdString()).value());
        QCOMPARE(placement.unexplained, size_t{0});
        QCOMPARE(boxes(placed(source, to, textsOf(placement))),
                 boxes(placed(source, to, expected.isEmpty() ? rules : expected)));
    }

    // The moments stand with their parameters, in one rule for each way to cut.
    void oneRuleForEachWay() {
        const Catalog source = placed(model(), "tp=2", {"*q.weight:tp=0", "*o.weight:tp=1"});
        const SourcePlacement placement =
            placementOfSource(source, parseMesh("tp=2").value(), parseMesh("ep=2,tp=8").value());
        QCOMPARE(placement.classes.size(), size_t{2});
        QCOMPARE(placement.classes[0].tensors, size_t{6});
        QCOMPARE(placement.unused, std::vector<std::string>{"ep"});
        QCOMPARE(textsOf(placement),
                 (QStringList{R"(re:layers\.\d+\.q\.weight|optim\.exp_avg\.layers\.\d+\.q\.weight:tp=0)",
                              R"(re:layers\.\d+\.o\.weight|optim\.exp_avg\.layers\.\d+\.o\.weight:tp=1)"}));
    }

    // Pieces that no axis explains are left whole, and counted.
    void notExplained() {
        const Catalog source = placed(model(), "tp=3", {"*q.weight:tp=0"});
        const SourcePlacement placement =
            placementOfSource(source, parseMesh("tp=2").value(), parseMesh("tp=4").value());
        QCOMPARE(placement.unexplained, size_t{6});
        QVERIFY(placement.rules().empty());
    }
};

QTEST_APPLESS_MAIN(SourcePlacementTest)
#include "source_placement_test.moc"
