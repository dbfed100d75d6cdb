// Objects as files: what looks like directories is made of their keys.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <list>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <xxhash.h>

#include "base/mutex.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "base/units.h"
#include "places/joined_reads.h"
#include "places/places.h"
#include "storage/object_place.h"
#include "storage/read_only.h"
#include "storage/url.h"

namespace shardscope {
namespace {

constexpr size_t kMostPages = 20;                       // of a listing of a whole tree
constexpr size_t kMostLevelPages = 1000;                // of one level
constexpr uint64_t kSmallRead = uint64_t{256} << 10;    // a larger one is not read ahead of
constexpr uint64_t kFirstWindow = uint64_t{128} << 10;  // of what is read ahead of a small read
constexpr uint64_t kBefore = uint64_t{16} << 10;        // of a small read that follows no other
constexpr uint64_t kMostWindow = uint64_t{4} << 20;     // of one that follows others
constexpr uint64_t kTail = uint64_t{64} << 10;          // of a file, read at once: directories of archives
constexpr uint64_t kMostWindows = uint64_t{48} << 20;   // bytes of all

Status takePage(ObjectPlace& place, const std::string& prefix, bool recursive,
                std::vector<ObjectState>& objects, std::vector<std::string>* prefixes, std::string& next) {
    const auto impossible = [&](std::string_view why) {
        return makeError(ErrorCode::remote, fmt::format("the server sends a listing that cannot be: {}", why))
            .inFile(place.root() + "/" + prefix);
    };
    SHARDSCOPE_ASSIGN(ObjectPage page, place.list(prefix, recursive, next));
    if (!page.next.empty() && page.next == next) return impossible("a page names itself as the next one");
    for (ObjectState& object : page.objects) {
        if (!object.key.starts_with(prefix)) return impossible("a key is not below what was asked for");
        if (!objects.empty() && object.key <= objects.back().key) return impossible("keys are out of order");
        objects.push_back(std::move(object));
    }
    for (std::string& p : page.prefixes) {
        if (!p.starts_with(prefix)) return impossible("a prefix is not below what was asked for");
        if (prefixes) prefixes->push_back(std::move(p));
    }
    next = std::move(page.next);
    return {};
}

// Joins "a/b" and "c"; "" is the place itself.
std::string below(std::string_view directory, std::string_view name) {
    if (name.empty()) return std::string(directory);
    return directory.empty() ? std::string(name) : fmt::format("{}/{}", directory, name);
}

std::pair<std::string, std::string> splitKey(std::string_view key) {
    const size_t slash = key.rfind('/');
    if (slash == std::string_view::npos) return {"", std::string(key)};
    return {std::string(key.substr(0, slash)), std::string(key.substr(slash + 1))};
}

Error onlyRead(const std::string& path) {
    return makeError(ErrorCode::impossible, "files of a bucket, of the hub or of a web server are only read")
        .inFile(path)
        .withHint("write to a directory, and upload that");
}

// What was read ahead of small reads, of all files of a file system: the last ones.
class Windows {
  public:
    // Copies from `offset` what is here; says how many bytes, and where the window that had them ended.
    size_t copy(uint64_t file, uint64_t offset, std::span<std::byte> to) {
        MutexLock lock(mutex_);
        auto it = at_.upper_bound({file, offset});
        if (it == at_.begin()) return 0;
        --it;
        const uint64_t end = it->first.second + it->second->bytes.size();
        if (it->first.first != file || end <= offset) return 0;
        const size_t have = std::min<uint64_t>(to.size(), end - offset);
        std::memcpy(to.data(), it->second->bytes.data() + (offset - it->first.second), have);
        order_.splice(order_.begin(), order_, it->second);
        return have;
    }
    void put(uint64_t file, uint64_t offset, std::vector<std::byte> bytes) {
        MutexLock lock(mutex_);
        drop(at_.find({file, offset}));
        bytes_ += bytes.size();
        order_.push_front({{file, offset}, std::move(bytes)});
        at_[{file, offset}] = order_.begin();
        while (bytes_ > kMostWindows && order_.size() > 1)
            drop(at_.find(order_.back().key));
    }

  private:
    using Key = std::pair<uint64_t, uint64_t>;  // file, offset
    struct Window {
        Key key;
        std::vector<std::byte> bytes;
    };
    using Index = std::map<Key, std::list<Window>::iterator>;
    Index::iterator drop(Index::iterator it) SHARDSCOPE_REQUIRES(mutex_) {
        if (it == at_.end()) return it;
        bytes_ -= it->second->bytes.size();
        order_.erase(it->second);
        return at_.erase(it);
    }

