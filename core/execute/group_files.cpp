#include "execute/group_files.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "execute/binary_json.h"

namespace shardscope {
namespace {

using Json = nlohmann::json;

constexpr size_t kOpening = 0;  // the lane of all that comes before the work
constexpr size_t kMostDepth = 16;
constexpr uint64_t kFirstAhead = uint64_t{4} << 10, kMostAhead = uint64_t{16} << 20;
constexpr uint64_t kAskedAtOnce = uint64_t{16} << 20;

Error onlyRead(const std::string& path) {
    return makeError(ErrorCode::impossible, "the files of a group of ranks are only read").inFile(path);
}

}  // namespace

// ------------------------------------------------------------------ known bytes

std::vector<std::pair<uint64_t, uint64_t>> KnownBytes::unknown(uint64_t offset, uint64_t length) const {
    std::vector<std::pair<uint64_t, uint64_t>> found;
    uint64_t at = offset;
    const uint64_t end = offset + length;
    while (at < end) {
        const auto next = parts_.upper_bound(at);
        if (next != parts_.begin()) {
            const auto before = std::prev(next);
            const uint64_t known = before->first + before->second.size();
            if (known > at) {
                at = known;
                continue;
            }
        }
        const uint64_t stop = next == parts_.end() ? end : std::min(end, next->first);
        found.emplace_back(at, stop - at);
        at = stop;
    }
    return found;
}

void KnownBytes::add(uint64_t offset, std::span<const std::byte> bytes) {
    for (const auto& [at, length] : unknown(offset, bytes.size())) {
        const auto part = bytes.subspan(at - offset, length);
        copies_.emplace_back(part.begin(), part.end());
        parts_.emplace(at, copies_.back());
        bytes_ += length;
    }
}

void KnownBytes::refer(uint64_t offset, std::span<const std::byte> bytes) {
    for (const auto& [at, length] : unknown(offset, bytes.size())) {
        parts_.emplace(at, bytes.subspan(at - offset, length));
        bytes_ += length;
    }
}

bool KnownBytes::has(uint64_t offset, uint64_t length) const {
    return unknown(offset, length).empty();
}

void KnownBytes::clear() {
    parts_.clear();
    copies_.clear();
    bytes_ = 0;
}

bool KnownBytes::read(uint64_t offset, std::span<std::byte> buffer) const {
    size_t done = 0;
    while (done < buffer.size()) {
        const uint64_t at = offset + done;
        auto part = parts_.upper_bound(at);
        if (part == parts_.begin()) return false;
        --part;
        const uint64_t within = at - part->first;
        if (within >= part->second.size()) return false;
        const size_t n = std::min<uint64_t>(part->second.size() - within, buffer.size() - done);
        std::memcpy(buffer.data() + done, part->second.data() + within, n);
        done += n;
    }
    return true;
}

// ------------------------------------------------------------------ files and directories

class GroupFile final : public ReadFile {
  public:
    GroupFile(std::shared_ptr<GroupFiles> files, std::string name, std::string path,
              const GroupFiles::Entry& entry, std::shared_ptr<const ReadFile> own)
        : files_(std::move(files)),
          name_(std::move(name)),
          path_(std::move(path)),
          size_(own ? own->size() : entry.size),
          modified_(entry.modified),
          own_(std::move(own)) {}

    const std::string& path() const override { return path_; }
    uint64_t size() const override { return size_; }
    Status readAt(uint64_t offset, std::span<std::byte> buffer) const override {
        return files_->readAt(name_, own_.get(), offset, buffer, false);
    }
    Status readBulk(uint64_t offset, std::span<std::byte> buffer) const override {
        return files_->readAt(name_, own_.get(), offset, buffer, true);
    }
    Result<Fingerprint> fingerprint() const override {
        if (own_) return own_->fingerprint();
        Fingerprint print;
        print.size = size_;
        print.modifiedNs = modified_;
        return print;
    }

