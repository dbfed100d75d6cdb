#include "formats/tensor_parallel/file_names.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/numbers.h"
#include "base/regular_expression.h"
#include "formats/files_below.h"

namespace shardscope::tensor_parallel {

namespace {

constexpr uint32_t kMostRanks = 65'536, kMostStages = 4096;
constexpr size_t kMostMissing = 1000;  // that are named

// Groups of a name: the rank, the number of ranks (may be empty), the stage and the part where names have
// them.
struct NameRule {
    const char* writer;
    RegularExpression name;
    const char* missing;      // how the file of a rank, of a stage, of a part, is called
    bool aloneIsPart;         // one such file may be a part: nobody calls a whole model so
    const char* beside = "";  // ... if this file is there, too
    const char* directory = "";
    const char* mark = "";
    const char* optimizer = "";  // a directory with files of the same names
};

const std::vector<NameRule>& nameRules() {
    static const std::vector<NameRule> rules = [] {
        const auto rule = [](const char* writer, const char* name, const char* missing, bool alone = false,
                             const char* beside = "") {
            return NameRule{writer, RegularExpression::parse(name).value(), missing, alone, beside};
        };
        return std::vector<NameRule>{
            rule("vLLM", R"(model-rank-(\d+)-part-()()(\d+)\.safetensors)",
                 "model-rank-{0}-part-{2}.safetensors", true),
            rule("TensorRT-LLM", R"(rank(\d+)\.safetensors())", "rank{}.safetensors", true),
            rule("Meta", R"(consolidated\.(\d+)\.(?:pth|safetensors)())", "consolidated.{:02}.pth", true,
                 "params.json"),
            rule("DeepSeek", R"(model(\d+)-mp(\d+)\.safetensors)", "model{}-mp*.safetensors"),
            rule("-TP- files", R"(.*-TP-(\d+)\.safetensors())", "*-TP-{:03}.safetensors"),
            {"NxD", RegularExpression::parse(R"(dp_rank_0+_tp_rank_(\d+)()_pp_rank_(\d+)\.pt)").value(),
             "model/dp_rank_00_tp_rank_{:02}_pp_rank_{:02}.pt", true, "", "model", "done", "optim"},
        };
    }();
    return rules;
}

std::vector<DirectoryEntry> entriesOf(const Source& source, std::string_view directory) {
    if (directory.empty()) return source.entries;
    if (!holdsDirectory(source, directory)) return {};
    auto listed = source.directory->list(directory);
    if (!listed.ok()) return {};
    std::ranges::sort(*listed, {}, &DirectoryEntry::name);
    for (DirectoryEntry& entry : *listed)
        entry.name = joinPath(directory, entry.name);
    return *std::move(listed);
}

RankFiles filesOf(const Source& source, const NameRule& rule) {
    RankFiles out;
    struct Found {
        RankFile file;
        uint32_t stage;
    };
    std::vector<Found> found;
    std::vector<std::string_view> groups;
    for (const DirectoryEntry& entry : entriesOf(source, rule.directory)) {
        const std::string_view name = lastNameOf(entry.name);
        if (entry.kind != DirectoryEntry::Kind::file || !rule.name.matchWhole(name, groups)) continue;
        const auto rank = parseNumber<uint32_t>(groups[1], 0, kMostRanks - 1);
        const auto world = parseNumber<uint32_t>(groups[2], 1, kMostRanks);
        const auto number = [&](size_t group) -> std::optional<uint32_t> {
            if (groups.size() <= group || groups[group].empty()) return 0;
            return parseNumber<uint32_t>(groups[group], 0, kMostStages - 1);
        };
        const auto stage = number(3), part = number(4);
        if (!rank || !stage || !part) continue;
        RankFile file{.name = entry.name, .rank = *rank};
        file.digitsAt = static_cast<size_t>(groups[1].data() - entry.name.data());
        file.digits = groups[1].size();
        file.others = std::string(entry.name).erase(file.digitsAt, file.digits);
        found.push_back({std::move(file), *stage});
        out.parts = std::max(out.parts, *part + 1);
        out.world = std::max({out.world, *rank + 1, world.value_or(0)});
        out.stages = std::max(out.stages, *stage + 1);
    }
    // The optimizer's files name ranks whose parts of the model may be missing.
    const bool optimizer = *rule.optimizer != '\0' && !found.empty();
    for (const DirectoryEntry& entry :
         optimizer ? entriesOf(source, rule.optimizer) : std::vector<DirectoryEntry>()) {
        const std::string_view name = lastNameOf(entry.name);
        if (!rule.name.matchWhole(name, groups)) continue;
        const auto rank = parseNumber<uint32_t>(groups[1], 0, kMostRanks - 1);
        out.world = std::max(out.world, rank.value_or(0) + 1);
    }
    const bool alone = rule.aloneIsPart && (*rule.beside == '\0' || source.hasFile(rule.beside));
    if (out.world < 2 && !(alone && out.world == 1)) return {};
    out.writer = rule.writer;
    out.mark = rule.mark;
    for (Found& one : found) {
        one.file.rank += one.stage * out.world;
        out.files.push_back(std::move(one.file));
    }
    for (const DirectoryEntry& entry : source.entries) {
        if (entry.kind == DirectoryEntry::Kind::file && entry.name.ends_with("-TP-common.safetensors"))
            out.files.push_back({.name = entry.name, .common = true});
    }
    return out;
}

}  // namespace

std::string RankFiles::nameOf(uint32_t rank, uint32_t part) const {
    for (const NameRule& rule : nameRules()) {
        if (std::string_view(rule.writer) == writer)
            return fmt::format(fmt::runtime(rule.missing), rank % world, rank / world, part);
    }
    return {};
}

RankFiles::Missing RankFiles::missing() const {
    struct Set {
        const RankFile* one = nullptr;
        size_t width = 1;
        std::set<uint32_t> ranks;
    };
    std::map<std::string_view, Set> sets;
    std::set<std::string_view> there;
    std::set<uint32_t> ranks;
    for (const RankFile& file : files) {
        if (file.common) continue;
        there.insert(file.name);
        ranks.insert(file.rank);
        Set& set = sets[file.others];
        set.one = &file;
        if (file.name[file.digitsAt] == '0') set.width = std::max(set.width, file.digits);
        set.ranks.insert(file.rank % world);
    }
    Missing missing;
    std::vector<RankFile>& out = missing.files;
    std::set<uint32_t> stagesThere;
    for (const auto& [others, set] : sets) {
        stagesThere.insert(set.one->rank / world);
        missing.count += world - set.ranks.size();
    }
    missing.count += uint64_t{world} * (parts > 1 ? parts - std::min<uint64_t>(parts, sets.size())
                                                  : stages - stagesThere.size());
    for (const auto& [others, set] : sets) {
        for (uint32_t rank = 0; rank < world; ++rank) {
            if (set.ranks.contains(rank)) continue;
            std::string name = set.one->name;
            name.replace(set.one->digitsAt, set.one->digits, fmt::format("{:0{}}", rank, set.width));
            const uint32_t whose = set.one->rank / world * world + rank;
            ranks.insert(whose);
            out.push_back({.name = std::move(name), .rank = whose});
            if (out.size() == kMostMissing) return missing;
        }
    }
    // Of a stage, and of parts with a number in between, there may be no file at all.
    for (uint32_t rank = 0; rank < world * stages; ++rank) {
        for (uint32_t part = 0; part < parts; ++part) {
            std::string name = nameOf(rank, part);
            const bool known =
                parts > 1 ? there.contains(name) || std::ranges::find(out, name, &RankFile::name) != out.end()
                          : ranks.contains(rank);
            if (!known) out.push_back({.name = std::move(name), .rank = rank});
            if (out.size() == kMostMissing) return missing;
        }
    }
    missing.count = out.size();
    return missing;
}

RankFiles findRankFiles(const Source& source) {
    for (const NameRule& rule : nameRules()) {
        if (RankFiles found = filesOf(source, rule); *found.writer != '\0') return found;
    }
    return {};
}

}  // namespace shardscope::tensor_parallel
