// A store of objects under keys: a bucket, a repository of the hub, a web server. It has no directories; what
// looks like one is a prefix that keys share. core/places implements the kinds of stores, and makes a
// FileSystem of each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace shardscope {

struct ObjectState {
    std::string key;         // "run/step-100/.metadata": without the place, no slash in front
    uint64_t size = 0;       // bytes
    int64_t modifiedNs = 0;  // since 1970; 0 = unknown
    std::string version;     // changes with the bytes: ETag, generation, hash; empty = the store tells none
    std::string mark;        // ObjectPlace::Put::mark, as it was written; only head() fills it
    bool operator==(const ObjectState&) const = default;
};

struct ObjectPage {
    std::vector<ObjectState> objects;   // in byte order of their keys
    std::vector<std::string> prefixes;  // of a listing of one level, with the slash at their end
    std::string next;                   // asks for the page after this one; empty = this is the last
};

// Thread-safe. Errors, all with the object as the user can name it: notFound, permission, changed (not the
// version that was asked for), remote (what the server said, after all tries), damaged (an answer that cannot
// be), cancelled.
class ObjectPlace {
  public:
    virtual ~ObjectPlace() = default;

    virtual const std::string& root() const = 0;  // "s3://bucket", as in paths
    // Whether list() works; a web server has no listings.
    virtual bool lists() const { return true; }
    // Keys that begin with `prefix`. Unless `recursive`, keys with a slash after it are listed as prefixes.
    virtual Result<ObjectPage> list(const std::string& prefix, bool recursive, const std::string& next) = 0;
    // Uploads of keys that begin with `prefix` which were neither completed nor abandoned. Bytes so far (of
    // the first ones), and when each was begun. The version is what the store calls the upload.
    virtual Result<std::vector<ObjectState>> unfinished(const std::string& prefix);
    virtual Result<ObjectState> head(const std::string& key) = 0;
    // Bytes of a request of a large read. It ends at a multiple of them, as most parts of uploads do: a range
    // of two parts costs a store more than two ranges.
    static constexpr uint64_t kRequest = uint64_t{8} << 20;
    struct Range {
        uint64_t offset = 0;
        std::span<std::byte> into;
    };
    // Fills all buffers from this very version of the object. Several transfers at a time.
    virtual Status readRanges(const ObjectState& object, std::span<const Range> ranges) = 0;
    Status read(const ObjectState& object, uint64_t offset, std::span<std::byte> buffer) {
        const Range range{offset, buffer};
        return readRanges(object, {&range, 1});
    }

    // For writing. An object is created whole or not at all, and cannot be renamed. Places that cannot be
    // written to refuse all of these.
    struct Put {
        bool onlyNew = false;  // error `exists` when the key is there; a store may ignore it
        std::string mark;      // kept with the object (ObjectState::mark); at most 256 bytes of ASCII
        uint32_t crc32c = 0;   // of the bytes; a store that checks refuses others with `damaged`
    };
    virtual Status put(const std::string& key, std::span<const std::byte> bytes, const Put& how);
    virtual Status remove(const std::string& key);  // succeeds when the key does not exist
    // An object in parts, from 1 on, of 5 MiB or more but the last one; invisible until it is completed.
    struct Part {
        unsigned number = 0;
        std::string tag;    // the ETag or name that the store gave it
        uint64_t size = 0;  // bytes; only parts() tells them
    };
    virtual Result<std::string> startUpload(const std::string& key, const Put& how);
    virtual Result<Part> putPart(const std::string& key, const std::string& upload, unsigned number,
                                 std::span<const std::byte> bytes, uint32_t crc32c);
    // The parts that an upload has, in order.
    virtual Result<std::vector<Part>> parts(const std::string& key, const std::string& upload);
    virtual Status complete(const std::string& key, const std::string& upload, std::span<const Part> parts,
                            const Put& how);
    virtual Status abandon(const std::string& key, const std::string& upload);
};

}  // namespace shardscope
