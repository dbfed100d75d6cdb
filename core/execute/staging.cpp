#include "execute/staging.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/option_words.h"
#include "base/units.h"
#include "execute/part_shares.h"

namespace shardscope {
namespace {

constexpr size_t kMaxOpenFiles = 256;
constexpr const char* kJournalName = "journal";
constexpr const char* kDataName = "data";
constexpr const char* kSealName = "sealed";
constexpr const char* kVerifyName = "verify";
constexpr const char* kRereadName = "reread";

constexpr const char* kJobAttribute = "job";  // of a published destination: jobText()

constexpr const char* kAnotherJob = "another job is writing this destination";

bool isThere(FileSystem& system, const std::string& path) {
    return system.stat(path).ok();
}

std::string jobText(const JournalHeader& header) {
    return header.plan.hex() + header.source.hex();
}

// What is in a directory and in those of its folders that are to be there, with the sizes of files. Errors:
// exists, when there is something that is in neither list.
struct Listing {
    const Directory& directory;
    const std::set<std::string>& files;
    const std::set<std::string>& folders;
    std::map<std::string, uint64_t> sizes{};

    Status add(const std::string& folder) {
        SHARDSCOPE_ASSIGN(const auto entries, directory.list(folder));
        for (const DirectoryEntry& entry : entries) {
            const std::string name = folder.empty() ? entry.name : folder + "/" + entry.name;
            if (entry.kind == DirectoryEntry::Kind::file && files.contains(name))
                sizes[name] = entry.size;
            else if (entry.kind == DirectoryEntry::Kind::directory && folders.contains(name))
                SHARDSCOPE_TRY(add(name));
            else
                return makeError(ErrorCode::exists,
                                 "the staged output has a file that the plan does not have")
                    .inFile(joinPath(directory.path(), name))
                    .withHint("it is not published: move it away");
        }
        return {};
    }
};

// Whether this job has published the destination, as its attribute says.
bool isMarked(const ConvertJob& job, const JournalHeader& header) {
    const auto found = job.fileSystem->attribute(job.destination, kJobAttribute);
    return found.ok() && *found == jobText(header);
}

// Whether the files of the destination are there in their sizes, beside whatever else.
bool standsWhole(const ConvertJob& job) {
    const std::vector<TargetFile>& files = job.layout->files;
    if (job.singleFile) {
        const auto entry = job.fileSystem->stat(job.destination);
        return entry.ok() && entry->kind == DirectoryEntry::Kind::file && entry->size == files[0].size;
    }
    const auto directory = job.fileSystem->openDirectory(job.destination);
    return directory.ok() && std::ranges::all_of(files, [&](const TargetFile& file) {
               const auto entry = (*directory)->stat(file.path);
               return entry.ok() && entry->kind == DirectoryEntry::Kind::file && entry->size == file.size;
           });
}

std::set<std::string> foldersOf(const std::set<std::string>& files) {
    std::set<std::string> folders;
    for (const std::string& file : files) {
        for (size_t slash = file.find('/'); slash != file.npos; slash = file.find('/', slash + 1))
            folders.insert(file.substr(0, slash));
    }
    return folders;
}

// What one process alone has done here, if it has done anything.
Result<std::optional<JournalContent>> workOfOne(const Directory& directory) {
    const auto file = directory.openFile(kJournalName);
    if (!file.ok() && file.error().code != ErrorCode::notFound) return file.error();
    std::optional<JournalContent> content;
    if (file.ok()) {
        SHARDSCOPE_ASSIGN(content, readJournal(**file));
    }
    if (content && content->tiles.empty()) content.reset();
    return content;
}

TakeRecord tilesTo(std::vector<JournalTile>& tiles) {
    return [&tiles](std::string_view record) {
        auto tile = decodeTile(record);
        if (tile) tiles.push_back(std::move(*tile));
        return tile.has_value();
    };
}

// Errors after which a later attempt with the same plan can succeed with what is there.
bool worthKeeping(ErrorCode code) {
    switch (code) {
        case ErrorCode::io:
        case ErrorCode::noSpace:
        case ErrorCode::permission:
        case ErrorCode::notFound:
        case ErrorCode::cancelled:
        case ErrorCode::remote:
        case ErrorCode::exists:
            return true;
        default:
            return false;
    }
}

}  // namespace

double steadySeconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Staging::Staging(const ConvertJob& job, const JournalHeader& header, Role role, PartSpec part)
    : job_(job),
      system_(*job.fileSystem),
      header_(header),
      path_(stagingPath(job.destination)),
      role_(role),
      part_(std::move(part)),
      lastFlush_(steadySeconds()) {
    std::tie(parent_, name_) = splitPath(job.destination);
}

Result<std::unique_ptr<Staging>> Staging::begun(std::unique_ptr<Staging> staging, Status status) {
    if (status.ok()) return staging;
    Error error = std::move(status).error();
    return staging->owned_ ? staging->giveUp(std::move(error)) : error;
}

Result<std::unique_ptr<Staging>> Staging::open(const ConvertJob& job, const JournalHeader& header) {
    std::unique_ptr<Staging> staging(new Staging(job, header, Role::all));
    Status status = staging->begin();
    return begun(std::move(staging), std::move(status));
}

Result<std::unique_ptr<Staging>> Staging::openTogether(const ConvertJob& job, const JournalHeader& header,
                                                       const PartSpec& any) {
    std::unique_ptr<Staging> staging(new Staging(job, header, Role::coordinate, any));
    Status status = staging->beginTogether();
    return begun(std::move(staging), std::move(status));
}

Result<std::unique_ptr<Staging>> Staging::join(const ConvertJob& job, const JournalHeader& header,
                                               const PartSpec& worker, const std::string& id) {
    std::unique_ptr<Staging> staging(new Staging(job, header, Role::work, worker));
    const auto look = [&]() -> Status {
        SHARDSCOPE_TRY(staging->openDirectory());
        SHARDSCOPE_ASSIGN(const auto marker, PartJournals::marker(*staging->directory_));
        if (!marker || marker->id != id)
            return makeError(ErrorCode::changed, "it belongs to another job").inFile(staging->path_);
        return staging->openPartFiles();
    };
    Status seen = look();
    if (seen.ok()) return staging;
    Error error = std::move(seen).error();
    error.message = "the coordinator's staging directory is not seen from here: " + error.message;
    error.code = ErrorCode::remote;
    error.hint =
        "the destination must be on a file system that all workers share, or on the ranks' own disks: " +
        option("own-disks");
    return error;
}

Status Staging::syncData() {
    std::set<FileId> files;
    {
        std::lock_guard lock(mutex_);
        files = std::exchange(dirty_, {});
    }
    return syncFiles(files);
}

Status Staging::checkDestination() {
    const auto there = system_.stat(job_.destination);
    if (!there.ok() && there.error().code != ErrorCode::notFound) return there.error();
    if (there.ok() && there->kind == DirectoryEntry::Kind::other)
        return makeError(ErrorCode::exists,
                         "at the destination is a link that leads nowhere, a device, a pipe or a socket")
            .inFile(job_.destination)
            .withHint("remove it, or choose another destination");
    replaces_ = there.ok();
    removeLeftOver();
    if (replaces_ && !job_.options.overwrite) {
        const bool ours = inParts() && isMarked(job_, header_);
        return makeError(ErrorCode::exists,
                         ours && !standsWhole(job_)
                             ? "the destination that this job has published is not whole any more"
                             : "the destination exists already")
            .inFile(job_.destination)
            .withHint("choose another destination, or " + option("overwrite"));
    }
    if (job_.singleFile && job_.layout->files.size() != 1) {
        return makeError(ErrorCode::internal, "a single-file destination with several files");
    }
    return {};
}

// Back to where it was, when a process has ended while it replaced the destination. Holds the lock.
Status Staging::restoreFormer() {
    const std::string former = asidePath(job_.destination);
    if (isThere(system_, job_.destination) || !isThere(system_, former)) return {};
    SHARDSCOPE_TRY(system_.rename(former, job_.destination));
    SHARDSCOPE_TRY(system_.syncDirectory(parent_));
    return checkDestination();
}

// Takes away what a process has left that was killed once it had moved the files to the destination.
void Staging::removeLeftOver() {
    const auto directory = system_.openDirectory(path_);
    if (!directory.ok()) return;
    const PartJournals parts(*directory, header_, part_);
    // Where nothing is published, only a marker tells such a directory from one that has just been made.
    const bool published = replaces_ && !job_.options.overwrite;
    const auto isLeft = [&] { return (published || parts.isThere()) && !isThere(system_, dataDirectory()); };
    if (!isLeft()) return;
    const auto lock = parts.tryLock();
    if (!lock.ok() || !*lock || !isLeft()) return;
    if (replaces_) (void)system_.removeTree(asidePath(job_.destination));
    (void)system_.removeTree(path_);
}

Status Staging::makeStagingDirectory() {
    Status made = system_.makeDirectory(path_);
    if (made.ok() || made.error().code != ErrorCode::notFound) return made;
    SHARDSCOPE_TRY(parents_.make(system_, path_));
    made = system_.makeDirectory(path_);
    if (made.ok() || made.error().code != ErrorCode::notFound) return made;
    Error error = std::move(made).error();
    error.code = ErrorCode::io;  // it is not the source that is missing
    return error;
}

Status Staging::takeLock(const char* whoElse) {
    SHARDSCOPE_ASSIGN(lock_, parts_->tryLock());
    return lock_ ? Status() : Status(isBusy(whoElse));
}

Error Staging::isBusy(const char* whoElse) const {
    return makeError(ErrorCode::exists, whoElse)
        .inFile(shownPath())
        .withHint("wait for it, or stop it first");
}

// The staging directory, new or that of an earlier job, held by this one; says whether it is new.
Result<bool> Staging::makeAndLock() {
    SHARDSCOPE_TRY(checkDestination());
    Status made = makeStagingDirectory();
    if (!made.ok() && made.error().code != ErrorCode::exists) return std::move(made).error();
    owned_ = made.ok();
    SHARDSCOPE_TRY(openDirectory());
    if (Status locked = takeLock(kAnotherJob); !locked.ok()) {
        owned_ = owned_ && locked.error().code != ErrorCode::exists;
        return std::move(locked).error();
    }
    return made.ok();
}

Status Staging::begin() {
    SHARDSCOPE_ASSIGN(bool isNew, makeAndLock());
    SHARDSCOPE_ASSIGN(const auto parts, PartJournals::marker(*directory_));
    if (parts) {
        owned_ = false;
        parts_.emplace(directory_, header_, PartSpec{0, parts->count, parts->version});
        if (isWorthResuming()) return hasWork();
        SHARDSCOPE_TRY(startOver());
        isNew = true;
    }
    SHARDSCOPE_TRY(restoreFormer());
    if (!isNew) SHARDSCOPE_TRY(takeOver());
    SHARDSCOPE_TRY(makeData());
    return startJournal();
}

Status Staging::makeData() {
    const std::string data = dataDirectory();
    if (!isThere(system_, data)) SHARDSCOPE_TRY(system_.makeDirectory(data));
    SHARDSCOPE_ASSIGN(data_, system_.openDirectory(data));
    return makeFiles();
}

// A staging directory is there: of a job that runs, of one to be resumed, or of no use.
Status Staging::takeOver() {
    SHARDSCOPE_ASSIGN(auto content, workOfOne(*directory_));
    // Without its files a journal claims nothing: the job got as far as moving them to the destination.
    // Another plan's files are worth a question.
    const bool useful =
        content && holdsFiles(isSameJob(content->header, header_) ? Files::inFull : Files::any);
    if (!useful) return startOver();
    if (!job_.options.resume) return hasWork();
    if (!(content->header.source == header_.source)) {
        return makeError(ErrorCode::changed, "the source has changed since the job was interrupted")
            .inFile(shownPath())
            .withHint("remove the directory and start again");
    }
    if (!(content->header.plan == header_.plan)) {
        return makeError(ErrorCode::changed,
                         "the interrupted job had a different plan (options, names or sharding)")
            .inFile(shownPath())
            .withHint("use the same options, or remove the directory and start again");
    }
    SHARDSCOPE_TRY(checkStaged());
    owned_ = true;
    resumable_ = true;
    header_.tiles = content->header.tiles;
    reusable_ = std::move(content->tiles);
    journalEnd_ = content->validBytes;
    return {};
}

// What is there is of no use.
Status Staging::startOver() {
    lock_.reset();
    directory_.reset();
    SHARDSCOPE_TRY(system_.removeTree(path_));
    SHARDSCOPE_TRY(system_.makeDirectory(path_));
    owned_ = true;
    SHARDSCOPE_TRY(openDirectory());
    if (Status locked = takeLock(kAnotherJob); !locked.ok()) {
        owned_ = false;
        return locked;
    }
    return {};
}

Error Staging::hasWork() const {
    return makeError(ErrorCode::exists, "an interrupted job has left its work here")
        .inFile(shownPath())
        .withHint(fmt::format("use {} to continue it; or remove the directory", option("resume")));
}

// ------------------------------------------------------------------ in parts

Result<std::unique_ptr<Staging>> Staging::openPart(const ConvertJob& job, const JournalHeader& header,
                                                   const PartSpec& part, const StopToken& stop) {
    std::unique_ptr<Staging> staging(new Staging(job, header, Role::part, part));
    SHARDSCOPE_TRY(staging->beginPart(stop));
    return staging;
}

bool Staging::isPublished(const ConvertJob& job, const JournalHeader& header) {
    return !job.options.overwrite && isMarked(job, header) && standsWhole(job);
}

Result<uint32_t> Staging::partCount(const ConvertJob& job) {
    const std::string path = stagingPath(job.destination);
    auto directory = job.fileSystem->openDirectory(path);
    std::optional<PartJournals::Marker> marker;
    if (directory.ok()) {
        SHARDSCOPE_ASSIGN(marker, PartJournals::marker(**directory));
    } else if (directory.error().code != ErrorCode::notFound) {
        return std::move(directory).error();
    }
    if (!marker) return noParts(path);
    return marker->count;
}

Result<bool> Staging::isOfOneProcess(const ConvertJob& job) {
    const auto directory = job.fileSystem->openDirectory(stagingPath(job.destination));
    if (!directory.ok()) {
        if (directory.error().code == ErrorCode::notFound) return false;
        return directory.error();
    }
    SHARDSCOPE_ASSIGN(const auto content, workOfOne(**directory));
    return content.has_value();
}

Result<std::unique_ptr<Staging>> Staging::openFinish(const ConvertJob& job, const JournalHeader& header,
                                                     const PartSpec& any) {
    std::unique_ptr<Staging> staging(new Staging(job, header, Role::finish, any));
    SHARDSCOPE_TRY(staging->checkDestination());
    SHARDSCOPE_TRY(staging->openDirectory());
    SHARDSCOPE_TRY(staging->takeLock("another process finishes this conversion"));
    SHARDSCOPE_TRY(staging->restoreFormer());
    SHARDSCOPE_ASSIGN(const bool begun, staging->parts_->check());
    if (!begun) return noParts(staging->path_);
    if (job.shared) {
        SHARDSCOPE_ASSIGN(const std::set<std::string> done, job.shared->done());
        const std::vector<uint32_t> open = PartJournals::openOf(any.count, done);
        if (!open.empty()) return partsAreOpen(open, any.count, job.destination, "");
        SHARDSCOPE_TRY(staging->makeData());
    }
    SHARDSCOPE_TRY(staging->openPartFiles());
    if (job.shared) SHARDSCOPE_TRY(job.shared->gatherData());
    SHARDSCOPE_ASSIGN(staging->reusable_, staging->readParts());
    staging->resumable_ = true;
    return staging;
}

Status Staging::beginPart(const StopToken& stop) {
    SHARDSCOPE_TRY(checkDestination());
    Status made = makeStagingDirectory();
    if (!made.ok() && made.error().code != ErrorCode::exists) return made;
    SHARDSCOPE_TRY(openDirectory());
    const Status begun = parts_->begin(
        stop,
        [&] {
            // Since it was looked for, another process may have published and taken the directory away.
            Status unpublished = checkDestination();
            if (unpublished.ok()) unpublished = restoreFormer();
            if (unpublished.ok()) return setUpParts();
            if (made.ok()) (void)system_.removeTree(path_);
            return unpublished;
        },
        [&] {
            // Who holds the lock is another part that sets up, or a job of its own.
            return directory_->stat(kJournalName).ok() ? Status(isBusy(kAnotherJob)) : Status();
        });
    if (!begun.ok()) {
        // What was set up here is not what the others have agreed on.
        if (job_.shared && made.ok()) (void)system_.removeTree(path_);
        return begun;
    }
    SHARDSCOPE_TRY(openPartFiles());
    SHARDSCOPE_TRY(startPartJournal());
    // Of this part, too, if a coordinator has had it done.
    SHARDSCOPE_TRY(parts_->readWorkers(tilesTo(reusable_)));
    return {};
}

Status Staging::startPartJournal() {
    SHARDSCOPE_ASSIGN(journal_, parts_->startOwn(tilesTo(reusable_), resumable_));
    if (resumable_) begunParts_.insert(part_.index);
    return {};
}

Status Staging::beginTogether() {
    SHARDSCOPE_ASSIGN(const bool isNew, makeAndLock());
    SHARDSCOPE_TRY(restoreFormer());
    if (!isNew) SHARDSCOPE_TRY(takeOverParts());
    if (resumable_) return {};
    SHARDSCOPE_TRY(setUpParts());
    return parts_->writeMarker();
}

// What stands there: parts with work, one process's work, or nothing of use.
Status Staging::takeOverParts() {
    SHARDSCOPE_ASSIGN(const auto marker, PartJournals::marker(*directory_));
    if (!marker) {
        SHARDSCOPE_TRY(takeOver());
        return resumable_ ? hasWork() : Status();
    }
    if (!isWorthResuming()) return startOver();
    if (!job_.options.resume) return hasWork();
    SHARDSCOPE_TRY(parts_->check());
    SHARDSCOPE_TRY(openPartFiles());
    SHARDSCOPE_TRY(removeSeal());
    SHARDSCOPE_ASSIGN(reusable_, readParts());
    owned_ = resumable_ = true;
    return {};
}

// Without its files no journal claims anything. Another plan's work is worth a question.
bool Staging::isWorthResuming() const {
    if (!holdsFiles(parts_->check().ok() ? Files::all : Files::any)) return false;
    const auto work = parts_->holdWork();
    return !work.ok() || *work;
}

bool Staging::holdsFiles(Files which) const {
    const auto data = system_.openDirectory(dataDirectory());
    if (!data.ok() || which == Files::any) return data.ok();
    return std::ranges::all_of(allFiles(), [&](FileId f) {
        const auto entry = (*data)->stat(fileName(f));
        return entry.ok() && (which == Files::all || entry->size == job_.layout->files[f].size);
    });
}

Status Staging::openDirectory() {
    SHARDSCOPE_ASSIGN(directory_, system_.openDirectory(path_));
    parts_.emplace(directory_, header_, part_, job_.shared.get());
    return {};
}

Status Staging::setUpParts() {
    if (directory_->stat(kJournalName).ok())
        return makeError(ErrorCode::exists, "an interrupted job has left its work here")
            .inFile(shownPath())
            .withHint(fmt::format("{} without {} continues it; or remove the directory", option("resume"),
                                  option("part")));
    // Without a marker all that is here is of no use: of parts with other words that were ended while they
    // set up, or of an earlier conversion, whose publication may have put the former destination here.
    SHARDSCOPE_TRY(parts_->removeJournals());
    SHARDSCOPE_TRY(removeSeal());
    const std::string data = dataDirectory();
    if (isThere(system_, data)) SHARDSCOPE_TRY(system_.removeTree(data));
    SHARDSCOPE_TRY(makeData());
    // What a journal claims later is about files of these names and sizes.
    SHARDSCOPE_TRY(syncFiles(allFiles()));
    SHARDSCOPE_TRY(data_->sync());
    return system_.syncDirectory(parent_);
}

Status Staging::openPartFiles() {
    SHARDSCOPE_ASSIGN(data_, system_.openDirectory(dataDirectory()));
    return checkStaged();
}

// All files of the plan, in their sizes, and nothing else. Errors: changed, exists.
Status Staging::checkStaged() const {
    const std::string data = dataDirectory();
    std::set<std::string> files;
    for (const FileId f : allFiles())
        files.insert(fileName(f));
    const std::set<std::string> folders = foldersOf(files);
    SHARDSCOPE_ASSIGN(const auto directory, system_.openDirectory(data));
    Listing found{*directory, files, folders};
    SHARDSCOPE_TRY(found.add(""));
    for (const FileId f : allFiles()) {
        const auto size = found.sizes.find(fileName(f));
        if (size != found.sizes.end() && size->second == job_.layout->files[f].size) continue;
        return makeError(ErrorCode::changed, size == found.sizes.end()
                                                 ? "a file of the staged output is missing"
                                                 : "a file of the staged output has another size")
            .inFile(joinPath(data, fileName(f)))
            .withHint(inParts() ? "remove the staging directory and run all parts again"
                                : "remove the staging directory and start again");
    }
    return {};
}

std::set<FileId> Staging::allFiles() const {
    std::set<FileId> all;
    for (FileId f = 0; f < job_.layout->files.size(); ++f)
        all.insert(all.end(), f);
    return all;
}

Result<std::vector<JournalTile>> Staging::readParts() {
    std::vector<JournalTile> tiles;
    SHARDSCOPE_ASSIGN(begunParts_, parts_->readAll(tilesTo(tiles)));
    return tiles;
}

std::string Staging::fileName(FileId file) const {
    return job_.singleFile ? name_ : job_.layout->files[file].path;
}

Status Staging::makeFiles() {
    const std::vector<TargetFile>& files = job_.layout->files;
    std::vector<FileId> missing;
    uint64_t needed = 0;
    for (FileId f = 0; f < files.size(); ++f) {
        if (resumable_) continue;  // they are all there, in full size
        missing.push_back(f);
        needed += files[f].size;
    }
    SHARDSCOPE_ASSIGN(const uint64_t available, system_.freeBytes(parent_));
    // One per cent on top for the file system's own records.
    if (needed > available || needed / 100 > available - needed) {
        return makeError(ErrorCode::noSpace,
                         fmt::format("{} are needed, {} are free", bytesText(needed + needed / 100),
                                     bytesText(available)))
            .inFile(parent_)
            .withHint("free some space or choose another destination");
    }
    for (FileId f : missing) {
        SHARDSCOPE_ASSIGN(const auto file, data_->createFile(fileName(f), inParts()));
        SHARDSCOPE_TRY(file->allocate(files[f].size));
    }
    return {};
}

Status Staging::startJournal() {
    SHARDSCOPE_ASSIGN(auto file, directory_->createFile(kJournalName, true));
    SHARDSCOPE_ASSIGN(journal_, JournalWriter::start(std::move(file), header_, journalEnd_));
    return {};
}

Result<std::shared_ptr<WriteFile>> Staging::fileOf(FileId id) {
    std::lock_guard lock(filesMutex_);
    if (const auto found = open_.find(id); found != open_.end()) {
        recent_.splice(recent_.begin(), recent_, found->second.place);
        return found->second.file;
    }
    SHARDSCOPE_ASSIGN(auto file, data_->createFile(fileName(id), true));
    if (open_.size() >= kMaxOpenFiles) {
        open_.erase(recent_.back());
        recent_.pop_back();
    }
    recent_.push_front(id);
    open_[id] = {file, recent_.begin()};
    return file;
}

Status Staging::write(FileId id, uint64_t offset, std::span<const std::byte> bytes, bool bulk) {
    if (id >= job_.layout->files.size() || offset > job_.layout->files[id].size ||
        bytes.size() > job_.layout->files[id].size - offset) {
        return makeError(ErrorCode::internal, "the layout writes outside its files");
    }
    SHARDSCOPE_ASSIGN(const auto file, fileOf(id));
    SHARDSCOPE_TRY(bulk ? file->writeBulk(offset, bytes) : file->writeAt(offset, bytes));
    std::lock_guard lock(mutex_);
    dirty_.insert(id);
    return {};
}

Status Staging::finished(JournalTile tile, uint64_t bytes) {
    std::unique_lock lock(mutex_);
    pending_.push_back(std::move(tile));
    pendingBytes_ += bytes;
    if (flushing_) return {};
    if (pendingBytes_ < job_.options.journalBytes &&
        steadySeconds() - lastFlush_ < job_.options.journalSeconds)
        return {};
    return flush(lock);
}

Status Staging::flush(std::unique_lock<std::mutex>& lock) {
    flushing_ = true;
    const std::vector<JournalTile> batch = std::move(pending_);
    const std::set<FileId> files = std::move(dirty_);
    pending_.clear();
    dirty_.clear();
    pendingBytes_ = 0;
    const bool writeBatch = !lost_;
    lock.unlock();
    Status status;
    if (writeBatch) {
        // The names and sizes of the files and the name of the journal must be on disk before the first claim
        // about them. Those of parts are since their set-up.
        status = syncFiles(resumable_ || doesParts() ? files : allFiles());
        if (status.ok() && !resumable_) {
            status = data_->sync();
            if (status.ok()) status = directory_->sync();
            if (status.ok()) status = system_.syncDirectory(parent_);
        }
        // A worker that cannot write here is to fail at its first part, which others can do.
        if (status.ok() && !batch.empty() && !journal_) status = startPartJournal();
        if (status.ok() && !batch.empty()) status = journal_->append(encodeTiles(batch));
    }
    lock.lock();
    flushing_ = false;
    lastFlush_ = steadySeconds();
    if (!status.ok()) {
        lost_ = true;
    } else if (writeBatch && !batch.empty()) {
        resumable_ = true;
    }
    return status;
}

Status Staging::syncFiles(const std::set<FileId>& files) {
    for (FileId id : files) {
        SHARDSCOPE_ASSIGN(const auto file, fileOf(id));
        SHARDSCOPE_TRY(file->sync());
    }
    return {};
}

Status Staging::syncAll() {
    {
        std::unique_lock lock(mutex_);
        // The last claim of the last part lets another process publish, which takes these directories away.
        // Their names are on disk already: flush() sees to that before the first claim.
        if (doesParts()) return pending_.empty() ? Status() : flush(lock);
        SHARDSCOPE_TRY(flush(lock));
    }
    SHARDSCOPE_TRY(data_->sync());
    return directory_->sync();
}

Status Staging::seal() {
    SHARDSCOPE_ASSIGN(const auto file, directory_->createFile(kSealName, true));
    SHARDSCOPE_TRY(file->sync());
    return directory_->sync();
}

bool Staging::isSealed() const {
    return inParts() && directory_->stat(kSealName).ok();
}

std::string Staging::verifyPath() const {
    return path_ + "/" + kVerifyName;
}

std::string Staging::rereadPath() const {
    return path_ + "/" + kRereadName;
}

Status Staging::removeSeal() {
    if (directory_->stat(kSealName).ok()) SHARDSCOPE_TRY(directory_->removeFile(kSealName));
    for (const std::string& records : {verifyPath(), rereadPath()})
        if (isThere(system_, records)) SHARDSCOPE_TRY(system_.removeTree(records));
    return {};
}

std::string Staging::dataDirectory() const {
    return path_ + "/" + kDataName;
}

std::string Staging::dataPath() const {
    return job_.singleFile ? dataDirectory() + "/" + name_ : dataDirectory();
}

Status Staging::publish() {
    {
        std::lock_guard lock(filesMutex_);
        open_.clear();
        recent_.clear();
    }
    SHARDSCOPE_TRY(checkStaged());
    // Where it cannot be kept, a part that runs again finds just that the destination exists.
    if (inParts()) (void)system_.setAttribute(dataPath(), kJobAttribute, jobText(header_));
    SHARDSCOPE_TRY(replaces_ ? replace() : system_.rename(dataPath(), job_.destination));
    owned_ = false;
    if (const Status synced = system_.syncDirectory(parent_); !synced.ok()) {
        Error error = synced.error();
        error.hint = "the destination is written and in its place, but may not survive a power failure";
        if (replaces_ && !job_.singleFile)
            error.hint += "; the former one is in " + path_;
        else
            (void)system_.removeTree(path_);
        return error;
    }
    // The destination is whole; a left-over directory is not worth an error.
    if (replaces_) (void)system_.removeTree(asidePath(job_.destination));
    (void)system_.removeTree(path_);
    return {};
}

// Afterwards the staging directory holds the former destination, which no journal may vouch for.
Status Staging::replace() {
    {
        std::lock_guard lock(mutex_);
        journal_.reset();
        resumable_ = false;
    }
    SHARDSCOPE_TRY(inParts() ? parts_->removeMarker() : directory_->removeFile(kJournalName));
    if (inParts()) {
        SHARDSCOPE_TRY(parts_->removeJournals());
        SHARDSCOPE_TRY(removeSeal());
    }
    SHARDSCOPE_TRY(directory_->sync());
    Status exchanged = system_.exchange(dataPath(), job_.destination);
    if (!exchanged.ok() && !isThere(system_, job_.destination)) (void)restoreFormer();
    return exchanged;
}

Error Staging::giveUp(Error error) {
    if (role_ == Role::work || (role_ == Role::all && !owned_)) return error;
    {
        std::unique_lock lock(mutex_);
        if (journal_ && !lost_ && worthKeeping(error.code) && !pending_.empty()) (void)flush(lock);
    }
    if (role_ == Role::part || (role_ == Role::finish && worthKeeping(error.code))) {
        return alsoHint(std::move(error), role_ == Role::part
                                              ? "the part continues where it stopped when it runs again"
                                              : option("finish") + " can be tried again");
    }
    if (role_ == Role::coordinate) resumable_ = isWorthResuming();
    if (resumable_ && !lost_ && worthKeeping(error.code)) {
        return alsoHint(std::move(error),
                        fmt::format("{} continues where it stopped; the work so far is in {}",
                                    option("resume"), shownPath()));
    }
    (void)system_.removeTree(path_);
    return error;
}

}  // namespace shardscope
