#include "engine/exchanged_files.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "base/names.h"
#include "base/rule.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "engine/masters.h"
#include "execute/executor.h"
#include "expectation/copied_files.h"

namespace shardscope {

namespace {

constexpr int64_t kElements = 256;       // of a sample, at most
constexpr int64_t kFewestElements = 16;  // that tell anything
constexpr size_t kSamples = 8;           // of a file
constexpr size_t kMostTries = 64;        // of a file: samples of zeros tell nothing
constexpr size_t kMostFiles = 4096;
constexpr size_t kMostTold = 100;
constexpr uint64_t kMemory = uint64_t{64} << 20;

// Some elements of a chunk.
class ValueSamples {
  public:
    ValueSamples(const Reader& reader, const StopToken& stop)
        : reader_(reader), memory_(kMemory), resources_{&sharedPool(), &memory_, nullptr, stop, {}} {}

    std::vector<float> of(TensorId tensor, const Box& box) const {
        const auto bytes = readRegion(reader_, tensor, box, kElements * 8, resources_);
        const DType dtype = reader_.catalog().dtype(tensor);
        if (!bytes.ok() || !castSupported(dtype, DType::float32)) return {};
        std::vector<float> values(static_cast<size_t>(elementCount(box.lengths)));
        castElements(dtype, bytes->data(), DType::float32, reinterpret_cast<std::byte*>(values.data()),
                     values.size());
        return values;
    }

  private:
    const Reader& reader_;
    MemoryBudget memory_;
    const Resources resources_;
};

// Elements at the beginning of a chunk: of its first whole rows, else the end of one.
Box beginningOf(const ChunkInfo& chunk) {
    const size_t dims = chunk.lengths.size();
    Box box{Dims(chunk.offsets.begin(), chunk.offsets.end()), Dims(dims, 1)};
    if (dims == 0) return box;
    const int64_t row = chunk.lengths[dims - 1];
    int64_t from = chunk.flat ? chunk.flat->start : 0;
    const int64_t to = from + chunk.elements();
    int64_t width = std::min(row - from % row, to - from), height = 1;
    if (const int64_t first = (from + row - 1) / row; (first + 1) * row <= to && dims > 1) {
        from = first * row;
        width = row;
        height = std::min(to / row - first, chunk.lengths[dims - 2] - first % chunk.lengths[dims - 2]);
    }
    box.lengths[dims - 1] = std::min(width, kElements);
    if (dims > 1) box.lengths[dims - 2] = std::clamp<int64_t>(kElements / box.lengths[dims - 1], 1, height);
    for (size_t d = dims; d-- > 0; from /= chunk.lengths[d])
        box.offsets[d] += from % chunk.lengths[d];
    return box;
}

class MasterAgreement {
  public:
    MasterAgreement(const Reader& reader, const StopToken& stop)
        : catalog_(reader.catalog()), stop_(stop), values_(reader, stop) {}

    Result<std::vector<Note>> notes() && {
        const std::vector<TensorId> masters = mastersOf(catalog_);
        for (TensorId t = 0; t < masters.size(); ++t) {
            const DType dtype = catalog_.dtype(t);
            if (masters[t] == kNone || catalog_.aliasOf(t) != kNone || catalog_.special(t) != kNone ||
                (dtype != DType::bfloat16 && dtype != DType::float16))
                continue;
            addSamples(t, masters[t], t);
            addSamples(t, masters[t], masters[t]);
        }
        std::vector<Seen*> files;
        for (auto& [file, seen] : files_)
            files.push_back(&seen);
        SHARDSCOPE_TRY(sharedPool().parallelFor(files.size(), stop_, [&](size_t f) {
            look(*files[f]);
            return Status();
        }));
        std::vector<Note> notes;
        for (const auto& [file, seen] : files_) {
            // Norms may be the same on all ranks. One tensor may be new, such as an embedding that was
            // resized.
            if (seen.strange < 2 || 2 * seen.strange < seen.samples || notes.size() == kMostTold) continue;
            Note note;
            note.rule = rule::stateDiffers;
            note.severity = Severity::error;
            note.lacks = Note::Lacks::anything;
            note.file = catalog_.files()[file].path;
            note.tensor = catalog_.name(seen.example);
            note.message = fmt::format(
                "weights are not what their fp32 masters round to: '{}' and the file that it goes with are "
                "of different ranks or saves",
                printable(note.file, kNameInMessage));
            notes.push_back(std::move(note));
        }
        return notes;
    }

  private:
    struct Sample {
        TensorId weight, master;
        ChunkId chunk;  // of either
    };
    struct Seen {
        std::vector<Sample> tries;
        size_t samples = 0, strange = 0;
        TensorId example = kNone;
    };

