#include "model/catalog.h"

#include <algorithm>
#include <cassert>
#include <functional>
#include <numeric>
#include <tuple>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/large_pages.h"
#include "base/rule.h"
#include "base/units.h"

namespace shardscope {

bool keptWhole(std::string_view name, DType dtype, DimSpan shape, Role role) {
    if (role == Role::buffer || shape.empty()) return true;
    if (!dtypeIsFloat(dtype) && !dtypeIsComplex(dtype)) return role != Role::optimizer;
    // Buffers of torch and of rotary embeddings; most files do not tell them from parameters.
    constexpr std::string_view buffers[] = {"running_mean", "running_var", "inv_freq"};
    const std::string_view last = name.substr(name.rfind('.') + 1);
    return std::ranges::find(buffers, last) != std::end(buffers);
}

std::string_view roleName(Role role) {
    switch (role) {
        case Role::parameter:
            return "parameter";
        case Role::buffer:
            return "buffer";
        case Role::optimizer:
            return "optimizer";
        case Role::other:
            return "other";
    }
    return "other";
}

std::string_view severityName(Severity severity) {
    switch (severity) {
        case Severity::info:
            return "info";
        case Severity::warning:
            return "warning";
        case Severity::error:
            return "error";
    }
    return "error";
}

// ------------------------------------------------------------------ Catalog

std::string_view Catalog::name(TensorId t) const {
    const uint64_t begin = t ? nameEnd_[t - 1] : 0;
    return std::string_view(names_).substr(begin, nameEnd_[t] - begin);
}

Path Catalog::path(TensorId t) const {
    const uint64_t begin = t ? pathEnd_[t - 1] : 0;
    if (begin == pathEnd_[t]) {
        if (name(t).empty()) return {};
        return {keyPart(name(t))};
    }
    return decodePath(std::string_view(paths_).substr(begin, pathEnd_[t] - begin));
}

DimSpan Catalog::shape(TensorId t) const {
    const uint64_t begin = t ? shapeEnd_[t - 1] : 0;
    return DimSpan(shapes_).subspan(begin, shapeEnd_[t] - begin);
}

uint64_t Catalog::bytes(TensorId t) const {
    const int64_t count = elements(t);
    if (const auto exact = dtypeByteCount(dtypes_[t], static_cast<uint64_t>(count))) return *exact;
    return (static_cast<uint64_t>(count) * dtypeBits(dtypes_[t]) + 7) / 8;
}

TensorId Catalog::find(std::string_view wanted) const {
    const auto it = std::lower_bound(byName_.begin(), byName_.end(), wanted,
                                     [this](TensorId t, std::string_view n) { return name(t) < n; });
    return it != byName_.end() && name(*it) == wanted ? *it : kNone;
}

TensorId Catalog::tensorOf(ChunkId c) const {
    // The last tensor whose first chunk is not after c; tensors without chunks share a first chunk with the
    // next one.
    const auto it = std::upper_bound(firstChunk_.begin(), firstChunk_.end() - 1, c);
    return static_cast<TensorId>(it - firstChunk_.begin() - 1);
}

ChunkInfo Catalog::chunk(ChunkId c) const {
    return chunk(tensorOf(c), c);
}

ChunkInfo Catalog::chunk(TensorId t, ChunkId c) const {
    ChunkInfo info;
    info.id = c;
    info.tensor = t;
    info.rank = ranks_[c];
    info.file = files_[c];
    info.offset = offsets_[c];
    info.length = lengths_[c];
    const size_t rank = shape(t).size();
    const size_t begin = firstDim_[t] + size_t{c - firstChunk_[t]} * rank * 2;
    info.offsets = DimSpan(dims_).subspan(begin, rank);
    info.lengths = DimSpan(dims_).subspan(begin + rank, rank);
    if (!flats_.empty() && flats_[c].start >= 0) info.flat = flats_[c];
    return info;
}

// The ranges of columns that say how a tensor is cut, as text.
template <class Visit>
bool Catalog::cutColumns(TensorId t, Visit&& visit) const {
    const auto text = [](const auto* from, size_t count) {
        return std::string_view(reinterpret_cast<const char*>(from), count * sizeof(*from));
    };
    const DimSpan dims = shape(t);
    const ChunkId first = firstChunk(t);
    const size_t count = endChunk(t) - first;
    return visit(0, text(dims.data(), dims.size())) && visit(1, text(ranks_.data() + first, count)) &&
           visit(2, text(dims_.data() + firstDim_[t], count * dims.size() * 2)) &&
           (flats_.empty() || visit(3, text(flats_.data() + first, count)));
}

bool Catalog::sameCut(TensorId a, TensorId b) const {
    std::string_view texts[4];
    cutColumns(a, [&](size_t i, std::string_view text) {
        texts[i] = text;
        return true;
    });
    return cutColumns(b, [&](size_t i, std::string_view text) { return texts[i] == text; });
}

uint64_t Catalog::cutHash(TensorId t) const {
    uint64_t hash = 0;
    cutColumns(t, [&](size_t, std::string_view text) {
        hash = hash * 0x9e3779b97f4a7c15 + std::hash<std::string_view>()(text);
        return true;
    });
    return hash;
}

namespace {
template <class T>
uint64_t heldBy(const std::vector<T>& v) {
    return v.capacity() * sizeof(T);
}
}  // namespace

uint64_t Catalog::totalElements() const {
    return std::accumulate(elementsOf_.begin(), elementsOf_.end(), uint64_t{0});
}

uint64_t Catalog::memoryBytes() const {
    uint64_t bytes = names_.capacity() + paths_.capacity() + heldBy(nameEnd_) + heldBy(pathEnd_) +
                     heldBy(dtypes_) + heldBy(roles_) + heldBy(aliasOf_) + heldBy(special_) +
                     heldBy(shapes_) + heldBy(shapeEnd_) + heldBy(firstChunk_) + heldBy(firstDim_) +
                     heldBy(byName_) + heldBy(dims_) + heldBy(ranks_) + heldBy(files_) + heldBy(offsets_) +
                     heldBy(lengths_) + heldBy(flats_) + heldBy(fileInfos_) + heldBy(objects_) +
                     heldBy(notes_);
    for (const FileInfo& file : fileInfos_)
        bytes += file.path.capacity();
    for (const ObjectInfo& object : objects_)
        bytes += object.name.capacity() + object.path.capacity() * sizeof(PathPart);
    return bytes;
}

// ------------------------------------------------------------------ CatalogBuilder

namespace {
// A copy for a few spare bytes costs more than they do.
template <class T>
void trim(std::vector<T>& column) {
    if (column.capacity() - column.size() > column.size() / 16) column.shrink_to_fit();
}
}  // namespace

CatalogBuilder::CatalogBuilder(std::string format, std::string variant, std::string writer) {
    catalog_.format_ = std::move(format);
    catalog_.variant_ = std::move(variant);
    catalog_.writer_ = std::move(writer);
    catalog_.firstChunk_.push_back(0);
}

CatalogBuilder::CatalogBuilder(Catalog catalog) : catalog_(std::move(catalog)) {
    catalog_.totalBytes_ = 0;
    catalog_.elementsOf_ = {};
}

FileId CatalogBuilder::addFile(FileInfo file) {
    catalog_.fileInfos_.push_back(std::move(file));
    return static_cast<FileId>(catalog_.fileInfos_.size() - 1);
}

void CatalogBuilder::reserve(size_t tensors, size_t chunks, size_t dims) {
    Catalog& c = catalog_;
    c.nameEnd_.reserve(tensors);
    c.pathEnd_.reserve(tensors);
    c.dtypes_.reserve(tensors);
    c.roles_.reserve(tensors);
    c.shapeEnd_.reserve(tensors);
    c.firstChunk_.reserve(tensors + 1);
    c.firstDim_.reserve(tensors);
    c.dims_.reserve(dims);
    c.ranks_.reserve(chunks);
    c.files_.reserve(chunks);
    c.offsets_.reserve(chunks);
    c.lengths_.reserve(chunks);
    preferLargePages(c.dims_);
    preferLargePages(c.ranks_);
    preferLargePages(c.files_);
    preferLargePages(c.offsets_);
    preferLargePages(c.lengths_);
}

Status CatalogBuilder::addTensor(const TensorInfo& info) {
    Catalog& c = catalog_;
    if (info.shape.size() > kMaxRank) {
        return makeError(ErrorCode::limit, fmt::format("{} are more than the {} that are read",
                                                       counted(info.shape.size(), "dimension"), kMaxRank))
            .ofTensor(info.name);
    }
    for (int64_t d : info.shape) {
        if (d < 0)
            return damaged(fmt::format("the shape {} has a negative size", formatDims(info.shape)))
                .ofTensor(info.name);
        if (d > kMaxDim) {
            return makeError(ErrorCode::limit,
                             fmt::format("the shape {} has a size above 2^48", formatDims(info.shape)))
                .ofTensor(info.name);
        }
    }
    int64_t count = 0;
    int64_t bits = 0;
    if (!checkedProduct(info.shape, count) || !checkedMul<int64_t>(count, dtypeBits(info.dtype), bits)) {
        return damaged(fmt::format("the number of elements of shape {} overflows", formatDims(info.shape)))
            .ofTensor(info.name);
    }
    if (c.dtypes_.size() >= kNone - 1) return makeError(ErrorCode::limit, "more than 4 billion tensors");

    c.names_ += info.name;
    c.nameEnd_.push_back(c.names_.size());
    const bool trivial =
        info.path.empty() ||
        (info.path.size() == 1 && info.path[0].kind == PathPart::Kind::key && info.path[0].text == info.name);
    if (!trivial) c.paths_ += encodePath(info.path);
    c.pathEnd_.push_back(c.paths_.size());
    c.dtypes_.push_back(info.dtype);
    c.roles_.push_back(info.role);
    if (info.aliasOf != kNone && c.aliasOf_.empty()) c.aliasOf_.resize(c.dtypes_.size() - 1, kNone);
    if (info.aliasOf != kNone || !c.aliasOf_.empty()) c.aliasOf_.push_back(info.aliasOf);
    if (info.special != kNone && c.special_.empty()) c.special_.resize(c.dtypes_.size() - 1, kNone);
    if (info.special != kNone || !c.special_.empty()) c.special_.push_back(info.special);
    c.shapes_.insert(c.shapes_.end(), info.shape.begin(), info.shape.end());
    c.shapeEnd_.push_back(c.shapes_.size());
    c.firstDim_.push_back(c.dims_.size());
    c.firstChunk_.push_back(c.firstChunk_.back());
    return {};
}

Status CatalogBuilder::addChunk(const Chunk& chunk) {
    Catalog& c = catalog_;
    assert(!c.dtypes_.empty());
    const auto t = static_cast<TensorId>(c.dtypes_.size() - 1);
    const DimSpan shape = c.shape(t);
    if (chunk.offsets.size() != shape.size() || chunk.lengths.size() != shape.size()) {
        return damaged(fmt::format("a chunk has {}, its tensor has {}",
                                   counted(chunk.offsets.size(), "dimension"), shape.size()))
            .ofTensor(c.name(t));
    }
    if (c.files_.size() >= kNone - 1) return makeError(ErrorCode::limit, "more than 4 billion chunks");
    int64_t count = 0;
    if (!checkedProduct(chunk.lengths, count)) {
        return damaged(fmt::format("a chunk has the impossible lengths {}", formatDims(chunk.lengths)))
            .ofTensor(c.name(t));
    }
    if (chunk.flat &&
        (chunk.flat->start < 0 || chunk.flat->stop < chunk.flat->start || chunk.flat->stop > count)) {
        return damaged(fmt::format("flat range [{}, {}) is outside its box of {}", chunk.flat->start,
                                   chunk.flat->stop, counted(count, "element")))
            .ofTensor(c.name(t));
    }
    if (!boxInside(chunk.offsets, chunk.lengths, shape)) noteOutside(t);
    // Of a few dimensions, for which a call takes longer than the copy.
    const size_t rank = shape.size();
    const size_t first = c.dims_.size();
    c.dims_.resize(first + 2 * rank);
    int64_t* dims = c.dims_.data() + first;
    for (size_t k = 0; k < rank; ++k) {
        dims[k] = chunk.offsets[k];
        dims[rank + k] = chunk.lengths[k];
    }
    c.ranks_.push_back(chunk.rank);
    c.files_.push_back(chunk.file);
    c.offsets_.push_back(chunk.offset);
    c.lengths_.push_back(chunk.length);
    if (chunk.flat && c.flats_.empty()) {
        c.flats_.reserve(c.files_.capacity());
        c.flats_.resize(c.files_.size() - 1, FlatRange{-1, -1});
    }
    if (chunk.flat || !c.flats_.empty()) c.flats_.push_back(chunk.flat.value_or(FlatRange{-1, -1}));
    c.firstChunk_[t + 1] = static_cast<ChunkId>(c.files_.size());
    return {};
}

Status CatalogBuilder::addBoxes(DimSpan column, uint64_t firstDim, uint32_t count) {
    Catalog& c = catalog_;
    assert(!c.dtypes_.empty() && c.dims_.empty() && c.flats_.empty());
    const auto t = static_cast<TensorId>(c.dtypes_.size() - 1);
    const DimSpan shape = c.shape(t);
    const size_t rank = shape.size();
    if (count >= kNone - 1 - c.firstChunk_[t])
        return makeError(ErrorCode::limit, "more than 4 billion chunks");
    if (count > 0 && (firstDim > column.size() || count * uint64_t{2} * rank > column.size() - firstDim))
        return makeError(ErrorCode::internal, "boxes beyond their column").ofTensor(c.name(t));
    for (size_t i = 0; i < count && rank > 0; ++i) {
        const int64_t* box = column.data() + firstDim + i * 2 * rank;
        bool inside = true;
        for (size_t k = 0; k < rank; ++k)
            inside &=
                box[k] >= 0 && box[rank + k] >= 0 && box[k] <= shape[k] && box[rank + k] <= shape[k] - box[k];
        if (inside) continue;  // its product is no larger than the shape's, which fits
        const DimSpan lengths(box + rank, rank);
        int64_t elements = 0;
        if (!checkedProduct(lengths, elements))
            return damaged(fmt::format("a chunk has the impossible lengths {}", formatDims(lengths)))
                .ofTensor(c.name(t));
        if (!boxInside({box, rank}, lengths, shape)) noteOutside(t);
    }
    c.firstDim_[t] = firstDim;
    c.firstChunk_[t + 1] = c.firstChunk_[t] + count;
    return {};
}

// Made here, not box by box: until now the caller may hold what it read the boxes from, which is larger.
CatalogBuilder::Columns CatalogBuilder::columns() {
    const size_t chunks = catalog_.firstChunk_.back();
    catalog_.ranks_.resize(chunks, kNone);
    catalog_.files_.resize(chunks, kNone);
    catalog_.offsets_.resize(chunks);
    catalog_.lengths_.resize(chunks);
    return {catalog_.ranks_, catalog_.files_, catalog_.offsets_, catalog_.lengths_};
}

void CatalogBuilder::emptyChunk(ChunkId chunk) {
    catalog_.flats_.resize(catalog_.chunkCount(), FlatRange{-1, -1});
    catalog_.flats_[chunk] = {0, 0};
}

Status CatalogBuilder::addWhole(uint32_t rank, FileId file, uint64_t offset, uint64_t length) {
    const auto t = static_cast<TensorId>(catalog_.dtypes_.size() - 1);
    const DimSpan shape = catalog_.shape(t);
    const Dims lengths(shape.begin(), shape.end());
    const Dims zeros(shape.size(), 0);
    return addChunk({rank, file, offset, length, zeros, lengths, std::nullopt});
}

uint32_t CatalogBuilder::addSpecial(SpecialTensor special) {
    catalog_.specials_.push_back(std::move(special));
    return static_cast<uint32_t>(catalog_.specials_.size() - 1);
}

void CatalogBuilder::addObject(ObjectInfo object) {
    catalog_.objects_.push_back(std::move(object));
}

void CatalogBuilder::addNote(Note note) {
    catalog_.notes_.push_back(std::move(note));
}

Status CatalogBuilder::addAll(const Catalog& more, std::string_view prefix, std::string_view directory,
                              std::optional<Role> role) {
    // The first key gets the prefix, so that a name is still its path.
    const auto renamed = [&](const std::string& name, Path path) {
        if (prefix.empty()) return path;
        if (path.empty() || path[0].kind != PathPart::Kind::key) return Path{keyPart(name)};
        path[0].text = std::string(prefix) + path[0].text;
        return path;
    };
    const auto file = [&, first = fileCount()](FileId f) {
        return f == kNone ? kNone : static_cast<FileId>(first + f);
    };
    const auto below = [&](const std::string& path) {
        return directory.empty() || path.empty() ? path : std::string(directory) + '/' + path;
    };
    const auto firstTensor = static_cast<TensorId>(tensorCount());
    const auto firstSpecial = static_cast<uint32_t>(catalog_.specials_.size());
    for (FileInfo info : more.files()) {
        info.path = below(info.path);
        addFile(std::move(info));
    }
    for (SpecialTensor special : more.specials()) {
        special.name = std::string(prefix) + special.name;
        special.path = renamed(special.name, std::move(special.path));
        addSpecial(std::move(special));
    }
    for (TensorId t = 0; t < more.tensorCount(); ++t) {
        TensorInfo info;
        info.name = std::string(prefix) + std::string(more.name(t));
        info.path = renamed(info.name, more.path(t));
        info.dtype = more.dtype(t);
        info.shape.assign(more.shape(t).begin(), more.shape(t).end());
        info.role = more.role(t) == Role::optimizer ? Role::optimizer : role.value_or(more.role(t));
        if (more.aliasOf(t) != kNone) info.aliasOf = firstTensor + more.aliasOf(t);
        if (more.special(t) != kNone) info.special = firstSpecial + more.special(t);
        SHARDSCOPE_TRY(addTensor(info));
        for (ChunkId c = more.firstChunk(t); c < more.endChunk(t); ++c) {
            const ChunkInfo chunk = more.chunk(t, c);
            SHARDSCOPE_TRY(addChunk({chunk.rank, file(chunk.file), chunk.offset, chunk.length, chunk.offsets,
                                     chunk.lengths, chunk.flat}));
        }
    }
    for (ObjectInfo object : more.objects()) {
        object.name = std::string(prefix) + object.name;
        object.path = renamed(object.name, std::move(object.path));
        object.file = file(object.file);
        addObject(std::move(object));
    }
    for (Note note : more.notes()) {
        if (note.rule == rule::coverageBounds) continue;  // found again by addChunk()
        note.file = below(note.file);
        if (!note.tensor.empty()) note.tensor = std::string(prefix) + note.tensor;
        addNote(std::move(note));
    }
    if (!catalog_.mesh_) catalog_.mesh_ = more.mesh();
    catalog_.rankCount_ = std::max(catalog_.rankCount_, more.rankCount());
    return {};
}

namespace {

// Numbers before texts, each in their order.
bool pathBefore(const Path& a, const Path& b) {
    const auto rank = [](const PathPart& part) {
        const bool number = part.kind == PathPart::Kind::integerKey || part.kind == PathPart::Kind::index ||
                            part.kind == PathPart::Kind::tupleIndex;
        return std::make_tuple(!number, part.kind, part.index, std::string_view(part.text));
    };
    return std::lexicographical_compare(
        a.begin(), a.end(), b.begin(), b.end(),
        [&](const PathPart& x, const PathPart& y) { return rank(x) < rank(y); });
}

// Whether every rank of the mesh has coordinates.
bool isUsable(const Mesh& mesh) {
    const uint32_t ranks = mesh.ranks();
    return ranks > 0 && ranks <= kMostMeshRanks;
}

}  // namespace

Catalog CatalogBuilder::finish() && {
    Catalog& c = catalog_;
    c.byName_.resize(c.dtypes_.size());
    std::iota(c.byName_.begin(), c.byName_.end(), 0U);
    std::stable_sort(c.byName_.begin(), c.byName_.end(),
                     [&](TensorId a, TensorId b) { return c.name(a) < c.name(b); });

    // Of one name the order of the paths decides, so that each keeps its number in every format and order of
    // files that holds the paths.
    for (auto run = c.byName_.begin(); run != c.byName_.end();) {
        const auto end =
            std::find_if(run + 1, c.byName_.end(), [&](TensorId t) { return c.name(t) != c.name(*run); });
        if (end - run > 1) {
            std::stable_sort(run, end,
                             [&](TensorId a, TensorId b) { return pathBefore(c.path(a), c.path(b)); });
        }
        run = end;
    }

    // Rename duplicates, in one rebuild of the name column.
    std::vector<std::pair<TensorId, std::string>> renamed;
    for (size_t i = 1, repeat = 1; i < c.byName_.size(); ++i) {
        repeat = c.name(c.byName_[i]) == c.name(c.byName_[i - 1]) ? repeat + 1 : 1;
        if (repeat == 1) continue;
        const std::string_view name = c.name(c.byName_[i]);
        renamed.emplace_back(c.byName_[i], fmt::format("{}~{}", name, repeat));
        addNote({rule::metaDuplicate,
                 Severity::warning,
                 fmt::format("the name '{}' occurs more than once; the later one is shown as '{}'", name,
                             renamed.back().second),
                 {},
                 std::string(name),
                 std::nullopt});
    }
    if (!renamed.empty()) {
        std::sort(renamed.begin(), renamed.end());
        std::string names;
        std::vector<uint64_t> ends;
        auto next = renamed.begin();
        for (TensorId t = 0; t < c.dtypes_.size(); ++t) {
            if (next != renamed.end() && next->first == t) {
                names += next->second;
                ++next;
            } else {
                names += c.name(t);
            }
            ends.push_back(names.size());
        }
        c.names_ = std::move(names);
        c.nameEnd_ = std::move(ends);
        std::stable_sort(c.byName_.begin(), c.byName_.end(),
                         [&](TensorId a, TensorId b) { return c.name(a) < c.name(b); });
    }

    if (c.mesh_ && !isUsable(*c.mesh_)) {
        addNote({rule::metaInconsistent,
                 Severity::warning,
                 fmt::format("the mesh {} that the files state has no ranks or more than {}; it is left out",
                             formatMesh(*c.mesh_), countText(kMostMeshRanks)),
                 {},
                 {},
                 std::nullopt});
        c.mesh_.reset();
    }

    uint32_t highestRank = kNone;
    for (uint32_t r : c.ranks_) {
        if (r != kNone && (highestRank == kNone || r > highestRank)) highestRank = r;
    }
    for (const FileInfo& file : c.fileInfos_) {
        if (file.referenced && file.rank != kNone && (highestRank == kNone || file.rank > highestRank))
            highestRank = file.rank;
    }
    if (c.rankCount_ == 0) c.rankCount_ = highestRank == kNone ? 1 : highestRank + 1;

    for (TensorId t = 0; t < c.dtypes_.size(); ++t) {
        if (c.aliasOf(t) == kNone) {
            c.totalBytes_ += c.bytes(t);
            c.elementsOf_[static_cast<size_t>(c.role(t))] += static_cast<uint64_t>(c.elements(t));
        }
    }
    for (const TensorId t : outside_) {
        for (ChunkId k = c.firstChunk(t); k < c.endChunk(t); ++k) {
            const ChunkInfo chunk = c.chunk(t, k);
            if (!boxInside(chunk.offsets, chunk.lengths, c.shape(t))) {
                addNote({rule::coverageBounds, Severity::error,
                         fmt::format("chunk {} leaves its tensor of shape {}",
                                     formatBox(chunk.offsets, chunk.lengths), formatDims(c.shape(t))),
                         chunk.file == kNone ? std::string() : c.fileInfos_[chunk.file].path,
                         std::string(c.name(t)), chunk.offset});
            }
        }
    }
    c.names_.shrink_to_fit();
    c.paths_.shrink_to_fit();
    trim(c.dims_);
    trim(c.ranks_);
    trim(c.files_);
    trim(c.offsets_);
    trim(c.lengths_);
    return std::move(catalog_);
}

}  // namespace shardscope
