// Sorts the tensors and objects of a target into the files of a universal checkpoint, and lays them out.
// Private to this format.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "formats/format.h"

namespace shardscope::deepspeed {

// A parameter with a directory of its own below `zero/`.
struct TrainedParameter {
    std::string name;
    TensorId weight = kNone;
    // The fp32 master weight: a state, or, without one, the float32 weight itself. kNone = the writer makes
    // one as a copy of the weight.
    TensorId master = kNone;
    bool isMoved = false;                                                 // the master is the weight itself
    std::vector<std::pair<std::string, TensorId>> files;                  // "fp32", "exp_avg", ..., "step"
    ObjectId step = kNone;                                                // the step, if it is an object
    TensorId shown() const { return weight != kNone ? weight : master; }  // a tensor of the parameter's shape
};

struct Contents {
    enum class Place : uint8_t { module, model, optimizer, state, none };
    struct Entry {
        Place place = Place::none;
        Path path;            // in the file of `place`
        uint32_t of = kNone;  // Place::state only: index into `trained`
    };
    std::vector<Entry> tensors, objects;  // in the order of the catalog
    std::vector<TrainedParameter> trained;
    std::unordered_map<std::string, uint32_t> byName;  // index into `trained`
    std::vector<LeftOut> cannot;
    bool hasGroups = false;  // the target has DeepSpeed's param_groups
};
Contents sortContents(const Catalog& target);

// Whether the name is safe as a directory name: it cannot lead outside of the destination.
bool isDirectoryName(std::string_view name);

// Implement Format::pathFor and Format::copies.
std::optional<Path> targetPath(const Path& path, bool optimizer);
std::vector<TargetCopy> targetCopies(const Catalog& target, const WriteOptions& options);

std::vector<LeftOut> cannotHold(const Catalog& target, const WriteOptions& options);
// Errors: impossible for a parameter whose name is not a valid
// directory name.
Result<std::unique_ptr<TargetLayout>> layOut(const Catalog& target, const WriteOptions& options);

}  // namespace shardscope::deepspeed
