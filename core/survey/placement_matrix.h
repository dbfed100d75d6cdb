// What is where: tensors (rows, in tree order) by ranks (columns, in a chosen order of the mesh's axes). Rows
// and columns that are alike are folded into one, so that the odd one out stands alone. Immutable, built off
// the thread that draws it. Holds one byte a cell and nothing else by cell: what a tile shows is worked out
// for the rows on screen. Where there are many rows, those of one module stand in a group. A row sums them
// up, and they follow it while the group is open.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/stop.h"
#include "engine/engine.h"
#include "survey/facts.h"
#include "survey/max_pyramid.h"
#include "survey/module_tree.h"

namespace shardscope {

struct MatrixOptions {
    std::vector<int> axes;  // order of the mesh's axes, outermost first; empty = as the mesh has them
    bool foldRows = true;
    bool foldColumns = false;
    std::vector<TensorId> pinned;  // whose rows come first, in this order
    bool groups = false;
    std::map<std::string, bool> open;       // by MatrixGroup::key; others as fits the number of rows
    std::vector<std::string> pinnedGroups;  // keys; the sums stand before all other rows, and in place, too
};

// Rows whose names begin alike: those of a layer, of folded layers, of their experts.
struct MatrixGroup {
    std::string key;   // "model.layers.*"
    std::string name;  // "model.layers.0–31": with the layers that are in it
    bool open = false;
    uint32_t kindBegin = 0, kindEnd = 0;    // see PlacementMatrix::kinds_
    uint32_t memberBegin = 0, tensors = 0;  // as MatrixRow's
    uint64_t bytes = 0;                     // of its tensors
    Health health = Health::ok;             // the worst of them
};

struct MatrixRow {
    TensorId tensor = kNone;              // the first of them
    uint32_t memberBegin = 0, count = 0;  // tensors that are folded here, see PlacementMatrix::members()
    Health health = Health::ok;           // gap: elements of it that no rank holds
    uint32_t group = kNone;               // that it is in, or sums up
    bool summary = false;                 // the sum of a group; `tensor` is the first of all
};

// Rows of one expert of a mixture of experts, which follow one another.
struct MatrixLane {
    int64_t expert = 0;
    uint32_t rowBegin = 0, rowEnd = 0;
    bool groupBegin = false;  // the first expert of its layer
};

struct MatrixColumn {
    uint32_t rank = 0;            // the first of them
    std::vector<uint32_t> ranks;  // all that are folded here, ascending
    Health health = Health::ok;   // the worst of its cells and files
    bool fileMissing = false;     // a file of this rank is not there
    // By axis, in the chosen order: least and greatest coordinate among the ranks.
    std::vector<std::pair<uint32_t, uint32_t>> places;
};

// One tensor on one rank.
struct MatrixCell {
    uint32_t column = 0;
    ChunkId chunk = kNone;  // the first
    uint32_t chunks = 0;
    uint32_t firstSlice = 0, slices = 0;  // see RowDetail::slices
    uint64_t bytes = 0;                   // of the elements
    double share = 0;                     // of the tensor's elements
    uint32_t copyOf = kNone;              // the first column that holds exactly the same; kNone = none before
    Health health = Health::ok;
};

// What the tiles of one row show.
struct RowDetail {
    struct Slice {
        float left, top, right, bottom;  // shares of the tensor along `across` and `down`
    };
    int across = -1, down = -1;  // dimensions that are drawn; -1 = none
    // A replica that the mesh implies, and that is stored for another column alone.
    struct Ghost {
        uint32_t column = 0, of = 0;
    };
    std::vector<MatrixCell> cells;  // by column; only those that hold something
    std::vector<Ghost> ghosts;      // by column
    std::vector<Slice> slices;
    // Where the drawn dimensions are cut: by the outermost axis (long ticks) and by all (short ticks);
    // shares. Filled by PlacementMatrix::addTicks().
    bool hasTicks = false;
    std::vector<float> acrossOuter, acrossAll, downOuter, downAll;

    const MatrixCell* at(uint32_t column) const;  // null = holds nothing
};

class PlacementMatrix {
  public:
    // `facts` may be null: then nothing is known to be wrong. Null when stopped.
    static std::shared_ptr<const PlacementMatrix> build(std::shared_ptr<const Checkpoint> checkpoint,
                                                        std::shared_ptr<const ModuleTree> tree,
                                                        std::shared_ptr<const Facts> facts,
                                                        const MatrixOptions& options,
                                                        const StopToken& stop = {});

    const Catalog& catalog() const { return checkpoint_->catalog(); }
    const std::shared_ptr<const Checkpoint>& checkpoint() const { return checkpoint_; }
    const std::shared_ptr<const Facts>& facts() const { return facts_; }

    uint32_t rowCount() const { return static_cast<uint32_t>(rows_.size()); }
    uint32_t columnCount() const { return static_cast<uint32_t>(columns_.size()); }
    const MatrixRow& row(uint32_t r) const { return rows_[r]; }
    const MatrixColumn& column(uint32_t c) const { return columns_[c]; }
    std::vector<TensorId> members(uint32_t r) const;
    uint32_t rowOf(TensorId tensor) const;            // kNone when it is not in the matrix
    uint32_t pinnedCount() const { return pinned_; }  // rows at the top that were asked for
    uint32_t columnOf(uint32_t rank) const;

    // Whether any tensor has elements that no rank holds; the map then has one more column, number
    // columnCount().
    bool hasGaps() const { return hasGaps_; }

