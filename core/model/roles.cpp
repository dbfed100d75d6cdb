#include "model/roles.h"

#include <algorithm>
#include <array>

#include "base/names.h"

namespace shardscope {

namespace {

constexpr size_t kMostEnds = 12;  // components of a name that another one may end with

// States that optimizers keep for a parameter, under the names that torch, its contributors, Apex, DeepSpeed,
// Megatron, Adafactor and torchao give them.
bool isSlot(std::string_view part) {
    return isAmong(part, {"exp_avg",        "exp_avg_sq",     "max_exp_avg_sq",
                          "exp_avg_sq_row", "exp_avg_sq_col", "exp_avg_diff",
                          "exp_avg_slow",   "exp_inf",        "momentum_buffer",
                          "square_avg",     "grad_avg",       "acc_delta",
                          "master_param",   "master_weight",  "fp32_param",
                          "fp32",           "prev_grad",      "step_size",
                          "neg_pre_grad",   "previous_grad",  "second_momentum_buffer"});
}

// As isSlot(), where a parameter of that name is beside it.
constexpr std::array kPlainSlots = std::to_array<std::string_view>({"step", "RMS", "sum", "exp"});

// Entries of the state dicts of torch's schedulers and of GradScaler. They count below a key that says so.
constexpr std::array kTrainerEntries = std::to_array<std::string_view>(
    {"last_epoch", "_step_count", "_last_lr", "base_lrs", "lr_lambdas", "_growth_tracker", "growth_factor",
     "backoff_factor", "growth_interval"});
constexpr std::array kTrainerWords = std::to_array<std::string_view>({"sched", "scaler", "amp"});

// Keys at the root of checkpoints, or one below the root, below which no tensor of a model is.
bool isTrainerKey(std::string_view part) {
    return isAmong(part, {"rng",
                          "rngs",
                          "rng_state",
                          "rng_states",
                          "random_state",
                          "random_states",
                          "torch_rng_state",
                          "cuda_rng_state",
                          "numpy_rng_state",
                          "np_rng_state",
                          "random_rng_state",
                          "rng_tracker_states",
                          "cuda_rng_states",
                          "lr_scheduler",
                          "lr_schedulers",
                          "opt_param_scheduler",
                          "grad_scaler",
                          "loss_scaler",
                          "extra_state",
                          "dataloader",
                          "dataloaders",
                          "dataloader_state",
                          "data_sampler",
                          "dataloader_state_dict"});
}
// Keys at the root that hold the others in some checkpoints.
constexpr std::array kWrappers = std::to_array<std::string_view>(
    {"app", "state", "checkpoint", "train_state", "trainer", "trainer_state"});
// Of Lightning, beside `state_dict`.
constexpr std::array kLightningKeys = std::to_array<std::string_view>({"loops", "callbacks"});

template <class List>
bool isOneOf(std::string_view text, const List& list) {
    return std::ranges::find(list, text) != std::end(list);
}

std::vector<std::string_view> componentsOf(std::string_view name) {
    std::vector<std::string_view> parts;
    for (size_t at = 0;; ++at) {
        const size_t end = std::min(name.find('.', at), name.size());
        parts.push_back(name.substr(at, end - at));
        if (end == name.size()) return parts;
        at = end;
    }
}

// The part of a name that two of its components and all between them take up.
std::string_view between(std::string_view first, std::string_view last) {
    return {first.data(), static_cast<size_t>(last.data() + last.size() - first.data())};
}

// "optimizer", "optimizers", "optimizer_states", "optimizer0", "optim", "optim_state_dict", "opt_state".
bool isOptimizerKey(std::string_view part) {
    if (part == "opt_state" || part == "opt_states") return true;
    if (!part.starts_with("optim")) return false;
    part.remove_prefix(part.starts_with("optimizer") ? 9 : 5);
    if (part.starts_with('s')) part.remove_prefix(1);
    if (part.empty() || part.starts_with("_state") || part.starts_with("_dict")) return true;
    return part.find_first_not_of("_-0123456789") == part.npos;
}

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
    const Components parts = componentsOf(name);
    lightning_ = lightning_ || (parts[0] == "state_dict" && parts.size() > 1);
    for (size_t i = 1; i < parts.size(); ++i) {
        const std::string_view before = between(parts[0], parts[i - 1]);
        if (isOneOf(parts[i], kTrainerEntries) && !trainers_.contains(before) &&
            std::ranges::any_of(kTrainerWords, [&](auto word) { return before.find(word) != before.npos; }))
            trainers_.emplace(before);
    }
    if (std::ranges::any_of(parts, isOptimizerKey)) return;
    for (size_t i = parts.size() - std::min(parts.size(), kMostEnds); i < parts.size(); ++i)
        ends_.insert(Hash()(between(parts[i], parts.back())));
}

bool RoleFinder::namesTensor(std::string_view text) const {
    return ends_.contains(Hash()(text));
}

// Whether one component is a state, and those before or behind it are the name of another entry.
bool RoleFinder::isStateBeside(const Components& parts) const {
    const size_t last = parts.size() - 1;
    if (last == 0) return false;
    if (isSlot(parts[last]) || isOneOf(parts[last], kPlainSlots)) {
        const bool numbered = last >= 2 && isDigits(parts[last - 1]) && parts[last - 2] == "state";
        if (numbered || (parts[0] == "state" && isSlot(parts[last]))) return true;
        if (namesTensor(between(parts[0], parts[last - 1]))) return true;
        if (parts[0] == "state" && last >= 2 && namesTensor(between(parts[1], parts[last - 1]))) return true;
    }
    for (size_t i = 0; i < last; ++i)
        if (isSlot(parts[i]) && namesTensor(between(parts[i + 1], parts[last]))) return true;
    return false;
}

bool RoleFinder::isOptimizer(std::string_view name, const Components& parts) const {
    if (anyComponent(name, "state", [&](std::string_view prefix) { return withGroups_.contains(prefix); }))
        return true;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
        if (!isOptimizerKey(parts[i])) continue;
        if (i == 0 || parts[i + 1] == "state" ||
            std::any_of(parts.begin() + static_cast<std::ptrdiff_t>(i) + 1, parts.end(), isSlot))
            return true;
    }
    return isStateBeside(parts);
}

bool RoleFinder::isTrainer(const Components& parts) const {
    if (parts.back() == "_extra_state" || isTrainerKey(parts[0])) return true;
    if (parts.size() > 1 && isOneOf(parts[0], kWrappers) && isTrainerKey(parts[1])) return true;
    if (lightning_ && isOneOf(parts[0], kLightningKeys)) return true;
    for (size_t i = 1; i < parts.size(); ++i)
        if (trainers_.contains(between(parts[0], parts[i - 1]))) return true;
    return false;
}

Role RoleFinder::role(std::string_view name) const {
    const Components parts = componentsOf(name);
    if (isOptimizer(name, parts)) return Role::optimizer;
    if (isTrainer(parts)) return Role::other;
    const std::string_view last = parts.back();
    if (last == "running_mean" || last == "running_var" || last == "num_batches_tracked") return Role::buffer;
    return Role::parameter;
}

}  // namespace shardscope
