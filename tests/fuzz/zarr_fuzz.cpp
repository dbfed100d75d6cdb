// Any bytes as the description of a zarr array up to the first line feed, and as a chunk of it: an error, or
// as many bytes as a chunk has.
#include <algorithm>

#include "encoding/zarr_array.h"
#include "fuzz_file.h"

using namespace shardscope;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    const size_t end = std::min(bytes.find('\n'), bytes.size());
    for (const auto parse : {parseZarray, parseZarrJson}) {
        const auto array = parse(bytes.substr(0, end));
        if (!array.ok()) continue;
        Dims last = array->grid();
        bool chunks = true;
        for (int64_t& number : last)
            chunks = chunks && number-- > 0;
        if (chunks && array->chunkPlace(array->chunkName(last)) != last) __builtin_trap();
        if (array->chunkBytes() > 1 << 20) continue;
        const fuzz::BytesFile file(data, size);
        const ZarrStoredChunk stored{file, end, size - end};
        const auto place = checkZarrChunk(*array, stored);
        if (place.ok() && *place && (**place > size || array->chunkBytes() > size - **place))
            __builtin_trap();
        uint64_t made = 0;
        const Status status =
            unpackZarrChunk(*array, stored, {}, [&](std::span<const std::byte> piece) -> Status {
                made += piece.size();
                if (made > array->chunkBytes()) __builtin_trap();
                return {};
            });
        if (status.ok() && made != array->chunkBytes()) __builtin_trap();
    }
    return 0;
}
