// A driver of a GPU that there is not, and its NVRTC: "compiled" programs are their own text, and the kernels
// that they name run on the processor. What is asked of a stream is done when someone waits for it, not
// before. SHARDSCOPE_FAKE_GPU="fail N": the N-th call from the start of the program, or from a change of this
// variable, fails; "none": there is no GPU.
#include <array>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/accelerator/cuda_on_processor.h"
//
#include "accelerator/gpu/tile_kernels.cuh"

namespace {

using namespace shardscope::gpu;
using shardscope::test::launchOnProcessor;

constexpr int kOk = 0, kFailed = 700, kNoDevice = 100;

using Cast = void(const u8*, u8*, u8*, u64, const Cut&, u64*);
std::map<std::string, Cast*> casts;

template <class From>
void addSame(const std::string& from) {
    casts["castTile<" + from + ", " + from + ">"] = castTile<From, From>;
}
template <class From>
void addFrom(const std::string& from) {
    const auto add = [&](const char* to, Cast* cast) { casts["castTile<" + from + ", " + to + ">"] = cast; };
    add("Float16", castTile<From, Float16>);
    add("BFloat16", castTile<From, BFloat16>);
    add("Float32", castTile<From, Float32>);
    add("Float64", castTile<From, Float64>);
    add("Float8E4M3FN", castTile<From, Float8E4M3FN>);
    add("Float8E5M2", castTile<From, Float8E5M2>);
    add("Float8E4M3FNUZ", castTile<From, Float8E4M3FNUZ>);
    add("Float8E5M2FNUZ", castTile<From, Float8E5M2FNUZ>);
    add("Float8E8M0", castTile<From, Float8E8M0>);
}

void addCasts() {
    addFrom<Float16>("Float16");
    addFrom<BFloat16>("BFloat16");
    addFrom<Float32>("Float32");
    addFrom<Float64>("Float64");
    addFrom<Float8E4M3FN>("Float8E4M3FN");
    addFrom<Float8E5M2>("Float8E5M2");
    addFrom<Float8E4M3FNUZ>("Float8E4M3FNUZ");
    addFrom<Float8E5M2FNUZ>("Float8E5M2FNUZ");
    addFrom<Float8E8M0>("Float8E8M0");
    addFrom<Float6E2M3>("Float6E2M3");
    addFrom<Float6E3M2>("Float6E3M2");
    addSame<Complex32>("Complex32");
    addSame<BComplex32>("BComplex32");
    addSame<Complex64>("Complex64");
    addSame<Complex128>("Complex128");
    addSame<Whole8>("Whole8");
    addSame<Whole16>("Whole16");
    addSame<Whole32>("Whole32");
    addSame<Whole64>("Whole64");
    addSame<Float4x2>("Float4x2");
}

struct Stream {
    std::deque<std::function<void()>> waiting;
};

struct Module {
    Cast* cast = nullptr;  // null: the digest
};

struct Program {
    std::string source;
};

std::mutex mutex;

// Whether this call is the one that is to fail.
bool fails() {
    static std::string last;
    static long calls = 0;
    const char* said = std::getenv("SHARDSCOPE_FAKE_GPU");
    const std::string text = said ? said : "";
    std::lock_guard lock(mutex);
    if (text != last) {
        last = text;
        calls = 0;
    }
    const size_t at = text.find("fail ");
    return at != std::string::npos && ++calls == std::atol(text.c_str() + at + 5);
}

bool hidden() {
    const char* said = std::getenv("SHARDSCOPE_FAKE_GPU");
    return said && std::string(said) == "none";
}

int later(void* stream, std::function<void()> what) {
    if (fails()) return kFailed;
    static_cast<Stream*>(stream)->waiting.push_back(std::move(what));
    return kOk;
}

template <class T>
T parameter(void** parameters, int index) {
    T value;
    std::memcpy(&value, parameters[index], sizeof value);
    return value;
}

template <class T>
T* place(unsigned long long address) {
    return reinterpret_cast<T*>(address);
}

}  // namespace

