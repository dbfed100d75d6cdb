// OCDBT, TensorStore's B+tree of keys and values in files ("optionally-cooperative distributed B+tree"): the
// newest version of a database as one sorted list. Knows nothing of what the values are.
//
// Source: TensorStore, tensorstore/kvstore/ocdbt/index.rst (commit bc4fbc11f), and what TensorStore 0.1.41 to
// 0.1.86 wrote.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/stop.h"
#include "storage/file_system.h"

namespace shardscope {

inline constexpr std::string_view kOcdbtManifest = "manifest.ocdbt";

// Limits for untrusted databases.
struct OcdbtLimits {
    uint64_t nodeBytes = uint64_t{256}
                         << 20;             // of one decoded manifest or node; the file's own limit if lower
    uint64_t keyBytes = uint64_t{1} << 30;  // of all keys
    uint64_t inlineBytes = uint64_t{1} << 30;  // of all values that the tree itself holds
    uint64_t nodes = 1'000'000;
};

// Keys in ascending order, and where their values are. Immutable once read.
class OcdbtIndex {
  public:
    struct Entry {
        std::string_view key;
        // For a value in the tree, file and offset of the node that holds it.
        uint32_t file = 0;  // index into files()
        uint64_t offset = 0;
        uint64_t length = 0;  // bytes of the value
        bool inTree = false;
        std::span<const std::byte> value;  // where it is in the tree
    };
    size_t size() const { return keyEnd_.size(); }
    Entry operator[](size_t i) const;
    // Relative to the directory that the database was read in, each once.
    const std::vector<std::string>& files() const { return files_; }
    // Of the manifest and the nodes, in bytes as stored; the index of the file in files().
    struct Node {
        uint32_t file = 0;
        uint64_t offset = 0, length = 0;
    };
    const std::vector<Node>& nodes() const { return nodes_; }

  private:
    friend class OcdbtTreeReader;
    std::vector<std::string> files_;
    std::vector<Node> nodes_;
    std::string keys_;
    std::vector<uint64_t> keyEnd_;
    std::vector<uint32_t> file_;             // kInTree set: index into nodes_
    std::vector<uint64_t> offset_, length_;  // in a file, or in inline_
    std::vector<std::byte> inline_;
};

// Reads the manifest and all nodes of the newest version. `prefix` is empty, or the database's directory with
// a slash at its end. Errors: notFound (rule file.missing), damaged (integrity.crc where a checksum does not
// fit, file.truncated, meta.inconsistent), unsafe (security.path) for files that leave the directory,
// unsupported, limit; all with file and byte.
Result<OcdbtIndex> readOcdbt(const Directory& directory, const std::string& prefix, const OcdbtLimits& limits,
                             const StopToken& stop);

}  // namespace shardscope
