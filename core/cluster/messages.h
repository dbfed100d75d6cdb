// What a coordinator and its workers say to each other, as agents do (hosts/agent_messages.h).
//
// clang-format off
// - worker: hello {version, protocol, host, pid}: first, unasked
// - coordinator: serve {silence, listen, token, source} and a body of two absolute paths; `source` says how
//   long the first one is. The worker listens at that address. Those who know the token may read the first path
//   and, unless it is empty, write the second. Only where files are not on file systems that all share
// - worker: serving {port}
// - coordinator: start {neighbors, silence, job, worker, device, gpu, peers, disks, request} and a body.
//   The body is the directory where the job was given, a zero byte, then the request as JSON, `request` bytes
//   long (core/engine/request.h or core/answers/reading.h; paths need not be UTF-8). PeerTable::packed() follows
//   where the source is on several disks. The worker ends when it hears nothing for `silence` seconds (0 = no
//   limit). `job` is a SharedJob, `worker` this worker's number in it, `peers` is Peers::json(). `disks` is
//   PeerDisks::diskByPeer() (empty = one file system). `device` is the worker's own GPU, `gpu` says whether that
//   makes tiles
// - worker: ready {gpu}: plan and source are the coordinator's; the UUID of its GPU
// - coordinator: group {host, port, rank, size, backend}: the worker joins that process group and writes what
//   rank 0 sends it
// - coordinator: ungroup {}: the worker leaves it at once
// - worker: grouped {}: it has left it
// - coordinator: part {id, work, part, retry}: several may be under way. `work` is "convert" or, once all of
//   that is done, "verify" or "reread"; of a job that only reads it is "read". `retry`: an earlier attempt may
//   have done some of it
// - worker: beat {bytes, busy}: every second: done so far of that work, and what threads spent their time on
// - coordinator: beat {}: for each of these, to another host
// - worker: done {id, read, moved, busy}: on disk, and in the worker's journal
// - worker: failed {id, error}: without an id when it is not one part's fault
// - coordinator: end {}: the worker ends; so it does when the stream ends
// clang-format on
#pragma once

#include "execute/part_worker.h"
#include "hosts/agent_messages.h"

namespace shardscope {

nlohmann::json sharedJobJson(const SharedJob& shared);
Result<SharedJob> sharedJobFrom(const nlohmann::json& json);

// One thing that a worker is to do.
struct PartTask {
    uint64_t id = 0;
    PartWork work = PartWork::convert;
    PartOrder order{};
};
nlohmann::json partTaskJson(const PartTask& task);
Result<PartTask> partTaskFrom(const nlohmann::json& json);

}  // namespace shardscope
