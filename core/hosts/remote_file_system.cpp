#include "hosts/remote_file_system.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <limits>

#include <fmt/format.h>
#include <unistd.h>

#include "base/units.h"
#include "hosts/agent_messages.h"
#include "hosts/file_service.h"
#include "hosts/remote_session.h"
#include "storage/read_only.h"

namespace shardscope {
namespace {

using Json = nlohmann::json;
using Answer = RemoteSession::Answer;

constexpr uint64_t kMostSize = std::numeric_limits<int64_t>::max();  // of a file
// A page has one entry more than fills it, and whatever compression adds.
constexpr uint64_t kMostPage = FileService::kPage + 4096;
constexpr uint64_t kMostListing = uint64_t{256} << 20;  // bytes of all pages
constexpr uint64_t kMostAhead = uint64_t{256} << 10;
constexpr uint64_t kLeastRequest = 512;
constexpr size_t kBlocksUnderWay = 8;

Error onlyRead(const std::string& name) {
    return makeError(ErrorCode::impossible, "files of another host are only read")
        .inFile(name)
        .withHint("do there what writes, for example with 'shardscope jobs run --on ssh:HOST'");
}

Error wrongAnswer(std::string_view what) {
    return makeError(ErrorCode::remote, fmt::format("the host answers with {}", what));
}

bool flagOf(const Json& json, const char* key) {
    const auto it = json.find(key);
    return it != json.end() && *it == true;
}

std::optional<Fingerprint> printOf(const Json& json) {
    const auto it = json.find("print");
    if (it == json.end() || !it->is_array() || it->size() != 5) return std::nullopt;
    for (const Json& number : *it) {
        if (!number.is_number_integer()) return std::nullopt;
    }
    const Json& p = *it;
    return Fingerprint{p[0].get<uint64_t>(), p[1].get<uint64_t>(), p[2].get<uint64_t>(), p[3].get<int64_t>(),
                       p[4].get<int64_t>()};
}

Result<DirectoryEntry> entryOf(const Json& json, std::string_view name) {
    const auto kind = numberOf(json, "kind"), size = numberOf(json, "size");
    if (!kind || *kind > static_cast<int>(DirectoryEntry::Kind::other) || !size || *size > kMostSize)
        return wrongAnswer("a file that cannot be");
    const auto modified = json.find("modified");
    return DirectoryEntry{
        std::string(name), static_cast<DirectoryEntry::Kind>(*kind), *size,
        modified != json.end() && modified->is_number_integer() ? modified->get<int64_t>() : 0};
}

// Where something is: the host, a directory on it, a name in that, and how people see it.
struct Where {
    std::shared_ptr<RemoteHost> host;
    std::string path, name, shown;

    Json request() const { return {{"path", path.size()}}; }
    std::string body() const { return path + name; }
    // The agent names files as they are there.
    Error seen(Error error) const {
        error.location.file = shown;
        return error;
    }
};

// ------------------------------------------------------------------ a file

class RemoteFile final : public ReadFile {
  public:
    static Result<std::shared_ptr<const ReadFile>> open(Where where) {
        auto file = std::shared_ptr<RemoteFile>(new RemoteFile(std::move(where)));
        if (Status status = file->openFirst(); !status.ok())
            return file->where_.seen(std::move(status).error());
        return std::shared_ptr<const ReadFile>(std::move(file));
    }
    ~RemoteFile() override {
        if (session_) session_->tell("close", {{"file", number_}});
    }

    const std::string& path() const override { return where_.shown; }
    uint64_t size() const override { return size_; }

    Status readAt(uint64_t offset, std::span<std::byte> buffer) const override {
        if (buffer.empty()) return {};
        if (offset > size_ || buffer.size() > size_ - offset) {
            return makeError(ErrorCode::changed,
                             fmt::format("the file has {}; more are wanted", counted(size_, "byte")))
                .inFile(where_.shown)
                .at(offset);
        }
        const Wanted wanted = fromWindow(offset, buffer);
        if (wanted.missing.empty()) return {};
        Status status = fetch(wanted);
        if (!status.ok()) return where_.seen(std::move(status).error()).at(offset);
        return {};
    }

