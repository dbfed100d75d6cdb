#include "formats/paddle_dist/metadata_fast.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "encoding/pickle_lexer.h"
#include "encoding/pickle_text.h"

namespace shardscope::paddle {

namespace {

class Machine {
  public:
    Machine(std::span<const std::byte> bytes, const Limits& limits)
        : base_(reinterpret_cast<const char*>(bytes.data())), lexer_(bytes, limits.pickleText) {}

    bool run() {
        for (;;) {
            if (!lexer_.next(op_)) return false;
            if (op_.code == PickleOpcode::stop) return finish();
            if (!step()) return false;
        }
    }
    Metadata take() { return std::move(out_); }

  private:
    enum class Kind : uint8_t { none, boolean, integer, text, dims, path, list, dict, cls, instance };
    enum Cls : uint32_t { kMetadata, kShard, kIndex };
    enum Field : uint32_t {
        kOffset,
        kShape,
        kDType,
        kGlobal,
        kIsFlat,
        kRange,
        kKey,
        kReplica,
        kStateDict,
        kStorage,
        kMapping,
        kFieldCount
    };
    // text: a = length, b = where it stands. dims: a = rank, b = in Metadata::dims. path: a = index. list,
    // dict: a = index. cls: a = Cls. instance: a = Cls, b = row, -1 before it is built.
    struct V {
        Kind kind = Kind::none;
        uint32_t a = 0;
        int64_t b = 0;
    };
    struct List {
        bool rows = false, dims = false;
        uint32_t first = 0, count = 0;
        DimsAt where;
    };
    struct Dict {
        enum class What : uint8_t { empty, fields, tensors, stored, paths } what = What::empty;
        uint32_t mask = 0;
        std::array<V, kFieldCount> fields;
    };
    struct Tensor {
        V key;
        uint32_t first = 0, count = 0;
    };

    std::string_view textOf(const V& v) const { return {base_ + v.b, v.a}; }
    bool push(V v) {
        stack_.push_back(v);
        return true;
    }
    size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
    bool need(size_t count) const { return stack_.size() - floor() >= count; }
    bool popMark(size_t& begin) {
        if (marks_.empty()) return false;
        begin = marks_.back();
        marks_.pop_back();
        return true;
    }

    bool step() {
        switch (op_.code) {
            case PickleOpcode::proto:
                out_.protocol = static_cast<int>(op_.number);
                return op_.number >= 2 && op_.number <= 5;
            case PickleOpcode::none:
                return push({});
            case PickleOpcode::newTrue:
            case PickleOpcode::newFalse:
                return push({Kind::boolean, 0, op_.code == PickleOpcode::newTrue});
            case PickleOpcode::binInt:
            case PickleOpcode::binInt1:
            case PickleOpcode::binInt2:
                return push({Kind::integer, 0, static_cast<int64_t>(op_.number)});
            case PickleOpcode::long1:
                if (op_.text.size() > 8) return false;
                return push({Kind::integer, 0, pickle_text::smallInteger(op_.text)});
            case PickleOpcode::shortBinUnicode:
            case PickleOpcode::binUnicode:
                if (!pickle_text::isUtf8(op_.text)) return false;
                return push({Kind::text, static_cast<uint32_t>(op_.text.size()), op_.text.data() - base_});
            case PickleOpcode::mark:
                marks_.push_back(stack_.size());
                return true;
            case PickleOpcode::emptyTuple:
                return tuple(stack_.size());
            case PickleOpcode::tuple1:
                return need(1) && tuple(stack_.size() - 1);
            case PickleOpcode::tuple2:
                return need(2) && tuple(stack_.size() - 2);
            case PickleOpcode::tuple3:
                return need(3) && tuple(stack_.size() - 3);
            case PickleOpcode::tuple: {
                size_t begin = 0;
                return popMark(begin) && tuple(begin);
            }
            case PickleOpcode::emptyList:
                lists_.emplace_back();
                return push({Kind::list, static_cast<uint32_t>(lists_.size() - 1), 0});
            case PickleOpcode::append:
                return need(2) && append(stack_.size() - 1);
            case PickleOpcode::appends: {
                size_t begin = 0;
                return popMark(begin) && append(begin);
            }
            case PickleOpcode::emptyDict:
                return emptyDict();
            case PickleOpcode::setItem:
                return need(3) && setItems(stack_.size() - 2);
            case PickleOpcode::setItems: {
                size_t begin = 0;
                return popMark(begin) && setItems(begin);
            }
            case PickleOpcode::stackGlobal: {
                if (!need(2)) return false;
                const V name = stack_.back();
                const V module = stack_[stack_.size() - 2];
                stack_.resize(stack_.size() - 2);
                return name.kind == Kind::text && module.kind == Kind::text &&
                       cls(textOf(module), textOf(name));
            }
            case PickleOpcode::global:
                return cls(op_.text, op_.text2);
            case PickleOpcode::newObj: {
                if (!need(2)) return false;
                const V arguments = stack_.back();
                stack_.pop_back();
                V& made = stack_.back();
                if (made.kind != Kind::cls || arguments.kind != Kind::dims || arguments.a != 0) return false;
                made.kind = Kind::instance;
                made.b = -1;
                return true;
            }
            case PickleOpcode::build:
                return need(2) && build();
            case PickleOpcode::memoize:
                return need(1) && remember(memo_.size());
            case PickleOpcode::binPut:
            case PickleOpcode::longBinPut:
                return need(1) && remember(op_.number);
            case PickleOpcode::binGet:
            case PickleOpcode::longBinGet:
                return recall(op_.number);
            default:
                return false;
        }
    }

