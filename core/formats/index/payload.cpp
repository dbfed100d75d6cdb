#include "formats/index/payload.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/rule.h"
#include "base/units.h"
#include "encoding/pickle.h"

namespace shardscope {
namespace {

constexpr uint64_t kMostRanks = uint64_t{1} << 20;
constexpr uint64_t kMostAxes = 64;
constexpr size_t kPathKinds = static_cast<size_t>(PathPart::Kind::attribute) + 1;
constexpr uint64_t kValueBytes = uint64_t{4} << 20;       // of one object's pickle
constexpr uint64_t kAllValuesBytes = uint64_t{64} << 20;  // of all of them together
constexpr size_t kPollEvery = 1024;                       // tensors

bool isIndexed(PathPart::Kind kind) {
    return kind == PathPart::Kind::integerKey || kind == PathPart::Kind::index ||
           kind == PathPart::Kind::tupleIndex;
}

// ------------------------------------------------------------------ writing

// Numbers as LEB128, signed ones folded so that small ones stay short, texts behind their length.
class Output {
  public:
    void number(uint64_t value) {
        while (value >= 0x80) {
            bytes_ += static_cast<char>(value | 0x80);
            value >>= 7;
        }
        bytes_ += static_cast<char>(value);
    }
    void integer(int64_t value) {
        number((static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63));
    }
    // kNone is 0, and everything else one more than it is.
    void id(uint32_t value) { number(value == kNone ? 0 : uint64_t{value} + 1); }
    void text(std::string_view text) {
        number(text.size());
        bytes_ += text;
    }
    void dims(DimSpan dims) {
        number(dims.size());
        for (const int64_t d : dims)
            integer(d);
    }
    void path(const Path& path) {
        number(path.size());
        for (const PathPart& part : path) {
            number(static_cast<uint64_t>(part.kind));
            if (isIndexed(part.kind)) {
                integer(part.index);
            } else {
                text(part.text);
            }
        }
    }
    std::string take() { return std::move(bytes_); }

  private:
    std::string bytes_;
};

void writeTensor(const Catalog& catalog, TensorId t, Output& out) {
    out.text(catalog.name(t));
    const Path path = catalog.path(t);
    const bool plain =
        path.size() == 1 && path[0].kind == PathPart::Kind::key && path[0].text == catalog.name(t);
    out.path(plain ? Path{} : path);
    out.text(dtypeName(catalog.dtype(t)));
    out.number(static_cast<uint64_t>(catalog.role(t)));
    out.id(catalog.aliasOf(t));
    out.id(catalog.special(t));
    out.dims(catalog.shape(t));
    const ChunkId first = catalog.firstChunk(t), end = catalog.endChunk(t);
    out.number(end - first);
    // Column by column: neighbors are alike, and what is alike packs well.
    const size_t rank = catalog.shape(t).size();
    for (size_t d = 0; d < rank; ++d) {
        for (ChunkId c = first; c < end; ++c)
            out.integer(catalog.chunk(t, c).offsets[d]);
        for (ChunkId c = first; c < end; ++c)
            out.integer(catalog.chunk(t, c).lengths[d]);
    }
    bool flat = false;
    for (ChunkId c = first; c < end; ++c) {
        out.id(catalog.chunk(t, c).rank);
        flat = flat || catalog.chunk(t, c).flat;
    }
    for (ChunkId c = first; c < end; ++c)
        out.id(catalog.chunk(t, c).file);
    for (ChunkId c = first; c < end; ++c)
        out.number(catalog.chunk(t, c).offset);
    for (ChunkId c = first; c < end; ++c)
        out.number(catalog.chunk(t, c).length);
    out.number(flat ? 1 : 0);
    for (ChunkId c = first; flat && c < end; ++c) {
        const auto range = catalog.chunk(t, c).flat;
        out.number(range ? 1 : 0);
        if (!range) continue;
        out.integer(range->start);
        out.integer(range->stop);
    }
}

Status writeObjects(const Reader& reader, const StopToken& stop, Output& out) {
    const auto& objects = reader.catalog().objects();
    out.number(objects.size());
    uint64_t room = kAllValuesBytes;
    for (ObjectId o = 0; o < objects.size(); ++o) {
        SHARDSCOPE_TRY(stop.poll());
        const ObjectInfo& object = objects[o];
        out.text(object.name);
        out.path(object.path);
        out.id(object.rank);
        out.id(object.file);
        out.number(object.offset);
        out.number(object.length);
        std::string pickle, reason;
        const auto value = object.value ? Result<Value>(object.value) : reader.objectValue(o);
        if (!value.ok()) {
            if (value.error().code == ErrorCode::cancelled) return value.error();
            reason = value.error().message;
        } else if (auto bytes = encodePickle(*value); !bytes.ok()) {
            reason = bytes.error().message;
        } else if (bytes->size() > kValueBytes || bytes->size() > room) {
            reason = fmt::format("it takes {}, too many for an index", counted(bytes->size(), "byte"));
        } else {
            pickle = std::move(bytes).value();
            room -= pickle.size();
        }
        out.text(pickle);
        if (pickle.empty()) out.text(reason);
    }
    return {};
}

// ------------------------------------------------------------------ reading

// After the first thing that is wrong everything reads as zero, and `error` says what it was.
class Input {
  public:
    explicit Input(std::span<const std::byte> bytes) : bytes_(bytes) {}

