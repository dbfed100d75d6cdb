// Any bytes: an error, or a graph that can be shown, copied and written, and reads back as the same text.
#include <cstdint>
#include <cstdlib>

#include "encoding/pickle.h"

using namespace shardscope;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    auto pickle = decodePickle({reinterpret_cast<const std::byte*>(data), size});
    if (!pickle.ok()) return 0;
    const Value value = makeValue(std::move(pickle->graph), pickle->root);
    const std::string shown = valueRepr(value, 2000);
    (void)valueToJson(value, 1000);
    (void)valueKindName(value);
    ValueGraph copy;
    (void)copyValue(value, copy, 10'000);
    (void)forEachGlobal(
        value, [](std::string_view, std::string_view) {}, 10'000);
    const auto written = encodePickle(value);
    if (!written.ok()) return 0;
    auto again = decodePickle(std::as_bytes(std::span(*written)));
    if (!again.ok() && again.error().code != ErrorCode::limit) std::abort();
    return 0;
}
