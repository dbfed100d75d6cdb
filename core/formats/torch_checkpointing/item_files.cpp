#include "formats/torch_checkpointing/item_files.h"

#include <algorithm>

#include "base/numbers.h"
#include "model/companions.h"
#include "storage/open_files.h"

namespace shardscope::torch_checkpointing {

namespace {

constexpr uint32_t kMostRank = 1'000'000;
constexpr size_t kMostFolders = 64;  // of the checkpoint that are looked into
constexpr std::string_view kZip = "PK\x03\x04";
constexpr size_t kZipNameAt = 30;  // where the name of the first entry stands

std::string_view stemOf(std::string_view name) {
    name = name.substr(0, name.rfind('.'));
    return name.substr(name.rfind('/') + 1);
}

// JSON files that models come with, and no item's.
bool isModelJson(std::string_view name) {
    return name == "config.json" || name == "generation_config.json" || name == "trainer_state.json" ||
           name == "special_tokens_map.json" || name.starts_with("tokenizer") ||
           name.ends_with(".index.json");
}

// What a file holds, by its name and first bytes; nullopt when it is not part of a checkpoint.
std::optional<Layout::Kind> kindOf(const Source& source, const std::string& name) {
    if (name.ends_with(".pt") || name.ends_with(".pth")) return Layout::Kind::torch;
    if (name.ends_with(".safetensors")) return Layout::Kind::safetensors;
    if (name.ends_with(".json")) return isModelJson(name) ? std::nullopt : std::optional(Layout::Kind::json);
    if (isCompanionFile(name) && !parseItemName(name)) return std::nullopt;
    if (!name.ends_with(".bin") && !name.ends_with(".raw") && !parseItemName(name)) return std::nullopt;
    return startOf(*source.directory, name).starts_with(kZip) ? Layout::Kind::torch : Layout::Kind::raw;
}

}  // namespace

std::optional<ItemName> parseItemName(std::string_view name) {
    const std::string_view stem = stemOf(name);
    const size_t line = stem.rfind('_');
    if (line == stem.npos || line == 0) return std::nullopt;
    const std::string_view digits = stem.substr(line + 1);
    const auto rank = parseNumber<uint32_t>(digits, 0, kMostRank);
    // The framework writes no leading zeros.
    if (!rank || (digits.size() > 1 && digits[0] == '0')) return std::nullopt;
    return ItemName{std::string(stem.substr(0, line)), *rank};
}

bool holdsItemFiles(const Source& source) {
    size_t files = 0;
    std::string first;
    for (const DirectoryEntry& entry : source.entries) {
        if (entry.kind != DirectoryEntry::Kind::file || !entry.name.ends_with(".pt")) continue;
        const auto name = parseItemName(entry.name);
        // "rank_0.pt" and "model_world_size_2_rank_0.pt" are other writers' names.
        if (!name || name->item.ends_with("rank")) continue;
        ++files;
        if (first.empty()) first = entry.name;
    }
    if (files < 2) return false;
    const std::string head = startOf(*source.directory, first);
    return head.starts_with(kZip) && head.size() > kZipNameAt &&
           std::string_view(head).substr(kZipNameAt).starts_with("archive/");
}

std::vector<ItemFile> otherItemFiles(const Source& source, const std::vector<std::string>& known) {
    std::vector<ItemFile> files;
    const auto take = [&](const std::string& folder, const DirectoryEntry& entry) {
        const std::string name = folder.empty() ? entry.name : folder + "/" + entry.name;
        if (entry.kind != DirectoryEntry::Kind::file || entry.name.starts_with('.') ||
            name == kMetadataFile || std::ranges::binary_search(known, name))
            return;
        const auto kind = kindOf(source, name);
        if (!kind || (!folder.empty() && *kind != Layout::Kind::torch && *kind != Layout::Kind::safetensors))
            return;
        ItemFile file{name, *kind, {}, {0}, false, entry.size};
        if (auto parsed = parseItemName(name)) {
            file.ranked = true;
            file.ranks = {parsed->rank};
            // "model/rank_0.safetensors" is of the item "model".
            file.item = !folder.empty() && parsed->item == "rank" ? folder : std::move(parsed->item);
        } else {
            file.item = stemOf(name);
        }
        files.push_back(std::move(file));
    };
    for (const DirectoryEntry& entry : source.entries)
        take("", entry);
    size_t folders = 0;
    for (const DirectoryEntry& entry : source.entries) {
        if (entry.kind != DirectoryEntry::Kind::directory || entry.name.starts_with('.') ||
            entry.name.starts_with("tmp_") || ++folders > kMostFolders)
            continue;
        const auto below = source.directory->list(entry.name);
        // Another checkpoint is not part of this one.
        if (!below.ok() || std::ranges::any_of(*below, [](const DirectoryEntry& inner) {
                return inner.name == kMetadataFile || inner.name == ".metadata";
            }))
            continue;
        for (const DirectoryEntry& inner : *below)
            take(entry.name, inner);
    }
    std::ranges::sort(files, {},
                      [](const ItemFile& file) { return std::tie(file.item, file.ranks, file.name); });
    return files;
}

}  // namespace shardscope::torch_checkpointing