    bool ok() const { return !failed_; }
    const Error& error() const { return error_; }
    uint64_t left() const { return bytes_.size() - at_; }
    bool fail(std::string_view what) {
        if (!failed_) error_ = damaged(fmt::format("the index is damaged: {}", what), at_);
        failed_ = true;
        return false;
    }

    uint64_t number() {
        uint64_t value = 0;
        for (unsigned shift = 0; shift < 64; shift += 7) {
            if (failed_ || at_ >= bytes_.size()) break;
            const auto byte = static_cast<uint8_t>(bytes_[at_++]);
            if (shift == 63 && byte > 1) break;
            value |= uint64_t{byte & 0x7fU} << shift;
            if (byte < 0x80) return value;
        }
        fail(at_ >= bytes_.size() ? "it ends in the middle of a number" : "a number is too long");
        return 0;
    }
    int64_t integer() {
        const uint64_t folded = number();
        return static_cast<int64_t>(folded >> 1) ^ -static_cast<int64_t>(folded & 1);
    }
    uint64_t below(uint64_t end, std::string_view what) {
        const uint64_t value = number();
        if (value < end) return value;
        fail(fmt::format("{} {} where fewer than {} are known", what, value, end));
        return 0;
    }
    // How many of something of which each takes at least `least` bytes here.
    uint64_t count(std::string_view what, uint64_t least = 1) {
        const uint64_t value = number();
        if (value <= left() / least) return value;
        fail(fmt::format("{} {} do not fit in what is left: {}", countText(value), what,
                         counted(left(), "byte")));
        return 0;
    }
    uint32_t id(uint64_t end, std::string_view what) {
        const uint64_t value = below(end + 1, what);
        return value == 0 ? kNone : static_cast<uint32_t>(value - 1);
    }
    std::string text() {
        const uint64_t size = count("bytes of text");
        std::string text(reinterpret_cast<const char*>(bytes_.data()) + at_, size);
        at_ += size;
        return text;
    }
    DType dtype() {
        const std::string name = text();
        const auto dtype = dtypeFromName(name);
        if (!dtype) fail(fmt::format("'{}' is not a dtype", name));
        return dtype.value_or(DType::uint8);
    }
    Dims dims() {
        Dims dims(below(kMaxRank + 1, "dimensions:"));
        for (int64_t& d : dims)
            d = integer();
        return dims;
    }
    Path path() {
        Path path(below(kMaxValueDepth + 1, "parts of a path:"));
        for (PathPart& part : path) {
            if (failed_) return {};
            part.kind = static_cast<PathPart::Kind>(below(kPathKinds, "kind of path"));
            if (isIndexed(part.kind)) {
                part.index = integer();
            } else {
                part.text = text();
            }
        }
        return path;
    }

