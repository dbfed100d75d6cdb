#include "formats/deepspeed/deepspeed.h"

#include "formats/deepspeed/contents.h"
#include "formats/deepspeed/layout.h"
#include "formats/deepspeed/opener.h"

namespace shardscope {

namespace {

class DeepspeedFormat final : public Format {
  public:
    DeepspeedFormat() {
        info_.name = "deepspeed";
        info_.title = "DeepSpeed checkpoint";
        info_.synonyms = {"zero", "deepspeed-universal"};
        info_.reads = true;
        info_.writes = true;
        info_.variants = {"universal"};
        info_.generations = {"0.10 to 0.19: ZeRO 0 to 3, BF16_Optimizer, pipelines, experts",
                             "universal checkpoints of ds_to_universal"};
        info_.options = {tpDimOption()};
        info_.objects = true;
        info_.aliases = true;
        info_.nesting = true;
    }

    Probe probe(const Source& source) const override {
        const auto tag = deepspeed::findTag(source);
        if (!tag) return {};
        const std::string where = tag->prefix.empty() ? "" : " in '" + tag->prefix + "'";
        return {Probe::Match::certain, tag->universal
                                           ? "has zero/optimizer_state.pt" + where
                                           : "has " + tag->files[0].name + ", states of DeepSpeed"};
    }

    Result<std::unique_ptr<Reader>> open(const Source& source, const OpenOptions& options) const override {
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
        return deepspeed::Opener(source, options, std::move(*tag)).open();
    }

    std::optional<Path> pathFor(const Path& path, bool optimizer) const override {
        return deepspeed::targetPath(path, optimizer);
    }
    std::vector<TargetCopy> copies(const Catalog& wanted, const WriteOptions&) const override {
        return deepspeed::targetCopies(wanted);
    }
    std::vector<LeftOut> cannotHold(const Catalog& wanted, const WriteOptions&) const override {
        return deepspeed::cannotHold(wanted);
    }
    Result<std::unique_ptr<TargetLayout>> layout(const Catalog& wanted,
                                                 const WriteOptions& options) const override {
        if (!options.variant.empty() && options.variant != "universal")
            return makeError(
                ErrorCode::usage,
                "DeepSpeed checkpoints are written as universal ones; the files of ZeRO are read only");
        return deepspeed::layOut(wanted);
    }
};

}  // namespace

const Format& deepspeedFormat() {
    static const DeepspeedFormat format;
    return format;
}

}  // namespace shardscope