    // The beginnings of the chunks of `at`, which is the weight or its master.
    void addSamples(TensorId weight, TensorId master, TensorId at) {
        for (ChunkId c = catalog_.firstChunk(at); c < catalog_.endChunk(at); ++c) {
            const ChunkInfo chunk = catalog_.chunk(at, c);
            if (chunk.file == kNone || catalog_.files()[chunk.file].state != FileInfo::State::present ||
                chunk.elements() < kFewestElements ||
                (files_.size() >= kMostFiles && !files_.contains(chunk.file)))
                continue;
            Seen& seen = files_[chunk.file];
            if (seen.tries.size() < kMostTries) seen.tries.push_back({weight, master, c});
        }
    }

    void look(Seen& seen) const {
        for (const Sample& sample : seen.tries) {
            const auto strange =
                differ(sample.weight, sample.master, beginningOf(catalog_.chunk(sample.chunk)));
            if (!strange) continue;
            seen.strange += *strange;
            if (*strange && seen.example == kNone) seen.example = sample.weight;
            if (++seen.samples == kSamples) return;
        }
    }

    // Whether most of the weights have nothing to do with the masters; nullopt where that cannot be said.
    std::optional<bool> differ(TensorId weight, TensorId master, const Box& box) const {
        const auto one = values_.of(weight, box), two = values_.of(master, box);
        if (one.empty() || one.size() != two.size()) return std::nullopt;
        int64_t counted = 0, strange = 0;
        for (size_t i = 0; i < one.size(); ++i) {
            const float most = std::max(std::abs(one[i]), std::abs(two[i]));
            // A zero may be a gap.
            if (!std::isfinite(most) || one[i] == 0 || two[i] == 0) continue;
            ++counted;
            strange += std::abs(one[i] - two[i]) > 0.1F * most;
        }
        if (counted < kFewestElements) return std::nullopt;
        return 2 * strange > counted;
    }

    const Catalog& catalog_;
    const StopToken& stop_;
    const ValueSamples values_;
    std::map<FileId, Seen> files_;
};

// Weights change little from step to step. A file whose weights are unlike those of its own ranks in an
// earlier step, and like those of another file there, was exchanged with it.
class ExchangedSince {
  public:
    ExchangedSince(const Reader& reader, const Reader& earlier, const StopToken& stop)
        : catalog_(reader.catalog()),
          earlier_(earlier.catalog()),
          stop_(stop),
          values_(reader, stop),
          earlierValues_(earlier, stop) {}

    Result<std::vector<Note>> notes(const std::string& step) && {
        std::vector<Family> families = familiesOf(catalog_);
        addChunks(families);
        std::vector<Note> notes;
        for (Family& family : families) {
            SHARDSCOPE_TRY(sharedPool().parallelFor(family.size(), stop_, [&](size_t f) {
                findStrange(family[f]);
                return Status();
            }));
            size_t looks = 0;
            for (const File& file : family) {
                if (file.strange.size() < 2 || 2 * file.strange.size() < file.samples) continue;
                for (const File& other : family) {
                    SHARDSCOPE_TRY(stop_.poll());
                    if (&other == &file || ++looks > kMostFiles || !holdsThatOf(file, other)) continue;
                    if (notes.size() < kMostTold) notes.push_back(noteOf(file, other, step));
                    break;
                }
            }
        }
        return notes;
    }

    struct File {
        FileId id = kNone;
        std::vector<ChunkId> chunks = {};  // of weights, in the order of the catalog
        size_t samples = 0;
        std::map<size_t, std::vector<float>> strange =
            {};  // chunks that are unlike themselves in the earlier step
    };
    using Family = std::vector<File>;  // files that can be taken for each other

    static std::vector<Family> familiesOf(const Catalog& catalog) {
        std::map<std::pair<uint64_t, std::string>, Family> bySize;
        for (FileId f = 0; f < catalog.files().size(); ++f) {
            const FileInfo& file = catalog.files()[f];
            if (!file.metadata && file.referenced && file.state == FileInfo::State::present && f < kMostFiles)
                bySize[{file.size, withoutNumbers(file.path)}].push_back({f});
        }
        std::vector<Family> families;
        for (auto& [key, family] : bySize)
            if (family.size() > 1) families.push_back(std::move(family));
        return families;
    }

