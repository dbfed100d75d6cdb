// Distinct strings of metadata, without an allocation for each.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shardscope {

using TextId = uint32_t;

// Distinct strings, numbered in order of appearance.
class TextTable {
  public:
    TextTable();
    TextId intern(std::string_view text);
    std::string_view operator[](TextId id) const {
        return std::string_view(bytes_).substr(ends_[id], ends_[id + 1] - ends_[id]);
    }
    size_t size() const { return ends_.size() - 1; }

  private:
    void grow();
    std::string bytes_;
    std::vector<uint64_t> ends_;   // ends_[0] = 0
    std::vector<uint32_t> slots_;  // open addressing, id + 1
};

}  // namespace shardscope
