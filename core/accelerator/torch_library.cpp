#include "accelerator/torch_library.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include "accelerator/gpu/gpu_tiles.h"
#include "accelerator/torch_module.h"
#include "base/own_program.h"
#include "cluster/socket.h"

namespace shardscope {
namespace {

Result<const TorchFunctions*> torchFunctions() {
    static const Result<const TorchFunctions*> loaded = []() -> Result<const TorchFunctions*> {
        void* module = dlopen(besideOwnProgram(TorchFunctions::kFile).c_str(), RTLD_NOW | RTLD_LOCAL);
        if (!module)
            return makeError(ErrorCode::impossible, fmt::format("libtorch cannot be loaded: {}", dlerror()))
                .withHint("libshardscope_torch.so must be beside shardscope-worker: build both again");
        const auto entry =
            reinterpret_cast<const TorchFunctions* (*)()>(dlsym(module, TorchFunctions::kEntry));
        if (!entry) return makeError(ErrorCode::impossible, "the libtorch module is not of this program");
        return entry();
    }();
    return loaded;
}

// NVRTC: what the environment names, else what came with libtorch, else the system's.
std::vector<std::string> gpuCompilers() {
    if (const char* named = std::getenv("SHARDSCOPE_NVRTC"); named && *named) return {named};
    std::vector<std::string> found;
    link_map* map = nullptr;
    void* torch = dlopen("libc10.so", RTLD_NOW | RTLD_NOLOAD);
    if (torch && dlinfo(torch, RTLD_DI_LINKMAP, static_cast<void*>(&map)) == 0 && map) {
        // <packages>/torch/lib/libc10.so, and <packages>/nvidia/cu13/lib/libnvrtc.so.13
        const auto nvidia =
            std::filesystem::path(map->l_name).parent_path().parent_path().parent_path() / "nvidia";
        std::error_code error;
        for (const auto& version : std::filesystem::directory_iterator(nvidia, error)) {
            std::error_code none;
            for (const auto& file : std::filesystem::directory_iterator(version.path() / "lib", none))
                if (file.path().filename().string().starts_with("libnvrtc.so.")) found.push_back(file.path());
        }
        std::sort(found.rbegin(), found.rend());
    }
    for (const std::string& name : DeviceSpec().compilers)
        found.push_back(name);
    return found;
}

}  // namespace

Result<std::unique_ptr<ProcessGroup>> makeTorchGroup(const GroupSpec& spec,
                                                     const std::function<void(uint16_t port)>& listening) {
    constexpr uint16_t kAnyPort = 9;  // nothing is sent there
    SHARDSCOPE_ASSIGN(const TorchFunctions* const torch, torchFunctions());
    SHARDSCOPE_ASSIGN(const std::string address, addressTowards(spec.host, spec.port ? spec.port : kAnyPort));
    return torch->makeGroup(spec, address, listening);
}

Result<GpuCompute> openGpu(int device) {
    SHARDSCOPE_TRY(torchFunctions());  // which shows where its compiler for GPUs is
    DeviceSpec place;
    place.device = device;
    place.compilers = gpuCompilers();
    SHARDSCOPE_ASSIGN(auto tiles, GpuTiles::open(place));
    std::string uuid = tiles->uuid();
    return GpuCompute{std::move(tiles), std::move(uuid)};
}

Result<int> ncclDevices() {
    SHARDSCOPE_ASSIGN(const TorchFunctions* const torch, torchFunctions());
    return torch->ncclDevices();
}

Result<std::string> shareThroughStore(const RankInfo& place, const std::optional<std::string>& mine,
                                      std::chrono::seconds patience) {
    SHARDSCOPE_ASSIGN(const TorchFunctions* const torch, torchFunctions());
    return torch->shareThroughStore(place, mine, patience);
}

std::string torchVersion() {
    const auto torch = torchFunctions();
    return torch.ok() ? (*torch)->version : "that cannot be loaded";
}

}  // namespace shardscope
