// Rules that look at every stored byte: values, stored checksums, replicas. Each chunk is read once, where it
// is stored, so that a finding names the rank and the file.
#include "execute/values.h"

#include <algorithm>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "base/rule.h"
#include "base/units.h"
#include "execute/scan.h"
#include "model/coverage.h"
#include "storage/digest.h"
#include "validate/findings.h"
#include "validate/value_bytes.h"
#include "validate/value_parts.h"
#include "validate/value_scan.h"

namespace shardscope {

namespace {

constexpr uint64_t kSegment = uint64_t{64} << 20;  // work of one thread within a large chunk

// "NaN in 12 of 4,096 elements (0.3 %)": of those that were read.

std::string broadcastText(uint64_t count, uint64_t of, std::string_view what) {
    const double percent = 100.0 * static_cast<double>(count) / static_cast<double>(of);
    const std::string share = count == of      ? "all"
                              : percent < 0.05 ? "less than 0.1 %"
                              : percent > 99.9 ? "more than 99.9 %"
                                               : fmt::format("{:.1f} %", percent);
    return fmt::format("{} in {} of {} ({})", what, countText(count), counted(of, "element"), share);
}

class ValueCheck {
  public:
    explicit ValueCheck(ValueScope& scope)
        : s_(scope),
          catalog_(scope.reader.catalog()),
          own_(scope.scan ? nullptr : std::make_unique<ValueScan>()),
          state_(scope.scan ? scope.scan->state() : own_->state()) {}

    Status run() {
        {
            std::lock_guard lock(state_.mutex);
            findReplicas();
            if (state_.done.size() != catalog_.chunkCount()) state_.begin(catalog_.chunkCount());
        }
        beginProgress();
        Status read = readChunks();
        if (read.ok()) read = scanStrided();
        if (!read.ok()) {
            if (!s_.scan || read.error().code != ErrorCode::cancelled) return read;
            s_.stopped = true;
            s_.notChecked.push_back({fmt::format("values of {} of {}: the reading was stopped",
                                                 countText(catalog_.chunkCount() - state_.doneCount.load()),
                                                 counted(catalog_.chunkCount(), "chunk"))});
        }
        takeRecorded();
        SHARDSCOPE_TRY(findFills());
        for (TensorId t = 0; t < catalog_.tensorCount(); ++t) {
            judge(t);
            if (s_.sums) sumUp(t);
        }
        messages();
        compareReplicas();
        const auto noChecksum = std::count_if(state_.seen.begin(), state_.seen.end(),
                                              [](const ValuePattern& seen) { return seen.noChecksum; });
        if (noChecksum > 0)
            s_.notChecked.push_back(
                {fmt::format("stored checksums of {}: there are none", counted(noChecksum, "chunk"))});
        return {};
    }

  private:
    // What an earlier reading has done counts as read.
    void beginProgress() {
        if (!s_.resources.progress) return;
        uint64_t total = 0;
        for (TensorId t = 0; t < catalog_.tensorCount(); ++t) {
            if (catalog_.aliasOf(t) == kNone) total += catalog_.bytes(t);
        }
        s_.resources.progress->begin(Progress::Phase::read, total);
        if (state_.doneCount == 0) return;
        uint64_t before = 0;
        for (ChunkId c = 0; c < catalog_.chunkCount(); ++c) {
            if (state_.done[c] && state_.seen[c].any) before += catalog_.chunk(c).length;
        }
        s_.resources.progress->add(std::min(before, total));
    }

    Status readChunks() {
        bytes_.emplace(s_.resources);
        const Status status =
            s_.resources.pool->parallelFor(catalog_.chunkCount(), s_.resources.stop, [&](size_t c) -> Status {
                if (state_.isDone(static_cast<ChunkId>(c))) return {};
                // Looked at whole or not at all, so that continuing counts nothing twice.
                state_.seen[c] = {};
                Status checked = checkChunk(static_cast<ChunkId>(c));
                if (!checked.ok()) {
                    state_.seen[c] = {};
                    return checked;
                }
                state_.setDone(static_cast<ChunkId>(c));
                return {};
            });
        bytes_.reset();
        return status;
    }

