// NVIDIA's driver and its compiler NVRTC, opened at run time: a machine without them runs the rest, and
// nothing of CUDA is needed to build. Private to this room and its tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace shardscope {

// As cuda.h and nvrtc.h declare them.
using GpuPointer = unsigned long long;
struct GpuUuid {
    unsigned char bytes[16];
};

#define SHARDSCOPE_DRIVER_CALLS(CALL)                                                                       \
    CALL(cuInit, (unsigned flags))                                                                          \
    CALL(cuGetErrorString, (int error, const char** text))                                                  \
    CALL(cuDeviceGetCount, (int* count))                                                                    \
    CALL(cuDeviceGet, (int* device, int index))                                                             \
    CALL(cuDeviceGetName, (char* name, int size, int device))                                               \
    CALL(cuDeviceGetUuid_v2, (GpuUuid * uuid, int device))                                                  \
    CALL(cuDeviceGetAttribute, (int* value, int attribute, int device))                                     \
    CALL(cuDevicePrimaryCtxRetain, (void** context, int device))                                            \
    CALL(cuDevicePrimaryCtxRelease_v2, (int device))                                                        \
    CALL(cuCtxSetCurrent, (void* context))                                                                  \
    CALL(cuMemAlloc_v2, (GpuPointer * memory, size_t bytes))                                                \
    CALL(cuMemFree_v2, (GpuPointer memory))                                                                 \
    CALL(cuMemHostAlloc, (void** memory, size_t bytes, unsigned flags))                                     \
    CALL(cuMemFreeHost, (void* memory))                                                                     \
    CALL(cuMemcpyHtoDAsync_v2, (GpuPointer to, const void* from, size_t bytes, void* stream))               \
    CALL(cuMemcpyDtoHAsync_v2, (void* to, GpuPointer from, size_t bytes, void* stream))                     \
    CALL(cuMemcpyDtoDAsync_v2, (GpuPointer to, GpuPointer from, size_t bytes, void* stream))                \
    CALL(cuMemsetD8Async, (GpuPointer memory, unsigned char value, size_t bytes, void* stream))             \
    CALL(cuStreamCreate, (void** stream, unsigned flags))                                                   \
    CALL(cuStreamSynchronize, (void* stream))                                                               \
    CALL(cuStreamDestroy_v2, (void* stream))                                                                \
    CALL(cuEventCreate, (void** event, unsigned flags))                                                     \
    CALL(cuEventRecord, (void* event, void* stream))                                                        \
    CALL(cuEventElapsedTime, (float* milliseconds, void* begin, void* end))                                 \
    CALL(cuEventDestroy_v2, (void* event))                                                                  \
    CALL(cuModuleLoadData, (void** module, const void* image))                                              \
    CALL(cuModuleUnload, (void* module))                                                                    \
    CALL(cuModuleGetFunction, (void** function, void* module, const char* name))                            \
    CALL(cuLaunchKernel,                                                                                    \
         (void* function, unsigned gridX, unsigned gridY, unsigned gridZ, unsigned blockX, unsigned blockY, \
          unsigned blockZ, unsigned shared, void* stream, void** parameters, void** extra))

#define SHARDSCOPE_COMPILER_CALLS(CALL)                                                          \
    CALL(nvrtcVersion, (int* major, int* minor))                                                 \
    CALL(nvrtcGetNumSupportedArchs, (int* count))                                                \
    CALL(nvrtcGetSupportedArchs, (int* architectures))                                           \
    CALL(nvrtcCreateProgram, (void** program, const char* source, const char* name, int headers, \
                              const char* const* texts, const char* const* names))               \
    CALL(nvrtcDestroyProgram, (void** program))                                                  \
    CALL(nvrtcCompileProgram, (void* program, int options, const char* const* texts))            \
    CALL(nvrtcGetProgramLogSize, (void* program, size_t* bytes))                                 \
    CALL(nvrtcGetProgramLog, (void* program, char* log))                                         \
    CALL(nvrtcGetCUBINSize, (void* program, size_t* bytes))                                      \
    CALL(nvrtcGetCUBIN, (void* program, char* image))                                            \
    CALL(nvrtcGetPTXSize, (void* program, size_t* bytes))                                        \
    CALL(nvrtcGetPTX, (void* program, char* text))

#define SHARDSCOPE_DECLARE_CALL(name, parameters) int(*name) parameters = nullptr;

// Stays open as long as the program runs.
struct GpuDriver {
    SHARDSCOPE_DRIVER_CALLS(SHARDSCOPE_DECLARE_CALL)

    // Errors: unsupported (no driver, none that works, no GPU).
    static Result<GpuDriver> open(const std::string& library);
    // Good, or what the driver says about `doing`.
    Status check(int result, std::string_view doing) const;
};

class GpuCompiler {
  public:
    // The first library that can be opened. Errors: unsupported.
    static Result<GpuCompiler> open(const std::vector<std::string>& libraries);

    struct Compiled {
        std::string image;  // for cuModuleLoadData
        std::string log;    // warnings
    };
    // A program that may include what the kernels are made of, for a GPU of this compute capability (90 =
    // 9.0). Where the GPU is newer than this compiler, its driver finishes the program. Errors: unsupported
    // (older than the compiler knows), internal (it does not compile).
    Result<Compiled> compile(const std::string& program, int capability) const;

    const std::vector<int>& capabilities() const { return capabilities_; }  // ascending
    const std::string& version() const { return version_; }

  private:
    SHARDSCOPE_COMPILER_CALLS(SHARDSCOPE_DECLARE_CALL)
    std::vector<int> capabilities_;
    std::string version_;
};

#undef SHARDSCOPE_DECLARE_CALL

}  // namespace shardscope