#define FAKE __attribute__((visibility("default")))

extern "C" {

FAKE int cuInit(unsigned) {
    return hidden() ? kNoDevice : fails() ? kFailed : kOk;
}
FAKE int cuGetErrorString(int error, const char** text) {
    *text = error == kNoDevice ? "no CUDA-capable device is detected"
                               : "an illegal memory access was encountered";
    return kOk;
}
FAKE int cuDeviceGetCount(int* count) {
    const char* said = std::getenv("SHARDSCOPE_FAKE_GPU");
    *count = said && std::atoi(said) > 0 ? std::atoi(said) : 1;
    return fails() ? kFailed : kOk;
}
FAKE int cuDeviceGet(int* device, int index) {
    *device = index;
    return fails() ? kFailed : kOk;
}
FAKE int cuDeviceGetName(char* name, int size, int) {
    std::strncpy(name, "a GPU on the processor", static_cast<size_t>(size));
    return fails() ? kFailed : kOk;
}
FAKE int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
    for (int i = 0; i < 16; ++i)
        uuid[i] = static_cast<unsigned char>(i + device);
    return fails() ? kFailed : kOk;
}
FAKE int cuDeviceGetAttribute(int* value, int attribute, int) {
    *value = attribute == 16 ? 2 : attribute == 75 ? 9 : 0;
    return fails() ? kFailed : kOk;
}
FAKE int cuDevicePrimaryCtxRetain(void** context, int) {
    static int one;
    *context = &one;
    return fails() ? kFailed : kOk;
}
FAKE int cuDevicePrimaryCtxRelease_v2(int) {
    return kOk;
}
FAKE int cuCtxSetCurrent(void*) {
    return fails() ? kFailed : kOk;
}
FAKE int cuMemAlloc_v2(unsigned long long* memory, size_t bytes) {
    if (fails()) return kFailed;
    *memory = reinterpret_cast<unsigned long long>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
    return kOk;
}
FAKE int cuMemFree_v2(unsigned long long memory) {
    std::free(place<void>(memory));
    return kOk;
}
FAKE int cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
    if (fails()) return kFailed;
    *memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    return kOk;
}
FAKE int cuMemFreeHost(void* memory) {
    std::free(memory);
    return kOk;
}
FAKE int cuMemcpyHtoDAsync_v2(unsigned long long to, const void* from, size_t bytes, void* stream) {
    return later(stream, [=] { std::memcpy(place<void>(to), from, bytes); });
}
FAKE int cuMemcpyDtoHAsync_v2(void* to, unsigned long long from, size_t bytes, void* stream) {
    return later(stream, [=] { std::memcpy(to, place<void>(from), bytes); });
}
FAKE int cuMemcpyDtoDAsync_v2(unsigned long long to, unsigned long long from, size_t bytes, void* stream) {
    return later(stream, [=] { std::memcpy(place<void>(to), place<void>(from), bytes); });
}
FAKE int cuMemsetD8Async(unsigned long long memory, unsigned char value, size_t bytes, void* stream) {
    return later(stream, [=] { std::memset(place<void>(memory), value, bytes); });
}
FAKE int cuStreamCreate(void** stream, unsigned) {
    if (fails()) return kFailed;
    *stream = new Stream;
    return kOk;
}
FAKE int cuStreamSynchronize(void* stream) {
    auto& waiting = static_cast<Stream*>(stream)->waiting;
    for (; !waiting.empty(); waiting.pop_front())
        waiting.front()();
    return fails() ? kFailed : kOk;
}
FAKE int cuStreamDestroy_v2(void* stream) {
    delete static_cast<Stream*>(stream);
    return kOk;
}
FAKE int cuEventCreate(void** event, unsigned) {
    *event = nullptr;
    return kOk;
}
FAKE int cuEventRecord(void*, void*) {
    return kOk;
}
FAKE int cuEventElapsedTime(float* milliseconds, void*, void*) {
    *milliseconds = 1;
    return kOk;
}
FAKE int cuEventDestroy_v2(void*) {
    return kOk;
}
FAKE int cuModuleLoadData(void** made, const void* image) {
    if (fails()) return kFailed;
    const std::string text(static_cast<const char*>(image));
    auto loaded = std::make_unique<Module>();
    if (const size_t at = text.find("castTile<"); at != std::string::npos) {
        std::lock_guard lock(mutex);
        if (casts.empty()) addCasts();
        const auto found = casts.find(text.substr(at, text.find('>', at) + 1 - at));
        if (found == casts.end()) return kFailed;
        loaded->cast = found->second;
    }
    *made = loaded.release();
    return kOk;
}
FAKE int cuModuleUnload(void* loaded) {
    delete static_cast<Module*>(loaded);
    return kOk;
}
FAKE int cuModuleGetFunction(void** function, void* loaded, const char* name) {
    *function = loaded;
    const bool cast = std::strcmp(name, "shardscope_cast") == 0;
    return fails() || cast != (static_cast<Module*>(loaded)->cast != nullptr) ? kFailed : kOk;
}
FAKE int cuLaunchKernel(void* function, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned,
                        unsigned, unsigned, void* stream, void** parameters, void**) {
    using Address = unsigned long long;
    if (Cast* cast = static_cast<Module*>(function)->cast) {
        const auto from = parameter<Address>(parameters, 0), to = parameter<Address>(parameters, 1),
                   strips = parameter<Address>(parameters, 2), counts = parameter<Address>(parameters, 5);
        const auto elements = parameter<u64>(parameters, 3);
        const auto cut = parameter<Cut>(parameters, 4);
        // Blocks continue until all is done, however few they are; fewer cost less here.
        const unsigned few = blocks < 12 ? blocks : 12;
        return later(stream, [=] {
            launchOnProcessor(few, threads, [&] {
                cast(place<u8>(from), place<u8>(to), place<u8>(strips), elements, cut, place<u64>(counts));
            });
        });
    }
    const auto bytes = parameter<Address>(parameters, 0), digests = parameter<Address>(parameters, 3);
    const auto total = parameter<u64>(parameters, 1), cell = parameter<u64>(parameters, 2);
    return later(stream, [=] {
        launchOnProcessor(blocks, threads,
                          [&] { digestCells(place<u8>(bytes), total, cell, place<Digest>(digests)); });
    });
}

