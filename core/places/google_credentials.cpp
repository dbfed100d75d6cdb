#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include "base/text.h"
#include "places/credentials.h"
#include "places/http.h"
#include "places/json_text.h"
#include "places/sigv4.h"

namespace shardscope {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::json;

constexpr std::string_view kScope = "https://www.googleapis.com/auth/devstorage.read_write";

Error noToken(const std::string& source, std::string_view why) {
    return makeError(ErrorCode::permission, fmt::format("{} gives no token: {}", source, why))
        .withHint(
            "'export GOOGLE_OAUTH_ACCESS_TOKEN=$(gcloud auth print-access-token)' sets one for an hour");
}

// {"access_token", "expires_in"}
Result<Credentials> tokenIn(const HttpAnswer& answer, const std::string& source) {
    const Json json = Json::parse(answer.body, nullptr, false);
    if (!answer.good()) {
        const std::string said = oneLine(textOf(json, "error_description"), 200);
        return noToken(source, said.empty() ? failureOf(answer) : said);
    }
    if (!json.is_object()) return noToken(source, "what it answers is not JSON");
    Credentials c;
    c.session = Secret(textOf(json, "access_token"));
    c.source = source;
    if (c.session.empty()) return noToken(source, "its answer has no token");
    const auto seconds = json.find("expires_in");
    if (seconds != json.end() && seconds->is_number_unsigned())
        c.ends = std::chrono::system_clock::now() +
                 std::chrono::seconds(std::min<uint64_t>(seconds->get<uint64_t>(), 86400));
    return c;
}

Result<Credentials> postForm(const std::string& url, const std::string& form, const std::string& source) {
    HttpRequest request{"POST", url};
    request.headers.emplace_back("Content-Type", "application/x-www-form-urlencoded");
    request.content = std::as_bytes(std::span(form));
    request.patience = 30s;
    return tokenIn(Http::ofProcess().ask(std::move(request)), source);
}

std::string base64Url(std::string_view bytes) {
    std::string out = base64(bytes);
    while (out.ends_with('='))
        out.pop_back();
    for (char& c : out)
        c = c == '+' ? '-' : c == '/' ? '_' : c;
    return out;
}

// RSA with SHA-256; empty where the key cannot be used.
std::string signedWith(const std::string& pem, std::string_view text) {
    const std::unique_ptr<BIO, decltype(&BIO_free)> bio(
        BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), BIO_free);
    const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(
        PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr), EVP_PKEY_free);
    const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
    size_t size = 0;
    const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
    if (!key || EVP_DigestSignInit(context.get(), nullptr, EVP_sha256(), nullptr, key.get()) != 1 ||
        EVP_DigestSign(context.get(), nullptr, &size, bytes, text.size()) != 1)
        return {};
    std::string signature(size, '\0');
    if (EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &size, bytes,
                       text.size()) != 1)
        return {};
    signature.resize(size);
    return signature;
}

std::string tokenUrl(const Json& json) {
    const std::string url = textOf(json, "token_uri");
    return url.empty() ? "https://oauth2.googleapis.com/token" : url;
}

Result<Credentials> fromServiceAccount(const Json& json, const std::string& source) {
    const int64_t now =
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
            .count();
    const std::string url = tokenUrl(json);
    const Json claims = {{"iss", textOf(json, "client_email")},
                         {"scope", kScope},
                         {"aud", url},
                         {"iat", now},
                         {"exp", now + 3600}};
    const std::string text = base64Url(R"({"alg":"RS256","typ":"JWT"})") + "." + base64Url(dumpJson(claims));
    const std::string signature = signedWith(textOf(json, "private_key"), text);
    if (signature.empty()) return noToken(source, "its private key cannot be used");
    return postForm(
        url,
        fmt::format("grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion={}.{}", text,
                    base64Url(signature)),
        source);
}

Result<Credentials> fromFile(const std::string& path) {
    const std::string source = fmt::format("the file '{}'", printable(path, kNameInMessage));
    const Json json = Json::parse(contentOf(path), nullptr, false);
    if (!json.is_object()) return noToken(source, "it is not JSON, or cannot be read");
    const std::string type = textOf(json, "type");
    if (type == "service_account") return fromServiceAccount(json, source);
    if (type != "authorized_user")
        return noToken(source,
                       fmt::format("it is of a kind that is not read here ('{}')", printable(type, 40)));
    return postForm(
        tokenUrl(json),
        fmt::format("grant_type=refresh_token&client_id={}&client_secret={}&refresh_token={}",
                    percentEncoded(textOf(json, "client_id")), percentEncoded(textOf(json, "client_secret")),
                    percentEncoded(textOf(json, "refresh_token"))),
        source);
}

}  // namespace

std::string googleEndpoint() {
    std::string endpoint = environment("STORAGE_EMULATOR_HOST");
    if (endpoint.empty()) endpoint = "https://storage.googleapis.com";
    if (endpoint.find("://") == std::string::npos) endpoint = "http://" + endpoint;
    return endpoint;
}

Result<Credentials> findGoogleCredentials() {
    for (const char* name : {"GOOGLE_OAUTH_ACCESS_TOKEN", "CLOUDSDK_AUTH_ACCESS_TOKEN"}) {
        if (const std::string token(keyInEnvironment(name)); !token.empty())
            return Credentials{{}, {}, Secret(token), name};
    }
    // Keys in the style of Amazon's, which Google's own variables do not collide with.
    if (Credentials c{keyInEnvironment("GS_ACCESS_KEY_ID"),
                      Secret(keyInEnvironment("GS_SECRET_ACCESS_KEY")),
                      {},
                      "GS_ACCESS_KEY_ID"};
        !c.keyId.empty() && !c.key.empty())
        return c;
    if (const std::string file = environment("GOOGLE_APPLICATION_CREDENTIALS"); !file.empty())
        return fromFile(file);
    const std::string usual = environment("HOME") + "/.config/gcloud/application_default_credentials.json";
    if (!contentOf(usual).empty()) return fromFile(usual);
    if (environment("NO_GCE_CHECK") == "true") return Credentials{};
    std::string host = environment("GCE_METADATA_HOST");
    if (host.empty()) host = "metadata.google.internal";
    HttpRequest request{"GET",
                        "http://" + host + "/computeMetadata/v1/instance/service-accounts/default/token",
                        {{"Metadata-Flavor", "Google"}}};
    request.patience = 1s;
    request.connecting = 1s;
    const HttpAnswer answer = Http::ofProcess().ask(std::move(request));
    if (!answer.good()) return Credentials{};
    return tokenIn(answer, "the machine's service account");
}

}  // namespace shardscope