    bool remember(uint64_t index) {
        // As picklers number them: one after the other.
        if (index > memo_.size()) return false;
        if (index == memo_.size()) {
            memo_.push_back(stack_.back());
        } else {
            memo_[index] = stack_.back();
        }
        return true;
    }
    bool recall(uint64_t index) {
        if (index >= memo_.size()) return false;
        const V v = memo_[index];
        // What may have changed since is not taken.
        if (v.kind == Kind::dict || v.kind == Kind::instance) return false;
        return push(v);
    }

    bool cls(std::string_view module, std::string_view name) {
        const auto isPlain = [](char c) {
            return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
        };
        if (!isMetadataModule(module) || !std::all_of(module.begin(), module.end(), isPlain)) return false;
        if (name == "Metadata") {
            if (named_) return false;
            named_ = true;
            out_.flexModule = module.find("flex_checkpoint") != std::string_view::npos;
            return push({Kind::cls, kMetadata, 0});
        }
        if (name == "LocalTensorMetadata") return push({Kind::cls, kShard, 0});
        return name == "LocalTensorIndex" && push({Kind::cls, kIndex, 0});
    }

    bool dims(size_t begin, DimsAt& where) {
        where = {out_.dims.size(), static_cast<uint32_t>(stack_.size() - begin)};
        if (where.rank > kMaxRank) return false;
        for (size_t i = begin; i < stack_.size(); ++i) {
            const V& v = stack_[i];
            if (v.kind != Kind::integer || v.b > kMaxDim || v.b < -kMaxDim) return false;
            out_.dims.push_back(v.b);
        }
        return true;
    }

    bool tuple(size_t begin) {
        if (begin < stack_.size() && stack_[begin].kind == Kind::text) {
            std::vector<V> parts(stack_.begin() + static_cast<ptrdiff_t>(begin), stack_.end());
            for (const V& part : parts) {
                if (part.kind != Kind::text) return false;
            }
            stack_.resize(begin);
            paths_.push_back(std::move(parts));
            return push({Kind::path, static_cast<uint32_t>(paths_.size() - 1), 0});
        }
        DimsAt where;
        if (!dims(begin, where)) return false;
        stack_.resize(begin);
        return push({Kind::dims, where.rank, static_cast<int64_t>(where.at)});
    }

    bool append(size_t begin) {
        if (begin == 0 || begin > stack_.size() || stack_[begin - 1].kind != Kind::list) return false;
        List& list = lists_[stack_[begin - 1].a];
        if (begin == stack_.size()) return true;
        if (stack_[begin].kind == Kind::integer) {
            if (list.rows || list.dims || !dims(begin, list.where)) return false;
            list.dims = true;
        } else {
            if (list.dims) return false;
            for (size_t i = begin; i < stack_.size(); ++i) {
                const V& v = stack_[i];
                if (v.kind != Kind::instance || v.a != kShard || v.b < 0) return false;
                if (!list.rows) list.first = static_cast<uint32_t>(v.b);
                list.rows = true;
                if (v.b != int64_t{list.first} + list.count) return false;
                ++list.count;
            }
        }
        stack_.resize(begin);
        return true;
    }

    bool emptyDict() {
        uint32_t index = 0;
        if (freeDicts_.empty()) {
            index = static_cast<uint32_t>(dicts_.size());
            dicts_.emplace_back();
        } else {
            index = freeDicts_.back();
            freeDicts_.pop_back();
            dicts_[index].what = Dict::What::empty;
            dicts_[index].mask = 0;
        }
        return push({Kind::dict, index, 0});
    }

    bool field(std::string_view name, uint32_t& out) const {
        constexpr std::array<std::string_view, kFieldCount> names{
            "global_offset",       "local_shape",      "dtype",       "global_shape",
            "is_flattened",        "flattened_range",  "tensor_key",  "replica_id",
            "state_dict_metadata", "storage_metadata", "flat_mapping"};
        for (uint32_t i = 0; i < kFieldCount; ++i) {
            if (names[i] == name) {
                out = i;
                return true;
            }
        }
        return false;
    }

