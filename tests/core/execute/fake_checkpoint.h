// A checkpoint format for tests of the executor: random tensors cut at random, raw bytes in a few files.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "execute/executor.h"
#include "storage/digest.h"
#include "support/memory_file_system.h"

namespace shardscope::test {

using Bytes = std::vector<std::byte>;
using Random = std::mt19937_64;

struct Piece {
    Box box;
    std::optional<FlatRange> flat;
};

struct FakeTensor {
    std::string name;
    DType dtype = DType::float32;
    Dims shape;
    Bytes data;  // row-major
    TensorId aliasOf = kNone;
};

inline int64_t pick(Random& random, int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
}

inline Bytes randomBytes(Random& random, size_t size) {
    Bytes bytes(size);
    for (size_t i = 0; i < size; i += 8) {
        const uint64_t word = random();
        std::memcpy(bytes.data() + i, &word, std::min<size_t>(8, size - i));
    }
    return bytes;
}

// Elements of a piece in its own order, one by one.
inline Bytes bytesOfPiece(const FakeTensor& tensor, const Piece& piece) {
    const size_t size = dtypeBytes(tensor.dtype);
    const Dims strides = rowMajorStrides(tensor.shape);
    Bytes out;
    const int64_t total = elementCount(piece.box.lengths);
    const int64_t start = piece.flat ? piece.flat->start : 0, stop = piece.flat ? piece.flat->stop : total;
    out.resize(static_cast<size_t>(stop - start) * size);
    if (total == 0) return out;
    Dims index(tensor.shape.size(), 0);
    for (int64_t i = 0; i < stop; ++i) {
        if (i >= start) {
            int64_t position = 0;
            for (size_t d = 0; d < index.size(); ++d)
                position += (piece.box.offsets[d] + index[d]) * strides[d];
            std::memcpy(out.data() + static_cast<size_t>(i - start) * size,
                        tensor.data.data() + static_cast<size_t>(position) * size, size);
        }
        for (size_t d = index.size(); d-- > 0;) {
            if (++index[d] < piece.box.lengths[d]) break;
            index[d] = 0;
        }
    }
    return out;
}

// Halves a box at random, `depth` times; then some boxes become flat ranges.
inline void cutBox(Random& random, Box box, int depth, std::vector<Piece>& out) {
    std::vector<size_t> wide;
    for (size_t d = 0; d < box.lengths.size(); ++d) {
        if (box.lengths[d] > 1) wide.push_back(d);
    }
    if (depth == 0 || wide.empty()) {
        const int64_t n = elementCount(box.lengths);
        if (n > 3 && random() % 4 == 0) {
            const int64_t cut = pick(random, 1, n - 1);
            out.push_back({box, FlatRange{cut, n}});
            out.push_back({box, FlatRange{0, cut}});
        } else {
            out.push_back({box, std::nullopt});
        }
        return;
    }
    const size_t d = wide[random() % wide.size()];
    const int64_t cut = pick(random, 1, box.lengths[d] - 1);
    Box a = box, b = box;
    a.lengths[d] = cut;
    b.offsets[d] += cut;
    b.lengths[d] -= cut;
    cutBox(random, b, depth - 1, out);
    cutBox(random, a, depth - 1, out);
}

inline std::vector<Piece> cutGrid(Random& random, const Dims& shape) {
    std::vector<Piece> pieces = {{Box{Dims(shape.size(), 0), shape}, std::nullopt}};
    for (size_t d = 0; d < shape.size(); ++d) {
        const int64_t parts = std::min<int64_t>(shape[d], pick(random, 1, 4));
        std::vector<Piece> next;
        for (const Piece& piece : pieces) {
            for (int64_t i = 0; i < parts; ++i) {
                Piece part = piece;
                part.box.offsets[d] = shape[d] * i / parts;
                part.box.lengths[d] = shape[d] * (i + 1) / parts - part.box.offsets[d];
                next.push_back(part);
            }
        }
        pieces = std::move(next);
    }
    return pieces;
}

inline std::vector<Piece> cutAtRandom(Random& random, const Dims& shape) {
    std::vector<Piece> pieces;
    if (elementCount(shape) == 0) return {{Box{Dims(shape.size(), 0), shape}, std::nullopt}};
    if (random() % 2) {
        pieces = cutGrid(random, shape);
    } else {
        cutBox(random, Box{Dims(shape.size(), 0), shape}, static_cast<int>(random() % 5), pieces);
    }
    std::shuffle(pieces.begin(), pieces.end(), random);
    return pieces;
}

inline FakeTensor randomTensor(Random& random, const std::string& name, int64_t maxElements, DType dtype) {
    FakeTensor tensor{name, dtype, {}, {}, kNone};
    const auto rank = static_cast<size_t>(pick(random, 0, 4));
    int64_t room = maxElements;
    for (size_t d = 0; d < rank; ++d) {
        const int64_t n = d + 1 == rank ? pick(random, 1, std::max<int64_t>(1, room))
                                        : pick(random, 1, std::max<int64_t>(1, std::min<int64_t>(room, 97)));
        tensor.shape.push_back(n);
        room = std::max<int64_t>(1, room / n);
    }
    std::shuffle(tensor.shape.begin(), tensor.shape.end(), random);
    tensor.data = randomBytes(random, static_cast<size_t>(elementCount(tensor.shape)) * dtypeBytes(dtype));
    return tensor;
}

// Where a reader finds a chunk.
struct FakeChunk {
    FileId file = 0;
    uint64_t offset = 0;
    uint64_t length = 0;
    Dims strides;
    bool swapBytes = false, conjugate = false, negate = false;
    std::optional<DType> storedAs;
};

class FakeReader final : public Reader {
  public:
    FakeReader(Catalog catalog, std::vector<std::string> files, std::vector<FakeChunk> chunks,
               std::shared_ptr<Directory> directory)
        : catalog_(std::move(catalog)),
          files_(std::move(files)),
          chunks_(std::move(chunks)),
          directory_(std::move(directory)) {}

