// The keys of OLMo's safetensors files: the base64 of a pickled ((part, part, ...), whether the value is
// pickled).
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "model/path.h"

namespace shardscope::olmo {

struct Key {
    Path path;
    bool pickled = false;  // the value is a pickle in a U8 tensor
};

// Whether a name looks like one; decodeKey() says whether it is.
bool looksLikeKey(std::string_view name);

// Pickle protocols 2 to 5. Errors: damaged for other bytes, and for a pickle that names a class or function
// (rule security.global) or has another form.
Result<Key> decodeKey(std::string_view name);

// As OLMo writes it under Python 3.8 to 3.13. Errors: unsupported for a part that cannot be read back.
Result<std::string> encodeKey(const Path& path, bool pickled);

}  // namespace shardscope::olmo
