#include "formats/olmo/assembly.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "base/rule.h"

namespace shardscope::olmo {

namespace {

constexpr uint64_t kShortText = 64 << 10;
constexpr std::string_view kWrapper = "_fsdp_wrapped_module";

}  // namespace

Assembly::Assembly(const Source& source, const OpenOptions& options, std::string variant)
    : CatalogOpener("olmo", std::move(variant), "OLMo"),
      source_(source),
      options_(options),
      files_(std::make_unique<TensorFiles>(source, options)) {}

Result<uint32_t> Assembly::addFile(const std::string& name, uint32_t rank) {
    const auto entry = source_.directory->stat(name);
    FileInfo info;
    info.path = name;
    info.rank = rank;
    named_.insert(name);
    if (!entry.ok()) {
        if (entry.error().code != ErrorCode::notFound) return entry.error();
        info.state = FileInfo::State::missing;
        note(rule::fileMissing, Severity::error, "the file of this rank is missing", name);
        builder_.addFile(std::move(info));
        return kNone;
    }
    info.size = entry->size;
    const FileId id = builder_.addFile(std::move(info));
    auto added = files_->add(name, id);
    if (added.ok()) return added;
    // One damaged file of many ranks does not keep the others from being shown.
    const ErrorCode code = added.error().code;
    if (rank == kNone || code == ErrorCode::cancelled || code == ErrorCode::limit) return added;
    Error error = std::move(added).error();
    note(error.location.rule.empty() ? rule::metaInconsistent : error.location.rule, Severity::error,
         error.message, name);
    files_->markBroken(id, std::move(error));
    return kNone;
}

std::string Assembly::addText(const std::string& name) {
    const auto entry = source_.directory->stat(name);
    if (!entry.ok() || entry->kind != DirectoryEntry::Kind::file) return {};
    FileInfo info;
    info.path = name;
    info.size = entry->size;
    info.metadata = true;
    builder_.addFile(std::move(info));
    named_.insert(name);
    if (entry->size > kShortText) return {};
    const auto file = source_.directory->openFile(name);
    if (!file.ok()) return {};
    std::string text(std::min<uint64_t>((*file)->size(), kShortText), '\0');
    if (!(*file)->readAt(0, std::as_writable_bytes(std::span(text))).ok()) return {};
    return text;
}

void Assembly::addPiece(const Path& path, DType dtype, const Dims& shape, Role role, Piece piece) {
    const auto [it, fresh] = byPath_.try_emplace(encodePath(path), tensors_.size());
    if (fresh) {
        Tensor tensor;
        tensor.info.path = path;
        tensor.info.name = pathName(path);
        tensor.info.dtype = dtype;
        tensor.info.shape = shape;
        tensor.info.role = role;
        tensors_.push_back(std::move(tensor));
    }
    Tensor& tensor = tensors_[it->second];
    if (tensor.info.dtype != dtype || tensor.info.shape != shape) {
        note(rule::metaInconsistent, Severity::error,
             fmt::format("ranks disagree about it: {} {} and {} {}", dtypeName(tensor.info.dtype),
                         formatDims(tensor.info.shape), dtypeName(dtype), formatDims(shape)),
             (*files_)[piece.part.file].name, tensor.info.name);
        return;
    }
    // Nothing of it here: the tensor is known now, its elements are elsewhere.
    if (piece.part.elements == 0 && elementCount(shape) != 0) return;
    stored_.try_emplace(uint64_t{piece.part.file} << 32 | piece.part.tensor, it->second);
    tensor.pieces.push_back(std::move(piece));
}

void Assembly::addWhole(uint32_t file, uint32_t t, Path path, Role role, uint32_t rank) {
    const StoredTensor& stored = (*files_)[file].tensors[t];
    Piece piece;
    piece.rank = rank;
    piece.part.file = file;
    piece.part.tensor = t;
    const size_t before = tensors_.size();
    addPiece(path, stored.dtype, stored.shape, role, std::move(piece));
    if (tensors_.size() == before || stored.sameAs == kNone) return;
    const auto first = stored_.find(uint64_t{file} << 32 | stored.sameAs);
    if (first != stored_.end()) tensors_.back().info.aliasOf = static_cast<TensorId>(first->second);
}

void Assembly::addObject(uint32_t file, Path path, const Value& value, uint32_t rank, uint64_t offset,
                         uint64_t length) {
    ObjectInfo object;
    object.name = pathName(path);
    object.path = std::move(path);
    object.rank = rank;
    if (file != kNone) object.file = (*files_)[file].id;
    object.offset = offset;
    object.length = length;
    object.value = value;
    builder_.addObject(std::move(object));
}

void Assembly::addObjects(uint32_t file, const Path& prefix, uint32_t rank) {
    for (const StoredObject& object : (*files_)[file].objects) {
        Path path = prefix;
        path.insert(path.end(), object.path.begin(), object.path.end());
        addObject(file, std::move(path), object.value, rank);
    }
}

Result<std::unique_ptr<Reader>> Assembly::finish(uint32_t world) {
    std::vector<StoredPart> parts;
    for (Tensor& tensor : tensors_) {
        // Tensors are added in this order, so places in tensors_ are their ids.
        auto added = builder_.addTensor(tensor.info);
        if (!added.ok()) return std::move(added).error().inFile(source_.display);
        const Dims zeros(tensor.info.shape.size(), 0);
        for (Piece& piece : tensor.pieces) {
            const TensorFile& file = (*files_)[piece.part.file];
            const StoredTensor& stored = file.tensors[piece.part.tensor];
            CatalogBuilder::Chunk chunk{piece.rank, file.id,           stored.offset, stored.bytes,
                                        zeros,      tensor.info.shape, piece.flat};
            if (!piece.lengths.empty()) {
                chunk.offsets = piece.offsets;
                chunk.lengths = piece.lengths;
            }
            SHARDSCOPE_TRY(builder_.addChunk(chunk));
            parts.push_back(std::move(piece.part));
        }
    }
    std::set<std::string> seen;
    for (uint32_t f = 0; f < files_->size(); ++f) {
        for (const Note& n : (*files_)[f].notes) {
            // What is so in the files of all ranks is said once.
            if (n.severity != Severity::error && !seen.insert(n.rule + n.message).second) continue;
            builder_.addNote(n);
        }
    }
    for (const DirectoryEntry& entry : source_.entries) {
        if (!source_.entry.empty() || entry.kind != DirectoryEntry::Kind::file || named_.contains(entry.name))
            continue;
        FileInfo info;
        info.path = entry.name;
        info.size = entry.size;
        info.referenced = false;
        builder_.addFile(std::move(info));
    }
    builder_.setRankCount(world);
    if (world > 1) {
        Mesh mesh;
        mesh.axes = {{"fsdp", world}};
        mesh.evidence = {fmt::format("fsdp={}: a file for each of {} ranks", world, world)};
        builder_.setMesh(std::move(mesh));
    }
    return makePartReader(source_, std::move(builder_).finish(), std::move(files_), std::move(parts));
}

std::optional<int64_t> yamlInteger(std::string_view text, std::string_view key) {
    while (!text.empty()) {
        const size_t end = std::min(text.find('\n'), text.size());
        std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(text.size(), end + 1));
        if (!line.starts_with(key) || line.size() <= key.size() || line[key.size()] != ':') continue;
        line.remove_prefix(key.size() + 1);
        while (!line.empty() && (line.front() == ' ' || line.front() == '\t'))
            line.remove_prefix(1);
        int64_t value = 0;
        const auto [stop, error] = std::from_chars(line.data(), line.data() + line.size(), value);
        if (error == std::errc{}) return value;
    }
    return std::nullopt;
}

std::string withoutWrapper(std::string_view name) {
    std::string out;
    while (!name.empty()) {
        const size_t dot = std::min(name.find('.'), name.size());
        const std::string_view part = name.substr(0, dot);
        name.remove_prefix(std::min(name.size(), dot + 1));
        if (part == kWrapper) continue;
        if (!out.empty()) out += '.';
        out += part;
    }
    return out;
}

}  // namespace shardscope::olmo