    void findReplicas() {
        replicas_ = replicaPairs(catalog_);
        for (const auto& [first, later] : replicas_) {
            state_.digests[first];
            state_.digests[later];
            later_.insert(later);
        }
    }

    Status checkChunk(ChunkId c) {
        const ChunkInfo chunk = catalog_.chunk(c);
        if (!s_.readable[c] || !holdsValues(catalog_, c)) return {};
        auto extent = s_.reader.locate(c);
        if (!extent.ok()) {
            if (extent.error().code == ErrorCode::cancelled) return extent.error();
            return {};
        }
        const ChunkBytes bytes = bytesOfChunk(catalog_, chunk, std::move(extent).value());
        const auto& checksum = bytes.extent.checksum;
        uint32_t crc = 0;
        if (bytes.plain) {
            const auto digest = state_.digests.find(c);
            Look look{.signs = isMoment(catalog_, chunk.tensor)};
            // Zeros that a checksum covers were there when it was made.
            if (!checksum && !chunk.lengths.empty()) {
                const auto row = static_cast<uint64_t>(chunk.lengths.back());
                const uint64_t start = chunk.flat ? static_cast<uint64_t>(chunk.flat->start) : 0;
                look.row = row * dtypeBits(bytes.dtype) / 8;
                look.intoRow = start % row * dtypeBits(bytes.dtype) / 8;
            }
            Status status = readValues(bytes.extent, bytes.length, bytes.dtype, state_.seen[c],
                                       bytes.ownChecksum ? &crc : nullptr,
                                       digest == state_.digests.end() ? nullptr : &digest->second,
                                       s_.parts ? s_.parts->itemOf(c) : kNone, look);
            if (!status.ok()) return readFailed(c, std::move(status).error());
        } else {
            std::lock_guard lock(state_.mutex);
            state_.strided.insert(chunk.tensor);
            state_.readAnew.insert(catalog_.firstChunk(chunk.tensor));
        }
        if (!checksum) {
            state_.seen[c].noChecksum = true;
            return {};
        }
        std::string storage;
        if (!bytes.ownChecksum) {
            storage = checksum->storageIn(bytes.extent.file->path());
            {
                std::lock_guard lock(state_.mutex);
                const auto [at, first] = state_.summed.try_emplace({storage, checksum->offset}, c);
                at->second = std::min(at->second, c);
                if (!first) return {};
            }
            if (!bytes.storageFits()) return {};
            Extent range = bytes.extent;
            range.offset = checksum->offset;
            ValuePattern ignored;
            Status status = readValues(range, checksum->length, DType::uint8, ignored, &crc, nullptr,
                                       s_.parts ? s_.parts->itemOf(storage, checksum->offset) : kNone);
            if (!status.ok()) {
                if (status.error().code == ErrorCode::cancelled) {
                    std::lock_guard lock(state_.mutex);
                    state_.summed.erase({storage, checksum->offset});
                }
                return readFailed(c, std::move(status).error());
            }
        }
        if (crc != checksum->crc32) {
            record({c, rule::integrityCrc, catalog_.files()[chunk.file].path,
                    "the bytes do not have the checksum that was stored with them",
                    checksumExample(c, checksum->offset,
                                    fmt::format("stored {:08x}, computed {:08x}", checksum->crc32, crc)),
                    storage});
        }
        return {};
    }

    FindingExample checksumExample(ChunkId c, uint64_t offset, std::string detail) const {
        FindingExample example = exampleOf(catalog_, catalog_.chunk(c), std::move(detail));
        example.offset = offset;
        return example;
    }

