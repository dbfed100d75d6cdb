// The tensors of the distributed layout: their pieces, parts of fused ones, what the metadata does not list.
#include <algorithm>

#include <fmt/format.h>

#include "base/option_words.h"
#include "base/rule.h"
#include "formats/colossalai/distributed.h"
#include "formats/colossalai/names.h"

namespace shardscope::colossalai {

namespace {

bool mayBeFused(std::string_view name) {
    const size_t dot = name.rfind('.');
    if (dot == name.npos) return false;
    const std::string_view layer = name.substr(0, dot);
    const std::string_view last = layer.substr(layer.rfind('.') == layer.npos ? 0 : layer.rfind('.') + 1);
    return last == "c_attn" || last == "qkv";
}

}  // namespace

Status DistributedOpener::addTensors() {
    std::vector<std::vector<Piece>> pieces;
    for (uint32_t r = 0; r < ranks_.size(); ++r) {
        if (aside(r)) continue;
        const RankMetadata& metadata = ranks_[r].metadata;
        for (uint32_t e = 0; e < metadata.entries.size(); ++e) {
            if (names_.insert(metadata.names[e])) pieces.emplace_back();
            pieces[names_.find(metadata.names[e])].push_back({r, e});
        }
    }
    tensorOf_.assign(names_.size(), kNone);
    for (size_t n = 0; n < names_.size(); ++n)
        SHARDSCOPE_TRY(addTensor(n, pieces[n]));
    return {};
}

Status DistributedOpener::addTensor(size_t n, const std::vector<Piece>& pieces) {
    const std::string_view name = names_[n];
    TensorInfo info;
    info.name = name;
    info.role = Role::parameter;
    info.shape = entryOf(pieces[0]).globalShape;
    bool known = false;
    for (const Piece& piece : pieces) {
        const FileRef& ref = refOf(piece);
        if (ref.contents == kNone) continue;
        const uint32_t t = (*files_)[ref.contents].find(name);
        if (t == kNone) continue;
        info.dtype = (*files_)[ref.contents].tensors[t].dtype;
        known = true;
        break;
    }
    if (!known) {
        // The metadata states no dtype.
        builder_.addSpecial({std::string(name), {keyPart(name)}, "unreadable", "", info.shape, ""});
        note(rule::metaInconsistent, Severity::error,
             "none of the files that hold it can be read, and nothing else says what dtype it has",
             ranks_[pieces[0].rank].name, name);
        return {};
    }
    tensorOf_[n] = static_cast<uint32_t>(builder_.tensorCount());
    auto added = builder_.addTensor(info);
    if (!added.ok()) return std::move(added).error().inFile(ranks_[pieces[0].rank].name);
    const int fusedDim = fusedDimOf(name, pieces);
    for (const Piece& piece : pieces)
        SHARDSCOPE_TRY(addPiece(info, piece, fusedDim));
    return {};
}

// The dimension along which a tensor of q, k and v is cut, where each rank holds its parts of all three;
// -1 where that does not apply, or where nobody said that it does.
int DistributedOpener::fusedDimOf(std::string_view name, const std::vector<Piece>& pieces) {
    const bool stated = std::any_of(fusedPatterns_.begin(), fusedPatterns_.end(),
                                    [&](const NamePattern& p) { return p.matches(name); });
    if (!stated && !mayBeFused(name)) return -1;
    const Dims& shape = entryOf(pieces[0]).globalShape;
    int cut = -1;
    for (const Piece& piece : pieces) {
        const PieceEntry& entry = entryOf(piece);
        for (size_t d = 0; d < shape.size() && d < entry.lengths.size(); ++d) {
            if (entry.lengths[d] < shape[d]) cut = static_cast<int>(d);
        }
    }
    if (cut < 0 || shape[static_cast<size_t>(cut)] % 3 != 0) return -1;
    if (stated || (fusedGiven_ && fusedPatterns_.empty())) return cut;
    note(rule::layoutFused, Severity::error,
         fmt::format("by its name it holds q, k and v, of which each rank has its part: [q_r | k_r | v_r]. "
                     "The metadata says that the pieces follow each other along dim {}, which would give [q0 "
                     "k0 v0 q1 k1 v1 ...] ({} reads it so)",
                     cut, commandOption("variant", "'fused-qkv=auto'")),
         {}, name);
    return -1;
}

Status DistributedOpener::addPiece(const TensorInfo& info, const Piece& piece, int fusedDim) {
    const PieceEntry& entry = entryOf(piece);
    const FileRef& ref = refOf(piece);
    const RankFile& rank = ranks_[piece.rank];
    if (entry.globalShape != info.shape) {
        note(rule::metaInconsistent, Severity::error,
             fmt::format("ranks disagree about its shape: {} and {}", formatDims(info.shape),
                         formatDims(entry.globalShape)),
             rank.name, info.name);
        if (entry.globalShape.size() != info.shape.size()) return {};
    }
    CatalogBuilder::Chunk chunk;
    chunk.rank = rank.id;
    chunk.file = ref.id;
    Dims offsets = entry.offsets, lengths = entry.lengths;
    StoredPart part;
    if (ref.contents != kNone) {
        const TensorFile& file = (*files_)[ref.contents];
        const uint32_t t = file.find(info.name);
        if (t == kNone) {
            note(rule::metaInconsistent, Severity::error,
                 fmt::format("'{}' says that it is in this file, which does not hold it", rank.name),
                 file.name, info.name);
        } else {
            const StoredTensor& stored = file.tensors[t];
            part.file = ref.contents;
            part.tensor = t;
            chunk.offset = stored.offset;
            chunk.length = stored.bytes;
            if (stored.dtype != info.dtype) {
                note(rule::metaInconsistent, Severity::error,
                     fmt::format("ranks disagree about its dtype: {} and {}", dtypeName(info.dtype),
                                 dtypeName(stored.dtype)),
                     file.name, info.name);
            } else if (lengths.empty() && stored.shape == Dims{1}) {
                // A parameter without dimensions may have been saved with one.
                part.elements = 1;
            } else if (stored.shape != lengths) {
                note(rule::metaInconsistent, Severity::error,
                     fmt::format("its piece of rank {} has shape {}, the metadata says {}", rank.id,
                                 formatDims(stored.shape), formatDims(lengths)),
                     file.name, info.name);
            }
            cutPadding(info, entry, stored, lengths, part);
        }
    }
    if (fusedDim < 0 || !addFused(chunk, entry, static_cast<size_t>(fusedDim), part, info.shape)) {
        chunk.offsets = offsets;
        chunk.lengths = lengths;
        SHARDSCOPE_TRY(builder_.addChunk(chunk));
        parts_.add(std::move(part));
    }
    return {};
}

// A vocabulary that was padded, on one rank: the metadata gives the padded length and the true size.
void DistributedOpener::cutPadding(const TensorInfo& info, const PieceEntry& entry,
                                   const StoredTensor& stored, Dims& lengths, StoredPart& part) {
    if (lengths.empty() || stored.shape != entry.lengths || entry.globalShape != info.shape) return;
    if (std::any_of(entry.offsets.begin(), entry.offsets.end(), [](int64_t o) { return o != 0; })) return;
    for (size_t d = 1; d < lengths.size(); ++d) {
        if (lengths[d] != info.shape[d]) return;
    }
    if (lengths[0] <= info.shape[0]) return;
    note(rule::metaInconsistent, Severity::info,
         fmt::format("{} rows of padding behind its {} rows are left out", lengths[0] - info.shape[0],
                     info.shape[0]),
         {}, info.name);
    lengths[0] = info.shape[0];
    part.offsets.assign(lengths.size(), 0);
    part.lengths = lengths;
}

bool DistributedOpener::addFused(CatalogBuilder::Chunk chunk, const PieceEntry& entry, size_t d,
                                 const StoredPart& part, const Dims& shape) {
    if (d >= entry.lengths.size() || entry.lengths[d] == 0 || entry.lengths[d] % 3 != 0 ||
        shape[d] % entry.lengths[d] != 0 || entry.offsets[d] % entry.lengths[d] != 0) {
        return false;
    }
    const int64_t width = entry.lengths[d] / 3;
    const int64_t index = entry.offsets[d] / entry.lengths[d];
    for (int64_t third = 0; third < 3; ++third) {
        Dims offsets = entry.offsets, lengths = entry.lengths;
        offsets[d] = third * (shape[d] / 3) + index * width;
        lengths[d] = width;
        chunk.offsets = offsets;
        chunk.lengths = lengths;
        if (!builder_.addChunk(chunk).ok()) return false;
        StoredPart third_ = part;
        third_.offsets.assign(lengths.size(), 0);
        third_.offsets[d] = third * width;
        third_.lengths = lengths;
        parts_.add(std::move(third_));
    }
    return true;
}

// Buffers, and further names of tied tensors: in the weight files only.
Status DistributedOpener::addUnlisted() {
    struct Copy {
        uint32_t rank = 0, contents = 0, tensor = 0;
    };
    safetensors::NameSet names;
    std::vector<std::vector<Copy>> copies;
    std::set<std::pair<uint32_t, uint32_t>> looked;
    for (uint32_t r = 0; r < ranks_.size(); ++r) {
        for (const FileRef& ref : refs_[r]) {
            if (ref.contents == kNone || !looked.insert({ranks_[r].id, ref.contents}).second) continue;
            const TensorFile& file = (*files_)[ref.contents];
            for (uint32_t t = 0; t < file.tensors.size(); ++t) {
                const StoredTensor& tensor = file.tensors[t];
                if (tensor.special != kNone || names_.find(tensor.name) != SIZE_MAX) continue;
                if (names.insert(tensor.name)) copies.emplace_back();
                copies[names.find(tensor.name)].push_back({r, ref.contents, t});
            }
        }
    }
    for (size_t n = 0; n < names.size(); ++n) {
        const StoredTensor& first = (*files_)[copies[n][0].contents].tensors[copies[n][0].tensor];
        TensorInfo info;
        info.name = first.name;
        info.path = first.path;
        info.dtype = first.dtype;
        info.shape = first.shape;
        info.role = Role::buffer;
        const size_t tied = first.sameAs == kNone
                                ? SIZE_MAX
                                : names_.find((*files_)[copies[n][0].contents].tensors[first.sameAs].name);
        const bool alias = tied != SIZE_MAX && tensorOf_[tied] != kNone;
        if (alias) {
            info.aliasOf = tensorOf_[tied];
            info.role = Role::parameter;
            const RankMetadata& metadata = ranks_[copies[n][0].rank].metadata;
            info.shape = metadata.entries[metadata.names.find(names_[tied])].globalShape;
        }
        SHARDSCOPE_TRY(builder_.addTensor(info));
        for (const Copy& copy : copies[n]) {
            const TensorFile& file = (*files_)[copy.contents];
            const StoredTensor& stored = file.tensors[copy.tensor];
            CatalogBuilder::Chunk chunk{ranks_[copy.rank].id, file.id, stored.offset, stored.bytes, {}, {},
                                        std::nullopt};
            Dims offsets(stored.shape.size(), 0);
            if (alias) {
                const RankMetadata& metadata = ranks_[copy.rank].metadata;
                const size_t entry = metadata.names.find(names_[tied]);
                if (entry == SIZE_MAX) continue;
                offsets = metadata.entries[entry].offsets;
            } else if (stored.shape != info.shape || stored.dtype != info.dtype) {
                note(rule::metaInconsistent, Severity::error,
                     fmt::format("the metadata does not list it, and ranks hold different tensors of "
                                 "this name: {} {} and {} {}",
                                 dtypeName(info.dtype), formatDims(info.shape), dtypeName(stored.dtype),
                                 formatDims(stored.shape)),
                     file.name, info.name);
                continue;
            }
            chunk.offsets = offsets;
            chunk.lengths = stored.shape;
            SHARDSCOPE_TRY(builder_.addChunk(chunk));
            parts_.add(StoredPart::whole(copy.contents, copy.tensor));
        }
    }
    return {};
}

void DistributedOpener::addObjects() {
    std::set<std::string> names;
    for (uint32_t f = 0; f < files_->size(); ++f) {
        const TensorFile& file = (*files_)[f];
        for (const StoredObject& object : file.objects) {
            if (!names.insert(object.name).second) continue;
            ObjectInfo info;
            info.name = object.name;
            info.path = object.path;
            info.rank = weightFileId(file.name).value_or(0);
            info.file = file.id;
            info.value = object.value;
            builder_.addObject(std::move(info));
        }
    }
}

}  // namespace shardscope::colossalai