  private:
    void addChunks(std::vector<Family>& families) const {
        std::map<FileId, File*> files;
        for (Family& family : families)
            for (File& file : family)
                files[file.id] = &file;
        for (ChunkId c = 0; c < catalog_.chunkCount(); ++c) {
            const ChunkInfo chunk = catalog_.chunk(c);
            const auto at = files.find(chunk.file);
            if (at == files.end() || catalog_.role(chunk.tensor) != Role::parameter ||
                catalog_.special(chunk.tensor) != kNone || chunk.elements() < kFewestElements)
                continue;
            if (at->second->chunks.size() < kMostTries) at->second->chunks.push_back(c);
        }
    }

    std::vector<float> earlierValues(ChunkId c) const {
        const ChunkInfo chunk = catalog_.chunk(c);
        const TensorId t = earlier_.find(catalog_.name(chunk.tensor));
        if (t == kNone || !std::ranges::equal(earlier_.shape(t), catalog_.shape(chunk.tensor))) return {};
        return earlierValues_.of(t, beginningOf(chunk));
    }

    // 0 = the same, about 1 = nothing to do with each other; nullopt where one is zero.
    static std::optional<double> distance(const std::vector<float>& a, const std::vector<float>& b) {
        if (a.empty() || a.size() != b.size()) return std::nullopt;
        double apart = 0, one = 0, two = 0;
        for (size_t i = 0; i < a.size(); ++i) {
            const double x = a[i], y = b[i];
            apart += (x - y) * (x - y);
            one += x * x;
            two += y * y;
        }
        if (!std::isfinite(apart) || one == 0 || two == 0) return std::nullopt;
        return apart / (one + two);
    }

    void findStrange(File& file) const {
        for (size_t p = 0; p < file.chunks.size() && file.samples < kSamples; ++p) {
            const ChunkInfo chunk = catalog_.chunk(file.chunks[p]);
            auto now = values_.of(chunk.tensor, beginningOf(chunk));
            const auto apart = distance(now, earlierValues(chunk.id));
            if (!apart) continue;
            ++file.samples;
            if (*apart > 0.5) file.strange.emplace(p, std::move(now));
        }
    }

    bool holdsThatOf(const File& file, const File& other) const {
        size_t like = 0;
        for (const auto& [p, now] : file.strange) {
            if (p >= other.chunks.size()) return false;
            const auto apart = distance(now, earlierValues(other.chunks[p]));
            like += apart && *apart < 0.1;
        }
        return like > 1 && 2 * like > file.strange.size();
    }

    Note noteOf(const File& file, const File& other, const std::string& step) const {
        const auto shown = [&](const File& one) {
            return printable(catalog_.files()[one.id].path, kNameInMessage);
        };
        Note note;
        note.rule = rule::metaInconsistent;
        note.severity = Severity::error;
        note.lacks = Note::Lacks::anything;
        note.file = catalog_.files()[file.id].path;
        note.tensor = catalog_.name(catalog_.tensorOf(file.chunks[file.strange.begin()->first]));
        note.message = fmt::format(
            "the weights in '{}' are near to those that '{}' has in '{}', and far from its own there: the "
            "files were exchanged",
            shown(file), shown(other), printable(step, kNameInMessage));
        return note;
    }

    const Catalog &catalog_, &earlier_;
    const StopToken& stop_;
    const ValueSamples values_, earlierValues_;
};

}  // namespace

bool mayBeExchanged(const Catalog& catalog) {
    return !ExchangedSince::familiesOf(catalog).empty();
}

Result<std::vector<Note>> exchangedSinceNotes(const Reader& reader, const Reader& earlier,
                                              const std::string& step, const StopToken& stop) {
    return ExchangedSince(reader, earlier, stop).notes(step);
}

namespace {

Result<std::vector<Note>> findExchanged(const Reader& reader, const StopToken& stop) {
    SHARDSCOPE_ASSIGN(std::vector<Note> notes, copiedFileNotes(reader, stop));
    SHARDSCOPE_ASSIGN(const std::vector<Note> masters, MasterAgreement(reader, stop).notes());
    notes.insert(notes.end(), masters.begin(), masters.end());
    return notes;
}

}  // namespace

Result<std::vector<Note>> exchangedFileNotes(const Checkpoint& checkpoint, const StopToken& stop) {
    // Of a checkpoint that was not opened but made.
    if (!checkpoint.exchanged) return findExchanged(*checkpoint.reader, stop);
    ExchangedFiles& kept = *checkpoint.exchanged;
    const MutexLock lock(kept.mutex);
    if (kept.reader == checkpoint.reader) return kept.notes;
    SHARDSCOPE_ASSIGN(kept.notes, findExchanged(*checkpoint.reader, stop));
    kept.reader = checkpoint.reader;
    return kept.notes;
}

}  // namespace shardscope
