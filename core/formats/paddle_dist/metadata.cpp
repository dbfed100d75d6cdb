#include "formats/paddle_dist/metadata.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_map>

#include <fmt/format.h>

#include "base/rule.h"
#include "encoding/pickle.h"
#include "encoding/pickle_globals.h"
#include "formats/paddle_dist/metadata_fast.h"
#include "model/numpy_array.h"

namespace shardscope::paddle {

namespace {

constexpr std::string_view kOldModule = "paddle.distributed.checkpoint.metadata";
constexpr std::string_view kFlexModule = "paddle.distributed.flex_checkpoint.dcp.metadata";
constexpr size_t kMaxNotes = 100;

class Decoder {
  public:
    explicit Decoder(const Pickle& pickle)
        : pickle_(pickle), g_(pickle.graph), known_(g_.size(), 0), dims_(g_.size(), kNone) {}

    Result<Metadata> run() {
        out_.protocol = pickle_.protocol;
        const NodeId root = pickle_.root;
        Fields fields;
        if (!fieldsOf(root, Class::metadata, fields))
            return damaged("the pickle holds no Metadata of paddle.distributed", 0);
        out_.flexModule =
            g_.globalModule(g_.object(root).callable).find("flex_checkpoint") != std::string_view::npos;
        noteGlobals();
        SHARDSCOPE_TRY(readTensors(get(fields, Field::stateDict)));
        SHARDSCOPE_TRY(readStored(get(fields, Field::storage)));
        joinStored(out_);
        const NodeId paths = get(fields, Field::mapping);
        readPaths(paths);
        seen_.mapping = paths != kNoNode;
        seen_.tensors = !out_.tensors.empty();
        out_.generation = generationOf(seen_, out_.flexModule);
        return std::move(out_);
    }

  private:
    // What is known of a node that many rows share: a class, the name of a field, the key of a tensor. The
    // nodes are shared because the pickler memoizes them; where they are not, it only takes longer.
    enum class Class : uint8_t { unknown, none, metadata, tensorMetadata, tensorIndex };
    enum class Field : uint8_t {
        unknown,
        none,
        offset,
        shape,
        dtype,
        global,
        isFlat,
        range,
        key,
        replica,
        stateDict,
        storage,
        mapping,
        count
    };
    using Fields = std::array<NodeId, static_cast<size_t>(Field::count)>;

    Class classOf(NodeId callable) {
        if (g_.kind(callable) != ValueKind::global) return Class::none;
        auto known = static_cast<Class>(known_[callable]);
        if (known == Class::unknown) {
            const std::string_view name = g_.globalName(callable);
            known = !isMetadataModule(g_.globalModule(callable)) ? Class::none
                    : name == "Metadata"                         ? Class::metadata
                    : name == "LocalTensorMetadata"              ? Class::tensorMetadata
                    : name == "LocalTensorIndex"                 ? Class::tensorIndex
                                                                 : Class::none;
            known_[callable] = static_cast<uint8_t>(known);
        }
        return known;
    }
    Field fieldOf(NodeId key) {
        if (g_.kind(key) != ValueKind::text) return Field::none;
        auto known = static_cast<Field>(known_[key]);
        if (known == Field::unknown) {
            constexpr std::pair<std::string_view, Field> names[] = {{"global_offset", Field::offset},
                                                                    {"local_shape", Field::shape},
                                                                    {"dtype", Field::dtype},
                                                                    {"global_shape", Field::global},
                                                                    {"is_flattened", Field::isFlat},
                                                                    {"flattened_range", Field::range},
                                                                    {"tensor_key", Field::key},
                                                                    {"replica_id", Field::replica},
                                                                    {"state_dict_metadata", Field::stateDict},
                                                                    {"storage_metadata", Field::storage},
                                                                    {"flat_mapping", Field::mapping}};
            known = Field::none;
            for (const auto& [name, field] : names) {
                if (g_.text(key) == name) known = field;
            }
            known_[key] = static_cast<uint8_t>(known);
        }
        return known;
    }
    // False when the node is no instance of the class. Fields that it does not have are kNoNode.
    bool fieldsOf(NodeId node, Class wanted, Fields& fields) {
        if (node == kNoNode || g_.kind(node) != ValueKind::object ||
            classOf(g_.object(node).callable) != wanted)
            return false;
        fields.fill(kNoNode);
        const NodeId state = g_.object(node).state;
        const auto take = [&](NodeId mapping) {
            const auto pairs = g_.pairs(mapping);
            for (size_t i = 0; i + 1 < pairs.size(); i += 2)
                fields[static_cast<size_t>(fieldOf(pairs[i]))] = pairs[i + 1];
        };
        if (state != kNoNode && g_.kind(state) == ValueKind::tuple) {
            // (fields, slots) of classes with slots.
            for (NodeId part : g_.items(state))
                take(part);
        } else if (state != kNoNode) {
            take(state);
        }
        return true;
    }
    static NodeId get(const Fields& fields, Field field) { return fields[static_cast<size_t>(field)]; }

