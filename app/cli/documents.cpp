#include "cli/documents.h"

#include <algorithm>

namespace shardscope::cli {
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

}  // namespace

Summary summaryOf(const Catalog& catalog) {
    Summary summary;
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

}  // namespace shardscope::cli
