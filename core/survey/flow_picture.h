// Who reads what from whom, as a matrix: files of the source down, ranks of the target across, bytes as
// color, sums at the edges. Files and ranks that are too many to be seen share rows and columns.
#pragma once

#include <string>
#include <vector>

#include "plan/flow.h"
#include "survey/svg.h"

namespace shardscope {

class FlowPicture {
  public:
    struct Line {               // a file, or a rank
        std::string name;       // "__3_0.distcp", "3"
        uint32_t rank = kNone;  // itself, or the one that wrote the file; kNone = not known
        uint64_t bytes = 0;     // that are read of it, or by it
        uint32_t partners = 0;  // ranks that read it, or files that it reads
    };
    // A band of files by a band of ranks.
    struct Cell {
        DrawnRect rect;
        uint32_t file = 0, files = 1, rank = 0, ranks = 1;
        uint64_t bytes = 0, pieces = 0;
    };
    struct Drawing {
        std::vector<Cell> cells;                                    // those with bytes
        std::vector<std::pair<DrawnRect, uint32_t>> rows, columns;  // by band, with its first file or rank
        uint32_t filesEach = 1, ranksEach = 1;
        DrawnRect grid;
        double width = 0, height = 0;
        int cellAt(double x, double y) const;  // -1 = none
    };

    FlowPicture(const Catalog& source, const Flow& flow, uint32_t ranks);
    const std::vector<Line>& files() const { return files_; }
    const std::vector<Line>& ranks() const { return ranks_; }
    uint64_t bytes(uint32_t file, uint32_t rank) const;  // 0 = reads nothing of it
    bool exact() const { return exact_; }
    // "32 ranks read 70.0 MiB from 33 files; rank 3 reads most (…), of file … most is read (…)."
    std::string headline() const;
    std::string fileText(uint32_t file) const;  // "__3_0.distcp: 2.1 MiB, read by 8 ranks"
    std::string rankText(uint32_t rank) const;  // "Rank 3 reads 1.1 MiB from 4 files"
    std::string cellText(const Cell& cell) const;

    Drawing draw(double width, double height, const DrawnType& type) const;
    // Cells are groups of class "cell" with their sentence as a title.
    std::string svgOf(double width, double height, bool dark) const;
    // The same as a part of another drawing.
    svg::Part partOf(const Drawing& drawing, bool dark) const;
    const std::vector<Flow::Row>& rows() const { return rows_; }  // Row::file is an index of files()

  private:
    std::vector<Flow::Row> rows_;
    std::vector<Line> files_, ranks_;
    uint64_t bytes_ = 0;
    bool exact_ = true;
};

}  // namespace shardscope
