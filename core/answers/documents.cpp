#include "answers/documents.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include <fmt/format.h>

#include "base/similar.h"
#include "base/text.h"
#include "engine/recipe.h"
#include "engine/recipe_fit.h"
#include "model/coverage.h"
#include "model/infer_mesh.h"

namespace shardscope {
namespace {

// Bytes by the first components of the names: as deep as it takes to get beyond a single common prefix.
std::vector<Summary::Module> biggestModules(const Catalog& catalog) {
    for (int depth = 1; depth <= 4; ++depth) {
        std::map<std::string, Summary::Module, std::less<>> modules;
        for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
            std::string_view name = catalog.name(t);
            size_t end = 0;
            for (int i = 0; i < depth && end != std::string_view::npos; ++i)
                end = name.find('.', end + (i ? 1 : 0));
            const std::string_view prefix = name.substr(0, end);
            auto it = modules.find(prefix);
            if (it == modules.end())
                it = modules.emplace(std::string(prefix), Summary::Module{std::string(prefix), 0, 0}).first;
            ++it->second.tensors;
            if (catalog.aliasOf(t) == kNone) it->second.bytes += catalog.bytes(t);
        }
        if (modules.size() > 4 || depth == 4 || modules.size() == catalog.tensorCount()) {
            std::vector<Summary::Module> list;
            for (auto& [name, module] : modules)
                list.push_back(std::move(module));
            std::stable_sort(
                list.begin(), list.end(),
                [](const Summary::Module& a, const Summary::Module& b) { return a.bytes > b.bytes; });
            if (list.size() > 8) list.resize(8);
            return list;
        }
    }
    return {};
}

int cellOf(double share) {
    if (share <= 0) return 0;
    if (share >= 1) return 5;
    if (share <= 0.125) return 1;
    if (share <= 0.25) return 2;
    return share <= 0.5 ? 3 : 4;
}

Json numberJson(double v) {
    return std::isfinite(v) ? Json(v) : Json(std::isnan(v) ? "nan" : v > 0 ? "inf" : "-inf");
}

Json statisticsJson(const TensorStatistics& s) {
    Json json{{"elements", s.elements}, {"nan", s.nan}, {"inf", s.inf}, {"zero", s.zero}};
    json["min"] = s.finite ? numberJson(s.min) : Json();
    json["max"] = s.finite ? numberJson(s.max) : Json();
    json["mean"] = s.finite ? numberJson(s.mean) : Json();
    json["std"] = s.finite ? numberJson(s.deviation) : Json();
    json["histogram"] = {{"low", s.finite ? numberJson(s.min) : Json()},
                         {"high", s.finite ? numberJson(s.max) : Json()},
                         {"counts", s.histogram}};
    return json;
}

// Without its "schema".
Json jobJson(const JobRecord& job) {
    Json json{{"id", job.id},
              {"title", job.title},
              {"state", jobStateName(job.state)},
              {"source", job.source},
              {"destination", job.destination},
              {"arguments", job.arguments},
              {"directory", job.workingDirectory},
              {"host", job.host},
              {"created", job.created},
              {"started", job.started},
              {"attempts", job.attempts}};
    json["exit_code"] = job.exitCode >= 0 ? Json(job.exitCode) : Json();
    json["progress"] = job.progress;
    // Of the whole job, where `progress` is the last event as it was printed.
    if (const JobProgress at = job.at(); job.state == JobState::running && !at.phase.empty())
        json["overall"] = {{"share", at.share >= 0 ? Json(at.share) : Json()},
                           {"rate", at.rate},
                           {"seconds_left", at.secondsLeft >= 0 ? Json(at.secondsLeft) : Json()},
                           {"text", at.text()}};
    json["workers"] = job.workers;
    json["result"] = job.result;
    return json;
}

}  // namespace

Summary summaryOf(const Checkpoint& checkpoint) {
    const Catalog& catalog = checkpoint.catalog();
    Summary summary;
    summary.quantized = sharesOf(catalog, quantizedOf(checkpoint));
    for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
        Summary::Share& share = summary.dtypes[std::string(dtypeName(catalog.dtype(t)))];
        ++share.tensors;
        if (catalog.aliasOf(t) != kNone) continue;
        share.bytes += catalog.bytes(t);
        if (catalog.role(t) == Role::optimizer) summary.optimizerBytes += catalog.bytes(t);
    }
    summary.modules = biggestModules(catalog);
    for (const FileInfo& file : catalog.files())
        summary.fileBytes += file.size;
    return summary;
}

