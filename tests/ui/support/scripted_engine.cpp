#include "support/scripted_engine.h"

namespace shardscope::ui {

namespace {

// A catalog without bytes behind it.
class CatalogReader final : public Reader {
  public:
    explicit CatalogReader(std::shared_ptr<const Catalog> catalog) : catalog_(std::move(catalog)) {}
    const Catalog& catalog() const override { return *catalog_; }
    Result<Extent> locate(ChunkId) const override {
        return makeError(ErrorCode::notFound, "there are no bytes here");
    }
    Result<Value> objectValue(ObjectId) const override { return Value(); }
    Result<std::shared_ptr<const ReadFile>> openFile(FileId) const override {
        return makeError(ErrorCode::notFound, "there are no bytes here");
    }

  private:
    std::shared_ptr<const Catalog> catalog_;
};

}  // namespace

Result<CheckpointPtr> ScriptedEngine::open(const std::string& path, const CheckpointOptions& options,
                                           const TaskContext& context) {
    SHARDSCOPE_TRY(announce("open", context));
    if (!catalog) return real_->open(path, options, context);
    auto checkpoint = std::make_shared<Checkpoint>();
    checkpoint->path = path;
    checkpoint->format = findFormat(catalog->format());
    checkpoint->reader = std::make_shared<CatalogReader>(catalog);
    return CheckpointPtr(checkpoint);
}

Result<uint64_t> ScriptedEngine::saveIndex(const CheckpointPtr& checkpoint, const std::string& file,
                                           bool overwrite, const TaskContext& context) {
    SHARDSCOPE_TRY(announce("saveIndex", context));
    return real_->saveIndex(checkpoint, file, overwrite, context);
}

Result<ValidationReport> ScriptedEngine::validate(const CheckpointPtr& checkpoint,
                                                  const ValidateOptions& options, const CheckpointPtr& expect,
                                                  const TaskContext& context) {
    SHARDSCOPE_TRY(announce("validate", context));
    ValidateOptions possible = options;
    if (catalog) possible.level = ValidateLevel::metadata;  // there are no bytes
    SHARDSCOPE_ASSIGN(ValidationReport report, real_->validate(checkpoint, possible, expect, context));
    if (afterValidate) afterValidate(report);
    return report;
}

Result<DiffReport> ScriptedEngine::diff(const CheckpointPtr& a, const CheckpointPtr& b,
                                        const DiffOptions& options, const TaskContext& context) {
    SHARDSCOPE_TRY(announce("diff", context));
    return real_->diff(a, b, options, context);
}

Result<Preview> ScriptedEngine::preview(const CheckpointPtr& source, const std::string& destination,
                                        const ConversionRequest& request, const TaskContext& context) {
    SHARDSCOPE_TRY(announce("preview", context));
    return real_->preview(source, destination, request, context);
}

Result<TensorStatistics> ScriptedEngine::statistics(const CheckpointPtr& checkpoint, TensorId tensor,
                                                    size_t bins, const TaskContext& context) {
    SHARDSCOPE_TRY(announce("statistics", context));
    return real_->statistics(checkpoint, tensor, bins, context);
}

Result<SliceValues> ScriptedEngine::slice(const CheckpointPtr& checkpoint, const SliceRequest& request,
                                          const TaskContext& context) {
    SHARDSCOPE_TRY(announce("slice", context));
    return real_->slice(checkpoint, request, context);
}

Result<Value> ScriptedEngine::object(const CheckpointPtr& checkpoint, ObjectId object,
                                     const TaskContext& context) {
    SHARDSCOPE_TRY(announce("object", context));
    return real_->object(checkpoint, object, context);
}

}  // namespace shardscope::ui
