#include "formats/orbax/orbax.h"

#include "formats/orbax/flax.h"
#include "formats/orbax/items.h"
#include "formats/orbax/levanter.h"
#include "formats/orbax/metadata.h"
#include "storage/open_files.h"

namespace shardscope {

namespace {

constexpr size_t kMostProbed = 32;  // sub-directories that are looked into

// Files that are parts of an item and stand for it.
bool standsForDirectory(std::string_view name) {
    return name == orbax::kTreeMetadata || name == orbax::kStepMetadata || name == orbax::kSharding ||
           name == "manifest.ocdbt" || name == orbax::kVersion1Mark;
}

// "checkpoint_7", "flax_model.msgpack"; with a prefix that the user chose "gan_7". Streams have any names.
Probe probeFile(const Source& source) {
    const std::string& name = source.entry;
    const std::string head = startOf(*source.directory, name);
    if (orbax::isStreamStart(head))
        return {name.starts_with("streaming_") ? Probe::Match::certain : Probe::Match::possible,
                "begins as a stream of EasyLM does"};
    const bool numbered = name.find('.') == name.npos && name.back() >= '0' && name.back() <= '9';
    if (name.find("checkpoint") == name.npos && !name.ends_with(".msgpack") && !numbered) return {};
    if (!orbax::isFlaxStart(head)) return {};
    return {name.ends_with(".msgpack") ? Probe::Match::certain : Probe::Match::possible,
            "begins as a tree of Flax in MessagePack does"};
}

// A step of a manager before Orbax 0.5: nothing but directories of items. Those of a run have names with
// numbers.
Probe probeItems(const Source& source) {
    size_t looks = 0, items = 0;
    for (const DirectoryEntry& entry : source.entries) {
        if (entry.kind != DirectoryEntry::Kind::directory || entry.name.starts_with('.')) continue;
        const char last = entry.name.back();
        if ((last >= '0' && last <= '9') || entry.name.find(orbax::kUnfinished) != std::string::npos ||
            ++looks > kMostProbed)
            return {};
        const auto listed = source.directory->list(entry.name);
        if (!listed.ok()) return {};
        if (orbax::isArrayItem(*source.directory, entry.name + '/', *listed))
            ++items;
        else if (orbax::jsonOfItem(entry.name, *listed).empty())
            return {};
    }
    if (items == 0) return {};
    return {Probe::Match::possible, "has directories of Orbax items"};
}

Probe probe(const Source& source) {
    if (!source.entry.empty() && !standsForDirectory(source.entry)) return probeFile(source);
    if (orbax::isArrayItem(*source.directory, {}, source.entries))
        return {Probe::Match::certain, "has the metadata of an Orbax item"};
    if (!source.hasFile(orbax::kStepMetadata) && !source.hasFile(orbax::kVersion1Mark))
        return probeItems(source);
    if (startOf(*source.directory, orbax::kStepMetadata).starts_with('{') ||
        source.hasFile(orbax::kVersion1Mark))
        return {Probe::Match::certain, "has _CHECKPOINT_METADATA"};
    return {};
}

Result<std::unique_ptr<Reader>> open(const Source& source, const OpenOptions& options) {
    if (!source.entry.empty() && !standsForDirectory(source.entry))
        return orbax::openFlaxFile(source, options);
    return orbax::openDirectory(source, options);
}

}  // namespace

const Format& orbaxFormat() {
    static const Format format{
        .about =
            {.name = "orbax",
             .title = "Orbax (JAX: Flax, MaxText)",
             .synonyms = {"ocdbt", "flax", "maxtext", "easylm"},
             .reads = true,
             .generations =
                 {"Orbax 0.2.7 to 0.12: items, steps and run directories, zarr v2 and v3, OCDBT or files",
                  "Flax's files of MessagePack, EasyLM's streams of it"}},
        .probe = probe,
        .open = open};
    return format;
}

const Format& levanterFormat() {
    static const Format format{
        .about = {.name = "levanter",
                  .title = "Levanter (JAX)",
                  .synonyms = {"marin"},
                  .before = {{"orbax", "its database is laid out as Orbax's, with a mark of its own"}},
                  .reads = true,
                  .generations = {"a zarr 2 array for each leaf in nested directories",
                                  "zarr 3 arrays in OCDBT, with or without manifest.json"}},
        .probe = orbax::probeLevanter,
        .open = orbax::openLevanter};
    return format;
}

}  // namespace shardscope
