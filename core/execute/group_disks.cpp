#include "execute/group_disks.h"

#include <algorithm>
#include <charconv>
#include <random>
#include <set>

#include <fmt/format.h>

#include "execute/binary_json.h"
#include "execute/executor.h"
#include "execute/staging.h"

namespace shardscope {

using Json = nlohmann::json;

namespace {

constexpr uint64_t kMostRead = uint64_t{16} << 20;  // of a file at once
constexpr const char* kPlaceName = "place";         // whose disk this is

Json dataIn(std::span<const std::byte> bytes) {
    const auto* begin = reinterpret_cast<const uint8_t*>(bytes.data());
    return Json::binary({begin, begin + bytes.size()});
}

std::string textIn(const Json& json, const char* key) {
    const auto& bytes = json.at(key).get_binary();
    return {bytes.begin(), bytes.end()};
}

Json entryJson(const DirectoryEntry& entry) {
    return {toBinaryJson(entry.name), static_cast<int>(entry.kind), entry.size};
}

Result<DirectoryEntry> entryFrom(const Json& json) {
    const auto& name = json.at(0).get_binary();
    const int kind = json.at(1).get<int>();
    if (kind < 0 || kind > static_cast<int>(DirectoryEntry::Kind::other)) return malformedMessage();
    return DirectoryEntry{std::string(name.begin(), name.end()), static_cast<DirectoryEntry::Kind>(kind),
                          json.at(2).get<uint64_t>()};
}

}  // namespace

// ------------------------------------------------------------------ what one rank does

class DiskService {
  public:
    DiskService(std::shared_ptr<FileSystem> own, std::string destination, int rank)
        : own_(std::move(own)),
          destination_(std::move(destination)),
          staging_(stagingPath(destination_)),
          parent_(splitPath(destination_).first),
          rank_(rank) {}

    Result<Json> answer(const Json& request) {
        return taken([&]() -> Result<Json> { return run(request); });
    }

    // Says in the staging directory whose disk it is on.
    Status sign(Directory& directory, const std::string& token) {
        SHARDSCOPE_ASSIGN(const auto file, directory.createFile(kPlaceName, true));
        std::string text = fmt::format("{} {}\n", token, rank_);
        return file->writeAt(0, bytesOf(text));
    }

  private:
    Result<Json> run(const Json& request) {
        const std::string what = request.at("ask").get<std::string>();
        const std::string path = textIn(request, "path");
        const bool inside = path.starts_with(staging_ + "/") &&
                            checkRelativeName(std::string_view(path).substr(staging_.size() + 1)).ok();
        if (path != destination_ && path != parent_ && path != staging_ && !inside)
            return makeError(ErrorCode::remote, "rank 0 asks for a path that is not the destination's")
                .inFile(path);
        if (what == "place") return place(request);
        if (what == "stat") {
            SHARDSCOPE_ASSIGN(const DirectoryEntry entry, own_->stat(path));
            return entryJson(entry);
        }
        if (what == "free") {
            SHARDSCOPE_ASSIGN(const uint64_t bytes, own_->freeBytes(path));
            return Json(bytes);
        }
        if (what == "make") {
            Status made = own_->makeDirectory(path);
            if (!made.ok() && made.error().code != ErrorCode::exists) return std::move(made).error();
            return Json();
        }
        if (path == parent_) {
            if (what == "sync") return done(own_->syncDirectory(path));
            return makeError(ErrorCode::remote, "rank 0 asks for what is not the destination's").inFile(path);
        }
        if (what == "remove") {
            files_.clear();
            directories_.clear();
            if (path == staging_) {
                lock_.reset();
                if (std::exchange(moved_, {}).drop) SHARDSCOPE_TRY(own_->removeTree(destination_));
            }
            return done(own_->removeTree(path));
        }
        if (what == "move" || what == "swap")
            return move(what == "swap", path, textIn(request, "to path"), request.at("keep").get<bool>());
        if (what == "undo") return undo();

        SHARDSCOPE_ASSIGN(const std::shared_ptr<Directory> directory, directoryOf(path));
        if (what == "sync directory") return done(directory->sync());
        const std::string name = textIn(request, "name");
        if (what == "list") {
            SHARDSCOPE_ASSIGN(const auto entries, directory->list(name));
            Json list = Json::array();
            for (const DirectoryEntry& entry : entries)
                list.push_back(entryJson(entry));
            return list;
        }
        if (what == "find") {
            SHARDSCOPE_ASSIGN(const DirectoryEntry entry, directory->stat(name));
            return entryJson(entry);
        }
        if (what == "unlink") return done(directory->removeFile(name));
        if (what == "read" || what == "print") return read(*directory, path, request);
        if (what == "close") {
            files_.erase({path, name});
            return Json();
        }
        std::shared_ptr<WriteFile>& file = files_[{path, name}];
        if (what == "create" || !file) {
            SHARDSCOPE_ASSIGN(
                file, directory->createFile(name, what != "create" || request.at("existing").get<bool>()));
            if (what == "create") return Json();
        }
        const auto number = [&](const char* key) { return request.at(key).get<uint64_t>(); };
        if (what == "allocate") return done(file->allocate(number("size")));
        if (what == "write") {
            const std::vector<uint8_t>& bytes = request.at("bytes").get_binary();
            return done(file->writeAt(number("offset"), std::as_bytes(std::span(bytes))));
        }
        if (what == "sync") return done(file->sync());
        return makeError(ErrorCode::remote, "rank 0 asks for what cannot be understood");
    }

