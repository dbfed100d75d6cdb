#include "formats/olmo/olmo.h"

#include <algorithm>
#include <array>
#include <initializer_list>

#include <fmt/format.h>

#include "base/numbers.h"
#include "base/rule.h"
#include "base/units.h"
#include "encoding/torch_file.h"
#include "formats/olmo/keys.h"
#include "formats/olmo/layouts.h"
#include "model/value_view.h"
#include "storage/open_files.h"

namespace shardscope {

namespace olmo {

namespace {

// olmo/train.py, trainer_state_dict().
constexpr std::array<std::string_view, 3> kSameOnRanks{"epoch", "global_step", "global_train_tokens_seen"};

}  // namespace

std::optional<uint32_t> rankOf(std::string_view name) {
    if (!name.starts_with("rank") || !name.ends_with(".pt") || name.size() < 8) return std::nullopt;
    return parseNumber<uint32_t>(name.substr(4, name.size() - 7), 0, 1'000'000);
}

std::string withoutWrapper(std::string_view name) {
    std::string out;
    while (!name.empty()) {
        const size_t dot = std::min(name.find('.'), name.size());
        const std::string_view part = name.substr(0, dot);
        name.remove_prefix(std::min(name.size(), dot + 1));
        if (part == "_fsdp_wrapped_module") continue;
        if (!out.empty()) out += '.';
        out += part;
    }
    return out;
}

bool TrainerCounters::add(uint32_t file) {
    const TensorFile& contents = assembly_.files()[file];
    const auto mixed = [&](std::string message) {
        assembly_.note(rule::saveMixed, Severity::error, std::move(message), contents.name, {},
                       Note::Lacks::anything);
    };
    const bool isFirst = firstFile_.empty();
    if (isFirst) firstFile_ = contents.name;
    for (const StoredObject& object : contents.objects) {
        const auto value = ValueView(object.value).integer();
        if (!value) continue;
        if (object.name == "world_size" && *value != world_)
            mixed(fmt::format("it is of a save by {}, the others of one by {}",
                              counted(static_cast<uint64_t>(std::max<int64_t>(*value, 0)), "rank"), world_));
        if (!std::ranges::count(kSameOnRanks, std::string_view(object.name))) continue;
        const auto [it, fresh] = first_.try_emplace(object.name, *value);
        if (!fresh && it->second != *value)
            mixed(fmt::format("{} is {} here and {} in '{}': the files of the ranks are of two saves",
                              object.name, *value, it->second, firstFile_));
    }
    return isFirst;
}

namespace {

enum class Layout : uint8_t { none, unsharded, local, legacy };

// Whether the first key of a safetensors file's header is one of OLMo's.
bool hasKeys(const Directory& directory, const std::string& name) {
    const std::string head = startOf(directory, name, 4096);
    if (head.size() < 16 || head[8] != '{') return false;
    const size_t quote = head.find("\"gA", 9);
    if (quote == head.npos || quote > 2048) return false;
    const size_t end = head.find('"', quote + 1);
    return end != head.npos && decodeKey(std::string_view(head).substr(quote + 1, end - quote - 1)).ok();
}

// Whether a torch.save file holds a dictionary with these keys. A file that cannot be read contradicts
// nothing: its damage is for the reader to report.
bool mayHold(const Directory& directory, const std::string& name,
             std::initializer_list<std::string_view> keys) {
    auto file = directory.openFile(name);
    if (!file.ok()) return true;
    const auto opened = torch_save::openTorchFile(std::move(file).value(), {});
    if (!opened.ok()) return true;
    const ValueGraph& graph = opened->pickle.graph;
    const NodeId root = opened->pickle.root;
    // FSDP with a device mesh saves DTensors in rank files that are not OLMo's alone (torch_ranks).
    const auto isOther = [](const std::string& global) { return global.ends_with("DTensor"); };
    return graph.isMapping(root) && std::ranges::none_of(opened->pickle.globals, isOther) &&
           std::all_of(keys.begin(), keys.end(),
                       [&](std::string_view key) { return graph.find(root, key) != kNoNode; });
}

struct Found {
    Layout layout = Layout::none;
    Probe probe;
};

Found find(const Source& source) {
    if (!source.entry.empty()) {
        if (source.entry.ends_with(".safetensors") && hasKeys(*source.directory, source.entry))
            return {Layout::unsharded, {Probe::Match::certain, "a safetensors file with OLMo's keys"}};
        return {};
    }
    bool model = false, modelFolder = false, config = false, company = false, metadata = false;
    std::string keyed, rankFile;
    for (const DirectoryEntry& entry : source.entries) {
        if (entry.kind == DirectoryEntry::Kind::directory) {
            modelFolder = modelFolder || entry.name == "model";
            continue;
        }
        if (entry.kind != DirectoryEntry::Kind::file) continue;
        const std::string_view name = entry.name;
        model = model || name == "model.pt";
        config = config || name == "config.yaml";
        metadata = metadata || name == "metadata.yaml";
        company = company || name == "optim.pt" || name == "train.pt" || name == "other.pt";
        if (rankFile.empty() && rankOf(name)) rankFile = name;
        // One look is enough: all files of such a directory have the same keys.
        if (keyed.empty() && name.ends_with(".safetensors")) keyed = name;
    }
    if (modelFolder) {
        const auto inside = source.directory->list("model");
        if (inside.ok()) {
            for (const DirectoryEntry& entry : *inside) {
                if (!rankOf(entry.name)) continue;
                if (!mayHold(*source.directory, "model/" + entry.name, {"modules"})) break;
                return {Layout::local,
                        {metadata || config ? Probe::Match::certain : Probe::Match::possible,
                         "has model/" + entry.name}};
            }
        }
    }
    // FSDP and others call their files so, too.
    if (!rankFile.empty() && mayHold(*source.directory, rankFile, {"model", "optim"}))
        return {Layout::legacy, {config ? Probe::Match::certain : Probe::Match::possible, "has rank*.pt"}};
    if (model && (config || company))
        return {Layout::unsharded, {Probe::Match::certain, "has model.pt and what belongs to it"}};
    if (!keyed.empty() && hasKeys(*source.directory, keyed))
        return {Layout::unsharded, {Probe::Match::certain, "has " + keyed + " with OLMo's keys"}};
    return {};
}

Probe probe(const Source& source) {
    return find(source).probe;
}

Result<std::unique_ptr<Reader>> open(const Source& source, const OpenOptions& options) {
    switch (find(source).layout) {
        case Layout::local:
            return openLocal(source, options);
        case Layout::legacy:
            return openLegacy(source, options);
        case Layout::none:
        case Layout::unsharded:
            break;
    }
    return openUnsharded(source, options);
}

}  // namespace

}  // namespace olmo

const Format& olmoFormat() {
    static const Format format{
        .about = {.name = "olmo",
                  .title = "OLMo",
                  .suffixes = {"pt", "safetensors"},
                  .refines = "safetensors",
                  .before = {{"safetensors", "its files may be safetensors, with keys of its own"},
                             {"torch", "its files may be those of torch.save, with keys of its own"}},
                  .reads = true,
                  .writes = true,
                  .generations = {"unsharded: model.pt, optim.pt, train.pt",
                                  "safetensors with pickled nested keys",
                                  "local: FSDP flat parameters of each rank (torch 1.13 to 2.2)",
                                  "torch_legacy: pickled ShardedTensors of each rank"},
                  .wholeByDefault = true,
                  .objects = true,
                  .nesting = true},
        .probe = olmo::probe,
        .open = olmo::open,
        .pathFor = olmo::pathFor,
        .cannotHold = olmo::cannotHold,
        .layout = olmo::layOut};
    return format;
}

}  // namespace shardscope
