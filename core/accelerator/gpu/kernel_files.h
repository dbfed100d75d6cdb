// What the kernels are made of, as text of the program: for NVRTC.
#pragma once

#include <vector>

namespace shardscope {

struct KernelFile {
    const char* name;  // as it is included
    const char* text;
};
const std::vector<KernelFile>& kernelFiles();

}  // namespace shardscope
