#include "formats/tensor_parallel/tensor_parallel.h"

#include "formats/tensor_parallel/file_names.h"
#include "formats/tensor_parallel/layout.h"
#include "formats/tensor_parallel/opener.h"
#include "formats/tp_rule.h"

namespace shardscope {

namespace {

Probe probe(const Source& source) {
    if (!source.entry.empty()) return {};
    const tensor_parallel::RankFiles found = tensor_parallel::findRankFiles(source);
    if (found.files.empty()) return {};
    return {Probe::Match::certain, "has " + found.files[0].name + ", the part of one tensor-parallel rank"};
}

Result<std::unique_ptr<Reader>> open(const Source& source, const OpenOptions& options) {
    if (!source.entry.empty())
        return unsupported("the files of all ranks are one checkpoint, this is one of them")
            .inFile(source.display)
            .withHint("name the directory that holds them");
    return tensor_parallel::openRanks(source, options);
}

}  // namespace

const Format& tensorParallelFormat() {
    static const Format format{
        .about = {.name = "tensor-parallel",
                  .title = "files of tensor-parallel ranks",
                  .synonyms = {"tensor_parallel", "vllm", "tensorrt-llm", "meta", "meta-llama2", "nxd"},
                  .before = {{"safetensors", "its files are safetensors, one for each rank"},
                             {"torch", "its files are those of torch.save, one for each rank"}},
                  .options = {tpDimOption()},
                  .reads = true,
                  .writes = true,
                  .generations = {"vLLM and SGLang sharded_state: model-rank-R-part-P.safetensors",
                                  "TensorRT-LLM: rankR.safetensors", "Meta: consolidated.RR.pth",
                                  "DeepSeek: modelR-mpN.safetensors; *-TP-RRR.safetensors",
                                  "AWS NxD: model/dp_rank_00_tp_rank_TT_pp_rank_PP.pt"},
                  .variants = tensor_parallel::writtenVariants(),
                  .models = {{"vllm", "vllm", "vllm"},
                             {"meta", "meta", "meta"},
                             {"meta-llama2", "meta-llama2", "meta"}},
                  .shards = true,
                  .replicas = true,
                  .assets = "."},
        .probe = probe,
        .open = open,
        .placing = tensor_parallel::place,
        .copies = tensor_parallel::copies,
        .cannotHold = tensor_parallel::cannotHold,
        .layout = tensor_parallel::layOut};
    return format;
}

}  // namespace shardscope