    static Result<Json> done(Status status) {
        if (!status.ok()) return std::move(status).error();
        return Json();
    }

    Result<std::shared_ptr<Directory>> directoryOf(const std::string& path) {
        std::shared_ptr<Directory>& directory = directories_[path];
        if (!directory) {
            auto opened = own_->openDirectory(path);
            if (!opened.ok()) {
                directories_.erase(path);
                return opened;
            }
            directory = std::move(opened).value();
        }
        return directory;
    }

    // Whose disk the staging directory would lie on here: of a rank before this one, which has said so in it,
    // or this rank's own.
    Result<Json> place(const Json& request) {
        const std::string token = request.at("token").get<std::string>();
        const bool fresh = request.at("fresh").get<bool>();
        directories_.clear();
        files_.clear();
        lock_.reset();
        if (auto there = own_->openDirectory(staging_); there.ok()) {
            if (const auto file = (*there)->openFile(kPlaceName); file.ok()) {
                std::string text(std::min<uint64_t>((*file)->size(), 100), '\0');
                SHARDSCOPE_TRY((*file)->readAt(0, bytesOf(text)));
                int leader = -1;
                if (text.starts_with(token + " "))
                    std::from_chars(text.data() + token.size() + 1, text.data() + text.size(), leader);
                if (leader >= 0 && leader < rank_) return Json(leader);
            }
            SHARDSCOPE_TRY(lock(**there));
            if (fresh) {  // of a job that rank 0 knows nothing of
                lock_.reset();
                SHARDSCOPE_TRY(own_->removeTree(staging_));
            }
        }
        Status made = own_->makeDirectory(staging_);
        if (!made.ok() && made.error().code == ErrorCode::notFound) {
            Error error = std::move(made).error();
            error.code = ErrorCode::io;
            return std::move(error).withHint(
                "the directory that is to hold the destination must exist on every rank");
        }
        if (!made.ok() && made.error().code != ErrorCode::exists) return std::move(made).error();
        SHARDSCOPE_ASSIGN(const auto directory, own_->openDirectory(staging_));
        if (!lock_) SHARDSCOPE_TRY(lock(*directory));
        SHARDSCOPE_TRY(sign(*directory, token));
        return Json(rank_);
    }

