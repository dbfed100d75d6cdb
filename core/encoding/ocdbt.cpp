#include "encoding/ocdbt.h"

#include <algorithm>
#include <charconv>
#include <unordered_map>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/rule.h"
#include "base/units.h"
#include "encoding/byte_parser.h"
#include "encoding/crc32c.h"
#include "encoding/zstd.h"

namespace shardscope {

namespace {

constexpr uint32_t kManifestMagic = 0x0cdb3a2a;
constexpr uint32_t kNodeMagic = 0x0cdb20de;
constexpr uint64_t kEnvelopeHead = 12;        // magic and length
constexpr uint64_t kMostManifest = 64 << 20;  // as stored
constexpr uint64_t kMostNodeKeys = 8 << 20;
constexpr uint64_t kMostPathBytes = 65535;
constexpr uint64_t kNowhere = UINT64_MAX;        // offset and length of the root of an empty database
constexpr uint32_t kInTree = uint32_t{1} << 31;  // of a value's file: it is a node

// The smallest number of bytes that n rows of a table can take, for counts that come before them.
bool countFits(const ByteParser& in, uint64_t n, uint64_t bytesEach) {
    return in.ok() && n <= in.left() / bytesEach;
}

}  // namespace

class OcdbtTreeReader {
  public:
    OcdbtTreeReader(const Directory& directory, const std::string& prefix, const OcdbtLimits& limits,
                    const StopToken& stop)
        : directory_(directory), prefix_(prefix), limits_(limits), stop_(stop) {}

    Result<OcdbtIndex> read() {
        SHARDSCOPE_TRY(readManifest());
        return std::move(index_);
    }

  private:
    struct Place {
        std::string path;  // relative to the directory
        std::string base;  // what the paths of the files that the node names begin with
        uint64_t offset = 0, length = 0;
    };
    struct DataFile {
        std::string path;  // relative to the directory
        std::string base;
    };

    Error wrong(const Place& place, std::string message, std::string_view rule = rule::metaInconsistent) {
        return damaged(std::move(message), place.offset).inFile(place.path).byRule(rule);
    }

    // The body of a manifest or node, unpacked.
    Result<std::vector<std::byte>> body(const Place& place, uint32_t magic, uint64_t maxPlain,
                                        const ReadFile& file) {
        std::vector<std::byte> bytes;
        if (place.length < kEnvelopeHead + 6 || !rangeFits(place.offset, place.length, file.size()))
            return wrong(
                place,
                fmt::format("it takes {} from byte {}, the file has {}", counted(place.length, "byte"),
                            countText(place.offset), countText(file.size())),
                rule::fileTruncated);
        if (place.length > maxPlain + (maxPlain >> 7) + 4096)
            return makeError(ErrorCode::limit,
                             fmt::format("a node has {}, more than are read", counted(place.length, "byte")))
                .inFile(place.path)
                .at(place.offset);
        bytes.resize(static_cast<size_t>(place.length));
        SHARDSCOPE_TRY(file.readAt(place.offset, bytes));
        ByteParser in(bytes);
        if (in.bigEndian<4>() != magic)
            return wrong(place, "it does not begin as a manifest or a node of an OCDBT database does");
        if (const uint64_t length = in.littleEndian<8>(); length != place.length)
            return wrong(place, fmt::format("its header says that it has {}, it has {}",
                                            counted(length, "byte"), countText(place.length)));
        const std::span<const std::byte> summed = std::span<const std::byte>(bytes).first(bytes.size() - 4);
        ByteParser tail(std::span<const std::byte>(bytes).last(4));
        const auto stored = static_cast<uint32_t>(tail.littleEndian<4>());
        if (const uint32_t computed = crc32cOf(summed); computed != stored) {
            return wrong(place,
                         fmt::format("its checksum (CRC-32C) is stored as {:08x}, its bytes have {:08x}",
                                     stored, computed),
                         rule::integrityCrc);
        }
        const uint64_t version = in.varint(), compression = in.varint();
        if (!in.ok() || in.left() < 4) return wrong(place, "its header is not whole");
        if (version != 0)
            return unsupported(fmt::format("version {} of the OCDBT format is not known", version))
                .inFile(place.path)
                .at(place.offset);
        const std::span<const std::byte> packed = summed.subspan(in.position());
        if (compression == 0) {
            if (packed.size() > maxPlain) return tooLarge(place, maxPlain);
            return std::vector<std::byte>(packed.begin(), packed.end());
        }
        if (compression != 1)
            return unsupported(fmt::format("compression {} of OCDBT is not known", compression))
                .inFile(place.path)
                .at(place.offset);
        auto plain = unpackZstd(packed, maxPlain);
        if (plain.ok()) return plain;
        if (plain.error().code == ErrorCode::limit) return tooLarge(place, maxPlain);
        return wrong(place, std::move(plain).error().message);
    }

