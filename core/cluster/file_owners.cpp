#include "cluster/file_owners.h"

#include <algorithm>

#include "execute/tensor_reader.h"

namespace shardscope {

std::vector<int> fileOwners(const ConvertJob& job, int workers) {
    const TargetLayout& layout = *job.layout;
    std::vector<bool> used(layout.files.size(), false);
    for (const FileId file : layout.chunkFile)
        used[file] = true;
    const auto count = static_cast<size_t>(std::count(used.begin(), used.end(), true));
    std::vector<int> owners(layout.files.size(), 0);
    size_t index = 0;
    for (size_t f = 0; f < used.size() && !job.singleFile; ++f) {
        if (used[f]) owners[f] = static_cast<int>(index++ * static_cast<size_t>(workers) / count);
    }
    return owners;
}

std::map<std::string, int> ownersByName(const ConvertJob& job, int workers) {
    std::map<std::string, int> names;
    const std::vector<int> owners = fileOwners(job, workers);
    for (size_t f = 0; f < owners.size(); ++f)
        names[job.singleFile ? splitPath(job.destination).second : job.layout->files[f].path] = owners[f];
    return names;
}

namespace {

// Adds for each worker the elements of [begin, end) that are in chunks of its files.
template <class OwnerOf>
void addElements(const Catalog& catalog, TensorId tensor, int64_t begin, int64_t end, OwnerOf&& ownerOf,
                 std::vector<int64_t>& elements) {
    const DimSpan shape = catalog.shape(tensor);
    for (ChunkId c = catalog.firstChunk(tensor); c < catalog.endChunk(tensor); ++c) {
        const ChunkInfo info = catalog.chunk(tensor, c);
        const ChunkShape chunk = ChunkShape::of(info);
        if (chunk.elements() <= 0 || !boxInside(chunk.offsets, chunk.lengths, shape)) continue;
        const ChunkShape::Piece piece = chunk.pieceIn(begin, end, shape);
        const int owner = ownerOf(c, info);
        if (!piece.empty() && owner >= 0) elements[static_cast<size_t>(owner)] += piece.hi - piece.lo;
    }
}

}  // namespace

TileHomes homesOf(const ConvertJob& job, int workers, std::shared_ptr<const PeerTable> table,
                  std::vector<int> disks) {
    const auto homeOf = [&job, table = std::move(table), disks = std::move(disks), workers,
                         owners = fileOwners(job, workers)](PartWork work, TensorId target, int64_t begin,
                                                            int64_t end) {
        std::vector<int64_t> elements(static_cast<size_t>(workers), 0);
        const TensorSource& from = job.spec->sources[target];
        const Catalog& have = job.source->catalog();
        if (table && work != PartWork::verify && !from.view && from.source < have.tensorCount())
            addElements(
                have, from.source, begin, end,
                [&](ChunkId, const ChunkInfo& info) {
                    return info.file == kNone ? -1 : table->ownerOf(have.files()[info.file].path);
                },
                elements);
        if (!disks.empty() && work != PartWork::reread)
            addElements(
                job.spec->target, target, begin, end,
                [&](ChunkId c, const ChunkInfo&) {
                    return disks[static_cast<size_t>(owners[job.layout->chunkFile[c]])];
                },
                elements);
        const auto most = std::ranges::max_element(elements);
        if (*most == 0 || std::ranges::count(elements, *most) > 1) return -1;
        return static_cast<int>(most - elements.begin());
    };
    return {workers, homeOf};
}

}  // namespace shardscope
