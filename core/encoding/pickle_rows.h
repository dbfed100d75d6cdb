// For pickles that are tables of a million rows: a handler (pickle_machine.h) whose values are 16 bytes and
// never allocated one by one. Objects of the classes that a format knows go to its own columns as soon as
// their attributes are there; everything else becomes inert.
#pragma once

#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/rule.h"
#include "base/units.h"
#include "encoding/pickle_machine.h"
#include "encoding/text_table.h"

namespace shardscope {

struct RowValue {
    enum class Kind : uint8_t {
        none,
        boolean,
        integer,
        text,
        bytes,    // of up to 8 bytes, in `b`; longer ones are opaque
        global,   // a: index into globals()
        ints,     // a tuple of integers: the range of `b` values of the dims column that begins at `a`
        oneInts,  // a tuple of such a tuple
        tuple,    // `b` items from `a` on
        list,
        dict,
        object,  // of a class of the format: `a` is what the format says
        opaque,
        unset
    };
    Kind kind = Kind::none;
    uint8_t cls = 0;  // of a global or an object; 0 = unknown
    uint16_t unused = 0;
    uint32_t a = kNoRow;
    int64_t b = 0;  // number, count, or index of an object's class in globals()

    static constexpr uint32_t kNoRow = UINT32_MAX;
    constexpr RowValue() = default;
    // All but b in one store, because copies load them at once.
    constexpr RowValue(Kind k, uint8_t c, uint32_t at, int64_t number) {
        *this = std::bit_cast<RowValue>(std::array<uint64_t, 2>{
            static_cast<uint64_t>(k) | uint64_t{c} << 8 | uint64_t{at} << 32, static_cast<uint64_t>(number)});
    }
    bool is(uint8_t wanted) const { return kind == Kind::object && cls == wanted; }
    bool isGlobal(uint8_t wanted) const { return kind == Kind::global && cls == wanted; }
};
static_assert(sizeof(RowValue) == 16);

// Rows of a column, or items, that follow one another.
struct RowSlice {
    uint32_t first = 0;
    uint32_t count = 0;
    uint32_t end() const { return first + count; }
};

// A class or function that the pickle names.
struct RowGlobal {
    TextId module = 0;
    TextId name = 0;
    uint8_t cls = 0;
    bool called = false;  // by something else than a class of the format
    uint64_t offset = 0;
};

// `Format` derives from this and has
//   uint8_t classify(module, name)                    0 for what it does not know
//   bool construct(RowValue& object)                  sets a; `cls` is known
//   bool call(cls, arguments, RowValue& made)         REDUCE of a known class
//   bool setAttributes(RowValue& object, pairs)       of a known class; keys may be anything
//   bool setState(RowValue& object, state, bool& done)  a state that is not a dict
//   bool addRow(dict, key, value, bool& done)         a pair of a dict, which may be a row
//   bool addListRow(list, value, bool& done)          an item of a list, which may be a row
//   void taken(pairs)                                 after addRow() of all of them
//   void pin(value)                                   the memo has it from now on
// All take errors to in().fail().
template <class Format>
class PickleRows {
  public:
    using Value = RowValue;
    using Kind = RowValue::Kind;
    using Pairs = std::span<const RowValue>;
    static constexpr RowValue kUnset{Kind::unset, 0, 0, 0};
    static bool isUnset(const RowValue& v) { return v.kind == Kind::unset; }

    // `words`: attribute names, whose TextIds are their positions. `memory` bounds values that are not rows.
    PickleRows(std::span<const std::string_view> words, uint64_t memory)
        : maxItems_(
              static_cast<size_t>(std::min<uint64_t>(memory / sizeof(RowValue), RowValue::kNoRow - 1))) {
        for (const std::string_view word : words)
            texts_.intern(word);
        wordCount_ = static_cast<TextId>(texts_.size());
    }

    // --- for the machine
    void begin(PickleStream& in) { in_ = &in; }
    RowValue none() { return {}; }
    RowValue boolean(bool value) { return {Kind::boolean, 0, 0, value}; }
    RowValue integer(int64_t value) { return {Kind::integer, 0, 0, value}; }
    RowValue bigInteger(std::string_view) { return {Kind::opaque, 0, 0, 0}; }
    RowValue real(double) { return {Kind::opaque, 0, 0, 0}; }
    RowValue persistent(const RowValue&) { return {Kind::opaque, 0, 0, 0}; }

    bool text(PickleText kind, std::string_view bytes, RowValue& made) {
        // A Python 2 str is text where it is UTF-8.
        if (kind >= PickleText::bytes || (kind == PickleText::python2 && !pickle_text::isUtf8(bytes))) {
            made = bytesValue(bytes);
            return true;
        }
        const size_t known = texts_.size();
        if (known >= RowValue::kNoRow - 1) return in_->failLimit("more than 4 billion strings");
        made = {Kind::text, 0, texts_.intern(bytes), 0};
        return made.a < known || kind == PickleText::python2 || pickle_text::isUtf8(bytes) ||
               in_->fail("a text is not UTF-8");
    }

