// Checksums of files that a framework writes beside them.
#pragma once

#include <memory>
#include <vector>

#include "base/stop.h"
#include "base/thread_pool.h"
#include "expectation/contract.h"

namespace shardscope {

constexpr char kIntegrityFile[] = "integrity.json";

// integrity.json of Megatron-Core (--save-integrity, megatron/core/dist_checkpointing/validation.py):
// {"algorithm": "sha256", "files": {NAME: HEX}}. Reads every file that it names, each by one thread.
// `directory` is the one that holds it. No notes where there is none. Errors: cancelled.
Result<std::vector<Note>> integrityNotes(const std::shared_ptr<const Directory>& directory, ThreadPool& pool,
                                         const StopToken& stop);

}  // namespace shardscope
