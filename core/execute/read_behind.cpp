#include "execute/read_behind.h"

#include <system_error>
#include <utility>

#include "execute/verify.h"
#include "storage/open_files.h"

namespace shardscope {
namespace {

// Enough to keep a disk busy that is written to at the same time; the writers have the processors.
constexpr unsigned kThreads = 2;

// The wanted tensors, where the layout puts them in the staged files.
class LayoutReader final : public Reader {
  public:
    LayoutReader(const ConvertJob& job, const Staging& staging, std::shared_ptr<Directory> data)
        : job_(job), staging_(staging), files_(std::move(data)) {}

    const Catalog& catalog() const override { return job_.spec->target; }
    Result<Extent> locate(ChunkId chunk) const override {
        Extent extent;
        SHARDSCOPE_ASSIGN(extent.file, openFile(job_.layout->chunkFile[chunk]));
        extent.offset = job_.layout->chunkOffset[chunk];
        const TensorId tensor = catalog().tensorOf(chunk);
        extent.length = bytesOfElements(catalog().dtype(tensor), catalog().chunk(tensor, chunk).elements());
        return extent;
    }
    Result<Value> objectValue(ObjectId) const override {
        return makeError(ErrorCode::internal, "a layout has no objects");
    }
    Result<std::shared_ptr<const ReadFile>> openFile(FileId file) const override {
        return files_.open(staging_.fileName(file));
    }

  private:
    const ConvertJob& job_;
    const Staging& staging_;
    const OpenFiles files_;
};

Resources withoutProgress(Resources resources) {
    resources.progress = nullptr;
    return resources;
}

}  // namespace

std::unique_ptr<ReadBehind> ReadBehind::start(ConvertState& state, size_t tensors) {
    const ConvertJob& job = state.job;
    const bool reads = job.options.verify == Verify::digest || job.options.verify == Verify::full;
    if (!reads || !job.reopen || tensors == 0 || !job.fileSystem->showsUnfinished()) return nullptr;
    auto data = job.fileSystem->openDirectory(state.staging->dataDirectory());
    if (!data.ok()) return nullptr;
    auto layout = std::make_unique<LayoutReader>(job, *state.staging, std::move(data).value());
    std::unique_ptr<ReadBehind> behind(new ReadBehind(state, std::move(layout)));
    try {
        behind->thread_ = std::thread([&behind = *behind, tensors] { behind.result_ = behind.run(tensors); });
    } catch (const std::system_error&) {
        return nullptr;  // then all is read at the end
    }
    return behind;
}

ReadBehind::ReadBehind(ConvertState& state, std::unique_ptr<Reader> layout)
    : state_(state),
      layout_(std::move(layout)),
      resources_(withoutProgress(state.resources)),
      context_(*layout_, resources_, FillGaps::refuse, state.job.fileSystem),
      digests_(layout_->catalog(), false) {}

ReadBehind::~ReadBehind() {
    {
        MutexLock lock(mutex_);
        ended_ = true;
        if (!differs_) differs_ = makeError(ErrorCode::cancelled, "canceled");
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
}

Status ReadBehind::run(size_t tensors) {
    TileRun run;
    run.tensors = tensors;
    run.threads = kThreads;
    run.memory = resources_.memory;
    run.stop = resources_.stop;
    run.prepare = [this](size_t i, WorkerMemory& kept) { return prepare(i, kept); };
    return runTiles(run);
}

Result<std::unique_ptr<TensorTask>> ReadBehind::prepare(size_t index, WorkerMemory& kept) {
    TensorId target = kNone;
    {
        MutexLock lock(mutex_);
        if (index >= written_.size() && !ended_) {
            // Who waits for writers may hold no memory that they need.
            lock.unlock();
            kept.drop();
            lock.lock();
            changed_.wait(lock,
                          [&]() SHARDSCOPE_REQUIRES(mutex_) { return index < written_.size() || ended_; });
        }
        if (differs_) return *differs_;
        if (index >= written_.size()) return makeError(ErrorCode::internal, "a tensor was never written");
        target = written_[index];
    }
    return scanWork(
        context_, target, tileSizes(resources_), kept, [this](const TileView& tile) { return take(tile); },
        [this](TensorId tensor) { return compare(tensor); });
}

Status ReadBehind::take(const TileView& tile) {
    digests_.add(tile);
    MutexLock lock(mutex_);
    bytes_ += tile.bytes.size();
    if (shown_ && state_.resources.progress) state_.resources.progress->add(tile.bytes.size());
    return {};
}

Status ReadBehind::compare(TensorId target) {
    const Digest128 found = digests_.finish(target).digest;
    bool same = false;
    {
        std::lock_guard lock(state_.mutex);
        same = found == *state_.digests[target];
    }
    MutexLock lock(mutex_);
    if (same)
        read_.insert(target);
    else if (!differs_)
        differs_ = readBackDiffers(state_.target().name(target));
    return same ? Status() : Status(*differs_);
}

void ReadBehind::wrote(TensorId target) {
    {
        MutexLock lock(mutex_);
        written_.push_back(target);
    }
    changed_.notify_all();
}

Status ReadBehind::status() const {
    MutexLock lock(mutex_);
    return differs_ ? Status(*differs_) : Status();
}

Status ReadBehind::finish() {
    {
        MutexLock lock(mutex_);
        ended_ = true;
        shown_ = true;
        if (state_.resources.progress) state_.resources.progress->add(bytes_);
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
    return std::exchange(result_, Status());
}

bool ReadBehind::holds(TensorId target) const {
    MutexLock lock(mutex_);
    return read_.contains(target);
}

}  // namespace shardscope
