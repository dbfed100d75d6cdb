#include "places/sigv4.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "places/http.h"
#include "storage/digest.h"

namespace shardscope {
namespace {

using Headers = std::vector<std::pair<std::string, std::string>>;

std::string hex(std::string_view bytes) {
    std::string out;
    for (const char c : bytes)
        out += fmt::format("{:02x}", static_cast<unsigned char>(c));
    return out;
}

// Names in lower case and sorted, values trimmed, runs of blanks as one.
Headers canonicalHeaders(const Headers& headers) {
    Headers out;
    for (const auto& [name, value] : headers) {
        std::string low = name, plain;
        for (char& c : low)
            c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
        for (const char c : value) {
            if (c != ' ' || (!plain.empty() && plain.back() != ' ')) plain += c;
        }
        if (plain.ends_with(' ')) plain.pop_back();
        out.emplace_back(std::move(low), std::move(plain));
    }
    std::sort(out.begin(), out.end());
    return out;
}

std::string signedNames(const Headers& canonical) {
    std::string names;
    for (const auto& [name, value] : canonical)
        names += (names.empty() ? "" : ";") + name;
    return names;
}

std::string scopeOf(const SigningKey& key, std::string_view time) {
    return fmt::format("{}/{}/{}/aws4_request", time.substr(0, 8), key.region, key.service);
}

}  // namespace

std::string base64(std::string_view bytes) {
    std::string out(4 * ((bytes.size() + 2) / 3) + 1, '\0');
    const int size =
        EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                        reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<int>(bytes.size()));
    out.resize(static_cast<size_t>(size));
    return out;
}

std::string sha256Hex(std::string_view bytes) {
    const auto digest = makeSha256();
    digest->update(std::as_bytes(std::span(bytes)));
    return digest->hex();
}

std::string hmacSha256(std::string_view key, std::string_view bytes) {
    std::array<unsigned char, 32> digest{};
    unsigned size = digest.size();
    HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
         reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data(), &size);
    return {reinterpret_cast<const char*>(digest.data()), size};
}

std::string canonicalQuery(Headers query) {
    for (auto& [name, value] : query) {
        name = percentEncoded(name);
        value = percentEncoded(value);
    }
    std::sort(query.begin(), query.end());
    std::string text;
    for (const auto& [name, value] : query)
        text += (text.empty() ? "" : "&") + name + "=" + value;
    return text;
}

std::string canonicalRequest(const SignedParts& parts) {
    const Headers headers = canonicalHeaders(parts.headers);
    std::string text = parts.method + "\n" + parts.path + "\n" + parts.query + "\n";
    for (const auto& [name, value] : headers)
        text += name + ":" + value + "\n";
    return text + "\n" + signedNames(headers) + "\n" + parts.payload;
}

std::string signatureOf(const SignedParts& parts, const SigningKey& key, std::string_view time) {
    const std::string text = fmt::format("AWS4-HMAC-SHA256\n{}\n{}\n{}", time, scopeOf(key, time),
                                         sha256Hex(canonicalRequest(parts)));
    const std::string day = hmacSha256("AWS4" + key.key.reveal(), time.substr(0, 8));
    const std::string region = hmacSha256(day, key.region);
    const std::string service = hmacSha256(region, key.service);
    return hex(hmacSha256(hmacSha256(service, "aws4_request"), text));
}

std::string authorization(const SignedParts& parts, const SigningKey& key, std::string_view time) {
    return fmt::format("AWS4-HMAC-SHA256 Credential={}/{}, SignedHeaders={}, Signature={}", key.keyId,
                       scopeOf(key, time), signedNames(canonicalHeaders(parts.headers)),
                       signatureOf(parts, key, time));
}

}  // namespace shardscope
