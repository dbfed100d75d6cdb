#include "execute/span_work.h"

namespace shardscope {
namespace {

class SpanWork final : public TensorTask {
  public:
    SpanWork(std::unique_ptr<TensorTask> tensor, const TileSpan& span)
        : tensor_(std::move(tensor)), span_(span) {}
    int64_t tileCount() const override { return span_.count; }
    Status runTile(int64_t tile, WorkerMemory& memory) override {
        return tensor_->runTile(span_.first + tile, memory);
    }
    Status finish() override { return {}; }

  private:
    const std::unique_ptr<TensorTask> tensor_;
    const TileSpan span_;
};

}  // namespace

Status runSpans(const Resources& resources, std::span<const TileSpan> spans, const PrepareSpan& prepare) {
    TileRun run;
    run.tensors = spans.size();
    run.threads = workerCount(resources);
    run.memory = resources.memory;
    run.keepsMemory = true;  // a process that does spans does some after others
    run.stop = resources.stop;
    run.prepare = [&](size_t i, WorkerMemory& kept) -> Result<std::unique_ptr<TensorTask>> {
        SHARDSCOPE_ASSIGN(std::unique_ptr<TensorTask> tensor, prepare(spans[i], kept));
        if (spans[i].first > tensor->tileCount() - spans[i].count)
            return makeError(ErrorCode::usage, "the part names tiles that do not exist");
        return std::unique_ptr<TensorTask>(std::make_unique<SpanWork>(std::move(tensor), spans[i]));
    };
    return runTiles(run);
}

}  // namespace shardscope