Json infoJson(const Checkpoint& checkpoint, const std::string& path, const Summary& summary) {
    const Catalog& catalog = checkpoint.catalog();
    const std::string elsewhere = checkpoint.reader->dataElsewhere();
    Json json;
    json["schema"] = "shardscope.info/1";
    json["path"] = path;
    json["format"] = catalog.format();
    json["variant"] = catalog.variant();
    json["writer"] = catalog.writer();
    if (!elsewhere.empty()) json["data_elsewhere"] = elsewhere;
    json["totals"] = {{"tensors", catalog.tensorCount()},
                      {"parameters", catalog.elementsOf(Role::parameter)},
                      {"optimizer_elements", catalog.elementsOf(Role::optimizer)},
                      {"elements", catalog.totalElements()},
                      {"bytes", catalog.totalBytes()},
                      {"chunks", catalog.chunkCount()},
                      {"objects", catalog.objects().size()},
                      {"files", catalog.files().size()},
                      {"ranks", catalog.rankCount()}};
    json["dtypes"] = Json::object();
    for (const auto& [name, share] : summary.dtypes)
        json["dtypes"][name] = {{"tensors", share.tensors}, {"bytes", share.bytes}};
    json["quantized"] = Json::array();
    for (const QuantizedShare& share : summary.quantized)
        json["quantized"].push_back({{"scheme", share.scheme},
                                     {"title", share.title},
                                     {"weights", share.weights},
                                     {"tensors", share.tensors},
                                     {"bytes", share.bytes}});
    json["mesh"] = meshJson(meshOf(catalog));
    json["modules"] = Json::array();
    for (const Summary::Module& module : summary.modules)
        json["modules"].push_back(
            {{"name", module.name}, {"tensors", module.tensors}, {"bytes", module.bytes}});
    json["specials"] = Json::array();
    for (const SpecialTensor& special : catalog.specials()) {
        json["specials"].push_back({{"name", special.name},
                                    {"kind", special.kind},
                                    {"dtype", special.dtype},
                                    {"shape", dimsJson(special.shape)}});
    }
    json["notes"] = Json::array();
    for (const Note& note : checkpoint.allNotes()) {
        json["notes"].push_back(
            {{"rule", note.rule}, {"severity", severityName(note.severity)}, {"message", note.message}});
    }
    return json;
}

QuantizedParts::QuantizedParts(const Checkpoint& checkpoint)
    : catalog_(checkpoint.catalog()),
      weights_(quantizedOf(checkpoint)),
      of_(quantizedByTensor(catalog_, weights_)) {}

namespace {

QuantPart partOf(const QuantizedWeight& weight, TensorId id) {
    return static_cast<QuantPart>(std::ranges::find(weight.parts, id) - weight.parts.begin());
}

}  // namespace

void QuantizedParts::describe(Json& tensor, TensorId id) const {
    if (of_[id] == kNone) return;
    const QuantizedWeight& weight = weights_[of_[id]];
    Json parts = Json::object();
    for (const QuantScheme::Part& part : weight.scheme->parts)
        if (const TensorId t = weight.part(part.part); t != kNone)
            parts[std::string(partWord(*weight.scheme, part.part))] = catalog_.name(t);
    tensor["quantized"] = {{"scheme", weight.scheme->name},
                           {"title", schemeText(weight)},
                           {"weight", weight.name},
                           {"shape", weight.shape.empty() ? Json() : dimsJson(weight.shape)},
                           {"part", partWord(*weight.scheme, partOf(weight, id))},
                           {"parts", std::move(parts)}};
}

std::string QuantizedParts::text(TensorId id) const {
    if (of_[id] == kNone) return {};
    const QuantizedWeight& weight = weights_[of_[id]];
    return fmt::format("{} of the quantized weight '{}'{}, {}", partWord(*weight.scheme, partOf(weight, id)),
                       printable(weight.name, kNameInMessage),
                       weight.shape.empty() ? "" : " " + formatDims(weight.shape), schemeText(weight));
}

std::string QuantizedParts::word(TensorId id) const {
    if (of_[id] == kNone) return {};
    const QuantizedWeight& weight = weights_[of_[id]];
    return fmt::format("{} of {}", partWord(*weight.scheme, partOf(weight, id)), weight.scheme->name);
}

