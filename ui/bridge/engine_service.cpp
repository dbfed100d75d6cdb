#include "ui/bridge/engine_service.h"

#include <algorithm>
#include <chrono>

#include "base/memory_budget.h"
#include "base/thread_pool.h"
#include "model/coverage.h"
#include "ui/bridge/file_stamps.h"

namespace shardscope::ui {

namespace {

// Validation, comparison and statistics of the window together with all that it holds stay below the standard
// memory. What is held already does not count: the window must be able to look into a checkpoint of any size.
constexpr uint64_t kBuffers = kStandardMemory / 2;
struct EngineWork : JobResources {
    explicit EngineWork(const TaskContext& context)
        : JobResources(0, kBuffers, context.progress, context.stop) {}
};

// What the tensors of a spec are in: each source tensor once, replicas once.
Result<std::vector<PlanFile>> readsOf(const Catalog& source, const TargetSpec& spec, const StopToken& stop) {
    std::vector<bool> wanted(source.tensorCount());
    for (const TensorSource& from : spec.sources) {
        for (const TensorId t : from.tensors())
            wanted[t] = true;
    }
    std::vector<uint64_t> bytes(source.files().size());
    for (TensorId t = 0; t < source.tensorCount(); ++t) {
        if (!wanted[t]) continue;
        SHARDSCOPE_TRY(stop.poll());
        for (const ChunkId c : coveringChunks(source, t)) {
            const ChunkInfo chunk = source.chunk(t, c);
            if (chunk.file != kNone) bytes[chunk.file] += chunk.length;
        }
    }
    std::vector<PlanFile> reads;
    for (FileId f = 0; f < bytes.size(); ++f) {
        if (bytes[f] > 0) reads.push_back({source.files()[f].path, bytes[f]});
    }
    return reads;
}

class LocalEngine final : public EngineService {
  public:
    explicit LocalEngine(const QString& program) : hosts_(program) {}

    Status connect(const std::string& path, bool anew, const TaskContext& context) override {
        if (!isSshPath(path)) return {};
        SHARDSCOPE_ASSIGN(const auto host, hosts_.hostFor(path));
        return Hosts::connect(host, anew, context.stop);
    }

    bool connectionLost(const std::string& path) const override { return hosts_.lost(path); }

    Result<HostFacts> lookAt(const HostSpec& where, const CheckpointPtr& checkpoint,
                             const HostQuestion& question, const TaskContext& context) override;

    Result<CheckpointPtr> open(const std::string& path, const CheckpointOptions& options,
                               const TaskContext& context) override {
        SHARDSCOPE_ASSIGN(const CheckpointOptions all, optionsFor(path, options, context));
        SHARDSCOPE_ASSIGN(Checkpoint checkpoint, openCheckpoint(path, all));
        return CheckpointPtr(std::make_shared<Checkpoint>(std::move(checkpoint)));
    }

    Result<std::variant<CheckpointPtr, RunPtr>> openAny(const std::string& path,
                                                        const CheckpointOptions& options,
                                                        const TaskContext& context) override {
        SHARDSCOPE_ASSIGN(const CheckpointOptions all, optionsFor(path, options, context));
        SHARDSCOPE_ASSIGN(CheckpointOrRun opened, openCheckpointOrRun(path, all));
        std::variant<CheckpointPtr, RunPtr> answer;
        if (Run* run = std::get_if<Run>(&opened))
            answer = std::make_shared<Run>(std::move(*run));
        else
            answer = std::make_shared<Checkpoint>(std::get<Checkpoint>(std::move(opened)));
        return answer;
    }

    Result<RunListingPtr> listRun(const std::string& path, const CheckpointOptions& options,
                                  const std::string& openedHow, ValidateLevel level,
                                  const TaskContext& context) override {
        SHARDSCOPE_ASSIGN(const CheckpointOptions all, optionsFor(path, options, context));
        SHARDSCOPE_ASSIGN(auto run, openRun(path, all));
        if (!run) return RunListingPtr();
        auto listing = std::make_shared<RunListing>(RunListing{*std::move(run), {}});
        const RunVerdicts known(listing->run, openedHow);
        const SuppressionStore accepted;
        for (const RunStep& step : listing->run.directory.steps) {
            SHARDSCOPE_TRY(context.stop.poll());
            SHARDSCOPE_ASSIGN(const StepFiles files, listStep(listing->run, step));
            auto verdict = known.find(step, files, level);
            if (verdict) verdict->accepted = acceptedOf(accepted, listing->run, step);
            std::string format = verdict ? verdict->format : formatOfStep(listing->run, step);
            listing->rows.push_back({step, files, std::move(format), std::move(verdict)});
        }
        return RunListingPtr(std::move(listing));
    }

    Result<StepVerdict> judgeStep(const RunListingPtr& run, size_t row, const CheckpointOptions& options,
                                  const std::string& openedHow, ValidateLevel level,
                                  const TaskContext& context) override {
        SHARDSCOPE_ASSIGN(const CheckpointOptions all, optionsFor(run->run.source.display, options, context));
        RunVerdicts known(run->run, openedHow);
        const auto validate = [&](const Checkpoint& checkpoint) {
            const EngineWork work(context);
            ValidateOptions how;
            how.level = level;
            how.sums = true;
            return validateCheckpoint(checkpoint, how, work);
        };
        const RunRow& chosen = run->rows[row];
        return shardscope::judgeStep(run->run, chosen.step, chosen.files, level, all, validate, &known);
    }

