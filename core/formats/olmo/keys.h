// Decodes and encodes the keys of OLMo's safetensors files: base64 of the pickled tuple ((part, part, ...),
// is_pickled).
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

// Whether a name looks like a key; only decodeKey() proves it.
bool looksLikeKey(std::string_view name);

// Pickle protocols 2 to 5. Errors: damaged for other bytes, for a pickle of another form, and for one that
// names a class or function (rule security.global).
Result<Key> decodeKey(std::string_view name);

// The key as OLMo writes it under Python 3.8 to 3.13. Errors: unsupported for a part that cannot be read
// back.
Result<std::string> encodeKey(const Path& path, bool pickled);

}  // namespace shardscope::olmo