std::string placementCells(const Catalog& catalog, TensorId t) {
    std::vector<double> shares(catalog.rankCount());
    const auto total = static_cast<double>(std::max<int64_t>(1, catalog.elements(t)));
    for (ChunkId c = catalog.firstChunk(t); c < catalog.endChunk(t); ++c) {
        const ChunkInfo chunk = catalog.chunk(t, c);
        const uint32_t r = chunk.rank == kNone ? 0 : chunk.rank;
        if (r >= shares.size()) continue;
        shares[r] += catalog.elements(t) == 0 ? 1.0 : static_cast<double>(chunk.elements()) / total;
    }
    std::string cells;
    for (const double share : shares)
        cells += static_cast<char>('0' + cellOf(share));
    return cells;
}

Json jobDocument(const JobRecord& job) {
    Json json = jobJson(job);
    json["schema"] = "shardscope.job/1";
    return json;
}

std::string similarTensor(const Catalog& catalog, std::string_view name) {
    Similar similar(name);
    for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
        if (catalog.name(t).ends_with(name)) return std::string(catalog.name(t));
        similar.see(catalog.name(t));
    }
    return similar.best();
}

Result<TensorId> findTensor(const Catalog& catalog, const std::string& name, const std::string& path) {
    const TensorId t = catalog.find(name);
    if (t != kNone) return t;
    const std::string meant = similarTensor(catalog, name);
    const std::string hint =
        meant.empty() ? "'shardscope ls' lists the names" : fmt::format("did you mean '{}'?", meant);
    return makeError(ErrorCode::notFound, fmt::format("has no tensor '{}'", name))
        .inFile(path)
        .withHint(hint);
}

Json showJson(const Catalog& catalog, TensorId t, const ChunkRange& chunks, const TensorStatistics* values) {
    const CoverageResult coverage = checkCoverage(catalog, t);
    Json json{{"schema", "shardscope.show/1"}};
    json["tensor"] = tensorJson(catalog, t, false);
    const uint64_t all = catalog.endChunk(t) - catalog.firstChunk(t);
    const uint64_t first = std::min(chunks.first, all), end = first + std::min(chunks.count, all - first);
    json["tensor"]["chunks"] = Json::array();
    for (uint64_t i = first; i < end; ++i) {
        const ChunkId c = catalog.firstChunk(t) + static_cast<ChunkId>(i);
        json["tensor"]["chunks"].push_back(chunkJson(catalog, catalog.chunk(t, c)));
    }
    json["chunk_count"] = all;
    json["first_chunk"] = first;
    json["mesh"] = meshJson(meshOf(catalog));
    json["parts"] = dimsJson(tensorCut(catalog, t).parts);
    json["replicas"] = coverage.replicas.size();
    json["gaps"] = Json::array();
    for (const Box& gap : coverage.gaps)
        json["gaps"].push_back({{"offsets", dimsJson(gap.offsets)}, {"lengths", dimsJson(gap.lengths)}});
    if (values) json["values"] = statisticsJson(*values);
    return json;
}

std::shared_ptr<const PlacementMatrix> matrixOf(const std::shared_ptr<const Checkpoint>& checkpoint,
                                                const std::shared_ptr<const Facts>& facts,
                                                const NamePattern& pattern, const MatrixOptions& options,
                                                const StopToken& stop) {
    const Catalog& catalog = checkpoint->catalog();
    std::vector<TensorId> chosen;
    for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
        if (pattern.matches(catalog.name(t))) chosen.push_back(t);
    }
    // The facts' own tree holds all of them.
    const auto tree = chosen.size() == catalog.tensorCount()
                          ? std::shared_ptr<const ModuleTree>(facts, &facts->tree)
                          : std::make_shared<const ModuleTree>(ModuleTree::build(catalog, chosen, stop));
    if (stop.stopRequested()) return nullptr;
    return PlacementMatrix::build(checkpoint, tree, facts, options, stop);
}

