// scan_bench CHECKPOINT: reads every tensor and counts NaN, Inf and zeros. Prints a JSON object.
#include <chrono>
#include <cstdio>
#include <mutex>
#include <numeric>

#include "engine/engine.h"
#include "execute/values.h"

using namespace shardscope;

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    const auto checkpoint = openCheckpoint(argv[1]);
    if (!checkpoint.ok()) {
        std::fprintf(stderr, "%s\n", describe(checkpoint.error()).c_str());
        return 1;
    }
    ThreadPool pool;
    MemoryBudget memory(uint64_t{400} << 20);
    Resources resources;
    resources.pool = &pool;
    resources.memory = &memory;
    std::vector<TensorId> ids(checkpoint->catalog().tensorCount());
    std::iota(ids.begin(), ids.end(), 0U);
    for (const bool values : {false, true}) {
        const auto start = std::chrono::steady_clock::now();
        uint64_t nan = 0;
        std::mutex mutex;
        const Status status =
            scanTensors(*checkpoint->reader, ids, {}, resources, [&](const TileView& tile) -> Status {
                if (!values) return {};
                ValueCounts counts;
                countValues(checkpoint->catalog().dtype(tile.tensor), tile.bytes, counts);
                std::lock_guard lock(mutex);
                nan += counts.nan;
                return {};
            });
        if (!status.ok()) {
            std::fprintf(stderr, "%s\n", describe(status.error()).c_str());
            return 1;
        }
        const double seconds =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        std::printf("{\"what\": \"%s\", \"bytes\": %llu, \"seconds\": %.4f, \"nan\": %llu}\n",
                    values ? "scan" : "read",
                    static_cast<unsigned long long>(checkpoint->catalog().totalBytes()), seconds,
                    static_cast<unsigned long long>(nan));
    }
}
