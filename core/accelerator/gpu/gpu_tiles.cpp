#include "accelerator/gpu/gpu_tiles.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>

#include <fmt/format.h>

#include "accelerator/gpu/gpu_driver.h"
#include "accelerator/gpu/tile_cut.h"
#include "base/units.h"
#include "execute/values.h"

namespace shardscope {
namespace {

// Attributes of a device, and flags, by their numbers in cuda.h.
constexpr int kCapabilityMajor = 75, kCapabilityMinor = 76;
constexpr unsigned kPortable = 1, kNonBlocking = 1;

// So much of a tile goes its way while the next part comes.
constexpr size_t kPartBytes = size_t{4} << 20;

// The element types of tile_kernels.cuh; empty = none that counts or casts.
std::string_view kernelType(DType dtype) {
    switch (dtype) {
        case DType::float16:
            return "Float16";
        case DType::bfloat16:
            return "BFloat16";
        case DType::float32:
            return "Float32";
        case DType::float64:
            return "Float64";
        case DType::complex32:
            return "Complex32";
        case DType::bcomplex32:
            return "BComplex32";
        case DType::complex64:
            return "Complex64";
        case DType::complex128:
            return "Complex128";
        case DType::float8E4M3FN:
            return "Float8E4M3FN";
        case DType::float8E5M2:
            return "Float8E5M2";
        case DType::float8E4M3FNUZ:
            return "Float8E4M3FNUZ";
        case DType::float8E5M2FNUZ:
            return "Float8E5M2FNUZ";
        case DType::float8E8M0FNU:
            return "Float8E8M0";
        case DType::float4E2M1FNx2:
            return "Float4x2";
        case DType::float6E2M3:
            return "Float6E2M3";
        case DType::float6E3M2:
            return "Float6E3M2";
        default:
            break;
    }
    constexpr std::array<std::string_view, 9> whole{"", "Whole8", "Whole16", "",       "Whole32",
                                                    "", "",       "",        "Whole64"};
    return whole[dtypeBytes(dtype)];
}

constexpr std::string_view kProgramBegin =
    "#include \"accelerator/gpu/tile_kernels.cuh\"\nusing namespace shardscope::gpu;\nextern \"C\" "
    "__global__ ";

std::string hexOf(const GpuUuid& uuid) {
    std::string text;
    for (const unsigned char byte : uuid.bytes)
        text += fmt::format("{:02x}", byte);
    return text;
}

// ------------------------------------------------------------------ memory and streams

// Memory of the GPU, or of this machine that the GPU reaches by itself; grows.
class GpuMemory {
  public:
    GpuMemory(const GpuDriver& driver, bool pinned) : driver_(driver), pinned_(pinned) {}
    GpuMemory(const GpuMemory&) = delete;
    GpuMemory& operator=(const GpuMemory&) = delete;
    ~GpuMemory() { drop(); }

    Status ensure(size_t bytes) {
        if (bytes <= size_) return {};
        drop();
        const std::string doing = fmt::format("get {} of {}", counted(bytes, "byte"),
                                              pinned_ ? "memory that the GPU reaches" : "the GPU's memory");
        SHARDSCOPE_TRY(driver_.check(pinned_ ? driver_.cuMemHostAlloc(&host_, bytes, kPortable)
                                             : driver_.cuMemAlloc_v2(&device_, bytes),
                                     doing));
        size_ = bytes;
        return {};
    }
    GpuPointer device() const { return device_; }
    std::byte* host() const { return static_cast<std::byte*>(host_); }
    size_t size() const { return size_; }