// A million cells are sent: each is a list of numbers, as docs/schemas/placement.json says.
Json placementJson(const PlacementMatrix& matrix, const PlacementPart& part) {
    const Catalog& catalog = matrix.catalog();
    Json json{{"schema", "shardscope.placement/1"},
              {"row_count", matrix.rowCount()},
              {"column_count", matrix.columnCount()},
              {"gaps", matrix.hasGaps()}};
    json["axes"] = Json::array();
    for (const MeshAxis& axis : matrix.axes())
        json["axes"].push_back(
            {{"name", axis.name}, {"size", axis.size}, {"kind", axisKindName(axisKind(axis.name))}});
    if (part.columns) {
        Json columns = Json::array();
        for (uint32_t c = 0; c < matrix.columnCount(); ++c) {
            const MatrixColumn& column = matrix.column(c);
            Json one{column.rank, column.ranks.size(), column.fileMissing ? 1 : 0};
            for (const auto& [least, greatest] : column.places) {
                one.push_back(least);
                one.push_back(greatest);
            }
            columns.push_back(std::move(one));
        }
        json["columns"] = std::move(columns);
        json["column_states"] = Json::array();
        for (uint32_t c = 0; c < matrix.columnCount(); ++c)
            json["column_states"].push_back(static_cast<int>(matrix.column(c).health));
        Json experts = Json::array();
        for (const MatrixLane& lane : matrix.lanes())
            experts.push_back({lane.expert, lane.rowBegin, lane.rowEnd});
        json["experts"] = std::move(experts);
        // What a legend has to explain.
        uint32_t seen = matrix.hasGaps() ? 1U << static_cast<int>(Health::gap) : 0;
        if (matrix.facts()) {
            for (const Health health : matrix.facts()->chunkHealth)
                seen |= 1U << static_cast<int>(health);
        }
        json["states"] = Json::array();
        for (const Health health : {Health::ok, Health::unread, Health::nonFinite, Health::differs,
                                    Health::overlap, Health::missing, Health::gap}) {
            if (seen >> static_cast<int>(health) & 1) json["states"].push_back(healthName(health));
        }
    }
    const uint64_t first = std::min<uint64_t>(part.first, matrix.rowCount());
    const uint64_t end = first + std::min<uint64_t>(part.count, matrix.rowCount() - first);
    json["first"] = first;
    json["rows"] = Json::array();
    for (uint64_t r = first; r < end; ++r) {
        const auto index = static_cast<uint32_t>(r);
        const MatrixRow& row = matrix.row(index);
        Json one{{"name", matrix.rowLabel(index)},
                 {"tensor", catalog.name(row.tensor)},
                 {"tensors", row.count},
                 {"dtype", dtypeName(catalog.dtype(row.tensor))},
                 {"shape", dimsJson(catalog.shape(row.tensor))},
                 {"bytes", row.summary ? matrix.group(row.group).bytes : catalog.bytes(row.tensor)},
                 {"health", healthName(row.health)}};
        if (matrix.hasGroups()) one["text"] = matrix.rowText(index);
        if (row.group != kNone) {
            const MatrixGroup& group = matrix.group(row.group);
            one["group"] = {{"key", group.key}, {"open", group.open}, {"sum", row.summary}};
        }
        if (part.slices) {
            const RowDetail detail = matrix.detail(index);
            one["across"] = detail.across;
            one["down"] = detail.down;
            Json cells = Json::array();
            for (const MatrixCell& cell : detail.cells) {
                if (cell.column < part.columnBegin || cell.column >= part.columnEnd) continue;
                Json slices = Json::array();
                for (uint32_t i = 0; i < cell.slices; ++i) {
                    const RowDetail::Slice& s = detail.slices[cell.firstSlice + i];
                    // Four digits are a quarter of a pixel of the largest cell.
                    for (const float edge : {s.left, s.top, s.right, s.bottom})
                        slices.push_back(std::round(static_cast<double>(edge) * 1e4) / 1e4);
                }
                cells.push_back({cell.column, static_cast<int>(cell.health),
                                 cell.copyOf == kNone ? Json(-1) : Json(cell.copyOf), cell.chunks, cell.bytes,
                                 std::move(slices)});
            }
            one["cells"] = std::move(cells);
            one["ghosts"] = Json::array();
            for (const RowDetail::Ghost& ghost : detail.ghosts) {
                if (ghost.column >= part.columnBegin && ghost.column < part.columnEnd)
                    one["ghosts"].push_back({ghost.column, ghost.of});
            }
        }
        json["rows"].push_back(std::move(one));
    }
    return json;
}

Json movesJson(const PlacementChange& change) {
    const auto bytes = [](const PlacementChange::Bytes& of) {
        return Json{{"stays", of.stays}, {"arrives", of.arrives}, {"leaves", of.leaves}};
    };
    Json json = bytes(change.sum());
    json["headline"] = change.headline();
    json["modules"] = Json::array();
    for (const PlacementChange::Row& row : change.rows()) {
        Json one{{"name", row.name}, {"tensors", row.tensors}};
        one.update(bytes(row.sum));
        json["modules"].push_back(std::move(one));
    }
    return json;
}

