// Values in the bytes of pickle.dumps(value) of Python 3.8 to 3.13 (protocol 4). Private to this format.
#pragma once

#include <string>

#include "base/result.h"
#include "model/value.h"

namespace shardscope::olmo {

// Errors: unsupported for values that refer to something outside of them (persistent ids) and for objects
// made in ways of old protocols, limit for what is too deep.
Result<std::string> pickle4(const Value& value);

}  // namespace shardscope::olmo