    bool isNone(NodeId node) const { return node == kNoNode || g_.kind(node) == ValueKind::none; }
    bool isTrue(NodeId node) const {
        return node != kNoNode && g_.kind(node) == ValueKind::boolean && g_.boolean(node);
    }

    std::optional<int64_t> integer(NodeId node) const {
        if (node == kNoNode) return std::nullopt;
        if (g_.kind(node) == ValueKind::integer) return g_.integer(node);
        const auto scalar = asNumpyScalar(g_, node);
        if (!scalar || scalar->dtype.bigEndian) return std::nullopt;
        const std::string_view raw = g_.text(scalar->raw);
        if (scalar->dtype.dtype == DType::int64 && raw.size() == 8) {
            int64_t value = 0;
            std::memcpy(&value, raw.data(), sizeof value);
            return value;
        }
        if (scalar->dtype.dtype == DType::int32 && raw.size() == 4) {
            int32_t value = 0;
            std::memcpy(&value, raw.data(), sizeof value);
            return value;
        }
        return std::nullopt;
    }

    // Tuples, and the lists that 2.6 and 3.2 write in places.
    Result<DimsAt> dims(NodeId node, std::string_view what) {
        const ValueKind kind = node == kNoNode ? ValueKind::none : g_.kind(node);
        if (kind != ValueKind::tuple && kind != ValueKind::list)
            return damaged(fmt::format("{} is no tuple", what));
        const auto items = g_.items(node);
        if (items.size() > kMaxRank) {
            return makeError(ErrorCode::limit,
                             fmt::format("{} has {} dimensions, more than the {} that are read", what,
                                         items.size(), kMaxRank));
        }
        const auto rank = static_cast<uint16_t>(items.size());
        if (dims_[node] != kNone) return DimsAt{dims_[node], rank, true};
        SHARDSCOPE_ASSIGN(const uint32_t begin, room(rank));
        for (NodeId item : items) {
            const auto value = integer(item);
            if (!value) return damaged(fmt::format("{} holds something else than integers", what));
            if (*value > kMaxDim || *value < -kMaxDim)
                return damaged(fmt::format("{} holds the impossible size {}", what, *value));
            out_.dims.push_back(*value);
        }
        // Tuples are often shared between rows.
        dims_[node] = begin;
        return DimsAt{begin, rank, true};
    }
    // Where the next `count` dimensions will stand.
    Result<uint32_t> room(size_t count) const {
        if (out_.dims.size() + count >= kNone)
            return makeError(ErrorCode::limit, "the metadata holds more than 4 billion dimensions");
        return static_cast<uint32_t>(out_.dims.size());
    }

    // A pair, or a slice object. Errors: damaged.
    Result<DimsAt> range(NodeId node) {
        std::span<const NodeId> items;
        if (g_.kind(node) == ValueKind::tuple || g_.kind(node) == ValueKind::list) {
            items = g_.items(node);
        } else if (g_.kind(node) == ValueKind::object &&
                   g_.isGlobal(g_.object(node).callable, "builtins", "slice")) {
            items = g_.items(g_.object(node).arguments);
        }
        if (items.size() < 2) return damaged("a flattened range is no pair");
        const auto start = integer(items[0]);
        const auto stop = integer(items[1]);
        if (!start || !stop || *start < 0 || *stop < *start) return damaged("a flattened range is none");
        SHARDSCOPE_ASSIGN(const uint32_t at, room(2));
        out_.dims.push_back(*start);
        out_.dims.push_back(*stop);
        return DimsAt{at, 2, true};
    }

