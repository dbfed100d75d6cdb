#include "formats/paddle_nlp/pieces.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/rule.h"
#include "base/units.h"

namespace shardscope::paddle_nlp {

namespace {

constexpr int64_t kAlignment = 256;  // bytes that buffers are aligned to, on every device

class Laying {
  public:
    Laying(const PieceInput& in, std::vector<StoredShard> held, CatalogBuilder& builder)
        : in_(in), held_(std::move(held)), builder_(builder) {}

    Result<std::vector<PlannedPiece>> run() {
        std::ranges::sort(held_, {}, [](const StoredShard& h) { return h.at().shard; });
        local_ = in_.whole ? in_.layout.global : in_.layout.shapeOn(in_.at.tp);
        offsets_ = in_.whole ? Dims(local_.size(), 0) : in_.layout.offsetsOn(in_.at.tp);
        if (!checkedProduct(local_, elements_))
            return makeError(ErrorCode::limit, "its shape has too many elements")
                .ofTensor(in_.parameter.name);
        if (held_.empty()) {
            addLost(std::nullopt);
            return std::move(out_);
        }
        const bool allWhole = std::all_of(held_.begin(), held_.end(),
                                          [&](const StoredShard& h) { return h.entry->shape == local_; });
        const bool allFlat = std::all_of(held_.begin(), held_.end(),
                                         [](const StoredShard& h) { return h.entry->shape.size() == 1; });
        if (allWhole && !(allFlat && held_.size() > 1 && slices())) {
            // More than one is a copy of the others: stage 3 keeps small parameters on every rank.
            for (const StoredShard& h : held_)
                addWhole(h);
        } else if (allFlat) {
            addSlices();
        } else {
            const auto other = std::find_if(held_.begin(), held_.end(),
                                            [&](const StoredShard& h) { return h.entry->shape != local_; });
            error(fmt::format("its shape is {} here, which is neither {} nor a range of that flattened",
                              formatDims(other->entry->shape), formatDims(local_)),
                  other->file->path);
        }
        return std::move(out_);
    }

  private:
    void error(std::string message, const std::string& file) {
        builder_.addNote(noteOf(rule::metaInconsistent, Severity::error, std::move(message), file,
                                in_.parameter.nameOf(in_.state),
                                in_.weight ? Note::Lacks::anything : Note::Lacks::optimizerState));
    }

    void add(const RankFile& file, std::optional<FlatRange> flat, StoredPart part) {
        RankPlace at = in_.at;
        at.shard = file.at().shard;
        out_.push_back(
            {&file, {in_.files.rankOf(at), std::move(part), offsets_, local_, std::move(flat), true}});
    }

    void addLost(std::optional<FlatRange> flat) {
        if (in_.lost) add(*in_.lost, std::move(flat), {});
    }

    // ------------------------------------------------------------------ whole

    void addWhole(const StoredShard& h) {
        if (h.entry->parts.size() == 1 && h.entry->parts[0].shape == h.entry->shape) {
            add(*h.file, std::nullopt, StoredPart::whole(h.file->contents, h.index()));
            return;
        }
        int64_t at = 0;
        for (const PaddleArray& part : h.entry->parts) {
            int64_t count = 0, end = 0;
            if (!checkedProduct(part.shape, count) || !checkedAdd(at, count, end) || end > elements_ ||
                part.columnMajor) {
                error("the parts that it was split into do not fit its shape", h.file->path);
                return;
            }
            add(*h.file, FlatRange{at, end}, StoredPart::range(h.file->contents, h.index(), at, count));
            at = end;
        }
    }

    // ------------------------------------------------------------------ slices

