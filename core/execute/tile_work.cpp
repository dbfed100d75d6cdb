#include "execute/tile_work.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "base/first_error.h"

namespace shardscope {
namespace {

// More than the usual tile takes with everything around it.
constexpr uint64_t kKept = uint64_t{32} << 20;

}  // namespace

bool WorkerMemory::ensure(const Need& need) {
    AlignedBuffer* buffers[] = {&tile, &cast, &read, &write};
    const size_t target[] = {need.tile, need.cast, need.read, need.write};
    bool fits = true;
    uint64_t total = 0;
    for (int i = 0; i < 4; ++i) {
        fits = fits && target[i] <= buffers[i]->capacity();
        total += target[i] + (target[i] ? kIoAlignment : 0);
    }
    // A worker that did an unusually large tile gives the memory back when the next one is small.
    if (fits && leased_ > kKept && total * 4 < leased_) fits = false;
    try {
        if (!fits) {
            drop();
            // Never more than a quarter of the budget in one lease: what tensors hold while they are worked
            // on leaves at least half, so that a tile can always continue.
            lease_ = budget_.acquire(std::min(total, std::max<uint64_t>(budget_.limit() / 4, 1)));
            leased_ = total;
        }
        for (int i = 0; i < 4; ++i)
            buffers[i]->reset(target[i]);
    } catch (const std::bad_alloc&) {
        drop();
        return false;
    }
    return true;
}

void WorkerMemory::drop() {
    tile = AlignedBuffer();
    cast = AlignedBuffer();
    read = AlignedBuffer();
    write = AlignedBuffer();
    lease_ = MemoryBudget::Lease();
    leased_ = 0;
}

namespace {

class TileScheduler {
  public:
    explicit TileScheduler(const TileRun& run) : run_(run) {}

    Status go() {
        std::vector<std::thread> threads;
        for (unsigned i = 1; i < run_.threads; ++i) {
            try {
                threads.emplace_back([this] { work(); });
            } catch (const std::system_error&) {
                break;  // fewer threads do as well
            }
        }
        work();
        for (std::thread& thread : threads)
            thread.join();
        return error_.take();
    }

  private:
    struct Open {
        size_t index = 0;  // of the tensor
        std::unique_ptr<TensorTask> work;
        int64_t tiles = 0;
        int64_t next = 0;
        int64_t done = 0;
    };

    void work() {
        auto kept = takeMemory(run_.keepsMemory);
        work(kept);
        if (run_.keepsMemory) run_.memory->keep(std::move(kept));
    }

    std::shared_ptr<WorkerMemory> takeMemory(bool kept) const {
        auto memory = std::static_pointer_cast<WorkerMemory>(kept ? run_.memory->takeKept() : nullptr);
        return memory ? memory : std::make_shared<WorkerMemory>(*run_.memory);
    }

    void work(std::shared_ptr<WorkerMemory>& memory) {
        const StopScope scope(run_.stop);
        std::unique_lock lock(mutex_);
        for (;;) {
            if (error_) return;
            if (run_.stop.stopRequested()) {
                error_.add(run_.tensors, makeError(ErrorCode::cancelled, "canceled"));
                changed_.notify_all();
                return;
            }
            const bool prepares = preparesNext();
            if (!open_.empty() && !prepares) {
                const std::shared_ptr<Open> open = open_.front();
                const int64_t tile = open->next++;
                if (open->next >= open->tiles) open_.pop_front();
                lock.unlock();
                Status status = open->work->runTile(tile, *memory);
                lock.lock();
                if (!settle(lock, *open, std::move(status))) return;
            } else if (prepares) {
                const size_t index = nextTensor_++;
                const uint64_t tiles = run_.tilesOf ? run_.tilesOf(index) : 0;
                coming_ += tiles;
                ++preparing_;
                lock.unlock();
                auto prepared = run_.prepare(index, *memory);
                lock.lock();
                --preparing_;
                coming_ -= tiles;
                changed_.notify_all();
                if (!prepared.ok()) {
                    error_.add(index, std::move(prepared).error());
                    return;
                }
                auto open = std::make_shared<Open>();
                open->index = index;
                open->work = std::move(prepared).value();
                open->tiles = open->work->tileCount();
                if (open->tiles == 0) {
                    lock.unlock();
                    Status status = open->work->finish();
                    lock.lock();
                    if (!status.ok()) error_.add(index, std::move(status).error());
                } else if (run_.ordered || open->tiles == 1) {
                    lock.unlock();
                    Status status;
                    for (int64_t tile = 0; tile < open->tiles && status.ok(); ++tile) {
                        status = run_.stop.poll();
                        if (status.ok()) status = open->work->runTile(tile, *memory);
                    }
                    if (status.ok()) status = open->work->finish();
                    open.reset();
                    lock.lock();
                    if (!status.ok()) {
                        error_.add(index, std::move(status).error());
                        changed_.notify_all();
                        return;
                    }
                } else {
                    open_.push_back(std::move(open));
                    changed_.notify_all();
                }
            } else if (preparing_ > 0) {
                lock.unlock();
                run_.memory->keep(std::move(memory));  // as long as nobody else needs it
                lock.lock();
                if (!error_ && open_.empty() && preparing_ > 0) changed_.wait(lock);
                lock.unlock();
                memory = takeMemory(true);
                lock.lock();
            } else {
                return;
            }
        }
    }

    bool preparesNext() const {
        if (nextTensor_ == run_.tensors) return false;
        if (open_.empty()) return coming_ < run_.threads;
        if (!run_.tilesOf || preparing_ > 0) return false;
        int64_t ready = 0;
        for (const auto& open : open_)
            ready += open->tiles - open->next;
        return ready < static_cast<int64_t>(run_.threads);
    }

    // Books a finished tile; false when the worker must end.
    bool settle(std::unique_lock<std::mutex>& lock, Open& open, Status status) {
        const bool last = ++open.done == open.tiles;
        if (status.ok() && last) {
            lock.unlock();
            status = open.work->finish();
            open.work.reset();
            lock.lock();
        }
        if (status.ok()) return true;
        error_.add(open.index, std::move(status).error());
        changed_.notify_all();
        return false;
    }

    const TileRun& run_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::shared_ptr<Open>> open_;
    size_t nextTensor_ = 0;
    size_t preparing_ = 0;
    uint64_t coming_ = 0;  // tiles of tensors that are prepared now
    FirstError error_;
};

}  // namespace

Status runTiles(const TileRun& run) {
    TileScheduler crew(run);
    return crew.go();
}

unsigned workerCount(const Resources& resources) {
    const unsigned pool = resources.pool ? resources.pool->size() : 1;
    if (MostlyWaiting::any()) return std::max(MostlyWaiting::kThreads, pool);
    return pool <= 1 ? 1 : std::max(4U, pool);
}

}  // namespace shardscope
