#include "execute/part_reading.h"

#include <filesystem>
#include <mutex>

#include <fmt/format.h>

#include "execute/identity.h"
#include "execute/part_journals.h"
#include "execute/part_shares.h"
#include "execute/staging.h"

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
    const Status made = system.makeDirectory(path);
    if (!made.ok() && made.error().code == ErrorCode::notFound) {
        Error error = made.error();
        error.code = ErrorCode::io;  // it is not the source that is missing
        return std::move(error).withHint("the directory that is to hold the records must exist");
    }
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
        return begun->startOwn(tilesTo(done), continued);
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
        if (!error.hint.empty()) error.hint += "; ";
        error.hint += "the part continues where it stopped when it runs again";
        return error;
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

struct FinishedReading::State {
    std::string path;
    std::shared_ptr<Directory> directory;
    std::shared_ptr<WriteFile> lock;
    std::optional<PartJournals> journals;
};

FinishedReading::FinishedReading() : state_(std::make_unique<State>()) {}
FinishedReading::~FinishedReading() = default;

Result<std::unique_ptr<FinishedReading>> FinishedReading::open(const PartReading& reading,
                                                               const std::string& version) {
    std::unique_ptr<FinishedReading> finished(new FinishedReading());
    State& s = *finished->state_;
    s.path = reading.records;
    SHARDSCOPE_ASSIGN(const std::vector<SourceFile> files, sourceFiles(*reading.reader, reading.files));
    auto directory = systemOf(reading).openDirectory(s.path);
    if (!directory.ok())
        return directory.error().code == ErrorCode::notFound ? noParts(s.path) : directory.error();
    s.directory = std::move(directory).value();
    SHARDSCOPE_ASSIGN(const auto marker, PartJournals::marker(*s.directory));
    if (!marker) return noParts(s.path);
    const PartShares shares(reading.items, marker->count);
    finished->tileBytes_ = shares.tileBytes();
    s.journals.emplace(s.directory, readingHeader(reading, files, shares.tileBytes()),
                       PartSpec{0, marker->count, version});
    SHARDSCOPE_ASSIGN(const bool begun, s.journals->check());
    if (!begun) return noParts(s.path);
    SHARDSCOPE_ASSIGN(s.lock, s.journals->tryLock());
    if (!s.lock)
        return makeError(ErrorCode::exists, "another process finishes this job")
            .inFile(s.path)
            .withHint("wait for it, or stop it first");
    PartShares::Done all;
    SHARDSCOPE_ASSIGN(all.begun, s.journals->readAll(tilesTo(all)));
    const std::vector<uint32_t> open = shares.openParts(all);
    if (open.empty()) return finished;
    // Another process may have finished meanwhile.
    return s.journals->isThere() ? partsAreOpen(open, marker->count, s.path, marker->host) : noParts(s.path);
}

Status FinishedReading::forEach(
    const std::function<bool(uint32_t item, int64_t tile, std::string_view data)>& take) const {
    bool fits = true;
    SHARDSCOPE_TRY(state_->journals->readAll(findingsTo([&](uint32_t item, int64_t tile, auto data) {
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
    SHARDSCOPE_TRY(s.journals->removeMarker());
    SHARDSCOPE_TRY(s.journals->removeJournals());
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