  private:
    void drop() {
        if (size_ > 0) pinned_ ? driver_.cuMemFreeHost(host_) : driver_.cuMemFree_v2(device_);
        size_ = 0;
    }
    const GpuDriver& driver_;
    const bool pinned_;
    GpuPointer device_ = 0;
    void* host_ = nullptr;
    size_t size_ = 0;
};

// One of two ways through the GPU: while a part is on one of them, the next comes in on the other.
struct Way {
    explicit Way(const GpuDriver& calls)
        : driver(calls), in(calls, false), cast(calls, false), strips(calls, false), facts(calls, false) {}
    Way(const Way&) = delete;
    Way& operator=(const Way&) = delete;
    ~Way() {
        if (stream) driver.cuStreamDestroy_v2(stream);
    }
    const GpuDriver& driver;
    void* stream = nullptr;
    GpuMemory in, cast, strips;
    GpuMemory facts;  // three counts of the whole tile, then the digests of a part's cells
};

// What one tile at a time uses.
struct Lane {
    explicit Lane(const GpuDriver& driver) : ways{Way(driver), Way(driver)}, facts(driver, true) {}
    std::array<Way, 2> ways;
    GpuMemory facts;  // of both ways: counts, then digests of all cells
};

struct Room {
    explicit Room(const GpuDriver& driver) : read(driver, true), cast(driver, true) {}
    GpuMemory read, cast;
};

// Things that are made when all of them are in use.
template <class T>
class Pool {
  public:
    std::unique_ptr<T> take() {
        std::lock_guard lock(mutex_);
        if (free_.empty()) return nullptr;
        auto one = std::move(free_.back());
        free_.pop_back();
        return one;
    }
    void give(std::unique_ptr<T> one) {
        std::lock_guard lock(mutex_);
        free_.push_back(std::move(one));
    }
    void clear() {
        std::lock_guard lock(mutex_);
        free_.clear();
    }

  private:
    std::mutex mutex_;
    std::vector<std::unique_ptr<T>> free_;
};

struct Program {
    void* module = nullptr;
    void* function = nullptr;
};

// ------------------------------------------------------------------ the tiles

class CudaTiles final : public GpuTiles {
  public:
    CudaTiles(const GpuDriver& driver, GpuCompiler compiler)
        : driver_(driver), compiler_(std::move(compiler)) {}

    ~CudaTiles() override {
        if (!context_) return;
        driver_.cuCtxSetCurrent(context_);
        lanes_.clear();
        rooms_.clear();
        for (const auto& [text, program] : programs_)
            driver_.cuModuleUnload(program.module);
        driver_.cuDevicePrimaryCtxRelease_v2(device_);
    }

    Status open(int index) {
        int count = 0, major = 0, minor = 0;
        std::array<char, 128> name{};
        GpuUuid uuid{};
        SHARDSCOPE_TRY(driver_.check(driver_.cuDeviceGetCount(&count), "count the GPUs"));
        SHARDSCOPE_TRY(driver_.check(driver_.cuDeviceGet(&device_, index % count), "find the GPU"));
        SHARDSCOPE_TRY(
            driver_.check(driver_.cuDeviceGetName(name.data(), static_cast<int>(name.size()) - 1, device_),
                          "name the GPU"));
        SHARDSCOPE_TRY(driver_.check(driver_.cuDeviceGetUuid_v2(&uuid, device_), "identify the GPU"));
        SHARDSCOPE_TRY(
            driver_.check(driver_.cuDeviceGetAttribute(&major, kCapabilityMajor, device_), "ask the GPU"));
        SHARDSCOPE_TRY(
            driver_.check(driver_.cuDeviceGetAttribute(&minor, kCapabilityMinor, device_), "ask the GPU"));
        SHARDSCOPE_TRY(
            driver_.check(driver_.cuDevicePrimaryCtxRetain(&context_, device_), "open the GPU for work"));
        name_ = name.data();
        uuid_ = hexOf(uuid);
        capability_ = major * 10 + minor;
        // What every tile needs; so a compiler that does not do is found out before the work begins.
        SHARDSCOPE_TRY(driver_.check(driver_.cuCtxSetCurrent(context_), "use the GPU"));
        SHARDSCOPE_ASSIGN(const Program digest, program(digestProgram(), "shardscope_digest"));
        (void)digest;
        return {};
    }

