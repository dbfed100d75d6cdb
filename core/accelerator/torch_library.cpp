#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include <dlfcn.h>
#include <fmt/format.h>

#include "accelerator/accelerator.h"
#include "accelerator/gpu/gpu_tiles.h"
#include "accelerator/torch_module.h"
#include "base/option_words.h"
#include "base/own_program.h"
#include "hosts/socket.h"

#ifndef SHARDSCOPE_TORCH_VERSION
#define SHARDSCOPE_TORCH_VERSION ""  // none was found when this was built
#endif

namespace shardscope {
namespace {

using Path = std::filesystem::path;

// Beside the program, or where it is installed.
std::string moduleFile(const char* name) {
    const std::string beside = besideOwnProgram(name);
    std::error_code none;
    return std::filesystem::exists(beside, none)
               ? beside
               : besideOwnProgram(std::string("../libexec/shardscope/") + name);
}

std::vector<Path> entriesOf(const Path& directory, std::string_view prefix) {
    std::vector<Path> found;
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(directory, none))
        if (entry.path().filename().string().starts_with(prefix)) found.push_back(entry.path());
    std::sort(found.rbegin(), found.rend());
    return found;
}

// What --torch-library names, which every rank that is started from here sees, too.
std::optional<Path> namedLibrary() {
    const char* named = std::getenv("SHARDSCOPE_TORCH_LIBRARY");
    return named && *named ? std::optional<Path>(named) : std::nullopt;
}

// Where there may be a directory "torch" of libtorch, the best first: what is named; beside the program; the
// Python environment that is active, and the one that the program is in.
std::vector<Path> packageDirectories() {
    if (const auto named = namedLibrary())
        return {*named, named->parent_path(), named->parent_path().parent_path()};
    const Path directory = Path(ownProgram()).parent_path();
    std::vector<Path> directories{directory, directory.parent_path() / "lib"};
    std::vector<Path> environments;
    for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"})
        if (const char* value = std::getenv(variable); value && *value) environments.emplace_back(value);
    environments.push_back(directory.parent_path());
    for (const Path& environment : environments)
        for (const Path& python : entriesOf(environment / "lib", "python3"))
            directories.push_back(python / "site-packages");
    return directories;
}

// "2.15", of the directory of a package or of an unpacked libtorch; empty = it does not say.
std::string minorVersion(const std::string& text) {
    constexpr const char* kDigits = "0123456789";
    const size_t begin = std::min(text.find_first_of(kDigits), text.size());
    const size_t dot = text.find('.', begin);
    return dot == std::string::npos ? std::string()
                                    : text.substr(begin, text.find_first_not_of(kDigits, dot + 1) - begin);
}
std::string versionOf(const Path& torch) {
    for (const char* name : {"version.py", "build-version"})
        if (std::ifstream in(torch / name); in)
            return minorVersion(std::string(std::istreambuf_iterator<char>(in), {}));
    return {};
}

// The directory of its libraries. Those of another version have other functions of the same names.
Result<std::string> findTorch() {
    const std::string wanted = minorVersion(SHARDSCOPE_TORCH_VERSION);
    if (wanted.empty())
        return makeError(ErrorCode::impossible, "this shardscope was built without libtorch")
            .withHint("packaging/libtorch gets it; then build again");
    std::string others;
    for (const Path& directory : packageDirectories()) {
        for (const Path& torch : {directory / "torch", directory}) {
            const Path library = (torch / "lib").append("libtorch_cpu.so");
            std::error_code none;
            if (!std::filesystem::exists(library, none)) continue;
            const std::string version = versionOf(torch);
            if (version == wanted || (version.empty() && namedLibrary()))
                return std::filesystem::canonical(library, none).parent_path().string();
            others =
                fmt::format("; that in '{}' is {}", torch.string(), version.empty() ? "another" : version);
        }
    }
    return makeError(ErrorCode::impossible, fmt::format("no libtorch {} was found{}", wanted, others))
        .withHint(fmt::format("activate a Python environment with torch {}, or name the directory of its "
                              "libraries: {} DIR or SHARDSCOPE_TORCH_LIBRARY=DIR",
                              wanted, option("torch-library")));
}

// It stays for as long as the process.
Result<void*> load(const std::string& file, int mode) {
    if (void* library = dlopen(file.c_str(), RTLD_NOW | mode)) return library;
    return makeError(ErrorCode::impossible, fmt::format("libtorch cannot be loaded: {}", dlerror()));
}

// The modules name no library: they find what is loaded.
Result<const TorchFunctions*> loadTorch() {
    SHARDSCOPE_ASSIGN(const std::string directory, findTorch());
    SHARDSCOPE_TRY(load(directory + "/libtorch_cpu.so", RTLD_GLOBAL));
    SHARDSCOPE_ASSIGN(void* const module, load(moduleFile(TorchFunctions::kFile), RTLD_LOCAL));
    const auto entry = reinterpret_cast<const TorchFunctions* (*)()>(dlsym(module, TorchFunctions::kEntry));
    if (!entry) return makeError(ErrorCode::impossible, "the libtorch module is not of this program");
    return entry();
}

Result<const TorchFunctions*> torchFunctions() {
    static const Result<const TorchFunctions*> loaded = loadTorch();
    return loaded;
}

// NVRTC: what the environment names, else what came with a libtorch or beside it, else the system's.
std::vector<std::string> gpuCompilers() {
    if (const char* named = std::getenv("SHARDSCOPE_NVRTC"); named && *named) return {named};
    std::vector<std::string> found;
    for (const Path& directory : packageDirectories()) {
        // <packages>/torch may be a link to that of other packages.
        std::error_code none;
        const Path torch = std::filesystem::canonical(directory / "torch", none);
        for (const Path& packages : {directory, torch.parent_path()})
            for (const Path& version : entriesOf(packages / "nvidia", ""))
                for (const Path& file : entriesOf(version / "lib", "libnvrtc.so."))
                    found.push_back(file.string());
    }
    for (const std::string& name : DeviceSpec().compilers)
        found.push_back(name);
    return found;
}

Result<GpuCompute> openGpu(int device) {
    DeviceSpec spec;
    spec.device = device;
    spec.compilers = gpuCompilers();
    SHARDSCOPE_ASSIGN(auto tiles, GpuTiles::open(spec));
    std::string uuid = tiles->uuid();
    return GpuCompute{std::move(tiles), std::move(uuid)};
}

Result<std::string> findNccl() {
    SHARDSCOPE_ASSIGN(const std::string directory, findTorch());
    std::error_code none;
    std::string library = directory + "/libtorch_cuda.so";
    if (std::filesystem::exists(moduleFile(TorchFunctions::kNcclFile), none) &&
        std::filesystem::exists(library, none))
        return library;
    return makeError(ErrorCode::impossible, "NCCL cannot be used here")
        .withHint("install the CUDA build of libtorch with its NCCL, or use " + option("backend", "gloo"));
}

Result<const TorchFunctions*> functionsFor(const std::string& backend) {
    SHARDSCOPE_ASSIGN(const TorchFunctions* const torch, torchFunctions());
    if (backend != "nccl") return torch;
    SHARDSCOPE_ASSIGN(const std::string library, findNccl());
    SHARDSCOPE_TRY(load(library, RTLD_GLOBAL));
    return torch;
}

Result<std::unique_ptr<ProcessGroup>> makeTorchGroup(const GroupSpec& spec, const GroupForming& forming) {
    constexpr uint16_t kAnyPort = 9;  // nothing is sent there
    SHARDSCOPE_ASSIGN(const TorchFunctions* const torch, functionsFor(spec.backend));
    SHARDSCOPE_ASSIGN(const std::string address, addressTowards(spec.host, spec.port ? spec.port : kAnyPort));
    return torch->makeGroup(spec, address, forming);
}

Result<int> ncclDevices() {
    SHARDSCOPE_ASSIGN(const TorchFunctions* const torch, functionsFor("nccl"));
    return torch->ncclDevices();
}

Result<std::string> shareThroughStore(const RankInfo& info, const std::optional<std::string>& address,
                                      std::chrono::seconds patience) {
    SHARDSCOPE_ASSIGN(const TorchFunctions* const torch, torchFunctions());
    return torch->shareThroughStore(info, address, patience);
}

}  // namespace

Accelerator accelerator() {
    return {makeTorchGroup, openGpu, ncclDevices, shareThroughStore, findTorch, findNccl};
}

}  // namespace shardscope