Json meshPictureJson(const MeshPicture* picture) {
    Json json{{"schema", "shardscope.mesh/1"}, {"known", picture && picture->known()}};
    for (const char* key : {"axes", "stages", "ranks", "outliers"})
        json[key] = Json::array();
    if (!picture) return json;
    json["title"] = picture->title();
    json["source"] = picture->known() ? meshJson(picture->facts().mesh)["source"] : Json();
    json["most_bytes"] = picture->mostBytes();
    json["median_bytes"] = picture->facts().medianRankBytes;
    constexpr const char* parts[] = {"box", "down", "across"};
    for (const MeshPicture::Axis& axis : picture->axes()) {
        json["axes"].push_back({{"name", axis.name},
                                {"size", axis.size},
                                {"kind", axisKindName(axis.kind)},
                                {"part", parts[static_cast<int>(axis.part)]},
                                {"stride", axis.stride}});
    }
    for (const MeshPicture::Stage& stage : picture->stages()) {
        json["stages"].push_back({{"holds", stage.holds},
                                  {"bytes", stage.bytes},
                                  {"damaged_ranks", stage.damaged},
                                  {"health", healthName(stage.health)}});
    }
    for (uint32_t r = 0; r < picture->rankCount(); ++r) {
        const RankFacts& rank = picture->rank(r);
        Json one{{"rank", r},
                 {"bytes", rank.bytes},
                 {"tensors", rank.tensors},
                 {"chunks", rank.chunks},
                 {"files", rank.files},
                 {"state", rankStateText(rank)}};
        one["replica_of"] = rank.sameAs == kNone ? Json() : Json(rank.sameAs);
        if (!rank.experts.empty()) one["experts"] = rank.experts;
        json["ranks"].push_back(std::move(one));
    }
    json["outliers"] = picture->outliers();
    json["remarks"] = picture->remarks();
    return json;
}

Json asIfJson(const AsIf& what) {
    const auto mesh = [](const MeshPicture* picture) { return picture ? meshPictureJson(picture) : Json(); };
    return {{"schema", "shardscope.as-if/1"}, {"headline", what.headline()}, {"notes", what.notes()},
            {"before", mesh(what.before())},  {"after", mesh(what.after())}, {"flow", flowJson(what.flow())}};
}

std::vector<uint64_t> usedBytes(const Catalog& catalog) {
    std::vector<uint64_t> used(catalog.files().size(), 0);
    for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
        if (catalog.aliasOf(t) != kNone) continue;
        for (ChunkId c = catalog.firstChunk(t); c < catalog.endChunk(t); ++c) {
            const ChunkInfo chunk = catalog.chunk(t, c);
            if (chunk.file != kNone) used[chunk.file] += chunk.length;
        }
    }
    for (const ObjectInfo& object : catalog.objects()) {
        if (object.file != kNone) used[object.file] += object.length;
    }
    return used;
}

Json fileJson(const Catalog& catalog, FileId id, uint64_t used) {
    const FileInfo& file = catalog.files()[id];
    Json json{{"path", file.path},
              {"size", file.size},
              {"used", used},
              {"referenced", file.referenced},
              {"metadata", file.metadata}};
    json["state"] = file.state == FileInfo::State::present      ? "present"
                    : file.state == FileInfo::State::missing    ? "missing"
                    : file.state == FileInfo::State::unreadable ? "unreadable"
                                                                : "wrong-kind";
    json["rank"] = file.rank == kNone ? Json() : Json(file.rank);
    return json;
}

Json objectJson(const Checkpoint& checkpoint, ObjectId id) {
    const ObjectInfo& object = checkpoint.catalog().objects()[id];
    const auto value = checkpoint.reader->objectValue(id);
    Json json{{"name", object.name}, {"path", pathJson(object.path)}};
    json["kind"] = value.ok() ? Json(valueKindName(*value)) : Json();
    json["value"] = value.ok() ? valueJson(*value) : Json();
    if (!value.ok()) json["error"] = errorDocument(value.error());
    return json;
}