    Result<Fingerprint> fingerprint() const override {
        const auto now = [&]() -> Result<Fingerprint> {
            SHARDSCOPE_ASSIGN(const auto open, opened());
            SHARDSCOPE_ASSIGN(const Answer answer,
                              open.session->ask("print", {{"file", open.number}}, {}, 0));
            const auto print = printOf(answer.json);
            if (!print) return wrongAnswer("malformed fingerprint");
            return *print;
        }();
        if (!now.ok()) return where_.seen(now.error());
        return now;
    }

  private:
    struct Opened {
        std::shared_ptr<RemoteSession> session;
        uint64_t number = 0;
    };
    // What a read needs beyond what is here: `missing` is the rest of the caller's buffer, `ahead` how many
    // bytes beyond it are worth having.
    struct Wanted {
        uint64_t offset = 0;
        std::span<std::byte> missing;
        uint64_t ahead = 0;
    };

    explicit RemoteFile(Where where) : where_(std::move(where)) {}

    struct Found {
        uint64_t number = 0, size = 0;
        Fingerprint print;
        std::string first;
    };
    Result<Found> openIn(RemoteSession& session) const {
        SHARDSCOPE_ASSIGN(Answer answer,
                          session.ask("open", where_.request(), where_.body(), FileService::kMostFirst));
        const auto number = numberOf(answer.json, "file"), size = numberOf(answer.json, "size"),
                   length = numberOf(answer.json, "length");
        const auto print = printOf(answer.json);
        if (!number || !size || *size > kMostSize || !print || !length ||
            *length > std::min(*size, FileService::kMostFirst))
            return wrongAnswer("a file that cannot be");
        auto first = unpack(std::move(answer.body), flagOf(answer.json, "packed"), *length);
        if (!first.ok()) return wrongAnswer(first.error().message);
        return Found{*number, *size, *print, std::move(*first)};
    }

    Status openFirst() {
        SHARDSCOPE_ASSIGN(const auto session, where_.host->session());
        SHARDSCOPE_ASSIGN(Found found, openIn(*session));
        MutexLock lock(mutex_);
        session_ = session;
        number_ = found.number;
        size_ = found.size;
        print_ = found.print;
        window_ = std::move(found.first);
        return {};
    }

    // The file in the connection that stands; after a new one it is opened again and must be the same.
    Result<Opened> opened() const {
        SHARDSCOPE_ASSIGN(const auto session, where_.host->session());
        MutexLock one(opening_);
        {
            MutexLock lock(mutex_);
            if (session_ == session) return Opened{session_, number_};
        }
        SHARDSCOPE_ASSIGN(const Found found, openIn(*session));
        if (found.print != print_ || found.size != size_) {
            session->tell("close", {{"file", found.number}});
            return makeError(ErrorCode::changed, "the file changed while the connection was lost")
                .withHint("open the checkpoint again");
        }
        MutexLock lock(mutex_);
        session_ = session;
        number_ = found.number;
        return Opened{session_, number_};
    }

    // Small reads that follow each other are answered from what was read ahead; more is read ahead the longer
    // they do. Reads here and there take what they want and hardly more.
    Wanted fromWindow(uint64_t offset, std::span<std::byte> buffer) const {
        MutexLock lock(mutex_);
        Wanted wanted{offset, buffer, 0};
        const uint64_t end = windowAt_ + window_.size();
        if (offset >= windowAt_ && offset < end) {
            const size_t have = std::min<uint64_t>(buffer.size(), end - offset);
            std::memcpy(buffer.data(), window_.data() + (offset - windowAt_), have);
            wanted.offset += have;
            wanted.missing = buffer.subspan(have);
        }
        if (wanted.missing.empty() || buffer.size() > kMostAhead) return wanted;
        // The first bytes came with the opening: that a reader continues beyond them does not yet show a
        // habit.
        const bool follows = wanted.offset == end && windowAt_ > 0;
        ahead_ = follows ? std::clamp<uint64_t>(ahead_ * 2, uint64_t{8} << 10, kMostAhead) : 0;
        const uint64_t least =
            wanted.missing.size() < kLeastRequest ? kLeastRequest - wanted.missing.size() : 0;
        wanted.ahead = std::min(std::max(ahead_, least), size_ - wanted.offset - wanted.missing.size());
        return wanted;
    }

