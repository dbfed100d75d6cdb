// Any bytes as every file of a tag. An error, or a catalog whose chunks lie inside their file.
#include "formats/deepspeed/deepspeed.h"
#include "fuzz_reader.h"

using namespace shardscope;

namespace {

void tryOpen(const std::shared_ptr<const ReadFile>& file, const std::vector<std::string>& names) {
    Source source;
    source.directory = std::make_shared<fuzz::BytesDirectory>(file);
    for (const std::string& name : names)
        source.entries.push_back({name, DirectoryEntry::Kind::file, file->size()});
    source.fileSystem = systemFileSystem();
    const auto reader = fuzz::tryOpen(deepspeedFormat(), source);
    if (!reader) return;
    (void)reader->fileNotes();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const auto file = std::make_shared<fuzz::BytesFile>(data, size);
    tryOpen(file, {"mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt",
                   "zero_pp_rank_1_mp_rank_00_optim_states.pt"});
    tryOpen(file, {"zero_pp_rank_0_mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt"});
    tryOpen(file, {"layer_00-model_00-model_states.pt", "layer_0_expert_0_mp_rank_00_model_states.pt",
                   "mp_rank_00_model_states.pt", "mp_rank_01_model_states.pt"});
    return 0;
}