    Mutex mutex_;
    std::list<Window> order_ SHARDSCOPE_GUARDED_BY(mutex_);
    Index at_ SHARDSCOPE_GUARDED_BY(mutex_);
    uint64_t bytes_ SHARDSCOPE_GUARDED_BY(mutex_) = 0;
};

Fingerprint fingerprintOf(const ObjectPlace& place, const ObjectState& state) {
    const auto hash = [](std::string_view text) { return XXH3_64bits(text.data(), text.size()); };
    const uint64_t version = hash(state.version);
    return {hash(place.root()), hash(state.key) ^ version, state.size, state.modifiedNs,
            static_cast<int64_t>(version)};
}

class ObjectFile final : public ReadFile, public PlannedReads {
  public:
    ObjectFile(std::shared_ptr<ObjectPlace> place, std::shared_ptr<Windows> windows,
               std::shared_ptr<JoinedReads> joined, ObjectState state)
        : place_(std::move(place)),
          windows_(std::move(windows)),
          joined_(std::move(joined)),
          state_(std::move(state)),
          path_(place_->root() + "/" + state_.key),
          number_(numberOf(state_)) {}

    const std::string& path() const override { return path_; }
    uint64_t size() const override { return state_.size; }

    Status readAt(uint64_t offset, std::span<std::byte> buffer) const override {
        SHARDSCOPE_TRY(checkInside(offset, buffer.size()));
        if (buffer.size() >= kSmallRead) return place_->read(state_, offset, buffer);
        const size_t have = windows_->copy(number_, offset, buffer);
        offset += have;
        buffer = buffer.subspan(have);
        if (buffer.empty()) return {};
        if (joined_->holds(number_, offset, buffer.size())) return readJoined(offset, buffer, true);
        const auto [at, size] = windowFor(offset, buffer.size(), have > 0);
        std::vector<std::byte> window(size);
        SHARDSCOPE_TRY(place_->read(state_, at, window));
        std::memcpy(buffer.data(), window.data() + (offset - at), buffer.size());
        windows_->put(number_, at, std::move(window));
        return {};
    }

    Status readBulk(uint64_t offset, std::span<std::byte> buffer) const override {
        SHARDSCOPE_TRY(checkInside(offset, buffer.size()));
        if (joined_->plans(number_)) return readJoined(offset, buffer, false);
        const size_t have = windows_->copy(number_, offset, buffer);
        if (have == buffer.size()) return {};
        return place_->read(state_, offset + have, buffer.subspan(have));
    }

    std::shared_ptr<void> plan(std::vector<PlannedRange> ranges, uint64_t memory) const override {
        return joined_->plan(number_, std::move(ranges), memory);
    }

    Result<Fingerprint> fingerprint() const override {
        SHARDSCOPE_ASSIGN(ObjectState now, place_->head(state_.key));
        // A listing and an object's own answer tell the time in different precision; a store that tells a
        // version needs none.
        if (!state_.version.empty()) now.modifiedNs = state_.modifiedNs;
        return fingerprintOf(*place_, now);
    }

  private:
    // Equal for the same bytes, so that a file that is opened again finds what was read before.
    static uint64_t numberOf(const ObjectState& state) {
        static std::atomic<uint64_t> unknown{0};
        const std::string name =
            state.key + "\n" + (state.version.empty() ? std::to_string(++unknown) : state.version);
        return XXH3_64bits(name.data(), name.size());
    }
    Status readJoined(uint64_t offset, std::span<std::byte> buffer, bool small) const {
        return joined_->read(number_, offset, buffer, small, [&](std::span<const ObjectPlace::Range> ranges) {
            return place_->readRanges(state_, ranges);
        });
    }
    Status checkInside(uint64_t offset, uint64_t size) const {
        if (offset <= state_.size && size <= state_.size - offset) return {};
        return makeError(ErrorCode::changed,
                         fmt::format("the file has {}; more are wanted", counted(state_.size, "byte")))
            .inFile(path_)
            .at(offset);
    }

