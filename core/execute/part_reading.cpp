#include "execute/part_reading.h"

#include <filesystem>
#include <mutex>

#include <fmt/format.h>

#include "execute/identity.h"
#include "execute/part_journals.h"
#include "execute/part_shares.h"
#include "execute/part_worker.h"
#include "execute/staging.h"
#include "storage/parents.h"

namespace shardscope {
namespace {

constexpr double kFlushSeconds = 2;  // how much work may be lost when the process is killed

// The journal of a part, brought to disk now and then.
class FoundJournal {
  public:
    explicit FoundJournal(std::unique_ptr<JournalWriter> writer)
        : writer_(std::move(writer)), lastFlush_(steadySeconds()) {}

    Status keep(uint32_t item, int64_t tile, std::string data) {
        std::lock_guard lock(mutex_);
        pending_.push_back({item, tile, std::move(data)});
        return steadySeconds() - lastFlush_ < kFlushSeconds ? Status() : write();
    }
    Status flush() {
        std::lock_guard lock(mutex_);
        return write();
    }

  private:
    Status write() {
        lastFlush_ = steadySeconds();
        if (pending_.empty()) return {};
        const std::string records = encodeFindings(pending_);
        pending_.clear();
        return writer_->append(records);
    }

    std::mutex mutex_;
    const std::unique_ptr<JournalWriter> writer_;
    std::vector<JournalFinding> pending_;
    double lastFlush_;
};

JournalHeader readingHeader(const PartReading& reading, const std::vector<SourceFile>& files,
                            uint64_t tileBytes) {
    const Catalog& catalog = reading.reader->catalog();
    return {readingFingerprint(catalog, reading.words), sharedFingerprint(files), {tileBytes, tileBytes}};
}

// So that nothing of the user's is among what is removed in the end.
Status checkOnlyRecords(const Directory& directory) {
    SHARDSCOPE_ASSIGN(const auto entries, directory.list());
    for (const DirectoryEntry& entry : entries) {
        if (PartJournals::isOwnName(entry.name)) continue;
        return makeError(ErrorCode::exists, "the directory for the records holds other files")
            .inFile(joinPath(directory.path(), entry.name))
            .withHint("choose an empty directory, or one that is not there yet");
    }
    return {};
}

Result<std::shared_ptr<Directory>> recordsDirectory(FileSystem& system, const std::string& path) {
    SHARDSCOPE_TRY(makeParents(system, path));
    const Status made = system.makeDirectory(path);
    if (!made.ok() && made.error().code != ErrorCode::exists) return made.error();
    SHARDSCOPE_ASSIGN(auto directory, system.openDirectory(path));
    SHARDSCOPE_TRY(checkOnlyRecords(*directory));
    if (made.ok()) SHARDSCOPE_TRY(system.syncDirectory(splitPath(path).first));
    return directory;
}

FileSystem& systemOf(const PartReading& reading) {
    static const std::shared_ptr<FileSystem> own = systemFileSystem();
    return reading.fileSystem ? *reading.fileSystem : *own;
}

TakeRecord findingsTo(std::function<bool(uint32_t, int64_t, std::string_view)> take) {
    return [take = std::move(take)](std::string_view record) {
        const auto finding = decodeFinding(record);
        return finding && take(finding->item, finding->tile, finding->data);
    };
}

TakeRecord tilesTo(PartShares::Done& done) {
    return findingsTo([&done](uint32_t item, int64_t tile, std::string_view) {
        done.tiles.emplace(item, tile);
        return true;
    });
}

}  // namespace

Result<PartReport> readPart(const PartReading& reading, const PartSpec& part, const Resources& resources) {
    SHARDSCOPE_TRY(checkPart(part));
    const double begin = steadySeconds();
    SHARDSCOPE_ASSIGN(const std::vector<SourceFile> files, sourceFiles(*reading.reader, reading.files));
    const PartShares shares(reading.items, part.count, reading.homes);
    // A coordinator counts what its workers do, and knows what is left.
    const bool given = !part.journal.empty();
    PartReport report;
    report.part = part;
    PartShares::Done done;
    bool continued = false;
    std::shared_ptr<Directory> directory;
    std::optional<PartJournals> begun;
    const auto start = [&]() -> Result<std::unique_ptr<JournalWriter>> {
        SHARDSCOPE_ASSIGN(directory, recordsDirectory(systemOf(reading), reading.records));
        begun.emplace(directory, readingHeader(reading, files, shares.tileBytes()), part);
        SHARDSCOPE_TRY(begun->begin(
            resources.stop, [&] { return begun->removeJournals(); }, [] { return Status(); }));
        auto own = begun->startOwn(tilesTo(done), continued);
        if (own.ok() && part.retry) SHARDSCOPE_TRY(begun->readAll(tilesTo(done)));
        return own;
    };
    auto writer = start();
    // Another process may have finished in between, and removed the records.
    while (!writer.ok() && writer.error().code == ErrorCode::notFound)
        writer = start();
    if (!writer.ok()) return std::move(writer).error();
    const PartJournals& journals = *begun;
    if (continued) done.begun.insert(part.index);
    FoundJournal journal(std::move(writer).value());
    const std::vector<TileSpan> spans = shares.openSpans(part.index, done, report);
    if (Progress* progress = given ? nullptr : resources.progress) {
        progress->begin(Progress::Phase::read, report.bytes);
        progress->add(report.bytesReused);
    }
    const auto read = reading.read(spans, shares.tileBytes(), resources,
                                   [&](uint32_t item, int64_t tile, std::string data) {
                                       return journal.keep(item, tile, std::move(data));
                                   });
    Status status = read.ok() ? checkUnchanged(files) : Status(read.error());
    // What was found before an error counts when the part runs again, unless the files are others by then.
    if (const Status kept = journal.flush(); status.ok()) status = kept;
    if (!status.ok()) {
        Error error = std::move(status).error();
        if (given) return error;
        return alsoHint(std::move(error), "the part continues where it stopped when it runs again");
    }
    SHARDSCOPE_TRY(directory->sync());
    report.bytesRead = *read;
    report.seconds = steadySeconds() - begin;
    if (given) return report;
    PartShares::Done all;
    SHARDSCOPE_ASSIGN(all.begun, journals.readAll(tilesTo(all)));
    report.open = shares.openParts(all);
    if (part.atOnce && !report.open.empty()) SHARDSCOPE_TRY(journals.awaitAll(all.begun, resources.stop));
    // Once all are done another one may finish, and take the journals away while they are read.
    if (!report.open.empty() && !journals.isThere()) report.open.clear();
    report.setUpBy = journals.setUpBy();
    report.alone = part.count > 1 && all.begun.size() == 1;
    return report;
}

Status checkRecords(const PartReading& reading, const std::string& id) {
    const auto marker = [&]() -> Result<std::optional<PartJournals::Marker>> {
        SHARDSCOPE_ASSIGN(const auto directory, systemOf(reading).openDirectory(reading.records));
        return PartJournals::marker(*directory);
    }();
    if (marker.ok() && *marker && (*marker)->id == id) return {};
    const std::string why = marker.ok() ? "it belongs to another job" : marker.error().message;
    return makeError(ErrorCode::remote, "the coordinator's records are not seen from here: " + why)
        .inFile(reading.records)
        .withHint("they must be in a directory that all workers see");
}

struct FinishedReading::State {
    // `any`: how many parts there are.
    State(const PartReading& reading, std::shared_ptr<Directory> records,
          const std::vector<SourceFile>& files, PartSpec any)
        : path(reading.records),
          directory(std::move(records)),
          shares(reading.items, any.count),
          journals(directory, readingHeader(reading, files, shares.tileBytes()), any),
          temporary(reading.temporary) {}

