// What there is to say of one file of a checkpoint, for window, page and command line alike.
#pragma once

#include <string>

#include "survey/facts.h"

namespace shardscope {

// Bytes that chunks and objects claim beyond its end.
uint64_t missingTail(const FileInfo& file, const FileFacts& facts);
// `facts` may be null: not known yet.
Health fileHealth(const FileInfo& file, const FileFacts* facts);
// "ok", "missing", "truncated by 2.10 MiB", "metadata", "not referenced", ...; empty while nothing is known.
std::string fileStateText(const FileInfo& file, const FileFacts* facts);

}  // namespace shardscope