    static Error tooLarge(const Place& place, uint64_t maxPlain) {
        return makeError(ErrorCode::limit, fmt::format("it unpacks to more than the {} that are read",
                                                       counted(maxPlain, "byte")))
            .inFile(place.path)
            .at(place.offset);
    }

    Result<std::shared_ptr<const ReadFile>> open(const std::string& path) {
        if (const auto known = open_.find(path); known != open_.end()) return known->second;
        auto file = directory_.openFile(path);
        if (!file.ok()) {
            Error error = std::move(file).error().inFile(path);
            if (error.code == ErrorCode::notFound) error.location.rule = rule::fileMissing;
            return error;
        }
        if (open_.size() >= 64) open_.clear();
        open_[path] = *file;
        return file;
    }

    // ------------------------------------------------------------------ manifest

    Status readManifest() {
        Place place{prefix_ + std::string(kOcdbtManifest), {}, 0, 0};
        SHARDSCOPE_ASSIGN(auto bytes, manifestBody(place));
        ByteParser in(bytes);
        in.bytes(16);  // uuid
        const uint64_t kind = in.varint();
        in.varint();  // max_inline_value_bytes
        nodeBytes_ = std::min(in.varint(), limits_.nodeBytes);
        in.byte();                          // version_tree_arity_log2
        if (in.varint() == 1) in.bytes(4);  // the level of zstd
        if (!in.ok() || kind > 1) return wrong(place, "its configuration is not one of an OCDBT database");
        if (kind == 1) {
            if (!in.atEnd()) return wrong(place, "more follows its configuration");
            SHARDSCOPE_TRY(findNumbered(place));
            SHARDSCOPE_ASSIGN(bytes, manifestBody(place));
            in = ByteParser(bytes);
            in.bytes(16);
            in.varint();
            in.varint();
            in.varint();
            in.byte();
            if (in.varint() == 1) in.bytes(4);
        }
        return readVersions(place, in);
    }

    Result<std::vector<std::byte>> manifestBody(Place& place) {
        SHARDSCOPE_ASSIGN(const auto file, open(place.path));
        place.length = file->size();
        addNode(place);
        return body(place, kManifestMagic, kMostManifest, *file);
    }

    // "manifest.0000000000000001": the highest number holds the newest version.
    Status findNumbered(Place& place) {
        const std::string_view folder =
            prefix_.empty() ? std::string_view() : std::string_view(prefix_).substr(0, prefix_.size() - 1);
        SHARDSCOPE_ASSIGN(const auto entries, directory_.list(folder));
        constexpr std::string_view kBegin = "manifest.";
        std::string newest;
        for (const DirectoryEntry& entry : entries) {
            if (entry.name.size() == kBegin.size() + 16 && entry.name.starts_with(kBegin) &&
                entry.name.find_first_not_of("0123456789abcdef", kBegin.size()) == std::string::npos)
                newest = std::max(newest, entry.name);
        }
        if (newest.empty())
            return makeError(ErrorCode::notFound, "no numbered manifest is beside it")
                .inFile(place.path)
                .byRule(rule::fileMissing);
        place.path = prefix_ + newest;
        return {};
    }