    uint32_t intern(std::string_view text, std::vector<std::string>& list,
                    std::unordered_map<std::string, uint32_t>& known) {
        uint32_t& last = &list == &out_.dtypes  ? lastDType_
                         : &list == &out_.files ? lastFile_
                                                : lastStranger_;
        // As a rule the text of the row before.
        if (!list.empty() && last < list.size() && list[last] == text) return last;
        const auto [it, fresh] = known.try_emplace(std::string(text), static_cast<uint32_t>(list.size()));
        if (fresh) list.emplace_back(text);
        last = it->second;
        return last;
    }

    Result<ShardRow> shard(NodeId node) {
        Fields fields;
        if (!fieldsOf(node, Class::tensorMetadata, fields))
            return damaged("a piece is no LocalTensorMetadata");
        ShardRow row;
        SHARDSCOPE_ASSIGN(row.offset, dims(get(fields, Field::offset), "the offset of a piece"));
        SHARDSCOPE_ASSIGN(row.shape, dims(get(fields, Field::shape), "the shape of a piece"));
        if (row.offset.rank != row.shape.rank) {
            return damaged(fmt::format("a piece has the offset {} and the shape {}",
                                       formatDims(out_.dimsOf(row.offset)),
                                       formatDims(out_.dimsOf(row.shape))));
        }
        if (const NodeId dtype = get(fields, Field::dtype); !isNone(dtype)) {
            if (g_.kind(dtype) != ValueKind::text) return damaged("the dtype of a piece is no text");
            row.dtype = intern(g_.text(dtype), out_.dtypes, dtypeIds_);
            seen_.dtype = true;
        }
        const NodeId global = get(fields, Field::global);
        seen_.global = seen_.global || global != kNoNode;
        if (!isNone(global)) {
            SHARDSCOPE_ASSIGN(row.global, dims(global, "the global shape of a piece"));
            if (row.global.rank != row.shape.rank) {
                return damaged(fmt::format("a piece of shape {} belongs to a tensor of shape {}",
                                           formatDims(out_.dimsOf(row.shape)),
                                           formatDims(out_.dimsOf(row.global))));
            }
        }
        const NodeId flat = get(fields, Field::range);
        if (isTrue(get(fields, Field::isFlat)) && !isNone(flat)) {
            SHARDSCOPE_ASSIGN(row.range, range(flat));
        }
        return row;
    }

    void noteRow(std::string message, std::string_view tensor) {
        if (++notedRows_ > kMaxNotes) return;
        out_.notes.push_back({rule::metaInconsistent,
                              Severity::error,
                              std::move(message),
                              {},
                              std::string(tensor),
                              std::nullopt});
    }

    Status readTensors(NodeId table) {
        if (isNone(table)) return {};
        if (!g_.isMapping(table)) return damaged("state_dict_metadata is no dict");
        const auto pairs = g_.pairs(table);
        out_.tensors.reserve(pairs.size() / 2);
        for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
            if (g_.kind(pairs[i]) != ValueKind::text)
                return damaged("a tensor of state_dict_metadata has no name");
            const std::string_view key = g_.text(pairs[i]);
            const ValueKind kind = g_.kind(pairs[i + 1]);
            if (kind != ValueKind::list && kind != ValueKind::tuple)
                return damaged("a tensor of state_dict_metadata has no list of pieces").ofTensor(key);
            const auto [place, fresh] = places_.try_emplace(key, static_cast<uint32_t>(out_.tensors.size()));
            if (fresh) out_.tensors.push_back({std::string(key)});
            TensorRows& tensor = out_.tensors[place->second];
            // Of a key that is set twice the last value counts.
            tensor.first = static_cast<uint32_t>(out_.rows.size());
            for (NodeId item : g_.items(pairs[i + 1])) {
                auto row = shard(item);
                if (row.ok()) {
                    out_.rows.push_back(*row);
                } else {
                    noteRow(row.error().message + "; the piece is left out", key);
                }
            }
            tensor.count = static_cast<uint32_t>(out_.rows.size()) - tensor.first;
            if (tensor.count == 0)
                noteRow("the metadata lists no readable piece of the tensor; it is left out", key);
        }
        return {};
    }