    const std::string& device() const override { return name_; }
    const std::string& uuid() const override { return uuid_; }
    std::string_view name() const override { return "gpu"; }

    Result<TileBuffers> room(size_t readBytes, size_t castBytes) override {
        SHARDSCOPE_TRY(driver_.check(driver_.cuCtxSetCurrent(context_), "use the GPU"));
        std::unique_ptr<Room> taken = rooms_.take();
        if (!taken) taken = std::make_unique<Room>(driver_);
        // Given back when the tile is written.
        std::shared_ptr<Room> held(taken.release(), [this](Room* room) {
            driver_.cuCtxSetCurrent(context_);
            rooms_.give(std::unique_ptr<Room>(room));
        });
        SHARDSCOPE_TRY(held->read.ensure(readBytes));
        SHARDSCOPE_TRY(held->cast.ensure(castBytes));
        TileBuffers room;
        room.read = {held->read.host(), readBytes};
        room.cast = {held->cast.host(), castBytes};
        room.held = std::move(held);
        return room;
    }

    bool cuts(const TileTask& task) const override { return cutFits(task); }

    Status run(const TileTask& task, TileFacts& facts) override {
        if (task.elements == 0) return {};
        SHARDSCOPE_TRY(driver_.check(driver_.cuCtxSetCurrent(context_), "use the GPU"));
        std::unique_ptr<Lane> lane = lanes_.take();
        if (!lane) {
            lane = std::make_unique<Lane>(driver_);
            for (Way& way : lane->ways)
                SHARDSCOPE_TRY(driver_.check(driver_.cuStreamCreate(&way.stream, kNonBlocking),
                                             "make a stream of the GPU"));
        }
        Status status = runOn(*lane, task);
        // Nothing may continue to write into memory that is about to be given back.
        for (const Way& way : lane->ways) {
            Status waited = driver_.check(driver_.cuStreamSynchronize(way.stream), "do a tile on the GPU");
            if (status.ok()) status = std::move(waited);
        }
        if (status.ok()) takeFacts(*lane, task, facts);
        lanes_.give(std::move(lane));
        return status;
    }

  private:
    static size_t cellsIn(int64_t elements, int64_t perCell) {
        return static_cast<size_t>((elements + perCell - 1) / perCell);
    }

    Status runOn(Lane& lane, const TileTask& task) {
        const int64_t perCell = digestCellElements(task.to);
        const size_t widest =
            std::max(bytesOfElements(task.from, perCell), bytesOfElements(task.to, perCell));
        const int64_t perPart = static_cast<int64_t>(std::max<size_t>(kPartBytes / widest, 1)) * perCell;
        const bool casts = task.from != task.to;
        const bool cut = !task.cut.strips.empty();
        const std::string text = task.scan || casts || cut ? castProgram(task.from, task.to) : "";
        std::optional<Program> cast;
        if (!text.empty()) {
            SHARDSCOPE_ASSIGN(cast, program(text, "shardscope_cast"));
        }
        SHARDSCOPE_ASSIGN(const Program digest, program(digestProgram(), "shardscope_digest"));

        const int64_t most = std::min(perPart, task.elements);
        const size_t cells = cellsIn(most, perCell);
        SHARDSCOPE_TRY(
            lane.facts.ensure(2 * kCountBytes + cellsIn(task.elements, perCell) * sizeof(Digest128)));
        for (Way& way : lane.ways) {
            SHARDSCOPE_TRY(way.in.ensure(bytesOfElements(task.from, most)));
            if (casts) SHARDSCOPE_TRY(way.cast.ensure(bytesOfElements(task.to, most)));
            if (cut) SHARDSCOPE_TRY(way.strips.ensure(bytesOfElements(task.to, most)));
            SHARDSCOPE_TRY(way.facts.ensure(kCountBytes + cells * sizeof(Digest128)));
            SHARDSCOPE_TRY(
                driver_.check(driver_.cuMemsetD8Async(way.facts.device(), 0, kCountBytes, way.stream),
                              "clear the GPU's memory"));
        }
        size_t turn = 0;
        for (int64_t at = 0; at < task.elements; at += perPart, ++turn)
            SHARDSCOPE_TRY(part(lane, lane.ways[turn % 2], task, at, std::min(perPart, task.elements - at),
                                cast, digest));
        for (size_t i = 0; i < lane.ways.size(); ++i)
            SHARDSCOPE_TRY(driver_.check(
                driver_.cuMemcpyDtoHAsync_v2(lane.facts.host() + i * kCountBytes, lane.ways[i].facts.device(),
                                             kCountBytes, lane.ways[i].stream),
                "copy from the GPU"));
        return {};
    }

