// Which worker of a conversion writes a file, and which one has most of a tile at hand.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cluster/coordinator.h"
#include "cluster/peer_disks.h"
#include "cluster/peer_files.h"

namespace shardscope {

// The worker on whose disk a file of the destination is to be, by FileId: those that hold tensors as evenly
// as their order allows, neighbors together, as ranks are on nodes; all else with the first one.
std::vector<int> fileOwners(const ConvertJob& job, int workers);
// The same by name within the destination, for PeerDisks.
std::map<std::string, int> ownersByName(const ConvertJob& job, int workers);

// For WorkerScheduler::setHomes(). `table` and `disks` may be null, as in share(); all of it outlives what is
// returned.
WorkerScheduler::Homes homesOf(const ConvertJob& job, int workers, std::shared_ptr<const PeerTable> table,
                               std::shared_ptr<const PeerDisks> disks);

}  // namespace shardscope
