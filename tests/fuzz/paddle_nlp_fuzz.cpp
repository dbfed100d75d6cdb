// Any bytes as model_meta.json, config.json and indexes, and as the files of ranks: an error, or a catalog
// whose chunks lie inside their files.
#include "formats/paddle_nlp/model_meta.h"
#include "formats/paddle_nlp/names.h"
#include "formats/paddle_nlp/paddle_nlp.h"
#include "fuzz_reader.h"

using namespace shardscope;

namespace {

void visit(const Source& source) {
    (void)fuzz::tryOpen(paddleNlpFormat(), source);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    (void)paddle_nlp::parseModelMeta(text);
    (void)paddle_nlp::parseShardMeta(text);
    (void)paddle_nlp::parseUnifiedIndex(text);
    (void)paddle_nlp::parseRankFileName(text);
    (void)paddle_nlp::parseUnifiedFileName(text);
    Source source;
    source.directory = std::make_shared<fuzz::BytesDirectory>(std::make_shared<fuzz::BytesFile>(data, size));
    source.fileSystem = systemFileSystem();
    const auto file = [&](const char* name) {
        source.entries.push_back({name, DirectoryEntry::Kind::file, size});
    };
    // Every file of the checkpoint has the same bytes: ranks, with and without the metadata; then
    // safetensors.
    for (const char* name :
         {"model_state.tp00.pdparams", "model_state.tp01.pdparams", "optimizer.tp00_shard00.pdopt",
          "optimizer.tp00_shard01.pdopt", "optimizer.tp01_shard00.pdopt", "optimizer.tp01_shard01.pdopt"})
        file(name);
    visit(source);
    file("model_meta.json");
    visit(source);
    source.entries.clear();
    file("model-00001-of-00001.safetensors");
    file("optimizer.tp00_pp00.safetensors");
    file("optimizer.tp01_pp00.safetensors");
    visit(source);
    return 0;
}
