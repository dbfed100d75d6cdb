// The format before torch 1.6 (and of _use_new_zipfile_serialization=False): pickles one after the other,
// then the storages. Source: torch/serialization.py, _legacy_save and _legacy_load.
#include "encoding/torch_legacy.h"

#include <cstring>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/rule.h"
#include "base/units.h"
#include "encoding/torch_file.h"

namespace shardscope::torch_save {

namespace {

constexpr std::string_view kMagic("\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 10);  // 0x1950a86a20f9469cfc6c
constexpr std::string_view kMagicText = "119547037146038801333356";
constexpr int64_t kProtocolVersion = 1001;

// Decodes pickles in a row, reading as much of the file as they turn out to need.
class PickleStream {
  public:
    PickleStream(const ReadFile& file, const FileLimits& options) : file_(file), options_(options) {}

    Result<Pickle> next(std::string_view what) {
        PickleLimits limits;
        limits.textBytes = options_.pickleText;
        limits.memory = options_.valueMemory;
        uint64_t window = kFirstWindow;
        for (;;) {
            SHARDSCOPE_TRY(options_.stop.poll());
            const uint64_t wanted = std::min(window, file_.size() - at_);
            if (wanted > bytes_.size()) {
                const size_t held = bytes_.size();
                bytes_.resize(wanted);
                SHARDSCOPE_TRY(
                    file_.readAt(at_ + held, std::as_writable_bytes(std::span(bytes_)).subspan(held)));
            }
            auto pickle = decodePickle(std::as_bytes(std::span(bytes_)), limits);
            if (pickle.ok()) {
                at_ += pickle->length;
                bytes_.erase(0, pickle->length);
                return pickle;
            }
            // It may only be that more bytes are needed.
            const bool mayGrow =
                bytes_.size() < file_.size() - at_ && pickle.error().code == ErrorCode::damaged;
            if (!mayGrow || window >= options_.pickleBytes) {
                Error error = std::move(pickle).error();
                error.message = fmt::format("{}: {}", what, error.message);
                error.location.offset = at_ + error.location.offset.value_or(0);
                return std::move(error).inFile(file_.path());
            }
            window = std::min(window * 4, options_.pickleBytes);
        }
    }
    uint64_t position() const { return at_; }

  private:
    static constexpr uint64_t kFirstWindow = 64 << 10;
    const ReadFile& file_;
    const FileLimits& options_;
    uint64_t at_ = 0;
    std::string bytes_;  // of the file from at_ on
};

}  // namespace

bool isLegacyStart(std::string_view first) {
    const std::string_view start = first.substr(0, 64);
    if (start.find(kMagic) != start.npos && !start.empty() && start[0] == '\x80') return true;
    return start.starts_with("L" + std::string(kMagicText)) ||
           start.starts_with("I" + std::string(kMagicText));
}

Result<Opened> openLegacy(std::shared_ptr<const ReadFile> file, const FileLimits& options) {
    Opened opened;
    opened.file = file;
    opened.variant = "legacy";
    opened.writer = "torch, legacy format";
    PickleStream stream(*file, options);
    const auto bad = [&](uint64_t at, std::string message) {
        return damaged(std::move(message), at).inFile(file->path());
    };

    SHARDSCOPE_ASSIGN(const Pickle magic, stream.next("the magic number"));
    if (magic.graph.kind(magic.root) != ValueKind::bigInteger || magic.graph.text(magic.root) != kMagic) {
        return bad(0, "the file does not begin with the magic number of torch.save");
    }
    uint64_t at = stream.position();
    SHARDSCOPE_ASSIGN(const Pickle version, stream.next("the protocol version"));
    if (version.graph.kind(version.root) != ValueKind::integer)
        return bad(at, "the protocol version is not an integer");
    if (version.graph.integer(version.root) != kProtocolVersion) {
        return unsupported(fmt::format("protocol version {}; only {} is read",
                                       version.graph.integer(version.root), kProtocolVersion))
            .at(at)
            .inFile(file->path());
    }
    at = stream.position();
    SHARDSCOPE_ASSIGN(const Pickle system, stream.next("the system information"));
    if (!system.graph.isMapping(system.root)) return bad(at, "the system information is not a dict");
    at = stream.position();
    SHARDSCOPE_ASSIGN(opened.pickle, stream.next("the saved object"));
    auto storages = allStorages(opened.pickle.graph);
    if (!storages.ok()) return std::move(storages).error().inFile(file->path());
    auto known = std::move(storages).value();

    at = stream.position();
    SHARDSCOPE_ASSIGN(const Pickle keys, stream.next("the list of storages"));
    if (keys.graph.kind(keys.root) != ValueKind::list) return bad(at, "the storage table is not a list");
    at = stream.position();
    for (NodeId item : keys.graph.items(keys.root)) {
        const ValueKind kind = keys.graph.kind(item);
        if (kind != ValueKind::text && kind != ValueKind::integer)
            return bad(at, "the list of storages holds something else than keys");
        const std::string key = kind == ValueKind::text ? std::string(keys.graph.text(item))
                                                        : std::to_string(keys.graph.integer(item));
        const auto storage = known.find(key);
        if (storage == known.end())
            return bad(at,
                       fmt::format("storage '{}' is stored, but the saved object has no such storage", key));
        int64_t count = 0;
        if (!rangeFits(at, sizeof count, file->size())) {
            return bad(at, fmt::format("the file ends before storage '{}'", key)).byRule(rule::fileTruncated);
        }
        SHARDSCOPE_TRY(file->readAt(at, std::as_writable_bytes(std::span(&count, 1))));
        if (count < 0 || static_cast<uint64_t>(count) != storage->second.elements) {
            return bad(at, fmt::format("storage '{}' has {}, the saved object says {}", key,
                                       counted(count, "element"), countText(storage->second.elements)));
        }
        at += sizeof count;
        SHARDSCOPE_ASSIGN(const uint64_t bytes, storageBytes(storage->second));
        if (!rangeFits(at, bytes, file->size())) {
            return bad(at, fmt::format("storage '{}' needs {}, the file has {} left", key,
                                       counted(bytes, "byte"), countText(file->size() - at)))
                .byRule(rule::fileTruncated)
                .withHint("the file was probably not written or copied completely");
        }
        if (!opened.storages.emplace(key, Opened::Storage{at, bytes}).second) {
            return bad(at, fmt::format("storage '{}' is stored twice", key));
        }
        at += bytes;
    }
    for (const auto& [key, storage] : known) {
        if (!opened.storages.contains(key)) {
            return bad(at, fmt::format("storage '{}' of the saved object is not stored", key));
        }
    }
    if (at < file->size()) {
        opened.notes.push_back(
            {rule::metaInconsistent,
             Severity::warning,
             fmt::format("torch.load ignores {} behind the last storage", counted(file->size() - at, "byte")),
             {},
             {},
             at});
    }
    opened.notes.push_back(
        {rule::integrityCrc, Severity::info, "the legacy format stores no checksums", {}, {}, std::nullopt});
    return opened;
}

}  // namespace shardscope::torch_save