    // Columns: all values of one field, then those of the next.
    Status readVersions(const Place& place, ByteParser& in) {
        SHARDSCOPE_ASSIGN(const std::vector<DataFile> files, readFiles(place, prefix_, in));
        const uint64_t n = in.varint();
        if (!countFits(in, n, 16)) return wrong(place, "its list of versions is not whole");
        uint64_t height = 0, file = 0, offset = 0, length = 0;
        // Of each column the last value counts: the newest version.
        const auto last = [&](uint64_t count) {
            uint64_t value = 0;
            for (uint64_t i = 0; i < count; ++i)
                value = in.varint();
            return value;
        };
        last(n);  // generations
        for (uint64_t i = 0; i < n; ++i)
            height = in.byte();
        file = last(n);
        offset = last(n);
        length = last(n);
        for (int column = 0; column < 3; ++column)
            last(n);      // keys, bytes of nodes, bytes of values
        in.bytes(8 * n);  // times
        const uint64_t older = in.varint();
        if (!countFits(in, older, 14)) return wrong(place, "its list of older versions is not whole");
        for (int column = 0; column < 5; ++column)
            last(older);
        in.bytes(8 * older);
        in.bytes(older);
        if (!in.ok() || !in.atEnd()) return wrong(place, "its list of versions is not whole");
        if (n == 0 || (offset == kNowhere && length == kNowhere)) return {};
        if (file >= files.size() || files[file].path.empty())
            return wrong(place, "its root is in a file that its table does not have");
        return readNode({files[file].path, files[file].base, offset, length}, height, {});
    }

    Result<std::vector<DataFile>> readFiles(const Place& place, const std::string& base, ByteParser& in) {
        const uint64_t n = in.varint();
        if (!countFits(in, n, 2)) return wrong(place, "its table of files is not whole");
        std::vector<uint64_t> prefix(static_cast<size_t>(n), 0), suffix(prefix), bases(prefix);
        for (uint64_t i = 1; i < n; ++i)
            prefix[i] = in.varint();
        for (uint64_t i = 0; i < n; ++i)
            suffix[i] = in.varint();
        for (uint64_t i = 0; i < n; ++i)
            bases[i] = in.varint();
        std::vector<DataFile> files;
        std::string path;
        uint64_t total = 0;
        for (uint64_t i = 0; i < n; ++i) {
            const std::string_view end = in.text(suffix[i]);
            if (!in.ok() || prefix[i] > path.size() || end.size() > kMostPathBytes - prefix[i])
                return wrong(place, "its table of files is not whole");
            path.resize(static_cast<size_t>(prefix[i]));
            path += end;
            total += path.size() + base.size();
            if (bases[i] > path.size() || base.size() + path.size() > kMostPathBytes + prefix_.size())
                return wrong(place, "its table of files is not whole");
            if (total > limits_.nodeBytes) return tooLarge(place, limits_.nodeBytes);
            std::string full = base + path;
            // The file of an empty version, or of none: it has no path, and nothing is in it.
            if (path.empty()) {
                files.emplace_back();
                continue;
            }
            if (Status inside = checkRelativeName(full); !inside.ok())
                return std::move(inside)
                    .error()
                    .inFile(place.path)
                    .at(place.offset)
                    .byRule(rule::securityPath);
            files.push_back({std::move(full), base + path.substr(0, static_cast<size_t>(bases[i]))});
        }
        return files;
    }

    // ------------------------------------------------------------------ nodes