    // More is read ahead the longer small reads follow each other.
    std::pair<uint64_t, uint64_t> windowFor(uint64_t offset, uint64_t size, bool continues) const {
        MutexLock lock(mutex_);
        const bool follows = continues || offset == lastEnd_;
        ahead_ = follows ? std::min(ahead_ * 2, kMostWindow) : kFirstWindow;
        const uint64_t tail = state_.size - std::min(state_.size, kTail);
        // Directories of archives are read from their ends.
        const uint64_t before = follows ? 0 : std::min(offset, kBefore);
        const uint64_t at = std::min(tail, offset - before);
        const uint64_t end = std::min(std::max(offset + size, at + ahead_), state_.size);
        lastEnd_ = end;
        return {at, end - at};
    }

    const std::shared_ptr<ObjectPlace> place_;
    const std::shared_ptr<Windows> windows_;
    const std::shared_ptr<JoinedReads> joined_;
    const ObjectState state_;
    const std::string path_;
    const uint64_t number_;
    mutable Mutex mutex_;
    mutable uint64_t ahead_ SHARDSCOPE_GUARDED_BY(mutex_) = kFirstWindow;
    mutable uint64_t lastEnd_ SHARDSCOPE_GUARDED_BY(mutex_) = ~uint64_t{0};
};

// What is directly below a prefix, by name.
struct Level {
    struct Node {
        bool directory = false, file = false;  // a key may be both
        ObjectState state;
    };
    std::map<std::string, Node, std::less<>> nodes;

    const Node* find(std::string_view name) const {
        const auto it = nodes.find(name);
        return it == nodes.end() ? nullptr : &it->second;
    }
};

// What is known of a place's keys: listings, kept.
class Listings {
  public:
    explicit Listings(std::shared_ptr<ObjectPlace> place) : place_(std::move(place)) {}

    // Null: nothing is below this prefix.
    Result<std::shared_ptr<const Level>> level(const std::string& directory) {
        MutexLock one(asking_);
        if (const auto known = find(directory)) return *known;
        SHARDSCOPE_TRY(ask(directory));
        return *find(directory);
    }
    // An object, from a listing that is there or by itself.
    Result<ObjectState> object(const std::string& key) {
        const auto [directory, name] = splitKey(key);
        if (const auto known = find(directory)) {
            const Level::Node* node = *known ? (*known)->find(name) : nullptr;
            if (node && node->file) return node->state;
            if (place_->lists())
                return makeError(ErrorCode::notFound, "there is no such object")
                    .inFile(place_->root() + "/" + key);
        }
        {
            MutexLock lock(mutex_);
            if (const auto it = single_.find(key); it != single_.end()) return it->second;
        }
        SHARDSCOPE_ASSIGN(ObjectState state, place_->head(key));
        MutexLock lock(mutex_);
        single_[key] = state;
        return state;
    }
    // Whether a listing says that `key` is a directory; nothing where none was made.
    std::optional<Level::Node> known(const std::string& key) const {
        const auto [directory, name] = splitKey(key);
        const auto level = find(directory);
        if (!level || !*level) return std::nullopt;
        const Level::Node* node = (*level)->find(name);
        return node ? *node : Level::Node{};
    }
    // Of a place without listings: what was asked for so far.
    std::vector<ObjectState> asked(const std::string& directory) const {
        MutexLock lock(mutex_);
        std::vector<ObjectState> found;
        for (const auto& [key, state] : single_)
            if (splitKey(key).first == directory) found.push_back(state);
        return found;
    }

  private:
    using Tree = std::map<std::string, std::shared_ptr<Level>, std::less<>>;

    std::optional<std::shared_ptr<const Level>> find(const std::string& directory) const {
        MutexLock lock(mutex_);
        const auto it = levels_.find(directory);
        if (it != levels_.end()) return std::shared_ptr<const Level>(it->second);
        // Below a whole tree, what it does not have is not there.
        for (const std::string& whole : whole_) {
            if (whole.empty() || directory.starts_with(whole + "/")) return std::shared_ptr<const Level>();
        }
        return std::nullopt;
    }

