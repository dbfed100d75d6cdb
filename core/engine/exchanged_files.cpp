#include "engine/exchanged_files.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

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

class MasterAgreement {
  public:
    MasterAgreement(const Reader& reader, const StopToken& stop)
        : reader_(reader),
          catalog_(reader.catalog()),
          memory_(kMemory),
          resources_{&sharedPool(), &memory_, nullptr, stop, {}} {}

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
        SHARDSCOPE_TRY(resources_.pool->parallelFor(files.size(), resources_.stop, [&](size_t f) {
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

    // Elements at the beginning of a chunk: of its first whole rows, else the end of one.
    static Box beginningOf(const ChunkInfo& chunk) {
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
        if (dims > 1)
            box.lengths[dims - 2] = std::clamp<int64_t>(kElements / box.lengths[dims - 1], 1, height);
        for (size_t d = dims; d-- > 0; from /= chunk.lengths[d])
            box.offsets[d] += from % chunk.lengths[d];
        return box;
    }

    // Whether most of the weights have nothing to do with the masters; nullopt where that cannot be said.
    std::optional<bool> differ(TensorId weight, TensorId master, const Box& box) const {
        const auto one = valuesOf(weight, box), two = valuesOf(master, box);
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

    std::vector<float> valuesOf(TensorId tensor, const Box& box) const {
        const auto bytes = readRegion(reader_, tensor, box, kElements * 8, resources_);
        const DType dtype = catalog_.dtype(tensor);
        if (!bytes.ok() || !castSupported(dtype, DType::float32)) return {};
        std::vector<float> values(static_cast<size_t>(elementCount(box.lengths)));
        castElements(dtype, bytes->data(), DType::float32, reinterpret_cast<std::byte*>(values.data()),
                     values.size());
        return values;
    }

    const Reader& reader_;
    const Catalog& catalog_;
    MemoryBudget memory_;
    const Resources resources_;
    std::map<FileId, Seen> files_;
};

}  // namespace

Result<std::vector<Note>> exchangedFileNotes(const Checkpoint& checkpoint, const StopToken& stop) {
    ExchangedFiles& kept = *checkpoint.exchanged;
    const MutexLock lock(kept.mutex);
    if (kept.reader == checkpoint.reader) return kept.notes;
    SHARDSCOPE_ASSIGN(std::vector<Note> notes, copiedFileNotes(*checkpoint.reader, stop));
    SHARDSCOPE_ASSIGN(const std::vector<Note> masters, MasterAgreement(*checkpoint.reader, stop).notes());
    notes.insert(notes.end(), masters.begin(), masters.end());
    kept.reader = checkpoint.reader;
    kept.notes = notes;
    return notes;
}

}  // namespace shardscope