    Status fetch(const Wanted& wanted) const {
        SHARDSCOPE_ASSIGN(const auto open, opened());
        const uint64_t total = wanted.missing.size() + wanted.ahead;
        const bool bulk = wanted.missing.size() > kMostAhead;
        struct Block {
            uint64_t id, at, length;
        };
        std::deque<Block> blocks;
        std::string window;
        Status status;
        for (uint64_t asked = 0; asked < total || !blocks.empty();) {
            if (status.ok() && asked < total && blocks.size() < kBlocksUnderWay) {
                const uint64_t length = std::min(total - asked, FileService::kBlock);
                auto id = open.session->post(
                    "read", {{"file", open.number}, {"offset", wanted.offset + asked}, {"length", length}},
                    {}, length, bulk ? wanted.missing.subspan(asked, length) : std::span<std::byte>());
                if (id.ok())
                    blocks.push_back({*id, asked, length});
                else
                    status = std::move(id).error();
                asked += length;
                continue;
            }
            if (blocks.empty()) break;
            // What was asked is waited for even after an error: its answer comes all the same.
            const Block block = blocks.front();
            blocks.pop_front();
            auto answer = open.session->wait(block.id);
            if (!status.ok()) continue;
            if (!answer.ok()) {
                status = std::move(answer).error();
                continue;
            }
            if (answer->delivered) continue;
            auto bytes = unpack(std::move(answer->body), flagOf(answer->json, "packed"), block.length);
            if (!bytes.ok()) {
                status = wrongAnswer(bytes.error().message);
                continue;
            }
            const uint64_t own = block.at < wanted.missing.size()
                                     ? std::min<uint64_t>(block.length, wanted.missing.size() - block.at)
                                     : 0;
            if (own) std::memcpy(wanted.missing.data() + block.at, bytes->data(), own);
            if (!bulk) window += *bytes;
        }
        if (status.ok() && !window.empty()) {
            MutexLock lock(mutex_);
            windowAt_ = wanted.offset;
            window_ = std::move(window);
        }
        return status;
    }