    bool global(std::string_view module, std::string_view name, RowValue& made) {
        const auto [module3, name3] = pickle_text::python3Name(module, name);
        const TextId moduleId = texts_.intern(module3);
        const TextId nameId = texts_.intern(name3);
        const uint64_t both = uint64_t{moduleId} << 32 | nameId;
        const auto [at, fresh] = globalIds_.try_emplace(both, static_cast<uint32_t>(globals_.size()));
        if (fresh) {
            constexpr size_t kMostGlobals = 10'000;
            if (globals_.size() >= kMostGlobals)
                return in_->failLimit("the pickle names more than 10,000 classes");
            globals_.push_back({moduleId, nameId, format().classify(module3, name3), false, in_->offset()});
            if (in_->failed()) return false;
        }
        made = {Kind::global, globals_[at->second].cls, at->second, 0};
        return true;
    }
    bool stackGlobal(const RowValue& module, const RowValue& name, RowValue& made) {
        if (module.kind != Kind::text || name.kind != Kind::text)
            return global(pickle_text::kDynamicName, pickle_text::kDynamicName, made);
        // Copies: interning may move the texts.
        return global(std::string(texts_[module.a]), std::string(texts_[name.a]), made);
    }

    bool container(PickleContainer kind, std::span<const RowValue> items, RowValue& made) {
        switch (kind) {
            case PickleContainer::tuple:
                return tuple(items, made);
            case PickleContainer::list:
                made = {Kind::list, 0, RowValue::kNoRow, 0};
                return items.empty() || append(made, items);
            case PickleContainer::dict:
                made = {Kind::dict, 0, RowValue::kNoRow, 0};
                return items.empty() || setItems(made, items);
            default:
                made = {Kind::opaque, 0, 0, 0};
                return true;
        }
    }
    bool append(RowValue& to, std::span<const RowValue> items) {
        if (to.kind != Kind::list) return true;  // of an object that is inert
        identify(to);
        for (const RowValue& item : items) {
            bool done = false;
            if (!format().addListRow(lists_[to.a], item, done)) return false;
            if (!done && !addItem(lists_[to.a].items, item)) return false;
        }
        return true;
    }
    bool addToSet(RowValue&, std::span<const RowValue>) { return true; }
    bool setItems(RowValue& to, Pairs pairs) {
        if (to.kind != Kind::dict) return true;
        identify(to);
        for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
            Dict& dict = dicts_[to.a];
            bool done = false;
            if (!format().addRow(dict, pairs[i], pairs[i + 1], done)) return false;
            if (!done && !(addItem(dict.items, pairs[i]) && addItem(dict.items, pairs[i + 1]))) return false;
        }
        format().taken(pairs);
        return true;
    }
    // Straight into the object, where nobody else has the dict.
    bool attributes(RowValue& object, const RowValue& dict, Pairs pairs, bool& done) {
        done = object.kind == Kind::object && dict.kind == Kind::dict && dict.a == RowValue::kNoRow;
        return !done || format().setAttributes(object, pairs);
    }

    bool reduce(const RowValue& callable, const RowValue& arguments, RowValue& made) {
        made = {Kind::opaque, 0, 0, 0};
        if (callable.kind != Kind::global) return true;
        if (callable.cls != 0) return format().call(callable, arguments, made);
        globals_[callable.a].called = true;
        return true;
    }
    bool newObject(const RowValue& cls, const RowValue&, const RowValue*, RowValue& made) {
        made = {Kind::opaque, 0, 0, 0};
        if (cls.kind != Kind::global || cls.cls == 0) return true;
        made = {Kind::object, cls.cls, RowValue::kNoRow, cls.a};
        return format().construct(made);
    }
    // INST and OBJ call the class.
    bool instance(const RowValue& cls, std::span<const RowValue>, RowValue& made) {
        if (cls.kind == Kind::global && cls.cls == 0) globals_[cls.a].called = true;
        return newObject(cls, {}, nullptr, made);
    }
    bool build(RowValue& object, const RowValue& state) {
        if (object.kind != Kind::object && object.kind != Kind::opaque) return true;
        bool done = false;
        if (state.kind != Kind::dict && (!format().setState(object, state, done) || done)) return done;
        RowValue parts[] = {state, {}};
        if (state.kind == Kind::tuple && state.b == 2)  // (state, slots)
            std::copy_n(itemsOf(state).begin(), 2, parts);
        for (const RowValue& part : parts) {
            if (part.kind != Kind::dict || part.a == RowValue::kNoRow) continue;
            // A copy: attributes may add items.
            const auto items = itemsOf(dicts_[part.a].items);
            const std::vector<RowValue> pairs(items.begin(), items.end());
            if (!format().setAttributes(object, pairs)) return false;
        }
        return true;
    }
    void memoized(RowValue& value) {
        identify(value);
        format().pin(value);
    }

