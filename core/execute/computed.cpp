#include "execute/computed.h"

#include <new>

namespace shardscope {
namespace {

class ComputedFile final : public ReadFile, public StoredBytes {
  public:
    ComputedFile(std::shared_ptr<const ReadFile> origin, std::shared_ptr<const ComputedElements> elements,
                 uint64_t size, size_t elementBytes)
        : origin_(std::move(origin)),
          elements_(std::move(elements)),
          size_(size),
          elementBytes_(elementBytes) {}
    const std::string& path() const override { return origin_->path(); }
    uint64_t size() const override { return size_; }
    Status readAt(uint64_t offset, std::span<std::byte> buffer) const override {
        if (offset % elementBytes_ != 0 || buffer.size() % elementBytes_ != 0 || offset > size_ ||
            buffer.size() > size_ - offset)
            return makeError(ErrorCode::internal, "elements from outside of a computed tensor are asked for");
        try {
            return elements_->read(static_cast<int64_t>(offset / elementBytes_),
                                   static_cast<int64_t>(buffer.size() / elementBytes_), buffer.data());
        } catch (const std::bad_alloc&) {
            return makeError(ErrorCode::limit, "no memory to compute a tensor");
        }
    }
    uint64_t countStored(uint64_t bytes) const override { return elements_->countStored(bytes); }
    Result<Fingerprint> fingerprint() const override { return origin_->fingerprint(); }

  private:
    const std::shared_ptr<const ReadFile> origin_;
    const std::shared_ptr<const ComputedElements> elements_;
    const uint64_t size_;
    const size_t elementBytes_;
};

}  // namespace

Result<PartReader> PartReader::open(SourceContext& context, TensorId part) {
    PartReader reader;
    SHARDSCOPE_ASSIGN(reader.tensor_,
                      TensorReader::prepare(context, part, nullptr, TensorReader::Strided::scratch));
    return reader;
}

Status PartReader::read(int64_t first, int64_t count, std::vector<std::byte>& bytes,
                        AlignedBuffer& io) const {
    bytes.resize(bytesOfElements(dtype(), count));
    if (count == 0) return {};
    if (first < 0 || count < 0 || first > elements() - count)
        return makeError(ErrorCode::internal, "elements from outside of a part are asked for");
    io.reset(tensor_->readBufferBytes(first, first + count) + kIoAlignment);
    return tensor_->readTile(first, first + count, bytes, io.span());
}

Result<std::vector<float>> PartReader::floats() const {
    std::vector<std::byte> bytes;
    AlignedBuffer io;
    SHARDSCOPE_TRY(read(0, elements(), bytes, io));
    std::vector<float> numbers(static_cast<size_t>(elements()));
    castElements(dtype(), bytes.data(), DType::float32, reinterpret_cast<std::byte*>(numbers.data()),
                 numbers.size());
    return numbers;
}

std::shared_ptr<const ReadFile> computedFile(std::shared_ptr<const ReadFile> origin,
                                             std::shared_ptr<const ComputedElements> elements, int64_t count,
                                             DType dtype) {
    return std::make_shared<ComputedFile>(std::move(origin), std::move(elements),
                                          bytesOfElements(dtype, count), dtypeBytes(dtype));
}

ComputedCatalog::ComputedCatalog(const Catalog& source)
    : source_(source),
      builder_(source.format(), source.variant(), source.writer()),
      made_(source.tensorCount(), kNone),
      specials_(source.specials().size(), kNone) {
    for (const FileInfo& file : source.files())
        builder_.addFile(file);
}

// Taken over with its first part: of those whose parts are all computed nothing special is left.
uint32_t ComputedCatalog::specialOf(TensorId t) {
    const uint32_t special = source_.special(t);
    if (special == kNone) return kNone;
    if (specials_[special] == kNone) specials_[special] = builder_.addSpecial(source_.specials()[special]);
    return specials_[special];
}

TensorId ComputedCatalog::aliasOf(TensorId t) const {
    const TensorId first = source_.aliasOf(t);
    return first == kNone ? kNone : made_[first];
}

Status ComputedCatalog::addSame(TensorId t) {
    const DimSpan shape = source_.shape(t);
    made_[t] = static_cast<TensorId>(builder_.tensorCount());
    SHARDSCOPE_TRY(
        builder_.addTensor({std::string(source_.name(t)), source_.path(t), source_.dtype(t),
                            Dims(shape.begin(), shape.end()), source_.role(t), aliasOf(t), specialOf(t)}));
    for (ChunkId c = source_.firstChunk(t); c < source_.endChunk(t); ++c) {
        const ChunkInfo chunk = source_.chunk(t, c);
        SHARDSCOPE_TRY(addChunk(
            {chunk.rank, chunk.file, chunk.offset, chunk.length, chunk.offsets, chunk.lengths, chunk.flat},
            {c, kNone, 0}));
    }
    return {};
}

Status ComputedCatalog::addComputed(TensorId inPlaceOf, std::string name, Path path, DType dtype, Dims shape,
                                    Role role) {
    made_[inPlaceOf] = static_cast<TensorId>(builder_.tensorCount());
    return builder_.addTensor(
        {std::move(name), std::move(path), dtype, std::move(shape), role, aliasOf(inPlaceOf), kNone});
}

Status ComputedCatalog::addChunk(const CatalogBuilder::Chunk& chunk, const ComputedPlace& place) {
    places_.push_back(place);
    return builder_.addChunk(chunk);
}

Catalog ComputedCatalog::finish() && {
    // Those without parts.
    std::vector<bool> hasParts(specials_.size(), false);
    for (TensorId t = 0; t < source_.tensorCount(); ++t)
        if (source_.special(t) != kNone) hasParts[source_.special(t)] = true;
    for (size_t s = 0; s < hasParts.size(); ++s)
        if (!hasParts[s]) builder_.addSpecial(source_.specials()[s]);
    for (const ObjectInfo& object : source_.objects())
        builder_.addObject(object);
    for (const Note& note : source_.notes())
        builder_.addNote(note);
    if (source_.mesh()) builder_.setMesh(*source_.mesh());
    builder_.setRankCount(source_.rankCount());
    return std::move(builder_).finish();
}

Result<Extent> ComputedReader::extentOf(const ChunkInfo& chunk) const {
    const ComputedPlace& place = places_[chunk.id];
    return place.source == kNone ? computedExtent(chunk, place) : source_->locate(place.source);
}

}  // namespace shardscope
