// What ranks hold of tensors that they cut along one axis, against shards that are cut element by element.
#include "formats/rank_cut.h"

#include <QtTest>
#include <numeric>
#include <random>

using namespace shardscope;

namespace {

// Of each element of the shard, in its row-major order, the number that it has in the whole tensor.
std::vector<int64_t> shardOf(const RankCut& cut, const Dims& whole) {
    const auto axis = static_cast<size_t>(cut.axis);
    const Dims strides = rowMajorStrides(whole);
    const int64_t outer = elementCount(DimSpan(whole).first(axis)), inner = strides[axis];
    std::vector<int64_t> out;
    for (int64_t row = 0; row < outer; ++row) {
        for (const CutPart& part : cut.parts) {
            for (int64_t at = part.offset; at < part.offset + part.length; ++at) {
                for (int64_t i = 0; i < inner; ++i)
                    out.push_back((row * whole[axis] + at) * inner + i);
            }
        }
    }
    return out;
}

// The elements of a shard that a box takes, in the order of the box.
std::vector<int64_t> takenBy(const CutBox& box, const std::vector<int64_t>& shard) {
    const StoredPart part = box.in(3, 5, 0);
    std::vector<int64_t> out;
    const int64_t count = part.strides.empty() ? part.elements : elementCount(box.lengths);
    for (int64_t i = 0; i < count; ++i) {
        int64_t at = part.firstElement, rest = i;
        if (part.strides.empty()) at += i;
        for (size_t d = part.strides.size(); d-- > 0;) {
            at += rest % box.lengths[d] * part.strides[d];
            rest /= box.lengths[d];
        }
        out.push_back(shard.at(static_cast<size_t>(at)));
    }
    return out;
}

// Where a box says that its elements are in the whole tensor.
std::vector<int64_t> placesOf(const CutBox& box, const Dims& whole) {
    const FlatRange range = box.flat.value_or(FlatRange{0, elementCount(box.lengths)});
    std::vector<int64_t> out;
    for (int64_t i = range.start; i < range.stop; ++i)
        out.push_back(positionOf(i, whole, box.offsets, box.lengths));
    return out;
}

bool boxesAreRight(const std::vector<CutBox>& boxes, const std::vector<int64_t>& shard, const Dims& whole,
                   std::vector<int64_t> expected) {
    std::vector<int64_t> all;
    for (const CutBox& box : boxes) {
        if (placesOf(box, whole) != takenBy(box, shard)) return false;
        for (const int64_t place : placesOf(box, whole))
            all.push_back(place);
    }
    std::ranges::sort(all);
    std::ranges::sort(expected);
    return all == expected;
}

std::vector<CutPart> sharesOf(std::vector<int64_t> parts, int64_t offset, int64_t length) {
    return RankCut::share(0, parts, offset, length).parts;
}

bool equal(const CutPart& part, const CutPart& other) {
    return part.from == other.from && part.length == other.length && part.offset == other.offset;
}

}  // namespace

class RankCutTest : public QObject {
    Q_OBJECT

  private slots:
    void aRankWithoutAnAxisHoldsTheWhole() {
        const auto boxes = RankCut{}.boxes(Dims{2, 3});
        QCOMPARE(boxes.size(), 1U);
        QVERIFY(boxes[0].lengths == (Dims{2, 3}) && boxes[0].offsets == (Dims{0, 0}));
        QCOMPARE(RankCut{}.boxes(Dims{}).size(), 1U);
        QVERIFY((RankCut{0, {}}.boxes(Dims{}).empty()));
        QVERIFY((RankCut{0, {}}.boxes(Dims{4}, {0, 4}).empty()));
    }

    void onePartIsWhereTheRankSays() {
        const auto parts = sharesOf({7}, 5, 2);
        QCOMPARE(parts.size(), 1U);
        QVERIFY(equal(parts[0], {0, 2, 5}));
    }

