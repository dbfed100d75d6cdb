#include "formats/deepspeed/deepspeed.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/text.h"
#include "formats/deepspeed/layout.h"
#include "formats/deepspeed/parameters.h"
#include "formats/tp_rule.h"
#include "model/companions.h"
#include "model/paths.h"

namespace shardscope::deepspeed {

namespace {

// What the engine itself writes besides the weights (runtime/engine.py _common_checkpoint_state); everything
// else is the client's state.
bool isEngineKey(std::string_view key) {
    return isAmong(key, {"lr_scheduler", "data_sampler", "random_ltd", "sparse_tensor_module_names",
                         "skipped_steps", "global_steps", "global_samples", "dp_world_size", "mp_world_size",
                         "ds_config", "ds_version", "checkpoint_parallel_dimensions", "num_experts",
                         "ds_autoep_layers", "universal_checkpoint_info"});
}
// How the elements are laid out: what the catalog says in its own words.
bool isLayoutKey(std::string_view key) {
    return isAmong(
        key, {"module", "buffer_names", "param_shapes", "frozen_param_shapes", "shared_params",
              "optimizer_state_dict", "frozen_param_fragments", "base_optimizer_state", "group_paddings",
              "partition_count", "param_alignment_paddings", "param_slice_mappings", "fp32_flat_groups",
              "single_partition_of_fp32_groups", "fp32_groups"});
}

// The name of an entry of a model file in the catalog; empty for what is shown in another way.
Path modelPath(const Path& path) {
    if (path.empty() || path[0].kind != PathPart::Kind::key) return {};
    if (isEngineKey(path[0].text)) return path;
    if (path[0].text == "optimizer") {
        // Without ZeRO the optimizer's states are here; they are shown by parameter.
        for (const PathPart& part : path) {
            if (part.text == "state" || part.text == "fp32_groups" || part.text == "fp32_groups_flat")
                return {};
        }
        Path out = path;
        std::erase_if(out, [](const PathPart& part) { return part.text == "optimizer_state_dict"; });
        return out.size() > 1 ? out : Path();
    }
    // Such as the extra state of a layer.
    if (path[0].text == "module") return below(path);
    return isLayoutKey(path[0].text) ? Path() : joined({"client_state"}, path);
}

// The same of an optimizer's file.
Path optimizerPath(const Path& path) {
    size_t at = 1;
    if (path.size() <= at || path[0].text != "optimizer_state_dict") return {};
    if (path[at].text == "base_optimizer_state" || path[at].text == "optimizer_state_dict") {
        if (path.size() <= at + 1 || path[at + 1].text != "param_groups") return {};
        ++at;
    } else if (isLayoutKey(path[at].text)) {
        return {};
    }
    return joined({"optimizer"}, path, at);
}

// Where the tag's own directory was named: whether a resume from the one above it would find a tag.
void noteTracker(Save& save) {
    if (save.tag.untracked)
        save.assembly.note(
            rule::fileMissing, Severity::error,
            fmt::format("no 'latest' names the directory '{}': a resumed run does not find it; write that "
                        "name into a file 'latest'",
                        save.tag.prefix.substr(0, save.tag.prefix.size() - 1)));
    if (!save.tag.prefix.empty() || !save.source.fileSystem) return;
    const auto above = save.source.fileSystem->openDirectory(joinPath(save.source.directory->path(), ".."));
    if (!above.ok()) return;
    const std::string name = trackedTag(**above, "latest");
    if (name.empty() || (*above)->stat(name).ok()) return;
    save.assembly.note(
        rule::fileMissing, Severity::warning,
        fmt::format("'latest' in the directory above names the tag '{}', which is not there: DeepSpeed would "
                    "not find a checkpoint; name this tag when you load it",
                    printable(name, kNameInMessage)));
}

// What a file says besides the parameters and their states.
void addObjectsOf(Save& save, uint32_t index, uint32_t rank, Path (*pathOf)(const Path&)) {
    const TensorFile& file = save.contents(index);
    for (const StoredObject& object : file.objects) {
        Path path = pathOf(object.path);
        if (path.empty()) continue;
        // ZeroStageEnum(2) is a number.
        const bool stage = path.back().text == "zero_stage";
        save.assembly.addObject(index, std::move(path), stage ? makeIntegerValue(save.stage) : object.value,
                                rank);
    }
    for (uint32_t t = 0; t < file.tensors.size(); ++t) {
        const Path& stored = file.tensors[t].path;
        if (stored.empty() || stored[0].text == "module") continue;
        if (Path path = pathOf(stored); !path.empty())
            save.assembly.addWhole(index, t, std::move(path), Role::other, rank);
    }
}

// The first file of each kind speaks for all.
void addObjects(Save& save) {
    const auto add = [&](const auto& files, Path (*pathOf)(const Path&)) {
        const auto first = std::ranges::find_if(files, [](const auto& file) { return file.index != kNone; });
        if (first != files.end()) addObjectsOf(save, first->index, save.rankOf(first->dp, first->mp), pathOf);
    };
    add(save.models, modelPath);
    add(save.optimizers, optimizerPath);
}

// What else is in the tag's directory.
void addOthers(Save& save) {
    for (const DirectoryEntry& entry : save.tag.others) {
        if (save.tag.prefix.empty() || entry.kind != DirectoryEntry::Kind::file) continue;
        save.assembly.addUnused(entry, kNone);
        if (mayHoldTensors(entry.name.substr(save.tag.prefix.size()), entry.size))
            save.assembly.note(rule::fileUnreferenced, Severity::info,
                               "nothing of the checkpoint refers to it", entry.name);
    }
}

Mesh meshOf(const Save& save) {
    Mesh mesh;
    if (save.mpWorld / save.tpDegree > 1) mesh.axes.push_back({"pp", save.mpWorld / save.tpDegree});
    mesh.axes.push_back({"dp", save.dpWorld});
    if (save.tpDegree > 1) mesh.axes.push_back({"tp", save.tpDegree});
    mesh.evidence = {fmt::format("{}: as the model states say", formatMesh(mesh))};
    return mesh;
}

Result<std::unique_ptr<Reader>> openTag(const Source& source, const OpenOptions& options, Tag tag) {
    Save save(source, options, std::move(tag));
    TensorAssembly& assembly = save.assembly;
    for (const char* name : {"latest", "latest_universal"}) {
        if (source.hasFile(name)) (void)assembly.addText(name);
    }
    noteTracker(save);
    SHARDSCOPE_TRY(save.read());
    noteMixedSteps(save);
    Parameters parameters(save);
    parameters.gather();
    SHARDSCOPE_TRY(parameters.place());
    parameters.addWeights();
    FindNotes notes;
    if (save.tag.universal) {
        SHARDSCOPE_TRY(addUniversal(save, parameters));
    } else if (save.stage == 0 && save.optimizers.empty()) {
        addPlainStates(save, parameters);
    } else {
        notes = addPartitions(save, parameters);
    }
    parameters.addAliases();
    addObjects(save);
    addMissingFiles(save, parameters);
    addOthers(save);
    assembly.builder().setVariant(save.tag.universal   ? "universal"
                                  : save.bf16Optimizer ? "bf16-optimizer"
                                                       : fmt::format("zero-{}", save.stage));
    const auto version =
        std::ranges::find_if(save.models, [](const ModelFile& m) { return !m.states.version.empty(); });
    if (version != save.models.end())
        assembly.builder().setWriter(fmt::format("DeepSpeed {}", version->states.version));
    return assembly.finish(save.dpWorld * save.mpWorld, meshOf(save), std::move(notes));
}

Probe probe(const Source& source) {
    const auto tag = findTag(source);
    if (!tag) return {};
    const std::string where = tag->prefix.empty() ? "" : " in '" + tag->prefix + "'";
    return {Probe::Match::certain, tag->universal ? "has zero/optimizer_state.pt" + where
                                                  : "has " + tag->files[0].name + ", states of DeepSpeed"};
}

Result<std::unique_ptr<Reader>> open(const Source& source, const OpenOptions& options) {
    SHARDSCOPE_TRY(requireDirectory(source));
    auto tag = findTag(source);
    if (!tag)
        return unsupported(
                   "holds no states of DeepSpeed, such as mp_rank_00_model_states.pt, and no `latest` that "
                   "names a directory with them")
            .inFile(source.display);
    return openTag(source, options, std::move(*tag));
}
}  // namespace

}  // namespace shardscope::deepspeed

namespace shardscope {

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
        .probe = deepspeed::probe,
        .open = deepspeed::open,
        .pathFor = deepspeed::targetPath,
        .copies = deepspeed::targetCopies,
        .cannotHold = deepspeed::cannotHold,
        .layout = deepspeed::layOut};
    return format;
}

}  // namespace shardscope
