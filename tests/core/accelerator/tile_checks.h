// What a GPU does with tiles against what the processor does: the same bits, counts and digests. For the real
// thing and for the one that runs on the processor.
#pragma once

#include <QTest>
#include <cstring>
#include <random>
#include <vector>

#include "accelerator/gpu/gpu_tiles.h"
#include "execute/values.h"

namespace shardscope::test {

using TileBytes = std::vector<std::byte>;

inline std::vector<DType> allDTypes() {
    std::vector<DType> all;
    for (int i = 0; i < kDTypeCount; ++i)
        all.push_back(static_cast<DType>(i));
    return all;
}

// Every pattern of the narrow types; of the wide ones the edges of every format's ranges, ties and their
// neighbors, and random ones.
inline TileBytes patternsOf(DType dtype, size_t random) {
    std::mt19937_64 next(static_cast<uint64_t>(dtype) + 7);
    TileBytes bytes;
    const auto add = [&bytes](const auto value) {
        const auto* begin = reinterpret_cast<const std::byte*>(&value);
        bytes.insert(bytes.end(), begin, begin + sizeof value);
    };
    switch (dtype) {
        case DType::float32:
            for (uint32_t high = 0; high < 0x10000; ++high) {
                for (const uint32_t low : {0U, 1U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU})
                    add(high << 16 | low);
            }
            break;
        case DType::float64:
            for (uint64_t high = 0; high < 0x10000; ++high) {
                for (const uint64_t low :
                     {uint64_t{0}, uint64_t{1}, uint64_t{0x7fffffffffff}, uint64_t{0x800000000000},
                      uint64_t{0x800000000001}, uint64_t{0xffffffffffff}, uint64_t{0x000010000000},
                      uint64_t{0x00000fffffff}, uint64_t{0x000030000000}, uint64_t{0x000030000001}})
                    add(high << 48 | low);
            }
            // Where float32 and float16 have subnormals, with every length of mantissa.
            for (uint64_t exponent = 1023 - 155; exponent < 1023 + 130; ++exponent) {
                for (int bits = 0; bits < 52; ++bits) {
                    const uint64_t value = exponent << 52 | uint64_t{1} << bits;
                    for (const uint64_t near : {value - 1, value, value + 1, value | uint64_t{1} << 63})
                        add(near);
                }
            }
            break;
        default:
            // Six bits: four values in three bytes.
            if (dtypeBits(dtype) == 6) {
                for (uint32_t value = 0; value < 0x1000000; value += 61)
                    for (int i = 0; i < 3; ++i)
                        add(static_cast<uint8_t>(value >> (8 * i)));
            } else {
                for (uint32_t value = 0; value < 0x10000; ++value)
                    add(static_cast<uint16_t>(value));
            }
    }
    for (size_t i = 0; i < random; ++i)
        add(static_cast<uint64_t>(next()));
    // Whole elements, and of six bits whole fours.
    const size_t unit = dtypeIsWholeBytes(dtype) ? dtypeBytes(dtype) : 3;
    bytes.resize(bytes.size() / unit * unit);
    return bytes;
}

// Empty, or what differs.
inline QString difference(TileCompute& gpu, DType from, DType to, std::span<const std::byte> bytes,
                          int64_t elements, bool scan = true) {
    const QString name = QString("%1 to %2, %3 elements: ")
                             .arg(QString::fromStdString(std::string(dtypeName(from))),
                                  QString::fromStdString(std::string(dtypeName(to))))
                             .arg(elements);
    const size_t fromBytes = bytesOfElements(from, elements), toBytes = bytesOfElements(to, elements);
    const size_t cast = from == to ? 0 : toBytes;
    auto room = gpu.room(fromBytes + 64, cast + 64);
    if (!room.ok()) return name + QString::fromStdString(room.error().message);
    TileTask task{from, to, elements, scan, {}, {}, {}};
    std::memcpy(room->read.data(), bytes.data(), fromBytes);
    std::fill(room->cast.begin(), room->cast.end(), std::byte{0xaa});
    task.read = room->read.first(fromBytes);
    task.cast = room->cast.first(cast);
    TileFacts found, expected;
    if (const Status status = gpu.run(task, found); !status.ok())
        return name + QString::fromStdString(status.error().message);
    TileBytes byProcessor(cast);
    TileTask same = task;
    same.cast = byProcessor;
    if (!processorCompute().run(same, expected).ok()) return name + "the processor fails";
    if (std::memcmp(room->read.data(), bytes.data(), fromBytes) != 0) return name + "the source was changed";
    for (size_t i = 0; i < cast; ++i) {
        if (room->cast[i] == byProcessor[i]) continue;
        return name + QString("byte %1 is %2, not %3")
                          .arg(i)
                          .arg(std::to_integer<int>(room->cast[i]), 2, 16)
                          .arg(std::to_integer<int>(byProcessor[i]), 2, 16);
    }
    for (size_t i = cast; i < room->cast.size(); ++i)
        if (room->cast[i] != std::byte{0xaa}) return name + "bytes behind the tile were written";
    if (!(found.cells == expected.cells)) return name + "the digests differ";
    const auto shown = [](const ValueCounts& c) {
        return QString("%1 elements, %2 NaN, %3 infinite, %4 zero")
            .arg(c.elements)
            .arg(c.nan)
            .arg(c.inf)
            .arg(c.zero);
    };
    if (shown(found.counts) != shown(expected.counts))
        return name + shown(found.counts) + ", not " + shown(expected.counts);
    return {};
}

// Every dtype copied and counted, every cast of a pair that castSupported() allows.
inline QString differenceOfAll(TileCompute& gpu, size_t random) {
    for (const DType from : allDTypes()) {
        const TileBytes bytes = patternsOf(from, random);
        const auto elements = static_cast<int64_t>(bytes.size() * 8 / dtypeBits(from));
        for (const DType to : allDTypes()) {
            if (from != to && !castSupported(from, to)) continue;
            for (const int64_t n : {elements, int64_t{4}, int64_t{68}}) {
                const QString said = difference(gpu, from, to, bytes, n, n != 4);
                if (!said.isEmpty()) return said;
            }
            // Counts of elements that fill no unit of a thread.
            for (int64_t n = 1; n < 40 && dtypeIsWholeBytes(from) && (from == to || n % 3 == 0); ++n) {
                const QString said = difference(gpu, from, to, std::span(bytes).subspan(16), n);
                if (!said.isEmpty()) return said;
            }
        }
    }
    return {};
}

// Digests of cells of every length up to 3,000 bytes, around blocks and full cells, and of several.
inline QString differenceOfDigests(TileCompute& gpu) {
    std::mt19937_64 next(3);
    TileBytes bytes((9 << 20) + 4096);
    for (size_t i = 0; i + 8 <= bytes.size(); i += 8) {
        const uint64_t value = next();
        std::memcpy(bytes.data() + i, &value, 8);
    }
    std::vector<int64_t> lengths;
    for (int64_t n = 1; n <= 3000; ++n)
        lengths.push_back(n);
    for (const int64_t around :
         {32 * 1024, 33 * 1024, 64 * 1024, 1 << 20, 2 << 20, 4 << 20, 5 << 20, 9 << 20})
        for (const int64_t off :
             {-1025, -1024, -65, -64, -63, -1, 0, 1, 63, 64, 65, 240, 241, 1023, 1024, 1025})
            lengths.push_back(around + off);
    for (const int64_t n : lengths) {
        const QString said = difference(gpu, DType::uint8, DType::uint8, bytes, n);
        if (!said.isEmpty()) return said;
    }
    // Cells of six-bit values begin at any byte.
    for (const int64_t n : {1398100, 1398104, 2 * 1398100 + 4000, 5 * 1398100 + 400, 8 * 1398100})
        for (const DType dtype : {DType::float6E2M3, DType::float6E3M2}) {
            const QString said = difference(gpu, dtype, dtype, bytes, n);
            if (!said.isEmpty()) return said;
        }
    return {};
}

// Tiles of matrices cut into strips, from any place on.
inline QString differenceOfCuts(TileCompute& gpu, int tiles) {
    std::mt19937_64 next(5);
    int cut = 0;
    for (int i = 0; i < tiles; ++i) {
        const DType types[] = {DType::bfloat16, DType::float32, DType::float16, DType::float8E4M3FN,
                               DType::float64};
        const DType from = types[next() % 5], to = next() % 3 == 0 ? from : types[next() % 5];
        TileTask task{from, to, 0, true, {}, {}, {}};
        const auto strips = static_cast<int64_t>(2 + next() % 9),
                   unit = static_cast<int64_t>(next() % 8 ? 16 : 2);
        task.cut.strip = static_cast<int64_t>(1 + next() % 200) * unit;
        task.cut.columns = task.cut.strip * (strips - 1) + static_cast<int64_t>(1 + next() % 100) * unit;
        if (task.cut.columns > task.cut.strip * strips) task.cut.columns = task.cut.strip * strips;
        task.cut.begin = static_cast<int64_t>(next() % 1000) * unit % task.cut.columns;
        task.elements = static_cast<int64_t>(1 + next() % (i % 10 == 0 ? 200000 : 6000)) * unit;
        task.cut.strips.resize(static_cast<size_t>(strips));
        if (!gpu.cuts(task)) continue;
        ++cut;
        TileBytes read(bytesOfElements(from, task.elements) + 8), cast(bytesOfElements(to, task.elements));
        for (size_t at = 0; at + 8 <= read.size(); at += 8) {
            const uint64_t value = next();
            std::memcpy(read.data() + at, &value, 8);
        }
        read.resize(read.size() - 8);
        castElements(from, read.data(), to, cast.data(), static_cast<size_t>(task.elements));
        std::vector<TileBytes> expected(task.cut.strips.size()), found;
        const size_t size = dtypeBytes(to);
        for (int64_t e = 0; e < task.elements; ++e) {
            const int64_t column = (task.cut.begin + e) % task.cut.columns;
            auto& strip = expected[static_cast<size_t>(column / task.cut.strip)];
            const auto at = cast.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(e) * size);
            strip.insert(strip.end(), at, at + static_cast<ptrdiff_t>(size));
        }
        for (const TileBytes& each : expected)
            found.emplace_back(each.size());
        for (size_t s = 0; s < found.size(); ++s)
            task.cut.strips[s] = found[s];
        task.read = read;
        TileFacts facts;
        if (const Status status = gpu.run(task, facts); !status.ok())
            return QString::fromStdString(status.error().message);
        if (found != expected)
            return QString("a tile of %1 columns from %2 on, cut by %3, differs")
                .arg(task.cut.columns)
                .arg(task.cut.begin)
                .arg(task.cut.strip);
        TileTask whole = task;
        whole.cut = {};
        whole.cast = cast;
        TileFacts expectedFacts;
        if (!processorCompute().run(whole, expectedFacts).ok() || !(facts.cells == expectedFacts.cells) ||
            facts.counts.zero != expectedFacts.counts.zero || facts.counts.nan != expectedFacts.counts.nan)
            return "digests or counts of a tile that is cut differ";
    }
    return cut > tiles / 2 ? QString() : QString("hardly a tile was cut");
}

}  // namespace shardscope::test