  private:
    const std::shared_ptr<GroupFiles> files_;
    const std::string name_, path_;
    const uint64_t size_;
    const int64_t modified_;
    const std::shared_ptr<const ReadFile> own_;
};

class GroupDirectory final : public ReadOnlyDirectory {
  public:
    GroupDirectory(std::shared_ptr<GroupFiles> files, std::string prefix, std::string path)
        : files_(std::move(files)), prefix_(std::move(prefix)), path_(std::move(path)) {}

    const std::string& path() const override { return path_; }

    Result<std::vector<DirectoryEntry>> list(std::string_view subdirectory) const override {
        if (!subdirectory.empty()) SHARDSCOPE_TRY(checkRelativeName(subdirectory));
        const std::string before = subdirectory.empty() ? prefix_ : prefix_ + std::string(subdirectory) + "/";
        std::vector<DirectoryEntry> found;
        for (auto it = files_->entries_.lower_bound(before);
             it != files_->entries_.end() && it->first.starts_with(before); ++it) {
            const std::string_view rest = std::string_view(it->first).substr(before.size());
            const size_t slash = rest.find('/');
            if (slash == std::string_view::npos) {
                found.push_back({std::string(rest), DirectoryEntry::Kind::file, it->second.size});
            } else if (const auto name = rest.substr(0, slash); found.empty() || found.back().name != name) {
                found.push_back({std::string(name), DirectoryEntry::Kind::directory, 0});
            }
        }
        if (found.empty() && !before.empty())
            return makeError(ErrorCode::notFound, "no rank has this directory").inFile(shown(subdirectory));
        return found;
    }

    Result<std::shared_ptr<const ReadFile>> openFile(std::string_view name) const override {
        SHARDSCOPE_TRY(checkRelativeName(name));
        const std::string key = prefix_ + std::string(name);
        const auto it = files_->entries_.find(key);
        if (it == files_->entries_.end())
            return makeError(ErrorCode::notFound, "no rank has this file").inFile(shown(name));
        SHARDSCOPE_TRY(files_->checkAlike(key, it->second));
        std::shared_ptr<const ReadFile> own;
        if (it->second.mine) {
            SHARDSCOPE_ASSIGN(own, files_->ownFile(key));
        }
        return std::shared_ptr<const ReadFile>(
            std::make_shared<GroupFile>(files_, key, shown(name), it->second, std::move(own)));
    }

    Result<DirectoryEntry> stat(std::string_view name) const override {
        SHARDSCOPE_TRY(checkRelativeName(name));
        const std::string key = prefix_ + std::string(name);
        if (const auto it = files_->entries_.find(key); it != files_->entries_.end())
            return DirectoryEntry{std::string(name), DirectoryEntry::Kind::file, it->second.size};
        const auto inside = files_->entries_.lower_bound(key + "/");
        if (inside != files_->entries_.end() && inside->first.starts_with(key + "/"))
            return DirectoryEntry{std::string(name), DirectoryEntry::Kind::directory, 0};
        return makeError(ErrorCode::notFound, "no rank has this file").inFile(shown(name));
    }

  private:
    Error refused(const std::string& path) const override { return onlyRead(path); }
    std::string shown(std::string_view name) const {
        return name.empty() ? path_ : path_ + "/" + std::string(name);
    }