    bool setItems(size_t begin) {
        if (begin == 0 || begin > stack_.size() || stack_[begin - 1].kind != Kind::dict) return false;
        if ((stack_.size() - begin) % 2 != 0) return false;
        Dict& dict = dicts_[stack_[begin - 1].a];
        for (size_t i = begin; i < stack_.size(); i += 2) {
            const V& key = stack_[i];
            const V& value = stack_[i + 1];
            Dict::What what = Dict::What::fields;
            if (key.kind == Kind::instance) {
                what = Dict::What::stored;
            } else if (key.kind != Kind::text) {
                return false;
            } else if (value.kind == Kind::path) {
                what = Dict::What::paths;
            } else if (value.kind == Kind::list && lists_[value.a].rows) {
                what = Dict::What::tensors;
            } else if (value.kind == Kind::list && !lists_[value.a].dims && dict.what != Dict::What::fields) {
                return false;  // empty: of what, nobody knows
            }
            if (dict.what == Dict::What::empty) dict.what = what;
            if (dict.what != what) return false;
            switch (what) {
                case Dict::What::fields: {
                    uint32_t number = 0;
                    if (!field(textOf(key), number)) return false;
                    dict.fields[number] = value;
                    dict.mask |= 1U << number;
                    break;
                }
                case Dict::What::tensors:
                    tensors_.push_back({key, lists_[value.a].first, lists_[value.a].count});
                    break;
                case Dict::What::stored:
                    if (key.a != kIndex || key.b < 0 || value.kind != Kind::text) return false;
                    if (!intern(value, out_.files, files_, lastFile_,
                                out_.stored[static_cast<size_t>(key.b)].file))
                        return false;
                    ++storedCount_;
                    break;
                default:
                    flat_.emplace_back(key, value.a);
            }
        }
        stack_.resize(begin);
        return true;
    }

    bool intern(const V& text, std::vector<std::string>& list,
                std::unordered_map<std::string_view, uint32_t>& known, std::pair<int64_t, uint32_t>& last,
                uint32_t& out) {
        // The pickler memoizes texts, so the same text as a rule stands at the same place.
        if (last.first == text.b && !list.empty()) {
            out = last.second;
            return true;
        }
        const auto [it, fresh] = known.try_emplace(textOf(text), static_cast<uint32_t>(list.size()));
        if (fresh) list.emplace_back(textOf(text));
        last = {text.b, it->second};
        out = it->second;
        return true;
    }

    bool asDims(const V& v, DimsAt& where) const {
        if (v.kind == Kind::dims) {
            where = {static_cast<uint64_t>(v.b), v.a};
            return true;
        }
        if (v.kind != Kind::list || lists_[v.a].rows) return false;
        where = lists_[v.a].where;  // of an empty list: rank 0
        return true;
    }
    template <class Row>
    bool readFlat(const Dict& d, Row& row) const {
        const auto has = [&](Field f) { return (d.mask >> f & 1) != 0 && d.fields[f].kind != Kind::none; };
        if (!has(kIsFlat)) return true;
        if (d.fields[kIsFlat].kind != Kind::boolean) return false;
        if (d.fields[kIsFlat].b == 0 || !has(kRange)) return true;
        DimsAt where;
        if (!asDims(d.fields[kRange], where) || where.rank != 2) return false;
        row.flat = true;
        row.range = {out_.dims[where.at], out_.dims[where.at + 1]};
        return row.range.start >= 0 && row.range.stop >= row.range.start;
    }

