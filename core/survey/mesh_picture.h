// The mesh as people think of it: pipeline stages as boxes with their layers, in each a grid of ranks. Every
// rank has the bytes that it holds, its worst state, its experts, and whether it is a replica. Values and
// geometry only: the window paints it, svgOf() writes it for page and slides.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "survey/facts.h"
#include "survey/hues.h"
#include "survey/svg.h"

namespace shardscope {

class MeshPicture {
  public:
    enum class Part : uint8_t { box, down, across };  // where an axis is drawn
    struct Axis {
        std::string name;
        uint32_t size = 1;
        AxisKind kind = AxisKind::other;
        Part part = Part::across;
        uint32_t stride = 1;  // of ranks
    };
    struct Stage {
        std::string holds;     // "layers 0–15, embed_tokens"
        std::string layers;    // "0–15"
        uint64_t bytes = 0;    // of its ranks
        uint32_t damaged = 0;  // ranks
        Health health = Health::ok;
    };

    // Null where there are fewer than two ranks.
    static std::shared_ptr<const MeshPicture> of(std::shared_ptr<const Facts> facts);

    // Of the mesh, outermost first; one axis "rank" where none is known that holds all ranks.
    const std::vector<Axis>& axes() const { return axes_; }
    bool known() const { return known_; }
    const std::vector<Stage>& stages() const { return stages_; }  // one without pipeline stages
    bool hasStages() const { return stageAxis_ >= 0; }
    uint32_t rankCount() const { return rankCount_; }
    const RankFacts& rank(uint32_t rank) const;  // those that the mesh implies hold nothing
    uint64_t mostBytes() const { return mostBytes_; }
    // Whose bytes stand out, the farthest first.
    const std::vector<uint32_t>& outliers() const { return outliers_; }
    // Layers in two stages, or in none: "model.layers.4 is in stages 1, 2".
    const std::vector<std::string>& oddLayers() const { return oddLayers_; }
    const Facts& facts() const { return *facts_; }

    uint32_t place(uint32_t rank, size_t axis) const { return rank / axes_[axis].stride % axes_[axis].size; }
    // Ranks that differ from it along that axis alone, itself included; ascending.
    std::vector<uint32_t> group(uint32_t rank, size_t axis) const;
    std::string axesText() const;  // "pp 2 × dp 2 × tp 4"
    std::string title() const;     // "pp 2 × dp 2 × tp 4, declared"
    // "pp0: layers 0–15, embed_tokens", or "pp0: 0–15".
    std::string stageTitle(uint32_t stage, bool brief = false) const;
    std::string rankText(uint32_t rank) const;    // several lines
    std::string groupsText(uint32_t rank) const;  // "tp: 4–7 · dp: 1, 5"
    // Which ranks are damaged or stand out, which layers are odd: sentences; empty = nothing to remark.
    std::string remarks() const;
    // For a terminal: one letter a rank, rows that are alike as one. `ascii`: without blocks.
    std::string text(bool ascii) const;

  private:
    explicit MeshPicture(std::shared_ptr<const Facts> facts) : facts_(std::move(facts)) {}
    void takeAxes();
    void takeStages();

    std::shared_ptr<const Facts> facts_;
    std::vector<Axis> axes_;
    bool known_ = false;
    int stageAxis_ = -1;
    uint32_t rankCount_ = 0;
    std::vector<Stage> stages_;
    std::vector<uint32_t> outliers_;
    std::vector<std::string> oddLayers_;
    uint64_t mostBytes_ = 0;
};

// Ranks whose bytes stand out: more than 5 % and five times the usual deviation off the median, or nothing at
// all. The farthest first.
std::vector<uint32_t> outlyingRanks(const std::vector<uint64_t>& bytes, uint64_t median);

// Where everything is drawn, in pixels.
struct MeshDrawing {
    struct Cell {
        DrawnRect rect;
        std::vector<uint32_t> ranks;  // several where a rank of its own would be too small to see
        double share = 0;             // bytes of the fullest, of those of the fullest of all
        Health health = Health::ok;   // the worst
        bool empty = false;           // none of them holds anything
        bool replica = false;         // all hold what an earlier rank holds
        DrawnRect level() const;      // what is filled
        double tone() const;          // how strongly, up to 1
        std::string text, second;     // as far as they fit: its number, its experts
    };
    // A coordinate, or several neighbors' that are equal.
    struct Band {
        DrawnRect rect;
        AxisKind kind = AxisKind::other;
        bool odd = false;
        std::string text;
    };
    struct Box {
        DrawnRect rect, title;
        std::string text;  // that fits, or has to be elided
        Health health = Health::ok;
    };
    // A sample and what it means, below the boxes.
    struct Key {
        enum class What : uint8_t { axis, bytes, state, replica, empty } what = What::axis;
        AxisKind kind = AxisKind::other;
        Health health = Health::ok;
        DrawnRect sample, label;
        std::string text;
    };
    std::vector<Box> boxes;
    std::vector<Band> bands;
    std::vector<Cell> cells;  // row by row of each box
    std::vector<Key> keys;
    double width = 0, height = 0;  // that is used

    int cellOf(uint32_t rank) const;       // -1 = none
    int cellAt(double x, double y) const;  // -1 = none
    // The nearest cell in a direction (dx, dy is one step); `from` itself where there is none.
    int neighbor(int from, int dx, int dy) const;
};

MeshDrawing drawMesh(const MeshPicture& picture, double width, double height, const DrawnType& type);

// A drawing of its own with the colors of the theme; texts escaped. Cells are groups of class "cell" with
// their ranks in `data-ranks` ("0-3 8"), so that a page can follow the pointer and style it anew.
std::string svgOf(const MeshPicture& picture, double width, double height, bool dark);

// The same as a part of another drawing, below `heading`.
struct MeshSheet {
    MeshDrawing drawing;
    double x = 0, y = 0;  // of it, in the part
    svg::Part part;
};
MeshSheet sheetOf(const MeshPicture& picture, const std::string& heading, double width, double height,
                  bool dark);

}  // namespace shardscope
