// The objects of a file or catalog, by name.
#pragma once

#include <string_view>
#include <unordered_map>

#include "model/value_view.h"

namespace shardscope {

class NamedValues {
  public:
    // `objects` have a name and a value, and must outlive this. Of several of one name the first counts.
    template <class Objects>
    explicit NamedValues(const Objects& objects) {
        for (const auto& object : objects)
            values_.try_emplace(object.name, &object.value);
    }
    // Empty where there is none of this name.
    ValueView operator[](std::string_view name) const {
        const auto it = values_.find(name);
        return it == values_.end() ? ValueView() : ValueView(*it->second);
    }

  private:
    std::unordered_map<std::string_view, const Value*> values_;
};

}  // namespace shardscope