    Status readStored(NodeId table) {
        if (isNone(table)) return {};
        if (!g_.isMapping(table)) return damaged("storage_metadata is no dict");
        const auto pairs = g_.pairs(table);
        out_.stored.reserve(pairs.size() / 2);
        NodeId lastKey = kNoNode;
        uint32_t lastTensor = kNone;
        for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
            const NodeId index = pairs[i];
            StoredRow row;
            Fields fields;
            NodeId key = kNoNode;
            if (fieldsOf(index, Class::tensorIndex, fields)) key = get(fields, Field::key);
            if (key == kNoNode || g_.kind(key) != ValueKind::text)
                return damaged("an entry of storage_metadata is no LocalTensorIndex");
            if (key != lastKey) {
                const auto place = places_.find(g_.text(key));
                lastTensor = place == places_.end() ? kNone : place->second;
                lastKey = key;
            }
            row.key = lastTensor;
            if (row.key == kNone) {
                row.key = static_cast<uint32_t>(out_.tensors.size()) +
                          intern(g_.text(key), out_.strangers, strangerIds_);
            }
            const auto fill = [&]() -> Status {
                SHARDSCOPE_ASSIGN(row.offset,
                                  dims(get(fields, Field::offset), "the offset of a stored piece"));
                if (const NodeId shape = get(fields, Field::shape); !isNone(shape)) {
                    SHARDSCOPE_ASSIGN(row.shape, dims(shape, "the shape of a stored piece"));
                }
                const NodeId flat = get(fields, Field::range);
                if (isTrue(get(fields, Field::isFlat)) && !isNone(flat)) {
                    SHARDSCOPE_ASSIGN(row.range, range(flat));
                }
                const NodeId replica = get(fields, Field::replica);
                seen_.replica = seen_.replica || replica != kNoNode;
                row.replica = integer(replica).value_or(0);
                if (g_.kind(pairs[i + 1]) != ValueKind::text)
                    return damaged("a stored piece has no file name");
                row.file = intern(g_.text(pairs[i + 1]), out_.files, fileIds_);
                return {};
            };
            if (const Status filled = fill(); !filled.ok()) {
                noteRow(filled.error().message + "; the entry is left out", g_.text(key));
                continue;
            }
            out_.stored.push_back(row);
        }
        return {};
    }

    void readPaths(NodeId table) {
        if (isNone(table) || !g_.isMapping(table)) return;
        const auto pairs = g_.pairs(table);
        for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
            if (g_.kind(pairs[i]) != ValueKind::text) continue;
            const ValueKind kind = g_.kind(pairs[i + 1]);
            if (kind != ValueKind::tuple && kind != ValueKind::list) continue;
            FlatPath path{std::string(g_.text(pairs[i])), {}};
            bool texts = g_.items(pairs[i + 1]).size() <= static_cast<size_t>(kMaxValueDepth);
            for (NodeId part : g_.items(pairs[i + 1])) {
                texts = texts && g_.kind(part) == ValueKind::text;
                if (texts) path.parts.emplace_back(g_.text(part));
            }
            if (texts && path.parts.size() > 1) out_.paths.push_back(std::move(path));
        }
    }

    void noteGlobals() {
        std::vector<std::string> others;
        for (const std::string& name : pickle_.globals) {
            const size_t dot = name.rfind('.');
            const std::string_view text = name;
            const bool own = dot != std::string::npos && isMetadataModule(text.substr(0, dot)) &&
                             (text.ends_with(".Metadata") || text.ends_with(".LocalTensorMetadata") ||
                              text.ends_with(".LocalTensorIndex"));
            if (!own) others.push_back(name);
        }
        for (Note& note : globalNotes(others))
            out_.notes.push_back(std::move(note));
    }

    const Pickle& pickle_;
    const ValueGraph& g_;
    Metadata out_;
    std::vector<uint8_t> known_;  // by node: Class or Field
    std::vector<uint32_t> dims_;  // by node: where its integers stand in Metadata::dims
    std::unordered_map<std::string_view, uint32_t> places_;  // of tensors
    std::unordered_map<std::string, uint32_t> dtypeIds_, fileIds_, strangerIds_;
    uint32_t lastDType_ = 0, lastFile_ = 0, lastStranger_ = 0;
    size_t notedRows_ = 0;
    SeenFields seen_;
};

}  // namespace

