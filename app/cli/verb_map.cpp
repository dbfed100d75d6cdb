#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "answers/documents.h"
#include "base/units.h"
#include "cli/application.h"
#include "cli/convert.h"
#include "cli/output_file.h"
#include "cli/text.h"
#include "model/name_pattern.h"

namespace shardscope::cli {
namespace {

struct MapOptions {
    std::string path;
    std::string pattern = "*";
    bool ascii = false;
    bool slices = false;
    bool mesh = false;
    std::string asIf;  // a mesh
    std::string output;
    bool overwrite = false;
};

// The digits of placementCells() as one character each.
constexpr const char* kBlocks[] = {"·", "▁", "▂", "▄", "▆", "█"};
constexpr const char* kAscii[] = {".", "1", "2", "4", "6", "#"};

// "model.layers.12.w" -> "model.layers.*.w", so that layers with one placement fold into a row.
std::string foldedName(std::string_view name) {
    std::string out;
    for (size_t i = 0; i < name.size();) {
        size_t end = std::min(name.find('.', i), name.size());
        const std::string_view part = name.substr(i, end - i);
        const bool number = !part.empty() && std::all_of(part.begin(), part.end(),
                                                         [](char c) { return c >= '0' && c <= '9'; });
        out += number ? std::string_view("*") : part;
        if (end < name.size()) out += '.';
        i = end + 1;
    }
    return out;
}

struct Row {
    std::string name;
    size_t tensors = 0;
    std::string shape;
    std::string cells;  // one digit per rank
};

// As window and page have it: what is folded is alike in every slice, not only in how much each rank holds.
Result<int> mapSlices(const Context& context, Checkpoint opened, const NamePattern& pattern) {
    if (!context.json) return makeError(ErrorCode::usage, "--slices is for --json");
    const auto checkpoint = std::make_shared<const Checkpoint>(std::move(opened));
    const auto facts = computeFacts(checkpoint->catalog(), context.stop);
    const auto matrix = facts ? matrixOf(checkpoint, facts, pattern, {}, context.stop) : nullptr;
    if (!matrix) return makeError(ErrorCode::cancelled, "canceled");
    printJson(placementJson(*matrix, {}));
    return 0;
}

// The pictures that window and page show: of the mesh, or of it and another one.
Result<int> mapMesh(const Context& context, const MapOptions& options) {
    constexpr double kWidth = 960, kHeight = 540;
    if (options.mesh && !options.asIf.empty())
        return makeError(ErrorCode::usage, "--as-if shows both meshes: leave --mesh out");
    const Replace replace = options.overwrite ? Replace::yes : Replace::no;
    const bool file = !options.output.empty() && !context.away();
    if (file) SHARDSCOPE_TRY(checkOutputFile(options.output, options.path, replace));
    SHARDSCOPE_ASSIGN(const Checkpoint checkpoint, context.open(options.path));
    const auto facts = computeFacts(checkpoint.catalog(), context.stop);
    if (!facts) return makeError(ErrorCode::cancelled, "canceled");
    const auto picture = MeshPicture::of(facts);
    std::shared_ptr<const AsIf> asIf;
    if (!options.asIf.empty()) {
        SHARDSCOPE_ASSIGN(asIf, asIfOn(checkpoint, facts, options.asIf, context.stop));
    }
    if (context.json) {
        printJson(asIf ? asIfJson(*asIf) : meshPictureJson(picture.get()));
    } else if (!picture && !asIf) {
        return makeError(ErrorCode::unsupported, "one rank wrote all of it: there is no mesh to draw")
            .inFile(options.path);
    } else if (options.output.empty()) {
        std::string text = picture ? picture->text(options.ascii) : "";
        if (asIf) {
            if (asIf->after()) text += "as if on " + asIf->after()->text(options.ascii);
            text += printable(asIf->headline()) + "\n";
            for (const std::string& note : asIf->notes())
                text += fmt::format("note: {}\n", printable(note));
            text += flowText(asIf->flow());
        }
        fmt::print("{}", text);
    } else {
        const std::string svg =
            asIf ? AsIf::draw(asIf, kWidth, kHeight, false).svg : svgOf(*picture, kWidth, kHeight, false);
        if (!file)
            fmt::print("{}", svg);
        else
            SHARDSCOPE_TRY(writeOutputFile(options.output, svg, replace));
    }
    return 0;
}

Result<int> map(const Context& context, const MapOptions& options) {
    if (options.mesh || !options.asIf.empty()) return mapMesh(context, options);
    if (!options.output.empty())
        return makeError(ErrorCode::usage, "--output is for the drawings of --mesh and --as-if");
    SHARDSCOPE_ASSIGN(Checkpoint checkpoint, context.open(options.path));
    const Catalog& catalog = checkpoint.catalog();
    SHARDSCOPE_ASSIGN(const NamePattern pattern, NamePattern::parse(options.pattern));
    if (options.slices) return mapSlices(context, std::move(checkpoint), pattern);
    const uint32_t ranks = catalog.rankCount();

    std::vector<Row> rows;
    std::map<std::tuple<std::string, std::string, std::string>, size_t> index;
    for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
        if (!pattern.matches(catalog.name(t))) continue;
        Row row{std::string(catalog.name(t)), 1, formatDims(catalog.shape(t)), placementCells(catalog, t)};
        const auto [it, fresh] =
            index.emplace(std::tuple{foldedName(row.name), row.shape, row.cells}, rows.size());
        if (fresh) {
            rows.push_back(std::move(row));
        } else {
            Row& first = rows[it->second];
            ++first.tensors;
            first.name = std::get<0>(it->first);
        }
    }
    const std::optional<Mesh> mesh = meshOf(catalog);
    if (context.json) {
        Json json{{"schema", "shardscope.map/1"},
                  {"ranks", ranks},
                  {"mesh", meshJson(mesh)},
                  {"rows", Json::array()}};
        for (const Row& row : rows) {
            Json cells = Json::array();
            for (char c : row.cells)
                cells.push_back(c - '0');
            json["rows"].push_back({{"name", row.name},
                                    {"tensors", row.tensors},
                                    {"shape", row.shape},
                                    {"cells", std::move(cells)}});
        }
        printJson(json);
        return 0;
    }
    const Style style{context.colored()};
    if (rows.empty()) {
        fmt::print("no tensor matches\n");
        return 0;
    }
    if (mesh)
        fmt::print("mesh {} ({})\n", formatMesh(*mesh),
                   mesh->source == Mesh::Source::declared ? "declared" : "inferred");