    Result<std::vector<TensorValues>> stepValues(const RunListingPtr& run, size_t row,
                                                 const std::string& openedHow) override {
        const RunRow& chosen = run->rows[row];
        return RunVerdicts(run->run, openedHow)
            .values(chosen.step, chosen.files)
            .value_or(std::vector<TensorValues>());
    }

    Result<uint64_t> saveIndex(const CheckpointPtr& checkpoint, const std::string& file, bool overwrite,
                               const TaskContext& context) override {
        return writeIndex(*checkpoint, file, overwrite, context.stop);
    }

    Result<ValidationReport> validate(const CheckpointPtr& checkpoint, const ValidateOptions& options,
                                      const CheckpointPtr& expect, const TaskContext& context) override {
        const EngineWork work(context);
        ValidateOptions all = options;
        if (expect) all.expect = &expect->catalog();
        return validateCheckpoint(*checkpoint, all, work);
    }

    Result<DiffReport> diff(const CheckpointPtr& a, const CheckpointPtr& b, const DiffOptions& options,
                            const TaskContext& context) override {
        const EngineWork work(context);
        return diffCheckpoints(*a, *b, options, work);
    }

    Result<Preview> preview(const CheckpointPtr& source, const std::string& destination,
                            const ConversionRequest& request, const TaskContext& context) override {
        SHARDSCOPE_ASSIGN(PreparedConversion prepared,
                          prepareConversion(*source, destination, request, context.stop));
        const std::shared_ptr<TargetSpec> spec = std::move(prepared.spec);
        SHARDSCOPE_ASSIGN(auto reads, readsOf(source->catalog(), *spec, context.stop));
        SHARDSCOPE_ASSIGN(Flow flow, flowOf(source->catalog(), *spec, context.stop));
        return Preview{std::move(prepared.plan), std::shared_ptr<const Catalog>(spec, &spec->target),
                       std::move(flow), std::move(reads)};
    }

    Result<TensorStatistics> statistics(const CheckpointPtr& checkpoint, TensorId tensor, size_t bins,
                                        const TaskContext& context) override {
        const EngineWork work(context);
        return tensorStatistics(*checkpoint->reader, tensor, bins, work);
    }

    Result<SliceValues> slice(const CheckpointPtr& checkpoint, const SliceRequest& request,
                              const TaskContext& context) override {
        const EngineWork work(context);
        return sliceValues(*checkpoint->reader, request, work);
    }

    Result<Value> object(const CheckpointPtr& checkpoint, ObjectId object, const TaskContext&) override {
        return checkpoint->reader->objectValue(object);
    }

  private:
    // With the files of the path's host.
    Result<CheckpointOptions> optionsFor(const std::string& path, const CheckpointOptions& options,
                                         const TaskContext& context) {
        CheckpointOptions all = options;
        all.open.stop = context.stop;
        if (!isSshPath(path)) return all;
        SHARDSCOPE_ASSIGN(const auto host, hosts_.hostFor(path));
        SHARDSCOPE_TRY(Hosts::connect(host, false, context.stop));
        all.fileSystem = remoteFileSystem(host);
        return all;
    }

    Hosts hosts_;
};

Result<HostFacts> LocalEngine::lookAt(const HostSpec& where, const CheckpointPtr& checkpoint,
                                      const HostQuestion& question, const TaskContext& context) {
    const auto begin = std::chrono::steady_clock::now();
    HostFacts facts;
    facts.version = ownVersion();  // a host that runs another one does not connect
    std::shared_ptr<FileSystem> files = systemFileSystem();
    std::shared_ptr<RemoteHost> host;
    if (!where.host.empty()) {
        SHARDSCOPE_ASSIGN(host, hosts_.hostFor(where));
        SHARDSCOPE_TRY(Hosts::connect(host, false, context.stop));
        files = remoteFileSystem(host);
        facts.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }

    facts.source = [&]() -> Result<HostFacts::Source> {
        SHARDSCOPE_ASSIGN(const DirectoryEntry entry, files->stat(question.source));
        const std::string directory = entry.kind == DirectoryEntry::Kind::directory
                                          ? question.source
                                          : splitPath(question.source).first;
        const Catalog& catalog = checkpoint->catalog();
        SHARDSCOPE_ASSIGN(const auto stamps, stampsOf(*files, directory, catalog, context.stop));
        HostFacts::Source source;
        for (size_t f = 0; f < stamps.size(); ++f) {
            const FileInfo& file = catalog.files()[f];
            if (file.state == FileInfo::State::missing) continue;
            ++source.files;
            source.missing += stamps[f].size < 0;
            source.different += stamps[f].size >= 0 && static_cast<uint64_t>(stamps[f].size) != file.size;
        }
        return source;
    }();
    SHARDSCOPE_TRY(context.stop.poll());
    facts.parent = splitPath(question.destination).first;
    facts.destination = [&]() -> Result<HostFacts::Parent> {
        SHARDSCOPE_ASSIGN(const DiskSpace room,
                          host ? roomThere(*host, facts.parent) : roomHere(facts.parent));
        return HostFacts::Parent{room.writable, files->stat(question.destination).ok(), room.freeBytes};
    }();
    SHARDSCOPE_TRY(context.stop.poll());
    return facts;
}

}  // namespace

std::shared_ptr<EngineService> localEngine(const QString& program) {
    return std::make_shared<LocalEngine>(program);
}

}  // namespace shardscope::ui
