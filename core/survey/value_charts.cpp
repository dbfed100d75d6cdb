#include "survey/value_charts.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/text.h"
#include "base/units.h"
#include "survey/facts.h"
#include "survey/hues.h"
#include "survey/layer_name.h"

namespace shardscope {

namespace {

constexpr size_t kMostCharts = 36;  // that are drawn
constexpr double kChartWidth = 236, kChartHeight = 92, kChartGap = 10, kChartTitle = 18, kChartFoot = 16;
constexpr double kLogFrom = 100;  // greatest by least norm, from which on the scale is logarithmic

std::string shortNumber(double value) {
    return fmt::format("{:.3g}", value);
}

std::string withoutExpert(const std::string& name, bool& expert) {
    const ExpertName of = splitExpert(name);
    expert = of.number >= 0;
    if (!expert) return name;
    return std::string(of.group) + '*' + name.substr(std::min(name.find('.', of.group.size()), name.size()));
}

uint32_t lineRgb(const ValueCharts::Chart& chart, bool dark) {
    return axisRgb(chart.experts                      ? AxisKind::expert
                   : chart.kind == ValuesKind::moment ? AxisKind::data
                                                      : AxisKind::tensor,
                   dark);
}

const char* lineClass(const ValueCharts::Chart& chart) {
    return chart.experts ? "expert" : chart.kind == ValuesKind::moment ? "moment" : "weight";
}

const char* kindWords(const ValueCharts::Chart& chart) {
    return chart.kind == ValuesKind::moment ? (chart.experts ? "moments of experts" : "moments")
                                            : (chart.experts ? "weights of experts" : "weights");
}

struct Range {
    double least = HUGE_VAL, most = 0;  // positive norms
    bool empty() const { return most == 0; }
    bool logarithmic() const { return most / least >= kLogFrom; }
    // 0 at the bottom, 1 at the top.
    double part(double norm) const {
        if (norm <= 0) return 0;
        return logarithmic() ? std::log(norm / least) / std::log(most / least) : norm / most;
    }
};

Range rangeOf(const ValueCharts::Chart& chart) {
    Range range;
    for (const ValueCharts::Line& line : chart.lines)
        for (const auto& norm : line.norms)
            if (norm && *norm > 0) range = {std::min(range.least, *norm), std::max(range.most, *norm)};
    return range;
}

}  // namespace

std::shared_ptr<const ValueCharts> ValueCharts::of(const ValueHistory& history) {
    if (history.steps().size() < 2) return nullptr;
    auto all = std::make_shared<ValueCharts>();
    all->marks_ = history.marks();
    std::map<std::pair<std::string, ValuesKind>, size_t> charts, lines;
    const size_t steps = history.steps().size();
    for (size_t i = 0; i < steps; ++i) {
        all->steps_.push_back(history.steps()[i].name);
        for (const ValueGroup& group : history.steps()[i].groups) {
            if (group.kind == ValuesKind::other) continue;
            bool expert = false;
            const auto [at, fresh] =
                charts.try_emplace({withoutExpert(group.name, expert), group.kind}, all->charts_.size());
            if (fresh) all->charts_.push_back({at->first.first, group.kind, expert, {}, {}, {}});
            Chart& chart = all->charts_[at->second];
            const auto [line, first] = lines.try_emplace({group.name, group.kind}, chart.lines.size());
            if (first) chart.lines.push_back({group.name, std::vector<std::optional<double>>(steps)});
            chart.lines[line->second].norms[i] = group.norm();
        }
    }
    for (const ValueMark& mark : all->marks_) {
        const auto step = std::ranges::find(all->steps_, mark.step) - all->steps_.begin();
        for (Chart& chart : all->charts_) {
            const bool own = std::ranges::any_of(chart.lines, [&](const Line& line) {
                if (mark.what != ValueMark::What::deadExperts) return line.name == mark.group;
                // The experts of one layer, of which the chart shows all layers.
                const LayerName layer = splitLayer(mark.group);
                return chart.experts &&
                       chart.name.starts_with(
                           layer.number < 0 ? mark.group : fmt::format("{}*{}", layer.before, layer.after));
            });
            if (!own) continue;
            chart.marked.emplace_back(static_cast<size_t>(step), mark.what == ValueMark::What::deadExperts);
            chart.marks.push_back(mark.text);
        }
    }
    std::ranges::stable_sort(all->charts_, [](const Chart& a, const Chart& b) {
        return std::pair(a.marks.empty(), a.kind) < std::pair(b.marks.empty(), b.kind);
    });
    return all;
}

std::string ValueCharts::headline() const {
    std::string text = fmt::format("Norms of {} at {}; {}.", counted(charts_.size(), "module"),
                                   counted(steps_.size(), "step"), counted(marks_.size(), "mark"));
    if (charts_.size() > kMostCharts)
        text += fmt::format(" {} of them are drawn; 'shardscope stats' lists all.", kMostCharts);
    return text;
}

std::string ValueCharts::text(const Chart& chart) const {
    std::string text = fmt::format("{}, {}", chart.name, kindWords(chart));
    if (chart.lines.size() == 1) {
        const auto& norms = chart.lines[0].norms;
        const auto has = [](const auto& norm) { return norm.has_value(); };
        const auto first = std::ranges::find_if(norms, has);
        const auto last = std::find_if(norms.rbegin(), norms.rend(), has);
        if (first != norms.end())
            text += fmt::format("\nnorm {} at {}, {} at {}", shortNumber(**first),
                                steps_[static_cast<size_t>(first - norms.begin())], shortNumber(**last),
                                steps_[static_cast<size_t>(norms.rend() - last) - 1]);
    } else if (const Range range = rangeOf(chart); !range.empty()) {
        text += fmt::format("\n{}, norms from {} to {}", counted(chart.lines.size(), "expert"),
                            shortNumber(range.least), shortNumber(range.most));
    }
    for (const std::string& mark : chart.marks)
        text += "\n▲ " + mark;
    return text;
}

int ValueCharts::Drawing::chartAt(double x, double y) const {
    const auto found =
        std::ranges::find_if(charts, [&](const DrawnRect& rect) { return rect.contains(x, y); });
    return found == charts.end() ? -1 : static_cast<int>(found - charts.begin());
}

ValueCharts::Drawing ValueCharts::draw(double width) const {
    Drawing drawing;
    const size_t shown = std::min(charts_.size(), kMostCharts);
    const auto columns =
        static_cast<size_t>(std::max(1.0, std::floor((width + kChartGap) / (kChartWidth + kChartGap))));
    const double wide = (std::max(width, kChartWidth) + kChartGap) / static_cast<double>(columns) - kChartGap;
    for (size_t i = 0; i < shown; ++i) {
        const auto row = static_cast<double>(i / columns), column = static_cast<double>(i % columns);
        drawing.charts.push_back(
            {column * (wide + kChartGap), row * (kChartHeight + kChartGap), wide, kChartHeight});
    }
    drawing.width = std::max(width, kChartWidth);
    drawing.height = shown == 0 ? 0 : drawing.charts.back().y + kChartHeight + 1;
    return drawing;
}

std::string ValueCharts::drawn(const Chart& chart, const DrawnRect& at, const svg::Shades& shades) const {
    const DrawnType type;
    const Range range = rangeOf(chart);
    const double left = at.x + 8, right = at.x + at.width - 8, top = at.y + kChartTitle + 6,
                 bottom = at.y + at.height - kChartFoot;
    const auto xOf = [&](size_t step) {
        return left + (right - left) * static_cast<double>(step) / static_cast<double>(steps_.size() - 1);
    };
    const auto yOf = [&](double norm) { return bottom - (bottom - top) * range.part(norm); };
    const std::string value = range.empty() ? "0" : "≤ " + shortNumber(range.most);
    const double taken = lettersOf(value, type) + 14;
    const bool marked = !chart.marks.empty();
    std::string out = fmt::format(
        "<g class=\"chart\"><title>{}</title>{}", svg::escaped(text(chart)),
        svg::rect(
            at, fmt::format("class=\"back\" rx=\"3\" fill=\"{}\" stroke=\"{}\"", shades.panel, shades.line)));
    out += svg::text(left, at.y + 9 + svg::kBaseline, "start", "name", shades.text,
                     endOf(chart.name, at.width - taken - 10, type));
    out += svg::text(right, at.y + 9 + svg::kBaseline, "end", "value", shades.quiet, value);
    out += fmt::format(
        "<line class=\"base\" x1=\"{0:.1f}\" x2=\"{1:.1f}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"{3}\"/>",
        left, right, bottom + 0.5, shades.line);
    const std::string color = svg::color(lineRgb(chart, shades.dark));
    for (const Line& line : chart.lines) {
        std::string points;
        size_t known = 0, last = 0;
        for (size_t i = 0; i < steps_.size(); ++i) {
            if (!line.norms[i]) continue;
            points += fmt::format("{:.1f},{:.1f} ", xOf(i), yOf(*line.norms[i]));
            ++known;
            last = i;
        }
        if (known == 1)  // no line, but a point
            out += fmt::format(
                "<circle class=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"1.5\" fill=\"none\" stroke=\"{}\"/>",
                lineClass(chart), xOf(last), yOf(*line.norms[last]), color);
        out += fmt::format(
            "<polyline class=\"{}\" points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\"/>",
            lineClass(chart), points, color, chart.lines.size() > 1 ? 1 : 1.8);
    }
    for (const auto& [step, lowest] : chart.marked) {
        double y = lowest ? top : bottom;
        for (const Line& line : chart.lines)
            if (line.norms[step])
                y = lowest ? std::max(y, yOf(*line.norms[step])) : std::min(y, yOf(*line.norms[step]));
        out += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" fill=\"{}\" stroke=\"{}\"/>",
                           xOf(step), y, svg::color(healthRgb(Health::missing, shades.dark)), shades.surface);
    }
    const std::string foot =
        fmt::format("{}{}", kindWords(chart), range.empty() || !range.logarithmic() ? "" : ", log scale");
    out += svg::text(left, at.y + at.height - 9 + svg::kBaseline, "start", "kind", shades.quiet, foot);
    if (marked)
        out += svg::text(right, at.y + at.height - 9 + svg::kBaseline, "end", "mark", shades.text,
                         fmt::format("▲ {}", counted(chart.marks.size(), "mark")));
    return out + "</g>\n";
}

std::string ValueCharts::svgOf(double width, bool dark) const {
    const svg::Shades shades = svg::shadesOf(dark);
    const Drawing drawing = draw(width);
    std::string out = svg::head(drawing.width, std::max(1.0, drawing.height), "charts", headline(), shades);
    for (size_t i = 0; i < drawing.charts.size(); ++i)
        out += drawn(charts_[i], drawing.charts[i], shades);
    return out + "</svg>\n";
}

}  // namespace shardscope
