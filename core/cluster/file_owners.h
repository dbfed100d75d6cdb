// Which worker of a conversion writes a file, and which one has most of a tile at hand.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cluster/peer_disks.h"
#include "cluster/peer_files.h"
#include "execute/part_worker.h"

namespace shardscope {

// For each FileId the worker that has the file of the destination on its disk. Files with tensors are spread
// evenly in their order, so that neighbors are together, as ranks are on nodes. All others are with the first
// worker.
std::vector<int> fileOwners(const ConvertJob& job, int workers);
// The same by name within the destination, for PeerDisks.
std::map<std::string, int> ownersByName(const ConvertJob& job, int workers);

// Which worker has most of a tile at hand. `table` says who has which file of the source (null = all),
// `disks` where files of the destination are (PeerDisks::diskByPeer(); empty = on one file system). `job`
// outlives it.
TileHomes homesOf(const ConvertJob& job, int workers, std::shared_ptr<const PeerTable> table,
                  std::vector<int> disks);

}  // namespace shardscope
