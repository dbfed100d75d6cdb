#include "engine/run_conversion.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include <fmt/format.h>

#include "base/option_words.h"
#include "base/units.h"
#include "cluster/file_owners.h"
#include "cluster/peer_disks.h"
#include "engine/filled.h"
#include "engine/objects_file.h"
#include "engine/run_directory.h"
#include "execute/part_worker.h"
#include "places/bucket_files.h"
#include "storage/url.h"

namespace shardscope {
namespace {

// What transfers to a bucket may take of a job's memory, in bytes: 8 parts of 8 MiB of the standard.
uint64_t uploadMemory(const ConversionRequest& request) {
    return request.memory / 8;
}

Result<std::unique_ptr<JobResources>> resourcesFor(const PreparedConversion& p,
                                                   const ConversionRequest& request, Progress* progress,
                                                   const StopToken& stop) {
    SHARDSCOPE_TRY(checkRunnable(p));
    uint64_t held = p.source.catalog().memoryBytes() + p.spec->target.memoryBytes() +
                    p.layout->chunkFile.size() * (sizeof(FileId) + sizeof(uint64_t) + sizeof(uint32_t));
    if (p.adapter) held += p.adapter->catalog().memoryBytes() + p.adapterHeld;
    for (const PreparedInput& input : p.inputs)
        held += input.source.catalog().memoryBytes() + input.spec->target.memoryBytes();
    if (!schemeOf(p.destination).empty()) held += uploadMemory(request);
    SHARDSCOPE_ASSIGN(const uint64_t buffers, bufferBudget(request.memory, held));
    return std::make_unique<JobResources>(request.threads, buffers, progress, stop);
}

Result<BucketJob> bucketJob(const PreparedConversion& p, const ConversionRequest& request, Progress* progress,
                            const StopToken& stop) {
    if (p.singleFile && !p.filled.tensors.empty())
        return makeError(
                   ErrorCode::impossible,
                   "the record of what is filled in stands beside a single file, which a bucket cannot hold "
                   "whole or not at all together with it")
            .inFile(p.destination)
            .withHint("write a directory there, or a file on this machine");
    BucketJob job;
    job.destination = p.destination;
    job.singleFile = p.singleFile;
    job.progress = progress;
    job.memory = uploadMemory(request);
    job.stop = stop;
    for (const TargetFile& file : p.layout->files)
        (file.metadata ? job.seals : job.streamed).push_back(file.path);
    if (!job.seals.empty()) return job;
    // What makes a checkpoint of the rest is sent last.
    job.streamed.pop_back();
    const TargetFile& last = p.layout->files.back();
    if (last.size > kSentWhole) job.last = p.singleFile ? splitPath(p.destination).second : last.path;
    return job;
}

// One that is not metadata, unless all are.
std::string aDataFile(const PreparedConversion& p) {
    const auto& files = p.layout->files;
    const auto data = std::ranges::find(files, false, &TargetFile::metadata);
    return data == files.end() ? files.front().path : data->path;
}

// Where this process writes a destination of its own; null = on this machine.
Result<std::shared_ptr<BucketFiles>> destinationFiles(const PreparedConversion& p,
                                                      const ConversionRequest& request, Progress* progress,
                                                      const StopToken& stop) {
    if (schemeOf(p.destination).empty()) return std::shared_ptr<BucketFiles>();
    SHARDSCOPE_ASSIGN(BucketJob job, bucketJob(p, request, progress, stop));
    job.unguarded = request.unguarded;
    return bucketFileSystem(job);
}

// The job of one part, or of what finishes; in a bucket each of them has a staging directory of its own.
Result<ConvertJob> partsJob(const PreparedConversion& p, const ConversionRequest& request,
                            const std::optional<PartSpec>& part, Progress* progress, const StopToken& stop) {
    if (schemeOf(p.destination).empty()) return conversionJob(p, request);
    SHARDSCOPE_ASSIGN(BucketJob bucket, bucketJob(p, request, progress, stop));
    bucket.role = part ? BucketJob::Role::part : BucketJob::Role::finish;
    bucket.part = part ? part->index : 0;
    SHARDSCOPE_ASSIGN(BucketParts parts, bucketParts(bucket));
    ConvertJob job = conversionJob(p, request, nullptr, std::move(parts.files));
    job.shared = std::move(parts.shared);
    return job;
}

// What is beside the destination: written once that is in its place.
Status writeBeside(const PreparedConversion& p) {
    return p.singleFile && schemeOf(p.destination).empty() ? putRecordBeside(p.destination, p.filled)
                                                           : Status();
}

Result<ConvertReport> runJob(const PreparedConversion& p, const ConversionRequest& request,
                             const ConvertJob& job, const Resources& resources) {
    if (!request.objectsFile.empty()) SHARDSCOPE_TRY(checkObjectsFile(request, p));
    auto report = runConversion(job, resources);
    if (report.ok()) SHARDSCOPE_TRY(writeBeside(p));
    return report;
}

Result<std::unique_ptr<WorkerScheduler>> makeScheduler(CoordinatorOptions options,
                                                       ConversionRequest request) {
    // Without what only this process does.
    request.on.clear();
    request.resume = false;
    options.request = packRequest(std::move(request));
    return WorkerScheduler::forJobHere(std::move(options));
}

// As one process sees it that is somewhere else; without a slash at its end.
Result<std::string> absolutePath(const std::string& path) {
    if (!schemeOf(path).empty()) return path;
    std::error_code none;
    std::string whole = std::filesystem::absolute(path, none).string();
    if (none) return systemError(none.value(), "find the directory that the job is given in", "");
    while (whole.size() > 1 && whole.ends_with('/'))
        whole.pop_back();
    return whole;
}

std::vector<GroupReport::DiskShare> diskShares(const PeerDisks& disks, const Peers& peers,
                                               const ConvertJob& job) {
    const std::vector<int> owners = fileOwners(job, peers.size());
    std::map<int, GroupReport::DiskShare> shares;
    for (size_t f = 0; f < owners.size(); ++f) {
        const int disk = disks.diskByPeer()[static_cast<size_t>(owners[f])];
        GroupReport::DiskShare& share = shares[disk];
        share.rank = disk;
        share.name = peers.name(disk);
        ++share.files;
        share.bytes += job.layout->files[f].size;
    }
    std::vector<GroupReport::DiskShare> list;
    for (const auto& [disk, share] : shares)
        list.push_back(share);
    return list;
}

}  // namespace

ConvertJob conversionJob(const PreparedConversion& p, const ConversionRequest& request,
                         PartScheduler* scheduler, std::shared_ptr<FileSystem> files) {
    ConvertJob job;
    job.source = p.source.reader.get();
    job.spec = p.spec.get();
    job.layout = p.layout.get();
    job.plan = &p.plan;
    job.average = p.average.get();
    job.adapter = p.adapter.get();
    job.adapterWords = p.adapterWords;
    job.reopen = [format = p.format, io = request.io, files, inDirectory = !p.singleFile,
                  data = aDataFile(p)](const std::string& path) -> Result<std::unique_ptr<Reader>> {
        if (files) {
            // What a bucket refuses is said as it is. A probe would take it for another format.
            const auto [parent, name] = inDirectory ? std::pair(path, data) : splitPath(path);
            SHARDSCOPE_ASSIGN(const auto directory, files->openDirectory(parent));
            SHARDSCOPE_TRY(directory->openFile(name));
        }
        SHARDSCOPE_ASSIGN(Source place, sourceFor(path, io, files));
        if (format->probe(place).match == Probe::Match::no) {
            // What was written is the directory of a run.
            SHARDSCOPE_ASSIGN(const auto step, chooseInRun(place));
            if (step) {
                SHARDSCOPE_ASSIGN(place, sourceFor(joinPath(path, step->path), io, files));
            }
        }
        return format->open(place, {});
    };
    job.fileSystem = files ? std::move(files) : systemFileSystem(request.io);
    job.destination = p.destination;
    job.singleFile = p.singleFile;
    job.version = SHARDSCOPE_VERSION;
    job.options = request;
    job.scheduler = scheduler;
    if (!request.objectsFile.empty())
        job.beforePublication = [&p, &request] { return writeObjectsFile(p, request); };
    return job;
}

Status checkRunnable(const PreparedConversion& p) {
    if (p.plan.runnable()) {
        for (const PreparedInput& input : p.inputs)
            SHARDSCOPE_TRY(needData(input.source, "an average"));
        return needData(p.source, "a conversion");
    }
    const PlanLeftOut& first = p.plan.impossible.front();
    Error error = makeError(ErrorCode::impossible, first.why);
    error = first.name == p.destination ? std::move(error).inFile(first.name)
                                        : std::move(error).ofTensor(first.name);
    if (p.plan.impossible.size() > 1)
        error.hint =
            fmt::format("and {} more; 'shardscope plan' lists them", countText(p.plan.impossible.size() - 1));
    return error;
}

Result<ConvertReport> runPrepared(const PreparedConversion& p, const ConversionRequest& request,
                                  Progress* progress, const StopToken& stop) {
    SHARDSCOPE_ASSIGN(const auto own, resourcesFor(p, request, progress, stop));
    SHARDSCOPE_ASSIGN(const auto bucket, destinationFiles(p, request, progress, stop));
    auto report = runJob(p, request, conversionJob(p, request, nullptr, bucket), *own);
    if (report.ok()) report->unguarded = bucket && bucket->isUnguarded();
    return report;
}

Conversion::Conversion(const ConversionRequest& request, Execution execution, StopToken stop)
    : request_(request), execution_(std::move(execution)), stop_(std::move(stop)) {}

Conversion::~Conversion() = default;

Result<std::unique_ptr<Conversion>> Conversion::prepare(const ConversionRequest& request,
                                                        const Execution& execution, const StopToken& stop,
                                                        std::shared_ptr<FileSystem> files) {
    std::unique_ptr<Conversion> made(new Conversion(withNamedPaths(request), execution, stop));
    made->files_ = std::move(files);
    if (const auto* coordinator = std::get_if<Coordinator>(&made->execution_))
        SHARDSCOPE_TRY(made->connect(*coordinator));
    if (const auto* worker = std::get_if<Worker>(&made->execution_)) {
        const WorkerSession& session = *worker->session;
        made->files_ = session.table() ? peerFiles(session.peers(), session.table()) : session.files();
    }
    SHARDSCOPE_TRY(made->open());
    if (!made->peers_) return made;
    GroupReport& group = *made->group_;
    group.expected.seconds = made->prepared_->plan.estimateSeconds;
    if (group.ranks > 1) {
        SHARDSCOPE_ASSIGN(group.expected.linkRate, made->peers_->tryLinks(stop));
        const auto ranks = static_cast<uint64_t>(group.ranks);
        if (group.mode != SourceMode::direct)
            group.expected.bytesMoved = made->prepared_->plan.bytesRead / ranks * (ranks - 1);
        if (group.expected.linkRate > 0)
            group.expected.seconds =
                std::max(group.expected.seconds,
                         static_cast<double>(group.expected.bytesMoved) / group.expected.linkRate);
    }
    return made;
}

// Starts the workers ahead of the work where they are to say what they have of the source.
Status Conversion::connect(const Coordinator& coordinator) {
    CoordinatorOptions options = coordinator.options;
    if (options.peers) {
        SHARDSCOPE_ASSIGN(request_.source, absolutePath(request_.source));
        SHARDSCOPE_ASSIGN(request_.destination, absolutePath(request_.destination));
        options.source = request_.source;
        if (coordinator.ownDisks) options.destination = request_.destination;
    }
    SHARDSCOPE_ASSIGN(scheduler_, makeScheduler(options, request_));
    files_ = options.files;
    if (!options.peers) return {};
    SHARDSCOPE_ASSIGN(peers_, scheduler_->connect(stop_));
    // Only the source is looked for on their disks.
    if (!request_.average.empty() && coordinator.mode != SourceMode::automatic &&
        coordinator.mode != SourceMode::direct)
        return makeError(ErrorCode::usage,
                         fmt::format("the checkpoints of an average must be where all ranks see them ({})",
                                     option("on", "ranks,direct")));
    const SourceMode mode = request_.average.empty() ? coordinator.mode : SourceMode::direct;
    SHARDSCOPE_ASSIGN(PeerTable table, PeerTable::ask(*peers_, request_.source, mode, stop_));
    group_.emplace();
    group_->ranks = peers_->size();
    group_->mode = table.mode();
    group_->backend = readsForAll(coordinator) ? options.backend : "tcp";
    group_->compute = options.gpus ? "gpu" : "cpu";
    if (table.mode() == SourceMode::direct) return {};
    table_ = std::make_shared<const PeerTable>(std::move(table));
    files_ = peerFiles(peers_, table_);
    return {};
}

Status Conversion::open() {
    CheckpointOptions options = checkpointOptions(request_);
    options.io = request_.io;
    options.open.limits.valueMemory = request_.memory / 2;
    options.open.stop = stop_;
    options.fileSystem = files_;
    SHARDSCOPE_ASSIGN(const Checkpoint source, openCheckpoint(request_.source, options));
    SHARDSCOPE_ASSIGN(prepared_, prepareConversion(source, request_.destination, request_, stop_));
    return {};
}

std::vector<WorkerState> Conversion::workers() const {
    return scheduler_ ? scheduler_->workers() : std::vector<WorkerState>();
}

// What only a bucket can do, and what it cannot.
Status Conversion::checkDestinationKind() const {
    const bool bucket = !schemeOf(prepared_->destination).empty();
    if (!bucket && request_.verify == Verify::checksums)
        return makeError(ErrorCode::usage, fmt::format("{} is for a bucket", option("verify", "checksums")))
            .inFile(prepared_->destination);
    if (!bucket && request_.unguarded)
        return makeError(ErrorCode::usage, fmt::format("{} is for a bucket", option("unguarded")))
            .inFile(prepared_->destination);
    if (bucket && request_.overwrite) return nothingIsReplaced(prepared_->destination);
    if (!bucket || std::holds_alternative<Alone>(execution_)) return {};
    const auto* parts = std::get_if<Parts>(&execution_);
    if (!parts)
        return makeError(ErrorCode::impossible,
                         "workers write to a directory that all of them see, which a bucket is not")
            .inFile(prepared_->destination)
            .withHint(
                fmt::format("share the work by {} instead, or leave out {}", option("part"), option("on")));
    if (request_.unguarded)
        return makeError(ErrorCode::usage,
                         "parts find each other by conditional writes, which the store must have")
            .inFile(prepared_->destination)
            .withHint(fmt::format("leave out {}, or {}", option("unguarded"), option("part")));
    if (parts->seal)
        return makeError(ErrorCode::impossible,
                         "the parts of a destination in a bucket cannot read it back before it is complete")
            .inFile(prepared_->destination)
            .withHint(option("finish", "auto") + " has the last part verify all of it");
    return {};
}

Result<ConvertReport> Conversion::run(Progress* progress) {
    SHARDSCOPE_TRY(checkDestinationKind());
    if (std::holds_alternative<Alone>(execution_)) {
        auto report = runPrepared(*prepared_, request_, progress, stop_);
        finished_ = report.ok();
        return report;
    }
    SHARDSCOPE_ASSIGN(const auto own, resourcesFor(*prepared_, request_, progress, stop_));
    if (const auto* parts = std::get_if<Parts>(&execution_)) return runParts(*parts, *own);
    if (const auto* coordinator = std::get_if<Coordinator>(&execution_))
        return runTogether(*coordinator, *own);
    const auto& worker = std::get<Worker>(execution_);
    const ConvertJob job = conversionJob(*prepared_, request_, nullptr, disksOf(*worker.session));
    SHARDSCOPE_TRY(worker.session->serve(job, *own, worker.abilities));
    return ConvertReport();
}

// Where a worker writes the destination; null = on its own file system, as all do.
std::shared_ptr<FileSystem> Conversion::disksOf(const WorkerSession& session) const {
    if (session.diskByPeer().empty()) return session.files();
    const ConvertJob job = conversionJob(*prepared_, request_);
    return std::make_shared<PeerDisks>(session.peers(), job.destination,
                                       ownersByName(job, session.peers()->size()), session.diskByPeer());
}

Result<ConvertReport> Conversion::runParts(const Parts& parts, const Resources& resources) {
    SHARDSCOPE_ASSIGN(const ConvertJob job,
                      partsJob(*prepared_, request_, parts.part, resources.progress, stop_));
    Status objects;
    if (!request_.objectsFile.empty()) objects = checkObjectsFile(request_, *prepared_);
    const PartSpec part = parts.part.value_or(PartSpec{0, 1, parts.version});
    // What runs again after the publication finds that file, too.
    if (!objects.ok() && !publishedPart(job, part)) return objects.error();
    if (parts.part) {
        SHARDSCOPE_ASSIGN(part_, runPart(job, part, resources));
        if (!part_->open.empty()) return ConvertReport();
        if (parts.seal && !part_->published) {
            const Status sealed = sealParts(job, parts.version, resources);
            // Of two parts that end at once one seals.
            if (!sealed.ok() && sealed.error().code != ErrorCode::exists) return sealed.error();
        }
        if (!parts.finish) return ConvertReport();
    }
    if (!part_ || !part_->published) {
        std::optional<ConvertJob> last;
        if (parts.part && job.shared) {
            SHARDSCOPE_ASSIGN(last, partsJob(*prepared_, request_, {}, resources.progress, stop_));
        }
        auto report = finishParts(last ? *last : job, parts.version, resources);
        if (report.ok()) {
            SHARDSCOPE_TRY(writeBeside(*prepared_));
            finished_ = true;
            return report;
        }
        // Of two parts that end at once one finishes; the other finds it at work, or its result.
        const ErrorCode code = report.error().code;
        if (part_ && (code == ErrorCode::exists || code == ErrorCode::notFound)) return ConvertReport();
        part_ = publishedPart(job, part);
        if (!part_) return report;
    }
    // The process that published may have been killed before it wrote what is beside.
    SHARDSCOPE_TRY(writeBeside(*prepared_));
    return ConvertReport();
}

bool Conversion::readsForAll(const Coordinator& coordinator) const {
    return group_ && group_->mode == SourceMode::broadcast && group_->ranks > 1 && coordinator.options.group;
}

Result<ConvertReport> Conversion::runTogether(const Coordinator& coordinator, const Resources& resources) {
    const std::shared_ptr<FileSystem>& own = coordinator.options.files;
    std::shared_ptr<PeerDisks> disks;
    if (coordinator.ownDisks) {
        const ConvertJob job = conversionJob(*prepared_, request_);
        disks = std::make_shared<PeerDisks>(peers_, job.destination, ownersByName(job, peers_->size()));
    }
    const ConvertJob job = conversionJob(*prepared_, request_, scheduler_.get(),
                                         disks ? std::static_pointer_cast<FileSystem>(disks) : own);
    std::shared_ptr<TileCompute> compute;
    Resources reading = resources;  // for what this process reads for others
    Progress unseen;
    reading.progress = &unseen;
    if (peers_) {
        scheduler_->share(table_, disks);
        scheduler_->setHomes([&job, disks, this] {
            return homesOf(job, peers_->size(), table_, disks ? disks->diskByPeer() : std::vector<int>());
        });
        if (readsForAll(coordinator) && coordinator.openCompute) {
            SHARDSCOPE_ASSIGN(compute, coordinator.openCompute());
        }
        if (readsForAll(coordinator))
            scheduler_->setReading(
                [&](const SharedJob& shared, PartWorkerOptions options) {
                    options.compute = compute.get();
                    return PartWorker::join(job, shared, reading, std::move(options));
                },
                [disks, workers = static_cast<size_t>(peers_->size()),
                 owners = fileOwners(job, peers_->size())](size_t order, FileId file) {
                    return disks ? disks->diskByPeer()[static_cast<size_t>(owners[file])]
                                 : static_cast<int>(order % workers);
                },
                request_);
    }
    auto report = runJob(*prepared_, request_, job, resources);
    finished_ = report.ok();
    if (group_) group_->bytesMoved = scheduler_->bytesMoved();
    if (report.ok() && disks) group_->disks = diskShares(*disks, *peers_, job);
    return report;
}

Result<ConvertReport> runConversion(const ConversionRequest& request, const Execution& execution,
                                    Progress* progress, const StopToken& stop) {
    SHARDSCOPE_ASSIGN(const auto conversion, Conversion::prepare(request, execution, stop));
    return conversion->run(progress);
}

}  // namespace shardscope
