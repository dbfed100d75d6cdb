// Instances of classes in a pickle, as dataclasses are written: cls.__new__(cls), then the attributes as a
// dict.
#pragma once

#include <string_view>

#include "encoding/pickle.h"

namespace shardscope {

// Names and values of the attributes follow, then endInstance().
inline void beginInstance(PickleWriter& out, std::string_view module, std::string_view cls) {
    out.memoGlobal(module, cls);
    out.emptyTuple();
    out.newObject();
    out.emptyDict();
    out.mark();
}
inline void endInstance(PickleWriter& out) {
    out.setItems();
    out.build();
}

}  // namespace shardscope