bool isMetadataModule(std::string_view module) {
    return module == kOldModule || module == kFlexModule ||
           (module.starts_with("paddle.distributed.") && module.ends_with(".metadata"));
}

Generation generationOf(const SeenFields& seen, bool flexModule) {
    if (seen.replica) return Generation::flex3;
    if (seen.global || (flexModule && !seen.tensors)) return Generation::flex2;
    // The first flex releases have the fields of 3.0.
    if (seen.dtype || flexModule) return Generation::v1;
    return seen.mapping ? Generation::v0b : Generation::v0a;
}

std::string_view generationName(Generation generation) {
    constexpr std::string_view names[] = {"v0a", "v0b", "v1", "flex-v2", "flex-v3"};
    return names[static_cast<size_t>(generation)];
}

std::string_view generationWriter(Generation generation) {
    constexpr std::string_view names[] = {"paddle 2.6", "paddle after 2.6", "paddle 3.0", "paddle 3.2",
                                          "paddle 3.3 or later"};
    return names[static_cast<size_t>(generation)];
}

void joinStored(Metadata& m) {
    std::vector<uint32_t> joined(m.tensors.size(), 0);
    const auto same = [&](DimsAt a, DimsAt b) {
        return a.given == b.given && std::ranges::equal(m.dimsOf(a), m.dimsOf(b));
    };
    std::erase_if(m.stored, [&](const StoredRow& stored) {
        if (!m.hasTensor(stored) || stored.replica < 0 || stored.replica > INT32_MAX) return false;
        const TensorRows& tensor = m.tensors[stored.key];
        uint32_t& next = joined[stored.key];
        if (next == tensor.count) return false;
        ShardRow& row = m.rows[tensor.first + next];
        if (!same(stored.offset, row.offset) || !same(stored.range, row.range) ||
            (stored.shape && !same(stored.shape, row.shape)))
            return false;
        row.file = stored.file;
        row.replica = static_cast<int32_t>(stored.replica);
        ++next;
        return true;
    });
}

Result<Metadata> decodeMetadataSlow(std::span<const std::byte> bytes, const Limits& limits) {
    PickleLimits pickleLimits;
    pickleLimits.textBytes = limits.pickleText;
    pickleLimits.memory = limits.valueMemory;
    SHARDSCOPE_ASSIGN(const Pickle pickle, decodePickle(bytes, pickleLimits));
    return Decoder(pickle).run();
}

Result<Metadata> readMetadata(const ReadFile& file, const Limits& limits, const StopToken& stop) {
    SHARDSCOPE_TRY(stop.poll());
    if (file.size() == 0) {
        return damaged("the metadata file is empty", 0)
            .byRule(rule::fileTruncated)
            .inFile(file.path())
            .withHint("the save died while it wrote its metadata; use an earlier one");
    }
    if (file.size() > limits.pickleBytes) {
        return makeError(ErrorCode::limit,
                         fmt::format("{} bytes of metadata are more than the {} that are read", file.size(),
                                     limits.pickleBytes))
            .inFile(file.path());
    }
    if (auto plain = decodeMetadataFast(file, limits, stop)) return std::move(*plain);
    SHARDSCOPE_TRY(stop.poll());
    std::string bytes(static_cast<size_t>(file.size()), '\0');
    SHARDSCOPE_TRY(file.readAt(0, std::as_writable_bytes(std::span(bytes))));
    auto metadata = decodeMetadataSlow(std::as_bytes(std::span(bytes)), limits);
    if (!metadata.ok()) {
        Error error = std::move(metadata).error();
        if (error.code == ErrorCode::damaged && !error.location.offset) error.location.offset = 0;
        // Every pickle ends with STOP.
        if (error.code == ErrorCode::damaged && bytes.back() != '.') {
            error.location.rule = rule::fileTruncated;
            error.hint = "the metadata was probably not written or copied completely";
        }
        return std::move(error).inFile(file.path());
    }
    return metadata;
}

bool looksLikeMetadata(std::string_view first) {
    return first.find("paddle.distributed.") != std::string_view::npos &&
           first.find("Metadata") != std::string_view::npos;
}

}  // namespace shardscope::paddle
