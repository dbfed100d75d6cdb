#include "formats/torch_ranks/file_sets.h"

#include <algorithm>
#include <array>
#include <set>

#include <fmt/format.h>

#include "base/numbers.h"
#include "base/regular_expression.h"
#include "model/companions.h"
#include "storage/files_below.h"

namespace shardscope::torch_ranks {

namespace {

constexpr std::string_view kPlaceholder = "{rank}";
constexpr uint32_t kMostRanks = 1'000'000;

std::optional<uint32_t> numberOf(std::string_view digits) {
    return parseNumber<uint32_t>(digits, 0, kMostRanks);
}

Kind kindOf(std::string_view words) {
    const auto has = [&](std::string_view word) { return words.find(word) != words.npos; };
    if (has("optim")) return Kind::optimizer;
    if (has("extra") || has("scheduler") || has("rng") || has("random")) return Kind::extra;
    return Kind::model;
}

std::string_view prefixOf(Kind kind) {
    constexpr std::array<std::string_view, 3> prefixes = {"", "optim.", "extra_state."};
    return prefixes[static_cast<size_t>(kind)];
}

// How the names of one writer are built. Groups: what the file holds, the world's size or the model's number
// (may be empty), the rank.
struct NameRule {
    RegularExpression name;
    bool world = false;   // the second group is the number of ranks
    bool known = false;   // not names of scripts
    bool ranked = false;  // says that the number is a rank
};

const std::vector<NameRule>& nameRules() {
    static const std::vector<NameRule> rules = [] {
        const auto rule = [](std::string_view pattern, bool world, bool known, bool ranked) {
            return NameRule{RegularExpression::parse(pattern).value(), world, known, ranked};
        };
        return std::vector<NameRule>{
            // verl and SkyRL: verl/utils/checkpoint/fsdp_checkpoint_manager.py.
            rule(R"((model|optim|extra_state)_world_size_(\d+)_rank_(\d+)\.pt)", true, true, true),
            // Accelerate with use_dcp=False or LOCAL_STATE_DICT: accelerate/utils/fsdp_utils.py.
            rule(R"((pytorch_model_fsdp|optimizer)(?:_(\d+))?_rank(\d+)\.bin)", false, true, true),
            // Scripts: rank0.pt, model_rank_0.pth, and fsdp_0.pt, shard-3.pth, state.1.bin, 0_of_4.pt or
            // 0.pt.
            rule(R"((.*?)()[Rr]ank[_=-]?(\d+)[^0-9]*\.(?:pt|pth|bin|ckpt))", false, false, true),
            rule(R"((.*?)()(\d+)_of_\d+\.(?:pt|pth|bin|ckpt))", false, false, false),
            rule(R"((.*[A-Za-z])()[._-](\d+)\.(?:pt|pth|bin|ckpt))", false, false, false),
            rule(R"(()()(\d+)\.(?:pt|pth|bin|ckpt))", false, false, false),
        };
    }();
    return rules;
}

std::string withoutKind(std::string text) {
    for (const std::string_view word : {"optimizer", "optim", "model"}) {
        if (const size_t at = text.find(word); at != text.npos) return text.erase(at, word.size());
    }
    return text;
}

}  // namespace

std::optional<RankName> parseRankName(std::string_view name) {
    if (name.find("-of-") != name.npos) return std::nullopt;
    std::vector<std::string_view> groups;
    for (const NameRule& rule : nameRules()) {
        if (!rule.name.matchWhole(name, groups)) continue;
        const auto rank = numberOf(groups[3]);
        if (!rank) return std::nullopt;
        RankName out;
        out.rank = *rank;
        out.known = rule.known;
        out.ranked = rule.ranked;
        out.width = groups[3].front() == '0' ? groups[3].size() : 1;
        out.kind = kindOf(name);
        out.prefix = prefixOf(out.kind);
        if (rule.world) {
            out.world = numberOf(groups[2]);
            if (!out.world || *out.world == 0) return std::nullopt;
        } else if (const auto number = numberOf(groups[2]); number && *number > 0) {
            // The second and later models of one save.
            out.prefix = (out.kind == Kind::model ? "model" : "optim") + ("_" + std::string(groups[2]) + ".");
        }
        const auto at = static_cast<size_t>(groups[3].data() - name.data());
        out.pattern.append(name.substr(0, at))
            .append(kPlaceholder)
            .append(name.substr(at + groups[3].size()));
        return out;
    }
    return std::nullopt;
}

std::string FileSet::nameOf(uint32_t rank) const {
    std::string name = pattern;
    name.replace(name.find(kPlaceholder), kPlaceholder.size(), fmt::format("{:0{}}", rank, width));
    return name;
}

std::vector<DirectoryEntry> entriesOfRanks(const Source& source, size_t most) {
    static const RegularExpression rule = RegularExpression::parse(R"(.*?[Rr]ank[_=-]?\d+)").value();
    std::vector<std::string_view> groups;
    std::vector<DirectoryEntry> entries = source.entries;
    size_t listed = 0;
    for (const DirectoryEntry& entry : source.entries) {
        if (entry.kind == DirectoryEntry::Kind::file && parseRankName(entry.name)) return source.entries;
        if (entry.kind != DirectoryEntry::Kind::directory || listed >= most ||
            !rule.matchWhole(entry.name, groups))
            continue;
        ++listed;
        const auto below = source.directory->list(entry.name);
        if (!below.ok()) continue;
        for (DirectoryEntry inner : *below) {
            inner.name.insert(0, entry.name + "/");
            entries.push_back(std::move(inner));
        }
    }
    return entries;
}

std::vector<FileSet> findFileSets(const std::vector<DirectoryEntry>& entries) {
    std::map<std::string, FileSet> sets;
    for (const DirectoryEntry& entry : entries) {
        if (entry.kind != DirectoryEntry::Kind::file) continue;
        auto parsed = parseRankName(entry.name);
        if (!parsed || (!parsed->known && isCompanionFile(lastNameOf(entry.name)))) continue;
        FileSet& set = sets[parsed->pattern];
        parsed->width = std::max(set.width, parsed->width);
        static_cast<RankPattern&>(set) = *parsed;
        // "rank_01.pt" beside "rank_1.pt": the one that the pattern gives counts.
        const auto [it, fresh] = set.files.try_emplace(parsed->rank, &entry);
        if (!fresh && entry.name == set.nameOf(parsed->rank)) it->second = &entry;
    }
    std::vector<FileSet> found;
    std::set<std::string> prefixes;
    // A number at the end of a name is a rank where they count up from 0, or where those of the files beside
    // it do: "model_1.pt" beside "optim_0.pt" and "optim_1.pt".
    std::map<std::string, size_t> counted;  // by what is alike in the names of a save
    for (const auto& [pattern, set] : sets) {
        if (!set.ranked && set.files.size() > 1 && set.files.begin()->first == 0 &&
            set.files.rbegin()->first == set.files.size() - 1)
            counted[withoutKind(pattern)] = set.files.size();
    }
    for (auto& [pattern, set] : sets) {
        const auto beside = counted.find(withoutKind(pattern));
        if (set.ranked || (beside != counted.end() && set.files.rbegin()->first < beside->second))
            found.push_back(std::move(set));
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const FileSet& a, const FileSet& b) { return a.kind < b.kind; });
    for (FileSet& set : found) {
        if (set.world || prefixes.insert(set.prefix).second) continue;
        // Of several sets of one kind the others are named after their files.
        const std::string_view base = lastNameOf(set.pattern);
        set.prefix = std::string(base.substr(0, base.find_first_of(".{"))) + ".";
        prefixes.insert(set.prefix);
    }
    return found;
}

}  // namespace shardscope::torch_ranks
