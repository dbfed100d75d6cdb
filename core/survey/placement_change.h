// What moves between two placements of the same tensors, A and B, as one map. Modules are down, ranks across.
// Each cell has what stays on its rank, arrives, and leaves. Only what is stored counts: a replica that no
// rank wrote is nowhere.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/stop.h"
#include "engine/diff.h"
#include "model/catalog.h"
#include "survey/svg.h"

namespace shardscope {

class PlacementChange {
  public:
    struct Bytes {
        uint64_t stays = 0, arrives = 0,
                 leaves = 0;   // arrives: B has it and A does not; leaves: the other way round
        bool differs = false;  // a tensor of it has other values
        uint64_t all() const { return stays + arrives + leaves; }
        void add(const Bytes& more);
    };
    struct Row {
        std::string name;  // with "*" for layers and experts
        uint64_t tensors = 0;
        std::vector<Bytes> ranks;
        Bytes sum;
    };
    struct Cell {
        DrawnRect rect;
        uint32_t row = 0, rows = 1, rank = 0, ranks = 1;  // a band of each
        Bytes bytes;
    };
    struct Drawing {
        std::vector<Cell> cells;                                    // those with bytes
        std::vector<std::pair<DrawnRect, uint32_t>> rows, columns;  // by band, with its first row or rank
        DrawnRect grid;
        double width = 0, height = 0;
        int cellAt(double x, double y) const;  // -1 = none
    };

    // Tensors of one name count as the same where shape and dtype agree; others leave whole and arrive whole.
    // `report` is of A and B: what it leaves out is not counted, what it says of values shows. Time grows
    // with the chunks. Errors: cancelled.
    static Result<std::shared_ptr<const PlacementChange>> of(const Catalog& a, const Catalog& b,
                                                             const DiffReport& report, const StopToken& stop);
    const std::vector<Row>& rows() const { return rows_; }
    uint32_t ranksA() const { return ranksA_; }
    uint32_t ranksB() const { return ranksB_; }
    const Bytes& sum() const { return sum_; }
    // "From dp=8,tp=4 to dp=4,tp=2: 41 MiB of 70 MiB arrive on another rank; ranks 8 to 31 hold nothing any
    // more."
    std::string headline() const;
    std::string cellText(const Cell& cell) const;

    Drawing draw(double width, double height) const;
    // Cells are groups of class "cell" with their sentence as a title.
    std::string svgOf(double width, double height, bool dark) const;

  private:
    std::string meshA_, meshB_;  // "dp=8,tp=4", else "8 ranks"
    uint32_t ranksA_ = 0, ranksB_ = 0;
    std::vector<Row> rows_;
    Bytes sum_;
};

}  // namespace shardscope
