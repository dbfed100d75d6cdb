// Files that hold what another rank or another save wrote. Private to this room.
#pragma once

#include <vector>

#include "base/mutex.h"
#include "base/stop.h"
#include "engine/engine.h"

namespace shardscope {

// What exchangedFileNotes() found, for the reader that it looked at. Copies of a checkpoint share it.
struct ExchangedFiles {
    Mutex mutex;
    std::shared_ptr<const Reader> reader SHARDSCOPE_GUARDED_BY(mutex);
    std::vector<Note> notes SHARDSCOPE_GUARDED_BY(mutex);
};

// Copies of other files (expectation/copied_files.h), and files whose 16-bit weights are not what their fp32
// masters round to. Optimizers round the masters to the weights after each step. Where the values of a file
// have nothing to do with those of the other side, it was exchanged with that of another rank, or is of
// another save. Reads some hundred elements of each file that holds weights or masters, at most some
// thousands of files, once for a checkpoint. Errors: cancelled.
Result<std::vector<Note>> exchangedFileNotes(const Checkpoint& checkpoint, const StopToken& stop);

// Files whose weights are near to those of another file of their kind and size in an earlier step, and far
// from their own there. Which of the two steps is wrong one earlier step cannot tell. Reads some thousand
// elements of each file. Errors: cancelled.
bool mayBeExchanged(const Catalog& catalog);  // there are such files
Result<std::vector<Note>> exchangedSinceNotes(const Reader& reader, const Reader& earlier,
                                              const std::string& step, const StopToken& stop);

}  // namespace shardscope
