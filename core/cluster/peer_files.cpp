#include "cluster/peer_files.h"

#include <mutex>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/option_words.h"
#include "base/thread_pool.h"
#include "base/units.h"
#include "storage/read_only.h"

namespace shardscope {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostDepth = 64;  // directories; Levanter has one for each part of a tensor's name

struct Found {
    std::string kind;  // "file", "directory"; empty = not there
    std::map<std::string, DirectoryEntry> files;
};

// What one of them has. `source` has no slash at its end.
Result<Found> lookFor(FileSystem& files, const std::string& source) {
    Found found;
    const auto entry = files.stat(source);
    if (!entry.ok() && entry.error().code == ErrorCode::notFound) return found;
    if (!entry.ok()) return entry.error();
    if (entry->kind != DirectoryEntry::Kind::directory) {
        found.kind = "file";
        found.files.emplace(splitPath(source).second, *entry);
        return found;
    }
    found.kind = "directory";
    SHARDSCOPE_ASSIGN(const auto directory, files.openDirectory(source));
    std::vector<std::pair<std::string, size_t>> todo{{"", 0}};
    while (!todo.empty()) {
        const auto [prefix, depth] = todo.back();
        todo.pop_back();
        SHARDSCOPE_ASSIGN(const std::vector<DirectoryEntry> entries,
                          directory->list(prefix.empty() ? "" : prefix.substr(0, prefix.size() - 1)));
        for (const DirectoryEntry& each : entries) {
            if (each.kind == DirectoryEntry::Kind::directory && depth >= kMostDepth)
                return makeError(ErrorCode::limit,
                                 fmt::format("the source has directories more than {} deep", kMostDepth))
                    .inFile(source);
            if (each.kind == DirectoryEntry::Kind::directory)
                todo.emplace_back(prefix + each.name + "/", depth + 1);
            else if (each.kind == DirectoryEntry::Kind::file)
                found.files.emplace(prefix + each.name, each);
            if (found.files.size() > PeerTable::kMostFiles)
                return makeError(ErrorCode::limit, fmt::format("the source has more than {}",
                                                               counted(PeerTable::kMostFiles, "file")))
                    .inFile(source);
        }
    }
    return found;
}

}  // namespace

std::string_view sourceModeName(SourceMode mode) {
    constexpr std::string_view names[] = {"auto", "direct", "broadcast", "exchange"};
    return names[static_cast<size_t>(mode)];
}

Result<PeerTable> PeerTable::ask(const Peers& peers, const std::string& source, SourceMode mode,
                                 const StopToken& stop) {
    PeerTable table;
    std::string path = source;
    while (path.size() > 1 && path.ends_with('/'))
        path.pop_back();
    const auto asked = static_cast<size_t>(mode == SourceMode::broadcast ? 1 : peers.size());
    std::vector<Result<Found>> all(asked, Found());
    ThreadPool pool(static_cast<unsigned>(std::min<size_t>(asked, 16)));
    SHARDSCOPE_TRY(pool.parallelFor(asked, stop, [&](size_t i) -> Status {
        all[i] = lookFor(*peers.files(static_cast<int>(i)), path);
        return {};
    }));
    std::string kind;
    std::map<std::string, int> holders;
    for (size_t i = 0; i < asked; ++i) {
        if (!all[i].ok()) {
            Error error = std::move(all[i]).error();
            if (error.code == ErrorCode::remote)
                error.hint =
                    "it must run until the others know what it has of the source, and they must reach it by "
                    "TCP at any port; what it printed itself may say why it ended";
            return error;
        }
        if (all[i]->kind.empty()) continue;
        if (!kind.empty() && all[i]->kind != kind)
            return makeError(ErrorCode::changed, "is a file for one rank and a directory for another")
                .inFile(path);
        kind = all[i]->kind;
        for (const auto& [name, file] : all[i]->files) {
            const auto [it, first] = table.entries_.try_emplace(name);
            if (first) {
                it->second = {file.size, file.modifiedNs, static_cast<int>(i)};
            } else if (it->second.size != file.size) {
                // It matters only where the file is read: it may be a log that grows.
                it->second.differs = static_cast<int>(i);
                it->second.otherSize = file.size;
            }
            ++holders[name];
        }
    }
    if (kind.empty())
        return makeError(ErrorCode::notFound,
                         mode == SourceMode::broadcast ? "rank 0 does not have it" : "no rank has it")
            .inFile(path);
    table.root_ = kind == "directory" ? path : splitPath(path).first;
    bool whole = true, first = true;
    std::string lacking;
    for (const auto& [name, entry] : table.entries_) {
        first = first && entry.owner == 0;
        if (holders[name] == peers.size()) continue;
        whole = false;
        if (lacking.empty()) lacking = name;
    }
    table.mode_ = mode != SourceMode::automatic ? mode
                  : whole                       ? SourceMode::direct
                  : first                       ? SourceMode::broadcast
                                                : SourceMode::exchange;
    if (table.mode_ == SourceMode::direct && !whole)
        return makeError(ErrorCode::impossible, "not every rank sees the whole source")
            .inFile(table.root_ + "/" + lacking)
            .withHint(fmt::format("use {}, or broadcast where rank 0 has all of it",
                                  option("on", "ranks,exchange")));
    return table;
}

