// Parses the names of ColossalAI's files. Private to this format.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace shardscope::colossalai {

constexpr std::string_view kMetaPrefix = "pytorch_model-meta-dist-";

// "pytorch_model-meta-dist-00003.json" -> 3, also with ".index.json".
std::optional<uint32_t> metaFileId(std::string_view name);
// "model-dist-00003-shard-00001.safetensors", "pytorch_model.ema-dist-00003.bin" -> 3.
std::optional<uint32_t> weightFileId(std::string_view name);
// The name of the same file with another rank's id.
std::string withId(std::string_view name, uint32_t from, uint32_t to);

// An index of a gathered checkpoint, and what it lists.
enum class IndexKind : uint8_t { none, model, optimizer };
IndexKind indexKind(std::string_view name);
// "model-00001.safetensors", "pytorch_model-stage-00001-shard-00002.bin": numbered, but without the total
// that Hugging Face adds.
bool isNumberedShard(std::string_view name);
// The index that lists such a file, where the name tells that ColossalAI wrote it; else none.
IndexKind indexOfShard(std::string_view name);
// "pytorch_optim.bin", "optimizer.safetensors", "pytorch_optim.ema.bin".
bool isWholeOptimizer(std::string_view name);

}  // namespace shardscope::colossalai