    Status readFailed(ChunkId c, Error error) {
        const ChunkInfo chunk = catalog_.chunk(c);
        if (error.code == ErrorCode::cancelled || error.code == ErrorCode::limit) return error;
        record({c,
                isValidationRule(error.location.rule) ? error.location.rule : rule::metaInconsistent,
                catalog_.files()[chunk.file].path,
                error.message,
                exampleOf(catalog_, chunk, error.message),
                {}});
        return {};
    }

    void record(Recorded found) {
        std::lock_guard lock(state_.mutex);
        state_.recorded.push_back(std::move(found));
    }

    // In the order of the chunks, whichever thread, or part, was first.
    void takeRecorded() {
        std::vector<const Recorded*> all;
        for (const Recorded& found : state_.recorded)
            all.push_back(&found);
        const auto owner = [&](const Recorded& found) {
            if (found.storage.empty() || !found.example.offset) return found.chunk;
            const auto first = state_.summed.find({found.storage, *found.example.offset});
            return first == state_.summed.end() ? found.chunk : first->second;
        };
        std::stable_sort(all.begin(), all.end(),
                         [&](const Recorded* a, const Recorded* b) { return owner(*a) < owner(*b); });
        std::set<std::pair<std::string, uint64_t>> storages;  // each once
        for (const Recorded* found : all) {
            FindingExample example = found->example;
            if (!found->storage.empty() && example.offset) {
                if (!storages.emplace(found->storage, *example.offset).second) continue;
                example = checksumExample(owner(*found), *example.offset, example.detail);
            }
            s_.findings.add(found->rule, Severity::error, found->cause, found->message, std::move(example));
        }
    }

    // Reads `length` bytes from the extent's start; in several threads when there are many. `item` is what
    // they are among those that parts have read.
    Status readValues(const Extent& extent, uint64_t length, DType dtype, ValuePattern& seen, uint32_t* crc,
                      Digest128* digest, uint32_t item, Look look = {}) {
        look.checksum = crc != nullptr;
        look.pieces = digest != nullptr;
        look.sums = s_.sums;
        const uint64_t segmentBytes = item == kNone ? kSegment : s_.parts->segmentBytes();
        const size_t segments = static_cast<size_t>((length + segmentBytes - 1) / segmentBytes);
        std::vector<SeenSegment> parts(segments);
        const auto readSegment = [&](size_t i) -> Status {
            const uint64_t begin = i * segmentBytes, end = std::min(length, begin + segmentBytes);
            const SeenSegment* known = item == kNone ? nullptr : s_.parts->find(item, i);
            // Whatever the record says: a segment has as many pieces as bytes.
            if (known && (!digest || known->pieces.size() == (end - begin + kPiece - 1) / kPiece)) {
                parts[i] = *known;
                if (s_.resources.progress) s_.resources.progress->add(end - begin);
                return {};
            }
            SHARDSCOPE_ASSIGN(parts[i], bytes_->read(extent, begin, end, dtype, look));
            return {};
        };
        if (segments == 1) {
            SHARDSCOPE_TRY(readSegment(0));
        } else {
            SHARDSCOPE_TRY(s_.resources.pool->parallelFor(segments, s_.resources.stop, readSegment));
        }
        uint32_t sum = 0;
        std::vector<Digest128> pieces;
        for (size_t i = 0; i < segments; ++i) {
            seen.join(parts[i].seen);
            const uint64_t size = std::min(length, (i + 1) * segmentBytes) - i * segmentBytes;
            sum = i == 0 ? parts[0].crc : crc32Combine(sum, parts[i].crc, size);
            pieces.insert(pieces.end(), parts[i].pieces.begin(), parts[i].pieces.end());
        }
        if (crc) *crc = sum;
        if (digest) *digest = cellDigest(std::as_bytes(std::span(pieces)));
        return {};
    }

