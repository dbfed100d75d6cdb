#include "execute/identity.h"

#include <bit>
#include <numeric>

#include <fmt/format.h>
#include <xxhash.h>

#include "plan/view.h"

namespace shardscope {
namespace {

class Hasher {
  public:
    Hasher() : state_(XXH3_createState()) { XXH3_128bits_reset(state_); }
    Hasher(const Hasher&) = delete;
    Hasher& operator=(const Hasher&) = delete;
    ~Hasher() { XXH3_freeState(state_); }

    void number(uint64_t value) { XXH3_128bits_update(state_, &value, sizeof value); }
    void text(std::string_view value) {
        number(value.size());
        XXH3_128bits_update(state_, value.data(), value.size());
    }
    void dims(DimSpan values) {
        number(values.size());
        XXH3_128bits_update(state_, values.data(), values.size_bytes());
    }
    void box(const ChunkInfo& chunk) {
        dims(chunk.offsets);
        dims(chunk.lengths);
        number(chunk.flat ? static_cast<uint64_t>(chunk.flat->start) : UINT64_MAX);
        number(chunk.flat ? static_cast<uint64_t>(chunk.flat->stop) : UINT64_MAX);
    }
    void source(const TensorSource& from) {
        number(from.source);
        if (!from.view) return;
        dims(from.view->dims());
        for (const ViewPiece& piece : from.view->pieces()) {
            number(piece.source);
            number(std::bit_cast<uint64_t>(piece.fill));
            number(static_cast<uint64_t>(piece.start));
            dims(piece.box.offsets);
            dims(piece.box.lengths);
            dims(piece.strides);
        }
        for (const ValueChange& change : from.view->changes()) {
            number(static_cast<uint64_t>(change.kind));
            number(std::bit_cast<uint64_t>(change.operand));
        }
    }
    Digest128 result() const {
        const XXH128_hash_t hash = XXH3_128bits_digest(state_);
        return {hash.low64, hash.high64};
    }

