#include "formats/megatron/megatron.h"

#include "formats/dcp/dcp.h"
#include "formats/megatron/contents.h"
#include "formats/megatron/fsdp_dtensor.h"
#include "formats/megatron/legacy.h"
#include "formats/megatron/place.h"
#include "formats/megatron/placement.h"
#include "formats/megatron/store.h"
#include "formats/megatron/target_names.h"
#include "formats/tp_rule.h"

namespace shardscope {

namespace {

const FormatOption kBucketsOption{
    .name = megatron::kBuckets,
    .value = "HOW",
    .help =
        "Optimizer state that Megatron-Core stored in buckets (dp_reshardable): keep them as they are, or "
        "find the parameters in them",
    .title = "Optimizer buckets",
    .example = megatron::kNamedBuckets,
    .unset = "as they are stored",
    .choices = {{megatron::kKeepBuckets, "as they are stored"},
                {megatron::kNamedBuckets, "states of named parameters"}}};

Probe probe(const Source& source) {
    const megatron::Place place = megatron::findPlace(source);
    if (place.kind == megatron::Place::Kind::none) return {};
    return {Probe::Match::certain, place.why};
}

Result<std::unique_ptr<Reader>> open(const Source& source, const OpenOptions& options) {
    const megatron::Place place = megatron::findPlace(source);
    // What stands for its directory was named.
    Source directory = source;
    directory.entry.clear();
    switch (place.kind) {
        case megatron::Place::Kind::torchDist:
            return megatron::openTorchDist(directory, options, place);
        case megatron::Place::Kind::zarr:
            return megatron::openZarrStore(directory, options, place);
        case megatron::Place::Kind::legacy:
            return megatron::openLegacy(directory, options, place);
        case megatron::Place::Kind::none:
            // That of Megatron-FSDP is a plain DCP, which nothing else in it tells from others.
            if (dcpFormat().probe(source).match == Probe::Match::certain)
                return dcpFormat().open(source, options);
            break;
    }
    return unsupported(
               "holds neither metadata.json and .metadata of Megatron-Core nor directories of ranks, such as "
               "mp_rank_00")
        .inFile(source.display)
        .withHint("name the directory of an iteration, such as iter_0000010");
}

}  // namespace

const Format& megatronFormat() {
    static const Format format{
        .about = {.name = "megatron",
                  .title = "Megatron-Core checkpoint",
                  .synonyms = {"megatron-core", "mcore", "torch_dist", "nemo"},
                  .before = {{"dcp", "its torch_dist is a DCP checkpoint of keys and boxes of its own"}},
                  .options = {tpDimOption(), kBucketsOption, furtherDirectoriesOption()},
                  .reads = true,
                  .writes = true,
                  .generations = {"torch_dist of megatron-core 0.6 to 0.19",
                                  "zarr of megatron-core 0.5 to 0.15",
                                  "legacy mp_rank_* directories (--ckpt-format torch)",
                                  "NeMo 1: model_weights.ckpt in mp_rank_* and tp_rank_*_pp_rank_* "
                                  "directories, also in a .nemo archive"},
                  .variants = {megatron::kRunVariant, megatron::kFsdpVariant},
                  .shards = true,
                  .objects = true},
        .probe = probe,
        .open = open,
        .pathsFor = megatron::pathsFor,
        .placing = megatron::place,
        .cannotHold = megatron::cannotHold,
        .layout = megatron::layOut};
    return format;
}

}  // namespace shardscope