    // Views with holes between their elements go through the tensor's own order.
    Status scanStrided() {
        std::vector<TensorId> tensors;
        for (TensorId t : state_.strided) {
            bool readable = true;
            for (ChunkId c = catalog_.firstChunk(t); c < catalog_.endChunk(t); ++c)
                readable = readable && s_.readable[c];
            if (readable) tensors.push_back(t);
        }
        if (tensors.empty()) return {};
        for (TensorId t : tensors) {
            ValuePattern& seen = state_.seen[catalog_.firstChunk(t)];
            const bool noChecksum = seen.noChecksum;
            seen = {};
            seen.noChecksum = noChecksum;
        }
        std::mutex mutex;
        ScanOptions options;
        options.ordered = false;
        const Status status =
            scanTensors(s_.reader, tensors, options, s_.resources, [&](const TileView& tile) -> Status {
                ValuePattern part;
                lookAtValues(catalog_.dtype(tile.tensor), tile.bytes, part,
                             {.sums = s_.sums, .signs = isMoment(catalog_, tile.tensor)});
                std::lock_guard lock(mutex);
                state_.seen[catalog_.firstChunk(tile.tensor)].join(part);
                return {};
            });
        if (!status.ok() && status.error().code == ErrorCode::cancelled) return status.error();
        if (!status.ok())
            s_.notChecked.push_back({"values of tensors with unusual strides: " + status.error().message});
        return {};
    }

    // Masks hide with -inf, and best scores begin with it.
    bool infinityBelongs(TensorId t, const ValueCounts& counts) const {
        if (catalog_.role(t) == Role::optimizer) return false;
        const std::string_view name = catalog_.name(t);
        const std::string_view last = name.substr(name.find_last_of(".:") + 1);
        const DimSpan shape = catalog_.shape(t);
        if (catalog_.elements(t) == 1)
            return last.starts_with("best") || last.starts_with("kth_") || last.ends_with("_score") ||
                   last.ends_with("_loss") || last.ends_with("metric") || catalog_.role(t) == Role::other;
        if (last.find("mask") != last.npos || catalog_.role(t) == Role::other) return true;
        const size_t rank = shape.size();
        // Nothing but zeros and infinities, and not a few.
        if (rank >= 2 && counts.inf + counts.zero == counts.elements && counts.inf >= counts.elements / 8)
            return true;
        // As many as there are above the diagonal.
        if (rank < 2 || shape[rank - 1] != shape[rank - 2] || shape[rank - 1] < 2) return false;
        const auto n = static_cast<uint64_t>(shape[rank - 1]);
        return counts.inf == static_cast<uint64_t>(catalog_.elements(t)) / (n * n) * (n * (n - 1) / 2);
    }

    void addInfinite(TensorId t, const ValueCounts& counts) {
        const bool belongs = infinityBelongs(t, counts);
        if (!belongs) {
            ++infTensors_;
            infElements_ += counts.inf;
        }
        bool first = true;
        for (ChunkId c = catalog_.firstChunk(t); c < catalog_.endChunk(t); ++c) {
            const ValueCounts& n = state_.seen[c].counts;
            if (!state_.seen[c].any || n.inf == 0) continue;
            s_.findings.add(
                rule::valueInf, belongs ? Severity::info : Severity::error, belongs ? "masks and scores" : "",
                belongs ? "infinite values where they belong: masks, best scores" : "",
                exampleOf(catalog_, catalog_.chunk(t, c), broadcastText(n.inf, n.elements, "infinities")),
                first);
            first = false;
        }
    }

    ValuePattern wholeOf(TensorId t) const {
        ValuePattern whole;
        for (ChunkId c = catalog_.firstChunk(t); c < catalog_.endChunk(t); ++c)
            whole.join(state_.seen[c]);
        return whole;
    }

