#include "places/joined_reads.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include <sys/mman.h>

#include "base/stop.h"

namespace shardscope {
namespace {

constexpr uint64_t kBlock = ObjectPlace::kRequest, kHugePage = uint64_t{2} << 20;
static_assert(kBlock % kHugePage == 0);

}  // namespace

void JoinedReads::Free::operator()(std::byte* bytes) const {
    std::free(bytes);
}

std::shared_ptr<void> JoinedReads::plan(uint64_t file, std::vector<PlannedRange> ranges, uint64_t memory) {
    const auto made = std::make_shared<Plan>();
    made->ranges = std::move(ranges);
    {
        MutexLock lock(mutex_);
        plans_[file] = made;
        most_ = memory / kBlock;
    }
    return {made.get(), [self = shared_from_this(), file, made](void*) {
                MutexLock lock(self->mutex_);
                const auto found = self->plans_.find(file);
                if (found != self->plans_.end() && found->second == made) self->plans_.erase(found);
                for (const auto& [number, block] : made->blocks)
                    std::erase(self->held_, block);
            }};
}

std::shared_ptr<JoinedReads::Block> JoinedReads::blockAt(Plan& plan, uint64_t number) {
    auto& block = plan.blocks[number];
    if (block) return block;
    block = std::make_shared<Block>();
    const uint64_t from = number * kBlock, to = from + kBlock;
    uint64_t planned = 0;
    const auto first = std::partition_point(plan.ranges.begin(), plan.ranges.end(),
                                            [&](const PlannedRange& range) { return range.end <= from; });
    for (auto it = first; it != plan.ranges.end() && it->begin < to; ++it) {
        const uint64_t begin = std::max(from, it->begin), end = std::min(to, it->end);
        if (planned == 0) block->begin = begin;
        block->end = end;
        planned += end - begin;
        block->left += std::min(end - begin, it->bytes);
        block->around += it->end - it->begin - std::min(it->end - it->begin, it->bytes);
    }
    // Where little of it is wanted, each read is better off alone.
    const bool dense = planned > 0 && planned >= (block->end - block->begin) / 4 * 3;
    block->state = dense ? Block::State::untouched : Block::State::gone;
    return block;
}

std::shared_ptr<JoinedReads::Block> JoinedReads::toDrop(bool gently) {
    std::shared_ptr<Block> best, oldest;
    for (const auto& block : held_) {
        if (block->state != Block::State::here || block->users > 0) continue;
        auto& which = block->left <= block->around ? best : oldest;
        if (!which || block->touched < which->touched) which = block;
    }
    if (best || gently || !oldest || claims_ - oldest->touched < patience_) return best;
    patience_ *= 2;  // it was brought in vain
    return oldest;
}

bool JoinedReads::claim(const std::shared_ptr<Block>& block, bool gently) {
    ++claims_;
    Memory bytes;
    // Memory that is there already costs the system nothing.
    const bool full = held_.size() >= most_;
    if (const auto dropped = toDrop(gently || !full)) {
        bytes = std::move(dropped->bytes);
        dropped->state = Block::State::gone;
        std::erase(held_, dropped);
    } else if (full) {
        return false;
    }
    if (!bytes) bytes.reset(static_cast<std::byte*>(std::aligned_alloc(kHugePage, kBlock)));
    if (!bytes) return false;
    // Each page that is new costs the system more time than its bytes do.
    (void)madvise(bytes.get(), kBlock, MADV_HUGEPAGE);
    block->bytes = std::move(bytes);
    block->state = Block::State::fetching;
    block->touched = claims_;
    held_.push_back(block);
    return true;
}

bool JoinedReads::holds(uint64_t file, uint64_t offset, uint64_t size) {
    MutexLock lock(mutex_);
    const auto found = plans_.find(file);
    if (found == plans_.end()) return false;
    const auto block = blockAt(*found->second, offset / kBlock);
    if (offset < block->begin || offset + size > block->end) return false;
    if (block->state != Block::State::untouched)
        return block->state == Block::State::here || block->state == Block::State::fetching;
    return held_.size() < most_ || toDrop(true);
}

bool JoinedReads::plans(uint64_t file) {
    MutexLock lock(mutex_);
    return plans_.contains(file);
}

// What is to be fetched now, and what is taken from blocks afterwards.
void JoinedReads::divide(Plan& plan, const ObjectPlace::Range& read, bool small, Division& to) {
    const uint64_t end = read.offset + read.into.size();
    for (uint64_t at = read.offset, next; at < end; at = next) {
        next = std::min(end, (at / kBlock + 1) * kBlock);
        const ObjectPlace::Range part{at, read.into.subspan(at - read.offset, next - at)};
        const auto block = blockAt(plan, at / kBlock);
        const bool inside = at >= block->begin && next <= block->end;
        if (inside && block->state == Block::State::untouched) {
            const bool all = next - at == block->end - block->begin;
            if (!all && claim(block, small)) {
                to.own.push_back(block);
                to.now.push_back({block->begin, {block->bytes.get(), block->end - block->begin}});
            } else if (!small) {
                block->state = Block::State::gone;
            }
        }
        if (inside && (block->state == Block::State::fetching || block->state == Block::State::here)) {
            ++block->users;
            to.later.push_back({block, part});
        } else {
            to.now.push_back(part);
        }
    }
}

Status JoinedReads::read(uint64_t file, uint64_t offset, std::span<std::byte> buffer, bool small,
                         const Fetch& fetch) {
    Division parts;
    {
        MutexLock lock(mutex_);
        const auto found = plans_.find(file);
        if (found == plans_.end())
            parts.now.push_back({offset, buffer});
        else
            divide(*found->second, {offset, buffer}, small, parts);
    }
    Status status = parts.now.empty() ? Status() : fetch(parts.now);
    {
        MutexLock lock(mutex_);
        for (const auto& block : parts.own) {
            block->state = status.ok() ? Block::State::here : Block::State::gone;
            if (!status.ok()) std::erase(held_, block);
        }
        if (!parts.own.empty()) changed_.notify_all();
    }
    for (const Take& one : parts.later) {
        if (status.ok()) {
            status = take(one, small, fetch);
            continue;
        }
        MutexLock lock(mutex_);
        --one.block->users;
    }
    return status;
}

// Who fetches a block waits for no other, so that this ends.
Status JoinedReads::take(const Take& take, bool small, const Fetch& fetch) {
    const StopToken stop = StopScope::current();
    Block& block = *take.block;
    MutexLock lock(mutex_);
    while (block.state == Block::State::fetching && !stop.stopRequested())
        changed_.wait_for(lock, std::chrono::milliseconds(100));
    if (block.state == Block::State::here) {
        lock.unlock();
        std::memcpy(take.range.into.data(), block.bytes.get() + (take.range.offset - block.begin),
                    take.range.into.size());
        lock.lock();
        block.touched = claims_;
        if (!small) block.left -= std::min<uint64_t>(block.left, take.range.into.size());
        --block.users;
        return {};
    }
    --block.users;
    if (block.state == Block::State::fetching) return makeError(ErrorCode::cancelled, "canceled");
    lock.unlock();
    return fetch({&take.range, 1});  // perhaps it fails in the same way, and says so of these bytes
}

}  // namespace shardscope