    Status lock(Directory& directory) {
        SHARDSCOPE_ASSIGN(lock_, directory.createFile(Staging::kLockName, true));
        SHARDSCOPE_ASSIGN(const bool locked, lock_->tryLock());
        if (locked) return {};
        lock_.reset();
        return makeError(ErrorCode::exists, "another job is writing this destination").inFile(staging_);
    }

    Result<Json> read(Directory& directory, const std::string& path, const Json& request) {
        const std::string name = textIn(request, "name");
        std::shared_ptr<const ReadFile>& file = read_;
        if (!file || readName_ != path + "/" + name) {
            SHARDSCOPE_ASSIGN(file, directory.openFile(name));
            readName_ = path + "/" + name;
        }
        if (request.at("ask") == "print") {
            SHARDSCOPE_ASSIGN(const Fingerprint print, file->fingerprint());
            return Json{print.size, print.modifiedNs};
        }
        const auto length = request.at("length").get<uint64_t>();
        if (length > kMostRead) return malformedMessage();
        std::vector<uint8_t> bytes(length);
        SHARDSCOPE_TRY(
            file->readBulk(request.at("offset").get<uint64_t>(), std::as_writable_bytes(std::span(bytes))));
        return Json::binary(std::move(bytes));
    }

    // Without `keep` nothing of the new destination is here; an old one goes all the same.
    Result<Json> move(bool swap, const std::string& from, const std::string& to, bool keep) {
        if (to != destination_) return malformedMessage();
        files_.clear();
        directories_.clear();
        read_.reset();
        if (!own_->stat(from).ok()) return Json();  // nothing of it is here
        const bool there = swap && own_->stat(to).ok();
        if (!there && !keep) return Json();
        SHARDSCOPE_TRY(there ? own_->exchange(from, to) : own_->rename(from, to));
        moved_ = {from, there, !keep};
        return Json();
    }

    Result<Json> undo() {
        const Moved was = std::exchange(moved_, {});
        if (was.from.empty()) return Json();
        return done(was.swapped ? own_->exchange(was.from, destination_)
                                : own_->rename(destination_, was.from));
    }

    const std::shared_ptr<FileSystem> own_;
    const std::string destination_, staging_, parent_;
    const int rank_;
    std::map<std::string, std::shared_ptr<Directory>> directories_;
    std::map<std::pair<std::string, std::string>, std::shared_ptr<WriteFile>> files_;  // by directory, name
    std::shared_ptr<WriteFile> lock_;
    std::shared_ptr<const ReadFile> read_;  // the last one
    std::string readName_;
    struct Moved {
        std::string from;
        bool swapped = false;  // the old destination is there now
        bool drop = false;     // what is the destination now is to go
    } moved_;
};

// ------------------------------------------------------------------ between ranks

namespace {

// What each rank says comes to rank 0, and to it alone.
Result<std::vector<std::string>> toLeader(ProcessGroup& ranks, size_t lane, std::string text) {
    std::vector<std::string> texts(static_cast<size_t>(ranks.size()));
    texts[0] = std::move(text);
    return allToAllTexts(ranks, lane, texts, kMostRead * 2);
}

}  // namespace

Status serveDisks(ProcessGroup& ranks, size_t lane, std::shared_ptr<FileSystem> own,
                  const std::string& destination) {
    DiskService service(std::move(own), destination, ranks.rank());
    for (;;) {
        std::string text;
        SHARDSCOPE_TRY(broadcastText(ranks, lane, text, 0));
        if (text.empty()) return {};
        SHARDSCOPE_ASSIGN(const Json request, unpacked(text));
        bool asked = false;
        SHARDSCOPE_TRY(taken([&]() -> Status {
            const Json& to = request.at("to");
            asked = std::find(to.begin(), to.end(), ranks.rank()) != to.end();
            return {};
        }));
        std::string said;
        if (asked) {
            auto answer = service.answer(request);
            said = packed(answer.ok() ? Json{{"answer", std::move(answer).value()}}
                                      : Json{{"error", packedError(answer.error())}});
        }
        SHARDSCOPE_TRY(toLeader(ranks, lane, std::move(said)));
    }
}

// ------------------------------------------------------------------ files and directories, as rank 0 has
// them

class DisksReadFile final : public ReadFile {
  public:
    DisksReadFile(std::shared_ptr<GroupDisks> disks, int rank, std::string directory, std::string name,
                  uint64_t size)
        : disks_(std::move(disks)),
          rank_(rank),
          directory_(std::move(directory)),
          name_(std::move(name)),
          path_(directory_ + "/" + name_),
          size_(size) {}