    // A mean of squares is not below zero. Where the mean beside it never is, the two were exchanged.
    void addExchanged(TensorId t) {
        const TensorId first = firstMomentOf(catalog_, t);
        if (first == kNone) return;
        constexpr uint64_t kFewest = 32;  // elements, so that the signs are no chance
        const ValuePattern second = wholeOf(t), mean = wholeOf(first);
        if (mean.counts.elements < kFewest) return;
        if (second.negative == 0 || mean.negative > 0 || mean.counts.zero == mean.counts.elements) return;
        FindingExample example;
        example.tensor = catalog_.name(t);
        example.detail = broadcastText(second.negative, second.counts.elements, "values below zero");
        s_.findings.add(rule::stateDiffers, Severity::error, "exchanged",
                        "second moments, which are means of squares, hold values below zero, and the first "
                        "moments beside them none: the two were exchanged",
                        std::move(example));
    }

    void judge(TensorId t) {
        const DType dtype = catalog_.dtype(t);
        ValuePattern whole;
        bool nan = false;
        bool all = true;
        for (ChunkId c = catalog_.firstChunk(t); c < catalog_.endChunk(t); ++c) {
            const ValuePattern& seen = state_.seen[c];
            all = all && state_.done[c];
            if (!seen.any) continue;
            const ValueCounts& n = seen.counts;
            const ChunkInfo chunk = catalog_.chunk(t, c);
            if (n.nan > 0 && !fills_.contains(t)) {
                nanElements_ += n.nan;
                s_.findings.add(rule::valueNan, Severity::error, "", "",
                                exampleOf(catalog_, chunk, broadcastText(n.nan, n.elements, "NaN")), !nan);
                nan = true;
            }
            if (seen.lost.count > 0 && !fills_.contains(t))
                s_.findings.add(rule::valueZero, Severity::error, "pages", kLostPages,
                                exampleOf(catalog_, chunk, lostPagesText(seen.lost)));
            whole.join(seen);
        }
        nanTensors_ += nan;
        addExchanged(t);
        if (whole.any && whole.counts.inf > 0) addInfinite(t, whole.counts);
        // What a tensor holds throughout shows only when all of it was looked at.
        if (!all || !whole.any || whole.counts.elements < 2 || catalog_.role(t) != Role::parameter ||
            !dtypeIsFloat(dtype))
            return;

        FindingExample example;
        example.tensor = catalog_.name(t);
        if (whole.counts.zero == whole.counts.elements) {
            // Biases start as zeros; a matrix of zeros is either a deliberate start or data that was lost.
            const bool matrix = std::count_if(catalog_.shape(t).begin(), catalog_.shape(t).end(),
                                              [](int64_t d) { return d > 1; }) >= 2;
            s_.findings.add(rule::valueZero, matrix ? Severity::warning : Severity::info,
                            matrix ? "weights" : "vectors",
                            matrix ? "weights are zero throughout"
                                   : "vectors are zero throughout, as biases are at the start",
                            std::move(example));
            return;
        }
        if (whole.uniform && whole.counts.nan == 0) {
            s_.findings.add(rule::valueUniform, Severity::info, "",
                            "tensors hold one value throughout, as norms do at the start",
                            std::move(example));
            return;
        }
        for (ChunkId c = catalog_.firstChunk(t); c < catalog_.endChunk(t); ++c) {
            const ValueCounts& n = state_.seen[c].counts;
            if (n.elements >= 16 && n.zero == n.elements) {
                s_.findings.add(rule::valueZero, Severity::warning, "blocks",
                                "chunks are zero throughout while the rest of their tensor is not",
                                exampleOf(catalog_, catalog_.chunk(t, c)));
            }
        }
    }

    void sumUp(TensorId t) {
        if (catalog_.aliasOf(t) != kNone) return;
        TensorValues values{std::string(catalog_.name(t)), catalog_.role(t), {}, {}};
        for (ChunkId c = catalog_.firstChunk(t); c < catalog_.endChunk(t); ++c) {
            if (!state_.done[c]) return;
            if (!state_.seen[c].any || later_.contains(c)) continue;
            addCounts(values.counts, state_.seen[c].counts);
            values.sums.add(state_.seen[c].sums);
        }
        // Elements that are missing, or stored twice in part, would falsify a sum.
        if (values.counts.elements == static_cast<uint64_t>(catalog_.elements(t)) &&
            values.counts.elements > 0)
            s_.values.push_back(std::move(values));
    }

