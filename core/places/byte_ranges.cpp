#include "places/byte_ranges.h"

#include <algorithm>
#include <iterator>

#include <nlohmann/json.hpp>

namespace shardscope {

void addRange(ByteRanges& ranges, uint64_t begin, uint64_t end) {
    auto it = ranges.upper_bound(begin);
    if (it != ranges.begin() && std::prev(it)->second >= begin) --it;
    while (it != ranges.end() && it->first <= end) {
        begin = std::min(begin, it->first);
        end = std::max(end, it->second);
        it = ranges.erase(it);
    }
    ranges[begin] = end;
}

bool covers(const ByteRanges& ranges, uint64_t begin, uint64_t end) {
    const auto it = ranges.upper_bound(begin);
    return it != ranges.begin() && std::prev(it)->second >= end;
}

nlohmann::json jsonOf(const ByteRanges& ranges) {
    nlohmann::json json = nlohmann::json::array();
    for (const auto& [begin, end] : ranges)
        json.push_back({begin, end});
    return json;
}

bool addRanges(ByteRanges& ranges, const nlohmann::json& json, uint64_t size) {
    bool good = json.is_array();
    for (size_t i = 0; good && i < json.size(); ++i) {
        const auto& range = json[i];
        good = range.is_array() && range.size() == 2 && range[0].is_number_unsigned() &&
               range[1].is_number_unsigned() && range[0] < range[1] && range[1] <= size;
        if (good) addRange(ranges, range[0], range[1]);
    }
    return good;
}

}  // namespace shardscope
