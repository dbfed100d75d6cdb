// What jobs that never ended have left in a bucket, and its removal. Objects that a checkpoint may be made of
// are never removed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "storage/object_place.h"

namespace shardscope {

struct Leftover {
    std::string path;        // "s3://bucket/run/step-100/model.safetensors"
    std::string upload;      // what the store calls the multipart upload; empty = an object
    uint64_t bytes = 0;      // 0 = none, or not known
    int64_t modifiedNs = 0;  // since 1970: when an upload was begun or an object was written; 0 = unknown
};

class Leftovers {
  public:
    // Asks the store for what is at `path` in a bucket, below it and in its staging directory. These are all
    // multipart uploads that are neither complete nor ended, by whatever program, and all objects below
    // ".NAME.shardscope-partial". Errors: usage (not in a bucket), those of the place.
    static Result<Leftovers> below(const std::string& path);

    // Claims come last, so that no other job begins before all else of one is gone.
    const std::vector<Leftover>& all() const { return all_; }
    // Succeeds where it is gone already. Errors: those of the place.
    Status remove(const Leftover& leftover) const;

  private:
    std::shared_ptr<ObjectPlace> place_;
    std::vector<Leftover> all_;
};

}  // namespace shardscope
