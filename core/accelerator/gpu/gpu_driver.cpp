#include "accelerator/gpu/gpu_driver.h"

#include <algorithm>

#include <dlfcn.h>
#include <fmt/format.h>

#include "accelerator/gpu/kernel_files.h"
#include "base/option_words.h"

namespace shardscope {
namespace {

template <class Call>
bool find(void* library, const char* name, Call*& call) {
    call = reinterpret_cast<Call*>(dlsym(library, name));
    return call != nullptr;
}

std::string trimmed(std::string text) {
    while (!text.empty() && (text.back() == '\0' || text.back() == '\n'))
        text.pop_back();
    return text;
}

}  // namespace

// ------------------------------------------------------------------ the driver

Result<GpuDriver> GpuDriver::open(const std::string& library) {
    void* opened = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!opened)
        return unsupported(fmt::format("there is no driver for NVIDIA's GPUs here ({})", library))
            .withHint(fmt::format("use {}, or start ranks only where GPUs are", option("compute", "cpu")));
    GpuDriver driver;
    const char* missing = nullptr;
#define SHARDSCOPE_FIND(name, parameters) \
    if (!find(opened, #name, driver.name)) missing = #name;
    SHARDSCOPE_DRIVER_CALLS(SHARDSCOPE_FIND)
#undef SHARDSCOPE_FIND
    if (missing)
        return unsupported(
                   fmt::format("the driver of the GPUs ({}) is too old: it has no {}", library, missing))
            .withHint(fmt::format("use {}, or a driver of CUDA 11.4 or later", option("compute", "cpu")));
    if (const int result = driver.cuInit(0); result != 0)
        return unsupported(driver.check(result, "start the driver of the GPUs").error().message)
            .withHint(fmt::format("nvidia-smi shows what is wrong; {} works without a GPU",
                                  option("compute", "cpu")));
    int count = 0;
    SHARDSCOPE_TRY(driver.check(driver.cuDeviceGetCount(&count), "count the GPUs"));
    if (count == 0)
        return unsupported("this machine has no GPU that can be used")
            .withHint(fmt::format("use {}, or start ranks only where GPUs are", option("compute", "cpu")));
    return driver;
}

Status GpuDriver::check(int result, std::string_view doing) const {
    if (result == 0) return {};
    const char* said = nullptr;
    if (cuGetErrorString(result, &said) != 0 || !said) said = "the driver does not say why";
    return makeError(ErrorCode::io, fmt::format("could not {}: {} (CUDA error {})", doing, said, result))
        .withHint(option("compute", "cpu") + " does the same without the GPU");
}

// ------------------------------------------------------------------ the compiler

Result<GpuCompiler> GpuCompiler::open(const std::vector<std::string>& libraries) {
    void* opened = nullptr;
    for (const std::string& library : libraries) {
        opened = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (opened) break;
    }
    if (!opened)
        return unsupported("the compiler for GPUs, NVRTC (libnvrtc.so), was not found")
            .withHint(fmt::format("it comes with libtorch for CUDA (packaging/libtorch nccl); {} needs none",
                                  option("compute", "cpu")));
    GpuCompiler compiler;
    const char* missing = nullptr;
#define SHARDSCOPE_FIND(name, parameters) \
    if (!find(opened, #name, compiler.name)) missing = #name;
    SHARDSCOPE_COMPILER_CALLS(SHARDSCOPE_FIND)
#undef SHARDSCOPE_FIND
    int count = 0, major = 0, minor = 0;
    if (missing || compiler.nvrtcVersion(&major, &minor) != 0 || major < 12 ||
        compiler.nvrtcGetNumSupportedArchs(&count) != 0 || count <= 0)
        return unsupported("the compiler for GPUs, NVRTC, is too old: 12.0 or later is needed")
            .withHint(option("compute", "cpu") + " needs none");
    compiler.capabilities_.resize(static_cast<size_t>(count));
    compiler.nvrtcGetSupportedArchs(compiler.capabilities_.data());
    std::sort(compiler.capabilities_.begin(), compiler.capabilities_.end());
    compiler.version_ = fmt::format("{}.{}", major, minor);
    return compiler;
}

Result<GpuCompiler::Compiled> GpuCompiler::compile(const std::string& program, int capability) const {
    if (capability < capabilities_.front())
        return unsupported(fmt::format("a GPU of compute capability {}.{} is too old for NVRTC {}",
                                       capability / 10, capability % 10, version_))
            .withHint("use " + option("compute", "cpu"));
    // Code for just this GPU; or where it is not known, the newest that is, to be finished by the driver.
    const bool known = std::binary_search(capabilities_.begin(), capabilities_.end(), capability);
    const int nearest = *std::prev(std::upper_bound(capabilities_.begin(), capabilities_.end(), capability));
    const std::string architecture =
        fmt::format("--gpu-architecture={}_{}", known ? "sm" : "compute", nearest);
    const std::vector<const char*> options{architecture.c_str(), "--std=c++20",
                                           "--device-as-default-execution-space"};
    std::vector<const char*> texts, names;
    for (const KernelFile& file : kernelFiles()) {
        texts.push_back(file.text);
        names.push_back(file.name);
    }
    void* made = nullptr;
    if (nvrtcCreateProgram(&made, program.c_str(), "shardscope.cu", static_cast<int>(texts.size()),
                           texts.data(), names.data()) != 0)
        return makeError(ErrorCode::internal, "NVRTC takes no program");
    const auto ended = [this](void* handle) { nvrtcDestroyProgram(&handle); };
    const std::unique_ptr<void, decltype(ended)> handle(made, ended);
    const int failed = nvrtcCompileProgram(made, static_cast<int>(options.size()), options.data());
    Compiled compiled;
    const auto take = [made](auto size, auto get) {
        size_t bytes = 0;
        if (size(made, &bytes) != 0) bytes = 0;
        std::string text(bytes, '\0');
        if (bytes > 0 && get(made, text.data()) != 0) text.clear();
        return text;
    };
    compiled.log = trimmed(take(nvrtcGetProgramLogSize, nvrtcGetProgramLog));
    if (failed != 0)
        return makeError(ErrorCode::internal,
                         fmt::format("NVRTC {} does not compile the kernels: {}", version_, compiled.log))
            .withHint(option("compute", "cpu") + " needs none");
    compiled.image = known ? take(nvrtcGetCUBINSize, nvrtcGetCUBIN) : take(nvrtcGetPTXSize, nvrtcGetPTX);
    if (compiled.image.empty()) return makeError(ErrorCode::internal, "NVRTC gives no code for this GPU");
    return compiled;
}

}  // namespace shardscope
