// What looking at values costs.
//   scan_bench CHECKPOINT                 reading it, and validating it with level "values"
//   scan_bench CHECKPOINT DESTINATION     converting it to safetensors, without and with the scan for NaN and
//   Inf
// Both sides take turns in one process; prints a JSON object with the medians.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include <fmt/format.h>
#include <sys/resource.h>

#include "engine/engine.h"
#include "storage/aligned_buffer.h"
#include "storage/digest.h"

using namespace shardscope;

namespace {

constexpr int kRounds = 7;

struct Cost {
    double wall = 0, processor = 0;  // seconds
};

double processorSeconds() {
    struct rusage used {};
    ::getrusage(RUSAGE_SELF, &used);
    const auto seconds = [](const timeval& t) {
        return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
    };
    return seconds(used.ru_utime) + seconds(used.ru_stime);
}

void must(const Status& status) {
    if (status.ok()) return;
    std::fprintf(stderr, "scan_bench: %s\n", describe(status.error()).c_str());
    std::exit(1);
}

Cost costOf(const std::function<Status()>& work) {
    const double processor = processorSeconds();
    const auto start = std::chrono::steady_clock::now();
    must(work());
    return {std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
            processorSeconds() - processor};
}

Cost median(std::vector<Cost> costs) {
    const auto middle = costs.begin() + static_cast<ptrdiff_t>(costs.size() / 2);
    std::nth_element(costs.begin(), middle, costs.end(), [](Cost a, Cost b) { return a.wall < b.wall; });
    const double wall = middle->wall;
    std::nth_element(costs.begin(), middle, costs.end(),
                     [](Cost a, Cost b) { return a.processor < b.processor; });
    return {wall, middle->processor};
}

// Reads every file of the checkpoint from the page cache with all threads, in the pieces that are fastest:
// they stay in the processor's cache.
Status readAll(const Reader& reader, ThreadPool& pool) {
    constexpr uint64_t kPiece = uint64_t{512} << 10, kPart = uint64_t{64} << 20;
    struct Part {
        std::shared_ptr<const ReadFile> file;
        uint64_t begin, end;
    };
    std::vector<Part> parts;
    for (FileId f = 0; f < reader.catalog().files().size(); ++f) {
        SHARDSCOPE_ASSIGN(const auto file, reader.openFile(f));
        for (uint64_t at = 0; at < file->size(); at += kPart)
            parts.push_back({file, at, std::min(file->size(), at + kPart)});
    }
    return pool.parallelFor(parts.size(), {}, [&](size_t i) -> Status {
        AlignedBuffer buffer(kPiece);
        for (uint64_t at = parts[i].begin; at < parts[i].end; at += kPiece) {
            SHARDSCOPE_TRY(parts[i].file->readAt(
                at, buffer.span(0, static_cast<size_t>(std::min(kPiece, parts[i].end - at)))));
        }
        return {};
    });
}

std::string jsonOf(const char* name, const std::vector<Cost>& costs) {
    const Cost cost = median(costs);
    return fmt::format("\"{}\": {{\"seconds\": {:.4f}, \"processor\": {:.4f}}}", name, cost.wall,
                       cost.processor);
}

// The digests that a conversion of so many bytes takes, one thread.
Status digestCells(uint64_t bytes) {
    // As many as a tile has, so that they come from where a tile's do.
    std::vector<std::byte> tile(8 * kDigestCellBytes, std::byte{1});
    Digest128 sum;
    for (uint64_t at = 0; at < bytes; at += kDigestCellBytes) {
        const Digest128 digest =
            cellDigest(std::span(tile).subspan(at % tile.size(), static_cast<size_t>(kDigestCellBytes)));
        sum.low ^= digest.low + at;
    }
    return sum.low == 1 ? makeError(ErrorCode::internal, "unlikely") : Status();
}

void validation(const Checkpoint& checkpoint) {
    ThreadPool pool;
    MemoryBudget memory(uint64_t{400} << 20);
    Resources resources;
    resources.pool = &pool;
    resources.memory = &memory;
    std::vector<Cost> reads, scans;
    for (int i = 0; i < kRounds; ++i) {
        reads.push_back(costOf([&] { return readAll(*checkpoint.reader, pool); }));
        scans.push_back(costOf([&]() -> Status {
            ValidateOptions options;
            options.level = ValidateLevel::values;
            SHARDSCOPE_ASSIGN(const auto report, validateCheckpoint(*checkpoint.reader, options, resources));
            if (report.level != ValidateLevel::values)
                return makeError(ErrorCode::internal, "values were not looked at");
            return {};
        }));
    }
    fmt::print("{{\"bytes\": {}, {}, {}}}\n", checkpoint.catalog().totalBytes(), jsonOf("read", reads),
               jsonOf("scan", scans));
}

void conversion(const Checkpoint& checkpoint, const std::string& destination) {
    std::vector<Cost> without, with;
    for (int i = 0; i < 2 * kRounds; ++i) {
        ConversionRequest settings;
        settings.format = "safetensors";
        settings.verify = Verify::none;
        settings.overwrite = true;
        settings.scanValues = i % 2 == 1;
        const Cost cost = costOf([&]() -> Status {
            SHARDSCOPE_ASSIGN(const auto prepared, prepareConversion(checkpoint, destination, settings));
            SHARDSCOPE_ASSIGN(const auto report, runPrepared(prepared, settings, nullptr));
            if (report.bytesReused > 0)
                return makeError(ErrorCode::internal, "found the work of another run");
            return {};
        });
        (i % 2 == 1 ? with : without).push_back(cost);
    }
    const uint64_t bytes = checkpoint.catalog().totalBytes();
    const std::vector<Cost> digests = {costOf([&] { return digestCells(bytes); })};
    fmt::print("{{\"bytes\": {}, {}, {}, {}}}\n", bytes, jsonOf("without", without), jsonOf("with", with),
               jsonOf("digest", digests));
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2 && argc != 3) return 2;
    const auto checkpoint = openCheckpoint(argv[1]);
    if (!checkpoint.ok()) must(checkpoint.error());
    if (argc == 2) {
        validation(*checkpoint);
    } else {
        conversion(*checkpoint, argv[2]);
    }
}
