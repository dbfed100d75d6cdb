#include "formats/paddle_dist/metadata.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/large_pages.h"
#include "base/rule.h"
#include "base/units.h"
#include "encoding/pickle_globals.h"
#include "encoding/pickle_rows.h"

namespace shardscope::paddle {

namespace {

constexpr size_t kMaxNotes = 100;
constexpr size_t kAhead = 16;

// Attribute names; their TextIds are their places here.
constexpr std::array kWords = std::to_array<std::string_view>(
    {"global_offset", "local_shape", "dtype", "global_shape", "is_flattened", "flattened_range", "tensor_key",
     "replica_id", "state_dict_metadata", "storage_metadata", "flat_mapping"});
consteval TextId word(std::string_view name) {
    const auto at = std::ranges::find(kWords, name);
    if (at == kWords.end()) throw "not one of the words";
    return static_cast<TextId>(at - kWords.begin());
}

enum Class : uint8_t {
    kForeign,
    kMetadata,
    kShard,
    kIndex,
    kMapping,  // OrderedDict, defaultdict
    kNumpyDType,
    kNumpyScalar,
    kSlice,
    kEncode,
    kGetAttribute
};

bool isMetadataModule(std::string_view module) {
    return module == "paddle.distributed.checkpoint.metadata" ||
           module == "paddle.distributed.flex_checkpoint.dcp.metadata" ||
           (module.starts_with("paddle.distributed.") && module.ends_with(".metadata"));
}

class MetadataRows final : public PickleRows<MetadataRows> {
  public:
    MetadataRows(const Limits& limits, uint64_t objects) : PickleRows(kWords, limits.valueMemory) {
        // A piece and its entry are one object each; untouched reserve costs no memory.
        const auto rows = static_cast<size_t>(objects / 2) + 16;
        out_.rows.reserve(rows);
        out_.stored.reserve(rows);
        preferLargePages(out_.rows);
        preferLargePages(out_.stored);
    }

    Result<Metadata> finish(const RowValue& root, int protocol);

    // --- for PickleRows
    uint8_t classify(std::string_view module, std::string_view name);
    bool construct(RowValue& object);
    bool call(const RowValue& callable, const RowValue& arguments, RowValue& made);
    bool setAttributes(RowValue& object, Pairs pairs);
    bool setState(RowValue& object, const RowValue& state, bool& done);
    bool addRow(Dict& dict, const RowValue& key, const RowValue& value, bool& done);
    bool addListRow(List& list, const RowValue& value, bool& done);
    void taken(Pairs pairs) {
        if (!pairs.empty() && pairs[0].is(kIndex)) indexes_.taken(pairs[0].a);
    }
    void pin(const RowValue& value) {
        if (value.is(kIndex)) indexes_.pin();
    }

  private:
    // Rows of a dict.
    enum { kTensorRows, kStoredRows };
    struct Root {
        RowValue stateDict, storage, mapping;
        bool hasMapping = false, flex = false;
    };
    struct TensorRecord {
        TextId key = 0;
        RowSlice rows;
        uint32_t others = 0;  // items that are not pieces
    };
    struct NumpyDType {
        uint8_t bytes = 0;  // of a signed integer; 0 = something else
        bool bigEndian = false;
    };

    bool dimsOf(const RowValue& value, std::string_view what, std::string_view of, DimsAt& out,
                std::string& problem);
    // The same, where None gives none.
    bool givenDimsOf(const RowValue& value, std::string_view what, std::string_view of, DimsAt& out,
                     std::string& problem) {
        out = {};
        return value.kind == Kind::none || dimsOf(value, what, of, out, problem);
    }
    bool rangeOf(const RowValue& value, DimsAt& out, std::string& problem);
    template <class Row, class Other>
    bool setPiece(Row& row, Pairs pairs, std::string_view of, std::string& problem, Other&& other);
    bool setShard(ShardRow& row, Pairs pairs, std::string& problem);
    bool setIndex(StoredRow& row, Pairs pairs, std::string& problem);
    void setRoot(Root& root, Pairs pairs);
    RowValue scalar(const RowValue& arguments) const;
    std::string problemOf(const ShardRow& row, uint32_t number) const;
    bool addTensor(Dict& dict, TextId key, const RowValue& value);
    void noteRow(std::string message, std::string_view tensor);
    Status finishTensors(const RowValue& table);
    Status finishStored(const RowValue& table);
    void finishPaths(const RowValue& table);
    void joinStored();
    // The number of a text in a list, to whose end it is added when it is new.
    uint32_t listed(TextId text, std::vector<std::string>& list, std::vector<uint32_t>& known) {
        if (known.empty()) known.resize(texts_.size(), kNone);
        if (known[text] == kNone) {
            known[text] = static_cast<uint32_t>(list.size());
            list.emplace_back(texts_[text]);
        }
        return known[text];
    }