    // Names take what they need, at most half of the line; ranks that do not fit are folded to every n-th.
    size_t nameWidth = 0;
    for (Row& row : rows) {
        if (row.tensors > 1) row.name += fmt::format("  x{}", row.tensors);
        nameWidth = std::max(nameWidth, displayWidth(printable(row.name)));
        SHARDSCOPE_TRY(StopToken(context.stop).poll());
    }
    const size_t width = terminalWidth();
    nameWidth = std::min(nameWidth, std::max<size_t>(20, width / 2));
    const size_t room = width > nameWidth + 2 ? width - nameWidth - 2 : 1;
    const size_t step = (ranks + room - 1) / room;
    std::string head(nameWidth + 2, ' ');
    for (uint32_t r = 0, column = 0; r < ranks; r += static_cast<uint32_t>(step), ++column) {
        head += r % 10 == 0 && step == 1 ? fmt::format("{}", r / 10 % 10) : step == 1 ? " " : "";
    }
    std::string units(nameWidth + 2, ' ');
    for (uint32_t r = 0; r < ranks; r += static_cast<uint32_t>(step))
        units += step == 1 ? static_cast<char>('0' + r % 10) : '|';
    if (ranks > 10 && step == 1) fmt::print("{}\n", style.dim(head));
    fmt::print("{}\n", style.dim(units));
    for (const Row& row : rows) {
        const std::string name = cutToWidth(printable(row.name), nameWidth);
        std::string line = name + std::string(nameWidth - displayWidth(name) + 2, ' ');
        for (size_t r = 0; r < row.cells.size(); r += step) {
            // Of folded ranks the fullest is shown, so that nothing that is there disappears.
            char best = '0';
            for (size_t k = r; k < std::min(r + step, row.cells.size()); ++k)
                best = std::max(best, row.cells[k]);
            line += (options.ascii ? kAscii : kBlocks)[best - '0'];
        }
        fmt::print("{}\n", line);
    }
    fmt::print(
        "{}\n",
        style.dim(options.ascii
                      ? "columns: ranks; . nothing  1 up to 1/8  2 up to 1/4  4 up to 1/2  6 more  # all"
                      : "columns: ranks; · nothing  ▁ up to 1/8  ▂ up to 1/4  ▄ up to 1/2  ▆ more  █ all"));
    if (step > 1)
        fmt::print("{}\n", style.dim(fmt::format("each column stands for {}", counted(step, "rank"))));
    return 0;
}

}  // namespace

void addMap(CLI::App& app, Context& context) {
    CLI::App* verb = app.add_subcommand("map", "Placement map: which rank holds how much of which tensor");
    verb->footer(
        "Example:\n  shardscope map /checkpoints/step-1000 'model.layers.*'\n  shardscope map "
        "/checkpoints/step-1000 --as-if tp=8");
    auto options = std::make_shared<MapOptions>();
    verb->add_option("path", options->path, "Checkpoint: a directory, a file, or ssh://host/path")
        ->required()
        ->type_name("PATH");
    verb->add_option("glob", options->pattern, "Only names that match")->type_name("GLOB");
    verb->add_flag("--ascii", options->ascii, "Plain characters instead of Unicode blocks");
    verb->add_flag("--slices", options->slices,
                   "With --json: rows as the window folds them, with the shard that each rank holds");
    verb->add_flag("--mesh", options->mesh,
                   "The mesh instead: stages, in each its ranks with bytes and states");
    verb->add_option("--as-if", options->asIf,
                     "As if on this mesh: both meshes, and who would read what from whom; nothing is written")
        ->type_name("MESH");
    CLI::Option* output =
        verb->add_option("-o,--output", options->output,
                         "With --mesh or --as-if: write it as an SVG drawing into this file")
            ->type_name("FILE");
    verb->add_flag("--overwrite", options->overwrite, "Replace the file when it is already there")
        ->needs(output);
    addCommon(*verb, context, false);
    verb->callback(
        [&context, options] { context.verb = [&context, options] { return map(context, *options); }; });
}

}  // namespace shardscope::cli