    // ------------------------------------------------------------------ fills

    // Elements of a tensor that hold what a fill puts there, counted where the record of a conversion, or the
    // gaps of the checkpoint that was expected, say that nothing else can stand.
    struct Fill {
        std::vector<Box> boxes;     // disjoint
        std::vector<uint64_t> hit;  // by box
        bool zero = false;
        uint64_t inside() const { return std::accumulate(hit.begin(), hit.end(), uint64_t{0}); }
    };

    // Empty when nothing was filled in, or it is not known where.
    Fill placesOf(TensorId t) {
        Fill fill;
        const std::string_view name = catalog_.name(t);
        const auto sameShape = [&](DimSpan shape) { return std::ranges::equal(shape, catalog_.shape(t)); };
        if (s_.filled) {
            const auto found = s_.filled->tensors.find(name);
            if (found != s_.filled->tensors.end() && sameShape(found->second.shape)) {
                if (!found->second.boxes) {
                    s_.notChecked.push_back({fmt::format(
                        "which elements of {} a conversion filled in: it only recorded that some were",
                        name)});
                    return fill;
                }
                fill.boxes = *found->second.boxes;
                fill.zero = s_.filled->fill == FillGaps::zero;
                return fill;
            }
        }
        if (s_.expect) {
            const TensorId e = s_.expect->find(name);
            if (e != kNone && sameShape(s_.expect->shape(e)))
                fill.boxes = checkCoverage(*s_.expect, e, 1).gaps;
        }
        return fill;
    }

    Status findFills() {
        if ((!s_.filled || s_.filled->tensors.empty()) && !s_.expect) return {};
        std::vector<TensorId> tensors;
        for (TensorId t = 0; t < catalog_.tensorCount(); ++t) {
            if (catalog_.aliasOf(t) != kNone) continue;
            bool whole = true;
            uint64_t nan = 0, zero = 0;
            for (ChunkId c = catalog_.firstChunk(t); c < catalog_.endChunk(t); ++c) {
                whole = whole && state_.done[c] && s_.readable[c];
                nan += state_.seen[c].counts.nan;
                zero += state_.seen[c].counts.zero;
            }
            if (!whole || (nan == 0 && zero == 0)) continue;
            Fill fill = placesOf(t);
            if (fill.boxes.empty() || (fill.zero ? zero : nan) == 0 ||
                checkCoverage(catalog_, t, 0, 1).gapElements > 0)
                continue;
            std::sort(fill.boxes.begin(), fill.boxes.end(),
                      [](const Box& a, const Box& b) { return a.offsets < b.offsets; });
            fill.hit.assign(fill.boxes.size(), 0);
            fills_.emplace(t, std::move(fill));
            tensors.push_back(t);
        }
        if (tensors.empty()) return {};
        std::mutex mutex;
        Resources silent = s_.resources;  // these bytes were counted before
        silent.progress = nullptr;
        SHARDSCOPE_TRY(scanTensors(s_.reader, tensors, {}, silent, [&](const TileView& tile) -> Status {
            Fill& fill = fills_.at(tile.tensor);
            const std::vector<uint64_t> here = countInside(tile, fill);
            std::lock_guard lock(mutex);
            for (size_t i = 0; i < here.size(); ++i)
                fill.hit[i] += here[i];
            return {};
        }));
        for (const TensorId t : tensors)
            judgeFill(t, fills_.at(t));
        return {};
    }

