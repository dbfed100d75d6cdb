#include "execute/part_journals.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/token.h"

namespace shardscope {
namespace {

constexpr const char* kMarkerName = "parts";
constexpr std::string_view kJournalPrefix = "part-", kJournalSuffix = ".journal";
constexpr uint64_t kMostMarkerBytes = 4096;
// For the slowest of parts that were started at once to open the source.
constexpr std::chrono::seconds kAllBegin{60};

std::string journalName(std::string_view what) {
    return fmt::format("{}{}{}", kJournalPrefix, what, kJournalSuffix);
}
std::string partJournal(uint32_t part) {
    return journalName(fmt::to_string(part));
}
std::string ownJournal(const PartSpec& part) {
    return part.journal.empty() ? partJournal(part.index) : journalName(part.journal);
}

// This machine, and what it names the file system of a directory.
std::string hostAndDevice(const Directory& directory) {
    std::array<char, 256> name{};
    std::string text = gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
    struct stat info {};
    if (stat(directory.path().c_str(), &info) == 0)
        text += fmt::format(" (device {}:{})", major(info.st_dev), minor(info.st_dev));
    return text;
}

std::string markerText(const PartJournals::Marker& marker) {
    return nlohmann::json{{"schema", "shardscope.parts/1"},
                          {"parts", marker.count},
                          {"plan", marker.plan},
                          {"source", marker.source},
                          {"version", marker.version},
                          {"id", marker.id},
                          {"host", marker.host}}
        .dump();
}

}  // namespace

// None, too, where it was not written to its end.
Result<std::optional<PartJournals::Marker>> PartJournals::marker(const Directory& directory) {
    const auto file = directory.openFile(kMarkerName);
    if (!file.ok()) {
        if (file.error().code == ErrorCode::notFound) return std::optional<Marker>();
        return file.error();
    }
    std::string text(std::min((*file)->size(), kMostMarkerBytes), '\0');
    SHARDSCOPE_TRY((*file)->readAt(0, std::as_writable_bytes(std::span(text))));
    const auto json = nlohmann::json::parse(text, nullptr, false);
    const auto field = [&](const char* name) {
        const auto at = json.find(name);
        return at != json.end() && at->is_string() ? at->get<std::string>() : std::string();
    };
    if (!json.is_object() || field("schema") != "shardscope.parts/1") return std::optional<Marker>();
    const auto count = json.find("parts");
    if (count == json.end() || !count->is_number_unsigned() || count->get<uint64_t>() == 0 ||
        count->get<uint64_t>() > kMostParts)
        return std::optional<Marker>();
    return std::optional<Marker>({count->get<uint32_t>(), field("plan"), field("source"), field("version"),
                                  field("id"), field("host")});
}

bool PartJournals::isOwnName(std::string_view name) {
    return name == kLockName || name == kMarkerName ||
           (name.starts_with(kJournalPrefix) && name.ends_with(kJournalSuffix));
}

Result<bool> PartJournals::check() const {
    SHARDSCOPE_ASSIGN(const auto marker, PartJournals::marker(*directory_));
    if (!marker) return false;
    const auto differs = [&](const std::string& what) {
        return makeError(ErrorCode::changed, what)
            .inFile(joinPath(directory_->path(), kMarkerName))
            .withHint("all parts must get the same words; to start anew remove the directory");
    };
    if (marker->version != part_.version)
        return differs(fmt::format("the other parts were done by shardscope {}, this is {}", marker->version,
                                   part_.version));
    if (marker->count != part_.count)
        return differs(
            fmt::format("the other parts are of {}, this one is of {}", marker->count, part_.count));
    if (marker->source != header_.source.hex())
        return differs("the source is not the one that the other parts read");
    if (marker->plan != header_.plan.hex())
        return differs("the other parts have another plan (options, names or sharding)");
    return true;
}

bool PartJournals::isThere() const {
    return directory_->stat(kMarkerName).ok();
}

std::string PartJournals::setUpBy() const {
    const auto marker = PartJournals::marker(*directory_);
    return marker.ok() && *marker ? (*marker)->host : std::string();
}

Status PartJournals::begin(const StopToken& stop, const std::function<Status()>& setUp,
                           const std::function<Status()>& wait) const {
    for (;;) {
        SHARDSCOPE_TRY(stop.poll());
        SHARDSCOPE_ASSIGN(bool begun, check());
        if (begun) return {};
        SHARDSCOPE_ASSIGN(const auto lock, tryLock());
        if (lock) {
            SHARDSCOPE_ASSIGN(begun, check());
            if (begun) return {};
            SHARDSCOPE_TRY(setUp());
            SHARDSCOPE_TRY(writeMarker());
            continue;  // others may have agreed on something else
        }
        SHARDSCOPE_TRY(wait());
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
}

Status PartJournals::writeMarker() const {
    std::string text = markerText({part_.count, header_.plan.hex(), header_.source.hex(), part_.version,
                                   newToken(), hostAndDevice(*directory_)});
    if (shared_) {
        SHARDSCOPE_ASSIGN(text, shared_->agree(text));
    }
    SHARDSCOPE_ASSIGN(const auto marker, directory_->createFile(kMarkerName, true));
    SHARDSCOPE_TRY(marker->allocate(text.size()));
    SHARDSCOPE_TRY(marker->writeAt(0, std::as_bytes(std::span(text))));
    SHARDSCOPE_TRY(marker->sync());
    return directory_->sync();
}

Result<std::shared_ptr<WriteFile>> PartJournals::tryLock() const {
    SHARDSCOPE_ASSIGN(auto lock, directory_->createFile(kLockName, true));
    SHARDSCOPE_ASSIGN(const bool locked, lock->tryLock());
    if (!locked) lock.reset();
    return lock;
}

Result<std::unique_ptr<JournalWriter>> PartJournals::startOwn(const TakeRecord& take, bool& continued) const {
    const std::string name = ownJournal(part_);
    SHARDSCOPE_ASSIGN(auto file, directory_->createFile(name, true));
    SHARDSCOPE_ASSIGN(const bool locked, file->tryLock());
    if (!locked)
        return makeError(ErrorCode::exists, fmt::format("another process does part {}", part_.index))
            .inFile(joinPath(directory_->path(), name))
            .withHint("wait for it, or stop it first");
    SHARDSCOPE_ASSIGN(const auto written, directory_->openFile(name));
    SHARDSCOPE_ASSIGN(
        const auto end,
        readRecords(
            *written, [&](const JournalHeader& found) { return isSameJob(found, header_); }, take));
    continued = end && end->validBytes > 0;
    return JournalWriter::start(std::move(file), header_, end ? end->validBytes : 0);
}

// Whether it holds anything.
Result<bool> PartJournals::readJournalOf(const std::string& name, const TakeRecord& take) const {
    const auto file = directory_->openFile(name);
    if (!file.ok()) {
        if (file.error().code == ErrorCode::notFound) return false;
        return file.error();
    }
    SHARDSCOPE_ASSIGN(
        const auto end,
        readRecords(
            **file, [&](const JournalHeader& found) { return isSameJob(found, header_); }, take));
    if (end && !isSameJob(end->header, header_))
        return makeError(ErrorCode::changed, "a journal is of another job")
            .inFile(joinPath(directory_->path(), name));
    return end.has_value();
}

// The journals of parts are looked for by name: a listing may be one that this host has kept for a while.
Result<std::set<uint32_t>> PartJournals::readAll(const TakeRecord& take) const {
    std::set<uint32_t> begun;
    for (uint32_t p = 0; p < part_.count; ++p) {
        SHARDSCOPE_ASSIGN(const bool found, readJournalOf(partJournal(p), take));
        if (found) begun.insert(begun.end(), p);
    }
    SHARDSCOPE_ASSIGN(const bool given, readWorkers(take));
    for (uint32_t p = 0; given && p < part_.count; ++p)
        begun.insert(p);
    return begun;
}

std::vector<uint32_t> PartJournals::openOf(uint32_t count, const std::set<std::string>& names) {
    std::vector<uint32_t> open;
    for (uint32_t p = 0; p < count; ++p) {
        if (!names.contains(partJournal(p))) open.push_back(p);
    }
    return open;
}

Status PartJournals::tellDone() const {
    const std::string name = ownJournal(part_);
    SHARDSCOPE_ASSIGN(const auto file, directory_->openFile(name));
    std::vector<std::byte> content(file->size());
    SHARDSCOPE_TRY(file->readAt(0, content));
    return shared_->partDone(name, content);
}

Status PartJournals::awaitAll(const std::set<uint32_t>& begun, const StopToken& stop) const {
    const auto until = std::chrono::steady_clock::now() + kAllBegin;
    for (uint32_t p = 0; p < part_.count; ++p) {
        // Without the marker another one has finished all.
        while (!begun.contains(p) && !directory_->stat(partJournal(p)).ok() && isThere()) {
            SHARDSCOPE_TRY(stop.poll());
            if (std::chrono::steady_clock::now() >= until)
                return makeError(ErrorCode::remote,
                                 fmt::format("part {} was started with this one, but has not begun in the "
                                             "directory that this host sees, which {} has set up",
                                             p, setUpBy()))
                    .inFile(directory_->path())
                    .withHint("the hosts do not share it: choose one on a file system that all of them see");
            std::this_thread::sleep_for(std::chrono::milliseconds(200));
        }
    }
    return {};
}

Result<bool> PartJournals::readWorkers(const TakeRecord& take) const {
    bool any = false;
    SHARDSCOPE_ASSIGN(const std::vector<std::string> names, workerJournals());
    for (const std::string& name : names) {
        SHARDSCOPE_ASSIGN(const bool found, readJournalOf(name, take));
        any = any || found;
    }
    return any;
}

Result<bool> PartJournals::holdWork() const {
    SHARDSCOPE_ASSIGN(const auto entries, directory_->list());
    SHARDSCOPE_ASSIGN(const std::vector<std::string> given, workerJournals());
    for (const DirectoryEntry& entry : entries) {
        if (entry.name.starts_with(kJournalPrefix) && isOwnName(entry.name) &&
            std::ranges::find(given, entry.name) == given.end())
            return true;
    }
    bool any = false;
    SHARDSCOPE_TRY(readWorkers([&](std::string_view) { return any = true; }));
    return any;
}

Result<std::vector<std::string>> PartJournals::workerJournals() const {
    const std::string begin = journalName("r").substr(0, kJournalPrefix.size() + 1);
    SHARDSCOPE_ASSIGN(const auto entries, directory_->list());
    std::vector<std::string> names;
    for (const DirectoryEntry& entry : entries) {
        if (entry.name.starts_with(begin) && isOwnName(entry.name)) names.push_back(entry.name);
    }
    return names;
}

Result<std::string> PartJournals::freshRun() const {
    SHARDSCOPE_ASSIGN(const std::vector<std::string> names, workerJournals());
    for (uint32_t run = 1;; ++run) {
        const std::string begin = fmt::format("r{}-", run);
        const bool taken = std::ranges::any_of(names, [&](const std::string& name) {
            return std::string_view(name).substr(kJournalPrefix.size()).starts_with(begin);
        });
        if (!taken) return begin;
    }
}

Result<SharedJob> PartJournals::share(size_t workers) const {
    SharedJob shared{header_.plan, header_.source, part_.count, part_.version, {}, {}};
    SHARDSCOPE_ASSIGN(const auto marker, PartJournals::marker(*directory_));
    if (!marker)
        return makeError(ErrorCode::io, "the directory of the parts was changed by another process")
            .inFile(directory_->path());
    shared.id = marker->id;
    SHARDSCOPE_ASSIGN(shared.run, freshRun());
    std::vector<std::string> names{shared.run + "own"};
    for (size_t worker = 0; worker < workers; ++worker)
        names.push_back(fmt::format("{}w{}", shared.run, worker));
    for (const std::string& name : names)
        SHARDSCOPE_TRY(directory_->createFile(journalName(name), true));
    SHARDSCOPE_TRY(directory_->sync());
    return shared;
}

Status PartJournals::removeMarker() const {
    return isThere() ? directory_->removeFile(kMarkerName) : Status();
}

Status PartJournals::removeJournals() const {
    for (uint32_t p = 0; p < part_.count; ++p) {
        if (directory_->stat(partJournal(p)).ok()) SHARDSCOPE_TRY(directory_->removeFile(partJournal(p)));
    }
    SHARDSCOPE_ASSIGN(const std::vector<std::string> names, workerJournals());
    for (const std::string& name : names)
        SHARDSCOPE_TRY(directory_->removeFile(name));
    return {};
}

}  // namespace shardscope