    // In the order of rows; none without experts that are tensors of their own.
    const std::vector<MatrixLane>& lanes() const { return lanes_; }
    std::string laneText(uint32_t lane) const;  // "expert 3 of model.layers.0.mlp.experts"
    const MatrixGroup& group(uint32_t number) const { return groups_[number]; }
    bool hasGroups() const { return !groups_.empty(); }
    size_t tensorCount() const { return members_.size(); }  // those in closed groups, too
    // "model.layers.0–16,18–95.mlp.w1"; of a sum "model.layers.0–95 (864 tensors, 1.2 GiB)"
    std::string rowLabel(uint32_t r) const;
    // The same below its group's row: "mlp.w1"; of a sum "model.layers.0–95".
    std::string rowText(uint32_t r) const;
    // Axes that head the columns, in the chosen order; none without a mesh that fits.
    const std::vector<MeshAxis>& axes() const { return axes_; }
    std::string placeText(size_t axis, uint32_t column) const;  // "dp1", "dp0–3"
    std::string columnLabel(uint32_t column) const;             // "rank 7 (pp0 dp1 tp3)"

    RowDetail detail(uint32_t r) const;
    void addTicks(uint32_t r, RowDetail& detail) const;
    // What a cell is, as a sentence.
    std::string cellText(uint32_t r, uint32_t column) const;
    // The next cell that is worse than ok, row by row, from the one after (or before) the given; wraps
    // around.
    bool nextFinding(uint32_t& row, uint32_t& column, bool forward) const;
    // All chunks of a rectangle of cells, folded ones too, by id. Stops early when asked to.
    std::vector<ChunkId> chunksIn(uint32_t rowBegin, uint32_t rowEnd, uint32_t columnBegin,
                                  uint32_t columnEnd, const StopToken& stop = {}) const;

    // One byte a cell: 0 = nothing, then the share that is held on a log scale, then states by severity.
    static uint8_t cellByte(Health health, double share);
    static Health healthOfByte(uint8_t value);
    static double shareOfByte(uint8_t value);  // 0..1 along the log scale; of an ok cell
    const MaxPyramid& pyramid() const { return pyramid_; }
    const MaxPyramid& gapPyramid() const { return gapPyramid_; }  // one column
    size_t bytes() const;                                         // held by the matrix

  private:
    PlacementMatrix() = default;
    bool makeColumns(const MatrixOptions& options, const StopToken& stop);
    bool makeRows(const MatrixOptions& options, const StopToken& stop);
    void makeGroups(const std::vector<std::vector<TensorId>>& kinds, const std::vector<bool>& pinned,
                    const MatrixOptions& options);
    void addRow(uint32_t kind, uint32_t group);
    void addSummary(uint32_t group);
    void makeLanes();
    std::vector<MatrixCell> sumOf(uint32_t group) const;
    std::string sumText(const MatrixRow& row, uint32_t column) const;
    bool fillPyramid(const StopToken& stop);
    Health chunkHealth(ChunkId c) const { return facts_ ? facts_->chunkHealth[c] : Health::ok; }
    Health tensorHealth(TensorId t) const { return facts_ ? facts_->tensorHealth[t] : Health::ok; }
    uint32_t columnOfChunk(const ChunkInfo& chunk) const {
        return columnOf(chunk.rank == kNone ? 0 : chunk.rank);
    }
    // Calls visit(column, chunk) for the chunks of a tensor, or of a row's first tensor, that are drawn.
    template <class Visit>
    void forEachChunkOf(TensorId tensor, Visit&& visit) const;
    template <class Visit>
    void forEachChunk(uint32_t r, Visit&& visit) const {
        forEachChunkOf(rows_[r].tensor, visit);
    }
    void findGhosts(RowDetail& detail) const;
    size_t spreadingAxis(const RowDetail& detail) const;

    std::shared_ptr<const Checkpoint> checkpoint_;
    std::shared_ptr<const ModuleTree> tree_;
    std::shared_ptr<const Facts> facts_;
    std::vector<MatrixRow> rows_;
    std::vector<MatrixLane> lanes_;
    std::vector<TensorId> members_;
    // What may be a row, group by group: where its tensors, which are placed alike, begin in members_.
    struct Kind {
        uint32_t memberBegin = 0, count = 0;
    };
    std::vector<Kind> kinds_;
    std::vector<MatrixGroup> groups_;
    std::vector<uint32_t> rowOf_;  // by tensor
    std::vector<MatrixColumn> columns_;
    std::vector<uint32_t> ranks_;         // that there are, ascending
    std::vector<uint32_t> columnOfRank_;  // by index in ranks_
    bool denseRanks_ = true;              // ranks_[i] == i
    std::vector<MeshAxis> axes_;
    std::vector<int> axisOrder_;
    MaxPyramid pyramid_, gapPyramid_;
    bool hasGaps_ = false;
    uint32_t pinned_ = 0;
};

template <class Visit>
void PlacementMatrix::forEachChunkOf(TensorId t, Visit&& visit) const {
    const Catalog& c = catalog();
    for (ChunkId i = c.firstChunk(t); i < c.endChunk(t); ++i) {
        const ChunkInfo chunk = c.chunk(t, i);
        const uint32_t column = columnOfChunk(chunk);
        if (column == kNone || columns_[column].rank != (chunk.rank == kNone ? 0 : chunk.rank)) continue;
        visit(column, chunk);
    }
}

}  // namespace shardscope
