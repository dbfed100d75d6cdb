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

bool isFused(const PieceEntry& entry, int dim) {
    const auto d = static_cast<size_t>(dim);
    return dim >= 0 && d < entry.lengths.size() && entry.lengths[d] != 0 && entry.lengths[d] % 3 == 0 &&
           entry.globalShape[d] % entry.lengths[d] == 0 && entry.offsets[d] % entry.lengths[d] == 0;
}

// [q_r | k_r | v_r] of a piece.
std::vector<CutBox> thirdsOf(const PieceEntry& entry, size_t d) {
    const std::vector<int64_t> thirds(3, entry.globalShape[d] / 3);
    auto boxes =
        RankCut::share(static_cast<int>(d), thirds, entry.offsets[d], entry.lengths[d]).boxes(entry.lengths);
    for (CutBox& box : boxes) {
        for (size_t k = 0; k < entry.offsets.size(); ++k)
            box.offsets[k] = k == d ? box.offsets[k] : entry.offsets[k];
    }
    return boxes;
}

}  // namespace

void DistributedOpener::addTensors() {
    std::vector<std::vector<Piece>> pieces;
    for (uint32_t r = 0; r < ranks_.size(); ++r) {
        if (aside(r)) continue;
        const RankMetadata& metadata = ranks_[r].metadata;
        for (uint32_t e = 0; e < metadata.entries.size(); ++e) {
            if (names_.insert(metadata.names[e])) pieces.emplace_back();
            pieces[names_.find(metadata.names[e])].push_back({r, e});
        }
    }
    for (size_t n = 0; n < names_.size(); ++n) {
        const int fusedDim = fusedDimOf(names_[n], pieces[n]);
        for (const Piece& piece : pieces[n])
            addPiece(names_[n], piece, fusedDim);
    }
}

// The dimension along which a tensor of q, k and v is cut, where each rank holds its parts of all three;
// -1 where that does not apply, or where nobody said that it does.
int DistributedOpener::fusedDimOf(std::string_view name, const std::vector<Piece>& pieces) {
    const bool stated = fused_.names(name);
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
    if (stated || fused_.isAutomatic()) return cut;
    assembly_.note(
        rule::layoutFused, Severity::error,
        fmt::format("by its name it holds q, k and v, of which each rank has its part: [q_r | k_r | v_r]. "
                    "The metadata says that the pieces follow each other along dim {}, which would give [q0 "
                    "k0 v0 q1 k1 v1 ...] ({} reads it so)",
                    cut, commandOption("variant", "'fused-qkv=auto'")),
        {}, name);
    return -1;
}

// The tensor in the file that the metadata names; kNone where there is none.
uint32_t DistributedOpener::tensorOf(std::string_view name, const Piece& piece) {
    const uint32_t file = fileOf(piece).index;
    if (file == kNone) return kNone;
    const uint32_t tensor = contents(file).find(name);
    if (tensor == kNone)
        assembly_.wrong(
            fmt::format("'{}' says that it is in this file, which does not hold it", ranks_[piece.rank].name),
            contents(file).name, name);
    return tensor;
}

// What of a stored tensor is the piece, whose lengths may be less than stated.
StoredPart DistributedOpener::partOf(std::string_view name, const Piece& piece, uint32_t tensor,
                                     Dims& lengths) {
    const PieceEntry& entry = entryOf(piece);
    const uint32_t file = fileOf(piece).index;
    const Dims& stored = contents(file).tensors[tensor].shape;
    // A parameter without dimensions may have been saved with one.
    if (lengths.empty() && stored == Dims{1}) return StoredPart::range(file, tensor, 0, 1);
    if (stored != lengths) {
        assembly_.wrong(fmt::format("its piece of rank {} has shape {}, the metadata says {}",
                                    ranks_[piece.rank].id, formatDims(stored), formatDims(lengths)),
                        contents(file).name, name);
        return StoredPart::whole(file, tensor);
    }
    // A vocabulary that was padded, on one rank: the metadata gives the padded length and the true size.
    const Dims& whole = entry.globalShape;
    const bool padded = !lengths.empty() && std::ranges::count(entry.offsets, 0) == std::ssize(lengths) &&
                        lengths[0] > whole[0] &&
                        std::equal(lengths.begin() + 1, lengths.end(), whole.begin() + 1, whole.end());
    if (!padded) return StoredPart::whole(file, tensor);
    assembly_.note(
        rule::metaInconsistent, Severity::info,
        fmt::format("{} rows of padding behind its {} rows are left out", lengths[0] - whole[0], whole[0]),
        {}, name);
    lengths[0] = whole[0];
    return StoredPart::box(file, tensor, Dims(lengths.size(), 0), lengths);
}

