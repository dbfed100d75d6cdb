#include "formats/tensor_assembly.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include <fmt/format.h>

#include "base/rule.h"
#include "base/thread_pool.h"
#include "base/units.h"
#include "model/paths.h"
#include "model/rank_files.h"

namespace shardscope {

namespace {

constexpr uint64_t kShortText = 64 << 10;
constexpr size_t kMostMissing = 1000;

// The array that holds the first element of a part, where paddle.save has split the tensor; else null.
const PaddleArray* arrayOf(const StoredTensor& stored, const StoredPart& part) {
    int64_t end = 0;
    for (const PaddleArray& array : stored.parts) {
        end += elementCount(array.shape);
        if (part.firstElement < end) return &array;
    }
    return nullptr;
}

}  // namespace

TensorAssembly::TensorAssembly(const Source& source, const OpenOptions& options, std::string format,
                               std::string variant, std::string writer, TensorFiles::Writer kind)
    : CatalogOpener(std::move(format), std::move(variant), std::move(writer)),
      source_(source),
      options_(options),
      files_(std::make_unique<TensorFiles>(source, options, kind)) {}

FileId TensorAssembly::addOther(FileInfo info) {
    Known& known = known_[info.path];
    known.id = builder_.addFile(std::move(info));
    return known.id;
}

TensorAssembly::Known TensorAssembly::known(const std::string& name) const {
    const auto it = known_.find(name);
    return it == known_.end() ? Known{} : it->second;
}

Result<uint32_t> TensorAssembly::addFile(const std::string& name, uint32_t rank, Note::Lacks lacks) {
    const std::pair<std::string, uint32_t> file(name, rank);
    SHARDSCOPE_ASSIGN(const std::vector<uint32_t> added, addFiles({&file, 1}, lacks));
    return added[0];
}

// Its place in the catalog; kNone where nothing is to be read.
Result<FileId> TensorAssembly::addListed(const std::string& name, uint32_t rank, Note::Lacks lacks) {
    if (known_.contains(name)) return FileId{kNone};
    const auto entry = source_.directory->stat(name);
    if (!entry.ok()) {
        if (entry.error().code != ErrorCode::notFound) return entry.error();
        addMissing(name, rank, Severity::error, "the file of this rank is missing", lacks);
        return FileId{kNone};
    }
    return addOther({.path = name, .size = entry->size, .rank = rank});
}

Result<std::vector<uint32_t>> TensorAssembly::addFiles(
    std::span<const std::pair<std::string, uint32_t>> files, Note::Lacks lacks) {
    std::vector<FileId> ids(files.size(), kNone);
    for (size_t f = 0; f < files.size(); ++f) {
        SHARDSCOPE_ASSIGN(ids[f], addListed(files[f].first, files[f].second, lacks));
    }
    std::vector<Result<uint32_t>> added(files.size(), kNone);
    const auto read = [&](size_t f) -> Status {
        if (ids[f] != kNone) added[f] = files_->add(files[f].first, ids[f]);
        return {};
    };
    SHARDSCOPE_TRY(sharedPool().parallelFor(files.size(), options_.stop, read));
    for (size_t f = 0; f < files.size(); ++f) {
        const auto& [name, rank] = files[f];
        if (added[f].ok()) {
            if (ids[f] != kNone) known_[name].index = *added[f];
            continue;
        }
        // One damaged file of many ranks does not keep the others from being shown.
        Error error = std::move(added[f]).error();
        if (rank == kNone || error.code == ErrorCode::cancelled || error.code == ErrorCode::limit)
            return error;
        error.location.rule = noteError(error, name, {}, lacks);
        builder_.file(ids[f]).state = FileInfo::State::unreadable;
        files_->markBroken(ids[f], std::move(error));
    }
    std::vector<uint32_t> indices;
    for (const auto& [name, rank] : files)
        indices.push_back(known(name).index);
    return indices;
}

void TensorAssembly::addMissing(const std::string& name, uint32_t rank, Severity severity,
                                std::string message, Note::Lacks lacks) {
    known_[name].id = CatalogOpener::addMissing(name, rank, severity, std::move(message), lacks);
}

void TensorAssembly::addMissingRank(const std::string& name, uint32_t rank, Severity severity,
                                    std::string message, Note::Lacks lacks) {
    if (++missingRanks_ <= kMostMissing) return addMissing(name, rank, severity, std::move(message), lacks);
    lacks_ = std::max(lacks_, lacks);
}

void TensorAssembly::addUnused(const DirectoryEntry& entry, uint32_t rank) {
    addOther({.path = entry.name, .size = entry.size, .rank = rank});
}

std::string TensorAssembly::addText(const std::string& name) {
    const auto entry = source_.directory->stat(name);
    if (!entry.ok() || entry->kind != DirectoryEntry::Kind::file) return {};
    addOther({.path = name, .size = entry->size, .metadata = true});
    return smallFile(*source_.directory, name, kShortText);
}

size_t TensorAssembly::tensorAt(const Path& path, std::optional<DType> dtype, const Dims& shape, Role role) {
    const std::string encoded = encodePath(path);
    const bool fresh = paths_.insert(encoded);
    if (fresh) {
        Tensor& tensor = tensors_.emplace_back();
        tensor.shape = shape;
        tensor.role = role;
    }
    const size_t index = fresh ? tensors_.size() - 1 : paths_.find(encoded);
    Tensor& tensor = tensors_[index];
    if (dtype && !std::exchange(tensor.known, true)) tensor.dtype = *dtype;
    return index;
}

TensorInfo TensorAssembly::infoOf(size_t tensor) const {
    const Tensor& from = tensors_[tensor];
    Path path = decodePath(paths_[tensor]);
    std::string name = pathName(path);
    return {std::move(name), std::move(path), from.dtype, from.shape, from.role, from.aliasOf};
}

// The first tensor that has what is stored there; kNone = none yet.
uint32_t& TensorAssembly::firstOf(const StoredPart& part) {
    if (stored_.size() <= part.file) stored_.resize(part.file + 1);
    auto& ofFile = stored_[part.file];
    if (ofFile.empty()) ofFile.assign((*files_)[part.file].tensors.size(), kNone);
    return ofFile[part.tensor];
}

void TensorAssembly::setRoles(const RoleFinder& roles) {
    for (size_t t = 0; t < tensors_.size(); ++t)
        tensors_[t].role = roles.role(infoOf(t).name);
}

void TensorAssembly::addTensor(const Path& path, DType dtype, const Dims& shape, Role role) {
    tensorAt(path, dtype, shape, role);
}

void TensorAssembly::addPiece(const Path& path, DType dtype, const Dims& shape, Role role, Piece piece) {
    const size_t index = tensorAt(path, dtype, shape, role);
    Tensor& tensor = tensors_[index];
    const TensorFile& file = (*files_)[piece.part.file];
    const uint32_t sameAs = file.tensors[piece.part.tensor].sameAs;
    if (tensor.pieces == 0 && sameAs != kNone && piece.part.elements < 0 && piece.part.lengths.empty()) {
        const uint32_t first = firstOf(StoredPart::whole(piece.part.file, sameAs));
        if (first != kNone && first < index) tensor.aliasOf = first;
    }
    if (!fits(index, dtype, shape, piece, file.name)) {
        if (!piece.stated || shape.size() != tensor.shape.size()) return;
        piece.part = StoredPart::whole(kNone, file.id);
        addRow(index, std::move(piece));
        return;
    }
    // Nothing of it here: the tensor is known now, its elements are elsewhere.
    const bool empty =
        piece.part.elements == 0 || (!piece.lengths.empty() && elementCount(piece.lengths) == 0);
    if (empty && elementCount(shape) != 0) return;
    uint32_t& first = firstOf(piece.part);
    if (first == kNone) first = static_cast<uint32_t>(index);
    addRow(index, std::move(piece));
}

void TensorAssembly::addLost(const Path& path, const Dims& shape, Role role, FileId file, Piece piece) {
    const size_t index = tensorAt(path, std::nullopt, shape, role);
    if (!fits(index, std::nullopt, shape, piece, builder_.file(file).path)) return;
    // Of no file; where it should be is known.
    piece.part = StoredPart::whole(kNone, file);
    addRow(index, std::move(piece));
}

bool TensorAssembly::fits(size_t index, std::optional<DType> dtype, const Dims& shape, const Piece& piece,
                          const std::string& file) {
    const Tensor& info = tensors_[index];
    const auto text = [](DType type, const Dims& dims) {
        return fmt::format("{} {}", dtypeName(type), formatDims(dims));
    };
    if (dtype.value_or(info.dtype) != info.dtype || info.shape != shape) {
        wrong(fmt::format("ranks disagree about it: {} and {}", text(info.dtype, info.shape),
                          text(dtype.value_or(info.dtype), shape)),
              file, infoOf(index).name);
        return false;
    }
    if (piece.lengths.empty() ||
        (piece.lengths.size() == shape.size() && piece.offsets.size() == shape.size()))
        return true;
    wrong(fmt::format("its chunk has {}, the tensor {}", counted(piece.lengths.size(), "dimension"),
                      shape.size()),
          file, infoOf(index).name);
    return false;
}

void TensorAssembly::addRow(size_t index, Piece piece) {
    const Dims& shape = tensors_[index].shape;
    ++tensors_[index].pieces;
    PieceRow row;
    row.tensor = static_cast<uint32_t>(index);
    row.rank = piece.rank;
    const bool whole = piece.lengths == shape && std::ranges::count(piece.offsets, 0) == std::ssize(shape);
    if (!piece.lengths.empty() && !whole) {
        row.box = boxes_.size();
        boxes_.insert(boxes_.end(), piece.offsets.begin(), piece.offsets.end());
        boxes_.insert(boxes_.end(), piece.lengths.begin(), piece.lengths.end());
    }
    if (piece.flat) row.flat = *piece.flat;
    rows_.push_back(row);
    parts_.add(std::move(piece.part));
}

void TensorAssembly::addBoxes(const Path& path, DType dtype, const Dims& shape, Role role, const Piece& shard,
                              std::vector<CutBox> boxes, std::optional<int64_t> start) {
    const auto [file, tensor] = std::pair(shard.part.file, shard.part.tensor);
    for (CutBox& box : boxes) {
        Piece piece = shard;
        if (file == kNone) {
            piece.part = StoredPart::whole(kNone, tensor);
        } else if (start) {
            piece.part = box.in(file, tensor, *start);
        } else if (boxes.size() > 1) {
            piece.part = StoredPart::box(file, tensor, std::move(box.from), box.lengths);
        }
        piece.part.storedAs = shard.part.storedAs;
        piece.part.bits = shard.part.bits;
        if (&box == boxes.data()) piece.part.zeros = shard.part.zeros;  // looked at once
        piece.offsets = std::move(box.offsets);
        piece.lengths = std::move(box.lengths);
        piece.flat = box.flat;
        if (file == kNone)
            addLost(path, shape, role, tensor, std::move(piece));
        else
            addPiece(path, dtype, shape, role, std::move(piece));
    }
}

void TensorAssembly::addAlias(const Path& path, const Path& of) {
    const size_t id = paths_.find(encodePath(of));
    if (id == SIZE_MAX || !paths_.insert(encodePath(path))) return;
    Tensor& alias = tensors_.emplace_back(Tensor(tensors_[id]));
    if (alias.aliasOf == kNone) alias.aliasOf = static_cast<TensorId>(id);
    if (alias.piecesOf == kNone) alias.piecesOf = static_cast<uint32_t>(id);
}

void TensorAssembly::addWhole(uint32_t file, uint32_t t, Path path, Role role, uint32_t rank) {
    const StoredTensor& stored = (*files_)[file].tensors[t];
    addPiece(path, stored.dtype, stored.shape, role, {rank, StoredPart::whole(file, t), {}, {}, {}});
}

void TensorAssembly::addObject(uint32_t file, Path path, const Value& value, uint32_t rank, uint64_t offset,
                               uint64_t length) {
    builder_.addObject({pathName(path), std::move(path), rank, file == kNone ? kNone : (*files_)[file].id,
                        offset, length, value});
}

void TensorAssembly::addObjects(uint32_t file, const Path& prefix, uint32_t rank) {
    for (const StoredObject& object : (*files_)[file].objects)
        addObject(file, joinedPaths(prefix, object.path), object.value, rank);
}

DimSpan TensorAssembly::boxOf(size_t row) const {
    if (rows_[row].box == kWhole) return {};
    return DimSpan(boxes_).subspan(rows_[row].box, 2 * tensors_[rows_[row].tensor].shape.size());
}

DimSpan TensorAssembly::boxAt(size_t row, size_t half) const {
    if (rows_[row].box == kWhole) return {};
    const size_t rank = tensors_[rows_[row].tensor].shape.size();
    return DimSpan(boxes_).subspan(rows_[row].box + half * rank, rank);
}

TensorAssembly::Grouped TensorAssembly::group() const {
    Grouped out;
    out.first.assign(tensors_.size() + 1, 0);
    for (const PieceRow& row : rows_)
        ++out.first[row.tensor + 1];
    std::partial_sum(out.first.begin(), out.first.end(), out.first.begin());
    out.order.resize(rows_.size());
    std::vector<size_t> next(out.first.begin(), out.first.end() - 1);
    for (uint32_t row = 0; row < rows_.size(); ++row)
        out.order[next[rows_[row].tensor]++] = row;
    return out;
}

bool TensorAssembly::samePlace(size_t row, size_t other) const {
    return rows_[row].flat == rows_[other].flat && std::ranges::equal(boxOf(row), boxOf(other));
}

bool TensorAssembly::differ(size_t row, size_t other, size_t& budget) const {
    const StoredPart one = parts_[row], two = parts_[other];
    if (one.elements >= 0 || two.elements >= 0 || !one.strides.empty() || one.file == kNone ||
        two.file == kNone || budget == 0)
        return false;
    if (one.offsets == two.offsets && files_->sameChecksum(one.file, one.tensor, two.file, two.tensor))
        return false;
    --budget;
    const auto whole = [&](const StoredPart& part) {
        return part.lengths.empty() || part.lengths == (*files_)[part.file].tensors[part.tensor].shape;
    };
    // Checksums are those of whole tensors.
    if (!whole(one) || !whole(two)) return files_->partsDiffer(one, two);
    return files_->equal(one.file, one.tensor, two.file, two.tensor) == false;
}

void TensorAssembly::noteDifferentCopies(Note::Lacks lacks, Vectors vectors) {
    constexpr size_t kMostNotes = 1000;
    size_t budget = 4096, notes = 0;  // of comparisons that read
    const Grouped grouped = group();
    for (size_t t = 0; t < tensors_.size() && notes < kMostNotes; ++t) {
        const Role role = tensors_[t].role;
        // Each rank may have statistics of its own.
        if (tensors_[t].piecesOf != kNone || role == Role::buffer || role == Role::other ||
            grouped.of(t).size() < 2)
            continue;
        const auto before = [&](uint32_t a, uint32_t b) {
            const auto key = [&](uint32_t row) {
                return std::tuple(rows_[row].flat.start, rows_[row].flat.stop);
            };
            if (key(a) != key(b)) return key(a) < key(b);
            const DimSpan x = boxOf(a), y = boxOf(b);
            return std::ranges::lexicographical_compare(x, y);
        };
        std::vector<uint32_t> rows(grouped.of(t).begin(), grouped.of(t).end());
        std::ranges::stable_sort(rows, before);
        for (size_t i = 1, first = 0; i < rows.size(); ++i) {
            if (!samePlace(rows[first], rows[i])) {
                first = i;
            } else if (differ(rows[first], rows[i], budget)) {
                const StoredPart one = parts_[rows[first]], two = parts_[rows[i]];
                const bool optimizer = role == Role::optimizer;
                // Norms that every rank holds may drift apart; matrices that differ are not one tensor.
                if (vectors == Vectors::mayDrift && tensors_[t].shape.size() < 2) {
                    note(rule::replicaDiffers, Severity::warning,
                         fmt::format("'{}' holds other values for the same place", (*files_)[one.file].name),
                         (*files_)[two.file].name, infoOf(t).name, Note::Lacks::nothing);
                    break;
                }
                note(rule::metaDuplicate, Severity::error,
                     fmt::format(
                         "'{}' holds other values for the same place: what the ranks have under this name "
                         "is not one tensor (experts of several groups, stages, or files of two saves)",
                         (*files_)[one.file].name),
                     (*files_)[two.file].name, infoOf(t).name,
                     optimizer && lacks == Note::Lacks::anything ? Note::Lacks::optimizerState : lacks);
                ++notes;
                break;
            }
        }
    }
}

bool TensorAssembly::complete() const {
    const Grouped grouped = group();
    const auto isComplete = [&](size_t t) {
        std::set<std::pair<Dims, Dims>> boxes;
        std::set<std::pair<int64_t, int64_t>> ranges;
        int64_t held = 0;
        for (const uint32_t row : grouped.of(t)) {
            const FlatRange& flat = rows_[row].flat;
            if (flat != kNoRange) {
                if (ranges.emplace(flat.start, flat.stop).second) held += flat.stop - flat.start;
                continue;
            }
            if (rows_[row].box == kWhole) return true;
            const DimSpan o = offsets(row), l = lengths(row);
            if (boxes.emplace(Dims(o.begin(), o.end()), Dims(l.begin(), l.end())).second)
                held += elementCount(l);
        }
        return held >= elementCount(tensors_[t].shape);
    };
    for (size_t t = 0; t < tensors_.size(); ++t) {
        if (tensors_[t].piecesOf == kNone && !isComplete(t)) return false;
    }
    return true;
}

// What nothing tells the dtype of is listed by its name only.
void TensorAssembly::addUnknown(const TensorInfo& info, std::span<const uint32_t> rows) {
    builder_.addSpecial({info.name, info.path, "unreadable", "", info.shape, ""});
    wrong("none of the files that hold it can be read, and nothing else says what dtype it has",
          builder_.file(parts_[rows.front()].tensor).path, info.name);
}

Status TensorAssembly::addChunks(const TensorInfo& info, std::span<const uint32_t> rows, StoredParts& parts) {
    const Dims zeros(info.shape.size(), 0);
    for (const uint32_t row : rows) {
        StoredPart part = parts_[row];
        CatalogBuilder::Chunk chunk{rows_[row].rank, part.tensor, 0, 0, zeros, info.shape, std::nullopt};
        if (part.file == kNone) {
            part = {};
        } else {
            const TensorFile& file = (*files_)[part.file];
            const StoredTensor& stored = file.tensors[part.tensor];
            chunk.file = file.id;
            chunk.offset = stored.offset;
            chunk.length = stored.bytes;
            if (const PaddleArray* array = arrayOf(stored, part)) {
                chunk.offset = array->offset;
                chunk.length = array->raw == PaddleArray::Raw::inMemory ? 0 : array->length;
            }
        }
        if (rows_[row].flat != kNoRange) chunk.flat = rows_[row].flat;
        if (rows_[row].box != kWhole) {
            chunk.offsets = offsets(row);
            chunk.lengths = lengths(row);
        }
        SHARDSCOPE_TRY(builder_.addChunk(chunk));
        parts.add(std::move(part));
    }
    return {};
}

// Tensors and chunks of the catalog; the parts in the order of the chunks.
Result<StoredParts> TensorAssembly::addTensors() {
    const Grouped grouped = group();
    StoredParts parts;
    parts.reserve(rows_.size());
    std::vector<TensorId> ids;  // of tensors_
    for (size_t t = 0; t < tensors_.size(); ++t) {
        const Tensor& tensor = tensors_[t];
        const auto rows = grouped.of(tensor.piecesOf == kNone ? t : tensor.piecesOf);
        TensorInfo info = infoOf(t);
        ids.push_back(tensor.known ? static_cast<TensorId>(builder_.tensorCount()) : kNone);
        if (!tensor.known) {
            addUnknown(info, rows);
            continue;
        }
        if (info.aliasOf != kNone) info.aliasOf = ids[info.aliasOf];
        auto added = builder_.addTensor(info);
        if (!added.ok()) return std::move(added).error().inFile(source_.display);
        SHARDSCOPE_TRY(addChunks(info, rows, parts));
    }
    return parts;
}

Result<std::unique_ptr<Reader>> TensorAssembly::finish(uint32_t world, std::optional<Mesh> mesh,
                                                       FindNotes findNotes) {
    for (uint32_t f = 0; f < files_->size(); ++f)
        files_->forgetNames(f);
    stored_ = {};
    SHARDSCOPE_ASSIGN(StoredParts parts, addTensors());
    // In the order of the catalog: they were read side by side.
    std::vector<const TensorFile*> files;
    for (uint32_t f = 0; f < files_->size(); ++f)
        files.push_back(&(*files_)[f]);
    std::ranges::sort(files, {}, &TensorFile::id);
    std::set<std::string> seen;
    for (const TensorFile* file : files) {
        for (const Note& n : file->notes) {
            // What is so in the files of all ranks is said once.
            if (n.severity != Severity::error && !seen.insert(n.rule + n.message).second) continue;
            builder_.addNote(n);
        }
    }
    std::vector<RankOrigin> ofRanks;
    for (const TensorFile* file : files)
        if (const auto& [process, device] = file->writtenBy; file->id != kNone && (process || device))
            ofRanks.push_back({file->name, builder_.file(file->id).rank, process, device});
    for (MisnamedFile& file : misnamedFiles(ofRanks))
        wrong(std::move(file.why), file.path, {}, Note::Lacks::anything);
    for (const DirectoryEntry& entry : source_.entries) {
        if (!source_.entry.empty() || entry.kind != DirectoryEntry::Kind::file || known_.contains(entry.name))
            continue;
        addUnreferenced(entry);
    }
    if (missingRanks_ > kMostMissing)
        note(rule::rankMissing, Severity::error,
             fmt::format("{} are missing in all", counted(missingRanks_, "file")), {}, {}, lacks_);
    builder_.setRankCount(world);
    if (!mesh && world > 1) {
        mesh.emplace();
        mesh->axes = {{"fsdp", world}};
        mesh->evidence = {fmt::format("fsdp={}: a file for each of {}", world, counted(world, "rank"))};
    }
    if (mesh && !mesh->axes.empty()) builder_.setMesh(std::move(*mesh));
    return makePartReader(source_, std::move(builder_).finish(), std::move(files_), std::move(parts),
                          std::move(findNotes));
}

}  // namespace shardscope
