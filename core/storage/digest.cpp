#include "storage/digest.h"

// SHA-256 itself, and not the EVP interface: that one loads configuration and modules of the machine, which
// a static program must not.
#define OPENSSL_SUPPRESS_DEPRECATED

#include <algorithm>

#include <fmt/format.h>
#include <libdeflate.h>
#include <openssl/sha.h>
#include <xxhash.h>
#include <zlib.h>

#ifdef SHARDSCOPE_AVX2
#include "storage/digest_avx2.h"
#endif

namespace shardscope {
namespace {

void appendLittle64(std::string& out, uint64_t value) {
    for (int i = 0; i < 8; ++i)
        out += static_cast<char>(value >> (8 * i) & 0xff);
}

Digest128 fromXxh(XXH128_hash_t hash) {
    return {hash.low64, hash.high64};
}

std::string hexOf(std::span<const unsigned char> bytes) {
    std::string text;
    for (unsigned char b : bytes)
        text += fmt::format("{:02x}", b);
    return text;
}

class Sha256 final : public StreamDigest {
  public:
    Sha256() { SHA256_Init(&context_); }
    void update(std::span<const std::byte> bytes) override {
        SHA256_Update(&context_, bytes.data(), bytes.size());
    }

    std::string hex() override {
        unsigned char out[SHA256_DIGEST_LENGTH];
        SHA256_Final(out, &context_);
        return hexOf(out);
    }

  private:
    SHA256_CTX context_;
};

class Crc32 final : public StreamDigest {
  public:
    void update(std::span<const std::byte> bytes) override { crc_ = crc32Continue(crc_, bytes); }
    std::string hex() override { return fmt::format("{:08x}", crc_); }

  private:
    uint32_t crc_ = 0;
};

}  // namespace

int64_t digestCellElements(DType dtype) {
    if (dtypeIsWholeBytes(dtype)) return static_cast<int64_t>(kDigestCellBytes / dtypeBytes(dtype));
    return static_cast<int64_t>(kDigestCellBytes * 8 / dtypeBits(dtype) / 4 * 4);
}

std::string Digest128::hex() const {
    return fmt::format("{:016x}{:016x}", high, low);
}

Digest128 cellDigest(std::span<const std::byte> bytes) {
#ifdef SHARDSCOPE_AVX2
    static const bool hasAvx2 = __builtin_cpu_supports("avx2");
    if (hasAvx2) {
        Digest128 digest;
        xxh3WithAvx2(bytes.data(), bytes.size(), digest.low, digest.high);
        return digest;
    }
#endif
    return fromXxh(XXH3_128bits(bytes.data(), bytes.size()));
}

Digest128 tensorDigest(DType dtype, DimSpan shape, std::span<const Digest128> cells) {
    std::string head(dtypeName(dtype));
    appendLittle64(head, shape.size());
    for (int64_t dim : shape)
        appendLittle64(head, static_cast<uint64_t>(dim));
    XXH3_state_t* state = XXH3_createState();
    XXH3_128bits_reset(state);
    XXH3_128bits_update(state, head.data(), head.size());
    std::string block;
    for (size_t i = 0; i < cells.size();) {
        block.clear();
        for (const size_t stop = std::min(cells.size(), i + 4096); i < stop; ++i) {
            appendLittle64(block, cells[i].low);
            appendLittle64(block, cells[i].high);
        }
        XXH3_128bits_update(state, block.data(), block.size());
    }
    const Digest128 digest = fromXxh(XXH3_128bits_digest(state));
    XXH3_freeState(state);
    return digest;
}

std::unique_ptr<StreamDigest> makeSha256() {
    return std::make_unique<Sha256>();
}
std::unique_ptr<StreamDigest> makeCrc32() {
    return std::make_unique<Crc32>();
}

uint32_t crc32Of(std::span<const std::byte> bytes) {
    return crc32Continue(0, bytes);
}

uint32_t crc32Continue(uint32_t crc, std::span<const std::byte> bytes) {
    // A null pointer means "start over" to the library.
    return bytes.empty() ? crc : libdeflate_crc32(crc, bytes.data(), bytes.size());
}

uint32_t crc32Combine(uint32_t first, uint32_t second, uint64_t secondLength) {
    return static_cast<uint32_t>(::crc32_combine64(first, second, static_cast<z_off64_t>(secondLength)));
}

}  // namespace shardscope
