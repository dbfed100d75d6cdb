#include "formats/indexed_files.h"

#include <map>
#include <set>

#include <fmt/format.h>

#include "base/numbers.h"
#include "base/rule.h"
#include "formats/catalog_opener.h"
#include "storage/files_below.h"
#include "storage/open_files.h"

namespace shardscope {

namespace {

constexpr uint32_t kMostOfSet = 1'000'000;  // files, and ranks

}  // namespace

Result<IndexedFiles> IndexedFiles::read(const Source& source, const OpenOptions& options,
                                        const std::string& name) {
    SHARDSCOPE_ASSIGN(const auto file, source.directory->openFile(name));
    SHARDSCOPE_ASSIGN(std::string json, wholeText(*file, options.limits.indexJson));
    if (name == safetensors::kMindSporeIndex && json.find("\"weight_map\"") == json.npos)
        json = "{\"weight_map\":" + json + "}";
    auto parsed = safetensors::parseIndex(json);
    if (!parsed.ok()) return std::move(parsed).error().inFile(file->path());
    IndexedFiles index{std::move(parsed).value(), name, file->size()};
    return index;
}

FileInfo IndexedFiles::info() const {
    return {.path = name, .size = size, .metadata = true};
}

bool IndexedFiles::noteLacking(const std::function<Found(size_t)>& find,
                               const std::function<void(Note)>& add) const {
    bool lacking = false;
    for (size_t i = 0; i < names.size(); ++i) {
        const Found found = find(i);
        if (found == Found::inFile) continue;
        lacking = true;
        const bool missing = found == Found::fileMissing;
        add(noteOf(missing ? rule::fileMissing : rule::metaInconsistent, Severity::error,
                   fmt::format("'{}' places it in this file, which {}", name,
                               missing                      ? "is missing"
                               : found == Found::fileBroken ? "cannot be read"
                                                            : "does not hold it"),
                   fileWith(i), names[i], lacks));
    }
    return lacking;
}

Note IndexedFiles::unnamed(std::string_view file, std::string_view tensor) const {
    return noteOf(rule::metaInconsistent, Severity::warning, fmt::format("'{}' does not name it", name), file,
                  tensor);
}

std::optional<Note> IndexedFiles::otherCopy(const TensorFiles& all, uint32_t indexed, uint32_t file,
                                            uint32_t tensor) const {
    if (indexed == kNone || indexed == file) return std::nullopt;
    const std::string& stored = all[file].tensors[tensor].name;
    const uint32_t other = all[indexed].find(stored);
    if (other == kNone || all.equal(indexed, other, file, tensor) != false) return std::nullopt;
    return noteOf(
        rule::metaDuplicate, Severity::error,
        fmt::format("'{}' takes it from '{}'; the copy here is another one", name, all[indexed].name),
        all[file].name, stored);
}

SetName parseSetName(std::string_view fileName, std::string_view ending) {
    SetName set;
    fileName = lastNameOf(fileName);
    if (!fileName.ends_with(ending) || fileName.size() <= ending.size()) return set;
    fileName.remove_suffix(ending.size());
    if (fileName.starts_with("shard-")) {
        const size_t dash = fileName.find('-', 6);
        if (dash != std::string_view::npos) {
            const auto rank = parseNumber<uint32_t>(fileName.substr(6, dash - 6));
            if (rank && *rank >= 1 && *rank <= kMostOfSet) {
                set.rank = *rank - 1;
                fileName.remove_prefix(dash + 1);
            }
        }
    }
    set.stem = fileName;
    const size_t of = fileName.rfind("-of-");
    if (of == std::string_view::npos || of == 0) return set;
    const size_t dash = fileName.rfind('-', of - 1);
    if (dash == std::string_view::npos) return set;
    const auto index = parseNumber<uint32_t>(fileName.substr(dash + 1, of - dash - 1));
    const auto count = parseNumber<uint32_t>(fileName.substr(of + 4));
    if (!index || !count || *index == 0 || *index > *count) return set;
    set.index = *index;
    set.count = *count;
    set.stem = fileName.substr(0, dash);
    return set;
}

Note copyInSet(std::string_view file) {
    return noteOf(rule::metaDuplicate, Severity::error,
                  "all of its tensors are in other files of the set, too: it is a copy, and what it held is "
                  "missing",
                  file, {}, Note::Lacks::anything);
}

std::vector<Note> missingOfSets(std::span<const SetName> present, std::string_view ending) {
    // Of files of ranks, some rank has a file of each index.
    std::map<std::pair<std::string, uint32_t>, std::set<uint32_t>> sets;
    for (const SetName& name : present) {
        const std::string stem = name.rank == kNone ? name.stem : "shard-00001-" + name.stem;
        if (name.index != 0) sets[{stem, name.count}].insert(name.index);
    }
    std::vector<Note> notes;
    for (const auto& [set, indices] : sets) {
        if (set.second > kMostOfSet) continue;
        for (uint32_t i = 1; i <= set.second; ++i) {
            if (indices.contains(i)) continue;
            notes.push_back(noteOf(rule::fileMissing, Severity::error,
                                   fmt::format("the other files say that there are {} of this set; which "
                                               "tensors it holds is not known",
                                               set.second),
                                   fmt::format("{}-{:05}-of-{:05}{}", set.first, i, set.second, ending)));
        }
    }
    return notes;
}

}  // namespace shardscope
