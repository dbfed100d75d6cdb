#include "formats/dcp/dcp.h"

#include "formats/dcp/dcp_catalog.h"
#include "formats/dcp/dcp_writer.h"

namespace shardscope {

namespace {

Format::Laid layout(const Catalog& wanted, const WriteOptions&) {
    return dcp::layoutDcp(wanted);
}

}  // namespace

const FormatOption& furtherDirectoriesOption() {
    static const FormatOption option{
        .name = std::string(dcp::kFurtherDirectories),
        .value = "DIR",
        .help =
            "A directory with further .distcp files of the same save, of hosts that have no disk in common "
            "with the one of .metadata (repeatable)",
        .title = "Further directories",
        .example = "/mnt/gpu08/step-1000",
        .repeats = true};
    return option;
}

const Format& dcpFormat() {
    static const Format format{
        .about = {.name = "dcp",
                  .title = "PyTorch distributed checkpoint (DCP)",
                  .synonyms = {"distcp", "pytorch-dcp"},
                  .suffixes = {"distcp"},
                  .options = {furtherDirectoriesOption()},
                  .reads = true,
                  .writes = true,
                  .generations = {"torch 2.0 to 2.2", "torch 2.3", "torch 2.4 to 2.8", "torch 2.9 to 2.14",
                                  "torch 2.15", "saves without collectives (__R.metadata)",
                                  "zstd-compressed entries"},
                  .shards = true,
                  .objects = true,
                  .aliases = true,
                  .nesting = true},
        .probe = dcp::probeDcp,
        .open = dcp::openDcp,
        .cannotHold = dcp::cannotHoldInDcp,
        .layout = layout};
    return format;
}

}  // namespace shardscope