    // One after the other on the way's stream; so a way's memory is free again when its next part comes.
    Status part(Lane& lane, Way& way, const TileTask& task, int64_t at, int64_t elements,
                const std::optional<Program>& cast, const Program& digest) {
        const bool casts = task.from != task.to;
        const size_t fromBegin = bytesOfElements(task.from, at),
                     fromBytes = bytesOfElements(task.from, elements);
        const size_t toBegin = bytesOfElements(task.to, at), toBytes = bytesOfElements(task.to, elements);
        SHARDSCOPE_TRY(
            driver_.check(driver_.cuMemcpyHtoDAsync_v2(way.in.device(), task.read.data() + fromBegin,
                                                       fromBytes, way.stream),
                          "copy to the GPU"));
        const bool cut = !task.cut.strips.empty();
        const PartCut strips = cut ? partCut(task, at, elements) : PartCut{};
        if (cast) {
            GpuPointer from = way.in.device(), to = casts ? way.cast.device() : 0,
                       pieces = cut ? way.strips.device() : 0, counts = task.scan ? way.facts.device() : 0;
            auto count = static_cast<unsigned long long>(elements);
            gpu::Cut place = strips.cut;
            std::array<void*, 6> parameters{&from, &to, &pieces, &count, &place, &counts};
            SHARDSCOPE_TRY(launch(*cast, castBlocks(task.from, task.to, elements), kCastThreads, way.stream,
                                  parameters.data()));
        }
        const int64_t perCell = digestCellElements(task.to);
        const size_t cells = cellsIn(elements, perCell);
        const GpuPointer ready = casts ? way.cast.device() : way.in.device(),
                         digests = way.facts.device() + kCountBytes;
        {
            GpuPointer bytes = ready, out = digests;
            unsigned long long total = toBytes, cellBytes = bytesOfElements(task.to, perCell);
            std::array<void*, 4> parameters{&bytes, &total, &cellBytes, &out};
            SHARDSCOPE_TRY(
                launch(digest, static_cast<unsigned>(cells), kDigestThreads, way.stream, parameters.data()));
        }
        std::byte* facts =
            lane.facts.host() + 2 * kCountBytes + static_cast<size_t>(at / perCell) * sizeof(Digest128);
        SHARDSCOPE_TRY(fetch(facts, digests, cells * sizeof(Digest128), way.stream));
        for (const PartCut::Strip& strip : strips.strips)
            SHARDSCOPE_TRY(fetch(task.cut.strips[strip.index].data() + strip.to,
                                 way.strips.device() + strip.from, strip.bytes, way.stream));
        if (!cut && casts) SHARDSCOPE_TRY(fetch(task.cast.data() + toBegin, ready, toBytes, way.stream));
        return {};
    }

    Status fetch(std::byte* to, GpuPointer from, size_t bytes, void* stream) {
        return driver_.check(driver_.cuMemcpyDtoHAsync_v2(to, from, bytes, stream), "copy from the GPU");
    }

    Status launch(const Program& program, unsigned grid, unsigned threads, void* stream, void** parameters) {
        return driver_.check(driver_.cuLaunchKernel(program.function, grid, 1, 1, threads, 1, 1, 0, stream,
                                                    parameters, nullptr),
                             "start work on the GPU");
    }

