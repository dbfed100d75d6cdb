// Opens a torch.save file, or a set of them: builds the catalog of tensors and objects.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "formats/format.h"

namespace shardscope::torch_save {

// The index that Hugging Face's libraries write beside pytorch_model-IIIII-of-NNNNN.bin (huggingface_hub,
// serialization/_torch.py): "pytorch_model.bin.index.json", "pytorch_model.bin.index.fp16.json".
bool isIndexFile(std::string_view name);
// A file of such a set: "pytorch_model-00001-of-00002.bin", "diffusion_pytorch_model-00001-of-00003.bin".
bool isNumberedFile(const DirectoryEntry& entry);

// `entry`: the file's name in the directory. Errors: as openTorchFile() and walk().
Result<std::unique_ptr<Reader>> openFile(const Source& source, const std::string& entry,
                                         const OpenOptions& options);
// The files that the index names that is the source's entry, or the one in its directory; without an index
// those that are numbered. A file that is missing or damaged is noted. Errors: those of the index.
Result<std::unique_ptr<Reader>> openSet(const Source& source, const OpenOptions& options);

}  // namespace shardscope::torch_save
