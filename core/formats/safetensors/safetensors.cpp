#include "formats/safetensors/safetensors.h"

#include <algorithm>

#include <fmt/format.h>

#include "formats/safetensors/layout.h"
#include "formats/safetensors/reader.h"
#include "formats/tensor_files.h"

namespace shardscope {

namespace {

class SafetensorsFormat final : public Format {
  public:
    SafetensorsFormat() {
        info_.name = "safetensors";
        info_.title = "safetensors (Hugging Face)";
        info_.synonyms = {"hf", "huggingface"};
        info_.suffixes = {"safetensors"};
        info_.fileVariant = "single";
        info_.reads = true;
        info_.writes = true;
        info_.generations = {"one file", "several files with *.safetensors.index.json",
                             "several files without an index",
                             "torch HuggingFaceStorageWriter, sharded over ranks (DCP_SHARDING_INFO)"};
        info_.variants = {"single", "sharded", "dcp-sharded"};
        info_.wholeByDefault = true;
        info_.assets = ".";
        info_.shards = true;
    }

    Probe probe(const Source& source) const override {
        if (!source.entry.empty()) return probeFile(source);
        size_t tensorFiles = 0;
        bool dcp = false;
        bool sharded = false;
        for (const DirectoryEntry& entry : source.entries) {
            if (entry.kind == DirectoryEntry::Kind::directory) sharded |= entry.name == "sharded";
            if (entry.kind != DirectoryEntry::Kind::file) continue;
            dcp |= entry.name == ".metadata";
            if (safetensors::isIndexFile(entry.name))
                return {dcp ? Probe::Match::possible : Probe::Match::certain, "has " + entry.name};
            tensorFiles += safetensors::isTensorFile(entry.name);
        }
        if (tensorFiles > 0) {
            return {dcp ? Probe::Match::possible : Probe::Match::certain,
                    fmt::format("has {} .safetensors files", tensorFiles)};
        }
        if (sharded && !dcp) {
            if (const auto inside = source.directory->list("sharded"); inside.ok()) {
                for (const DirectoryEntry& entry : *inside) {
                    if (safetensors::isTensorFile(entry.name))
                        return {Probe::Match::possible, "has sharded/" + entry.name};
                }
            }
        }
        return {};
    }

    Result<std::unique_ptr<Reader>> open(const Source& source, const OpenOptions& options) const override {
        return safetensors::openCheckpoint(source, options);
    }

    std::vector<LeftOut> cannotHold(const Catalog& wanted, const WriteOptions& options) const override {
        return safetensors::cannotHold(wanted, options);
    }

    Result<std::unique_ptr<TargetLayout>> layout(const Catalog& wanted,
                                                 const WriteOptions& options) const override {
        return safetensors::makeLayout(wanted, options);
    }

  private:
    static Probe probeFile(const Source& source) {
        if (safetensors::isIndexFile(source.entry)) return {Probe::Match::certain, "is a safetensors index"};
        // Files in a cache have no telling name: a length that fits, then a JSON object.
        const auto file = source.directory->openFile(source.entry);
        if (file.ok() && isSafetensorsStart(**file))
            return {Probe::Match::certain, "starts with a safetensors header"};
        if (safetensors::isTensorFile(source.entry)) return {Probe::Match::possible, "is named .safetensors"};
        return {};
    }
};

}  // namespace

const Format& safetensorsFormat() {
    static const SafetensorsFormat format;
    return format;
}

}  // namespace shardscope
