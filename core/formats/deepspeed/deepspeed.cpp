#include "formats/deepspeed/deepspeed.h"

#include "formats/deepspeed/contents.h"
#include "formats/deepspeed/layout.h"
#include "formats/deepspeed/opener.h"
#include "formats/tp_rule.h"

namespace shardscope {

namespace {

Probe probe(const Source& source) {
    const auto tag = deepspeed::findTag(source);
    if (!tag) return {};
    const std::string where = tag->prefix.empty() ? "" : " in '" + tag->prefix + "'";
    return {Probe::Match::certain, tag->universal ? "has zero/optimizer_state.pt" + where
                                                  : "has " + tag->files[0].name + ", states of DeepSpeed"};
}

Result<std::unique_ptr<Reader>> open(const Source& source, const OpenOptions& options) {
    if (!source.entry.empty())
        return unsupported("the files of all ranks are one checkpoint, this is one of them")
            .inFile(source.display)
            .withHint("name the directory that holds them");
    auto tag = deepspeed::findTag(source);
    if (!tag)
        return unsupported(
                   "holds no states of DeepSpeed, such as mp_rank_00_model_states.pt, and no `latest` "
                   "that "
                   "names a directory with them")
            .inFile(source.display);
    return deepspeed::openTag(source, options, std::move(*tag));
}

}  // namespace

const Format& deepspeedFormat() {
    static const Format format{
        .about = {.name = "deepspeed",
                  .title = "DeepSpeed checkpoint",
                  .synonyms = {"zero", "deepspeed-universal"},
                  .before = {{"torch-ranks", "trainers write files of ranks next to `latest`"},
                             {"safetensors", "trainers write the model's weights next to `latest`"},
                             {"torch", "trainers write the model's weights next to `latest`"}},
                  .options = {tpDimOption()},
                  .reads = true,
                  .writes = true,
                  .generations = {"0.10 to 0.19: ZeRO 0 to 3, BF16_Optimizer, pipelines, experts",
                                  "universal checkpoints of ds_to_universal"},
                  .variants = {"universal"},
                  .objects = true,
                  .aliases = true,
                  .nesting = true},
        .probe = probe,
        .open = open,
        .pathFor = deepspeed::targetPath,
        .copies = deepspeed::targetCopies,
        .cannotHold = deepspeed::cannotHold,
        .layout = deepspeed::layOut};
    return format;
}

}  // namespace shardscope
