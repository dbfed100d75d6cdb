// Opening names from untrusted metadata without leaving a directory. Private to this room.
#pragma once

#include <string>
#include <string_view>

#include <sys/types.h>

#include "base/result.h"

namespace shardscope {

// An owned file descriptor.
class Descriptor {
  public:
    Descriptor() = default;
    explicit Descriptor(int fd) : fd_(fd) {}
    Descriptor(Descriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
    Descriptor& operator=(Descriptor&& other) noexcept;
    ~Descriptor();

    int get() const { return fd_; }
    bool valid() const { return fd_ >= 0; }

  private:
    int fd_ = -1;
};

// How symbolic links are resolved: by the kernel (openat2), or step by step where it lacks that call.
enum class BeneathMethod { automatic, stepwise };

// Opens `name` (already checked by checkRelativeName) below `directory`. Symbolic links may lead anywhere
// inside the directory; those that leave it fail with EXDEV or ELOOP. Returns an invalid descriptor and sets
// errno on failure.
Descriptor openBeneath(int directory, const std::string& name, int flags, mode_t mode = 0,
                       BeneathMethod method = BeneathMethod::automatic);

// Opens a file of a Hugging Face cache: `name` below a directory .../models--*/snapshots/<revision>, where it
// is a symbolic link to .../models--*/blobs/<hash>. Invalid with errno EXDEV when it is anything else.
Descriptor openCacheBlob(int directory, const std::string& name, int flags);

}  // namespace shardscope