    const std::shared_ptr<GroupFiles> files_;
    const std::string prefix_;  // of names in the group's table: empty, or ends with '/'
    const std::string path_;
};

// ------------------------------------------------------------------ who has what

namespace {
// The lane whose read() the calling thread is in.
thread_local const void* currentFiles = nullptr;
thread_local size_t currentLane = 0;
}  // namespace

GroupFiles::GroupFiles(ProcessGroup& ranks, std::shared_ptr<FileSystem> own, std::string root)
    : ReadOnlyFileSystem(std::move(own)), ranks_(ranks), root_(std::move(root)), lanes_(ranks.lanes()) {}

Result<std::shared_ptr<GroupFiles>> GroupFiles::make(ProcessGroup& ranks, std::shared_ptr<FileSystem> own,
                                                     const std::string& path, GroupMode mode) {
    // Everyone must mean the same directory, and whether the source is a file only who has it knows.
    std::string kind;
    Status mine;
    if (auto entry = own->stat(path); entry.ok())
        kind = entry->kind == DirectoryEntry::Kind::directory ? "directory" : "file";
    else if (entry.error().code != ErrorCode::notFound)
        mine = std::move(entry).error();
    if (mode == GroupMode::broadcast && ranks.rank() != 0) kind.clear(), mine = {};
    SHARDSCOPE_TRY(agree(ranks, kOpening, mine));
    SHARDSCOPE_ASSIGN(const std::vector<std::string> kinds, allGatherTexts(ranks, kOpening, kind));
    std::string agreed;
    for (const std::string& each : kinds) {
        if (each.empty()) continue;
        if (!agreed.empty() && each != agreed)
            return makeError(ErrorCode::changed, "is a file for one rank and a directory for another")
                .inFile(path);
        agreed = each;
    }
    if (agreed.empty())
        return makeError(ErrorCode::notFound,
                         mode == GroupMode::broadcast ? "rank 0 does not have it" : "no rank has it")
            .inFile(path);
    std::string trimmed = path;
    while (trimmed.size() > 1 && trimmed.ends_with('/'))
        trimmed.pop_back();
    const std::string root = agreed == "directory" ? trimmed : splitPath(trimmed).first;
    std::shared_ptr<GroupFiles> files(new GroupFiles(ranks, std::move(own), root));
    std::map<std::string, Entry> found;
    const std::string file = agreed == "directory" ? "" : splitPath(trimmed).second;
    if (!kind.empty()) mine = files->findOwn(file, found);
    SHARDSCOPE_TRY(agree(ranks, kOpening, mine));
    SHARDSCOPE_TRY(taken([&] { return files->agreeOnFiles(std::move(found), file, mode); }));
    return files;
}

Status GroupFiles::findOwn(const std::string& file, std::map<std::string, Entry>& found) {
    SHARDSCOPE_ASSIGN(directory_, here_->openDirectory(root_));
    std::vector<std::pair<std::string, size_t>> todo{{"", 0}};
    while (!todo.empty()) {
        const auto [prefix, depth] = todo.back();
        todo.pop_back();
        SHARDSCOPE_ASSIGN(const std::vector<DirectoryEntry> entries,
                          directory_->list(prefix.empty() ? "" : prefix.substr(0, prefix.size() - 1)));
        for (const DirectoryEntry& each : entries) {
            const std::string name = prefix + each.name;
            if (each.kind == DirectoryEntry::Kind::directory && file.empty() && depth < kMostDepth) {
                todo.push_back({name + "/", depth + 1});
            } else if (each.kind == DirectoryEntry::Kind::file) {
                Entry& entry = found[name];
                entry.size = each.size;
                entry.mine = true;
                // What cannot be opened is told when it is needed.
                if (const auto opened = directory_->openFile(name); opened.ok()) {
                    if (const auto print = (*opened)->fingerprint(); print.ok())
                        entry.modified = print->modifiedNs;
                }
                if (found.size() > kMostEntries)
                    return makeError(ErrorCode::limit,
                                     fmt::format("the source has more than {} files", kMostEntries))
                        .inFile(root_);
            }
        }
    }
    return {};
}

Status GroupFiles::agreeOnFiles(std::map<std::string, Entry> found, const std::string& file, GroupMode mode) {
    Json mine = Json::array();
    for (const auto& [name, entry] : found)
        mine.push_back({toBinaryJson(name), entry.size, entry.modified});
    SHARDSCOPE_ASSIGN(const std::vector<std::string> all, allGatherTexts(ranks_, kOpening, packed(mine)));
    std::map<std::string, int> holders;
    for (int r = 0; r < ranks_.size(); ++r) {
        SHARDSCOPE_ASSIGN(const Json theirs, unpacked(all[static_cast<size_t>(r)]));
        for (const Json& each : theirs) {
            const auto& bytes = each.at(0).get_binary();
            const std::string name(bytes.begin(), bytes.end());
            const auto size = each.at(1).get<uint64_t>();
            const auto [it, first] = entries_.try_emplace(name);
            Entry& entry = it->second;
            if (first) {
                entry.size = size;
                entry.modified = each.at(2).get<int64_t>();
                entry.owner = r;
            } else if (entry.size != size) {
                // A log that grows, say, which is none of the source's files.
                entry.differs = r;
                entry.otherSize = size;
            }
            ++holders[name];
        }
    }
    bool whole = true, first = true;
    const auto counts = [&](const std::string& name) { return file.empty() || name == file; };
    for (const auto& [name, entry] : entries_) {
        if (!counts(name)) continue;
        whole = whole && holders[name] == ranks_.size();
        first = first && entry.owner == 0;
    }
    mode_ = mode != GroupMode::automatic ? mode
            : whole                      ? GroupMode::direct
            : first                      ? GroupMode::broadcast
                                         : GroupMode::exchange;
    for (auto& [name, entry] : entries_) {
        entry.everywhere = holders[name] == ranks_.size() && mode_ != GroupMode::broadcast;
        entry.mine = found.contains(name) && (mode_ != GroupMode::broadcast || ranks_.rank() == 0);
    }
    if (mode_ == GroupMode::direct && !whole) {
        for (const auto& [name, entry] : entries_) {
            if (counts(name) && holders[name] != ranks_.size())
                return makeError(ErrorCode::impossible, "not every rank sees the whole source")
                    .inFile(root_ + "/" + name)
                    .withHint("use --mode exchange, or broadcast where rank 0 has all of it");
        }
    }
    allHere_ = mode_ != GroupMode::exchange || whole;  // who reads has all
    return {};
}

// ------------------------------------------------------------------ opening

Result<std::shared_ptr<const ReadFile>> GroupFiles::ownFile(const std::string& name) {
    return directory_->openFile(name);
}

Status GroupFiles::readAt(const std::string& name, const ReadFile* own, uint64_t offset,
                          std::span<std::byte> buffer, bool bulk) {
    if (buffer.empty()) return {};
    const bool leads = opening_ && ranks_.rank() == 0;
    Entry& entry = entries_.find(name)->second;
    Lane* const lane = currentFiles == this && !allHere_ ? &lanes_[currentLane] : nullptr;
    KnownBytes* const fetched = lane ? &lane->fetched[name] : nullptr;
    if (own) {
        if (lane && lane->surveys) return {};
        // Work that is done again must not read its own bytes again.
        const bool retries = lane && lane->way == Way::retry;
        if (retries && fetched->read(offset, buffer)) return {};
        SHARDSCOPE_TRY(bulk ? own->readBulk(offset, buffer) : own->readAt(offset, buffer));
        if (currentFiles == this) lanes_[currentLane].served += buffer.size();
        if (retries) fetched->add(offset, buffer);
        if (leads && !entry.everywhere) {
            std::lock_guard lock(mutex_);
            entry.known.add(offset, buffer);
        }
        return {};
    }
    if (offset > entry.size || buffer.size() > entry.size - offset)
        return makeError(ErrorCode::changed, "the file ends early").inFile(root_ + "/" + name).at(offset);
    const bool surveys = lane && lane->surveys;
    if (lane && (surveys ? fetched->has(offset, buffer.size()) : fetched->read(offset, buffer))) return {};
    {
        std::lock_guard lock(mutex_);
        if (surveys ? entry.known.has(offset, buffer.size()) : entry.known.read(offset, buffer)) return {};
    }
    if (leads) {
        for (uint64_t done = 0; done < buffer.size(); done += kAskedAtOnce)
            SHARDSCOPE_TRY(ask(name, offset + done,
                               buffer.subspan(done, std::min<uint64_t>(kAskedAtOnce, buffer.size() - done))));
        return {};
    }
    if (surveys) {
        lane->missing.push_back({name, offset, buffer.size()});
        return {};
    }
    if (!lane || lane->way == Way::survey)
        return makeError(ErrorCode::internal,
                         fmt::format("bytes of {} were read out of step", ranks_.name(entry.owner)))
            .inFile(root_ + "/" + name)
            .at(offset);
    // Who reads on where it has just read must not wait for each piece.
    const bool goesOn = offset > 0 && fetched->has(offset - 1, 1);
    lane->ahead = goesOn ? std::min(lane->ahead * 4, kMostAhead) : kFirstAhead;
    const uint64_t length = std::min(entry.size - offset, std::max<uint64_t>(buffer.size(), lane->ahead));
    lane->missing.push_back({name, offset, length});
    return makeError(ErrorCode::cancelled, "the bytes are on their way");
}

// Rank 0 wants bytes of another's file: everyone hears them.
Status GroupFiles::ask(const std::string& name, uint64_t offset, std::span<std::byte> buffer) {
    std::lock_guard lock(asking_);
    std::string request = packed({toBinaryJson(name), offset, static_cast<uint64_t>(buffer.size())});
    SHARDSCOPE_TRY(broadcastText(ranks_, kOpening, request, 0));
    Entry& entry = entries_.find(name)->second;
    std::string answer;
    SHARDSCOPE_TRY(broadcastText(ranks_, kOpening, answer, entry.owner));
    if (answer.size() != buffer.size())
        return makeError(ErrorCode::remote,
                         fmt::format("{} cannot read it: {}", ranks_.name(entry.owner), answer))
            .inFile(root_ + "/" + name)
            .at(offset);
    std::memcpy(buffer.data(), answer.data(), buffer.size());
    std::lock_guard known(mutex_);
    entry.known.add(offset, buffer);
    return {};
}

Status GroupFiles::serveLeader() {
    for (;;) {
        std::string request;
        SHARDSCOPE_TRY(broadcastText(ranks_, kOpening, request, 0));
        if (request.empty()) return {};
        SHARDSCOPE_ASSIGN(const Json target, unpacked(request));
        const auto& bytes = target.at(0).get_binary();
        const auto offset = target.at(1).get<uint64_t>(), length = target.at(2).get<uint64_t>();
        const auto it = entries_.find(std::string(bytes.begin(), bytes.end()));
        if (it == entries_.end() || length > kAskedAtOnce)
            return makeError(ErrorCode::remote, "rank 0 requested a nonexistent range");
        Entry& entry = it->second;
        std::string answer;
        if (entry.owner == ranks_.rank()) {
            answer.resize(length);
            const auto file = ownFile(it->first);
            Status status;
            if (file.ok())
                status = (*file)->readAt(offset, bytesOf(answer));
            else
                status = file.error();
            // The reason, of another length than what was asked for.
            if (!status.ok()) {
                answer = describe(status.error());
                if (answer.size() == length) answer += '.';
            }
        }
        SHARDSCOPE_TRY(broadcastText(ranks_, kOpening, answer, entry.owner));
        if (!entry.mine && answer.size() == length) {
            std::lock_guard lock(mutex_);
            entry.known.add(offset, bytesOf(answer));
        }
    }
}

// What rank 0 has read of its own files, for those that lack them.
Status GroupFiles::shareKnown() {
    Json list = Json::array();
    uint64_t total = 0;
    if (ranks_.rank() == 0) {
        for (const auto& [name, entry] : entries_) {
            if (!entry.mine || entry.known.parts().empty()) continue;
            for (const auto& [offset, bytes] : entry.known.parts())
                list.push_back({toBinaryJson(name), offset, bytes.size()});
            total += entry.known.bytes();
        }
    }
    std::string text = packed(list);
    SHARDSCOPE_TRY(broadcastText(ranks_, kOpening, text, 0));
    SHARDSCOPE_ASSIGN(list, unpacked(text));
    total = 0;
    for (const Json& part : list) {
        const auto& bytes = part.at(0).get_binary();
        const auto it = entries_.find(std::string(bytes.begin(), bytes.end()));
        const auto offset = part.at(1).get<uint64_t>(), length = part.at(2).get<uint64_t>();
        total += length;
        if (it == entries_.end() || total > kMostKept)
            return makeError(ErrorCode::limit, "the metadata of the source is too large to be shared");
        std::string content(length, '\0');
        if (ranks_.rank() == 0) it->second.known.read(offset, bytesOf(content));
        SHARDSCOPE_TRY(ranks_.broadcast(kOpening, bytesOf(content), 0));
        if (!it->second.mine) it->second.known.add(offset, bytesOf(content));
    }
    if (ranks_.rank() == 0) {
        for (auto& [name, entry] : entries_) {
            if (entry.mine) entry.known.clear();
        }
    }
    return {};
}

Status GroupFiles::openTogether(const std::function<Status()>& open) {
    Status status;
    if (ranks_.rank() == 0) {
        opening_ = true;
        status = open();
        opening_ = false;
        std::string end;
        SHARDSCOPE_TRY(broadcastText(ranks_, kOpening, end, 0));
    } else {
        SHARDSCOPE_TRY(taken([&] { return serveLeader(); }));
    }
    SHARDSCOPE_TRY(agree(ranks_, kOpening, status));
    SHARDSCOPE_TRY(taken([&] { return shareKnown(); }));
    if (ranks_.rank() != 0) status = open();
    return agree(ranks_, kOpening, status);
}

// ------------------------------------------------------------------ working

Status GroupFiles::read(size_t lane, Way way, const std::function<Status()>& work) {
    Lane& state = lanes_[lane];
    state.way = way;
    state.ahead = kFirstAhead;
    Status status;
    const auto run = [&](bool surveys) {
        state.missing.clear();
        state.surveys = surveys;
        currentFiles = this;
        currentLane = lane;
        status = work();
        currentFiles = nullptr;
        state.surveys = false;
    };
    bool wants = static_cast<bool>(work);
    if (allHere_) {
        if (wants) run(false);
        return status;
    }
    for (;;) {
        if (wants) {
            run(way == Way::survey);
            wants = way == Way::survey ? status.ok() : !state.missing.empty();
        }
        bool more = false;
        Status fetched = taken([&] { return fetch(lane, more); });
        if (!fetched.ok()) {
            if (ranks_.broken()) return fetched;
            // The step continues for the others; this rank is through.
            if (wants || status.ok()) status = std::move(fetched);
            wants = false;
        }
        if (way == Way::survey) {
            if (wants) run(false);
            return status;
        }
        if (!more) return status;
    }
}

void GroupFiles::forget(size_t lane) {
    Lane& state = lanes_[lane];
    state.fetched.clear();
    std::ranges::move(state.arrived, std::back_inserter(state.spare));
    state.arrived.clear();
    // One tile is much like the next.
    if (state.spare.size() > 1) {
        std::ranges::sort(state.spare, std::ranges::greater(), &AlignedBuffer::capacity);
        state.spare.resize(1);
    }
}

// Own bytes for another rank, one after the other, and at the end whether all could be read.
Status GroupFiles::answer(Lane& lane, const std::vector<Wanted>& asked, std::span<std::byte> bytes) {
    Status first;
    uint64_t at = 0;
    for (const Wanted& each : asked) {
        std::shared_ptr<const ReadFile>& file = lane.open[each.name];
        Status status;
        if (!file) {
            auto opened = ownFile(each.name);
            if (opened.ok())
                file = std::move(opened).value();
            else
                status = std::move(opened).error();
        }
        if (file) status = file->readBulk(each.offset, bytes.subspan(at, each.length));
        lane.served += each.length;
        at += each.length;
        if (!status.ok() && first.ok()) first = std::move(status);
    }
    bytes[at] = std::byte{first.ok()};
    return first;
}

// One exchange: who lacks what, and the bytes. `more` says whether anyone lacked anything.
Status GroupFiles::fetch(size_t lane, bool& more) {
    Lane& state = lanes_[lane];
    const auto ranks = static_cast<size_t>(ranks_.size());
    const auto me = static_cast<size_t>(ranks_.rank());
    Status mine;

    std::vector<std::vector<Wanted>> target(ranks);
    uint64_t total = 0;
    for (Wanted& each : state.missing) {
        total += each.length;
        const int owner = entries_.find(each.name)->second.owner;
        target[static_cast<size_t>(owner)].push_back(std::move(each));
    }
    state.missing.clear();
    if (total > kMostFetched) {
        mine = makeError(ErrorCode::limit,
                         fmt::format("a tensor is stored so that {} bytes of other ranks are needed at once",
                                     total))
                   .withHint("use --mode broadcast, or direct where all ranks see the source");
        target.assign(ranks, {});
    }
    std::vector<std::string> texts(ranks);
    std::vector<uint64_t> sizes;
    for (size_t r = 0; r < ranks; ++r) {
        if (!target[r].empty()) {
            Json list = Json::array();
            for (const Wanted& each : target[r])
                list.push_back({toBinaryJson(each.name), each.offset, each.length});
            texts[r] = packed(list);
        }
        sizes.push_back(texts[r].size());
    }
    // Everyone knows who asks whom, so that all continue or end together.
    std::vector<uint64_t> repeated, matrix(ranks * ranks);
    for (size_t r = 0; r < ranks; ++r)
        repeated.insert(repeated.end(), sizes.begin(), sizes.end());
    const std::vector<uint64_t> row(ranks, ranks * sizeof(uint64_t));
    SHARDSCOPE_TRY(ranks_.allToAll(lane, std::as_bytes(std::span(repeated)), row,
                                   std::as_writable_bytes(std::span(matrix)), row));
    more = std::any_of(matrix.begin(), matrix.end(), [](uint64_t n) { return n > 0; });
    if (!more) return mine;

    std::string questions, asked;
    std::vector<uint64_t> askedSizes;
    uint64_t askedTotal = 0;
    for (size_t r = 0; r < ranks; ++r) {
        questions += texts[r];
        askedSizes.push_back(matrix[r * ranks + me]);
        askedTotal += askedSizes.back();
    }
    asked.resize(askedTotal);
    SHARDSCOPE_TRY(ranks_.allToAll(lane, bytesOf(questions), sizes, bytesOf(asked), askedSizes));

    // The answer to each is what it asked for, and a byte that says whether it could be read.
    std::vector<uint64_t> answerSizes(ranks, 0), comingSizes(ranks, 0);
    std::vector<std::vector<Wanted>> asks(ranks);
    uint64_t at = 0, answerTotal = 0;
    for (size_t r = 0; r < ranks; ++r) {
        if (askedSizes[r] == 0) continue;
        SHARDSCOPE_ASSIGN(const Json list, unpacked(asked.substr(at, askedSizes[r])));
        for (const Json& each : list) {
            const auto& bytes = each.at(0).get_binary();
            asks[r].push_back({std::string(bytes.begin(), bytes.end()), each.at(1).get<uint64_t>(),
                               each.at(2).get<uint64_t>()});
        }
        at += askedSizes[r];
        const uint64_t begin = answerTotal;
        for (const Wanted& each : asks[r]) {
            // The asker's own limit; it sends no more than that.
            if (each.length > kMostFetched || answerTotal > kMostFetched * ranks)
                return makeError(ErrorCode::remote, "a rank asks for too much");
            answerTotal += each.length;
        }
        answerSizes[r] = ++answerTotal - begin;
    }
    state.answers.reset(answerTotal);
    at = 0;
    for (size_t r = 0; r < ranks; ++r) {
        if (askedSizes[r] == 0) continue;
        Status status = answer(state, asks[r], state.answers.span(at, answerSizes[r]));
        if (mine.ok()) mine = std::move(status);
        at += answerSizes[r];
    }
    uint64_t comingTotal = 0;
    for (size_t r = 0; r < ranks; ++r) {
        if (target[r].empty()) continue;
        comingSizes[r] = 1;
        for (const Wanted& each : target[r])
            comingSizes[r] += each.length;
        comingTotal += comingSizes[r];
    }
    if (state.spare.empty()) state.spare.emplace_back();
    state.arrived.push_back(std::move(state.spare.back()));
    state.spare.pop_back();
    AlignedBuffer& coming = state.arrived.back();
    coming.reset(comingTotal);
    SHARDSCOPE_TRY(ranks_.allToAll(lane, state.answers.span(), answerSizes, coming.span(), comingSizes));
    at = 0;
    for (size_t r = 0; r < ranks; ++r) {
        if (target[r].empty()) continue;
        if (coming.data()[at + comingSizes[r] - 1] != std::byte{1} && mine.ok())
            mine = makeError(ErrorCode::remote,
                             fmt::format("{} cannot read it", ranks_.name(static_cast<int>(r))))
                       .inFile(root_ + "/" + target[r].front().name);
        uint64_t place = at;
        for (const Wanted& each : target[r]) {
            state.fetched[each.name].refer(each.offset, coming.span(place, each.length));
            place += each.length;
        }
        at += comingSizes[r];
    }
    return mine;
}

int GroupFiles::ownerOf(const std::string& name) const {
    const auto it = entries_.find(name);
    return it == entries_.end() ? 0 : it->second.owner;
}

uint64_t GroupFiles::takeServed(size_t lane) {
    return std::exchange(lanes_[lane].served, 0);
}

Status GroupFiles::checkAlike(const std::string& name, const Entry& entry) const {
    if (entry.differs < 0) return {};
    return makeError(ErrorCode::changed,
                     fmt::format("has {} bytes for {} and {} bytes for {}", entry.size,
                                 ranks_.name(entry.owner), entry.otherSize, ranks_.name(entry.differs)))
        .inFile(root_ + "/" + name)
        .withHint("the ranks must have parts of one checkpoint");
}

Status GroupFiles::checkUnchanged(const std::set<std::string>& names) const {
    for (const auto& [name, entry] : entries_) {
        if (!entry.mine || entry.modified == 0 || !names.contains(name)) continue;
        SHARDSCOPE_ASSIGN(const auto file, directory_->openFile(name));
        SHARDSCOPE_ASSIGN(const Fingerprint print, file->fingerprint());
        if (print.modifiedNs != entry.modified || print.size != entry.size)
            return makeError(ErrorCode::changed, "the file changed while it was read")
                .inFile(root_ + "/" + name);
    }
    return {};
}

// ------------------------------------------------------------------ as a file system

// Of the name in the group's table; "/" for what is not below the source's directory.
std::string GroupFiles::relative(const std::string& path) const {
    if (path == root_) return "";
    if (root_ == ".") return path.starts_with('/') ? "/" : path;
    const std::string before = root_ == "/" ? "/" : root_ + "/";
    return path.starts_with(before) ? path.substr(before.size()) : "/";
}

Result<std::shared_ptr<Directory>> GroupFiles::openDirectory(const std::string& path) {
    const std::string name = relative(path);
    if (name == "/") return makeError(ErrorCode::notFound, "is not part of the source").inFile(path);
    return std::shared_ptr<Directory>(
        std::make_shared<GroupDirectory>(shared_from_this(), name.empty() ? "" : name + "/", path));
}

Result<DirectoryEntry> GroupFiles::stat(const std::string& path) {
    std::string trimmed = path;
    while (trimmed.size() > 1 && trimmed.ends_with('/'))
        trimmed.pop_back();
    const std::string name = relative(trimmed);
    if (name.empty()) return DirectoryEntry{splitPath(trimmed).second, DirectoryEntry::Kind::directory, 0};
    if (name == "/") return makeError(ErrorCode::notFound, "is not part of the source").inFile(path);
    return GroupDirectory(shared_from_this(), "", root_).stat(name);
}

Error GroupFiles::refused(const std::string& path) const {
    return onlyRead(path);
}

}  // namespace shardscope
