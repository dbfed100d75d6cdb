#include "engine/run_conversion.h"

#include <filesystem>
#include <map>

#include <fmt/format.h>

#include "cluster/worker.h"
#include "engine/filled.h"
#include "engine/objects_file.h"
#include "execute/group_files.h"
#include "execute/units.h"

namespace shardscope {
namespace {

// Memory and threads of one conversion.
struct OwnResources {
    static Result<std::unique_ptr<OwnResources>> make(const PreparedConversion& p,
                                                      const ConversionRequest& request, Progress* progress,
                                                      const StopToken& stop) {
        SHARDSCOPE_TRY(checkRunnable(p));
        const uint64_t held =
            p.source.catalog().memoryBytes() + p.spec->target.memoryBytes() +
            p.layout->chunkFile.size() * (sizeof(FileId) + sizeof(uint64_t) + sizeof(uint32_t));
        SHARDSCOPE_ASSIGN(const uint64_t buffers, bufferBudget(request.memory, held));
        return std::make_unique<OwnResources>(request.threads, buffers, progress, stop);
    }
    OwnResources(unsigned threads, uint64_t buffers, Progress* progress, const StopToken& stop)
        : pool(threads), memory(buffers), resources{&pool, &memory, progress, stop, {}} {}

    ThreadPool pool;
    MemoryBudget memory;
    Resources resources;
};

// What is beside the destination: written once that is in its place.
Status writeBeside(const PreparedConversion& p, const ConversionRequest& request,
                   const Resources& resources) {
    if (p.singleFile) SHARDSCOPE_TRY(putRecordBeside(p.destination, p.filled));
    if (!request.objectsFile.empty()) SHARDSCOPE_TRY(writeObjectsFile(p, request, resources));
    return {};
}

Result<ConvertReport> runWith(const PreparedConversion& p, const ConversionRequest& request,
                              const Resources& resources, UnitScheduler* scheduler) {
    if (!request.objectsFile.empty()) SHARDSCOPE_TRY(checkObjectsFile(request, p.source.path));
    auto report = runConversion(conversionJob(p, request, scheduler), resources);
    if (report.ok()) SHARDSCOPE_TRY(writeBeside(p, request, resources));
    return report;
}

Result<std::unique_ptr<WorkerScheduler>> makeScheduler(const Coordinator& coordinator,
                                                       ConversionRequest request) {
    CoordinatorOptions scheduler;
    scheduler.places = coordinator.places;
    // Without what only this process does.
    request.on.clear();
    request.resume = false;
    scheduler.request = packRequest(std::move(request));
    std::error_code none;
    scheduler.directory = std::filesystem::current_path(none).string();
    if (none) return systemError(none.value(), "find the directory that the job is given in", "");
    scheduler.version = coordinator.version;
    scheduler.program = coordinator.program;
    scheduler.remoteProgram = coordinator.remoteProgram;
    return std::make_unique<WorkerScheduler>(std::move(scheduler));
}

std::vector<GroupReport::DiskShare> diskShares(const GroupScheduler& group,
                                               const GroupConversion& conversion) {
    const std::vector<int> places = group.places();
    const std::vector<int> ranks = fileRanks(conversion);
    std::map<int, GroupReport::DiskShare> shares;
    for (size_t f = 0; f < ranks.size(); ++f) {
        const int place = places[static_cast<size_t>(ranks[f])];
        GroupReport::DiskShare& share = shares[place];
        share.rank = place;
        share.name = conversion.ranks->name(place);
        ++share.files;
        share.bytes += conversion.job->layout->files[f].size;
    }
    std::vector<GroupReport::DiskShare> list;
    for (const auto& [place, share] : shares)
        list.push_back(share);
    return list;
}

}  // namespace

ConvertJob conversionJob(const PreparedConversion& p, const ConversionRequest& request,
                         UnitScheduler* scheduler) {
    ConvertJob job;
    job.source = p.source.reader.get();
    job.spec = p.spec.get();
    job.layout = p.layout.get();
    job.plan = &p.plan;
    job.fileSystem = scheduler ? scheduler->fileSystem() : nullptr;
    job.reopen = [format = p.format, io = request.io, files = job.fileSystem](
                     const std::string& path,
                     const std::shared_ptr<FileSystem>& through) -> Result<std::unique_ptr<Reader>> {
        SHARDSCOPE_ASSIGN(const Source place, sourceFor(path, io, through ? through : files));
        return format->open(place, {});
    };
    if (!job.fileSystem) job.fileSystem = systemFileSystem(request.io);
    job.destination = p.destination;
    job.singleFile = p.singleFile;
    job.options = request;
    job.scheduler = scheduler;
    return job;
}

Status checkRunnable(const PreparedConversion& p) {
    if (p.plan.runnable()) return needData(p.source, "a conversion");
    const PlanLeftOut& first = p.plan.impossible.front();
    Error error = makeError(ErrorCode::impossible, first.why).ofTensor(first.name);
    if (p.plan.impossible.size() > 1)
        error.hint = fmt::format("and {} more; 'shardscope plan' lists them", p.plan.impossible.size() - 1);
    return error;
}

Result<ConvertReport> runPrepared(const PreparedConversion& p, const ConversionRequest& request,
                                  Progress* progress, const StopToken& stop, UnitScheduler* scheduler) {
    SHARDSCOPE_ASSIGN(const auto own, OwnResources::make(p, request, progress, stop));
    return runWith(p, request, own->resources, scheduler);
}

Conversion::Conversion(const ConversionRequest& request, Execution execution, StopToken stop)
    : request_(request), execution_(std::move(execution)), stop_(std::move(stop)) {}

Conversion::~Conversion() = default;

Result<std::unique_ptr<Conversion>> Conversion::prepare(const ConversionRequest& request,
                                                        const Execution& execution, const StopToken& stop) {
    std::unique_ptr<Conversion> made(new Conversion(request, execution, stop));
    if (const auto* coordinator = std::get_if<Coordinator>(&execution)) {
        SHARDSCOPE_ASSIGN(made->scheduler_, makeScheduler(*coordinator, request));
    }
    const auto* rank = std::get_if<Rank>(&execution);
    if (!rank) {
        SHARDSCOPE_TRY(made->open());
        return made;
    }
    SHARDSCOPE_ASSIGN(made->files_, GroupFiles::make(*rank->ranks, systemFileSystem(request.io),
                                                     request.source, rank->mode));
    SHARDSCOPE_TRY(made->files_->openTogether([&] { return made->open(); }));
    made->group_.emplace();
    made->group_->ranks = rank->ranks->size();
    made->group_->mode = made->files_->mode();
    made->group_->backend = rank->backend;
    made->group_->compute = rank->ranks->compute() ? rank->ranks->compute()->name() : "cpu";
    SHARDSCOPE_ASSIGN(made->group_->expected,
                      forecast(*rank->ranks, made->files_->mode(), made->prepared_->plan));
    return made;
}

Status Conversion::open() {
    SHARDSCOPE_ASSIGN(CheckpointOptions options, openingOf(request_.sourceOptions));
    options.io = request_.io;
    options.open.limits.valueMemory = request_.memory / 2;
    options.open.stop = stop_;
    options.fileSystem = files_;
    SHARDSCOPE_ASSIGN(const Checkpoint source, openCheckpoint(request_.source, options));
    SHARDSCOPE_ASSIGN(prepared_, prepareConversion(source, request_.destination, request_, stop_));
    return {};
}

bool Conversion::speaks() const {
    const auto* rank = std::get_if<Rank>(&execution_);
    return rank ? rank->ranks->rank() == 0 : !std::holds_alternative<Worker>(execution_);
}

std::vector<WorkerState> Conversion::workers() const {
    return scheduler_ ? scheduler_->workers() : std::vector<WorkerState>();
}

Result<ConvertReport> Conversion::run(Progress* progress) {
    if (const auto* rank = std::get_if<Rank>(&execution_)) return runTogether(*rank, progress);
    SHARDSCOPE_ASSIGN(const auto own, OwnResources::make(*prepared_, request_, progress, stop_));
    if (const auto* parts = std::get_if<Parts>(&execution_)) return runParts(*parts, own->resources);
    const auto* worker = std::get_if<Worker>(&execution_);
    if (!worker) {
        auto report = runWith(*prepared_, request_, own->resources, scheduler_.get());
        finished_ = report.ok();
        return report;
    }
    const ConvertJob job = conversionJob(*prepared_, request_);
    SHARDSCOPE_TRY(worker->session->serve(job, own->resources));
    return ConvertReport();
}

Result<ConvertReport> Conversion::runParts(const Parts& parts, const Resources& resources) {
    if (!request_.objectsFile.empty()) SHARDSCOPE_TRY(checkObjectsFile(request_, prepared_->source.path));
    const ConvertJob job = conversionJob(*prepared_, request_);
    if (parts.part) {
        SHARDSCOPE_ASSIGN(part_, runPart(job, *parts.part, resources));
        if (!part_->open.empty()) return ConvertReport();
        if (parts.seal) {
            const Status sealed = sealParts(job, parts.version, resources);
            // Of two parts that end at once one seals.
            if (!sealed.ok() && sealed.error().code != ErrorCode::exists) return sealed.error();
        }
        if (!parts.finish) return ConvertReport();
    }
    auto report = finishParts(job, parts.version, resources);
    if (!report.ok()) {
        // Of two parts that end at once one finishes; the other finds it at work, or its result.
        const ErrorCode code = report.error().code;
        if (part_ && (code == ErrorCode::exists || code == ErrorCode::notFound)) return ConvertReport();
        return report;
    }
    SHARDSCOPE_TRY(writeBeside(*prepared_, request_, resources));
    finished_ = true;
    return report;
}

Result<ConvertReport> Conversion::runTogether(const Rank& rank, Progress* progress) {
    SHARDSCOPE_TRY(agree(*rank.ranks, 0, checkRunnable(*prepared_)));
    SHARDSCOPE_ASSIGN(const auto own, OwnResources::make(*prepared_, request_, progress, stop_));
    const ConvertJob job = conversionJob(*prepared_, request_);  // with this rank's own file system
    const GroupConversion conversion{rank.ranks, files_.get(), &job, own->resources, rank.ownDisks};
    if (rank.ranks->rank() != 0) {
        SHARDSCOPE_TRY(serveGroup(conversion));
        return ConvertReport();
    }
    GroupScheduler scheduler(conversion);
    auto report = runWith(*prepared_, request_, own->resources, &scheduler);
    group_->bytesMoved = scheduler.bytesMoved();
    finished_ = report.ok();
    if (report.ok() && rank.ownDisks) group_->disks = diskShares(scheduler, conversion);
    return report;
}

Result<ConvertReport> runConversion(const ConversionRequest& request, const Execution& execution,
                                    Progress* progress, const StopToken& stop) {
    SHARDSCOPE_ASSIGN(const auto conversion, Conversion::prepare(request, execution, stop));
    return conversion->run(progress);
}

}  // namespace shardscope