    // The whole tree below a directory if it is short enough, else this level alone.
    Status ask(const std::string& directory) {
        const std::string prefix = directory.empty() ? "" : directory + "/";
        std::vector<ObjectState> objects;
        std::string next;
        size_t direct = 0, taken = 0;
        for (size_t page = 0; page < kMostPages; ++page) {
            SHARDSCOPE_TRY(takePage(*place_, prefix, true, objects, nullptr, next));
            for (; taken < objects.size(); ++taken)
                direct += objects[taken].key.find('/', prefix.size()) == std::string::npos;
            // Directories of their own, such as the steps of a run, are listed when they are looked at.
            if (next.empty() || (page == 0 && direct * 2 < objects.size())) break;
        }
        if (next.empty()) {
            SHARDSCOPE_TRY(checkNames(prefix, objects));
            add(directory, objects, {}, true);
            return {};
        }
        objects.clear();
        next.clear();
        std::vector<std::string> prefixes;
        for (size_t page = 0; page < kMostLevelPages; ++page) {
            SHARDSCOPE_TRY(takePage(*place_, prefix, false, objects, &prefixes, next));
            if (next.empty()) break;
        }
        if (!next.empty())
            return makeError(ErrorCode::limit, "the directory holds more objects than are listed")
                .inFile(place_->root() + "/" + directory);
        add(directory, objects, prefixes, false);
        return {};
    }

    // Programs that join "run/" and "/step" make names with an empty component.
    Status checkNames(const std::string& prefix, const std::vector<ObjectState>& objects) const {
        const auto isUnfit = [&](const ObjectState& object) {
            std::string_view name = std::string_view(object.key).substr(prefix.size());
            while (name.ends_with('/'))
                name.remove_suffix(1);
            return !name.empty() && !checkRelativeName(name).ok();
        };
        if (objects.empty() || !std::all_of(objects.begin(), objects.end(), isUnfit)) return {};
        return makeError(ErrorCode::notFound,
                         fmt::format("what is there has names that no file can have, such as '{}'",
                                     printable(objects.front().key, kNameInMessage)))
            .inFile(place_->root() + "/" + prefix)
            .withHint("name the directory with all its slashes, such as s3://bucket/run//step-1");
    }

    // `whole`: the objects are all that there are below the directory, at any depth.
    void add(const std::string& directory, const std::vector<ObjectState>& objects,
             const std::vector<std::string>& prefixes, bool whole) {
        Tree tree;
        const size_t skip = directory.empty() ? 0 : directory.size() + 1;
        const auto level = [&](const std::string& at) -> Level& {
            auto& made = tree[at];
            if (!made) made = std::make_shared<Level>();
            return *made;
        };
        // Names come from others; what could not be a file's is left out.
        const auto addDirectories = [&](std::string_view name) {
            for (size_t slash = name.find('/'); slash != std::string_view::npos;
                 slash = name.find('/', slash + 1)) {
                const auto [parent, own] = splitKey(name.substr(0, slash));
                level(below(directory, parent)).nodes[own].directory = true;
            }
        };
        for (const ObjectState& object : objects) {
            std::string_view name = std::string_view(object.key).substr(skip);
            const bool marker = name.ends_with('/') || name.empty();  // a directory that a console made
            while (name.ends_with('/'))
                name.remove_suffix(1);
            if (name.empty()) {
                level(directory);
                continue;
            }
            if (!checkRelativeName(name).ok()) continue;
            addDirectories(marker ? std::string(name) + "/" : name);
            if (marker) continue;
            const auto [parent, own] = splitKey(name);
            Level::Node& node = level(below(directory, parent)).nodes[own];
            node.file = true;
            node.state = object;
        }
        for (const std::string& prefix : prefixes) {
            const std::string_view name = std::string_view(prefix).substr(skip);
            if (name.size() > 1 && checkRelativeName(name.substr(0, name.size() - 1)).ok())
                level(directory).nodes[std::string(name.substr(0, name.size() - 1))].directory = true;
        }
        MutexLock lock(mutex_);
        for (auto& [at, made] : tree) {
            if (whole || at == directory) levels_[at] = std::move(made);
        }
        if (whole) whole_.push_back(directory);
        if (!levels_.contains(directory)) levels_[directory] = nullptr;
    }