  protected:
    struct List {
        RowSlice items, rows;
    };
    struct Dict {
        RowSlice items;  // key, value, key, value, ...
        std::array<RowSlice, 3> rows;
    };

    PickleStream& in() { return *in_; }
    void pin(const RowValue&) {}
    void taken(Pairs) {}
    // Records of objects that are needed until their pair of a dict is a row. They stay longer only where the
    // memo may hand them out again.
    template <class T>
    struct Passing : std::vector<T> {
        size_t pinned = 0;
        void pin() { pinned = this->size(); }
        void taken(uint32_t from) { this->resize(std::min(this->size(), std::max<size_t>(pinned, from))); }
    };
    bool setState(RowValue&, const RowValue&, bool&) { return true; }
    bool addListRow(List&, const RowValue&, bool&) { return true; }

    std::span<const RowValue> itemsOf(RowSlice slice) const {
        return std::span(items_).subspan(slice.first, slice.count);
    }
    // Of a tuple or a list; of anything else, none.
    std::span<const RowValue> itemsOf(const RowValue& value) const {
        if (value.kind == Kind::tuple) return itemsOf({value.a, static_cast<uint32_t>(value.b)});
        if (value.kind == Kind::list && value.a != RowValue::kNoRow) return itemsOf(lists_[value.a].items);
        return {};
    }
    const List* listOf(const RowValue& value) const {
        return value.kind == Kind::list && value.a != RowValue::kNoRow ? &lists_[value.a] : nullptr;
    }
    Dict dictOf(const RowValue& value) const {
        return value.kind == Kind::dict && value.a != RowValue::kNoRow ? dicts_[value.a] : Dict{};
    }
    // Hands `take` the attributes whose names are texts, until it returns false.
    template <class Take>
    static bool eachAttribute(Pairs pairs, Take&& take) {
        for (size_t i = 0; i + 1 < pairs.size(); i += 2)
            if (pairs[i].kind == Kind::text && !take(pairs[i].a, pairs[i + 1])) return false;
        return true;
    }
    // An object begins, with a record of its own.
    template <class T>
    bool record(RowValue& object, std::vector<T>& records, std::type_identity_t<T> made = {}) {
        if (records.size() >= RowValue::kNoRow - 1) return in_->failLimit("the pickle holds too many values");
        object = {object.kind, object.cls, static_cast<uint32_t>(records.size()), object.b};
        records.push_back(std::move(made));
        return true;
    }
    // Adds the integers to the dims column and sets `at` to their start. False when the column is full.
    bool addInts(std::span<const RowValue> items, uint32_t& at);

    // To the end of a slice, which moves there when another one was filled in between.
    template <class T>
    bool appendRow(std::vector<T>& rows, RowSlice& slice, const T& row, size_t most = RowValue::kNoRow - 1) {
        if (slice.count == 0) slice.first = static_cast<uint32_t>(rows.size());
        if (slice.end() != rows.size()) {
            constexpr uint64_t kMostMoved = uint64_t{64} << 20;
            moved_ += slice.count;
            if (moved_ > kMostMoved)
                return in_->failLimit("the pickle fills its containers in too mixed an order");
            const size_t first = rows.size();
            for (uint32_t i = 0; i < slice.count; ++i)
                rows.push_back(T(rows[slice.first + i]));
            slice.first = static_cast<uint32_t>(first);
        }
        if (rows.size() >= most) return in_->failLimit("the pickle holds too many values");
        rows.push_back(row);
        ++slice.count;
        return true;
    }
    // Row `at` becomes the next one of a slice; as a rule it already stands behind it.
    template <class T>
    bool joinRow(std::vector<T>& rows, RowSlice& slice, uint32_t at) {
        if (slice.count == 0) slice.first = at;
        if (slice.end() != at) return appendRow(rows, slice, T(rows[at]));
        ++slice.count;
        return true;
    }
    // The rows of a slice alone.
    template <class T>
    static void keepRows(std::vector<T>& rows, RowSlice slice) {
        rows.erase(rows.begin() + slice.end(), rows.end());
        rows.erase(rows.begin(), rows.begin() + slice.first);
    }

    TextTable texts_;
    std::vector<int64_t> dims_;
    std::vector<RowGlobal> globals_;
    TextId wordCount_ = 0;

