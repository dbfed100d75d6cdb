// What the tensors and objects of a wanted catalog are in a universal checkpoint. Private to this format.
#pragma once

#include <cstdint>
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
    // The fp32 master: a state, or the float32 weight itself where there is no such state. kNone = a copy of
    // the weight becomes the master.
    TensorId master = kNone;
    bool isMoved = false;                                                 // the master is the weight itself
    std::vector<std::pair<std::string, TensorId>> files;                  // "fp32", "exp_avg", ..., "step"
    ObjectId step = kNone;                                                // where it is not a tensor
    TensorId shown() const { return weight != kNone ? weight : master; }  // that has its shape
};

struct Contents {
    enum class Place : uint8_t { module, model, optimizer, state, none };
    struct Entry {
        Place place = Place::none;
        Path path;            // inside the file of its place
        uint32_t of = kNone;  // a state: index into `trained`
    };
    std::vector<Entry> tensors, objects;  // in the order of the catalog
    std::vector<TrainedParameter> trained;
    std::unordered_map<std::string, uint32_t> byName;  // of `trained`
    std::vector<LeftOut> cannot;
    bool hasGroups = false;  // param_groups, as DeepSpeed has them
};
Contents sortContents(const Catalog& target);

// Whether the name can be a directory's, so that nothing is ever written elsewhere.
bool isDirectoryName(std::string_view name);

// As Format's functions of these names.
std::optional<Path> targetPath(const Path& path, bool optimizer);
std::vector<TargetCopy> targetCopies(const Catalog& target, const WriteOptions& options);

}  // namespace shardscope::deepspeed