    const std::shared_ptr<ObjectPlace> place_;
    Mutex asking_;  // one asks, the others wait for what comes of it
    mutable Mutex mutex_;
    Tree levels_ SHARDSCOPE_GUARDED_BY(mutex_);
    std::vector<std::string> whole_ SHARDSCOPE_GUARDED_BY(mutex_);
    std::map<std::string, ObjectState> single_ SHARDSCOPE_GUARDED_BY(mutex_);
};

DirectoryEntry entryOf(std::string_view name, const Level::Node& node) {
    DirectoryEntry entry{std::string(name)};
    if (node.directory && !node.file) {
        entry.kind = DirectoryEntry::Kind::directory;
        return entry;
    }
    entry.size = node.state.size;
    entry.modifiedNs = node.state.modifiedNs;
    return entry;
}

// What is shared by a file system and all that it opened.
struct Shared {
    std::shared_ptr<ObjectPlace> place;
    std::shared_ptr<Windows> windows;
    std::shared_ptr<JoinedReads> joined = std::make_shared<JoinedReads>();
    Listings listings;
    const MostlyWaiting waiting;
    explicit Shared(const std::shared_ptr<ObjectPlace>& p)
        : place(p), windows(std::make_shared<Windows>()), listings(p) {}

    Error missing(const std::string& key) const {
        return makeError(ErrorCode::notFound, "there is nothing of this name")
            .inFile(place->root() + "/" + key);
    }
};

class ObjectDirectory final : public ReadOnlyDirectory {
  public:
    ObjectDirectory(std::shared_ptr<Shared> shared, std::string key)
        : shared_(std::move(shared)), key_(std::move(key)), path_(below(shared_->place->root(), key_)) {}

    const std::string& path() const override { return path_; }

    Result<std::vector<DirectoryEntry>> list(std::string_view subdirectory) const override {
        if (!subdirectory.empty()) SHARDSCOPE_TRY(checkRelativeName(subdirectory));
        const std::string key = below(key_, subdirectory);
        std::vector<DirectoryEntry> entries;
        if (!shared_->place->lists()) {
            for (const ObjectState& state : shared_->listings.asked(key))
                entries.push_back(entryOf(splitKey(state.key).second, {false, true, state}));
            return entries;
        }
        SHARDSCOPE_ASSIGN(const auto level, shared_->listings.level(key));
        if (!level) return shared_->missing(key);
        for (const auto& [name, node] : level->nodes)
            entries.push_back(entryOf(name, node));
        return entries;
    }

    Result<std::shared_ptr<const ReadFile>> openFile(std::string_view name) const override {
        SHARDSCOPE_TRY(checkRelativeName(name));
        SHARDSCOPE_ASSIGN(ObjectState state, shared_->listings.object(below(key_, name)));
        return std::shared_ptr<const ReadFile>(std::make_shared<ObjectFile>(
            shared_->place, shared_->windows, shared_->joined, std::move(state)));
    }

    Result<DirectoryEntry> stat(std::string_view name) const override {
        SHARDSCOPE_TRY(checkRelativeName(name));
        const std::string key = below(key_, name);
        const auto [parent, own] = splitKey(key);
        if (shared_->place->lists()) {
            SHARDSCOPE_ASSIGN(const auto level, shared_->listings.level(parent));
            const Level::Node* node = level ? level->find(own) : nullptr;
            return node ? Result<DirectoryEntry>(entryOf(own, *node)) : shared_->missing(key);
        }
        SHARDSCOPE_ASSIGN(const ObjectState state, shared_->listings.object(key));
        return entryOf(own, {false, true, state});
    }

    Result<std::vector<DirectoryEntry>> unfinishedUploads() const override {
        const std::string prefix = key_.empty() ? "" : key_ + "/";
        SHARDSCOPE_ASSIGN(const auto uploads, shared_->place->unfinished(prefix));
        std::vector<DirectoryEntry> entries;
        for (const ObjectState& upload : uploads) {
            if (upload.key.starts_with(prefix))
                entries.push_back(entryOf(upload.key.substr(prefix.size()), {false, true, upload}));
        }
        return entries;
    }

  private:
    Error refused(const std::string& path) const override { return onlyRead(path); }

    const std::shared_ptr<Shared> shared_;
    const std::string key_, path_;
};

class ObjectFileSystem final : public ReadOnlyFileSystem {
  public:
    explicit ObjectFileSystem(const std::shared_ptr<ObjectPlace>& place)
        : ReadOnlyFileSystem(systemFileSystem()), shared_(std::make_shared<Shared>(place)) {}

    Result<std::shared_ptr<Directory>> openDirectory(const std::string& path) override {
        SHARDSCOPE_ASSIGN(std::string key, keyOf(path));
        if (shared_->place->lists()) {
            SHARDSCOPE_ASSIGN(const auto level, shared_->listings.level(key));
            if (!level) return shared_->missing(key);
        }
        return std::shared_ptr<Directory>(std::make_shared<ObjectDirectory>(shared_, std::move(key)));
    }

