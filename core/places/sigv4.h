// AWS Signature Version 4 for requests to S3. Pure functions.
// Source: https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "places/secret.h"

namespace shardscope {

constexpr std::string_view kUnsignedPayload = "UNSIGNED-PAYLOAD";
constexpr std::string_view kEmptyPayload = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

struct SigningKey {
    std::string keyId;
    Secret key;
    std::string region, service = "s3";
};

struct SignedParts {
    std::string method;
    std::string path;                                          // percent-encoded, as sent
    std::string query;                                         // from canonicalQuery(), as sent
    std::vector<std::pair<std::string, std::string>> headers;  // all are signed; must hold host
    std::string payload;                                       // hash of the body in hex, or kUnsignedPayload
};

// "a=1&b=": percent-encoded and sorted.
std::string canonicalQuery(std::vector<std::pair<std::string, std::string>> query);
std::string canonicalRequest(const SignedParts& parts);
// The signature in hex. `time`: "20130524T000000Z".
std::string signatureOf(const SignedParts& parts, const SigningKey& key, std::string_view time);
// The value of the header "Authorization".
std::string authorization(const SignedParts& parts, const SigningKey& key, std::string_view time);

std::string base64(std::string_view bytes);
std::string sha256Hex(std::string_view bytes);
std::string hmacSha256(std::string_view key, std::string_view bytes);  // 32 bytes, not hex

}  // namespace shardscope