    std::vector<uint64_t> countInside(const TileView& tile, const Fill& fill) const {
        const DimSpan shape = catalog_.shape(tile.tensor);
        const DType dtype = catalog_.dtype(tile.tensor);
        std::vector<uint64_t> counts(fill.boxes.size(), 0);
        for (size_t i = 0; i < fill.boxes.size(); ++i) {
            const Box& box = fill.boxes[i];
            const int64_t first = elementsBefore(tile.firstElement, shape, box.offsets, box.lengths);
            const int64_t last =
                elementsBefore(tile.firstElement + tile.elements, shape, box.offsets, box.lengths);
            forEachRun(
                first, last, shape, box.offsets, box.lengths, [&](int64_t, int64_t position, int64_t count) {
                    ValueCounts here;
                    countValues(dtype,
                                tile.bytes.subspan(bytesOfElements(dtype, position - tile.firstElement),
                                                   bytesOfElements(dtype, count)),
                                here);
                    counts[i] += fill.zero ? here.zero : here.nan;
                });
        }
        return counts;
    }

    void judgeFill(TensorId t, const Fill& fill) {
        bool first = true;
        for (size_t i = 0; i < fill.boxes.size(); ++i) {
            if (fill.hit[i] == 0) continue;
            FindingExample example;
            example.tensor = catalog_.name(t);
            example.box = fill.boxes[i];
            example.detail =
                fmt::format("{} in {} of {} here, where nothing was restored", fill.zero ? "zero" : "NaN",
                            countText(fill.hit[i]), counted(elementCount(fill.boxes[i].lengths), "element"));
            s_.findings.add(rule::valueFill, fill.zero ? Severity::warning : Severity::error, "",
                            "tensors hold a fill where their source held nothing, and nothing wrote over it",
                            std::move(example), first);
            first = false;
        }
        uint64_t nan = 0;
        for (ChunkId c = catalog_.firstChunk(t); c < catalog_.endChunk(t); ++c)
            nan += state_.seen[c].counts.nan;
        const uint64_t genuine = fill.zero ? nan : nan - std::min(nan, fill.inside());
        if (genuine == 0) return;
        FindingExample example;
        example.tensor = catalog_.name(t);
        example.detail = fmt::format("NaN in {} that no fill put there", counted(genuine, "element"));
        s_.findings.add(rule::valueNan, Severity::error, "", "", std::move(example));
        ++nanTensors_;
        nanElements_ += genuine;
    }

    void messages() {
        const auto text = [](uint64_t tensors, uint64_t elements, std::string_view what) {
            return fmt::format("{} in {} ({})", what, counted(tensors, "tensor"),
                               counted(elements, "element"));
        };
        if (nanTensors_) s_.findings.setMessage(rule::valueNan, "", text(nanTensors_, nanElements_, "NaN"));
        if (infTensors_)
            s_.findings.setMessage(rule::valueInf, "", text(infTensors_, infElements_, "infinite values"));
    }

    void compareReplicas() {
        for (const auto& [first, later] : replicas_) {
            if (!state_.seen[first].any || !state_.seen[later].any ||
                state_.digests[first] == state_.digests[later])
                continue;
            const ChunkInfo one = catalog_.chunk(first);
            s_.findings.add(rule::replicaDiffers, Severity::error, std::string(catalog_.name(one.tensor)),
                            "replicas of one chunk hold different bytes",
                            exampleOf(catalog_, catalog_.chunk(later),
                                      fmt::format("differs from the replica of rank {}", one.rank)));
        }
    }

    ValueScope& s_;
    const Catalog& catalog_;
    const std::unique_ptr<ValueScan> own_;  // when the caller has none
    ValueScan::State& state_;
    std::optional<SegmentReader> bytes_;  // while chunks are read
    std::vector<std::pair<ChunkId, ChunkId>> replicas_;
    std::set<ChunkId> later_;  // of them, those that are not the first
    std::map<TensorId, Fill> fills_;
    uint64_t nanTensors_ = 0, nanElements_ = 0, infTensors_ = 0, infElements_ = 0;
};

}  // namespace

Status checkValues(ValueScope& scope) {
    return ValueCheck(scope).run();
}

}  // namespace shardscope
