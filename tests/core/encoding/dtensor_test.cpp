// Boxes of DTensors: which part of the tensor each rank of a mesh holds.
#include "encoding/dtensor.h"

#include <QTest>

using namespace shardscope;
using namespace shardscope::torch_save;
using Placement = DTensorSpec::Placement;
using Kind = Placement::Kind;

namespace {

DTensorSpec on(Dims mesh, std::vector<Placement> placements, Dims coordinate) {
    DTensorSpec spec;
    spec.mesh = std::move(mesh);
    spec.placements = std::move(placements);
    spec.coordinate = std::move(coordinate);
    return spec;
}

std::string boxOf(const DTensorSpec& spec, const Dims& shape) {
    const auto box = localBox(spec, shape);
    return box.ok() ? formatBox(box->offsets, box->lengths) : "error: " + box.error().message;
}

}  // namespace

class DTensorTest : public QObject {
    Q_OBJECT
  private slots:
    void shardsAreTorchChunks() {
        // 10 rows over 4 ranks: 3, 3, 3, 1.
        QCOMPARE(boxOf(on({4}, {{Kind::shard, 0}}, {3}), {10, 2}), std::string("[9:10, 0:2]"));
        // 5 rows over 4 ranks: 2, 2, 1, none.
        QCOMPARE(boxOf(on({4}, {{Kind::shard, 0}}, {3}), {5}), std::string("[5:5]"));
        QCOMPARE(boxOf(on({4}, {{Kind::shard, -1}}, {1}), {2, 8}), std::string("[0:2, 2:4]"));
    }
    void replicasHoldTheWhole() {
        QCOMPARE(boxOf(on({2, 2}, {{Kind::replicate}, {Kind::shard, 0}}, {1, 0}), {6}), std::string("[0:3]"));
        QCOMPARE(boxOf(on({2}, {{Kind::replicate}}, {1}), {}), std::string("[]"));
    }
    void axesCutFromLeftToRight() {
        // 11 rows: 6 and 5; those again: 3, 3 and 3, 2.
        QCOMPARE(boxOf(on({2, 2}, {{Kind::shard, 0}, {Kind::shard, 0}}, {1, 1}), {11}),
                 std::string("[9:11]"));
    }
    void stridedShardsAreCutLast() {
        // TP cuts 12 rows in 6 and 6, then FSDP each of them in 3 and 3.
        const std::vector<Placement> placements{{Kind::stridedShard, 0}, {Kind::shard, 0}};
        QCOMPARE(boxOf(on({2, 2}, placements, {1, 0}), {12}), std::string("[3:6]"));
        QCOMPARE(boxOf(on({2, 2}, placements, {0, 1}), {12}), std::string("[6:9]"));
    }
    void statedOrderDecides() {
        DTensorSpec spec = on({2, 3}, {{Kind::shard, 0}, {Kind::shard, 0}}, {1, 2});
        spec.order = {{0, {1, 0}}};
        // 12 rows in 3 of 4, then in 2 of 2.
        QCOMPARE(boxOf(spec, {12}), std::string("[10:12]"));
    }
    void whatCannotBeJoinedIsRefused() {
        QVERIFY(boxOf(on({2}, {{Kind::partial}}, {0}), {4}).starts_with("error: its parts are partial sums"));
        QVERIFY(boxOf(on({2}, {{Kind::other}}, {0}), {4}).starts_with("error: "));
        QVERIFY(boxOf(on({2}, {{Kind::shard, 7}}, {0}), {4}).starts_with("error: "));
        DTensorSpec outside = on({2}, {{Kind::shard, 0}}, {0});
        outside.coordinate.reset();
        QVERIFY(boxOf(outside, {4}).starts_with("error: "));
    }
};

QTEST_GUILESS_MAIN(DTensorTest)
#include "dtensor_test.moc"
