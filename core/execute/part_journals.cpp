#include "execute/part_journals.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace shardscope {
namespace {

constexpr const char* kMarkerName = "parts";
constexpr std::string_view kJournalPrefix = "part-", kJournalSuffix = ".journal";
constexpr uint64_t kMostMarkerBytes = 4096;

std::string partJournal(uint32_t part) {
    return fmt::format("{}{}{}", kJournalPrefix, part, kJournalSuffix);
}

// What all parts of a job agree on.
struct Marker {
    uint32_t count = 0;
    std::string plan, source;  // digests
    std::string version;
};

std::string markerText(const Marker& marker) {
    return nlohmann::json{{"schema", "shardscope.parts/1"},
                          {"parts", marker.count},
                          {"plan", marker.plan},
                          {"source", marker.source},
                          {"version", marker.version}}
        .dump();
}

// nullopt where there is none, or one that was not written to its end. Errors: io.
Result<std::optional<Marker>> readMarker(const Directory& directory) {
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
    return std::optional<Marker>({count->get<uint32_t>(), field("plan"), field("source"), field("version")});
}

}  // namespace

Result<std::optional<uint32_t>> PartJournals::count(const Directory& directory) {
    SHARDSCOPE_ASSIGN(const auto marker, readMarker(directory));
    return marker ? std::optional(marker->count) : std::nullopt;
}

bool PartJournals::isOwnName(std::string_view name) {
    return name == kLockName || name == kMarkerName ||
           (name.starts_with(kJournalPrefix) && name.ends_with(kJournalSuffix));
}

Result<bool> PartJournals::check() const {
    SHARDSCOPE_ASSIGN(const auto marker, readMarker(*directory_));
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
            return writeMarker();
        }
        SHARDSCOPE_TRY(wait());
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
}

Status PartJournals::writeMarker() const {
    const std::string text =
        markerText({part_.count, header_.plan.hex(), header_.source.hex(), part_.version});
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
    const std::string name = partJournal(part_.index);
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

Result<std::set<uint32_t>> PartJournals::readAll(const TakeRecord& take) const {
    std::set<uint32_t> begun;
    for (uint32_t p = 0; p < part_.count; ++p) {
        const auto file = directory_->openFile(partJournal(p));
        if (!file.ok()) {
            if (file.error().code == ErrorCode::notFound) continue;
            return file.error();
        }
        SHARDSCOPE_ASSIGN(
            const auto end,
            readRecords(
                **file, [&](const JournalHeader& found) { return isSameJob(found, header_); }, take));
        if (end && !isSameJob(end->header, header_))
            return makeError(ErrorCode::changed, fmt::format("part {} is of another job", p))
                .inFile(joinPath(directory_->path(), partJournal(p)));
        if (end) begun.insert(p);
    }
    return begun;
}

Status PartJournals::removeMarker() const {
    return isThere() ? directory_->removeFile(kMarkerName) : Status();
}

Status PartJournals::removeJournals() const {
    for (uint32_t p = 0; p < part_.count; ++p) {
        if (directory_->stat(partJournal(p)).ok()) SHARDSCOPE_TRY(directory_->removeFile(partJournal(p)));
    }
    return {};
}

}  // namespace shardscope
