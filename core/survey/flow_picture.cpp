#include "survey/flow_picture.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "base/units.h"
#include "survey/hues.h"

namespace shardscope {

namespace {

constexpr double kWidestName = 190, kSum = 46;  // of names at the left, and bars of sums
constexpr double kLeastFlow = 5, kWidestFlow = 40, kHighestFlow = 22;  // cells
constexpr double kLegend = 20;

uint32_t bandsOf(size_t count, double room) {
    const auto fit = static_cast<uint32_t>(std::max(1.0, std::floor(room / kLeastFlow)));
    return static_cast<uint32_t>((count + fit - 1) / fit);
}

// On a log scale over four powers of ten, so that little is seen beside much.
double scaleOf(uint64_t bytes, uint64_t most) {
    if (bytes == 0 || most == 0) return 0;
    return std::clamp(1 + std::log10(static_cast<double>(bytes) / static_cast<double>(most)) / 4, 0.0, 1.0);
}

}  // namespace

FlowPicture::FlowPicture(const Catalog& source, const Flow& flow, uint32_t ranks)
    : rows_(flow.rows), exact_(flow.exact) {
    ranks_.resize(std::max<uint32_t>(1, ranks));
    for (uint32_t r = 0; r < ranks_.size(); ++r) {
        ranks_[r].name = std::to_string(r);
        ranks_[r].rank = r;
    }
    FileId last = kNone;
    for (Flow::Row& row : rows_) {
        if (row.file != last)
            files_.push_back({source.files()[row.file].path, source.files()[row.file].rank, 0, 0});
        last = row.file;
        row.file = static_cast<FileId>(files_.size() - 1);
        if (row.rank >= ranks_.size()) row.rank = 0;
        for (Line* line : {&files_.back(), &ranks_[row.rank]}) {
            line->bytes += row.bytes;
            ++line->partners;
        }
        bytes_ += row.bytes;
    }
}

uint64_t FlowPicture::bytes(uint32_t file, uint32_t rank) const {
    const auto found =
        std::ranges::lower_bound(rows_, std::pair<FileId, uint32_t>(file, rank), {},
                                 [](const Flow::Row& row) { return std::pair(row.file, row.rank); });
    return found != rows_.end() && found->file == file && found->rank == rank ? found->bytes : 0;
}

std::string FlowPicture::headline() const {
    if (rows_.empty()) return "No rank reads anything.";
    const auto most = [](const std::vector<Line>& lines, auto what) {
        return *std::ranges::max_element(lines, {}, what);
    };
    std::vector<Line> reading;
    std::ranges::copy_if(ranks_, std::back_inserter(reading),
                         [](const Line& rank) { return rank.bytes > 0; });
    const uint64_t upTo = most(reading, &Line::bytes).bytes;
    const uint64_t from = std::ranges::min_element(reading, {}, &Line::bytes)->bytes;
    const uint32_t manyFiles = most(reading, &Line::partners).partners;
    const uint32_t fewFiles = std::ranges::min_element(reading, {}, &Line::partners)->partners;
    const std::string files = (fewFiles == manyFiles ? "" : fmt::format("{} to ", countText(fewFiles))) +
                              counted(manyFiles, "file");
    std::string text;
    if (reading.size() == 1)
        text = fmt::format("1 rank reads {} from {}.", bytesText(bytes_), files);
    else if (bytesText(from) == bytesText(upTo))
        text = fmt::format("Each of {} reads {} from {}.", counted(reading.size(), "rank"), bytesText(upTo),
                           files);
    else
        text = fmt::format("{} read {} to {} each, from {}; rank {} reads most.",
                           counted(reading.size(), "rank"), bytesText(from), bytesText(upTo), files,
                           most(ranks_, &Line::bytes).name);
    if (files_.size() > 1) {
        const Line hottest = most(files_, &Line::bytes);
        text += fmt::format(" Most is read of {}, {} by {}.", hottest.name, bytesText(hottest.bytes),
                            counted(hottest.partners, "rank"));
    }
    if (!exact_) text += " Tensors that the recipe puts together are counted by shares.";
    return text;
}

std::string FlowPicture::fileText(uint32_t file) const {
    const Line& line = files_[file];
    return fmt::format("{}: {} are read, by {}", line.name, bytesText(line.bytes),
                       counted(line.partners, "rank"));
}

std::string FlowPicture::rankText(uint32_t rank) const {
    const Line& line = ranks_[rank];
    return fmt::format("Rank {} reads {} from {}", line.name, bytesText(line.bytes),
                       counted(line.partners, "file"));
}

std::string FlowPicture::cellText(const Cell& cell) const {
    const std::string chunks = counted(cell.pieces, "chunk");
    if (cell.files == 1 && cell.ranks == 1)
        return fmt::format("Rank {} reads {} of {} in {}\n{}\n{}", cell.rank, bytesText(cell.bytes),
                           files_[cell.file].name, chunks, rankText(cell.rank), fileText(cell.file));
    const std::string who = cell.ranks == 1
                                ? fmt::format("Rank {} reads", cell.rank)
                                : fmt::format("Ranks {}–{} read", cell.rank, cell.rank + cell.ranks - 1);
    return fmt::format("{} {} of {} from {} on, in {}", who, bytesText(cell.bytes),
                       counted(cell.files, "file"), files_[cell.file].name, chunks);
}

FlowPicture::Drawing FlowPicture::draw(double width, double height, const DrawnType& type) const {
    Drawing drawing;
    if (files_.empty()) return drawing;
    double name = 0;
    for (const Line& file : files_)
        name = std::max(name, lettersOf(file.name, type));
    name = std::min({name + 8, kWidestName, width * 0.35});
    const double left = name, top = type.line + 2;
    const double roomAcross = width - left - kSum - 6, roomDown = height - top - kSum - kLegend;
    drawing.filesEach = bandsOf(files_.size(), roomDown);
    drawing.ranksEach = bandsOf(ranks_.size(), roomAcross);
    const auto rows = static_cast<uint32_t>((files_.size() + drawing.filesEach - 1) / drawing.filesEach);
    const auto columns = static_cast<uint32_t>((ranks_.size() + drawing.ranksEach - 1) / drawing.ranksEach);
    const double high = std::max(1.0, std::floor(std::min(kHighestFlow, roomDown / rows)));
    const double wide = std::max(1.0, std::floor(std::min(kWidestFlow, roomAcross / columns)));
    drawing.grid = {left, top, wide * columns, high * rows};
    for (uint32_t r = 0; r < rows; ++r)
        drawing.rows.emplace_back(DrawnRect{0, top + r * high, left, high}, r * drawing.filesEach);
    for (uint32_t c = 0; c < columns; ++c)
        drawing.columns.emplace_back(DrawnRect{left + c * wide, 0, wide, top}, c * drawing.ranksEach);
    std::map<std::pair<uint32_t, uint32_t>, Cell> cells;
    for (const Flow::Row& row : rows_) {
        const uint32_t r = row.file / drawing.filesEach, c = row.rank / drawing.ranksEach;
        Cell& cell = cells[{r, c}];
        cell.rect = {left + c * wide, top + r * high, wide, high};
        cell.file = r * drawing.filesEach;
        cell.files = std::min(drawing.filesEach, static_cast<uint32_t>(files_.size()) - cell.file);
        cell.rank = c * drawing.ranksEach;
        cell.ranks = std::min(drawing.ranksEach, static_cast<uint32_t>(ranks_.size()) - cell.rank);
        cell.bytes += row.bytes;
        cell.pieces += row.pieces;
    }
    for (const auto& [at, cell] : cells)
        drawing.cells.push_back(cell);
    drawing.width = left + drawing.grid.width + kSum + 6;
    drawing.height = top + drawing.grid.height + kSum + kLegend;
    return drawing;
}

int FlowPicture::Drawing::cellAt(double x, double y) const {
    const auto found =
        std::ranges::find_if(cells, [&](const Cell& cell) { return cell.rect.contains(x, y); });
    return found == cells.end() ? -1 : static_cast<int>(found - cells.begin());
}

std::string FlowPicture::svgOf(double width, double height, bool dark) const {
    return svg::alone(partOf(draw(width, height, DrawnType()), dark), svg::shadesOf(dark));
}

svg::Part FlowPicture::partOf(const Drawing& drawing, bool dark) const {
    const svg::Shades shades = svg::shadesOf(dark);
    const DrawnType type;
    svg::Part part{"flow", headline(), {}, drawing.width, drawing.height};
    std::string& out = part.text;
    const auto sumOf = [](const std::vector<Line>& lines, uint32_t first, uint32_t each) {
        uint64_t sum = 0;
        for (size_t i = first; i < std::min<size_t>(lines.size(), size_t{first} + each); ++i)
            sum += lines[i].bytes;
        return sum;
    };
    uint64_t most = 0, mostRow = 0, mostColumn = 0;
    for (const Cell& cell : drawing.cells)
        most = std::max(most, cell.bytes);
    for (const auto& [rect, first] : drawing.rows)
        mostRow = std::max(mostRow, sumOf(files_, first, drawing.filesEach));
    for (const auto& [rect, first] : drawing.columns)
        mostColumn = std::max(mostColumn, sumOf(ranks_, first, drawing.ranksEach));
    const DrawnRect& grid = drawing.grid;
    out +=
        svg::rect(grid, fmt::format("class=\"back\" fill=\"{}\" stroke=\"{}\"", shades.panel, shades.line)) +
        "\n";
    const std::string bar = fmt::format("class=\"sum\" fill=\"{}\"", svg::color(bytesRgb(dark)));
    double free = 0;
    for (const auto& [rect, first] : drawing.rows) {
        const double share = mostRow ? static_cast<double>(sumOf(files_, first, drawing.filesEach)) /
                                           static_cast<double>(mostRow)
                                     : 0;
        out += svg::rect({grid.x + grid.width + 4, rect.y + 0.5, kSum * share, rect.height - 1}, bar);
        if (rect.y + rect.height / 2 < free) continue;
        free = rect.y + rect.height / 2 + type.line - 2;
        out += svg::text(grid.x - 5, rect.y + rect.height / 2 + svg::kBaseline, "end", "name", shades.text,
                         endOf(files_[first].name, grid.x - 8, type)) +
               "\n";
    }
    free = 0;
    for (const auto& [rect, first] : drawing.columns) {
        const double share = mostColumn ? static_cast<double>(sumOf(ranks_, first, drawing.ranksEach)) /
                                              static_cast<double>(mostColumn)
                                        : 0;
        out += svg::rect({rect.x + 0.5, grid.y + grid.height + 4, rect.width - 1, kSum * 0.8 * share}, bar);
        const double text = lettersOf(ranks_[first].name, type);
        if (rect.x + rect.width / 2 - text / 2 < free) continue;
        free = rect.x + rect.width / 2 + text / 2 + 6;
        out += svg::centered(rect, svg::kBaseline, "rank", shades.text, ranks_[first].name) + "\n";
    }
    out +=
        svg::text(grid.x - 5, svg::kBaseline + type.line / 2 + 1, "end", "key", shades.quiet, "read by rank");
    for (const Cell& cell : drawing.cells) {
        DrawnRect inside = cell.rect;
        if (inside.width >= kLeastFlow) inside.width -= 1;
        if (inside.height >= kLeastFlow) inside.height -= 1;
        out += fmt::format(
            "<g class=\"cell\" data-files=\"{}-{}\" data-to=\"{}-{}\"><title>{}</title>{}</g>\n", cell.file,
            cell.file + cell.files - 1, cell.rank, cell.rank + cell.ranks - 1, svg::escaped(cellText(cell)),
            svg::rect(inside,
                      fmt::format("fill=\"{}\"", svg::color(holdRgb(scaleOf(cell.bytes, most), dark)))));
    }
    const double line = drawing.height - kLegend + 4 + type.line / 2;
    out += svg::text(grid.x, line + svg::kBaseline, "start", "key", shades.quiet,
                     fmt::format("strongest color: {}; bars: sums of files and of ranks", bytesText(most)));
    return part;
}

}  // namespace shardscope
