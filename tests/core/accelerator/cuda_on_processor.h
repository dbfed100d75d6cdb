// What tile_kernels.cuh expects of CUDA, on the processor: the threads of a block run one after the other,
// each up to the next __syncthreads().
#pragma once

#include <functional>

namespace shardscope::test {

struct CudaIndex {
    unsigned x = 0;
};
// Calls `body` for every thread of every block.
void launchOnProcessor(unsigned blocks, unsigned threads, const std::function<void()>& body);
void waitForBlock();

}  // namespace shardscope::test

extern thread_local shardscope::test::CudaIndex threadIdx, blockIdx, blockDim, gridDim;

#define __shared__ static thread_local
#define __syncthreads() ::shardscope::test::waitForBlock()

template <class T>
void atomicAdd(T* to, T value) {
    *to += value;
}