Json sliceJson(const Catalog& catalog, const SliceRequest& request, const SliceValues& values) {
    Json json{{"schema", "shardscope.slice/1"},
              {"tensor", catalog.name(request.tensor)},
              {"down", request.rowAxis},
              {"across", request.columnAxis},
              {"index", request.index},
              {"top", request.top},
              {"left", request.left},
              {"rows", values.rows},
              {"columns", values.columns},
              {"row_step", values.rowStep},
              {"column_step", values.columnStep}};
    json["values"] = Json::array();
    for (const double value : values.values)
        json["values"].push_back(numberJson(value));
    return json;
}

Json indexJson(const std::string& path, const std::string& file, uint64_t bytes, const Catalog& catalog) {
    return {{"schema", "shardscope.index/1"},
            {"path", path},
            {"file", file},
            {"bytes", bytes},
            {"tensors", catalog.tensorCount()},
            {"chunks", catalog.chunkCount()},
            {"objects", catalog.objects().size()}};
}

std::string indexName(const std::string& path) {
    const std::string name = std::filesystem::path(canonicalPath(path)).filename().string();
    return (name.empty() ? "checkpoint" : name) + ".ssidx";
}

Json formatsJson() {
    Json json{{"schema", "shardscope.formats/1"}, {"formats", Json::array()}};
    for (const Format* format : builtinFormats()) {
        const FormatInfo& info = format->info();
        Json options = Json::array();
        for (const FormatOption& option : format->options())
            options.push_back(option.name);
        Json models = Json::array();
        for (const FormatInfo::Model& model : info.models)
            if (!model.variant.empty()) models.push_back(model.synonym);
        json["formats"].push_back({{"name", info.name},
                                   {"title", info.title},
                                   {"reads", info.reads},
                                   {"writes", info.writes},
                                   {"generations", info.generations},
                                   {"variants", info.variants},
                                   {"models", models},
                                   {"options", options},
                                   {"holds",
                                    {{"shards", info.shards},
                                     {"objects", info.objects},
                                     {"aliases", info.aliases},
                                     {"nesting", info.nesting}}}});
    }
    return json;
}

Json recipesJson() {
    Json json{{"schema", "shardscope.recipes/1"}, {"recipes", Json::array()}};
    for (const BuiltinRecipe& recipe : builtinRecipes()) {
        json["recipes"].push_back({{"name", recipe.name},
                                   {"description", recipeDescription(recipe)},
                                   {"recipe", Json::parse(recipe.text)}});
    }
    return json;
}

Result<Json> recipesForJson(const Checkpoint& checkpoint, const std::string& model, const StopToken& stop) {
    constexpr size_t kMostNames = 20;
    SHARDSCOPE_ASSIGN(const std::vector<RecipeFit> fits, fittingRecipes(checkpoint, model, stop));
    Json json{{"schema", "shardscope.recipes/1"}, {"recipes", Json::array()}, {"choices", Json::object()}};
    std::set<std::string> targets{"hf"};
    for (const RecipeFit& fit : fits) {
        Json left(std::vector(fit.left.begin(), fit.left.begin() + static_cast<ptrdiff_t>(std::min(
                                                                       kMostNames, fit.left.size()))));
        Json values = Json::object();
        for (const auto& [name, value] : fit.values)
            values[name] = value;
        json["recipes"].push_back({{"name", fit.recipe},
                                   {"description", fit.description},
                                   {"fits", fit.fits()},
                                   {"weights", fit.weights},
                                   {"left_count", fit.left.size()},
                                   {"left", std::move(left)},
                                   {"missing", fit.missing},
                                   {"values", std::move(values)},
                                   {"same", fit.same}});
        targets.insert(fit.to);
    }
    for (const std::string& names : targets) {
        const RecipeChoice choice = chooseRecipe(fits, names, checkpoint.catalog());
        json["choices"][names] = {
            {"title", titleOfNames(names)}, {"recipe", choice.recipe.empty() ? Json() : Json(choice.recipe)},
            {"rename", choice.rename},      {"known", choice.known},
            {"missing", choice.missing},    {"why", choice.why}};
    }
    const std::string beside = modelBeside(checkpoint);
    json["model"] = beside.empty() ? Json() : Json(beside);
    json["assets"] = assetsBeside(checkpoint);
    return json;
}

Json jobsJson(const std::vector<JobRecord>& jobs) {
    Json json{{"schema", "shardscope.jobs/1"}, {"jobs", Json::array()}};
    for (const JobRecord& job : jobs)
        json["jobs"].push_back(jobJson(job));
    return json;
}

}  // namespace shardscope