  private:
    Format& format() { return static_cast<Format&>(*this); }
    bool addItem(RowSlice& slice, const RowValue& item) { return appendRow(items_, slice, item, maxItems_); }
    static RowValue bytesValue(std::string_view bytes) {
        if (bytes.size() > sizeof(int64_t)) return {Kind::opaque, 0, 0, 0};
        RowValue made{Kind::bytes, 0, static_cast<uint32_t>(bytes.size()), 0};
        std::memcpy(&made.b, bytes.data(), bytes.size());
        return made;
    }
    // Containers are made when there is something to remember of them.
    void identify(RowValue& value) {
        if (value.a != RowValue::kNoRow) return;
        if (value.kind == Kind::list) {
            value.a = static_cast<uint32_t>(lists_.size());
            lists_.emplace_back();
        } else if (value.kind == Kind::dict) {
            value.a = static_cast<uint32_t>(dicts_.size());
            dicts_.emplace_back();
        }
    }
    bool tuple(std::span<const RowValue> items, RowValue& made) {
        bool ints = true;
        for (const RowValue& item : items)
            ints &= item.kind == Kind::integer;
        if (ints) {
            uint32_t at = 0;
            if (!addInts(items, at)) return false;
            made = {Kind::ints, 0, at, static_cast<int64_t>(items.size())};
            return true;
        }
        if (items.size() == 1 && items[0].kind == Kind::ints) {
            made = {Kind::oneInts, 0, items[0].a, items[0].b};
            return true;
        }
        made = {Kind::tuple, 0, static_cast<uint32_t>(items_.size()), static_cast<int64_t>(items.size())};
        if (items_.size() + items.size() > maxItems_)
            return in_->failLimit("the pickle holds too many values");
        items_.insert(items_.end(), items.begin(), items.end());
        return true;
    }

    PickleStream* in_ = nullptr;
    size_t maxItems_;
    std::vector<RowValue> items_;
    std::vector<List> lists_;
    std::vector<Dict> dicts_;
    std::unordered_map<uint64_t, uint32_t> globalIds_;  // by module and name
    // Where tuples of few integers were put, by their hash: shapes and offsets come again and again.
    std::array<uint32_t, 4096> knownInts_{};
    uint64_t moved_ = 0;
};

template <class Format>
bool PickleRows<Format>::addInts(std::span<const RowValue> items, uint32_t& at) {
    if (dims_.size() + items.size() >= RowValue::kNoRow)
        return in_->failLimit("the pickle holds more than 4 billion integers in tuples");
    uint64_t hash = items.size();
    for (const RowValue& item : items)
        hash = (hash ^ static_cast<uint64_t>(item.b)) * 0x9e3779b97f4a7c15;
    uint32_t& known = knownInts_[hash >> 52];
    bool same = known + items.size() <= dims_.size();
    for (size_t i = 0; same && i < items.size(); ++i)
        same = dims_[known + i] == items[i].b;
    if (!same) {
        known = static_cast<uint32_t>(dims_.size());
        for (const RowValue& item : items)
            dims_.push_back(item.b);
    }
    at = known;
    return true;
}

// What Rows(limits, number of objects) makes of the pickle that a file is. A first pass finds what the memo
// hands out again. Errors, with file and, if known, offset: damaged, limit, io, those of Rows::finish().
template <class Rows, class Limits>
auto decodeRows(const ReadFile& file, const Limits& limits, const StopToken& stop)
    -> decltype(std::declval<Rows&>().finish(RowValue(), 0)) {
    SHARDSCOPE_TRY(stop.poll());
    if (file.size() == 0) {
        return damaged("the metadata file is empty", 0)
            .byRule(rule::fileTruncated)
            .inFile(file.path())
            .withHint("the save died while it wrote its metadata; use an earlier one");
    }
    if (file.size() > limits.pickleBytes) {
        return makeError(ErrorCode::limit,
                         fmt::format("the metadata has {}, more than the {} that are read",
                                     counted(file.size(), "byte"), countText(limits.pickleBytes)))
            .inFile(file.path());
    }
    PickleLiveMemo use;
    PickleStream first(PickleWindow(file, stop), 0, limits.pickleText);
    const auto failed = [&](PickleStream& in) {
        Error error = in.takeError().inFile(file.path());
        if (!in.truncated()) return error;
        return std::move(error)
            .byRule(rule::fileTruncated)
            .withHint("the metadata was probably not written or copied completely");
    };
    if (!first.scan(use)) return failed(first);
    Rows rows(limits, use.objects());
    constexpr uint64_t kStackBytes = uint64_t{64} << 20;
    PickleMachine machine(rows, PickleWindow(file, stop), 0, limits.pickleText, kStackBytes, &use);
    if (!machine.run()) return failed(machine);
    auto made = rows.finish(machine.root(), machine.protocol());
    if (!made.ok()) return std::move(made).error().at(machine.offset()).inFile(file.path());
    return made;
}

}  // namespace shardscope
