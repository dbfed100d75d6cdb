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
    const auto parts = localParts(spec, shape);
    if (!parts.ok()) return "error: " + parts.error().message;
    std::string boxes;
    for (const LocalBox& box : parts->boxes)
        boxes += (boxes.empty() ? "" : " ") + formatBox(box.globalOffsets, box.lengths);
    return boxes;
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
        const std::vector<Placement> placements{{Kind::stridedShard, 0, 2}, {Kind::shard, 0}};
        QCOMPARE(boxOf(on({2, 2}, placements, {1, 0}), {12}), std::string("[3:6]"));
        QCOMPARE(boxOf(on({2, 2}, placements, {0, 1}), {12}), std::string("[6:9]"));
    }
    // All as torch 2.15 places them (placement_types.py, _dtensor_spec.py).
    void stridedShardsOfNoOtherAxisTakeAPieceOfEachGroup() {
        QCOMPARE(boxOf(on({2}, {{Kind::stridedShard, 1, 2}}, {1}), {4, 16}),
                 std::string("[0:4, 4:8] [0:4, 12:16]"));
        const auto parts = localParts(on({2}, {{Kind::stridedShard, 1, 2}}, {1}), Dims{4, 16});
        QCOMPARE(parts->shape, Dims({4, 8}));
        QCOMPARE(parts->boxes[1].localOffsets, Dims({0, 4}));
        // 9 in groups of 5 and 4, over 4 ranks: 2 2 1 0 and 1 1 1 1.
        const auto uneven = [](int64_t rank) {
            return boxOf(on({4}, {{Kind::stridedShard, 0, 2}}, {rank}), {9});
        };
        QCOMPARE(uneven(0), std::string("[0:2] [5:6]"));
        QCOMPARE(uneven(2), std::string("[4:5] [7:8]"));
        QCOMPARE(uneven(3), std::string("[8:9]"));
        // More groups than rows, and parts that touch.
        QCOMPARE(boxOf(on({2}, {{Kind::stridedShard, 0, 8}}, {0}), {3}), std::string("[0:3]"));
        QCOMPARE(boxOf(on({2}, {{Kind::stridedShard, 0, 8}}, {1}), {3}), std::string("[2:2]"));
        QCOMPARE(boxOf(on({1}, {{Kind::stridedShard, 0, 2}}, {0}), {8}), std::string("[0:8]"));
    }
    void stridedShardsMeetOtherAxes() {
        // FSDP2 along rows, tensor parallelism along packed columns.
        QCOMPARE(boxOf(on({2, 2}, {{Kind::shard, 0}, {Kind::stridedShard, 1, 2}}, {1, 0}), {4, 8}),
                 std::string("[2:4, 0:2] [2:4, 4:6]"));
        // Both along one dimension: FSDP2 cuts what tensor parallelism left, of rank 0 rows 0 1 4 5 of 8.
        const std::vector<Placement> packed{{Kind::stridedShard, 0, 2}, {Kind::stridedShard, 0, 2}};
        QCOMPARE(boxOf(on({2, 2}, {{Kind::shard, 0}, {Kind::stridedShard, 0, 2}}, {0, 1}), {8}),
                 std::string("[1:2] [3:4]"));
        QCOMPARE(boxOf(on({2, 2}, packed, {0, 0}), {8}), std::string("[0:2]"));
        QCOMPARE(boxOf(on({2, 2}, packed, {1, 0}), {8}), std::string("[4:6]"));
        // Three axes, of which the last cuts first.
        const std::vector<Placement> three{
            {Kind::stridedShard, 0, 6}, {Kind::stridedShard, 0, 2}, {Kind::shard, 0}};
        QCOMPARE(boxOf(on({4, 3, 2}, three, {1, 2, 1}), {48}), std::string("[42:44]"));
        QCOMPARE(boxOf(on({2, 2}, {{Kind::stridedShard, 0, 2}, {Kind::stridedShard, 1, 2}}, {0, 0}), {8, 8}),
                 std::string("[0:2, 0:2] [0:2, 4:6] [4:6, 0:2] [4:6, 4:6]"));
    }
    void unevenPartsOfTwoAxesFollowFsdp() {
        // 7 rows over 2 tensor-parallel ranks: 4 and 3; these over 3: 2 2 0 and 1 1 1.
        DTensorSpec spec = on({3, 2}, {{Kind::stridedShard, 0, 2}, {Kind::shard, 0}}, {2, 1});
        QCOMPARE(boxOf(spec, {7}), std::string("[6:7]"));
        spec.literal = true;
        QCOMPARE(boxOf(spec, {7}), std::string("[7:7]"));
    }
    void hostileStridedShardsAreRefused() {
        QVERIFY(boxOf(on({2}, {{Kind::stridedShard, 0, int64_t{1} << 40}}, {0}), {int64_t{1} << 40})
                    .starts_with("error: its strided shard has"));
        QVERIFY(boxOf(on({2}, {{Kind::stridedShard, 0, 0}}, {0}), {8}).starts_with("error: "));
        QVERIFY(boxOf(on({2, 2}, {{Kind::stridedShard, 0, 1000}, {Kind::stridedShard, 1, 1000}}, {0, 0}),
                      {4000, 4000})
                    .starts_with("error: its strided shards have more than"));
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
        QVERIFY(boxOf(on({2}, {{Kind::shard, -2}}, {0}), {4}).starts_with("error: "));
        DTensorSpec outside = on({2}, {{Kind::shard, 0}}, {0});
        outside.coordinate.reset();
        QVERIFY(boxOf(outside, {4}).starts_with("error: "));
    }
};

QTEST_GUILESS_MAIN(DTensorTest)
#include "dtensor_test.moc"