void DistributedOpener::addPiece(std::string_view name, const Piece& piece, int fusedDim) {
    const PieceEntry& entry = entryOf(piece);
    const Path path{keyPart(name)};
    const uint32_t tensor = tensorOf(name, piece);
    TensorAssembly::Piece shard{ranks_[piece.rank].id, {}, entry.offsets, entry.lengths, {}, true};
    if (tensor != kNone) shard.part = partOf(name, piece, tensor, shard.lengths);
    std::vector<CutBox> boxes{{Dims(entry.lengths.size(), 0), entry.offsets, shard.lengths}};
    if (isFused(entry, fusedDim)) boxes = thirdsOf(entry, static_cast<size_t>(fusedDim));
    if (tensor != kNone) {
        const DType dtype = contents(shard.part.file).tensors[tensor].dtype;
        assembly_.addBoxes(path, dtype, entry.globalShape, Role::parameter, shard, std::move(boxes));
        return;
    }
    for (CutBox& box : boxes) {
        shard.offsets = std::move(box.offsets);
        shard.lengths = std::move(box.lengths);
        assembly_.addLost(path, entry.globalShape, Role::parameter, fileOf(piece).id, shard);
    }
}

// Buffers, and further names of tied tensors: in the weight files only.
void DistributedOpener::addUnlisted() {
    std::set<std::pair<uint32_t, uint32_t>> looked;  // rank and file
    for (size_t r = 0; r < ranks_.size(); ++r) {
        for (const auto& [id, file] : refs_[r]) {
            if (file != kNone && looked.emplace(ranks_[r].id, file).second) addUnlisted(ranks_[r], file);
        }
    }
}

void DistributedOpener::addUnlisted(const RankFile& rank, uint32_t file) {
    const RankMetadata& metadata = rank.metadata;
    for (uint32_t t = 0; t < contents(file).tensors.size(); ++t) {
        const StoredTensor& tensor = contents(file).tensors[t];
        if (tensor.special != kNone || names_.find(tensor.name) != SIZE_MAX) continue;
        const std::string_view tied =
            tensor.sameAs == kNone ? std::string_view() : contents(file).tensors[tensor.sameAs].name;
        if (tied.empty() || names_.find(tied) == SIZE_MAX) {
            assembly_.addWhole(file, t, tensor.path, Role::buffer, rank.id);
            continue;
        }
        const size_t e = metadata.names.find(tied);
        if (e == SIZE_MAX) continue;
        const PieceEntry& entry = metadata.entries[e];
        assembly_.addPiece(tensor.path, tensor.dtype, entry.globalShape, Role::parameter,
                           {rank.id, StoredPart::whole(file, t), entry.offsets, tensor.shape, {}});
    }
}

void DistributedOpener::addObjects() {
    std::set<std::string> names;
    for (const auto& refs : refs_) {
        for (const auto& [id, file] : refs) {
            if (file == kNone) continue;
            const uint32_t rank = weightFileId(contents(file).name).value_or(0);
            for (const StoredObject& object : contents(file).objects) {
                if (names.insert(object.name).second)
                    assembly_.addObject(file, object.path, object.value, rank);
            }
        }
    }
}

}  // namespace shardscope::colossalai