    Status takeLock() {
        SHARDSCOPE_ASSIGN(lock, journals.tryLock());
        if (lock) return {};
        return makeError(ErrorCode::exists, "another process finishes this job")
            .inFile(path)
            .withHint("wait for it, or stop it first");
    }
    Result<PartShares::Done> done() const {
        PartShares::Done all;
        SHARDSCOPE_ASSIGN(all.begun, journals.readAll(tilesTo(all)));
        return all;
    }
    Status giveOut(PartScheduler& scheduler, const Resources& resources) const;

    const std::string path;
    const std::shared_ptr<Directory> directory;
    const PartShares shares;
    const PartJournals journals;
    const bool temporary;
    std::shared_ptr<WriteFile> lock;
};

// Has the tiles read that no journal has.
Status FinishedReading::State::giveOut(PartScheduler& scheduler, const Resources& resources) const {
    SHARDSCOPE_ASSIGN(const PartShares::Done before, done());
    const std::vector<PartOrder> orders = shares.orders(before);
    if (Progress* const progress = resources.progress) {
        uint64_t open = 0;
        for (const PartOrder& order : orders)
            open += order.bytes;
        progress->begin(Progress::Phase::read, shares.bytes());
        progress->add(shares.bytes() - open);
    }
    if (orders.empty()) return {};
    SHARDSCOPE_ASSIGN(const SharedJob shared, journals.share(scheduler.workerCount()));
    const auto count = [](size_t, const PartDone&) { return Status(); };
    if (Status read =
            scheduler.run(shared, PartWork::read, orders, count, resources.progress, resources.stop);
        !read.ok()) {
        Error error = std::move(read).error();
        if (temporary) return error;
        return alsoHint(std::move(error),
                        "the same words continue where it stopped; what was found so far is in " + path);
    }
    SHARDSCOPE_ASSIGN(const PartShares::Done after, done());
    const size_t open = shares.orders(after).size();
    return open == 0 ? Status() : journalsLag(open, path);
}

FinishedReading::FinishedReading(std::unique_ptr<State> state) : state_(std::move(state)) {}
FinishedReading::~FinishedReading() {
    std::error_code ignored;
    if (state_->temporary) std::filesystem::remove_all(state_->path, ignored);
}

uint64_t FinishedReading::tileBytes() const {
    return state_->shares.tileBytes();
}

Result<std::unique_ptr<FinishedReading>> FinishedReading::open(const PartReading& reading,
                                                               const std::string& version) {
    SHARDSCOPE_ASSIGN(const std::vector<SourceFile> files, sourceFiles(*reading.reader, reading.files));
    const std::string& path = reading.records;
    auto directory = systemOf(reading).openDirectory(path);
    if (!directory.ok())
        return directory.error().code == ErrorCode::notFound ? noParts(path) : directory.error();
    SHARDSCOPE_ASSIGN(const auto marker, PartJournals::marker(**directory));
    if (!marker) return noParts(path);
    const PartSpec any{0, marker->count, version};
    std::unique_ptr<FinishedReading> finished(
        new FinishedReading(std::make_unique<State>(reading, std::move(directory).value(), files, any)));
    State& s = *finished->state_;
    SHARDSCOPE_ASSIGN(const bool begun, s.journals.check());
    if (!begun) return noParts(path);
    SHARDSCOPE_TRY(s.takeLock());
    SHARDSCOPE_ASSIGN(const PartShares::Done all, s.done());
    const std::vector<uint32_t> open = s.shares.openParts(all);
    if (open.empty()) return finished;
    // Another process may have finished meanwhile.
    return s.journals.isThere() ? partsAreOpen(open, marker->count, path, marker->host) : noParts(path);
}

Result<std::unique_ptr<FinishedReading>> FinishedReading::together(const PartReading& reading,
                                                                   const std::string& version,
                                                                   PartScheduler& scheduler,
                                                                   const Resources& resources) {
    SHARDSCOPE_ASSIGN(const std::vector<SourceFile> files, sourceFiles(*reading.reader, reading.files));
    SHARDSCOPE_ASSIGN(auto directory, recordsDirectory(systemOf(reading), reading.records));
    SHARDSCOPE_ASSIGN(const auto begun, PartJournals::marker(*directory));
    const uint32_t count =
        begun ? begun->count : partsFor(PartShares(reading.items, 1).bytes(), scheduler.workerCount());
    std::unique_ptr<FinishedReading> finished(new FinishedReading(
        std::make_unique<State>(reading, std::move(directory), files, PartSpec{0, count, version})));
    State& s = *finished->state_;
    SHARDSCOPE_TRY(s.journals.begin(
        resources.stop, [&] { return s.journals.removeJournals(); }, [] { return Status(); }));
    SHARDSCOPE_TRY(s.takeLock());
    const Status read = s.giveOut(scheduler, resources);
    scheduler.end();
    SHARDSCOPE_TRY(read);
    SHARDSCOPE_TRY(checkUnchanged(files));
    return finished;
}

Status FinishedReading::forEach(
    const std::function<bool(uint32_t item, int64_t tile, std::string_view data)>& take) const {
    bool fits = true;
    SHARDSCOPE_TRY(state_->journals.readAll(findingsTo([&](uint32_t item, int64_t tile, auto data) {
        fits = take(item, tile, data) && fits;
        return true;
    })));
    if (fits) return {};
    return damaged("a record of the parts holds what cannot have been found")
        .inFile(state_->path)
        .withHint("remove the directory and run all parts again");
}

Status FinishedReading::remove() {
    State& s = *state_;
    SHARDSCOPE_TRY(s.journals.removeMarker());
    SHARDSCOPE_TRY(s.journals.removeJournals());
    SHARDSCOPE_TRY(s.directory->removeFile(PartJournals::kLockName));
    // Only if it is empty: a part that runs again may have begun anew.
    std::error_code ignored;
    std::filesystem::remove(s.path, ignored);
    return {};
}

Result<ReadInParts> readInParts(const PartReading& reading, const Parts& parts, const Resources& resources) {
    ReadInParts done;
    if (parts.part) {
        SHARDSCOPE_ASSIGN(done.part, readPart(reading, *parts.part, resources));
        if (!parts.finish || !done.part->open.empty()) return done;
    }
    auto found = FinishedReading::open(reading, parts.version);
    // Of two parts that end at once one finishes; the other finds it at work, or its records gone.
    if (!found.ok() && done.part &&
        (found.error().code == ErrorCode::exists || found.error().code == ErrorCode::notFound))
        return done;
    SHARDSCOPE_ASSIGN(done.found, std::move(found));
    return done;
}

}  // namespace shardscope
