#include "formats/nanotron/names.h"

#include <fmt/format.h>

#include "base/checked.h"
#include "base/numbers.h"

namespace shardscope::nanotron {

namespace {

constexpr uint32_t kMostRanks = 65'536;
constexpr uint64_t kMostNames = 1'000'000;
constexpr std::string_view kRankWord = "-rank";
constexpr std::string_view kOf = "-of-";
constexpr std::string_view kParameter = "model_";

// "pp-rank-0-of-2", "tp-1-of-4".
bool takeAxis(std::string_view part, RankName& name) {
    for (size_t axis = 0; axis < kAxes; ++axis) {
        std::string_view rest = part;
        if (!rest.starts_with(kAxisNames[axis])) continue;
        rest.remove_prefix(std::string_view(kAxisNames[axis]).size());
        std::string_view word;
        if (rest.starts_with(kRankWord)) {
            word = kRankWord;
            rest.remove_prefix(word.size());
        }
        const size_t of = rest.find(kOf);
        if (!rest.starts_with('-') || of == rest.npos || of == 0) continue;
        const auto size = parseNumber<uint32_t>(rest.substr(of + kOf.size()), 1, kMostRanks);
        const auto rank = parseNumber<uint32_t>(rest.substr(1, of - 1), 0, size.value_or(1) - 1);
        if (!size || !rank || name.of.rank[axis]) return false;
        name.of.rank[axis] = rank;
        name.of.size[axis] = *size;
        name.order.insert(name.order.begin(), static_cast<Axis>(axis));
        name.rankWord = word;
        return true;
    }
    return false;
}

}  // namespace

std::string RankName::text() const {
    std::string out = base;
    for (const Axis axis : order)
        out += fmt::format("{}{}{}-{}-of-{}", out.empty() ? "" : "_", kAxisNames[axis], rankWord,
                           of.rank[axis].value_or(0), of.size[axis]);
    return out + ending;
}

bool RankName::forEachRank(std::optional<Axis> fixed,
                           const std::function<void(const RankName&)>& visit) const {
    std::vector<Axis> along;
    uint64_t all = 1;
    for (const Axis axis : order) {
        if (axis == fixed) continue;
        along.push_back(axis);
        if (!checkedMul(all, uint64_t{of.size[axis]}, all) || all > kMostNames) return false;
    }
    RankName name = *this;
    for (uint64_t i = 0; i < all; ++i) {
        uint64_t rest = i;
        for (const Axis axis : along) {
            name.of.rank[axis] = static_cast<uint32_t>(rest % of.size[axis]);
            rest /= of.size[axis];
        }
        visit(name);
    }
    return true;
}

std::optional<RankName> parseRankName(std::string_view name, std::string_view ending) {
    if (!name.ends_with(ending)) return std::nullopt;
    RankName out;
    out.ending = ending;
    name.remove_suffix(ending.size());
    while (!name.empty()) {
        const size_t at = name.rfind('_');
        if (!takeAxis(name.substr(at == name.npos ? 0 : at + 1), out)) break;
        name = name.substr(0, at == name.npos ? 0 : at);
    }
    out.base = name;
    return out;
}

std::optional<RankName> parseModelFile(std::string_view name) {
    if (!name.starts_with(kParameter)) return std::nullopt;
    auto out = parseRankName(name, ".safetensors");
    if (!out || out->base.size() <= kParameter.size()) return std::nullopt;
    return out;
}

}  // namespace shardscope::nanotron
