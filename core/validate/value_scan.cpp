// A reading of values as bytes: magic, version, what the catalog must be like, then what is known of each
// chunk that is done, then what was found, then a digest of all of it. Numbers are seven bits a byte, lowest
// first.
#include "validate/value_scan.h"

#include <algorithm>
#include <cstring>

namespace shardscope {
namespace {

constexpr std::string_view kMagic = "shardscope.scan/4\n";
constexpr size_t kDigestBytes = 16;

enum Flag : uint8_t {
    any = 1,
    uniform = 2,
    noChecksum = 4,
    nan = 8,
    inf = 16,
    zero = 32,
    replica = 64,
    done = 128
};

class Writer {
  public:
    std::string bytes{kMagic};
    void byte(uint8_t value) { bytes.push_back(static_cast<char>(value)); }
    void number(uint64_t value) {
        for (; value > 127; value >>= 7)
            byte(static_cast<uint8_t>(value | 128));
        byte(static_cast<uint8_t>(value));
    }
    void text(std::string_view value) {
        number(value.size());
        bytes += value;
    }
    void raw(const void* data, size_t size) { bytes.append(static_cast<const char*>(data), size); }
    void digest(const Digest128& d) {
        for (const uint64_t half : {d.low, d.high}) {
            for (int shift = 0; shift < 64; shift += 8)
                byte(static_cast<uint8_t>(half >> shift));
        }
    }
};

// Reads nothing past the end: then all values are 0 and ok() is false.
class Parser {
  public:
    explicit Parser(std::string_view bytes) : rest_(bytes) {}
    bool ok() const { return ok_; }
    bool atEnd() const { return ok_ && rest_.empty(); }
    uint8_t byte() {
        if (rest_.empty()) ok_ = false;
        if (!ok_) return 0;
        const auto value = static_cast<uint8_t>(rest_[0]);
        rest_.remove_prefix(1);
        return value;
    }
    uint64_t number() {
        uint64_t value = 0;
        for (int shift = 0; shift < 64; shift += 7) {
            const uint8_t b = byte();
            value |= static_cast<uint64_t>(b & 127) << shift;
            if (!(b & 128)) return value;
        }
        ok_ = false;
        return 0;
    }
    // How many things of at least one byte each follow.
    uint64_t count() {
        const uint64_t n = number();
        if (n > rest_.size()) ok_ = false;
        return ok_ ? n : 0;
    }
    std::string text() {
        const uint64_t size = count();
        std::string value(rest_.substr(0, size));
        rest_.remove_prefix(size);
        return value;
    }
    void raw(void* data, size_t size) {
        if (rest_.size() < size) ok_ = false;
        if (!ok_) return;
        std::memcpy(data, rest_.data(), size);
        rest_.remove_prefix(size);
    }
    Digest128 digest() {
        Digest128 d;
        for (uint64_t* half : {&d.low, &d.high}) {
            for (int shift = 0; shift < 64; shift += 8)
                *half |= static_cast<uint64_t>(byte()) << shift;
        }
        return d;
    }