    const std::string& path() const override { return path_; }
    uint64_t size() const override { return size_; }
    Status readAt(uint64_t offset, std::span<std::byte> buffer) const override {
        while (!buffer.empty()) {
            const size_t length = std::min<uint64_t>(buffer.size(), kMostRead);
            SHARDSCOPE_ASSIGN(const Json answer, disks_->askOne(rank_, {{"ask", "read"},
                                                                        {"path", toBinaryJson(directory_)},
                                                                        {"name", toBinaryJson(name_)},
                                                                        {"offset", offset},
                                                                        {"length", length}}));
            if (!answer.is_binary() || answer.get_binary().size() != length) return malformedMessage();
            std::memcpy(buffer.data(), answer.get_binary().data(), length);
            buffer = buffer.subspan(length);
            offset += length;
        }
        return {};
    }
    Result<Fingerprint> fingerprint() const override {
        SHARDSCOPE_ASSIGN(const Json answer, disks_->askOne(rank_, {{"ask", "print"},
                                                                    {"path", toBinaryJson(directory_)},
                                                                    {"name", toBinaryJson(name_)}}));
        return taken([&]() -> Result<Fingerprint> {
            Fingerprint print;
            print.size = answer.at(0).get<uint64_t>();
            print.modifiedNs = answer.at(1).get<int64_t>();
            return print;
        });
    }

  private:
    const std::shared_ptr<GroupDisks> disks_;
    const int rank_;
    const std::string directory_, name_, path_;
    const uint64_t size_;
};

// A file on one disk, or the same on several.
class DisksWriteFile final : public WriteFile {
  public:
    DisksWriteFile(std::shared_ptr<GroupDisks> disks, std::vector<int> ranks, std::string directory,
                   std::string name)
        : disks_(std::move(disks)),
          ranks_(std::move(ranks)),
          directory_(std::move(directory)),
          name_(std::move(name)),
          path_(directory_ + "/" + name_) {}
    ~DisksWriteFile() override { (void)ask("close", Json::object()); }

    const std::string& path() const override { return path_; }
    Status create(bool existing) { return ask("create", {{"existing", existing}}); }
    Status allocate(uint64_t size) override { return ask("allocate", {{"size", size}}); }
    Status writeAt(uint64_t offset, std::span<const std::byte> bytes) override {
        for (size_t done = 0; done < bytes.size(); done += kMostRead) {
            const auto part = bytes.subspan(done, std::min<uint64_t>(kMostRead, bytes.size() - done));
            SHARDSCOPE_TRY(ask("write", {{"offset", offset + done}, {"bytes", dataIn(part)}}));
        }
        return {};
    }
    Status sync() override { return ask("sync", Json::object()); }

  private:
    Status ask(const char* what, Json request) {
        request["ask"] = what;
        request["path"] = toBinaryJson(directory_);
        request["name"] = toBinaryJson(name_);
        return disks_->askAll(ranks_, request);
    }

    const std::shared_ptr<GroupDisks> disks_;
    const std::vector<int> ranks_;
    const std::string directory_, name_, path_;
};

class DisksDirectory final : public Directory {
  public:
    // `own` is rank 0's.
    DisksDirectory(std::shared_ptr<GroupDisks> disks, std::string path, std::shared_ptr<Directory> own)
        : disks_(std::move(disks)), path_(std::move(path)), own_(std::move(own)) {}

    const std::string& path() const override { return path_; }