  private:
    std::span<const std::byte> bytes_;
    uint64_t at_ = 0;
    bool failed_ = false;
    Error error_;
};

struct Totals {
    uint64_t files = 0, specials = 0, tensors = 0;
    uint32_t ranks = 0;  // as stated, and at least as many as chunks speak of
};

// The columns of one tensor's chunks, kept from tensor to tensor for their room.
struct ChunkColumns {
    std::vector<int64_t> boxes;  // offsets then lengths of each chunk
    std::vector<uint32_t> ranks, files;
    std::vector<uint64_t> offsets, lengths;
};

Status readTensor(Input& in, TensorId t, Totals& totals, ChunkColumns& columns, CatalogBuilder& builder) {
    TensorInfo info;
    info.name = in.text();
    info.path = in.path();
    info.dtype = in.dtype();
    info.role = static_cast<Role>(in.below(static_cast<uint64_t>(Role::other) + 1, "role"));
    info.aliasOf = in.id(t, "alias of tensor");
    info.special = in.id(totals.specials, "special tensor");
    info.shape = in.dims();
    const size_t rank = info.shape.size();
    const uint64_t count = in.count("chunks", 2 * rank + 4);
    if (!in.ok()) return in.error();
    SHARDSCOPE_TRY(builder.addTensor(info));

    columns.boxes.resize(count * 2 * rank);
    for (size_t d = 0; d < rank; ++d) {
        for (uint64_t c = 0; c < count; ++c)
            columns.boxes[c * 2 * rank + d] = in.integer();
        for (uint64_t c = 0; c < count; ++c)
            columns.boxes[c * 2 * rank + rank + d] = in.integer();
    }
    columns.ranks.resize(count);
    columns.files.resize(count);
    columns.offsets.resize(count);
    columns.lengths.resize(count);
    for (uint32_t& r : columns.ranks) {
        r = in.id(kMostRanks, "rank");
        if (r != kNone) totals.ranks = std::max(totals.ranks, r + 1);
    }
    for (uint32_t& file : columns.files)
        file = in.id(totals.files, "file");
    for (uint64_t& offset : columns.offsets)
        offset = in.number();
    for (uint64_t& length : columns.lengths)
        length = in.number();
    const bool flat = in.below(2, "mark of flat ranges") == 1;
    if (!in.ok()) return in.error();
    for (uint64_t c = 0; c < count; ++c) {
        CatalogBuilder::Chunk chunk{columns.ranks[c],
                                    columns.files[c],
                                    columns.offsets[c],
                                    columns.lengths[c],
                                    DimSpan(columns.boxes).subspan(c * 2 * rank, rank),
                                    DimSpan(columns.boxes).subspan(c * 2 * rank + rank, rank)};
        if (flat && in.below(2, "mark of a flat range") == 1) {
            const int64_t start = in.integer();
            chunk.flat = FlatRange{start, in.integer()};
        }
        if (!in.ok()) return in.error();
        SHARDSCOPE_TRY(builder.addChunk(chunk));
    }
    return {};
}

void readFiles(Input& in, Totals& totals, CatalogBuilder& builder) {
    totals.files = in.count("files", 6);
    for (uint64_t f = 0; f < totals.files && in.ok(); ++f) {
        FileInfo file;
        file.path = in.text();
        file.size = in.number();
        file.state = static_cast<FileInfo::State>(
            in.below(static_cast<uint64_t>(FileInfo::State::unreadable) + 1, "state of file"));
        file.metadata = in.below(2, "mark of a metadata file") == 1;
        file.rank = in.id(kMostRanks, "rank");
        file.referenced = in.below(2, "mark of a file that is named") == 1;
        builder.addFile(std::move(file));
    }
}

void readSpecials(Input& in, Totals& totals, CatalogBuilder& builder) {
    totals.specials = in.count("special tensors", 6);
    for (uint64_t s = 0; s < totals.specials && in.ok(); ++s) {
        SpecialTensor special;
        special.name = in.text();
        special.path = in.path();
        special.kind = in.text();
        special.dtype = in.text();
        special.shape = in.dims();
        special.detail = in.text();
        builder.addSpecial(std::move(special));
    }
}

void readObjects(Input& in, const Totals& totals, CatalogBuilder& builder, IndexContents& contents) {
    const uint64_t count = in.count("objects", 7);
    for (uint64_t o = 0; o < count && in.ok(); ++o) {
        ObjectInfo object;
        object.name = in.text();
        object.path = in.path();
        object.rank = in.id(kMostRanks, "rank");
        object.file = in.id(totals.files, "file");
        object.offset = in.number();
        object.length = in.number();
        IndexContents::StoredValue value;
        value.pickle = in.text();
        if (value.pickle.empty()) value.reason = in.text();
        contents.values.push_back(std::move(value));
        builder.addObject(std::move(object));
    }
}

void readMesh(Input& in, CatalogBuilder& builder) {
    if (in.below(2, "mark of a mesh") == 0) return;
    Mesh mesh;
    mesh.source = in.below(2, "source of the mesh") == 0 ? Mesh::Source::declared : Mesh::Source::inferred;
    const uint64_t axes = in.count("axes", 2);
    if (axes > kMostAxes) {
        in.fail("a mesh of too many axes");
        return;
    }
    uint64_t ranks = 1;
    for (uint64_t a = 0; a < axes; ++a) {
        MeshAxis axis;
        axis.name = in.text();
        axis.size = static_cast<uint32_t>(in.below(kMostRanks + 1, "size of an axis"));
        ranks *= axis.size;
        if (in.ok() && (ranks == 0 || ranks > kMostRanks)) in.fail("a mesh of an impossible size");
        if (!in.ok()) return;
        mesh.axes.push_back(std::move(axis));
    }
    const uint64_t lines = in.count("lines of evidence");
    for (uint64_t i = 0; i < lines && in.ok(); ++i)
        mesh.evidence.push_back(in.text());
    builder.setMesh(std::move(mesh));
}

// Which numbers a note has. An index without claims is one of version 0.1.
constexpr uint64_t kOffsetMark = 1, kClaimMark = 2;

void readNotes(Input& in, CatalogBuilder& builder) {
    const uint64_t count = in.count("notes", 6);
    for (uint64_t n = 0; n < count && in.ok(); ++n) {
        Note note;
        note.rule = in.text();
        note.severity =
            static_cast<Severity>(in.below(static_cast<uint64_t>(Severity::error) + 1, "severity"));
        note.message = in.text();
        note.file = in.text();
        note.tensor = in.text();
        const uint64_t marks = in.below((kOffsetMark | kClaimMark) + 1, "marks of a note");
        if (marks & kOffsetMark) note.offset = in.number();
        if (marks & kClaimMark) note.claimedBytes = in.number();
        builder.addNote(std::move(note));
    }
}

}  // namespace

Result<std::string> encodeIndexPayload(const Reader& reader, const IndexOrigin& origin,
                                       const StopToken& stop) {
    const Catalog& catalog = reader.catalog();
    Output out;
    for (const std::string* text :
         {&origin.host, &origin.path, &catalog.format(), &catalog.variant(), &catalog.writer()})
        out.text(*text);
    out.integer(origin.madeAt);
    out.number(catalog.rankCount());
    out.number(catalog.files().size());
    for (const FileInfo& file : catalog.files()) {
        out.text(file.path);
        out.number(file.size);
        out.number(static_cast<uint64_t>(file.state));
        out.number(file.metadata ? 1 : 0);
        out.id(file.rank);
        out.number(file.referenced ? 1 : 0);
    }
    out.number(catalog.specials().size());
    for (const SpecialTensor& special : catalog.specials()) {
        out.text(special.name);
        out.path(special.path);
        out.text(special.kind);
        out.text(special.dtype);
        out.dims(special.shape);
        out.text(special.detail);
    }
    out.number(catalog.tensorCount());
    out.number(catalog.chunkCount());
    for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
        if (t % kPollEvery == 0) SHARDSCOPE_TRY(stop.poll());
        writeTensor(catalog, t, out);
    }
    SHARDSCOPE_TRY(writeObjects(reader, stop, out));
    out.number(catalog.mesh() ? 1 : 0);
    if (catalog.mesh()) {
        out.number(catalog.mesh()->source == Mesh::Source::declared ? 0 : 1);
        out.number(catalog.mesh()->axes.size());
        for (const MeshAxis& axis : catalog.mesh()->axes) {
            out.text(axis.name);
            out.number(axis.size);
        }
        out.number(catalog.mesh()->evidence.size());
        for (const std::string& line : catalog.mesh()->evidence)
            out.text(line);
    }
    // A builder notes boxes that leave their tensor by itself.
    std::vector<const Note*> notes;
    for (const Note& note : catalog.notes()) {
        if (note.rule != rule::coverageBounds) notes.push_back(&note);
    }
    out.number(notes.size());
    for (const Note* note : notes) {
        out.text(note->rule);
        out.number(static_cast<uint64_t>(note->severity));
        out.text(note->message);
        out.text(note->file);
        out.text(note->tensor);
        out.number((note->offset ? kOffsetMark : 0) | (note->claimedBytes ? kClaimMark : 0));
        if (note->offset) out.number(*note->offset);
        if (note->claimedBytes) out.number(*note->claimedBytes);
    }
    return out.take();
}

