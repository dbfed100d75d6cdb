#include "formats/tensor_parallel/file_names.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "base/numbers.h"
#include "base/regular_expression.h"

namespace shardscope::tensor_parallel {

namespace {

constexpr uint32_t kMostRanks = 65'536;

// Groups of a name: the rank, and the number of ranks (may be empty).
struct NameRule {
    const char* writer;
    RegularExpression name;
    const char* missing;  // how the file of a rank is called
    bool aloneIsPart;     // one such file may be a part: nobody calls a whole model so
};

const std::vector<NameRule>& nameRules() {
    static const std::vector<NameRule> rules = [] {
        const auto rule = [](const char* writer, const char* name, const char* missing, bool alone = false) {
            return NameRule{writer, RegularExpression::parse(name).value(), missing, alone};
        };
        return std::vector<NameRule>{
            rule("vLLM", R"(model-rank-(\d+)-part-\d+\.safetensors())", "model-rank-{}-part-0.safetensors",
                 true),
            rule("TensorRT-LLM", R"(rank(\d+)\.safetensors())", "rank{}.safetensors", true),
            rule("Meta", R"(consolidated\.(\d+)\.(?:pth|safetensors)())", "consolidated.{:02}.pth"),
            rule("DeepSeek", R"(model(\d+)-mp(\d+)\.safetensors)", "model{}-mp*.safetensors"),
            rule("-TP- files", R"(.*-TP-(\d+)\.safetensors())", "*-TP-{:03}.safetensors"),
        };
    }();
    return rules;
}

RankFiles filesOf(const Source& source, const NameRule& rule) {
    RankFiles out;
    std::set<uint32_t> ranks;
    std::vector<std::string_view> groups;
    for (const DirectoryEntry& entry : source.entries) {
        if (entry.kind != DirectoryEntry::Kind::file || !rule.name.matchWhole(entry.name, groups)) continue;
        const auto rank = parseNumber<uint32_t>(groups[1], 0, kMostRanks - 1);
        const auto world = parseNumber<uint32_t>(groups[2], 1, kMostRanks);
        if (!rank) continue;
        out.files.push_back({entry.name, *rank});
        out.world = std::max({out.world, *rank + 1, world.value_or(0)});
        ranks.insert(*rank);
    }
    if (out.world < 2 && !(rule.aloneIsPart && out.world == 1)) return {};
    out.writer = rule.writer;
    for (const DirectoryEntry& entry : source.entries) {
        if (entry.kind == DirectoryEntry::Kind::file && entry.name.ends_with("-TP-common.safetensors"))
            out.files.push_back({entry.name, 0, true});
    }
    return out;
}

}  // namespace

std::string RankFiles::nameOf(uint32_t rank) const {
    for (const NameRule& rule : nameRules()) {
        if (std::string_view(rule.writer) == writer) return fmt::format(fmt::runtime(rule.missing), rank);
    }
    return {};
}

RankFiles findRankFiles(const Source& source) {
    for (const NameRule& rule : nameRules()) {
        if (RankFiles found = filesOf(source, rule); *found.writer != '\0') return found;
    }
    return {};
}

}  // namespace shardscope::tensor_parallel