    Result<std::vector<DirectoryEntry>> list(std::string_view subdirectory) const override {
        const auto answers =
            disks_->ask(disks_->leaders(), {{"ask", "list"},
                                            {"path", toBinaryJson(path_)},
                                            {"name", toBinaryJson(std::string(subdirectory))}});
        std::map<std::string, DirectoryEntry> found;
        bool any = false;
        for (const auto& answer : answers) {
            if (!answer.ok() && answer.error().code == ErrorCode::notFound) continue;
            if (!answer.ok()) return answer.error();
            any = true;
            SHARDSCOPE_TRY(taken([&]() -> Status {
                for (const Json& each : *answer) {
                    SHARDSCOPE_ASSIGN(DirectoryEntry entry, entryFrom(each));
                    found.try_emplace(entry.name, std::move(entry));
                }
                return {};
            }));
        }
        if (!any)
            return makeError(ErrorCode::notFound, "no rank has this directory")
                .inFile(path_ + "/" + std::string(subdirectory));
        std::vector<DirectoryEntry> entries;
        for (auto& [name, entry] : found)
            entries.push_back(std::move(entry));
        return entries;
    }

    Result<std::shared_ptr<const ReadFile>> openFile(std::string_view name) const override {
        SHARDSCOPE_TRY(checkRelativeName(name));
        SHARDSCOPE_ASSIGN(const auto found, disks_->find(path_, std::string(name)));
        if (found.first == 0) return own_->openFile(name);
        return std::shared_ptr<const ReadFile>(std::make_shared<DisksReadFile>(
            disks_, found.first, path_, std::string(name), found.second.size));
    }

    Result<DirectoryEntry> stat(std::string_view name) const override {
        SHARDSCOPE_TRY(checkRelativeName(name));
        SHARDSCOPE_ASSIGN(auto found, disks_->find(path_, std::string(name)));
        return std::move(found.second);
    }

    Result<std::shared_ptr<WriteFile>> createFile(std::string_view name, bool existing) override {
        // Lock and journal are rank 0's; the token is for all to see.
        const bool control = path_ == stagingPath(disks_->destination_);
        std::vector<int> ranks{0};
        if (control && name == Staging::kTokenName) {
            ranks = disks_->leaders();
        } else if (const auto file = disks_->fileRanks_.find(std::string(name));
                   !control && file != disks_->fileRanks_.end()) {
            ranks = {disks_->places_[static_cast<size_t>(file->second)]};
        }
        if (ranks == std::vector<int>{0}) return own_->createFile(name, existing);
        auto file = std::make_shared<DisksWriteFile>(disks_, std::move(ranks), path_, std::string(name));
        SHARDSCOPE_TRY(file->create(existing));
        return std::shared_ptr<WriteFile>(std::move(file));
    }

    Status removeFile(std::string_view name) override { return own_->removeFile(name); }
    Status sync() override {
        return disks_->askAll(disks_->leaders(), {{"ask", "sync directory"}, {"path", toBinaryJson(path_)}});
    }