Result<IndexContents> decodeIndexPayload(std::span<const std::byte> payload, const StopToken& stop) {
    Input in(payload);
    IndexContents contents;
    contents.origin.host = in.text();
    contents.origin.path = in.text();
    const std::string format = in.text(), variant = in.text(), writer = in.text();
    contents.origin.madeAt = in.integer();
    CatalogBuilder builder(format, variant, writer);
    Totals totals;
    totals.ranks = static_cast<uint32_t>(in.below(kMostRanks + 1, "ranks:"));
    readFiles(in, totals, builder);
    readSpecials(in, totals, builder);
    totals.tensors = in.count("tensors", 8);
    const uint64_t chunks = in.count("chunks", 4);
    if (!in.ok()) return in.error();
    builder.reserve(totals.tensors, chunks, 0);
    ChunkColumns columns;
    for (uint64_t t = 0; t < totals.tensors; ++t) {
        if (t % kPollEvery == 0) SHARDSCOPE_TRY(stop.poll());
        SHARDSCOPE_TRY(readTensor(in, static_cast<TensorId>(t), totals, columns, builder));
    }
    builder.setRankCount(totals.ranks);
    readObjects(in, totals, builder, contents);
    readMesh(in, builder);
    readNotes(in, builder);
    if (in.ok() && in.left() > 0) in.fail("there are bytes behind its end");
    if (!in.ok()) return in.error();
    contents.catalog = std::move(builder).finish();
    return contents;
}

}  // namespace shardscope