    Status readNode(const Place& place, uint64_t height, const std::string& inherited) {
        SHARDSCOPE_TRY(stop_.poll());
        if (index_.nodes_.size() >= limits_.nodes)
            return makeError(ErrorCode::limit,
                             fmt::format("the database has more than {}", counted(limits_.nodes, "node")))
                .inFile(place.path);
        SHARDSCOPE_ASSIGN(const auto file, open(place.path));
        SHARDSCOPE_ASSIGN(const auto bytes, body(place, kNodeMagic, nodeBytes_, *file));
        addNode(place);
        ByteParser in(bytes);
        if (const uint64_t stated = in.byte(); stated != height)
            return wrong(place,
                         fmt::format("the node has the height {}, its parent says {}", stated, height));
        SHARDSCOPE_ASSIGN(const std::vector<DataFile> files, readFiles(place, place.base, in));
        const uint64_t n = in.varint();
        if (n == 0 || !countFits(in, n, 3)) return wrong(place, "its list of keys is not whole");
        if (n > kMostNodeKeys)
            return makeError(ErrorCode::limit,
                             fmt::format("a node has {}, more than are read", counted(n, "key")))
                .inFile(place.path)
                .at(place.offset);
        std::vector<uint64_t> prefix(static_cast<size_t>(n), 0), suffix(prefix), common;
        for (uint64_t i = 1; i < n; ++i)
            prefix[i] = in.varint();
        for (uint64_t i = 0; i < n; ++i)
            suffix[i] = in.varint();
        if (height > 0) {
            common.resize(static_cast<size_t>(n));
            for (uint64_t& c : common)
                c = in.varint();
        }
        // The keys, one behind the other, each with what the node inherits.
        std::string keys;
        std::vector<uint64_t> end;
        end.reserve(static_cast<size_t>(n));
        uint64_t last = 0;  // where the last key begins
        for (uint64_t i = 0; i < n; ++i) {
            const std::string_view more = in.text(suffix[i]);
            const uint64_t before = i == 0 ? 0 : end[i - 1] - last - inherited.size();
            if (!in.ok() || prefix[i] > before) return wrong(place, "its list of keys is not whole");
            if (keys.size() + inherited.size() + prefix[i] + more.size() > limits_.keyBytes - keyBytes_)
                return makeError(ErrorCode::limit,
                                 fmt::format("the keys have more than {}", counted(limits_.keyBytes, "byte")))
                    .inFile(place.path);
            const uint64_t begin = keys.size();
            keys += inherited;
            keys.append(keys, static_cast<size_t>(last + inherited.size()), static_cast<size_t>(prefix[i]));
            keys += more;
            last = begin;
            end.push_back(keys.size());
        }
        if (height == 0) {
            keyBytes_ += keys.size();
            return addLeaf(place, files, n, keys, end, in);
        }

        std::vector<uint64_t> fileOf(static_cast<size_t>(n)), offset(fileOf), length(fileOf);
        for (auto* column : {&fileOf, &offset, &length}) {
            for (uint64_t& value : *column)
                value = in.varint();
        }
        for (uint64_t i = 0; i < 3 * n; ++i)
            in.varint();  // keys, bytes of nodes, bytes of values
        if (!in.ok() || !in.atEnd()) return wrong(place, "its list of children is not whole");
        for (uint64_t i = 0; i < n; ++i) {
            const uint64_t begin = i == 0 ? 0 : end[i - 1];
            if (fileOf[i] >= files.size() || files[fileOf[i]].path.empty() ||
                common[i] > end[i] - begin - inherited.size())
                return wrong(place, "a child is in a file that its table does not have");
            const DataFile& child = files[fileOf[i]];
            SHARDSCOPE_TRY(readNode(
                {child.path, child.base, offset[i], length[i]}, height - 1,
                keys.substr(static_cast<size_t>(begin), static_cast<size_t>(inherited.size() + common[i]))));
        }
        return {};
    }