    void takeFacts(const Lane& lane, const TileTask& task, TileFacts& facts) const {
        if (task.scan) {
            for (size_t i = 0; i < lane.ways.size(); ++i) {
                std::array<uint64_t, 3> counts{};
                std::memcpy(counts.data(), lane.facts.host() + i * kCountBytes, sizeof counts);
                facts.counts.nan += counts[0];
                facts.counts.inf += counts[1];
                facts.counts.zero += counts[2];
            }
            facts.counts.elements += static_cast<uint64_t>(task.elements);
        }
        const size_t cells = cellsIn(task.elements, digestCellElements(task.to));
        for (size_t i = 0; i < cells; ++i) {
            Digest128 digest;
            std::memcpy(&digest, lane.facts.host() + 2 * kCountBytes + i * sizeof digest, sizeof digest);
            facts.cells.push_back(digest);
        }
    }

    // Compiled once.
    Result<Program> program(const std::string& text, const char* function) {
        std::lock_guard lock(programsMutex_);
        if (const auto found = programs_.find(text); found != programs_.end()) return found->second;
        SHARDSCOPE_ASSIGN(const GpuCompiler::Compiled compiled, compiler_.compile(text, capability_));
        Program made;
        SHARDSCOPE_TRY(driver_.check(driver_.cuModuleLoadData(&made.module, compiled.image.c_str()),
                                     "load a program into the GPU"));
        Status found = driver_.check(driver_.cuModuleGetFunction(&made.function, made.module, function),
                                     "load a program into the GPU");
        if (!found.ok()) {
            driver_.cuModuleUnload(made.module);
            return std::move(found).error();
        }
        programs_[text] = made;
        return made;
    }

    static constexpr size_t kCountBytes = 32;  // NaN, infinite, zero; digests behind them stay aligned

    const GpuDriver driver_;
    const GpuCompiler compiler_;
    int device_ = 0, capability_ = 0;
    void* context_ = nullptr;
    std::string name_, uuid_;
    Pool<Lane> lanes_;
    Pool<Room> rooms_;
    std::mutex programsMutex_;
    std::map<std::string, Program> programs_;
};

}  // namespace

std::string castProgram(DType from, DType to) {
    // Six-bit values have nothing to count.
    if (from == to && !dtypeIsWholeBytes(to)) return "";
    return fmt::format(
        "{}void shardscope_cast(const u8* from, u8* to, u8* strips, u64 elements, const __grid_constant__ "
        "Cut cut, "
        "u64* counts) {{\n    castTile<{}, {}>(from, to, strips, elements, cut, counts);\n}}\n",
        kProgramBegin, kernelType(from), kernelType(to));
}

unsigned castBlocks(DType from, DType to, int64_t elements) {
    constexpr int64_t kUnits = 4;  // for each thread, so that a block is worth its beginning and its end
    const int64_t unit = std::max<int64_t>(128 / std::max(dtypeBits(from), dtypeBits(to)), 1);
    return static_cast<unsigned>(elements / (unit * kUnits * kCastThreads) + 1);
}

std::string digestProgram() {
    return fmt::format(
        "{}void shardscope_digest(const u8* bytes, u64 total, u64 cellBytes, Digest* digests) {{\n    "
        "digestCells(bytes, total, cellBytes, digests);\n}}\n",
        kProgramBegin);
}

Result<std::unique_ptr<GpuTiles>> GpuTiles::open(const DeviceSpec& spec) {
    SHARDSCOPE_ASSIGN(const GpuDriver driver, GpuDriver::open(spec.driver));
    SHARDSCOPE_ASSIGN(GpuCompiler compiler, GpuCompiler::open(spec.compilers));
    auto tiles = std::make_unique<CudaTiles>(driver, std::move(compiler));
    SHARDSCOPE_TRY(tiles->open(spec.device));
    return std::unique_ptr<GpuTiles>(std::move(tiles));
}

}  // namespace shardscope
