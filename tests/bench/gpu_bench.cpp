// What a GPU makes of tiles, beside what it can do at most: cast, scan and cut in its own memory against its
// rate of copying; the way through pinned memory against PCIe. One object of JSON; exit code 3 and a sentence
// where there is no GPU.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include <fmt/format.h>

#include "accelerator/gpu/gpu_driver.h"
#include "accelerator/gpu/gpu_tiles.h"
#include "accelerator/gpu/tile_cut.h"
#include "execute/values.h"

using namespace shardscope;

namespace {

constexpr int kRounds = 10;
constexpr int64_t kElements = int64_t{1} << 28;  // of a matrix in the GPU's memory
constexpr int64_t kColumns = 8192;
constexpr int64_t kTile = int64_t{16} << 20;  // elements of a tile that comes and goes
constexpr int kTiles = 32;

[[noreturn]] void giveUp(const Error& error) {
    fmt::print(stderr, "{}\n", error.message);
    std::exit(exitCode(error.code));
}
void must(Status status) {
    if (!status.ok()) giveUp(status.error());
}
template <class T>
T must(Result<T> result) {
    if (!result.ok()) giveUp(result.error());
    return std::move(result).value();
}

double seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Of the best of some rounds.
template <class Work>
double best(Work&& work) {
    double found = 1e9;
    for (int i = 0; i < kRounds; ++i) {
        const double begin = seconds();
        work();
        found = std::min(found, seconds() - begin);
    }
    return found;
}

class Bench {
  public:
    explicit Bench(const std::vector<std::string>& compilers)
        : driver_(must(GpuDriver::open("libcuda.so.1"))), compiler_(must(GpuCompiler::open(compilers))) {
        DeviceSpec place;
        place.compilers = compilers;
        tiles_ = must(GpuTiles::open(place));  // its context is the device's own, and ours
        int major = 0, minor = 0;
        check(driver_.cuDeviceGet(&device_, 0));
        void* context = nullptr;
        check(driver_.cuDevicePrimaryCtxRetain(&context, device_));
        check(driver_.cuCtxSetCurrent(context));
        check(driver_.cuDeviceGetAttribute(&major, 75, device_));
        check(driver_.cuDeviceGetAttribute(&minor, 76, device_));
        capability_ = major * 10 + minor;
        for (void*& stream : streams_)
            check(driver_.cuStreamCreate(&stream, 1));
        check(driver_.cuMemAlloc_v2(&in_, kElements * 4));
        check(driver_.cuMemAlloc_v2(&out_, kElements * 4));
        check(driver_.cuMemAlloc_v2(&facts_, size_t{1} << 20));
        // Ordinary numbers: 1.0 and its like, in every type.
        check(driver_.cuMemsetD8Async(in_, 0x3c, kElements * 4, streams_[0]));
        check(driver_.cuStreamSynchronize(streams_[0]));
    }

    const std::string& device() const { return tiles_->device(); }

    // Bytes a second that a copy reads and writes.
    double copyRate() {
        const size_t bytes = kElements * 4;
        return 2 * static_cast<double>(bytes) / best([&] {
                   check(driver_.cuMemcpyDtoDAsync_v2(out_, in_, bytes, streams_[0]));
                   check(driver_.cuStreamSynchronize(streams_[0]));
               });
    }

    // The same of cast, scan and cut in one.
    double castRate(DType from, DType to) {
        void* kernel = load(castProgram(from, to), "shardscope_cast");
        TileTask task{from, to, kElements, true, {}, {}, {}};
        task.cut = {kColumns, kColumns / 8, 0, std::vector<std::span<std::byte>>(8)};
        gpu::Cut cut = partCut(task, 0, kElements).cut;
        GpuPointer source = in_, none = 0, strips = out_, counts = facts_;
        unsigned long long elements = kElements;
        std::array<void*, 6> parameters{&source, &none, &strips, &elements, &cut, &counts};
        const auto bytes =
            static_cast<double>(bytesOfElements(from, kElements) + bytesOfElements(to, kElements));
        return bytes / best([&] {
                   check(driver_.cuLaunchKernel(kernel, castBlocks(from, to, kElements), 1, 1, kCastThreads,
                                                1, 1, 0, streams_[0], parameters.data(), nullptr));
                   check(driver_.cuStreamSynchronize(streams_[0]));
               });
    }