    bool build() {
        const V state = stack_.back();
        stack_.pop_back();
        V& target = stack_.back();
        if (state.kind != Kind::dict || target.kind != Kind::instance || target.b >= 0) return false;
        const Dict& d = dicts_[state.a];
        if (d.what != Dict::What::fields) return false;
        const auto has = [&](Field f) { return (d.mask >> f & 1) != 0 && d.fields[f].kind != Kind::none; };
        const auto there = [&](Field f) { return (d.mask >> f & 1) != 0; };
        if (target.a == kShard) {
            ShardRow row;
            if (!there(kOffset) || !asDims(d.fields[kOffset], row.offset)) return false;
            if (!there(kShape) || !asDims(d.fields[kShape], row.shape)) return false;
            if (row.offset.rank != row.shape.rank) return false;
            seen_.global = seen_.global || there(kGlobal);
            if (has(kDType)) {
                seen_.dtype = true;
                if (d.fields[kDType].kind != Kind::text ||
                    !intern(d.fields[kDType], out_.dtypes, dtypes_, lastDType_, row.dtype))
                    return false;
            }
            if (has(kGlobal)) {
                DimsAt global;
                if (!asDims(d.fields[kGlobal], global) || global.rank != row.shape.rank) return false;
                row.global = global;
            }
            if (!readFlat(d, row)) return false;
            target.b = static_cast<int64_t>(rows_.size());
            rows_.push_back(row);
        } else if (target.a == kIndex) {
            StoredRow row;
            if (!there(kOffset) || !asDims(d.fields[kOffset], row.offset)) return false;
            if (!there(kKey) || d.fields[kKey].kind != Kind::text) return false;
            if (has(kShape)) {
                DimsAt shape;
                if (!asDims(d.fields[kShape], shape)) return false;
                row.shape = shape;
            }
            if (!readFlat(d, row)) return false;
            seen_.replica = seen_.replica || there(kReplica);
            if (has(kReplica)) {
                if (d.fields[kReplica].kind != Kind::integer) return false;
                row.replica = d.fields[kReplica].b;
            }
            target.b = static_cast<int64_t>(out_.stored.size());
            out_.stored.push_back(row);
            storedKeys_.push_back(d.fields[kKey]);
        } else {
            // Each of the tables is one dict of the Metadata.
            const auto table = [&](Field f, Dict::What what) {
                if (!has(f)) return true;
                const V& v = d.fields[f];
                if (v.kind != Kind::dict) return false;
                return dicts_[v.a].what == what || dicts_[v.a].what == Dict::What::empty;
            };
            if (built_ || !table(kStateDict, Dict::What::tensors) || !table(kStorage, Dict::What::stored) ||
                !table(kMapping, Dict::What::paths))
                return false;
            seen_.mapping = there(kMapping);
            built_ = true;
            target.b = 0;
            return true;
        }
        freeDicts_.push_back(state.a);
        return true;
    }

    bool finish() {
        if (stack_.size() != 1 || !marks_.empty() || !built_) return false;
        if (stack_[0].kind != Kind::instance || stack_[0].a != kMetadata) return false;
        // Every row has its place, and only one.
        size_t listed = 0;
        for (const Tensor& tensor : tensors_)
            listed += tensor.count;
        if (listed != rows_.size() || storedCount_ != out_.stored.size()) return false;
        std::unordered_map<std::string_view, uint32_t> places;
        places.reserve(tensors_.size());
        out_.tensors.reserve(tensors_.size());
        for (const Tensor& tensor : tensors_) {
            const std::string_view key = textOf(tensor.key);
            if (!places.try_emplace(key, static_cast<uint32_t>(out_.tensors.size())).second) return false;
            const auto first = rows_.begin() + tensor.first;
            out_.tensors.push_back({std::string(key), {first, first + tensor.count}});
        }
        std::unordered_map<std::string_view, uint32_t> strangers;
        int64_t last = -1;
        uint32_t lastTensor = kNone;
        for (size_t i = 0; i < out_.stored.size(); ++i) {
            const V& key = storedKeys_[i];
            if (key.b != last) {
                const auto place = places.find(textOf(key));
                lastTensor = place == places.end() ? kNone : place->second;
                last = key.b;
            }
            out_.stored[i].tensor = lastTensor;
            if (lastTensor != kNone) continue;
            std::pair<int64_t, uint32_t> none{-1, 0};
            if (!intern(key, out_.strangers, strangers, none, out_.stored[i].stranger)) return false;
        }
        for (const auto& [key, index] : flat_) {
            const std::vector<V>& parts = paths_[index];
            if (parts.size() < 2) continue;
            if (parts.size() > static_cast<size_t>(kMaxValueDepth)) return false;
            FlatPath path{std::string(textOf(key)), {}};
            for (const V& part : parts)
                path.parts.emplace_back(textOf(part));
            out_.paths.push_back(std::move(path));
        }
        seen_.tensors = !out_.tensors.empty();
        out_.generation = generationOf(seen_, out_.flexModule);
        return true;
    }

    const char* base_;
    PickleLexer lexer_;
    PickleOp op_;
    std::vector<V> stack_, memo_;
    std::vector<size_t> marks_;
    std::vector<List> lists_;
    std::vector<Dict> dicts_;
    std::vector<uint32_t> freeDicts_;
    std::vector<std::vector<V>> paths_;
    std::vector<std::pair<V, uint32_t>> flat_;
    std::vector<Tensor> tensors_;
    std::vector<ShardRow> rows_;
    std::vector<V> storedKeys_;
    std::unordered_map<std::string_view, uint32_t> files_, dtypes_;
    std::pair<int64_t, uint32_t> lastFile_{-1, 0}, lastDType_{-1, 0};
    size_t storedCount_ = 0;
    SeenFields seen_;
    bool built_ = false, named_ = false;
    Metadata out_;
};

}  // namespace

std::optional<Metadata> decodeMetadataFast(std::span<const std::byte> bytes, const Limits& limits) {
    Machine machine(bytes, limits);
    if (!machine.run()) return std::nullopt;
    return machine.take();
}

}  // namespace shardscope::paddle
