#include "formats/nanotron/nanotron.h"

#include "formats/nanotron/names.h"
#include "formats/nanotron/opener.h"

namespace shardscope {

namespace {

constexpr int kMostLooks = 16;  // directories on the way to the first parameter

bool holdsDirectory(const Source& source, std::string_view name) {
    for (const DirectoryEntry& entry : source.entries)
        if (entry.kind == DirectoryEntry::Kind::directory && entry.name == name) return true;
    return false;
}

// Goes down the first directories; one parameter says that all are of nanotron.
bool holdsParameter(const Directory& directory) {
    std::string below(nanotron::kModel);
    for (int look = 0; look < kMostLooks; ++look) {
        const auto listed = directory.list(below);
        if (!listed.ok()) return false;
        const DirectoryEntry* next = nullptr;
        for (const DirectoryEntry& entry : *listed) {
            if (look > 0 && entry.kind == DirectoryEntry::Kind::file && nanotron::parseModelFile(entry.name))
                return true;
            if (entry.kind == DirectoryEntry::Kind::directory && (!next || entry.name < next->name))
                next = &entry;
        }
        if (!next) return false;
        below = joinPath(below, next->name);
    }
    return false;
}

Probe probe(const Source& source) {
    if (!source.entry.empty() && source.entry != nanotron::kMetadata) return {};
    if (!holdsDirectory(source, nanotron::kModel)) return {};
    if (!source.hasFile(nanotron::kMetadata) && !source.hasFile(nanotron::kModelConfig) &&
        !source.hasFile("config.yaml"))
        return {};
    if (!holdsParameter(*source.directory)) return {};
    return {Probe::Match::certain, "has a file of nanotron for each parameter below 'model'"};
}

}  // namespace

const Format& nanotronFormat() {
    static const Format format{
        .about = {.name = "nanotron",
                  .title = "nanotron",
                  .reads = true,
                  .generations = {"versions 1.2 to 1.4: parameters that state their slices, ZeRO 0 and 1"},
                  .shards = true},
        .probe = probe,
        .open = nanotron::openCheckpoint};
    return format;
}

}  // namespace shardscope
