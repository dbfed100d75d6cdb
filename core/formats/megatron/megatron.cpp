#include "formats/megatron/megatron.h"

#include "formats/megatron/contents.h"
#include "formats/megatron/layout.h"
#include "formats/megatron/legacy.h"
#include "formats/megatron/place.h"
#include "formats/megatron/placement.h"
#include "formats/megatron/store.h"
#include "formats/megatron/target_names.h"
#include "formats/tp_rule.h"

namespace shardscope {

namespace {

class MegatronFormat final : public Format {
  public:
    MegatronFormat() {
        info_.name = "megatron";
        info_.title = "Megatron-Core checkpoint";
        info_.synonyms = {"megatron-core", "mcore", "torch_dist", "nemo"};
        info_.reads = true;
        info_.writes = true;
        info_.variants = {megatron::kRunVariant};
        info_.generations = {"torch_dist of megatron-core 0.6 to 0.19", "zarr of megatron-core 0.5 to 0.15",
                             "legacy mp_rank_* directories (--ckpt-format torch)"};
        FormatOption buckets;
        buckets.name = megatron::kBuckets;
        buckets.value = "HOW";
        buckets.help =
            "Optimizer state that Megatron-Core stored in buckets (dp_reshardable): keep them as they are, "
            "or "
            "find the parameters in them";
        buckets.title = "Optimizer buckets";
        buckets.example = megatron::kNamedBuckets;
        buckets.unset = "as they are stored";
        buckets.choices = {{megatron::kKeepBuckets, "as they are stored"},
                           {megatron::kNamedBuckets, "states of named parameters"}};
        info_.options = {tpDimOption(), buckets};
        info_.shards = true;
        info_.objects = true;
    }

    Probe probe(const Source& source) const override {
        const megatron::Place place = megatron::findPlace(source);
        if (place.kind == megatron::Place::Kind::none) return {};
        return {Probe::Match::certain, place.why};
    }

    Result<std::unique_ptr<Reader>> open(const Source& source, const OpenOptions& options) const override {
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
                break;
        }
        return unsupported(
                   "holds neither metadata.json and .metadata of Megatron-Core nor directories of ranks, "
                   "such "
                   "as mp_rank_00")
            .inFile(source.display)
            .withHint("name the directory of an iteration, such as iter_0000010");
    }

    NewPath pathsFor(const Catalog& source, const std::function<Result<Value>(ObjectId)>& read,
                     const WriteOptions&) const override {
        return megatron::pathsFor(source, read);
    }
    Placing placing() const override { return megatron::place; }
    std::vector<LeftOut> cannotHold(const Catalog& target, const WriteOptions&) const override {
        return megatron::cannotHold(target);
    }
    Result<std::unique_ptr<TargetLayout>> layout(const Catalog& target,
                                                 const WriteOptions& options) const override {
        return megatron::layOut(target, options);
    }
};

}  // namespace

const Format& megatronFormat() {
    static const MegatronFormat format;
    return format;
}

}  // namespace shardscope