  private:
    const std::shared_ptr<GroupDisks> disks_;
    const std::string path_;
    const std::shared_ptr<Directory> own_;
};

// ------------------------------------------------------------------ as a file system

GroupDisks::GroupDisks(ProcessGroup& ranks, size_t lane, std::shared_ptr<FileSystem> own,
                       std::string destination, std::map<std::string, int> fileRanks)
    : ranks_(ranks),
      lane_(lane),
      own_(std::move(own)),
      destination_(std::move(destination)),
      fileRanks_(std::move(fileRanks)),
      service_(std::make_unique<DiskService>(own_, destination_, 0)) {
    // Until it is known better, each rank may have a disk of its own.
    for (int r = 0; r < ranks.size(); ++r)
        places_.push_back(r);
}

GroupDisks::~GroupDisks() {
    end();
}

void GroupDisks::end() {
    std::lock_guard lock(mutex_);
    if (std::exchange(ended_, true) || ranks_.broken()) return;
    std::string nothing;
    (void)broadcastText(ranks_, lane_, nothing, 0);
}

std::vector<Result<Json>> GroupDisks::ask(const std::vector<int>& to, Json request) {
    std::vector<Result<Json>> answers;
    std::lock_guard lock(mutex_);
    std::vector<std::string> texts;
    Status asked;
    if (to != std::vector<int>{0}) {
        request["to"] = to;
        std::string text = packed(request);
        if (ended_)
            asked = makeError(ErrorCode::internal, "the other ranks have ended");
        else
            asked = broadcastText(ranks_, lane_, text, 0);
        if (asked.ok()) {
            auto said = toLeader(ranks_, lane_, "");
            if (said.ok())
                texts = std::move(said).value();
            else
                asked = std::move(said).error();
        }
    }
    for (const int rank : to) {
        if (rank == 0) {
            answers.push_back(service_->answer(request));
        } else if (!asked.ok()) {
            answers.emplace_back(asked.error());
        } else {
            answers.push_back(taken([&]() -> Result<Json> {
                SHARDSCOPE_ASSIGN(Json said, unpacked(texts[static_cast<size_t>(rank)]));
                if (said.contains("error")) return unpackedError(said["error"], ranks_.name(rank));
                return std::move(said.at("answer"));
            }));
        }
    }
    return answers;
}

Result<Json> GroupDisks::askOne(int rank, Json request) {
    return std::move(ask({rank}, std::move(request)).front());
}

Status GroupDisks::askAll(const std::vector<int>& to, const Json& request) {
    for (auto& answer : ask(to, request)) {
        if (!answer.ok()) return std::move(answer).error();
    }
    return {};
}

std::vector<int> GroupDisks::leaders(bool withFilesOnly) const {
    std::set<int> found{0};
    if (withFilesOnly) {
        for (const auto& [name, rank] : fileRanks_)
            found.insert(places_[static_cast<size_t>(rank)]);
    } else {
        found.insert(places_.begin(), places_.end());
    }
    return {found.begin(), found.end()};
}

Result<std::pair<int, DirectoryEntry>> GroupDisks::find(const std::string& directory,
                                                        const std::string& name) {
    // Most often it is where it belongs.
    std::vector<int> to = leaders();
    if (const auto file = fileRanks_.find(name); file != fileRanks_.end())
        to = {places_[static_cast<size_t>(file->second)]};
    const auto answers =
        ask(to, {{"ask", "find"}, {"path", toBinaryJson(directory)}, {"name", toBinaryJson(name)}});
    for (size_t i = 0; i < to.size(); ++i) {
        if (!answers[i].ok()) continue;
        return taken([&]() -> Result<std::pair<int, DirectoryEntry>> {
            SHARDSCOPE_ASSIGN(DirectoryEntry entry, entryFrom(*answers[i]));
            return std::pair(to[i], std::move(entry));
        });
    }
    for (const auto& answer : answers) {
        if (answer.error().code != ErrorCode::notFound) return answer.error();
    }
    return answers.front().error();
}

Result<std::shared_ptr<Directory>> GroupDisks::openDirectory(const std::string& path) {
    SHARDSCOPE_ASSIGN(auto own, own_->openDirectory(path));
    return std::shared_ptr<Directory>(
        std::make_shared<DisksDirectory>(shared_from_this(), path, std::move(own)));
}

Status GroupDisks::makeDirectory(const std::string& path) {
    Status made = own_->makeDirectory(path);
    if (!made.ok() && made.error().code != ErrorCode::exists) return made;
    if (path == stagingPath(destination_)) {
        int asked = 1;  // ranks, from 0 on
        Status found = findPlaces(made.ok(), asked);
        // Nothing is in it but what this has put there.
        if (!found.ok() && made.ok()) {
            for (int r = 1; r < asked; ++r)
                if (places_[static_cast<size_t>(r)] == r)
                    (void)askOne(r, {{"ask", "remove"}, {"path", toBinaryJson(path)}});
            (void)own_->removeTree(path);
        }
        return found.ok() ? made : found;
    }
    std::vector<int> others = leaders();
    std::erase(others, 0);
    if (!others.empty()) SHARDSCOPE_TRY(askAll(others, {{"ask", "make"}, {"path", toBinaryJson(path)}}));
    return made;
}

// One rank after the other, so that each sees what those before it have made.
Status GroupDisks::findPlaces(bool fresh, int& asked) {
    const std::string staging = stagingPath(destination_);
    std::random_device random;
    const std::string token = fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
    SHARDSCOPE_ASSIGN(const auto directory, own_->openDirectory(staging));
    SHARDSCOPE_TRY(service_->sign(*directory, token));
    for (int r = 1; r < ranks_.size(); ++r) {
        SHARDSCOPE_ASSIGN(
            const Json leader,
            askOne(r,
                   {{"ask", "place"}, {"path", toBinaryJson(staging)}, {"token", token}, {"fresh", fresh}}));
        if (!leader.is_number_integer() || leader.get<int>() < 0 || leader.get<int>() > r)
            return malformedMessage();
        places_[static_cast<size_t>(r)] = leader.get<int>();
        asked = r + 1;
    }
    return {};
}

Result<DirectoryEntry> GroupDisks::stat(const std::string& path) {
    auto answers = ask(leaders(), {{"ask", "stat"}, {"path", toBinaryJson(path)}});
    Result<Json>* first = nullptr;
    for (auto& answer : answers) {
        if (answer.ok()) return taken([&] { return entryFrom(*answer); });
        if (!first || first->error().code == ErrorCode::notFound) first = &answer;
    }
    return std::move(*first).error();
}

// Rank 0 last: who looks there finds nothing before all is there.
Status GroupDisks::moveAll(const char* how, const std::string& from, const std::string& to) {
    const std::vector<int> withFiles = leaders(true);
    std::vector<int> order = leaders(), moved;
    std::ranges::reverse(order);
    for (const int rank : order) {
        auto answer = askOne(rank, {{"ask", how},
                                    {"path", toBinaryJson(from)},
                                    {"to path", toBinaryJson(to)},
                                    {"keep", std::ranges::count(withFiles, rank) > 0}});
        if (answer.ok()) {
            moved.push_back(rank);
            continue;
        }
        Error error = std::move(answer).error();
        for (const int other : moved) {
            const auto undone = askOne(other, {{"ask", "undo"}, {"path", toBinaryJson(from)}});
            if (!undone.ok())
                error.message += fmt::format("; and on {} it cannot be taken back ({})", ranks_.name(other),
                                             undone.error().message);
        }
        return error;
    }
    return {};
}

Status GroupDisks::rename(const std::string& from, const std::string& to) {
    return moveAll("move", from, to);
}

Status GroupDisks::exchange(const std::string& a, const std::string& b) {
    return moveAll("swap", a, b);
}

Status GroupDisks::removeTree(const std::string& path) {
    return askAll(leaders(), {{"ask", "remove"}, {"path", toBinaryJson(path)}});
}

Status GroupDisks::syncDirectory(const std::string& path) {
    return askAll(leaders(), {{"ask", "sync"}, {"path", toBinaryJson(path)}});
}

Result<uint64_t> GroupDisks::freeBytes(const std::string& path) {
    uint64_t sum = 0;
    for (auto& answer : ask(leaders(), {{"ask", "free"}, {"path", toBinaryJson(path)}})) {
        if (!answer.ok()) return std::move(answer).error();
        if (!answer->is_number_unsigned()) return malformedMessage();
        sum += answer->get<uint64_t>();
    }
    return sum;
}

Result<std::shared_ptr<WriteFile>> GroupDisks::createScratch(const std::string& directory) {
    return own_->createScratch(directory);
}

Result<std::shared_ptr<const ReadFile>> GroupDisks::reopen(const std::shared_ptr<WriteFile>& file) {
    return own_->reopen(file);
}

}  // namespace shardscope
