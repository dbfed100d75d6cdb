// A string that nobody may see: a key, token or signature. A Secret has no text form, so that no log,
// message, record or JSON can hold one by mistake. reveal() is for what is signed and sent. The destructor
// overwrites the bytes.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace shardscope {

class Secret {
  public:
    Secret() = default;
    explicit Secret(std::string bytes) : bytes_(std::move(bytes)) {}
    Secret(const Secret&) = default;
    Secret(Secret&&) = default;
    Secret& operator=(const Secret&) = default;
    Secret& operator=(Secret&&) = default;
    ~Secret() {
        for (volatile char& c : bytes_)
            c = 0;
    }

    bool empty() const { return bytes_.empty(); }
    const std::string& reveal() const { return bytes_; }

  private:
    std::string bytes_;
};

}  // namespace shardscope
