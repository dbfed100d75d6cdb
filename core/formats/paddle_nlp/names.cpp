#include "formats/paddle_nlp/names.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/numbers.h"

namespace shardscope::paddle_nlp {

namespace {

constexpr uint32_t kMaxCoordinate = 1 << 20;  // numbers above this are taken for something else

bool isDigit(char c) {
    return c >= '0' && c <= '9';
}

std::optional<uint32_t> number(std::string_view text) {
    return parseNumber<uint32_t>(text, 0, kMaxCoordinate - 1);
}

// Takes "tp01", "pp00", ... apart, whatever joins them.
bool takeCoordinates(std::string_view text, RankFileName& name) {
    struct Axis {
        std::string_view word;
        uint32_t RankFileName::*coordinate;
    };
    static constexpr std::array kAxes{Axis{"tp", &RankFileName::tp}, Axis{"pp", &RankFileName::pp},
                                      Axis{"shard", &RankFileName::shard}, Axis{"moe", &RankFileName::moe}};
    while (!text.empty()) {
        const size_t end = std::min(text.find_first_of("_."), text.size());
        const std::string_view word = text.substr(0, end);
        const auto axis = std::find_if(kAxes.begin(), kAxes.end(), [&](const Axis& a) {
            return word.starts_with(a.word) && word.size() > a.word.size() && isDigit(word[a.word.size()]);
        });
        if (axis == kAxes.end() || name.*(axis->coordinate) != kNotNamed) return false;
        const auto value = number(word.substr(axis->word.size()));
        if (!value) return false;
        name.*(axis->coordinate) = *value;
        text.remove_prefix(std::min(text.size(), end + 1));
    }
    return true;
}

// What the accumulators of Paddle's optimizers are called, none the end of another that stands before it.
constexpr std::array kStates = std::to_array<std::string_view>(
    {"beta1_pow_acc", "beta2_pow_acc", "moment2_max", "moment1_max", "moment1", "moment2",
     "avg_squared_update", "avg_squared_grad", "mean_square", "mean_grad", "inf_norm", "velocity", "momentum",
     "moment", "squared", "linear"});

constexpr std::string_view kMaster = "_fp32_master_0";
constexpr std::string_view kSlice = "slice@";

// "moment1_0" -> "moment1"; an optimizer with a name of its own puts it in front ("opt_moment1_0").
std::string stateOf(std::string_view text) {
    const size_t under = text.rfind('_');
    if (under != text.npos && under > 0 && number(text.substr(under + 1))) text = text.substr(0, under);
    for (std::string_view state : kStates) {
        if (text == state || (text.size() > state.size() && text.ends_with(state) &&
                              text[text.size() - state.size() - 1] == '_'))
            return std::string(state);
    }
    return std::string(text);
}

}  // namespace

std::optional<RankFileName> parseRankFileName(std::string_view name) {
    RankFileName out;
    constexpr std::string_view kWeights = ".pdparams", kOptimizer = ".pdopt";
    std::string_view rest = name;
    if (rest.ends_with(kOptimizer)) {
        out.optimizer = true;
        rest.remove_suffix(kOptimizer.size());
    } else if (rest.ends_with(kWeights)) {
        rest.remove_suffix(kWeights.size());
    } else {
        return std::nullopt;
    }
    const size_t dot = std::min(rest.find('.'), rest.size());
    out.base = rest.substr(0, dot);
    if (out.optimizer ? out.base != "optimizer" : !std::string_view(out.base).ends_with("model_state"))
        return std::nullopt;
    rest.remove_prefix(std::min(rest.size(), dot + 1));
    if (!takeCoordinates(rest, out)) return std::nullopt;
    return out;
}

std::string formatRankFileName(const RankFileName& name) {
    std::string middle;
    const auto put = [&](std::string_view axis, uint32_t value) {
        if (value != kNotNamed) middle += fmt::format("{}{}{:02}", middle.empty() ? "." : "_", axis, value);
    };
    put("tp", name.tp);
    put("pp", name.pp);
    put("shard", name.shard);
    put("moe", name.moe);
    return name.base + middle + (name.optimizer ? ".pdopt" : ".pdparams");
}

std::optional<std::pair<uint32_t, uint32_t>> parseGroupName(std::string_view name) {
    RankFileName at;
    if (!takeCoordinates(name, at) || at.shard != kNotNamed || at.moe != kNotNamed) return std::nullopt;
    return std::pair(at.tp == kNotNamed ? 0 : at.tp, at.pp == kNotNamed ? 0 : at.pp);
}

std::string formatGroupName(uint32_t tp, uint32_t pp) {
    return fmt::format("tp{:02}_pp{:02}", tp, pp);
}

void StaticNames::add(std::string_view name) {
    if (!name.empty()) names_.emplace_back(name);
}

void StaticNames::finish() {
    std::sort(names_.begin(), names_.end());
    names_.erase(std::unique(names_.begin(), names_.end()), names_.end());
}

bool StaticNames::contains(std::string_view name) const {
    return std::binary_search(names_.begin(), names_.end(), name, std::less<>());
}

std::string_view StaticNames::prefixOf(std::string_view key) const {
    for (size_t end = key.rfind('_'); end != key.npos && end > 0; end = key.rfind('_', end - 1)) {
        const auto it =
            std::lower_bound(names_.begin(), names_.end(), key.substr(0, end), std::less<std::string_view>());
        if (it != names_.end() && *it == key.substr(0, end)) return *it;
    }
    return {};
}

std::optional<StateName> parseStateName(const Path& path, const StaticNames& known) {
    if (path.empty() || path.back().kind != PathPart::Kind::key) return std::nullopt;
    StateName out;
    std::string_view key = path.back().text;
    if (path.size() == 2 && path[0].text == "master_weights") {
        out.sliced = key.starts_with(kSlice);
        if (out.sliced) key.remove_prefix(kSlice.size());
        out.parameter = key;
        out.state = "master_weight";
        return out;
    }
    if (path.size() != 1) return std::nullopt;
    if (key.starts_with(kSlice)) {
        out.sliced = true;
        key.remove_prefix(kSlice.size());
    }
    const auto rest = [&](size_t at) {
        std::string_view text = key.substr(at);
        if (text.starts_with(kMaster)) text.remove_prefix(kMaster.size());
        if (text.starts_with('_')) text.remove_prefix(1);
        return text;
    };
    if (const std::string_view name = known.prefixOf(key); !name.empty()) {
        out.parameter = name;
        out.state = rest(name.size()).empty() ? "master_weight" : stateOf(rest(name.size()));
        return out;
    }
    // No such parameter is known: as far as the ending tells.
    const size_t under = key.rfind('_');
    if (under == key.npos || !number(key.substr(under + 1))) return std::nullopt;
    const std::string_view stem = key.substr(0, under);
    for (std::string_view state : kStates) {
        if (!stem.ends_with(state) || stem.size() < state.size() + 2 ||
            stem[stem.size() - state.size() - 1] != '_')
            continue;
        std::string_view parameter = stem.substr(0, stem.size() - state.size() - 1);
        if (parameter.ends_with(kMaster)) parameter.remove_suffix(kMaster.size());
        out.parameter = parameter;
        out.state = state;
        return out;
    }
    return std::nullopt;
}

std::optional<StateName> parseUnifiedKey(std::string_view key) {
    const size_t slash = key.rfind('/');
    if (slash == key.npos || slash == 0 || slash + 1 == key.size()) return std::nullopt;
    return StateName{std::string(key.substr(0, slash)), stateOf(key.substr(slash + 1)), false};
}

std::optional<UnifiedFileName> parseUnifiedFileName(std::string_view name) {
    constexpr std::string_view kEnding = ".safetensors";
    if (!name.ends_with(kEnding)) return std::nullopt;
    name.remove_suffix(kEnding.size());
    UnifiedFileName out;
    struct Base {
        std::string_view text;
        UnifiedFileName::Kind kind;
    };
    using Kind = UnifiedFileName::Kind;
    static constexpr std::array kBases{Base{"master_weights", Kind::masters},
                                       Base{"optimizer", Kind::optimizer}, Base{"peft_model", Kind::weights},
                                       Base{"model", Kind::weights}};
    const auto base =
        std::find_if(kBases.begin(), kBases.end(), [&](const Base& b) { return name.starts_with(b.text); });
    if (base == kBases.end()) return std::nullopt;
    out.kind = base->kind;
    out.at.base = base->text;
    out.at.optimizer = base->kind != Kind::weights;
    name.remove_prefix(base->text.size());
    if (name.empty()) return out;
    if (name.starts_with('.')) {
        if (!takeCoordinates(name.substr(1), out.at) || !out.at.placed()) return std::nullopt;
        return out;
    }
    const size_t of = name.find("-of-");
    if (!name.starts_with('-') || of == name.npos) return std::nullopt;
    const auto first = number(name.substr(1, of - 1)), total = number(name.substr(of + 4));
    if (!first || !total || *first == 0 || *first > *total) return std::nullopt;
    out.number = *first;
    out.total = *total;
    return out;
}

std::optional<std::pair<std::string_view, uint64_t>> numberedLayer(std::string_view staticName) {
    const std::string_view layer = staticName.substr(0, staticName.find('.'));
    const size_t under = layer.rfind('_');
    if (under == layer.npos) return std::nullopt;
    const auto value = number(layer.substr(under + 1));
    if (!value) return std::nullopt;
    return std::pair(layer.substr(0, under), uint64_t{*value});
}

}  // namespace shardscope::paddle_nlp