int PeerTable::ownerOf(const std::string& name) const {
    const auto it = entries_.find(name);
    return it == entries_.end() ? 0 : it->second.owner;
}

std::string PeerTable::packed() const {
    Json files = Json::array();
    for (const auto& [name, entry] : entries_)
        files.push_back({Json::binary({name.begin(), name.end()}), entry.size, entry.modified, entry.owner,
                         entry.differs, entry.otherSize});
    const std::vector<uint8_t> bytes = Json::to_msgpack({{"mode", static_cast<int>(mode_)},
                                                         {"root", Json::binary({root_.begin(), root_.end()})},
                                                         {"files", std::move(files)}});
    return {bytes.begin(), bytes.end()};
}

Result<PeerTable> PeerTable::from(std::string_view packed) {
    const auto wrong = [] { return damaged("malformed table of files"); };
    const Json json = Json::from_msgpack(packed.begin(), packed.end(), true, false);
    if (!json.is_object() || !json.contains("mode") || !json["mode"].is_number_unsigned() ||
        json["mode"].get<uint64_t>() > static_cast<uint64_t>(SourceMode::exchange) ||
        !json.contains("root") || !json["root"].is_binary() || !json.contains("files") ||
        !json["files"].is_array() || json["files"].size() > kMostFiles)
        return wrong();
    PeerTable table;
    table.mode_ = static_cast<SourceMode>(json["mode"].get<int>());
    table.root_.assign(json["root"].get_binary().begin(), json["root"].get_binary().end());
    for (const Json& each : json["files"]) {
        if (!each.is_array() || each.size() != 6 || !each[0].is_binary()) return wrong();
        for (size_t i = 1; i < each.size(); ++i)
            if (!each[i].is_number_integer()) return wrong();
        const std::string name(each[0].get_binary().begin(), each[0].get_binary().end());
        if (!checkRelativeName(name).ok()) return wrong();
        table.entries_[name] = {each[1].get<uint64_t>(), each[2].get<int64_t>(), each[3].get<int>(),
                                each[4].get<int>(), each[5].get<uint64_t>()};
    }
    return table;
}

// ------------------------------------------------------------------ as a file system

namespace {

Error onlyReadHere(const std::string& path) {
    return makeError(ErrorCode::impossible, "the source of a conversion is only read").inFile(path);
}

class PeerFile final : public ReadFile {
  public:
    static Result<std::shared_ptr<const ReadFile>> open(std::shared_ptr<const ReadFile> file,
                                                        const PeerTable::Entry& entry) {
        SHARDSCOPE_ASSIGN(const Fingerprint print, file->fingerprint());
        return std::shared_ptr<const ReadFile>(
            std::make_shared<PeerFile>(std::move(file), print, entry.modified));
    }
    PeerFile(std::shared_ptr<const ReadFile> file, Fingerprint print, int64_t modified)
        : file_(std::move(file)), print_(print), modified_(modified) {}

