#include "encoding/text_table.h"

#include <xxhash.h>

namespace shardscope {

TextTable::TextTable() {
    ends_.push_back(0);
    slots_.resize(256);
}

TextId TextTable::intern(std::string_view text) {
    const size_t mask = slots_.size() - 1;
    size_t slot = XXH3_64bits(text.data(), text.size()) & mask;
    while (slots_[slot]) {
        const TextId id = slots_[slot] - 1;
        if ((*this)[id] == text) return id;
        slot = (slot + 1) & mask;
    }
    const auto id = static_cast<TextId>(size());
    bytes_ += text;
    ends_.push_back(bytes_.size());
    slots_[slot] = id + 1;
    if (size() * 2 > slots_.size()) grow();
    return id;
}

void TextTable::grow() {
    std::vector<uint32_t> bigger(slots_.size() * 4);
    const size_t mask = bigger.size() - 1;
    for (TextId id = 0; id < size(); ++id) {
        const std::string_view text = (*this)[id];
        size_t slot = XXH3_64bits(text.data(), text.size()) & mask;
        while (bigger[slot])
            slot = (slot + 1) & mask;
        bigger[slot] = id + 1;
    }
    slots_ = std::move(bigger);
}

}  // namespace shardscope
