#include "engine/masters.h"

#include <algorithm>
#include <array>
#include <string>

namespace shardscope {

namespace {

constexpr std::array kWords = std::to_array<std::string_view>(
    {"fp32", "fp32_param", "param", "master_weight", "master_weights", "master_param", "master"});
// What stands before the names of parameters in the model of some checkpoints, and not in their optimizer.
constexpr std::array kPrefixes =
    std::to_array<std::string_view>({"", "model.", "module.", "model.module.", "state_dict."});

bool isMaster(const Catalog& catalog, TensorId state, TensorId parameter) {
    return parameter != kNone && parameter != state && catalog.role(parameter) == Role::parameter &&
           std::ranges::equal(catalog.shape(state), catalog.shape(parameter)) &&
           dtypePrecision(catalog.dtype(state)) > dtypePrecision(catalog.dtype(parameter));
}

// The parameter that a name, or what is left of it without its first components, means.
TensorId parameterOf(const Catalog& catalog, TensorId state, std::string_view rest, bool whole) {
    for (;;) {
        for (const std::string_view prefix : kPrefixes) {
            const TensorId found = catalog.find(std::string(prefix) + std::string(rest));
            if (isMaster(catalog, state, found)) return found;
        }
        const size_t dot = rest.find('.');
        if (whole || dot == rest.npos) return kNone;
        rest.remove_prefix(dot + 1);
    }
}

TensorId parameterOf(const Catalog& catalog, TensorId state) {
    const std::string_view name = catalog.name(state);
    for (const std::string_view word : kWords) {
        if (name.size() > word.size() + 1 && name.ends_with(word) &&
            name[name.size() - word.size() - 1] == '.')
            return parameterOf(catalog, state, name.substr(0, name.size() - word.size() - 1), false);
        for (size_t at = name.find(word); at != name.npos; at = name.find(word, at + 1)) {
            const size_t end = at + word.size();
            if ((at > 0 && name[at - 1] != '.') || end >= name.size() || name[end] != '.') continue;
            const TensorId found = parameterOf(catalog, state, name.substr(end + 1), true);
            if (found != kNone) return found;
        }
    }
    return kNone;
}

}  // namespace

TensorId bucketOfMasters(const Catalog& catalog) {
    for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
        const std::string_view name = catalog.name(t);
        if (catalog.role(t) == Role::optimizer && catalog.dtype(t) == DType::float32 &&
            name.find("bucket_idx_") != name.npos && name.ends_with(".param"))
            return t;
    }
    return kNone;
}

std::vector<TensorId> mastersOf(const Catalog& catalog) {
    std::vector<TensorId> masters;
    for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
        if (catalog.role(t) != Role::optimizer) continue;
        const TensorId parameter = parameterOf(catalog, t);
        if (parameter == kNone) continue;
        masters.resize(catalog.tensorCount(), kNone);
        masters[parameter] = t;
    }
    // Tied names are one tensor, and its master may stand under any of them.
    for (TensorId t = 0; t < masters.size(); ++t) {
        const TensorId first = catalog.aliasOf(t);
        if (first != kNone && masters[first] == kNone) masters[first] = masters[t];
    }
    for (TensorId t = 0; t < masters.size(); ++t) {
        const TensorId first = catalog.aliasOf(t);
        if (first != kNone) masters[t] = masters[first];
    }
    return masters;
}

}  // namespace shardscope
