#include "answers/access.h"

#include "engine/quantized.h"
#include "engine/request.h"
#include "execute/executor.h"
#include "storage/url.h"

namespace shardscope {

std::string Access::shown(const std::string& path) const {
    if (away() && path.starts_with('/')) return place + path;
    return withoutSecrets(path);
}

CheckpointOptions Access::openOptions() const {
    CheckpointOptions options = checkpointOptions(*this);
    options.open.limits.valueMemory = memory / 2;
    options.io = io;
    options.open.stop = stop;
    return options;
}

Result<Checkpoint> Access::open(const std::string& path, const StopToken& by) const {
    CheckpointOptions options = openOptions();
    options.open.stop = by;
    SHARDSCOPE_ASSIGN(Checkpoint checkpoint, openCheckpoint(path, options));
    if (opened) opened(checkpoint);
    return asAsked(std::move(checkpoint), by);
}

Result<Checkpoint> Access::asAsked(Checkpoint checkpoint, const StopToken& by) const {
    if (dequantize.empty()) return checkpoint;
    SHARDSCOPE_ASSIGN(const DType dtype, dequantizedDtype(dequantize));
    return dequantized(checkpoint, dtype, by);
}

Result<CheckpointOrRun> Access::openAny(const std::string& path) const {
    SHARDSCOPE_ASSIGN(CheckpointOrRun found, openCheckpointOrRun(path, openOptions()));
    auto* const checkpoint = std::get_if<Checkpoint>(&found);
    if (!checkpoint) return found;
    if (opened) opened(*checkpoint);
    SHARDSCOPE_ASSIGN(Checkpoint asked, asAsked(std::move(*checkpoint), stop));
    return CheckpointOrRun(std::move(asked));
}

std::shared_ptr<void> Access::watched(const Progress& progress, Workers workers) const {
    return watch ? watch(progress, std::move(workers)) : nullptr;
}

Status Work::start() {
    SHARDSCOPE_ASSIGN(const uint64_t buffers, bufferBudget(access_.memory, held_));
    resources_ = std::make_unique<JobResources>(access_.threads, buffers, &progress_, access_.stop);
    watching_ = access_.watched(progress_, workers_);
    return {};
}

Result<DiffReport> diffOpen(const Access& access, const Checkpoint& a, const Checkpoint& b,
                            const DiffOptions& options) {
    Work work(access, a.catalog().memoryBytes() + b.catalog().memoryBytes());
    SHARDSCOPE_TRY(work.start());
    return diffCheckpoints(a, b, options, work.resources());
}

}  // namespace shardscope
