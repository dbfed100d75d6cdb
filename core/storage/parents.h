// The directories above what is to be written: made where they are not there, as `cp -r` and rsync do.
#pragma once

#include <string>
#include <vector>

#include "storage/file_system.h"

namespace shardscope {

// The nearest of the directories above `path` that is there (or what stands in its place).
std::string nearestAbove(FileSystem& files, const std::string& path);

// Makes those above `path` that are not there, and brings their names to disk. Nothing for places with a
// scheme, which have no directories. `made`, which may be null, lists those that were not there, outermost
// first. Errors: those of makeDirectory, notFound as io.
Status makeParents(FileSystem& files, const std::string& path, std::vector<std::string>* made = nullptr);

// The same on this machine. At its end those that hold nothing are removed: that is, after a failure; what
// holds the result, or work to be resumed, stays.
class Parents {
  public:
    Parents() = default;
    ~Parents();
    Parents(const Parents&) = delete;
    Parents& operator=(const Parents&) = delete;

    Status make(FileSystem& files, const std::string& path) { return makeParents(files, path, &made_); }

  private:
    std::vector<std::string> made_;
};

}  // namespace shardscope