    const Catalog& catalog() const override { return catalog_; }
    Result<Extent> locate(ChunkId id) const override {
        const FakeChunk& chunk = chunks_[id];
        Extent extent;
        SHARDSCOPE_ASSIGN(extent.file, directory_->openFile(files_[chunk.file]));
        extent.offset = chunk.offset;
        extent.length = chunk.length;
        extent.strides = chunk.strides;
        extent.swapBytes = chunk.swapBytes;
        extent.conjugate = chunk.conjugate;
        extent.negate = chunk.negate;
        extent.storedAs = chunk.storedAs;
        return extent;
    }
    Result<Value> objectValue(ObjectId) const override { return Value{}; }
    Result<std::shared_ptr<const ReadFile>> openFile(FileId file) const override {
        return directory_->openFile(files_[file]);
    }

  private:
    Catalog catalog_;
    std::vector<std::string> files_;
    std::vector<FakeChunk> chunks_;
    std::shared_ptr<Directory> directory_;
};

inline Catalog makeCatalog(const std::vector<FakeTensor>& tensors,
                           const std::vector<std::vector<Piece>>& cuts, const std::vector<std::string>& files,
                           const std::vector<FakeChunk>* chunks) {
    CatalogBuilder builder("fake", "", "test");
    for (const std::string& path : files) {
        FileInfo info;
        info.path = path;
        builder.addFile(info);
    }
    size_t next = 0;
    for (size_t t = 0; t < tensors.size(); ++t) {
        TensorInfo info;
        info.name = tensors[t].name;
        info.path = {keyPart(info.name)};
        info.dtype = tensors[t].dtype;
        info.shape = tensors[t].shape;
        info.aliasOf = tensors[t].aliasOf;
        if (!builder.addTensor(info).ok()) std::abort();
        for (const Piece& piece : cuts[t]) {
            CatalogBuilder::Chunk chunk;
            chunk.rank = 0;
            chunk.offsets = piece.box.offsets;
            chunk.lengths = piece.box.lengths;
            chunk.flat = piece.flat;
            if (chunks) {
                chunk.file = (*chunks)[next].file;
                chunk.offset = (*chunks)[next].offset;
                chunk.length = (*chunks)[next].length;
            }
            ++next;
            if (!builder.addChunk(chunk).ok()) std::abort();
        }
    }
    return std::move(builder).finish();
}

// Writes the tensors to /src in three files and gives a reader for them.
struct FakeSource {
    std::vector<FakeTensor> tensors;
    std::vector<std::vector<Piece>> cuts;
    std::vector<FakeChunk> chunks;
    std::vector<std::string> files{"a.bin", "b.bin", "c.bin"};
    std::string root = "/src";