    const Where where_;
    uint64_t size_ = 0;
    Fingerprint print_;
    mutable Mutex opening_;
    mutable Mutex mutex_;
    mutable std::shared_ptr<RemoteSession> session_ SHARDSCOPE_GUARDED_BY(mutex_);
    mutable uint64_t number_ SHARDSCOPE_GUARDED_BY(mutex_) = 0;
    mutable uint64_t windowAt_ SHARDSCOPE_GUARDED_BY(mutex_) = 0;
    mutable std::string window_ SHARDSCOPE_GUARDED_BY(mutex_);
    mutable uint64_t ahead_ SHARDSCOPE_GUARDED_BY(mutex_) = 0;
};

// ------------------------------------------------------------------ a directory

// Takes the entries of one page; names must continue where the last page ended.
Status takePage(std::string_view bytes, std::vector<DirectoryEntry>& entries) {
    for (size_t at = 0; at < bytes.size();) {
        uint8_t kind = 0;
        uint64_t size = 0;
        int64_t modified = 0;
        uint16_t length = 0;
        if (bytes.size() - at < sizeof kind + sizeof size + sizeof modified + sizeof length)
            return wrongAnswer("a listing that breaks off");
        const auto take = [&](auto& field) {
            std::memcpy(&field, bytes.data() + at, sizeof field);
            at += sizeof field;
        };
        take(kind);
        take(size);
        take(modified);
        take(length);
        if (bytes.size() - at < length) return wrongAnswer("a listing that breaks off");
        const std::string_view name = bytes.substr(at, length);
        at += length;
        if (kind > static_cast<int>(DirectoryEntry::Kind::other) || size > kMostSize)
            return wrongAnswer("a file that cannot be");
        if (!checkRelativeName(name).ok() || name.find('/') != std::string_view::npos)
            return wrongAnswer("a file name that cannot be");
        if (!entries.empty() && name <= entries.back().name) return wrongAnswer("a listing in disorder");
        entries.push_back({std::string(name), static_cast<DirectoryEntry::Kind>(kind), size, modified});
    }
    return {};
}

Result<std::vector<DirectoryEntry>> listAll(const Where& where, bool fresh) {
    const auto all = [&]() -> Result<std::vector<DirectoryEntry>> {
        SHARDSCOPE_ASSIGN(const auto session, where.host->session());
        std::vector<DirectoryEntry> entries;
        uint64_t total = 0;
        for (bool more = true; more;) {
            const std::string after = entries.empty() ? "" : entries.back().name;
            Json request = where.request();
            request["after"] = after.size();
            request["fresh"] = fresh && after.empty();
            SHARDSCOPE_ASSIGN(Answer answer,
                              session->ask("list", std::move(request), where.body() + after, kMostPage));
            more = flagOf(answer.json, "more");
            const auto size = numberOf(answer.json, "size");
            if (!size || *size > kMostPage || (more && *size < FileService::kPage))
                return wrongAnswer("a listing that cannot be");
            total += *size;
            if (total > kMostListing)
                return makeError(ErrorCode::limit, "the directory holds more than is read from another host");
            auto bytes = unpack(std::move(answer.body), flagOf(answer.json, "packed"), *size);
            if (!bytes.ok()) return wrongAnswer(bytes.error().message);
            SHARDSCOPE_TRY(takePage(*bytes, entries));
        }
        return entries;
    }();
    if (!all.ok()) return where.seen(all.error());
    return all;
}

// One that is written there. After a lost connection it is an error (remote): what was written may be lost.
class RemoteWriteFile final : public WriteFile {
  public:
    static Result<std::shared_ptr<WriteFile>> create(Where where, bool existing) {
        SHARDSCOPE_ASSIGN(auto session, where.host->session());
        Json request = where.request();
        request["existing"] = existing;
        auto answer = session->ask("create", std::move(request), where.body(), 0);
        if (!answer.ok()) return where.seen(std::move(answer).error());
        const auto number = numberOf(answer->json, "file");
        if (!number) return wrongAnswer("a file without a number");
        return std::shared_ptr<WriteFile>(
            std::make_shared<RemoteWriteFile>(std::move(where), std::move(session), *number));
    }
    RemoteWriteFile(Where where, std::shared_ptr<RemoteSession> session, uint64_t number)
        : where_(std::move(where)), session_(std::move(session)), number_(number) {}
    ~RemoteWriteFile() override { session_->tell("close", {{"file", number_}}); }

    const std::string& path() const override { return where_.shown; }
    Status allocate(uint64_t size) override { return tell("allocate", {{"size", size}}); }
    Status sync() override { return tell("flush", Json::object()); }
    Result<bool> tryLock() override {
        auto answer = session_->ask("lock", {{"file", number_}}, {}, 0);
        if (!answer.ok()) return where_.seen(std::move(answer).error());
        return flagOf(answer->json, "locked");
    }
    Status writeAt(uint64_t offset, std::span<const std::byte> bytes) override {
        std::deque<uint64_t> underWay;
        Status status;
        for (size_t done = 0; (status.ok() && done < bytes.size()) || !underWay.empty();) {
            if (status.ok() && done < bytes.size() && underWay.size() < kBlocksUnderWay) {
                const auto block =
                    bytes.subspan(done, std::min<size_t>(FileService::kBlock, bytes.size() - done));
                const std::string_view body(reinterpret_cast<const char*>(block.data()), block.size());
                auto id = session_->post("write", {{"file", number_}, {"offset", offset + done}}, body, 0);
                done += block.size();
                if (id.ok())
                    underWay.push_back(*id);
                else
                    status = std::move(id).error();
                continue;
            }
            // Also after an error: the answer comes all the same.
            auto answer = session_->wait(underWay.front());
            underWay.pop_front();
            if (!answer.ok() && status.ok()) status = std::move(answer).error();
        }
        if (!status.ok()) return where_.seen(std::move(status).error()).at(offset);
        return {};
    }