    Status addLeaf(const Place& place, const std::vector<DataFile>& files, uint64_t n,
                   const std::string& keys, const std::vector<uint64_t>& end, ByteParser& in) {
        const size_t first = index_.size();
        std::vector<bool> inTree(static_cast<size_t>(n));
        index_.length_.resize(first + static_cast<size_t>(n));
        index_.file_.resize(first + static_cast<size_t>(n));
        index_.offset_.resize(first + static_cast<size_t>(n));
        for (uint64_t i = 0; i < n; ++i)
            index_.length_[first + i] = in.varint();
        for (uint64_t i = 0; i < n; ++i) {
            const uint64_t kind = in.varint();
            if (kind > 1)
                return wrong(place, fmt::format("a value of the kind {}, which is not known", kind));
            inTree[i] = kind == 0;
        }
        const auto node = static_cast<uint32_t>(index_.nodes_.size() - 1);
        std::vector<uint32_t> known(files.size(), UINT32_MAX);  // index in index_.files_
        for (uint64_t i = 0; i < n; ++i) {
            if (inTree[i]) continue;
            const uint64_t f = in.varint();
            if (!in.ok() || f >= files.size() || files[f].path.empty())
                return wrong(place, "a value is in a file that its table does not have");
            if (known[f] == UINT32_MAX) known[f] = fileIndex(files[f].path);
            index_.file_[first + i] = known[f];
        }
        for (uint64_t i = 0; i < n; ++i) {
            uint64_t past = 0;
            if (inTree[i]) continue;
            index_.offset_[first + i] = in.varint();
            if (!in.ok() || !checkedAdd(index_.offset_[first + i], index_.length_[first + i], past))
                return wrong(place, "its list of values is not whole");
        }
        for (uint64_t i = 0; i < n; ++i) {
            if (!inTree[i]) continue;
            const auto value = in.bytes(index_.length_[first + i]);
            if (!in.ok()) return wrong(place, "its values are not whole");
            if (value.size() > limits_.inlineBytes - index_.inline_.size())
                return makeError(ErrorCode::limit, fmt::format("the values in the tree have more than {}",
                                                               counted(limits_.inlineBytes, "byte")))
                    .inFile(place.path);
            index_.file_[first + i] = node | kInTree;
            index_.offset_[first + i] = index_.inline_.size();
            index_.inline_.insert(index_.inline_.end(), value.begin(), value.end());
        }
        if (!in.ok() || !in.atEnd()) return wrong(place, "its list of values is not whole");
        const uint64_t base = index_.keys_.size();
        index_.keys_ += keys;
        for (uint64_t i = 0; i < n; ++i) {
            const std::string_view key =
                std::string_view(keys).substr(static_cast<size_t>(i == 0 ? 0 : end[i - 1]),
                                              static_cast<size_t>(end[i] - (i == 0 ? 0 : end[i - 1])));
            if (!index_.keyEnd_.empty() && key <= lastKey())
                return wrong(place, "its keys are not in ascending order");
            index_.keyEnd_.push_back(base + end[i]);
        }
        return {};
    }

    std::string_view lastKey() const {
        const size_t n = index_.keyEnd_.size();
        const uint64_t begin = n < 2 ? 0 : index_.keyEnd_[n - 2];
        return std::string_view(index_.keys_)
            .substr(static_cast<size_t>(begin), static_cast<size_t>(index_.keyEnd_[n - 1] - begin));
    }

    uint32_t fileIndex(const std::string& path) {
        const auto [at, added] = fileIndex_.try_emplace(path, static_cast<uint32_t>(index_.files_.size()));
        if (added) index_.files_.push_back(path);
        return at->second;
    }

    void addNode(const Place& place) {
        index_.nodes_.push_back({fileIndex(place.path), place.offset, place.length});
    }

    const Directory& directory_;
    const std::string& prefix_;
    const OcdbtLimits& limits_;
    const StopToken& stop_;
    uint64_t nodeBytes_ = 0, keyBytes_ = 0;
    std::unordered_map<std::string, std::shared_ptr<const ReadFile>> open_;
    std::unordered_map<std::string, uint32_t> fileIndex_;
    OcdbtIndex index_;
};

OcdbtIndex::Entry OcdbtIndex::operator[](size_t i) const {
    const uint64_t begin = i == 0 ? 0 : keyEnd_[i - 1];
    Entry entry;
    entry.key =
        std::string_view(keys_).substr(static_cast<size_t>(begin), static_cast<size_t>(keyEnd_[i] - begin));
    entry.length = length_[i];
    entry.inTree = (file_[i] & kInTree) != 0;
    if (entry.inTree) {
        const Node& node = nodes_[file_[i] & ~kInTree];
        entry.file = node.file;
        entry.offset = node.offset;
        entry.value =
            std::span(inline_).subspan(static_cast<size_t>(offset_[i]), static_cast<size_t>(length_[i]));
    } else {
        entry.file = file_[i];
        entry.offset = offset_[i];
    }
    return entry;
}

Result<OcdbtIndex> readOcdbt(const Directory& directory, const std::string& prefix, const OcdbtLimits& limits,
                             const StopToken& stop) {
    return OcdbtTreeReader(directory, prefix, limits, stop).read();
}

}  // namespace shardscope
