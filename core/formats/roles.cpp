#include "formats/roles.h"

namespace shardscope {

namespace {

// Calls visit(prefix) with what stands before each component `word` of a dotted name; stops when visit
// returns true.
template <class Visit>
bool anyComponent(std::string_view name, std::string_view word, Visit&& visit) {
    for (size_t at = name.find(word); at != name.npos; at = name.find(word, at + 1)) {
        const size_t end = at + word.size();
        const bool whole = (at == 0 || name[at - 1] == '.') && (end == name.size() || name[end] == '.');
        if (whole && visit(name.substr(0, at))) return true;
    }
    return false;
}

}  // namespace

void RoleFinder::add(std::string_view name) {
    anyComponent(name, "param_groups", [&](std::string_view prefix) {
        if (!withGroups_.contains(prefix)) withGroups_.emplace(prefix);
        return false;
    });
}

Role RoleFinder::role(std::string_view name) const {
    if (anyComponent(name, "state", [&](std::string_view prefix) { return withGroups_.contains(prefix); })) {
        return Role::optimizer;
    }
    const size_t dot = name.rfind('.');
    const std::string_view last = dot == name.npos ? name : name.substr(dot + 1);
    if (last == "running_mean" || last == "running_var" || last == "num_batches_tracked") return Role::buffer;
    return Role::parameter;
}

}  // namespace shardscope