  private:
    Status tell(const char* say, Json request) {
        request["file"] = number_;
        const auto answer = session_->ask(say, std::move(request), {}, 0);
        if (!answer.ok()) return where_.seen(answer.error());
        return {};
    }

    const Where where_;
    const std::shared_ptr<RemoteSession> session_;
    const uint64_t number_;
};

// Asks for a change of a whole path.
Status changeThere(const Where& where, const char* say) {
    SHARDSCOPE_ASSIGN(const auto session, where.host->session());
    const auto answer = session->ask(say, where.request(), where.body(), 0);
    if (!answer.ok()) return where.seen(answer.error());
    return {};
}

class RemoteDirectory final : public ReadOnlyDirectory {
  public:
    RemoteDirectory(Where where, std::vector<DirectoryEntry> first, bool writes)
        : where_(std::move(where)), writes_(writes), first_(std::move(first)) {}

    const std::string& path() const override { return where_.shown; }
    Result<std::vector<DirectoryEntry>> list(std::string_view subdirectory) const override {
        if (subdirectory.empty()) {
            // The listing that the opening brought is as good as one made now, once.
            MutexLock lock(mutex_);
            if (first_) {
                auto entries = std::move(*first_);
                first_.reset();
                return entries;
            }
        } else {
            SHARDSCOPE_TRY(checkRelativeName(subdirectory));
        }
        return listAll(in(subdirectory), false);
    }
    Result<std::shared_ptr<const ReadFile>> openFile(std::string_view name) const override {
        SHARDSCOPE_TRY(checkRelativeName(name));
        return RemoteFile::open(in(name));
    }
    Result<DirectoryEntry> stat(std::string_view name) const override {
        SHARDSCOPE_TRY(checkRelativeName(name));
        const Where where = in(name);
        const auto entry = [&]() -> Result<DirectoryEntry> {
            SHARDSCOPE_ASSIGN(const auto session, where.host->session());
            SHARDSCOPE_ASSIGN(const Answer answer, session->ask("stat", where.request(), where.body(), 0));
            return entryOf(answer.json, name);
        }();
        if (!entry.ok()) return where.seen(entry.error());
        return entry;
    }
    Result<std::shared_ptr<WriteFile>> createFile(std::string_view name, bool existing) override {
        if (!writes_) return ReadOnlyDirectory::createFile(name, existing);
        SHARDSCOPE_TRY(checkRelativeName(name));
        return RemoteWriteFile::create(in(name), existing);
    }
    Status removeFile(std::string_view name) override {
        if (!writes_) return ReadOnlyDirectory::removeFile(name);
        SHARDSCOPE_TRY(checkRelativeName(name));
        return changeThere(in(name), "remove");
    }
    Status sync() override { return writes_ ? changeThere(where_, "sync") : ReadOnlyDirectory::sync(); }

  private:
    Error refused(const std::string& path) const override { return onlyRead(path); }
    Where in(std::string_view name) const {
        Where where = where_;
        where.name = name;
        if (!name.empty()) where.shown += (where.shown.ends_with('/') ? "" : "/") + where.name;
        return where;
    }

    const Where where_;
    const bool writes_;
    mutable Mutex mutex_;
    mutable std::optional<std::vector<DirectoryEntry>> first_ SHARDSCOPE_GUARDED_BY(mutex_);
};

// ------------------------------------------------------------------ all of it

class RemoteFileSystem final : public ReadOnlyFileSystem {
  public:
    RemoteFileSystem(std::shared_ptr<RemoteHost> host, bool writes)
        : ReadOnlyFileSystem(systemFileSystem()), host_(std::move(host)), writes_(writes) {}