  private:
    XXH3_state_t* state_;
};

}  // namespace

Status checkJob(const ConvertJob& job) {
    if (!job.source || !job.spec || !job.layout || !job.fileSystem) {
        return makeError(ErrorCode::internal, "the conversion is not fully described");
    }
    if (!job.spec->impossible.empty()) {
        const PlanLeftOut& first = job.spec->impossible.front();
        return makeError(ErrorCode::impossible,
                         fmt::format("'{}' cannot be converted: {}", first.name, first.why));
    }
    const Catalog& target = job.spec->target;
    if (job.spec->sources.size() != target.tensorCount() ||
        job.layout->chunkFile.size() != target.chunkCount() ||
        job.layout->chunkOffset.size() != target.chunkCount()) {
        return makeError(ErrorCode::internal, "plan and layout do not fit together");
    }
    if (const Average* average = job.average) {
        bool fits = average->inputs.size() > 1 && average->rules.size() == target.tensorCount();
        for (const AverageInput& input : average->inputs)
            fits = fits && input.source && input.sources.size() == target.tensorCount();
        if (!fits) return makeError(ErrorCode::internal, "the average is not fully described");
    }
    return {};
}

Digest128 planFingerprint(const ConvertJob& job) {
    const Catalog& target = job.spec->target;
    const TargetLayout& layout = *job.layout;
    Hasher hash;
    hash.text("shardscope conversion 1");
    hash.text(job.plan ? job.plan->targetFormat : "");
    hash.text(job.plan ? job.plan->targetVariant : "");
    hash.number(static_cast<uint64_t>(job.options.fillGaps));
    hash.number(job.options.scanValues);
    hash.number(layout.needsCrc);
    if (job.adapter) hash.text(job.adapterWords);
    if (job.average) {
        hash.text(dtypeName(job.average->accumulate));
        for (const AverageInput& input : job.average->inputs)
            hash.number(std::bit_cast<uint64_t>(input.weight));
    }
    hash.number(layout.files.size());
    for (const TargetFile& file : layout.files) {
        hash.text(file.path);
        hash.number(file.size);
    }
    for (TensorId t = 0; t < target.tensorCount(); ++t) {
        hash.text(target.name(t));
        hash.number(static_cast<uint64_t>(target.dtype(t)));
        hash.number(target.aliasOf(t));
        hash.source(job.spec->sources[t]);
        if (job.average) {
            hash.number(static_cast<uint64_t>(job.average->rules[t]));
            for (const AverageInput& input : job.average->inputs)
                hash.source(input.sources[t]);
        }
        hash.dims(target.shape(t));
        for (ChunkId c = target.firstChunk(t); c < target.endChunk(t); ++c) {
            const ChunkInfo chunk = target.chunk(t, c);
            hash.box(chunk);
            hash.number(layout.chunkFile[c]);
            hash.number(layout.chunkOffset[c]);
        }
    }
    return hash.result();
}

namespace {

// The files that hold chunks of the source tensors.
std::vector<FileId> usedFiles(const Catalog& have, const std::vector<TensorSource>& sources) {
    std::vector<bool> used(have.files().size(), false);
    for (const TensorSource& source : sources) {
        for (const TensorId t : source.tensors()) {
            if (t >= have.tensorCount()) continue;
            for (ChunkId c = have.firstChunk(t); c < have.endChunk(t); ++c) {
                const FileId file = have.chunk(t, c).file;
                if (file < used.size()) used[file] = true;
            }
        }
    }
    std::vector<FileId> files;
    for (FileId f = 0; f < used.size(); ++f) {
        if (used[f]) files.push_back(f);
    }
    return files;
}

// A file that is missing matters when a tensor needs it; locate() says so then.
Result<Fingerprint> printOf(const Reader& reader, FileId id) {
    const auto file = reader.openFile(id);
    return file.ok() ? (*file)->fingerprint() : Fingerprint();
}

}  // namespace

Result<std::vector<SourceFile>> sourceFiles(const ConvertJob& job) {
    if (!job.average) {
        SHARDSCOPE_ASSIGN(auto files,
                          sourceFiles(*job.source, usedFiles(job.source->catalog(), job.spec->sources)));
        if (!job.adapter) return files;
        std::vector<FileId> all(job.adapter->catalog().files().size());
        std::iota(all.begin(), all.end(), FileId{0});
        SHARDSCOPE_ASSIGN(const auto more, sourceFiles(*job.adapter, all));
        files.insert(files.end(), more.begin(), more.end());
        return files;
    }
    std::vector<SourceFile> files;
    for (const AverageInput& input : job.average->inputs) {
        SHARDSCOPE_ASSIGN(const auto more,
                          sourceFiles(*input.source, usedFiles(input.source->catalog(), input.sources)));
        files.insert(files.end(), more.begin(), more.end());
    }
    return files;
}

Result<std::vector<SourceFile>> sourceFiles(const Reader& reader, const std::vector<FileId>& wanted) {
    std::vector<SourceFile> files;
    for (const FileId f : wanted) {
        SHARDSCOPE_ASSIGN(const Fingerprint print, printOf(reader, f));
        files.push_back({&reader, f, print});
    }
    return files;
}

Digest128 sourceFingerprint(const std::vector<SourceFile>& files) {
    Hasher hash;
    for (const SourceFile& file : files) {
        hash.text(file.path());
        hash.number(file.print.device);
        hash.number(file.print.inode);
        hash.number(file.print.size);
        hash.number(static_cast<uint64_t>(file.print.modifiedNs));
        hash.number(static_cast<uint64_t>(file.print.changedNs));
    }
    return hash.result();
}

Digest128 sharedFingerprint(const std::vector<SourceFile>& files) {
    Hasher hash;
    for (const SourceFile& file : files) {
        hash.text(file.path());
        hash.number(file.print.size);
        hash.number(static_cast<uint64_t>(file.print.modifiedNs));
    }
    return hash.result();
}

Digest128 readingFingerprint(const Catalog& catalog, std::string_view words) {
    Hasher hash;
    hash.text("shardscope reading 1");
    hash.text(words);
    for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
        hash.text(catalog.name(t));
        hash.number(static_cast<uint64_t>(catalog.dtype(t)));
        hash.number(catalog.aliasOf(t));
        hash.dims(catalog.shape(t));
        for (ChunkId c = catalog.firstChunk(t); c < catalog.endChunk(t); ++c) {
            const ChunkInfo chunk = catalog.chunk(t, c);
            hash.box(chunk);
            hash.number(chunk.file);
            hash.number(chunk.offset);
            hash.number(chunk.length);
        }
    }
    return hash.result();
}

Status checkUnchanged(const std::vector<SourceFile>& before) {
    for (const SourceFile& file : before) {
        SHARDSCOPE_ASSIGN(const Fingerprint now, printOf(*file.reader, file.id));
        if (now == file.print) continue;
        return makeError(ErrorCode::changed, "the source file changed while it was read")
            .inFile(file.path())
            .withHint("wait until nobody writes the source, then start again");
    }
    return {};
}

}  // namespace shardscope
