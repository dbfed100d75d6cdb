// Ranks that are threads of this program: what a ProcessGroup does, without processes.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "execute/process_group.h"

namespace shardscope::test {

class ThreadRanks {
  public:
    explicit ThreadRanks(int size, size_t lanes = 2) : size_(size), lanes_(lanes) {
        for (int r = 0; r < size; ++r)
            ranks_.push_back(std::make_unique<Rank>(*this, r));
        for (Lane& lane : lanes_)
            lane.posted.resize(static_cast<size_t>(size));
    }
    ProcessGroup& rank(int r) { return *ranks_[static_cast<size_t>(r)]; }
    // As when a process dies: whoever waits for it, and every later call, fails.
    void breakOff(int r) {
        int none = -1;
        lost_.compare_exchange_strong(none, r);
        for (Lane& lane : lanes_) {
            std::lock_guard lock(lane.mutex);
            lane.changed.notify_all();
        }
    }
    std::atomic<uint64_t> moved{0};  // bytes between different ranks
    // Called by each rank before each step on a lane.
    std::function<void(int rank)> onStep;
    TileCompute* tileCompute = nullptr;  // of all ranks

  private:
    struct Post {
        const std::byte* bytes = nullptr;
        const std::vector<uint64_t>* sizes = nullptr;
    };
    struct Lane {
        std::mutex mutex;
        std::condition_variable changed;
        int waiting = 0;
        uint64_t generation = 0;
        std::vector<Post> posted;
    };

    class Rank final : public ProcessGroup {
      public:
        Rank(ThreadRanks& all, int rank) : all_(all), rank_(rank) {}
        int rank() const override { return rank_; }
        int size() const override { return all_.size_; }
        size_t lanes() const override { return all_.lanes_.size(); }
        uint64_t bytesSent() const override { return sent_; }
        bool broken() const override { return all_.lost_ >= 0; }
        TileCompute* compute() override { return all_.tileCompute; }
        std::string name(int rank) const override { return "rank " + std::to_string(rank); }

        Status broadcast(size_t lane, std::span<std::byte> bytes, int root) override {
            const std::vector<uint64_t> sizes(static_cast<size_t>(all_.size_), bytes.size());
            SHARDSCOPE_TRY(post(lane, bytes.data(), sizes));
            Status status;
            const Post& from = all_.lanes_[lane].posted[static_cast<size_t>(root)];
            if ((*from.sizes)[static_cast<size_t>(rank_)] != bytes.size()) {
                status = makeError(ErrorCode::internal, "out of step");
            } else if (root != rank_) {
                std::memcpy(bytes.data(), from.bytes, bytes.size());
                all_.moved += bytes.size();
            }
            (void)all_.meet(lane, true);
            return status;
        }

        Status allToAll(size_t lane, std::span<const std::byte> send, const std::vector<uint64_t>& sendBytes,
                        std::span<std::byte> receive, const std::vector<uint64_t>& receiveBytes) override {
            SHARDSCOPE_TRY(post(lane, send.data(), sendBytes));
            Status status;
            uint64_t at = 0;
            for (size_t r = 0; r < sendBytes.size(); ++r) {
                const Post& from = all_.lanes_[lane].posted[r];
                uint64_t begin = 0;
                for (int before = 0; before < rank_; ++before)
                    begin += (*from.sizes)[static_cast<size_t>(before)];
                const uint64_t n = (*from.sizes)[static_cast<size_t>(rank_)];
                if (n != receiveBytes[r] || at + n > receive.size()) {
                    status = makeError(ErrorCode::internal, "out of step");
                    break;
                }
                if (n > 0) std::memcpy(receive.data() + at, from.bytes + begin, n);
                if (static_cast<int>(r) != rank_) {
                    all_.moved += n;
                    sent_ += sendBytes[r];
                }
                at += n;
            }
            (void)all_.meet(lane, true);
            return status;
        }

      private:
        Status post(size_t lane, const std::byte* bytes, const std::vector<uint64_t>& sizes) {
            if (all_.onStep) all_.onStep(rank_);
            {
                std::lock_guard lock(all_.lanes_[lane].mutex);
                all_.lanes_[lane].posted[static_cast<size_t>(rank_)] = {bytes, &sizes};
            }
            return all_.meet(lane);
        }

        ThreadRanks& all_;
        const int rank_;
        std::atomic<uint64_t> sent_{0};
    };

    // `begun`: everybody is in the step, and comes here, gone or not; until then their bytes are looked at.
    Status meet(size_t l, bool begun = false) {
        Lane& lane = lanes_[l];
        std::unique_lock lock(lane.mutex);
        const uint64_t generation = lane.generation;
        if (!begun && lost_ >= 0) return gone();
        if (++lane.waiting == size_) {
            lane.waiting = 0;
            ++lane.generation;
            lane.changed.notify_all();
        } else {
            lane.changed.wait(lock, [&] { return lane.generation != generation || (lost_ >= 0 && !begun); });
        }
        if (lane.generation == generation) return gone();
        return {};
    }
    Status gone() const { return makeError(ErrorCode::remote, "rank " + std::to_string(lost_) + " is gone"); }

    const int size_;
    std::vector<Lane> lanes_;
    std::vector<std::unique_ptr<Rank>> ranks_;
    std::atomic<int> lost_{-1};
};

}  // namespace shardscope::test