    double digestRate() {
        void* kernel = load(digestProgram(), "shardscope_digest");
        GpuPointer source = in_, digests = facts_;
        unsigned long long total = kElements * 4, cell = kDigestCellBytes;
        std::array<void*, 4> parameters{&source, &total, &cell, &digests};
        return static_cast<double>(total) / best([&] {
                   check(driver_.cuLaunchKernel(kernel, static_cast<unsigned>(total / cell), 1, 1,
                                                kDigestThreads, 1, 1, 0, streams_[0], parameters.data(),
                                                nullptr));
                   check(driver_.cuStreamSynchronize(streams_[0]));
               });
    }

    // Tiles from pinned memory through the GPU and back, by two threads, and only the copies of as many
    // bytes, in both directions at a time. In bytes that come and go a second.
    std::pair<double, double> feed(DType from, DType to) {
        const size_t fromBytes = bytesOfElements(from, kTile),
                     toBytes = from == to ? 0 : bytesOfElements(to, kTile);
        const auto all = static_cast<double>((fromBytes + toBytes) * kTiles);
        std::array<TileBuffers, 2> rooms;
        for (TileBuffers& room : rooms) {
            room = must(tiles_->room(fromBytes, toBytes));
            std::memset(room.read.data(), 0x3c, fromBytes);
        }
        const double copies = best([&] {
            for (int i = 0; i < kTiles; ++i) {
                check(driver_.cuMemcpyHtoDAsync_v2(in_, rooms[0].read.data(), fromBytes, streams_[0]));
                if (toBytes > 0)
                    check(driver_.cuMemcpyDtoHAsync_v2(rooms[1].cast.data(), out_, toBytes, streams_[1]));
            }
            for (void* stream : streams_)
                check(driver_.cuStreamSynchronize(stream));
        });
        const double fed = best([&] {
            std::array<std::thread, 2> threads;
            for (size_t t = 0; t < threads.size(); ++t) {
                threads[t] = std::thread([&, t] {
                    for (int i = 0; i < kTiles / 2; ++i) {
                        TileFacts facts;
                        must(tiles_->run(
                            {from, to, kTile, true, rooms[t].read, rooms[t].cast.first(toBytes), {}}, facts));
                    }
                });
            }
            for (std::thread& thread : threads)
                thread.join();
        });
        return {all / fed, all / copies};
    }

  private:
    void check(int result) { must(driver_.check(result, "measure the GPU")); }
    void* load(const std::string& program, const char* name) {
        const std::string image = must(compiler_.compile(program, capability_)).image;
        void *module = nullptr, *function = nullptr;
        check(driver_.cuModuleLoadData(&module, image.c_str()));
        check(driver_.cuModuleGetFunction(&function, module, name));
        return function;
    }

    const GpuDriver driver_;
    const GpuCompiler compiler_;
    std::unique_ptr<GpuTiles> tiles_;
    int device_ = 0, capability_ = 0;
    std::array<void*, 2> streams_{};
    GpuPointer in_ = 0, out_ = 0, facts_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
    // NVRTC, if it is not where the system looks.
    std::vector<std::string> compilers(argv + 1, argv + argc);
    for (const std::string& name : DeviceSpec().compilers)
        compilers.push_back(name);
    Bench bench(compilers);
    const double copy = bench.copyRate();
    fmt::print("{{\"device\": \"{}\", \"copy\": {:.0f}, \"digest\": {:.0f}", bench.device(), copy,
               bench.digestRate());
    const std::pair<DType, DType> pairs[] = {{DType::bfloat16, DType::float32},
                                             {DType::float32, DType::bfloat16},
                                             {DType::float32, DType::float16},
                                             {DType::bfloat16, DType::bfloat16},
                                             {DType::float32, DType::float8E4M3FN}};
    fmt::print(", \"cast\": {{");
    const char* comma = "";
    for (const auto& [from, to] : pairs) {
        fmt::print("{}\"{} to {}\": {:.0f}", comma, dtypeName(from), dtypeName(to), bench.castRate(from, to));
        comma = ", ";
    }
    fmt::print("}}, \"feed\": {{");
    comma = "";
    for (const auto& [from, to] : pairs) {
        const auto [fed, copied] = bench.feed(from, to);
        fmt::print("{}\"{} to {}\": [{:.0f}, {:.0f}]", comma, dtypeName(from), dtypeName(to), fed, copied);
        comma = ", ";
    }
    fmt::print("}}}}\n");
    return 0;
}