FAKE int nvrtcVersion(int* major, int* minor) {
    *major = 13;
    *minor = 0;
    return kOk;
}
FAKE int nvrtcGetNumSupportedArchs(int* count) {
    *count = 2;
    return kOk;
}
FAKE int nvrtcGetSupportedArchs(int* architectures) {
    architectures[0] = 80;
    architectures[1] = 90;
    return kOk;
}
FAKE int nvrtcCreateProgram(void** program, const char* source, const char*, int, const char* const*,
                            const char* const*) {
    if (fails()) return kFailed;
    *program = new Program{source};
    return kOk;
}
FAKE int nvrtcDestroyProgram(void** program) {
    delete static_cast<Program*>(*program);
    *program = nullptr;
    return kOk;
}
FAKE int nvrtcCompileProgram(void*, int, const char* const*) {
    return fails() ? kFailed : kOk;
}
FAKE int nvrtcGetProgramLogSize(void*, size_t* bytes) {
    *bytes = 1;
    return kOk;
}
FAKE int nvrtcGetProgramLog(void*, char* log) {
    *log = 0;
    return kOk;
}
FAKE int nvrtcGetCUBINSize(void* program, size_t* bytes) {
    *bytes = static_cast<Program*>(program)->source.size() + 1;
    return kOk;
}
FAKE int nvrtcGetCUBIN(void* program, char* image) {
    const std::string& source = static_cast<Program*>(program)->source;
    std::memcpy(image, source.c_str(), source.size() + 1);
    return kOk;
}
FAKE int nvrtcGetPTXSize(void*, size_t*) {
    return kFailed;
}
FAKE int nvrtcGetPTX(void*, char*) {
    return kFailed;
}
}