    Metadata out_;  // until the end, dtypes, files and keys of rows are TextIds
    Passing<StoredRow> indexes_;
    std::vector<Root> roots_;
    std::vector<TensorRecord> tensors_;
    std::vector<NumpyDType> numpyDTypes_;
    // Why pieces and entries of storage_metadata cannot be read, by their number; the first ones.
    std::unordered_map<uint32_t, std::string> badRows_, badIndexes_;
    std::vector<std::pair<std::string, TextId>> storedNotes_;
    std::vector<uint32_t> tensorOf_;  // by TextId, in out_.tensors
    size_t notedRows_ = 0;
    bool seenDType_ = false, seenGlobal_ = false, seenReplica_ = false;
};

uint8_t MetadataRows::classify(std::string_view module, std::string_view name) {
    if (isMetadataModule(module)) {
        if (name == "Metadata") return kMetadata;
        if (name == "LocalTensorMetadata") return kShard;
        if (name == "LocalTensorIndex") return kIndex;
    }
    if (module == "collections" && (name == "OrderedDict" || name == "defaultdict")) return kMapping;
    if (module == "numpy" && name == "dtype") return kNumpyDType;
    if ((module == "numpy.core.multiarray" || module == "numpy._core.multiarray") && name == "scalar")
        return kNumpyScalar;
    if (module == "builtins" && name == "slice") return kSlice;
    if (module == "builtins" && name == "getattr") return kGetAttribute;
    if (module == "_codecs" && name == "encode") return kEncode;
    return kForeign;
}

bool MetadataRows::construct(RowValue& object) {
    switch (object.cls) {
        case kMetadata:
            return record(object, roots_);
        case kShard:
            return record(object, out_.rows);
        case kIndex:
            return record(object, indexes_);
        case kMapping:
            object = {Kind::dict, 0, kNone, 0};
            return true;
        default:
            object = {Kind::opaque, 0, 0, 0};
            return true;
    }
}

bool MetadataRows::call(const RowValue& callable, const RowValue& arguments, RowValue& made) {
    const auto items = itemsOf(arguments);
    switch (callable.cls) {
        case kNumpyDType: {
            made = {Kind::object, kNumpyDType, static_cast<uint32_t>(numpyDTypes_.size()), 0};
            NumpyDType type;
            if (!items.empty() && items[0].kind == Kind::text) {
                std::string_view code = texts_[items[0].a];
                type.bigEndian = code.starts_with('>');
                if (!code.empty() && std::string_view("<>=|").find(code[0]) != std::string_view::npos)
                    code.remove_prefix(1);
                type.bytes = code == "i8" ? 8 : code == "i4" ? 4 : 0;
            }
            numpyDTypes_.push_back(type);
            return true;
        }
        case kNumpyScalar:
            made = scalar(arguments);
            return true;
        case kSlice:
            made = arguments;
            return true;
        case kEncode: {
            std::string bytes;
            if (items.size() == 2 && items[0].kind == Kind::text &&
                pickle_text::toLatin1(texts_[items[0].a], bytes))
                return text(PickleText::bytes, bytes, made);
            return true;
        }
        case kGetAttribute:  // names something as well
            if (items.size() == 2 && items[0].kind == Kind::global && items[1].kind == Kind::text) {
                const RowGlobal& owner = globals_[items[0].a];
                return global(fmt::format("{}.{}", texts_[owner.module], texts_[owner.name]),
                              std::string(texts_[items[1].a]), made);
            }
            return true;
        default:
            made = {Kind::object, callable.cls, kNone, callable.a};
            return construct(made);
    }
}

// An integer of numpy: scalar(dtype, bytes).
RowValue MetadataRows::scalar(const RowValue& arguments) const {
    const auto items = itemsOf(arguments);
    const RowValue unknown{Kind::opaque, 0, 0, 0};
    if (items.size() != 2 || !items[0].is(kNumpyDType) || items[1].kind != Kind::bytes) return unknown;
    const NumpyDType type = numpyDTypes_[items[0].a];
    if (type.bigEndian || type.bytes == 0 || type.bytes != items[1].a) return unknown;
    return {Kind::integer, 0, 0, type.bytes == 8 ? items[1].b : static_cast<int32_t>(items[1].b)};
}

// Of a numpy.dtype: (version, byte order, ...).
bool MetadataRows::setState(RowValue& object, const RowValue& state, bool& done) {
    const auto items = itemsOf(state);
    done = object.is(kNumpyDType);
    if (done && items.size() > 1 && items[1].kind == Kind::text)
        numpyDTypes_[object.a].bigEndian = texts_[items[1].a] == ">";
    return true;
}

// Tuples, and the lists that 2.6 and 3.2 write in places.
bool MetadataRows::dimsOf(const RowValue& value, std::string_view what, std::string_view of, DimsAt& out,
                          std::string& problem) {
    const auto bad = [&](std::string_view why) {
        if (problem.empty()) problem = fmt::format("the {} of {} {}", what, of, why);
        return true;
    };
    RowValue ints = value;
    if (value.kind == Kind::list) {
        const auto items = itemsOf(value);
        for (const RowValue& item : items) {
            if (item.kind != Kind::integer) return bad("holds something else than integers");
        }
        ints = {Kind::ints, 0, 0, static_cast<int64_t>(items.size())};
        if (!addInts(items, ints.a)) return false;
    }
    if (ints.kind == Kind::tuple || ints.kind == Kind::oneInts)
        return bad("holds something else than integers");
    if (ints.kind != Kind::ints) return bad("is not a tuple");
    if (ints.b > int64_t{kMaxRank})
        return bad(
            fmt::format("has {}, more than the {} that are read", counted(ints.b, "dimension"), kMaxRank));
    for (int64_t i = 0; i < ints.b; ++i) {
        const int64_t size = dims_[ints.a + static_cast<size_t>(i)];
        if (size > kMaxDim || size < -kMaxDim) return bad(fmt::format("holds the impossible size {}", size));
    }
    out = {ints.a, static_cast<uint16_t>(ints.b), true};
    return true;
}

// A pair, or the arguments of a slice.
bool MetadataRows::rangeOf(const RowValue& value, DimsAt& out, std::string& problem) {
    auto items = itemsOf(value);
    const std::array<RowValue, 2> ints =
        value.kind == Kind::ints && value.b >= 2
            ? std::array{integer(dims_[value.a]), integer(dims_[value.a + 1])}
            : std::array<RowValue, 2>{};
    if (value.kind == Kind::ints && value.b >= 2) items = ints;
    if (items.size() < 2) {
        problem = "a flattened range is not a pair";
        return true;
    }
    if (items[0].kind != Kind::integer || items[1].kind != Kind::integer || items[0].b < 0 ||
        items[1].b < items[0].b) {
        problem = "invalid flattened_range";
        return true;
    }
    out = {0, 2, true};
    return addInts(std::vector(items.begin(), items.begin() + 2), out.at);
}

// What pieces and entries of storage_metadata have both; `other` takes the rest.
template <class Row, class Other>
bool MetadataRows::setPiece(Row& row, Pairs pairs, std::string_view of, std::string& problem, Other&& other) {
    RowValue range;
    bool flat = false;
    const bool fine = eachAttribute(pairs, [&](TextId named, const RowValue& value) {
        switch (named) {
            case word("global_offset"):
                return dimsOf(value, "offset", of, row.offset, problem);
            case word("local_shape"):
                return givenDimsOf(value, "shape", of, row.shape, problem);
            case word("is_flattened"):
                flat = value.kind == Kind::boolean && value.b != 0;
                return true;
            case word("flattened_range"):
                range = value;
                return true;
            default:
                return other(named, value);
        }
    });
    return fine && (!flat || range.kind == Kind::none || rangeOf(range, row.range, problem));
}

bool MetadataRows::setShard(ShardRow& row, Pairs pairs, std::string& problem) {
    constexpr std::string_view of = "a chunk";
    return setPiece(row, pairs, of, problem, [&](TextId named, const RowValue& value) {
        if (named == word("global_shape")) {
            seenGlobal_ = true;
            return givenDimsOf(value, "global shape", of, row.global, problem);
        }
        if (named != word("dtype") || value.kind == Kind::none) return true;
        if (value.kind != Kind::text)
            problem = "the dtype of a chunk is not a text";
        else
            row.dtype = value.a;
        seenDType_ |= value.kind == Kind::text;
        return true;
    });
}

bool MetadataRows::setIndex(StoredRow& row, Pairs pairs, std::string& problem) {
    return setPiece(row, pairs, "a stored chunk", problem, [&](TextId named, const RowValue& value) {
        if (named == word("tensor_key")) row.key = value.kind == Kind::text ? value.a : kNone;
        if (named == word("replica_id")) row.replica = value.kind == Kind::integer ? value.b : 0;
        seenReplica_ |= named == word("replica_id");
        return true;
    });
}

void MetadataRows::setRoot(Root& root, Pairs pairs) {
    eachAttribute(pairs, [&](TextId named, const RowValue& value) {
        if (named == word("state_dict_metadata")) root.stateDict = value;
        if (named == word("storage_metadata")) root.storage = value;
        if (named == word("flat_mapping")) root.mapping = value;
        root.hasMapping |= named == word("flat_mapping");
        return true;
    });
}

bool MetadataRows::setAttributes(RowValue& object, Pairs pairs) {
    if (object.kind != Kind::object) return true;
    std::string problem;
    auto* bad = &badRows_;
    switch (object.cls) {
        case kMetadata:
            setRoot(roots_[object.a], pairs);
            return true;
        case kShard:
            if (!setShard(out_.rows[object.a], pairs, problem)) return false;
            break;
        case kIndex:
            if (object.a >= indexes_.size() || !setIndex(indexes_[object.a], pairs, problem)) return false;
            if (badIndexes_.empty() && problem.empty()) return true;
            badIndexes_.erase(object.a);
            bad = &badIndexes_;
            break;
        default:
            return true;
    }
    if (!problem.empty()) {
        (object.cls == kShard ? out_.rows[object.a].offset : indexes_[object.a].offset).given = false;
        if (bad->size() < 10 * kMaxNotes) bad->try_emplace(object.a, std::move(problem));
    }
    return true;
}

bool MetadataRows::addListRow(List& list, const RowValue& value, bool& done) {
    done = value.is(kShard);
    return !done || joinRow(out_.rows, list.rows, value.a);
}

bool MetadataRows::addTensor(Dict& dict, TextId key, const RowValue& value) {
    TensorRecord tensor{key, {}, static_cast<uint32_t>(itemsOf(value).size())};
    if (const List* list = listOf(value)) tensor.rows = list->rows;
    for (const RowValue& item : value.kind == Kind::tuple ? itemsOf(value) : Pairs{}) {
        if (!item.is(kShard)) continue;
        --tensor.others;
        if (!appendRow(out_.rows, tensor.rows, ShardRow(out_.rows[item.a]))) return false;
    }
    return appendRow(tensors_, dict.rows[kTensorRows], tensor);
}

bool MetadataRows::addRow(Dict& dict, const RowValue& key, const RowValue& value, bool& done) {
    done = true;
    const List* list = listOf(value);
    if (key.kind == Kind::text && key.a >= wordCount_ && list && list->rows.count)
        return addTensor(dict, key.a, value);
    done = key.is(kIndex);
    if (!done) return true;
    if (key.a >= indexes_.size() || indexes_[key.a].key == kNone)
        return in().fail("an entry of storage_metadata is not a LocalTensorIndex");
    StoredRow row = indexes_[key.a];
    std::string problem;
    if (!row.offset) {
        const auto known = badIndexes_.find(key.a);
        problem = known != badIndexes_.end() ? known->second : "the offset of a stored chunk is not a tuple";
    } else if (value.kind != Kind::text) {
        problem = "a stored chunk has no file name";
    }
    if (!problem.empty()) {
        if (storedNotes_.size() < kMaxNotes)
            storedNotes_.emplace_back(problem + "; the entry is left out", row.key);
        return true;
    }
    row.file = value.a;
    return appendRow(out_.stored, dict.rows[kStoredRows], row);
}

// ------------------------------------------------------------------ the end

void MetadataRows::noteRow(std::string message, std::string_view tensor) {
    if (++notedRows_ > kMaxNotes) return;
    out_.notes.push_back(
        {rule::metaInconsistent, Severity::error, std::move(message), {}, std::string(tensor), std::nullopt});
}

// Why a piece cannot be read; empty if it can.
std::string MetadataRows::problemOf(const ShardRow& row, uint32_t number) const {
    if (!row.offset) {
        const auto known = badRows_.find(number);
        return known != badRows_.end() ? known->second : "the offset of a chunk is not a tuple";
    }
    if (!row.shape) return "the shape of a chunk is not a tuple";
    const auto text = [&](DimsAt where) { return formatDims(DimSpan(dims_).subspan(where.at, where.rank)); };
    if (row.offset.rank != row.shape.rank)
        return fmt::format("a chunk has the offset {} and the shape {}", text(row.offset), text(row.shape));
    if (row.global && row.global.rank != row.shape.rank)
        return fmt::format("a chunk of shape {} belongs to a tensor of shape {}", text(row.shape),
                           text(row.global));
    return {};
}

Status MetadataRows::finishTensors(const RowValue& table) {
    if (table.kind == Kind::none) return {};
    if (table.kind != Kind::dict) return damaged("state_dict_metadata is not a dict");
    Dict dict = dictOf(table);
    const Pairs others = itemsOf(dict.items);
    for (size_t i = 0; i + 1 < others.size(); i += 2) {
        const RowValue& value = others[i + 1];
        if (others[i].kind != Kind::text) return damaged("a tensor of state_dict_metadata has no name");
        const bool list = value.kind == Kind::list || value.kind == Kind::tuple || value.kind == Kind::ints;
        if (!list)
            return damaged("a tensor of state_dict_metadata has no list of chunks")
                .ofTensor(texts_[others[i].a]);
        if (!addTensor(dict, others[i].a, value)) return in().takeError();
    }
    tensorOf_.resize(texts_.size(), kNone);
    std::vector<uint32_t> known;
    const RowSlice tensors = dict.rows[kTensorRows];
    // As a rule the rows already stand in the order of their tensors, and no other ones are among them.
    uint32_t end = 0;
    bool inOrder = true;
    for (uint32_t t = tensors.first; t < tensors.end(); ++t) {
        inOrder = inOrder && tensors_[t].rows.first >= end;
        end = tensors_[t].rows.end();
    }
    std::vector<ShardRow> moved;
    std::vector<ShardRow>& rows = inOrder ? out_.rows : moved;
    uint32_t count = 0;
    for (uint32_t t = tensors.first; t < tensors.end(); ++t) {
        const TensorRecord& tensor = tensors_[t];
        const std::string_view key = texts_[tensor.key];
        uint32_t& place = tensorOf_[tensor.key];
        // Of a key that is set twice the last value counts.
        if (place == kNone) {
            place = static_cast<uint32_t>(out_.tensors.size());
            out_.tensors.push_back({std::string(key)});
        }
        TensorRows& made = out_.tensors[place];
        made.first = count;
        for (uint32_t i = 0; i < tensor.others; ++i)
            noteRow("a chunk is not a LocalTensorMetadata; the chunk is left out", key);
        for (uint32_t r = tensor.rows.first; r < tensor.rows.end(); ++r) {
            ShardRow row = out_.rows[r];
            if (std::string problem = problemOf(row, r); !problem.empty()) {
                noteRow(problem + "; the chunk is left out", key);
                continue;
            }
            if (row.dtype != kNone) row.dtype = listed(row.dtype, out_.dtypes, known);
            if (!inOrder) rows.emplace_back();
            rows[count++] = row;
        }
        made.count = count - made.first;
        if (made.count == 0)
            noteRow("the metadata lists no readable chunk of the tensor; it is left out", key);
    }
    rows.resize(count);
    if (!inOrder) out_.rows = std::move(moved);
    return {};
}

Status MetadataRows::finishStored(const RowValue& table) {
    tensorOf_.resize(texts_.size(), kNone);
    if (table.kind != Kind::none && table.kind != Kind::dict)
        return damaged("storage_metadata is not a dict");
    const Dict dict = dictOf(table);
    if (dict.items.count) return damaged("an entry of storage_metadata is not a LocalTensorIndex");
    keepRows(out_.stored, dict.rows[kStoredRows]);
    std::vector<uint32_t> files, strangers;
    for (StoredRow& row : out_.stored) {
        row.file = listed(row.file, out_.files, files);
        const uint32_t tensor = tensorOf_[row.key];
        row.key = tensor != kNone ? tensor
                                  : static_cast<uint32_t>(out_.tensors.size()) +
                                        listed(row.key, out_.strangers, strangers);
    }
    for (auto& [message, key] : storedNotes_)
        noteRow(std::move(message), texts_[key]);
    joinStored();
    return {};
}

// Puts entries of storage_metadata into the rows of their pieces: those that come in the order of the pieces,
// one for each.
void MetadataRows::joinStored() {
    Metadata& m = out_;
    std::vector<uint32_t> joined(m.tensors.size(), 0);
    const auto rowOf = [&](const StoredRow& stored) -> ShardRow* {
        if (!m.hasTensor(stored) || stored.replica < 0 || stored.replica > INT32_MAX) return nullptr;
        const TensorRows& tensor = m.tensors[stored.key];
        return joined[stored.key] < tensor.count ? &m.rows[tensor.first + joined[stored.key]] : nullptr;
    };
    const auto same = [&](DimsAt a, DimsAt b) {
        if (a.given != b.given || a.rank != b.rank) return false;
        return a.at == b.at ||
               std::ranges::equal(DimSpan(dims_).subspan(a.at, a.rank), DimSpan(dims_).subspan(b.at, b.rank));
    };
    std::erase_if(m.stored, [&](const StoredRow& stored) {
        // Entries come rank by rank, pieces tensor by tensor: nearly every look misses the caches.
        if (&stored + kAhead < m.stored.data() + m.stored.size()) {
            if (const ShardRow* soon = rowOf(*(&stored + kAhead))) __builtin_prefetch(soon, 1);
        }
        ShardRow* row = rowOf(stored);
        if (!row || !same(stored.offset, row->offset) || !same(stored.range, row->range) ||
            (stored.shape && !same(stored.shape, row->shape)))
            return false;
        row->file = stored.file;
        row->replica = static_cast<int32_t>(stored.replica);
        ++joined[stored.key];
        return true;
    });
    m.stored.shrink_to_fit();
}

void MetadataRows::finishPaths(const RowValue& table) {
    const Pairs pairs = itemsOf(dictOf(table).items);
    for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
        const auto parts = itemsOf(pairs[i + 1]);
        if (pairs[i].kind != Kind::text || parts.size() < 2 ||
            parts.size() > static_cast<size_t>(kMaxValueDepth))
            continue;
        if (std::ranges::any_of(parts, [](const RowValue& part) { return part.kind != Kind::text; }))
            continue;
        FlatPath path{std::string(texts_[pairs[i].a]), {}};
        for (const RowValue& part : parts)
            path.parts.emplace_back(texts_[part.a]);
        out_.paths.push_back(std::move(path));
    }
}

Result<Metadata> MetadataRows::finish(const RowValue& root, int protocol) {
    if (!root.is(kMetadata)) return damaged("the pickle holds no Metadata of paddle.distributed", 0);
    const Root record = roots_[root.a];
    out_.protocol = protocol;
    std::vector<std::string> others;
    for (const RowGlobal& global : globals_) {
        const std::string_view module = texts_[global.module];
        if (global.cls == kMetadata && &global == &globals_[static_cast<size_t>(root.b)])
            out_.flexModule = module.find("flex_checkpoint") != std::string_view::npos;
        if (global.cls == kForeign || global.cls > kIndex)
            others.push_back(fmt::format("{}.{}", module, texts_[global.name]));
    }
    out_.notes = globalNotes(others);
    SHARDSCOPE_TRY(finishTensors(record.stateDict));
    SHARDSCOPE_TRY(finishStored(record.storage));
    finishPaths(record.mapping);
    const bool fresh = out_.flexModule;
    // The first flex releases have the fields of 3.0.
    out_.generation = seenReplica_                                     ? Generation::flex3
                      : seenGlobal_ || (fresh && out_.tensors.empty()) ? Generation::flex2
                      : seenDType_ || fresh                            ? Generation::v1
                      : record.hasMapping                              ? Generation::v0b
                                                                       : Generation::v0a;
    out_.dims = std::move(dims_);
    return std::move(out_);
}

}  // namespace

std::string_view generationName(Generation generation) {
    constexpr std::string_view names[] = {"v0a", "v0b", "v1", "flex-v2", "flex-v3"};
    return names[static_cast<size_t>(generation)];
}

std::string_view generationWriter(Generation generation) {
    constexpr std::string_view names[] = {"paddle 2.6", "paddle after 2.6", "paddle 3.0", "paddle 3.2",
                                          "paddle 3.3 or later"};
    return names[static_cast<size_t>(generation)];
}

Result<Metadata> readMetadata(const ReadFile& file, const Limits& limits, const StopToken& stop) {
    return decodeRows<MetadataRows>(file, limits, stop);
}

bool looksLikeMetadata(std::string_view first) {
    return first.find("paddle.distributed.") != std::string_view::npos &&
           first.find("Metadata") != std::string_view::npos;
}

}  // namespace shardscope::paddle