    void add(Random& random, FakeTensor tensor) {
        cuts.push_back(cutAtRandom(random, tensor.shape));
        tensors.push_back(std::move(tensor));
    }
    void write(Random& random, MemoryFileSystem& system) {
        std::vector<Bytes> contents(files.size());
        for (size_t t = 0; t < tensors.size(); ++t) {
            for (const Piece& piece : cuts[t]) {
                const auto file = static_cast<FileId>(random() % files.size());
                contents[file].resize(contents[file].size() + random() % 50);
                const Bytes bytes = bytesOfPiece(tensors[t], piece);
                chunks.push_back({file, contents[file].size(), bytes.size(), {}, false, false, false});
                contents[file].insert(contents[file].end(), bytes.begin(), bytes.end());
            }
        }
        for (size_t f = 0; f < files.size(); ++f)
            system.put(root + "/" + files[f], contents[f]);
    }
    std::unique_ptr<FakeReader> open(FileSystem& system) const {
        return std::make_unique<FakeReader>(makeCatalog(tensors, cuts, files, &chunks), files, chunks,
                                            system.openDirectory(root).value());
    }
};

// Each file: 16 bytes of head, chunks with up to 5000 bytes of padding before them, 4 bytes of CRC behind
// each chunk.
class FakeLayout final : public TargetLayout {
  public:
    FakeLayout(Random& random, const Catalog& target, const std::vector<uint64_t>& lengths, size_t fileCount)
        : lengths_(lengths) {
        needsCrc = true;
        files.resize(fileCount);
        for (size_t f = 0; f < fileCount; ++f)
            files[f] = {"part/" + std::to_string(f) + ".out", 16, false};
        for (TensorId t = 0; t < target.tensorCount(); ++t) {
            const TensorId first = target.aliasOf(t);
            for (ChunkId c = target.firstChunk(t); c < target.endChunk(t); ++c) {
                if (first != kNone && first != t) {
                    const ChunkId same = target.firstChunk(first) + (c - target.firstChunk(t));
                    chunkFile.push_back(chunkFile[same]);
                    chunkOffset.push_back(chunkOffset[same]);
                    continue;
                }
                TargetFile& file = files[random() % fileCount];
                file.size += random() % 3 == 0 ? 0 : random() % 5000;
                if (random() % 3 == 0) file.size = (file.size + 4095) / 4096 * 4096;
                chunkFile.push_back(static_cast<FileId>(&file - files.data()));
                chunkOffset.push_back(file.size);
                file.size += lengths[c] + 4;
            }
        }
    }
    Status chunkLiterals(ChunkId chunk, uint32_t crc32, const LiteralSink& sink) const override {
        return sink(chunkFile[chunk], chunkOffset[chunk] + lengths_[chunk],
                    std::as_bytes(std::span(&crc32, 1)));
    }
    Status fileLiterals(FileId file, std::span<const uint32_t> crcs, const LiteralSink& sink) const override {
        uint64_t head[2] = {0x0123456789abcdef, 0};
        for (size_t c = 0; c < crcs.size(); ++c) {
            if (chunkFile[c] == file) head[1] += crcs[c];
        }
        return sink(file, 0, std::as_bytes(std::span(head)));
    }