    void fusedPartsOfDifferentSizesAreSharedOneByOne() {
        // Rank 1 of 2, of q with 8 rows, k and v with 4.
        const auto parts = sharesOf({8, 4, 4}, 8, 8);
        QCOMPARE(parts.size(), 3U);
        QVERIFY(equal(parts[0], {0, 4, 4}) && equal(parts[1], {4, 2, 10}) && equal(parts[2], {6, 2, 14}));
    }

    void ranksMayHaveUnevenShares() {
        // Of [gate | up] of 6 rows each the first of two ranks has four of each.
        const auto first = sharesOf({6, 6}, 0, 8), second = sharesOf({6, 6}, 8, 4);
        QVERIFY(equal(first[0], {0, 4, 0}) && equal(first[1], {4, 4, 6}));
        QVERIFY(equal(second[0], {0, 2, 4}) && equal(second[1], {2, 2, 10}));
    }

    void theLargestSizesDoNotOverflow() {
        const auto parts = sharesOf({kMaxDim / 2, kMaxDim / 2}, kMaxDim / 4 * 3, kMaxDim / 4);
        QVERIFY(equal(parts[0], {0, kMaxDim / 8, kMaxDim / 8 * 3}));
        QVERIFY(equal(parts[1], {kMaxDim / 8, kMaxDim / 8, kMaxDim / 2 + kMaxDim / 8 * 3}));
    }

    void nothingOfNothingIsNothing() {
        const auto parts = sharesOf({0, 0}, 0, 0);
        QVERIFY(equal(parts[1], {0, 0, 0}));
        const RankCut cut = RankCut::share(1, std::vector<int64_t>{0, 0}, 0, 0);
        QVERIFY(cut.boxes(Dims{2, 0}, {0, 0}).empty());
    }

    void rowsOfAFusedTensorAreOneRangeForEachPart() {
        const std::vector<int64_t> parts{4, 4};
        const auto boxes = RankCut::share(0, parts, 2, 2).boxes(Dims{2, 3}, {1, 5});
        QCOMPARE(boxes.size(), 2U);
        QVERIFY(boxes[0].flat == (FlatRange{1, 3}) && boxes[1].flat == (FlatRange{0, 2}));
        QVERIFY(boxes[0].strides.empty() && boxes[1].strides.empty());
    }

    void boxesHoldWhatTheShardHolds() {
        std::mt19937 random(7);
        const auto below = [&](int64_t most) {
            return std::uniform_int_distribution<int64_t>(0, most)(random);
        };
        for (int round = 0; round < 3000; ++round) {
            Dims whole(static_cast<size_t>(1 + below(3)));
            for (int64_t& length : whole)
                length = 1 + below(3);
            const auto axis = static_cast<size_t>(below(std::ssize(whole) - 1));
            const int64_t degree = 1 + below(3), rank = below(degree - 1);
            std::vector<int64_t> parts(static_cast<size_t>(1 + below(2)));
            for (int64_t& part : parts)
                part = degree * (1 + below(2));
            whole[axis] = std::accumulate(parts.begin(), parts.end(), int64_t{0});
            const int64_t each = whole[axis] / degree;
            const RankCut cut = RankCut::share(static_cast<int>(axis), parts, rank * each, each);
            Dims local = whole;
            local[axis] = each;
            const std::vector<int64_t> shard = shardOf(cut, whole);
            QCOMPARE(std::ssize(shard), elementCount(local));
            QVERIFY(boxesAreRight(cut.boxes(local), shard, whole, shard));
            QCOMPARE(cut.boxes(whole).size(), parts.size());
            const int64_t start = below(std::ssize(shard)), stop = start + below(std::ssize(shard) - start);
            const auto range = cut.boxes(whole, {start, stop});
            QVERIFY(boxesAreRight(range, shard, whole, {shard.begin() + start, shard.begin() + stop}));
            // At most what the range of a box is made of, for each part.
            QVERIFY(range.size() <= parts.size() * std::max<size_t>(1, 2 * whole.size() - 1));
        }
    }
};

QTEST_GUILESS_MAIN(RankCutTest)
#include "rank_cut_test.moc"