    Result<std::shared_ptr<Directory>> openDirectory(const std::string& path) override {
        SHARDSCOPE_ASSIGN(const Where where, at(path));
        SHARDSCOPE_ASSIGN(auto entries, listAll(where, true));
        return std::shared_ptr<Directory>(
            std::make_shared<RemoteDirectory>(where, std::move(entries), writes_));
    }
    Result<DirectoryEntry> stat(const std::string& path) override {
        SHARDSCOPE_ASSIGN(const Where where, at(path));
        const auto entry = [&]() -> Result<DirectoryEntry> {
            SHARDSCOPE_ASSIGN(const auto session, host_->session());
            SHARDSCOPE_ASSIGN(const Answer answer, session->ask("stat", where.request(), where.body(), 0));
            return entryOf(answer.json, splitPath(where.path).second);
        }();
        if (!entry.ok()) return where.seen(entry.error());
        return entry;
    }

    Result<uint64_t> freeBytes(const std::string& path) override {
        SHARDSCOPE_ASSIGN(const Where where, at(path));
        SHARDSCOPE_ASSIGN(const DiskSpace room, roomThere(*host_, where.path));
        return room.freeBytes;
    }
    Status makeDirectory(const std::string& path) override { return change("make", path); }
    Status removeTree(const std::string& path) override { return change("clear", path); }
    Status syncDirectory(const std::string& path) override { return change("settle", path); }
    Status rename(const std::string& from, const std::string& to) override {
        return change("move", from, to);
    }
    Status exchange(const std::string& a, const std::string& b) override { return change("swap", a, b); }

  private:
    Status change(const char* say, const std::string& path, const std::string& other = {}) {
        if (!writes_) return refused(path);
        SHARDSCOPE_ASSIGN(Where where, at(path));
        if (!other.empty()) {
            SHARDSCOPE_ASSIGN(Where second, at(other));
            where.name = std::move(second.path);
        }
        return changeThere(where, say);
    }

    Result<Where> at(const std::string& path) const {
        std::string there = path;
        if (path.starts_with(host_->name() + "/")) there = path.substr(host_->name().size());
        if (!there.starts_with('/') || there.find('\0') != std::string::npos)
            return makeError(ErrorCode::notFound, "this is not an absolute path on " + host_->name())
                .inFile(path);
        return Where{host_, there, {}, host_->name() + there};
    }

    Error refused(const std::string& path) const override { return onlyRead(path); }

    const std::shared_ptr<RemoteHost> host_;
    const bool writes_;
};

}  // namespace

Result<DiskSpace> roomHere(const std::string& directory, FileSystem& files) {
    SHARDSCOPE_ASSIGN(const DirectoryEntry entry, files.stat(directory));
    if (entry.kind != DirectoryEntry::Kind::directory)
        return makeError(ErrorCode::notFound, "is not a directory").inFile(directory);
    SHARDSCOPE_ASSIGN(const uint64_t free, files.freeBytes(directory));
    return DiskSpace{::access(directory.c_str(), W_OK | X_OK) == 0, free};
}

Result<DiskSpace> roomThere(RemoteHost& host, const std::string& directory) {
    Where where{nullptr, directory, {}, host.name() + directory};
    const auto room = [&]() -> Result<DiskSpace> {
        SHARDSCOPE_ASSIGN(const auto session, host.session());
        SHARDSCOPE_ASSIGN(const Answer answer, session->ask("space", where.request(), where.body(), 0));
        const auto free = numberOf(answer.json, "free");
        if (!free) return wrongAnswer("room that cannot be");
        return DiskSpace{flagOf(answer.json, "writable"), *free};
    }();
    if (!room.ok()) return where.seen(room.error());
    return room;
}

std::shared_ptr<FileSystem> remoteFileSystem(std::shared_ptr<RemoteHost> host, bool writes) {
    return std::make_shared<RemoteFileSystem>(std::move(host), writes);
}

}  // namespace shardscope