  private:
    std::vector<uint64_t> lengths_;
};

// A conversion of a FakeSource to random cuts, ready to run.
struct FakeJob {
    std::vector<FakeTensor> tensors;  // as wanted
    std::vector<std::vector<Piece>> cuts;
    TargetSpec spec;
    std::unique_ptr<FakeLayout> layout;
    Plan plan;
    std::unique_ptr<FakeReader> reader;
    std::vector<FakeChunk> chunks;
    ConvertJob job;

    FakeJob(Random& random, const FakeSource& source, std::shared_ptr<FileSystem> system,
            const std::vector<FakeTensor>& wantedTensors)
        : tensors(wantedTensors), reader(source.open(*system)) {
        for (const FakeTensor& t : tensors) {
            cuts.push_back(t.aliasOf != kNone ? cuts[t.aliasOf] : cutAtRandom(random, t.shape));
        }
        std::vector<uint64_t> lengths;
        for (size_t t = 0; t < tensors.size(); ++t) {
            spec.sources.push_back({static_cast<TensorId>(t)});
            for (const Piece& p : cuts[t]) {
                const int64_t n = p.flat ? p.flat->stop - p.flat->start : elementCount(p.box.lengths);
                lengths.push_back(static_cast<uint64_t>(n) * dtypeBytes(tensors[t].dtype));
            }
        }
        spec.target = makeCatalog(tensors, cuts, {}, nullptr);
        layout = std::make_unique<FakeLayout>(random, spec.target, lengths, 3);
        std::vector<std::string> names;
        for (const TargetFile& f : layout->files)
            names.push_back(f.path);
        for (size_t c = 0; c < lengths.size(); ++c) {
            chunks.push_back(
                {layout->chunkFile[c], layout->chunkOffset[c], lengths[c], {}, false, false, false});
        }
        job.source = reader.get();
        job.spec = &spec;
        job.layout = layout.get();
        job.plan = &plan;
        job.fileSystem = system;
        job.destination = "/out/dst";
        job.reopen = [this, system, names](const std::string& path) -> Result<std::unique_ptr<Reader>> {
            SHARDSCOPE_ASSIGN(auto directory, system->openDirectory(path));
            return std::unique_ptr<Reader>(std::make_unique<FakeReader>(
                makeCatalog(tensors, cuts, names, &chunks), names, chunks, directory));
        };
    }

    // Bytes that the destination must have; padding is zero.
    std::map<std::string, Bytes> expected() const {
        std::map<std::string, Bytes> out;
        for (const TargetFile& f : layout->files)
            out[f.path].resize(f.size);
        std::vector<uint32_t> crcs;
        const LiteralSink sink = [&](FileId f, uint64_t offset, std::span<const std::byte> bytes) -> Status {
            std::copy(bytes.begin(), bytes.end(),
                      out[layout->files[f].path].begin() + static_cast<ptrdiff_t>(offset));
            return {};
        };
        ChunkId c = 0;
        for (size_t t = 0; t < tensors.size(); ++t) {
            for (const Piece& piece : cuts[t]) {
                const Bytes bytes = bytesOfPiece(tensors[t], piece);
                (void)sink(layout->chunkFile[c], layout->chunkOffset[c], bytes);
                crcs.push_back(crc32Of(bytes));
                (void)layout->chunkLiterals(c, crcs.back(), sink);
                ++c;
            }
        }
        for (FileId f = 0; f < layout->files.size(); ++f)
            (void)layout->fileLiterals(f, crcs, sink);
        return out;
    }
};

}  // namespace shardscope::test
