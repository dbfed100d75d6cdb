#include "formats/paddle_nlp/paddle_nlp.h"

#include <fmt/format.h>

#include "formats/paddle_nlp/names.h"
#include "formats/paddle_nlp/readers.h"

namespace shardscope {

namespace {

using namespace paddle_nlp;

const FormatOption kMasterWeightsOption{
    .name = kMasterWeights,
    .value = "HOW",
    .help =
        "Weights of PaddleNLP sources: use (cast from their fp32 masters) or ignore (as stored or not at "
        "all); without it the masters are used where no weight is stored",
    .title = "Master weights",
    .unset = "Used where no weight is stored",
    .choices = {{"use", "Used wherever there is one, cast to the weight's dtype"},
                {"ignore", "Ignored: weights as stored, or not at all"}}};

bool hasRankFiles(const Source& source) {
    for (const DirectoryEntry& entry : source.entries) {
        if (entry.kind == DirectoryEntry::Kind::file && parseRankFileName(entry.name)) return true;
    }
    return source.hasFile("model_meta.json");
}

Probe probe(const Source& source) {
    if (!source.entry.empty()) {
        if (source.entry == "model_meta.json") return {Probe::Match::certain, "is model_meta.json"};
        return {};
    }
    bool weights = false;
    for (const DirectoryEntry& entry : source.entries) {
        if (entry.kind != DirectoryEntry::Kind::file) continue;
        if (entry.name == "model_meta.json") return {Probe::Match::certain, "has model_meta.json"};
        const auto name = parseRankFileName(entry.name);
        if (!name) continue;
        if (name->placed() || name->optimizer)
            return {Probe::Match::certain, fmt::format("has '{}'", entry.name)};
        weights = true;
    }
    if (const Probe unified = probeUnified(source); unified.match != Probe::Match::no) return unified;
    if (weights) return {Probe::Match::possible, "has model_state.pdparams"};
    return {};
}

Result<std::unique_ptr<Reader>> open(const Source& source, const OpenOptions& options) {
    if (probeUnified(source).match == Probe::Match::certain && !hasRankFiles(source))
        return openUnified(source, options);
    return openHybrid(source, options);
}

}  // namespace

namespace paddle_nlp {

Result<StatedByUser> statedByUser(const OpenOptions& options) {
    StatedByUser stated;
    for (const std::string& text : options.valuesOf(kTpDim)) {
        SHARDSCOPE_ASSIGN(TpRule rule, parseTpRule(text));
        stated.tpRules.push_back(std::move(rule));
    }
    for (const std::string& how : options.valuesOf(kMasterWeights))
        stated.masterWeights = how == "use" ? MasterWeights::use : MasterWeights::ignore;
    return stated;
}

}  // namespace paddle_nlp

const Format& paddleNlpFormat() {
    static const Format format{
        .about = {.name = "paddlenlp",
                  .title = "PaddleNLP hybrid-parallel checkpoint",
                  .synonyms = {"paddle_nlp", "paddle_hybrid"},
                  .suffixes = {"pdparams", "pdopt", "safetensors"},
                  .before = {{"colossalai",
                              "the optimizer files of a unified checkpoint have names like ColossalAI's"},
                             {"safetensors", "the files of a unified checkpoint are safetensors"}},
                  .options = {tpDimOption(), kMasterWeightsOption},
                  .reads = true,
                  .generations = {"tensor, pipeline and data parallel, sharding stages 1 (V1, V2), 2 and 3",
                                  "with model_meta.json, with shard_meta files, and without either",
                                  "unified checkpoint in safetensors"},
                  .shards = true,
                  .objects = true},
        .probe = probe,
        .open = open};
    return format;
}

}  // namespace shardscope