    const std::string& path() const override { return file_->path(); }
    uint64_t size() const override { return file_->size(); }
    Status readAt(uint64_t offset, std::span<std::byte> buffer) const override {
        return file_->readAt(offset, buffer);
    }
    Status readBulk(uint64_t offset, std::span<std::byte> buffer) const override {
        return file_->readBulk(offset, buffer);
    }
    size_t readCached(uint64_t offset, std::span<std::byte> buffer) const override {
        return file_->readCached(offset, buffer);
    }
    Result<Fingerprint> fingerprint() const override {
        SHARDSCOPE_ASSIGN(const Fingerprint now, file_->fingerprint());
        if (now != print_) return now;
        return Fingerprint{.size = now.size, .modifiedNs = modified_};
    }

  private:
    const std::shared_ptr<const ReadFile> file_;
    const Fingerprint print_;
    const int64_t modified_;
};

class PeerDirectory final : public ReadOnlyDirectory {
  public:
    PeerDirectory(std::shared_ptr<const Peers> peers, std::shared_ptr<const PeerTable> table,
                  std::string prefix, std::string path)
        : peers_(std::move(peers)),
          table_(std::move(table)),
          prefix_(std::move(prefix)),
          path_(std::move(path)) {}

    const std::string& path() const override { return path_; }

    Result<std::vector<DirectoryEntry>> list(std::string_view subdirectory) const override {
        if (!subdirectory.empty()) SHARDSCOPE_TRY(checkRelativeName(subdirectory));
        const std::string before = subdirectory.empty() ? prefix_ : prefix_ + std::string(subdirectory) + "/";
        std::vector<DirectoryEntry> found;
        const auto& entries = table_->entries();
        for (auto it = entries.lower_bound(before); it != entries.end() && it->first.starts_with(before);
             ++it) {
            const std::string_view rest = std::string_view(it->first).substr(before.size());
            const size_t slash = rest.find('/');
            if (slash == std::string_view::npos) {
                found.push_back(
                    {std::string(rest), DirectoryEntry::Kind::file, it->second.size, it->second.modified});
            } else if (const auto name = rest.substr(0, slash); found.empty() || found.back().name != name) {
                found.push_back({std::string(name), DirectoryEntry::Kind::directory, 0});
            }
        }
        if (found.empty() && !before.empty()) return missing(subdirectory);
        return found;
    }

    Result<std::shared_ptr<const ReadFile>> openFile(std::string_view name) const override {
        SHARDSCOPE_TRY(checkRelativeName(name));
        const auto it = table_->entries().find(prefix_ + std::string(name));
        if (it == table_->entries().end()) return missing(name);
        const PeerTable::Entry& entry = it->second;
        if (entry.differs >= 0)
            return makeError(ErrorCode::changed,
                             fmt::format("has {} on {} and {} on {}", counted(entry.size, "byte"),
                                         peers_->name(entry.owner), countText(entry.otherSize),
                                         peers_->name(entry.differs)))
                .inFile(shown(name))
                .withHint("all ranks must have the same checkpoint, or parts of it");
        // A local copy saves the transfer; where one process reads for all, only that one counts.
        if (table_->mode() != SourceMode::broadcast && entry.owner != peers_->self()) {
            if (auto own = openIn(-1, name, entry); own.ok()) return own;
        }
        return openIn(entry.owner, name, entry);
    }

    Result<DirectoryEntry> stat(std::string_view name) const override {
        SHARDSCOPE_TRY(checkRelativeName(name));
        const std::string key = prefix_ + std::string(name);
        const auto& entries = table_->entries();
        if (const auto it = entries.find(key); it != entries.end())
            return DirectoryEntry{std::string(name), DirectoryEntry::Kind::file, it->second.size,
                                  it->second.modified};
        const auto inside = entries.lower_bound(key + "/");
        if (inside != entries.end() && inside->first.starts_with(key + "/"))
            return DirectoryEntry{std::string(name), DirectoryEntry::Kind::directory, 0};
        return missing(name);
    }