    Result<DirectoryEntry> stat(const std::string& path) override {
        SHARDSCOPE_ASSIGN(const std::string key, keyOf(path));
        const std::string name = splitKey(key).second;
        Level::Node node;
        if (!shared_->place->lists()) {
            SHARDSCOPE_ASSIGN(node.state, shared_->listings.object(key));
            node.file = true;
        } else if (const auto known = shared_->listings.known(key)) {
            node = *known;
        } else {
            SHARDSCOPE_ASSIGN(node, find(key));
        }
        if (!node.file && !node.directory) return shared_->missing(key);
        return entryOf(name, node);
    }

  private:
    Error refused(const std::string& path) const override { return onlyRead(path); }

    // What looks like a file is asked for as one first, anything else as a directory: one request where the
    // guess is right.
    Result<Level::Node> find(const std::string& key) {
        const std::string name = splitKey(key).second;
        const bool file = !key.empty() && name.find('.', 1) != std::string::npos;
        for (const bool asFile : {file, !file}) {
            if (key.empty() && asFile) continue;
            if (!asFile) {
                SHARDSCOPE_ASSIGN(const auto level, shared_->listings.level(key));
                if (level || key.empty()) return Level::Node{.directory = true};
                continue;
            }
            auto state = shared_->listings.object(key);
            if (state.ok()) return Level::Node{.file = true, .state = *std::move(state)};
            // Without the right to list, a store refuses to say what is not there.
            const bool absent = state.error().code == ErrorCode::notFound ||
                                (file && state.error().code == ErrorCode::permission);
            if (!absent) return std::move(state).error();
        }
        return Level::Node{};
    }

    // A path of this place without it: "s3://bucket/run/x" to "run/x". ".." at its end, which is ours, goes
    // one up.
    Result<std::string> keyOf(const std::string& path) const {
        const std::string& root = shared_->place->root();
        std::string_view key = path;
        if (key.starts_with(root)) {
            key.remove_prefix(root.size());
            if (!key.empty() && key.front() != '/') key = path;
        }
        if (key.size() == path.size() && !path.empty())
            return makeError(ErrorCode::internal, "a path of another place").inFile(path);
        while (key.starts_with('/'))
            key.remove_prefix(1);
        while (key.ends_with('/'))
            key.remove_suffix(1);
        int up = 0;
        while (key == ".." || key.ends_with("/..")) {
            key.remove_suffix(std::min<size_t>(key.size(), 3));
            ++up;
        }
        std::string plain(key);
        while (up-- > 0)
            plain = splitKey(plain).first;
        return plain;
    }

    const std::shared_ptr<Shared> shared_;
};

}  // namespace

Result<std::vector<ObjectState>> listAll(ObjectPlace& place, const std::string& prefix) {
    std::vector<ObjectState> all;
    std::string next;
    do {
        SHARDSCOPE_TRY(takePage(place, prefix, true, all, nullptr, next));
    } while (!next.empty());
    return all;
}

std::shared_ptr<FileSystem> objectFileSystem(std::shared_ptr<ObjectPlace> place) {
    return std::make_shared<ObjectFileSystem>(place);
}

Result<Place> placeOf(const std::string& path) {
    const std::string_view scheme = schemeOf(path);
    std::string shown = path, query;
    if (scheme == "http" || scheme == "https") {
        if (const size_t mark = shown.find_first_of("?#"); mark != std::string::npos) {
            if (shown[mark] == '?') query = shown.substr(mark + 1, shown.find('#') - mark - 1);
            shown.resize(mark);
        }
    }
    if (const std::string hub = hubPathOf(shown); !hub.empty()) return placeOf(hub);
    const size_t length = placeLength(shown);
    while (shown.size() > length && shown.ends_with('/'))
        shown.pop_back();
    const std::string root = shown.substr(0, length), bucket = root.substr(scheme.size() + 3);
    if (bucket.empty())
        return makeError(ErrorCode::usage, fmt::format("'{}://' needs a name after it", scheme))
            .inFile(withoutSecrets(path));
    auto place = scheme == "s3"   ? s3Place(bucket)
                 : scheme == "gs" ? googlePlace(bucket)
                 : scheme == "hf" ? hubPlace(root)
                                  : webPlace(root, query);
    if (!place.ok()) return std::move(place).error();
    return Place{objectFileSystem(*std::move(place)), std::move(shown)};
}

}  // namespace shardscope
