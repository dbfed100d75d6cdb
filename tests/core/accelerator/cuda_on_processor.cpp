#include "core/accelerator/cuda_on_processor.h"

#include <memory>
#include <vector>

#include <ucontext.h>

thread_local shardscope::test::CudaIndex threadIdx, blockIdx, blockDim, gridDim;

namespace shardscope::test {
namespace {

constexpr size_t kStack = 64 << 10;

struct Fiber {
    ucontext_t context{};
    std::unique_ptr<char[]> stack{new char[kStack]};
    bool done = false;
};

thread_local std::vector<Fiber> fibers;
thread_local ucontext_t scheduler;
thread_local const std::function<void()>* work = nullptr;

void enter() {
    (*work)();
    fibers[threadIdx.x].done = true;
    // Goes on where uc_link says: in the scheduler.
}

}  // namespace

void waitForBlock() {
    const unsigned thread = threadIdx.x;
    swapcontext(&fibers[thread].context, &scheduler);
    threadIdx.x = thread;
}

void launchOnProcessor(unsigned blocks, unsigned threads, const std::function<void()>& body) {
    work = &body;
    gridDim.x = blocks;
    blockDim.x = threads;
    if (fibers.size() < threads) fibers.resize(threads);
    for (unsigned block = 0; block < blocks; ++block) {
        blockIdx.x = block;
        for (unsigned t = 0; t < threads; ++t) {
            getcontext(&fibers[t].context);
            fibers[t].context.uc_stack.ss_sp = fibers[t].stack.get();
            fibers[t].context.uc_stack.ss_size = kStack;
            fibers[t].context.uc_link = &scheduler;
            fibers[t].done = false;
            makecontext(&fibers[t].context, enter, 0);
        }
        for (bool open = true; open;) {
            open = false;
            for (unsigned t = 0; t < threads; ++t) {
                if (fibers[t].done) continue;
                threadIdx.x = t;
                swapcontext(&scheduler, &fibers[t].context);
                open = open || !fibers[t].done;
            }
        }
    }
}

}  // namespace shardscope::test