  private:
    std::string_view rest_;
    bool ok_ = true;
};

void writeDims(Writer& out, DimSpan dims) {
    out.number(dims.size());
    for (const int64_t d : dims)
        out.number(static_cast<uint64_t>(d));
}

Dims readDims(Parser& in) {
    Dims dims;
    for (uint64_t n = in.count(); n > 0 && in.ok(); --n)
        dims.push_back(static_cast<int64_t>(in.number()));
    return dims;
}

void writeExample(Writer& out, const FindingExample& example) {
    out.text(example.tensor);
    out.number(example.rank);
    out.text(example.file);
    out.byte(static_cast<uint8_t>((example.offset ? 1 : 0) | (example.box ? 2 : 0)));
    if (example.offset) out.number(*example.offset);
    if (example.box) {
        writeDims(out, example.box->offsets);
        writeDims(out, example.box->lengths);
    }
    out.text(example.detail);
}

FindingExample readExample(Parser& in) {
    FindingExample example;
    example.tensor = in.text();
    example.rank = static_cast<uint32_t>(in.number());
    example.file = in.text();
    const uint8_t has = in.byte();
    if (has & 1) example.offset = in.number();
    if (has & 2) {
        example.box.emplace();
        example.box->offsets = readDims(in);
        example.box->lengths = readDims(in);
    }
    example.detail = in.text();
    return example;
}

void writePattern(Writer& out, const ValuePattern& seen, int more) {
    const ValueCounts& n = seen.counts;
    const auto flag = [](bool on, Flag f) { return on ? f : 0; };
    out.byte(static_cast<uint8_t>(more | flag(seen.any, Flag::any) |
                                  flag(seen.any && seen.uniform, Flag::uniform) |
                                  flag(seen.noChecksum, Flag::noChecksum) | flag(n.nan > 0, Flag::nan) |
                                  flag(n.inf > 0, Flag::inf) | flag(n.zero > 0, Flag::zero)));
    if (seen.any) out.number(n.elements);
    if (seen.any) out.number(seen.negative);
    if (seen.any) out.number(seen.lost.count);
    if (seen.lost.count > 0) out.number(seen.lost.first);
    if (n.nan > 0) out.number(n.nan);
    if (n.inf > 0) out.number(n.inf);
    if (n.zero > 0) out.number(n.zero);
    if (seen.any && seen.uniform) out.raw(seen.first.data(), seen.first.size());
}

void readPattern(Parser& in, uint8_t flags, ValuePattern& seen) {
    seen.any = flags & Flag::any;
    seen.uniform = !seen.any || (flags & Flag::uniform);
    seen.noChecksum = flags & Flag::noChecksum;
    if (flags & Flag::any) seen.counts.elements = in.number();
    if (flags & Flag::any) seen.negative = in.number();
    if (flags & Flag::any) seen.lost.count = in.number();
    if (seen.lost.count > 0) seen.lost.first = in.number();
    if (flags & Flag::nan) seen.counts.nan = in.number();
    if (flags & Flag::inf) seen.counts.inf = in.number();
    if (flags & Flag::zero) seen.counts.zero = in.number();
    if (flags & Flag::uniform) in.raw(seen.first.data(), seen.first.size());
}

Digest128 digestOf(std::string_view bytes) {
    return cellDigest(std::as_bytes(std::span(bytes.data(), bytes.size())));
}

Error unusable(std::string_view why) {
    return damaged("cannot resume the saved value scan: " + std::string(why));
}

}  // namespace

ValueScan::ValueScan() : state_(std::make_unique<State>()) {}
ValueScan::~ValueScan() = default;
uint64_t ValueScan::chunksRead() const {
    return state_->doneCount;
}
uint64_t ValueScan::chunks() const {
    return state_->chunks;
}

std::string ValueScan::save() const {
    State& s = *state_;
    std::lock_guard lock(s.mutex);
    Writer out;
    const uint64_t chunks = s.chunks.load(std::memory_order_acquire);
    out.number(chunks);
    std::vector<bool> kept(chunks);
    for (ChunkId c = 0; c < chunks; ++c) {
        kept[c] = s.isDone(c);
        if (!kept[c]) {
            out.byte(0);
            continue;
        }
        ValuePattern seen;
        if (s.readAnew.contains(c))
            seen.noChecksum = s.seen[c].noChecksum;
        else
            seen = s.seen[c];
        const auto digest = s.digests.find(c);
        writePattern(out, seen, Flag::done | (digest != s.digests.end() ? Flag::replica : 0));
        if (digest != s.digests.end()) out.digest(digest->second);
    }
    out.number(s.strided.size());
    for (const TensorId t : s.strided)
        out.number(t);
    const auto summed = [&](const auto& entry) { return entry.second < chunks && kept[entry.second]; };
    out.number(static_cast<uint64_t>(std::count_if(s.summed.begin(), s.summed.end(), summed)));
    for (const auto& entry : s.summed) {
        if (!summed(entry)) continue;
        out.text(entry.first.first);
        out.number(entry.first.second);
        out.number(entry.second);
    }
    const auto found = [&](const Recorded& r) { return r.chunk < chunks && kept[r.chunk]; };
    out.number(static_cast<uint64_t>(std::count_if(s.recorded.begin(), s.recorded.end(), found)));
    for (const Recorded& r : s.recorded) {
        if (!found(r)) continue;
        out.number(r.chunk);
        for (const std::string* text : {&r.rule, &r.cause, &r.message})
            out.text(*text);
        writeExample(out, r.example);
        out.text(r.storage);
    }
    out.digest(digestOf(out.bytes));
    return std::move(out.bytes);
}

Result<std::shared_ptr<ValueScan>> ValueScan::restore(std::string_view bytes, const Catalog& catalog) {
    if (!bytes.starts_with(kMagic)) return unusable("it is of another version");
    if (bytes.size() < kMagic.size() + kDigestBytes) return unusable("it is truncated");
    const std::string_view body = bytes.substr(0, bytes.size() - kDigestBytes);
    if (Parser(bytes.substr(body.size())).digest() != digestOf(body)) return unusable("it was altered");
    Parser in(body.substr(kMagic.size()));
    if (in.number() != catalog.chunkCount()) return unusable("it is of another checkpoint");
    auto scan = std::make_shared<ValueScan>();
    State& s = *scan->state_;
    s.begin(catalog.chunkCount());
    for (ChunkId c = 0; c < catalog.chunkCount() && in.ok(); ++c) {
        const uint8_t flags = in.byte();
        if (!(flags & Flag::done)) continue;
        readPattern(in, flags, s.seen[c]);
        if (flags & Flag::replica) s.digests[c] = in.digest();
        s.setDone(c);
    }
    for (uint64_t n = in.count(); n > 0 && in.ok(); --n) {
        const uint64_t t = in.number();
        if (t >= catalog.tensorCount()) return unusable("it is of another checkpoint");
        s.strided.insert(static_cast<TensorId>(t));
        s.readAnew.insert(catalog.firstChunk(static_cast<TensorId>(t)));
    }
    const auto chunk = [&] { return static_cast<ChunkId>(std::min<uint64_t>(in.number(), kNone)); };
    for (uint64_t n = in.count(); n > 0 && in.ok(); --n) {
        std::string file = in.text();
        const uint64_t offset = in.number();
        s.summed[{std::move(file), offset}] = chunk();
    }
    for (uint64_t n = in.count(); n > 0 && in.ok(); --n) {
        Recorded r;
        r.chunk = chunk();
        for (std::string* text : {&r.rule, &r.cause, &r.message})
            *text = in.text();
        r.example = readExample(in);
        r.storage = in.text();
        s.recorded.push_back(std::move(r));
    }
    if (!in.atEnd()) return unusable("its contents do not fit");
    return scan;
}

std::string packSegment(const SeenSegment& segment) {
    Writer out;
    out.bytes.clear();
    writePattern(out, segment.seen, 0);
    out.number(segment.crc);
    out.number(segment.pieces.size());
    for (const Digest128& piece : segment.pieces)
        out.digest(piece);
    return std::move(out.bytes);
}

std::optional<SeenSegment> unpackSegment(std::string_view bytes) {
    Parser in(bytes);
    SeenSegment segment;
    readPattern(in, in.byte(), segment.seen);
    segment.crc = static_cast<uint32_t>(in.number());
    for (uint64_t n = in.count(); n > 0 && in.ok(); --n)
        segment.pieces.push_back(in.digest());
    return in.atEnd() ? std::optional(std::move(segment)) : std::nullopt;
}

}  // namespace shardscope
