// Finds the tag of a directory, by the names of its files. Reads these: their metadata, the parallel sizes,
// and the ranks that wrote them. Private to this format.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/rule.h"
#include "formats/deepspeed/states.h"
#include "formats/tensor_assembly.h"

namespace shardscope::deepspeed {

// "pp_rank" in a name is the index of the ZeRO partition: a data-parallel rank. `mp` is the model-parallel
// rank: pp * tp degree + tp.
struct FileName {
    enum class Kind : uint8_t { model, zeroModel, zeroOptimizer, expertOptimizer, layer, expert };
    Kind kind = Kind::model;
    uint32_t dp = 0;     // for zeroModel and zeroOptimizer; expertOptimizer: the expert-parallel rank
    uint32_t mp = 0;     // for layer: the tensor-parallel rank
    uint32_t layer = 0;  // for layer and expert
    uint32_t expert = 0;
    bool bf16 = false;
};

struct TagFile {
    FileName about;
    std::string name;  // with Tag::prefix
    uint64_t size = 0;
};

// Where the files of a checkpoint are below the source.
struct Tag {
    std::string prefix;  // "global_step3/", empty when the source is the tag's directory
    bool universal = false;
    bool untracked = false;  // no tracker names it: DeepSpeed would not find it
    std::vector<TagFile> files;
    std::vector<DirectoryEntry> others;  // with Tag::prefix
};
// The tag that the tracker file (`latest` or `latest_universal`) names; empty if there is none or the name is
// unsafe.
std::string trackedTag(const Directory& directory, const std::string& tracker);

// The tag of a directory: the directory itself, the tag that its tracker names, or the only
// one in a step of transformers' Trainer. nullopt if there is none.
std::optional<Tag> findTag(const Source& source);

template <class States>
struct StatesFile {
    const TagFile* file = nullptr;
    uint32_t dp = 0, mp = 0;
    uint32_t index = kNone;  // in the assembly; kNone = missing or unreadable
    States states;
};
using ModelFile = StatesFile<ModelStates>;
using OptimizerFile = StatesFile<OptimizerStates>;
// A file of a layer, of an expert, or of an expert-parallel rank's optimizer.
struct OtherFile {
    const TagFile* file = nullptr;
    uint32_t index = kNone;
};

struct Save {
    static constexpr uint32_t kMostWorld = 1'000'000;

    Save(const Source& source, const OpenOptions& options, Tag tag);
    // Reads the model and optimizer files of all ranks. Does not read the files of layers, experts and a
    // universal checkpoint's parameters.
    Status read();

    const TensorFile& contents(uint32_t index) { return assembly.files()[index]; }
    const ModelFile* modelOf(uint32_t mp) const;  // the first readable one
    bool isFirst(const ModelFile& model) const { return modelOf(model.mp) == &model; }
    uint32_t rankOf(uint32_t dp, uint32_t mp) const {
        return (mp / tpDegree * dpWorld + dp) * tpDegree + mp % tpDegree;
    }
    uint32_t tpOf(uint32_t mp) const { return mp % tpDegree; }
    // What a conversion lacks without an optimizer file. In stage 3 these files hold the weights, too.
    Note::Lacks lacksOfOptimizer() const {
        return stage == 3 ? Note::Lacks::anything : Note::Lacks::optimizerState;
    }
    // The name of a pipeline layer's file of the first tensor-parallel rank.
    std::string layerFile(std::string_view number) const {
        return fmt::format("layer_{:0>2}-{}model_states.pt", number, tpDegree > 1 ? "model_00-" : "");
    }
    // Reads files as those of the ranks that `rankOf` gives. Errors: as TensorAssembly::addFiles().
    template <class RankOf>
    Status readOthers(std::vector<OtherFile>& files, RankOf&& rankOf, Note::Lacks lacks) {
        return assembly.addEach(
            files,
            [&](const OtherFile& file) { return std::pair(file.file->name, rankOf(file.file->about)); },
            lacks);
    }
    // Adds a stale file, from an earlier save into the same directory.
    void addStale(const TagFile& file, uint32_t rank, std::string message);
    void inconsistent(Severity severity, std::string message, std::string_view file = {},
                      std::string_view tensor = {}, Note::Lacks lacks = Note::Lacks::nothing) {
        assembly.note(rule::metaInconsistent, severity, std::move(message), file, tensor, lacks);
    }

    const Source& source;
    const OpenOptions& options;
    const Tag tag;
    TensorAssembly assembly;
    std::vector<ModelFile> models;  // by model-parallel rank, then data-parallel rank
    std::vector<OptimizerFile> optimizers;
    uint32_t dpWorld = 1, mpWorld = 1, tpDegree = 1;
    int stage = 0;
    bool bf16Optimizer = false, expertsAfterData = false;

  private:
    std::string ofEarlierRanks() const;
    Result<uint32_t> look(const TagFile& file);
    Status readModelFiles();
    Status chooseDegrees();
    Status readOptimizerFiles();
    Status groupsFromSlices();
};

}  // namespace shardscope::deepspeed
