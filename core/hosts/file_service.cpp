#include "hosts/file_service.h"

#include <algorithm>
#include <cstring>
#include <system_error>
#include <thread>

#include <fmt/format.h>

#include "base/units.h"
#include "hosts/agent_messages.h"
#include "hosts/remote_file_system.h"
#include "storage/parents.h"

namespace shardscope {
namespace {

using Json = nlohmann::json;

constexpr unsigned kWorkers = 4;
constexpr size_t kMostDirectories = 64;
constexpr size_t kMostPath = 8192;  // a path and a name

Json printJson(const Fingerprint& print) {
    return Json::array({print.device, print.inode, print.size, print.modifiedNs, print.changedNs});
}

template <class T>
void put(std::string& bytes, T value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

FileService::FileService(Channel& channel, std::shared_ptr<FileSystem> files, FileAccess access)
    : channel_(channel), files_(std::move(files)), access_(std::move(access)) {}

FileService::~FileService() = default;

Status FileService::serve(const std::function<void()>& onEnd) {
    std::vector<std::thread> threads;
    Status status;
    try {
        threads.emplace_back([this] { beats(); });
        for (unsigned i = 0; i < kWorkers; ++i)
            threads.emplace_back([this] { work(); });
    } catch (const std::system_error& failure) {
        if (threads.size() < 2) status = systemError(failure.code().value(), "start a thread", "");
    }
    while (status.ok()) {
        auto frame = channel_.receive(Channel::Clock::now() + kOrphanTimeout);
        if (!frame.ok()) {
            if (frame.error().code != ErrorCode::remote) status = std::move(frame).error();
            break;  // the stream's end is the ordinary end
        }
        if (!*frame) break;  // so is a link that is cut
        auto json = (*frame)->text.size() > kMostText ? Result<Json>(damaged("a request that is too long"))
                                                      : parseMessage(**frame);
        if (!json.ok()) {
            status = std::move(json).error();
            break;
        }
        if ((*frame)->body.size() >
            ((*json)["say"] == "write" && !access_.write.empty() ? kBlock : kMostPath)) {
            status = damaged("a request that is too long");
            break;
        }
        if ((*json)["say"] == "beat") continue;
        MutexLock lock(mutex_);
        if ((*json)["say"] == "close") {
            if (const auto file = numberOf(*json, "file")) {
                open_.erase(*file);
                written_.erase(*file);
            }
            continue;
        }
        // Who asks for more than is answered waits; what is held for it stays bounded.
        changed_.wait(lock,
                      [&]() SHARDSCOPE_REQUIRES(mutex_) { return underWay_ < kMostRequests || ending_; });
        ++underWay_;
        requests_.push_back({std::move(*json), std::move((*frame)->body)});
        changed_.notify_all();
    }
    {
        MutexLock lock(mutex_);
        ending_ = true;
        changed_.notify_all();
    }
    channel_.close();
    if (onEnd) onEnd();
    for (std::thread& thread : threads)
        thread.join();
    return status;
}

void FileService::beats() {
    MutexLock lock(mutex_);
    while (!ending_) {
        lock.unlock();
        const bool sent = channel_.send(message({{"say", "beat"}})).ok();
        lock.lock();
        if (!sent) return;
        changed_.wait_for(lock, kBeat, [&]() SHARDSCOPE_REQUIRES(mutex_) { return ending_; });
    }
}

void FileService::work() {
    HeldPages pages;
    for (;;) {
        Request request;
        {
            MutexLock lock(mutex_);
            changed_.wait(lock, [&]() SHARDSCOPE_REQUIRES(mutex_) { return !requests_.empty() || ending_; });
            if (ending_) return;
            request = std::move(requests_.front());
            requests_.pop_front();
        }
        answer(request, pages);
        channel_.recycle(std::move(request.body));
        MutexLock lock(mutex_);
        --underWay_;
        changed_.notify_all();
    }
}

void FileService::answer(const Request& request, HeldPages& pages) {
    const std::string say = textOf(request.json, "say", 40);
    const auto id = numberOf(request.json, "id");
    Result<Frame> result = [&]() -> Result<Frame> {
        try {
            if (!id) return damaged("a request without a number");
            if (say == "stat") return stat(request);
            if (say == "list") return list(request);
            if (say == "open") return open(request);
            if (say == "read") return read(request, pages);
            if (say == "print") return print(request);
            if (say == "space") return space(request);
            if (say == "echo") return echo(request);
            if (say == "create") return create(request);
            if (say == "allocate" || say == "write" || say == "flush" || say == "lock")
                return writeTo(say, request);
            if (say == "make" || say == "clear" || say == "settle" || say == "move" || say == "swap" ||
                say == "remove" || say == "sync")
                return change(say, request);
            return unsupported(fmt::format("an agent that reads files does not know '{}'", say));
        } catch (const std::bad_alloc&) {
            return makeError(ErrorCode::limit, "out of memory");
        }
    }();
    Json json = result.ok() ? Json::parse(result->text) : Json{{"error", errorJson(result.error())}};
    json["say"] = result.ok() ? say : "error";
    json["id"] = id.value_or(0);
    // After half a message nothing can follow.
    Frame answer = message(json, result.ok() ? std::move(result->body) : std::string());
    const Status sent = pages.size() > 0 ? channel_.send(answer.text, pages) : channel_.send(answer);
    if (!sent.ok()) channel_.close();
    channel_.recycle(std::move(answer.body));
}

Result<std::pair<std::string, std::string>> FileService::pathOf(const Request& request) const {
    const auto length = numberOf(request.json, "path");
    if (!length || *length == 0 || *length > request.body.size() || request.body.front() != '/' ||
        request.body.find('\0') != std::string::npos)
        return damaged("a request without an absolute path");
    return std::pair(request.body.substr(0, *length), request.body.substr(*length));
}

namespace {

bool inside(const std::string& path, const std::string& directory) {
    return path == directory || (path.starts_with(directory + "/") &&
                                 checkRelativeName(std::string_view(path).substr(directory.size() + 1)).ok());
}

Error outside(const std::string& path) {
    return makeError(ErrorCode::unsafe, "the request is for what is not this conversion's").inFile(path);
}

}  // namespace

bool FileService::mayRead(const std::string& path) const {
    return access_.readAll || mayWrite(path) ||
           std::ranges::any_of(access_.read, [&](const std::string& each) { return inside(path, each); });
}

bool FileService::mayWrite(const std::string& path) const {
    return !access_.write.empty() &&
           (inside(path, access_.write) || inside(path, stagingPath(access_.write)) ||
            inside(path, asidePath(access_.write)));
}

std::string FileService::packed(std::string bytes, bool& packed) const {
    packed = false;
    return access_.compress ? pack(std::move(bytes), packed) : bytes;
}

Result<std::shared_ptr<Directory>> FileService::directory(const std::string& path, bool fresh) {
    if (!fresh) {
        MutexLock lock(mutex_);
        if (const auto found = directories_.find(path); found != directories_.end()) return found->second;
    }
    SHARDSCOPE_ASSIGN(auto opened, files_->openDirectory(path));
    MutexLock lock(mutex_);
    if (directories_.size() >= kMostDirectories) directories_.clear();
    directories_[path] = opened;
    return opened;
}

Result<std::shared_ptr<const ReadFile>> FileService::file(const Request& request) {
    const auto number = numberOf(request.json, "file");
    MutexLock lock(mutex_);
    const auto found = number ? open_.find(*number) : open_.end();
    if (found == open_.end()) return damaged("a request for a file that is not open");
    return found->second;
}

Result<Frame> FileService::stat(const Request& request) {
    SHARDSCOPE_ASSIGN(const auto where, pathOf(request));
    const bool parent = where.second.empty() && where.first == splitPath(access_.write).first;
    if (!mayRead(where.first) && !parent) return outside(where.first);
    DirectoryEntry entry;
    if (where.second.empty()) {
        SHARDSCOPE_ASSIGN(entry, files_->stat(where.first));
    } else {
        SHARDSCOPE_ASSIGN(const auto opened, directory(where.first, false));
        SHARDSCOPE_ASSIGN(entry, opened->stat(where.second));
    }
    return message(
        {{"kind", static_cast<int>(entry.kind)}, {"size", entry.size}, {"modified", entry.modifiedNs}});
}

Result<Frame> FileService::list(const Request& request) {
    SHARDSCOPE_ASSIGN(auto where, pathOf(request));
    if (!mayRead(where.first)) return outside(where.first);
    const uint64_t length = numberOf(request.json, "after").value_or(0);
    if (length > where.second.size()) return damaged("malformed listing request");
    const std::string after = where.second.substr(where.second.size() - length);
    where.second.resize(where.second.size() - length);
    std::shared_ptr<const Listing> listing;
    if (!after.empty()) {
        MutexLock lock(mutex_);
        if (listing_ && listing_->path == where.first && listing_->name == where.second) listing = listing_;
    }
    if (!listing) {
        const auto fresh = request.json.find("fresh");
        SHARDSCOPE_ASSIGN(const auto opened,
                          directory(where.first, fresh != request.json.end() && *fresh == true));
        SHARDSCOPE_ASSIGN(auto entries, opened->list(where.second));
        std::sort(entries.begin(), entries.end(),
                  [](const DirectoryEntry& a, const DirectoryEntry& b) { return a.name < b.name; });
        listing = std::make_shared<Listing>(Listing{where.first, where.second, std::move(entries)});
    }
    std::string bytes;
    auto next =
        std::upper_bound(listing->entries.begin(), listing->entries.end(), after,
                         [](const std::string& name, const DirectoryEntry& e) { return name < e.name; });
    for (; next != listing->entries.end() && bytes.size() < kPage; ++next) {
        put(bytes, static_cast<uint8_t>(next->kind));
        put(bytes, next->size);
        put(bytes, next->modifiedNs);
        put(bytes, static_cast<uint16_t>(next->name.size()));
        bytes += next->name;
    }
    const bool more = next != listing->entries.end();
    {
        // Kept for as long as there are pages of it to come.
        MutexLock lock(mutex_);
        listing_ = more ? listing : nullptr;
    }
    const uint64_t size = bytes.size();
    bool packed = false;
    std::string body = this->packed(std::move(bytes), packed);
    return message({{"more", more}, {"size", size}, {"packed", packed}}, std::move(body));
}

Result<Frame> FileService::open(const Request& request) {
    SHARDSCOPE_ASSIGN(const auto where, pathOf(request));
    if (!mayRead(where.first)) return outside(where.first);
    {
        MutexLock lock(mutex_);
        if (open_.size() >= kMostFiles)
            return makeError(ErrorCode::limit,
                             fmt::format("more than {} are open there", counted(kMostFiles, "file")));
    }
    SHARDSCOPE_ASSIGN(const auto opened, directory(where.first, false));
    SHARDSCOPE_ASSIGN(auto file, opened->openFile(where.second));
    SHARDSCOPE_ASSIGN(const Fingerprint print, file->fingerprint());
    const uint64_t size = file->size();
    std::string first(std::min(size, kFirstBytes), '\0');
    // A read error is the answer to the request.
    const auto fill = [&](size_t from) {
        const auto rest = std::as_writable_bytes(std::span(first)).subspan(from);
        if (!file->readAt(from, rest).ok()) first.clear();
    };
    fill(0);
    uint64_t header = 0;
    if (first.size() == kFirstBytes && first[sizeof header] == '{') {
        std::memcpy(&header, first.data(), sizeof header);
        if (header > kFirstBytes && header <= std::min(size, kMostFirst) - sizeof header) {
            first.resize(sizeof header + header);
            fill(kFirstBytes);
        }
    }
    uint64_t number = 0;
    {
        MutexLock lock(mutex_);
        number = ++lastFile_;
        open_.emplace(number, std::move(file));
    }
    const uint64_t length = first.size();
    bool packed = false;
    std::string body = this->packed(std::move(first), packed);
    return message({{"file", number},
                    {"size", size},
                    {"print", printJson(print)},
                    {"length", length},
                    {"packed", packed}},
                   std::move(body));
}

Result<Frame> FileService::read(const Request& request, HeldPages& pages) {
    SHARDSCOPE_ASSIGN(const auto opened, file(request));
    const auto offset = numberOf(request.json, "offset"), length = numberOf(request.json, "length");
    if (!offset || !length || *length > kBlock) return damaged("malformed read request");
    if (*offset > opened->size() || *length > opened->size() - *offset)
        return damaged("a request for bytes beyond the end of the file").inFile(opened->path());
    if (!access_.compress && channel_.passesPages() && pages.take(opened->descriptor(), *offset, *length))
        return message({{"packed", false}});
    std::string bytes = channel_.take(*length);
    SHARDSCOPE_TRY(opened->readAt(*offset, std::as_writable_bytes(std::span(bytes))));
    bool packed = false;
    std::string body = this->packed(std::move(bytes), packed);
    return message({{"packed", packed}}, std::move(body));
}

Result<Frame> FileService::print(const Request& request) {
    SHARDSCOPE_ASSIGN(const auto opened, file(request));
    SHARDSCOPE_ASSIGN(const Fingerprint now, opened->fingerprint());
    return message({{"print", printJson(now)}});
}

Result<Frame> FileService::space(const Request& request) {
    SHARDSCOPE_ASSIGN(const auto where, pathOf(request));
    if (!mayRead(where.first) && where.first != splitPath(access_.write).first) return outside(where.first);
    SHARDSCOPE_ASSIGN(const DiskSpace room, roomHere(where.first, *files_));
    return message({{"free", room.freeBytes}, {"writable", room.writable}});
}

Result<Frame> FileService::echo(const Request& request) {
    const auto length = numberOf(request.json, "length");
    if (!length || *length > kBlock) return damaged("malformed request");
    return message(Json::object(), std::string(*length, '\0'));
}

// ------------------------------------------------------------------ writing

Result<Frame> FileService::change(const std::string& say, const Request& request) {
    SHARDSCOPE_ASSIGN(const auto where, pathOf(request));
    const auto& [path, other] = where;
    const bool parent = say == "settle" && path == splitPath(access_.write).first;
    if (!mayWrite(path) && !parent) return outside(path);
    const auto done = [](Status status) -> Result<Frame> {
        SHARDSCOPE_TRY(std::move(status));
        return message(Json::object());
    };
    {
        // A directory that was opened by its name may be another one afterwards.
        MutexLock lock(mutex_);
        if (say == "clear" || say == "move" || say == "swap") directories_.clear();
    }
    if (say == "make") {
        // Those above the destination, too, which are nobody's to ask for.
        if (path == stagingPath(access_.write)) SHARDSCOPE_TRY(makeParents(*files_, path));
        return done(files_->makeDirectory(path));
    }
    if (say == "clear") return done(files_->removeTree(path));
    if (say == "settle") return done(files_->syncDirectory(path));
    if (say == "move" || say == "swap") {
        if (!mayWrite(other)) return outside(other);
        return done(say == "move" ? files_->rename(path, other) : files_->exchange(path, other));
    }
    SHARDSCOPE_ASSIGN(const auto opened, directory(path, false));
    return done(say == "remove" ? opened->removeFile(other) : opened->sync());
}

Result<Frame> FileService::create(const Request& request) {
    SHARDSCOPE_ASSIGN(const auto where, pathOf(request));
    if (!mayWrite(where.first)) return outside(where.first);
    SHARDSCOPE_ASSIGN(const auto opened, directory(where.first, false));
    const auto existing = request.json.find("existing");
    SHARDSCOPE_ASSIGN(auto file,
                      opened->createFile(where.second, existing != request.json.end() && *existing == true));
    MutexLock lock(mutex_);
    if (written_.size() >= kMostFiles)
        return makeError(ErrorCode::limit,
                         fmt::format("more than {} are open there", counted(kMostFiles, "file")));
    written_.emplace(++lastFile_, std::move(file));
    return message({{"file", lastFile_}});
}

Result<Frame> FileService::writeTo(const std::string& say, const Request& request) {
    std::shared_ptr<WriteFile> file;
    {
        const auto number = numberOf(request.json, "file");
        MutexLock lock(mutex_);
        const auto found = number ? written_.find(*number) : written_.end();
        if (found == written_.end()) return damaged("a request for a file that is not open");
        file = found->second;
    }
    if (say == "lock") {
        SHARDSCOPE_ASSIGN(const bool locked, file->tryLock());
        return message({{"locked", locked}});
    }
    if (say == "write") {
        const auto offset = numberOf(request.json, "offset");
        if (!offset || *offset > INT64_MAX - request.body.size()) return damaged("malformed request");
        SHARDSCOPE_TRY(file->writeAt(*offset, std::as_bytes(std::span(request.body))));
    } else if (say == "allocate") {
        const auto size = numberOf(request.json, "size");
        if (!size || *size > INT64_MAX) return damaged("malformed request");
        SHARDSCOPE_TRY(file->allocate(*size));
    } else {
        SHARDSCOPE_TRY(file->sync());
    }
    return message(Json::object());
}

}  // namespace shardscope
