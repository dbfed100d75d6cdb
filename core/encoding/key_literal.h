// Dictionary keys that are neither text nor integers are kept as Python prints them; this reads them back.
#pragma once

#include <string_view>

#include "model/value.h"

namespace shardscope::torch_save {

// "(1, 'a')", "0.5", "True", "None", "b'x'": the value of a literal that can be a key; empty for anything
// else.
Value parseKeyLiteral(std::string_view text);

}  // namespace shardscope::torch_save