  private:
    Error refused(const std::string& path) const override { return onlyReadHere(path); }
    std::string shown(std::string_view name) const {
        return name.empty() ? path_ : path_ + "/" + std::string(name);
    }
    Error missing(std::string_view name) const {
        return makeError(ErrorCode::notFound, "no rank has it").inFile(shown(name));
    }
    // The file as the table knows it. Errors: changed, where another one is there.
    Result<std::shared_ptr<const ReadFile>> openIn(int peer, std::string_view name,
                                                   const PeerTable::Entry& entry) const {
        SHARDSCOPE_ASSIGN(const auto directory, on(peer));
        SHARDSCOPE_ASSIGN(auto file, directory->openFile(name));
        if (file->size() != entry.size)
            return makeError(ErrorCode::changed,
                             fmt::format("has {} now, it had {} when the conversion began",
                                         counted(file->size(), "byte"), countText(entry.size)))
                .inFile(file->path());
        return PeerFile::open(std::move(file), entry);
    }

    // This directory there; -1 = on this process's own disk.
    Result<std::shared_ptr<Directory>> on(int peer) const {
        std::lock_guard lock(mutex_);
        auto& known = known_[peer];
        if (!known) {
            auto opened = (peer < 0 ? peers_->own() : peers_->files(peer))->openDirectory(path_);
            if (!opened.ok()) return opened;
            known = std::move(opened).value();
        }
        return known;
    }

    const std::shared_ptr<const Peers> peers_;
    const std::shared_ptr<const PeerTable> table_;
    const std::string prefix_;  // of names in the table: empty, or ends with '/'
    const std::string path_;
    mutable std::mutex mutex_;
    mutable std::map<int, std::shared_ptr<Directory>> known_;
};

class PeerFiles final : public ReadOnlyFileSystem {
  public:
    PeerFiles(std::shared_ptr<const Peers> peers, std::shared_ptr<const PeerTable> table)
        : ReadOnlyFileSystem(peers->own()), peers_(std::move(peers)), table_(std::move(table)) {}

    Result<std::shared_ptr<Directory>> openDirectory(const std::string& path) override {
        SHARDSCOPE_ASSIGN(const std::string name, within(path));
        const auto directory = std::make_shared<PeerDirectory>(peers_, table_, name.empty() ? "" : name + "/",
                                                               name.empty() ? table_->root() : path);
        if (!name.empty()) SHARDSCOPE_TRY(directory->list(""));
        return std::shared_ptr<Directory>(directory);
    }
    Result<DirectoryEntry> stat(const std::string& path) override {
        SHARDSCOPE_ASSIGN(const std::string name, within(path));
        if (name.empty())
            return DirectoryEntry{splitPath(table_->root()).second, DirectoryEntry::Kind::directory, 0};
        return PeerDirectory(peers_, table_, "", table_->root()).stat(name);
    }

  private:
    Error refused(const std::string& path) const override { return onlyReadHere(path); }
    // Relative to the root; empty for the root itself.
    Result<std::string> within(std::string path) const {
        while (path.size() > 1 && path.ends_with('/'))
            path.pop_back();
        if (path == table_->root()) return std::string();
        if (!path.starts_with(table_->root() + "/"))
            return makeError(ErrorCode::notFound, "is outside of the source").inFile(path);
        return path.substr(table_->root().size() + 1);
    }

    const std::shared_ptr<const Peers> peers_;
    const std::shared_ptr<const PeerTable> table_;
};

}  // namespace

std::shared_ptr<FileSystem> peerFiles(std::shared_ptr<const Peers> peers,
                                      std::shared_ptr<const PeerTable> table) {
    return std::make_shared<PeerFiles>(std::move(peers), std::move(table));
}

}  // namespace shardscope