    bool statedV2() const {
        const auto group = in_.files.meta.groups.find({in_.at.tp, in_.at.pp});
        return group != in_.files.meta.groups.end() && group->second.strategy == "ShardingV2";
    }
    int64_t itemSize() const { return in_.layout.itemSize; }
    int64_t unitV2() const { return std::max<int64_t>(1, kAlignment / itemSize()) * in_.layout.sharding; }
    int64_t paddedV2() const { return roundUp(elements_, unitV2()); }
    int64_t paddedStage3() const {
        return roundUp(roundUp(elements_, std::max<int64_t>(1, kAlignment / itemSize())),
                       in_.layout.sharding);
    }
    static int64_t roundUp(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

    // Whether several arrays that are each as long as a parameter of one dimension are slices of it, the
    // later ones being padding, rather than copies.
    bool slices() {
        if (in_.weight || in_.layout.copies) return false;
        if (statedV2() || in_.parameter.sliced()) return true;
        if (std::ranges::count(in_.parameter.states, "master_weight", &State::name) > 0)
            return false;  // whose names would say that they are slices
        const auto count = static_cast<int64_t>(held_.size());
        if (elements_ * count != paddedV2() && elements_ * count != paddedStage3()) return false;
        bool zeros = true, equal = true;
        const std::string* first = nullptr;
        for (const StoredShard& h : held_) {
            if (h.entry->parts.size() != 1 || h.entry->parts[0].raw != PaddleArray::Raw::inMemory) {
                error(fmt::format("{} hold {} each, which may be replicas or a shard and "
                                  "padding; nothing "
                                  "here says which",
                                  counted(count, "rank"), counted(elements_, "element")),
                      h.file->path);
                return false;
            }
            const std::string& bytes = h.entry->parts[0].bytes;
            if (!first) {
                first = &bytes;
                continue;
            }
            zeros = zeros && bytes.find_first_not_of('\0') == bytes.npos;
            equal = equal && bytes == *first;
        }
        return zeros && !equal;
    }

    struct Slice {
        const StoredShard* held = nullptr;
        int64_t first = 0, elements = 0;  // in the entry
    };

    void addSlices() {
        std::vector<Slice> slices;
        int64_t total = 0;
        for (const StoredShard& h : held_) {
            int64_t first = 0;
            for (const PaddleArray& part : h.entry->parts) {
                int64_t count = 0;
                if (!checkedProduct(part.shape, count) || !checkedAdd(total, count, total)) {
                    error("the sizes of its shards overflow", h.file->path);
                    return;
                }
                slices.push_back({&h, first, count});
                first += count;
            }
        }
        // The padding tells whether all slices are here, even where those that are would hold elements
        // enough.
        const int64_t padded = statedV2() ? paddedV2() : in_.parameter.sliced() ? paddedStage3() : elements_;
        if (total < padded && in_.lost) {
            addAround(slices);
            return;
        }
        if (total < padded && statedV2()) {
            error(fmt::format("it has {} in {}, with its padding it should have {}: shards are missing",
                              counted(total, "element"), counted(slices.size(), "shard"), countText(padded)),
                  held_.front().file->path);
            return;
        }
        if (total < elements_) {
            error(fmt::format("it has {} in {}, by its shape {} it should have {}", counted(total, "element"),
                              counted(slices.size(), "shard"), formatDims(local_), countText(elements_)),
                  held_.front().file->path);
        } else if (total - elements_ >=
                   std::max(unitV2(), kAlignment / itemSize() + int64_t{in_.layout.sharding})) {
            error(fmt::format("it has {} in {}, by its shape {} it should have {}; no padding is that long",
                              counted(total, "element"), counted(slices.size(), "shard"), formatDims(local_),
                              countText(elements_)),
                  held_.front().file->path);
        }
        place(slices, 0);
    }

    // Lays slices one after the other; what is behind the parameter's end is padding.
    void place(const std::vector<Slice>& slices, int64_t at) {
        for (const Slice& slice : slices) {
            const int64_t real = std::clamp<int64_t>(elements_ - at, 0, slice.elements);
            if (real > 0) {
                add(*slice.held->file, FlatRange{at, at + real},
                    StoredPart::range(slice.held->file->contents, slice.held->index(), slice.first, real));
            }
            if (real < slice.elements && !out_.empty()) {
                out_.back().piece.part.zeros.push_back(
                    StoredPart::range(slice.held->file->contents, slice.held->index(), slice.first + real,
                                      slice.elements - real));
            }
            at += slice.elements;
        }
    }

    // Files are missing: what is before them begins at the start, what is behind them ends where the
    // padding does.
    void addAround(const std::vector<Slice>& slices) {
        uint32_t firstLost = UINT32_MAX, lastLost = 0;
        for (const RankFile& file : in_.files.files) {
            if (!file.name.optimizer || !file.lost() || !file.at().sameGroup(in_.at)) continue;
            firstLost = std::min(firstLost, file.at().shard);
            lastLost = std::max(lastLost, file.at().shard);
        }
        std::vector<Slice> before, behind;
        int64_t beforeSize = 0, behindSize = 0;
        for (const Slice& slice : slices) {
            if (slice.held->at().shard < firstLost) {
                before.push_back(slice);
                beforeSize += slice.elements;
            } else if (slice.held->at().shard > lastLost) {
                behind.push_back(slice);
                behindSize += slice.elements;
            } else {
                error(
                    "where this shard belongs cannot be told, for the files on both sides of it are missing",
                    slice.held->file->path);
            }
        }
        const int64_t padded = in_.parameter.sliced() ? paddedStage3() : paddedV2();
        const int64_t resume = std::max(padded - behindSize, beforeSize);
        place(before, 0);
        const int64_t gapEnd = std::min(resume, elements_);
        if (beforeSize < gapEnd) addLost(FlatRange{beforeSize, gapEnd});
        place(behind, resume);
    }

    const PieceInput& in_;
    std::vector<StoredShard> held_;
    Dims local_, offsets_;
    int64_t elements_ = 0;
    CatalogBuilder& builder_;
    std::vector<PlannedPiece> out_;
};

}  // namespace

Status Layout::finish(const std::string& name) {
    global = local;
    if (axis >= 0 && tp > 1) {
        int64_t length = 0;
        for (uint32_t t = 0; t < tp; ++t) {
            if (!checkedAdd(length, shapeOn(t)[static_cast<size_t>(axis)], length)) length = kMaxDim + 1;
        }
        global[static_cast<size_t>(axis)] = length;
    }
    int64_t count = 0;
    const bool wide =
        std::any_of(global.begin(), global.end(), [](int64_t d) { return d < 0 || d > kMaxDim; });
    if (wide || !checkedProduct(global, count) || count > INT64_MAX / 16 - (int64_t{1} << 40)) {
        return makeError(ErrorCode::limit, fmt::format("its shape {} on each of {} is too large",
                                                       formatDims(local), counted(tp, "rank")))
            .ofTensor(name);
    }
    return {};
}

Dims Layout::shapeOn(uint32_t rank) const {
    if (!locals) return local;
    const auto it = locals->find(rank);
    return it == locals->end() || it->second.size() != local.size() ? local : it->second;
}

Dims Layout::offsetsOn(uint32_t rank) const {
    Dims offsets(local.size(), 0);
    if (axis < 0 || tp < 2) return offsets;
    for (uint32_t t = 0; t < rank; ++t)
        offsets[static_cast<size_t>(axis)] += shapeOn(t)[static_cast<size_t>(axis)];
    return offsets;
}

std::vector<CutBox> Layout::boxesOf(const TensorAssembly::Piece& piece) const {
    CutBox own{Dims(piece.lengths.size(), 0), piece.offsets, piece.lengths, piece.flat};
    if (piece.flat) own.first = piece.flat->start;
    if (fusedParts < 2 || axis < 0 || piece.lengths == global) return {std::move(own)};
    const auto dim = static_cast<size_t>(axis);
    const std::vector<int64_t> parts(static_cast<size_t>(fusedParts), global[dim] / fusedParts);
    const RankCut cut = RankCut::share(axis, parts, piece.offsets[dim], piece.lengths[dim]);
    auto boxes = piece.flat ? cut.boxes(piece.lengths, *piece.flat) : cut.boxes(piece.lengths);
    return boxes.empty() ? std::vector{std::move(own)} : boxes;
}

Result<std::vector<PlannedPiece>> layPieces(const PieceInput& input, std::vector<StoredShard> held,
                                            CatalogBuilder& builder) {
    return Laying(input, std::move(held), builder).run();
}

}  // namespace shardscope::paddle_nlp
