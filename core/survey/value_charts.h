// Norms over the steps of a run as small line charts, one for each module: weights, moments, and experts as
// lines of one chart. What is marked comes first.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "survey/svg.h"
#include "survey/value_history.h"

namespace shardscope {

class ValueCharts {
  public:
    struct Line {
        std::string name;                          // as in ValueGroup
        std::vector<std::optional<double>> norms;  // by step
    };
    struct Chart {
        std::string name;  // with "*" for experts
        ValuesKind kind = ValuesKind::weight;
        bool experts = false;
        std::vector<Line> lines;
        std::vector<std::pair<size_t, bool>>
            marked;                      // steps, and whether the lowest line is meant, else the highest
        std::vector<std::string> marks;  // sentences
    };
    struct Drawing {
        std::vector<DrawnRect> charts;  // of the first ones, as many as are shown
        double width = 0, height = 0;
        int chartAt(double x, double y) const;  // -1 = none
    };

    // Null with fewer than two steps: there is nothing to follow. `history` is by module.
    static std::shared_ptr<const ValueCharts> of(const ValueHistory& history);
    const std::vector<std::string>& steps() const { return steps_; }
    const std::vector<Chart>& charts() const { return charts_; }
    const std::vector<ValueMark>& marks() const { return marks_; }
    // "Norms of 12 modules at 5 steps; 3 marks."
    std::string headline() const;
    // The name, from where to where its norm goes, its marks; a line each.
    std::string text(const Chart& chart) const;

    // At least one chart wide; as high as it needs to be.
    Drawing draw(double width) const;
    // Charts are groups of class "chart" with their text as a title.
    std::string svgOf(double width, bool dark) const;

  private:
    std::string drawn(const Chart& chart, const DrawnRect& at, const svg::Shades& shades) const;

    std::vector<std::string> steps_;
    std::vector<Chart> charts_;
    std::vector<ValueMark> marks_;
};

}  // namespace shardscope
