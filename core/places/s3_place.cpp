// S3 and what speaks like it: https://docs.aws.amazon.com/AmazonS3/latest/API/Welcome.html, and the XML API
// of Google Cloud Storage, https://cloud.google.com/storage/docs/xml-api/overview.
#include <ctime>

#include <fmt/format.h>

#include "base/mutex.h"
#include "base/numbers.h"
#include "base/text.h"
#include "places/credentials.h"
#include "places/http_place.h"
#include "places/places.h"
#include "places/sigv4.h"
#include "places/xml.h"
#include "storage/url.h"

namespace shardscope {
namespace {

constexpr uint64_t kMostPage = uint64_t{16} << 20;  // bytes of a page of a listing
constexpr unsigned kMostParts = 10'000;             // of an upload
constexpr size_t kMostLooks = 20;                   // of unfinished uploads for their sizes
constexpr size_t kMostUploads = 1'000'000;

struct StoreSettings {
    std::string scheme;    // "s3" or "gs", as in paths
    std::string endpoint;  // "https://host[:port][/path]"
    std::string region, bucket;
    bool pathStyle = true;   // the bucket is in the path, not in the host's name
    bool redirects = false;  // the region is in the host's name and may be wrong, which the store says
    bool pays = false;       // for requests, in the owner's place
};

Error notAStore() {
    return makeError(ErrorCode::remote, "what answers there is not a store that speaks like S3")
        .withHint("AWS_ENDPOINT_URL names the store's API, not its web page");
}

// One page of ListObjectsV2.
Result<ObjectPage> parseListing(std::string_view text) {
    ObjectPage page;
    ObjectState object;
    bool encoded = false, truncated = false;
    std::string next;
    if (text.find("<ListBucketResult") == text.npos) return notAStore();
    const Status status = readXml(
        text,
        [&](std::string_view path, std::string_view value) -> Status {
            if (path == "ListBucketResult/EncodingType") encoded = value == "url";
            if (path == "ListBucketResult/IsTruncated") truncated = value == "true";
            if (path == "ListBucketResult/NextContinuationToken") next = value;
            if (path == "ListBucketResult/CommonPrefixes/Prefix") page.prefixes.emplace_back(value);
            if (path == "ListBucketResult/Contents/Key") object.key = value;
            if (path == "ListBucketResult/Contents/ETag") object.version = value;
            if (path == "ListBucketResult/Contents/LastModified") object.modifiedNs = timeOfHttp(value);
            if (path == "ListBucketResult/Contents/Size") {
                const auto size = parseNumber<uint64_t>(value, 0, kMostObject);
                if (!size) return damaged("the listing has a size that cannot be");
                object.size = *size;
            }
            return {};
        },
        [&](std::string_view path) -> Status {
            if (path == "ListBucketResult/Contents") page.objects.push_back(std::exchange(object, {}));
            return {};
        });
    if (!status.ok()) return status.error();
    if (truncated && next.empty()) return damaged("the listing goes on, but does not say how");
    if (truncated) page.next = std::move(next);
    if (encoded) {
        for (ObjectState& o : page.objects)
            o.key = percentDecoded(o.key, true);
        for (std::string& prefix : page.prefixes)
            prefix = percentDecoded(prefix, true);
    }
    // Some stores leave out the quotes that If-Match needs.
    for (ObjectState& o : page.objects) {
        if (!o.version.empty() && !o.version.starts_with('"') && !o.version.starts_with("W/"))
            o.version = '"' + o.version + '"';
    }
    return page;
}

using Query = std::vector<std::pair<std::string, std::string>>;

// One page of ListMultipartUploads; what asks for the next one, empty after the last.
Result<Query> addUploads(std::string_view text, std::vector<ObjectState>& all) {
    ObjectState upload;
    bool truncated = false;
    std::string key, id;
    SHARDSCOPE_TRY(readXml(
        text,
        [&](std::string_view path, std::string_view value) -> Status {
            if (path == "ListMultipartUploadsResult/IsTruncated") truncated = value == "true";
            if (path == "ListMultipartUploadsResult/NextKeyMarker") key = value;
            if (path == "ListMultipartUploadsResult/NextUploadIdMarker") id = value;
            if (path == "ListMultipartUploadsResult/Upload/Key") upload.key = value;
            if (path == "ListMultipartUploadsResult/Upload/UploadId") upload.version = value;
            if (path == "ListMultipartUploadsResult/Upload/Initiated") upload.modifiedNs = timeOfHttp(value);
            return {};
        },
        [&](std::string_view path) -> Status {
            if (path == "ListMultipartUploadsResult/Upload") all.push_back(std::exchange(upload, {}));
            return {};
        }));
    if (!truncated) return Query();
    if (key.empty()) return damaged("the listing of unfinished uploads goes on, but does not say how");
    Query next{{"key-marker", key}};
    if (!id.empty()) next.emplace_back("upload-id-marker", id);
    return next;
}

// One page of ListParts; what asks for the next one.
Result<std::string> addParts(std::string_view text, std::vector<ObjectPlace::Part>& all) {
    ObjectPlace::Part part;
    bool truncated = false, readable = true;
    std::string next;
    SHARDSCOPE_TRY(readXml(
        text,
        [&](std::string_view path, std::string_view value) -> Status {
            if (path == "ListPartsResult/IsTruncated") truncated = value == "true";
            if (path == "ListPartsResult/NextPartNumberMarker") next = value;
            if (path == "ListPartsResult/Part/ETag") part.tag = value;
            if (path == "ListPartsResult/Part/PartNumber") {
                const auto number = parseNumber<unsigned>(value, 1, kMostParts);
                readable = readable && number;
                part.number = number.value_or(0);
            }
            if (path == "ListPartsResult/Part/Size") {
                const auto size = parseNumber<uint64_t>(value, 0, kMostObject);
                readable = readable && size;
                part.size = size.value_or(0);
            }
            return {};
        },
        [&](std::string_view path) -> Status {
            if (path == "ListPartsResult/Part") all.push_back(std::exchange(part, {}));
            return {};
        }));
    if (!readable) return damaged("the listing of parts has a number that cannot be");
    if (truncated && next.empty()) return damaged("the listing of parts goes on, but does not say how");
    return truncated ? next : std::string();
}

// What helped once in a long job may be needed again, but not at once.
using LastTime = std::optional<std::chrono::steady_clock::time_point>;
bool mayTryAgain(LastTime& last) {
    const auto now = std::chrono::steady_clock::now();
    if (last && now - *last < std::chrono::minutes(1)) return false;
    last = now;
    return true;
}

constexpr size_t kSmallContent = size_t{1} << 20;

bool isLoopback(std::string_view host) {
    return host == "localhost" || host == "[::1]" || host.starts_with("127.");
}

// Of its four bytes, the highest first.
std::string base64OfCrc(uint32_t crc) {
    const char bytes[] = {static_cast<char>(crc >> 24), static_cast<char>(crc >> 16),
                          static_cast<char>(crc >> 8), static_cast<char>(crc)};
    return base64({bytes, sizeof bytes});
}

std::string xmlText(std::string_view text) {
    std::string out;
    for (const char c : text)
        out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '"' ? "&quot;" : std::string(1, c);
    return out;
}

class StorePlace final : public HttpPlace {
  public:
    StorePlace(StoreSettings settings, std::shared_ptr<CredentialSource> credentials)
        : HttpPlace(settings.scheme + "://" + settings.bucket),
          settings_(std::move(settings)),
          credentials_(std::move(credentials)),
          region_(settings_.region) {}

    Result<ObjectPage> list(const std::string& prefix, bool recursive, const std::string& next) override {
        Query query = {{"list-type", "2"}, {"encoding-type", "url"}};
        if (!prefix.empty()) query.emplace_back("prefix", prefix);
        if (!recursive) query.emplace_back("delimiter", "/");
        if (!next.empty()) query.emplace_back("continuation-token", next);
        const auto make = [&]() -> Result<HttpRequest> {
            SHARDSCOPE_ASSIGN(HttpRequest request, signedRequest("GET", "", query));
            request.most = kMostPage;
            return request;
        };
        SHARDSCOPE_ASSIGN(const HttpAnswer answer, ask(make, shown(prefix)));
        auto page = parseListing(answer.body);
        if (!page.ok()) return std::move(page).error().inFile(shown(prefix));
        return page;
    }

    Result<std::vector<ObjectState>> unfinished(const std::string& prefix) override {
        std::vector<ObjectState> found;
        for (Query next;;) {
            const auto make = [&]() -> Result<HttpRequest> {
                Query query = {{"uploads", ""}, {"prefix", prefix}};
                query.insert(query.end(), next.begin(), next.end());
                SHARDSCOPE_ASSIGN(HttpRequest request, signedRequest("GET", "", query));
                request.most = kMostPage;
                return request;
            };
            SHARDSCOPE_ASSIGN(const HttpAnswer answer, askAny(make, shown(prefix)));
            const std::string code = storeErrorOf(answer).code;
            // What rclone says of a bucket without any.
            if (answer.status == 404 && code == "NoSuchUpload") break;
            if (!answer.good() || !code.empty()) return errorOf(answer, shown(prefix));
            auto after = addUploads(answer.body, found);
            if (!after.ok()) return std::move(after).error().inFile(shown(prefix));
            if (after->empty()) break;
            if (*after == next || found.empty() || found.size() > kMostUploads)
                return damaged("the listing of unfinished uploads does not end").inFile(shown(prefix));
            next = *std::move(after);
        }
        for (size_t i = 0; i < std::min(found.size(), kMostLooks); ++i)
            found[i].size = sizeSoFar(found[i].key, found[i].version);
        return found;
    }

    Result<ObjectState> head(const std::string& key) override {
        const auto make = [&] { return signedRequest("HEAD", key, {}); };
        SHARDSCOPE_ASSIGN(HttpAnswer answer, askAny(make, shown(key)));
        if (answer.status == 400 || answer.status == 403) {
            // Such an answer has no body. One with a body says why: a clock, a token or a region can be
            // mended.
            SHARDSCOPE_ASSIGN(const HttpAnswer said, askAny([&] { return firstByte(key); }, shown(key)));
            if (!said.good() && said.status != 416) return errorOf(said, shown(key));
            SHARDSCOPE_ASSIGN(answer, askAny(make, shown(key)));
        }
        if (!answer.good()) return errorOf(answer, shown(key));
        const auto size = parseNumber<uint64_t>(answer.header("content-length"), 0, kMostObject);
        if (!size) return damaged("the server does not say how large it is").inFile(shown(key));
        const std::string_view mark = answer.header("x-amz-meta-shardscope");
        return ObjectState{key, *size, timeOfHttp(answer.header("last-modified")),
                           std::string(answer.header("etag")),
                           std::string(mark.empty() ? answer.header("x-goog-meta-shardscope") : mark)};
    }

    Status put(const std::string& key, std::span<const std::byte> bytes, const Put& how) override {
        const auto make = [&] { return signedRequest("PUT", key, {}, headersOf(how, &how.crc32c), bytes); };
        SHARDSCOPE_ASSIGN(const HttpAnswer answer, ask(make, shown(key)));
        return {};
    }

    Status remove(const std::string& key) override { return discard(key, {}); }

    Result<std::string> startUpload(const std::string& key, const Put& how) override {
        Put marked;
        marked.mark = how.mark;
        const auto make = [&] {
            return signedRequest("POST", key, {{"uploads", ""}}, headersOf(marked, nullptr));
        };
        SHARDSCOPE_ASSIGN(const HttpAnswer answer, ask(make, shown(key)));
        std::string upload;
        SHARDSCOPE_TRY(readXml(answer.body, [&](std::string_view path, std::string_view text) -> Status {
            // Whatever the answer itself is called: rclone calls it otherwise.
            if (path.ends_with("/UploadId")) upload = text;
            return {};
        }));
        if (upload.empty()) return damaged("the store names no upload").inFile(shown(key));
        return upload;
    }

    Result<Part> putPart(const std::string& key, const std::string& upload, unsigned number,
                         std::span<const std::byte> bytes, uint32_t crc32c) override {
        const Query query = {{"partNumber", std::to_string(number)}, {"uploadId", upload}};
        const auto make = [&] { return signedRequest("PUT", key, query, headersOf({}, &crc32c), bytes); };
        SHARDSCOPE_ASSIGN(const HttpAnswer answer, ask(make, shown(key)));
        return Part{number, std::string(answer.header("etag"))};
    }

    Result<std::vector<Part>> parts(const std::string& key, const std::string& upload) override {
        std::vector<Part> all;
        for (std::string after = "0"; !after.empty();) {
            const auto make = [&]() -> Result<HttpRequest> {
                SHARDSCOPE_ASSIGN(
                    HttpRequest request,
                    signedRequest("GET", key, {{"part-number-marker", after}, {"uploadId", upload}}));
                request.most = kMostPage;
                return request;
            };
            SHARDSCOPE_ASSIGN(const HttpAnswer answer, ask(make, shown(key)));
            auto next = addParts(answer.body, all);
            if (!next.ok()) return std::move(next).error().inFile(shown(key));
            if (!next->empty() && (all.empty() || all.size() > kMostParts || *next == after))
                return damaged("the listing of the parts of an upload does not end").inFile(shown(key));
            after = *std::move(next);
        }
        return all;
    }

    Status complete(const std::string& key, const std::string& upload, std::span<const Part> parts,
                    const Put& how) override {
        std::string body = "<CompleteMultipartUpload>";
        for (const Part& part : parts)
            body += fmt::format("<Part><PartNumber>{}</PartNumber><ETag>{}</ETag></Part>", part.number,
                                xmlText(part.tag));
        body += "</CompleteMultipartUpload>";
        Put only;
        only.onlyNew = how.onlyNew && !google();  // Google's takes no condition here
        const auto make = [&] {
            auto request = signedRequest("POST", key, {{"uploadId", upload}}, headersOf(only, nullptr),
                                         std::as_bytes(std::span(body)));
            if (request.ok()) request->patience = std::chrono::minutes(10);
            return request;
        };
        SHARDSCOPE_ASSIGN(const HttpAnswer answer, askAny(make, shown(key)));
        if (answer.good() && storeErrorOf(answer).code.empty()) return {};
        // An answer that was lost: the upload is there no more because the object is.
        if (storeErrorOf(answer).code == "NoSuchUpload") {
            const auto there = head(key);
            if (there.ok() && !how.mark.empty() && there->mark == how.mark) return {};
        }
        return errorOf(answer, shown(key));
    }

    Status abandon(const std::string& key, const std::string& upload) override {
        return discard(key, {{"uploadId", upload}});
    }

  private:
    using Headers = Query;

    // Bytes of the parts that an upload has; 0 where the store does not say.
    uint64_t sizeSoFar(const std::string& key, const std::string& upload) {
        uint64_t bytes = 0;
        if (const auto found = parts(key, upload); found.ok()) {
            for (const Part& part : *found)
                bytes += part.size;
        }
        return bytes;
    }

    // What is not there is gone as well.
    Status discard(const std::string& key, const Query& query) const {
        SHARDSCOPE_ASSIGN(const HttpAnswer answer,
                          askAny([&] { return signedRequest("DELETE", key, query); }, shown(key)));
        if (!answer.good() && answer.status != 404) return errorOf(answer, shown(key));
        return {};
    }

    bool google() const { return settings_.scheme == "gs"; }
    bool bearer() const {
        const auto credentials = credentials_->get();
        return credentials.ok() && credentials->keyId.empty();
    }

    // Google's own headers go with a token of Google's; both kinds of stores take Amazon's with Amazon's
    // keys.
    Headers headersOf(const Put& how, const uint32_t* crc32c) const {
        const bool own = google() && bearer();
        Headers headers;
        if (how.onlyNew)
            headers.emplace_back(own ? "x-goog-if-generation-match" : "if-none-match", own ? "0" : "*");
        if (!how.mark.empty())
            headers.emplace_back(own ? "x-goog-meta-shardscope" : "x-amz-meta-shardscope", how.mark);
        if (crc32c && own)
            headers.emplace_back("x-goog-hash", "crc32c=" + base64OfCrc(*crc32c));
        else if (crc32c)
            headers.emplace_back("x-amz-checksum-crc32c", base64OfCrc(*crc32c));
        return headers;
    }

    // To the bucket itself with an empty key.
    Result<HttpRequest> signedRequest(const std::string& method, const std::string& key, const Query& query,
                                      const Headers& more = {},
                                      std::span<const std::byte> content = {}) const {
        SHARDSCOPE_ASSIGN(const Credentials credentials, credentials_->get());
        std::string endpoint = settings_.endpoint, region;
        int64_t skew = 0;
        {
            MutexLock lock(mutex_);
            region = region_;
            skew = skewSeconds_;
            if (endpoint.empty()) endpoint = fmt::format("https://s3.{}.amazonaws.com", region);
        }
        const auto base = parseUrl(endpoint);
        if (!base || (base->scheme != "https" && base->scheme != "http"))
            return makeError(ErrorCode::usage,
                             fmt::format("'{}' is no endpoint of a store", printable(endpoint, 100)))
                .withHint("an endpoint looks like https://host or http://host:9000 (AWS_ENDPOINT_URL)");
        std::string host = base->authority, path = base->path == "/" ? "" : base->path;
        while (path.ends_with('/'))
            path.pop_back();
        if (settings_.pathStyle) {
            path += "/" + percentEncoded(settings_.bucket);
        } else {
            host = settings_.bucket + "." + host;
        }
        path += "/" + percentEncoded(key, true);
        SignedParts parts{method, path, canonicalQuery(query), {{"host", host}}, std::string(kEmptyPayload)};
        HttpRequest request{
            method, base->scheme + "://" + host + path + (parts.query.empty() ? "" : "?" + parts.query)};
        request.headers = more;
        if (settings_.pays) request.headers.emplace_back("x-amz-request-payer", "requester");
        request.content = content;
        if (credentials.anonymous()) return request;
        if (credentials.keyId.empty()) {  // a token of Google's
            request.headers.emplace_back("Authorization", "Bearer " + credentials.session.reveal());
            return request;
        }
        const std::time_t now = std::time(nullptr) + skew;
        std::tm utc{};
        gmtime_r(&now, &utc);
        const std::string time =
            fmt::format("{:04}{:02}{:02}T{:02}{:02}{:02}Z", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday,
                        utc.tm_hour, utc.tm_min, utc.tm_sec);
        if (!content.empty()) {
            // Over https the bytes need no signature of their own; small ones that decide something get it.
            const std::string_view bytes(reinterpret_cast<const char*>(content.data()), content.size());
            const bool safe = base->scheme == "https" || isLoopback(base->host());
            parts.payload =
                safe && content.size() > kSmallContent ? std::string(kUnsignedPayload) : sha256Hex(bytes);
        }
        parts.headers.emplace_back("x-amz-content-sha256", parts.payload);
        parts.headers.emplace_back("x-amz-date", time);
        if (!credentials.session.empty())
            parts.headers.emplace_back("x-amz-security-token", credentials.session.reveal());
        // libcurl sends the host by itself.
        const Headers others = request.headers;
        request.headers.insert(request.headers.end(), parts.headers.begin() + 1, parts.headers.end());
        parts.headers.insert(parts.headers.end(), others.begin(), others.end());
        request.headers.emplace_back(
            "Authorization", authorization(parts, {credentials.keyId, credentials.key, region}, time));
        return request;
    }

    Result<HttpRequest> requestFor(const ObjectState& object) const override {
        return signedRequest("GET", object.key, {});
    }
    Result<HttpRequest> firstByte(const std::string& key) const {
        auto request = signedRequest("GET", key, {});
        if (request.ok()) request->headers.emplace_back("Range", "bytes=0-0");
        return request;
    }

    bool mend(const HttpAnswer& answer, const StoreError& error, const ObjectState*) const override {
        MutexLock lock(mutex_);
        std::string region(answer.header("x-amz-bucket-region"));
        if (region.empty()) region = error.region;
        // Elsewhere only the signature is of the wrong one.
        if ((settings_.redirects || answer.status == 400) && !region.empty() && region != region_) {
            region_ = region;
            return true;
        }
        if (error.code == "RequestTimeTooSkewed" && mayTryAgain(skewed_)) {
            const int64_t there = timeOfHttp(answer.header("date")) / 1'000'000'000;
            if (there != 0) skewSeconds_ = there - std::time(nullptr);
            return there != 0;
        }
        if (error.code == "ExpiredToken" && mayTryAgain(renewed_)) {
            credentials_->forget();
            return true;
        }
        return false;
    }

    Error errorOf(const HttpAnswer& answer, const std::string& shown) const override {
        const std::string_view location = answer.header("location");
        if (answer.status == 404 && !answer.body.empty() && storeErrorOf(answer).code.empty())
            return notAStore().inFile(shown);
        if (answer.status < 300 || answer.status >= 400 || answer.status == 304 || location.empty() ||
            settings_.endpoint.empty())
            return HttpPlace::errorOf(answer, shown);
        return makeError(ErrorCode::remote, fmt::format("the endpoint redirects to {}",
                                                        printable(withoutSecrets(location), kNameInMessage)))
            .inFile(shown)
            .withHint("name the store's own address (AWS_ENDPOINT_URL)");
    }

    std::string accessHint() const override {
        const std::string source = credentials_->described();
        const std::string_view variables =
            settings_.scheme == "s3" ? "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
                                     : "GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_OAUTH_ACCESS_TOKEN";
        if (source.empty()) return fmt::format("no credentials were found; set {}", variables);
        return fmt::format("the credentials are those of {}; they may lack the right to list or to read here",
                           source);
    }

    const StoreSettings settings_;
    const std::shared_ptr<CredentialSource> credentials_;
    mutable Mutex mutex_;
    mutable std::string region_ SHARDSCOPE_GUARDED_BY(mutex_);
    mutable int64_t skewSeconds_ SHARDSCOPE_GUARDED_BY(mutex_) = 0;
    mutable LastTime skewed_ SHARDSCOPE_GUARDED_BY(mutex_), renewed_ SHARDSCOPE_GUARDED_BY(mutex_);
};

// Of the process: keys are asked for once, whatever number of checkpoints is opened.
std::shared_ptr<CredentialSource> awsCredentials(const AwsSettings& settings) {
    static Mutex mutex;
    static std::map<std::string, std::shared_ptr<CredentialSource>> known;
    MutexLock lock(mutex);
    auto& source = known[settings.profile + "\n" + environment("AWS_ACCESS_KEY_ID")];
    if (!source)
        source = std::make_shared<CredentialSource>([settings] { return findAwsCredentials(settings); });
    return source;
}

std::shared_ptr<CredentialSource> googleCredentials() {
    static const auto source = std::make_shared<CredentialSource>([] { return findGoogleCredentials(); });
    return source;
}

}  // namespace

Result<std::shared_ptr<ObjectPlace>> s3Place(const std::string& bucket) {
    const AwsSettings aws = awsSettings();
    StoreSettings settings{"s3", aws.endpoint, aws.region, bucket};
    settings.redirects = aws.endpoint.empty();
    settings.pays = aws.pays;
    // A certificate of "*.s3.amazonaws.com" does not fit a bucket with dots in its name.
    const bool plain = !aws.endpoint.empty() || bucket.find('.') != std::string::npos;
    settings.pathStyle = aws.pathStyle.value_or(plain);
    return std::shared_ptr<ObjectPlace>(
        std::make_shared<StorePlace>(std::move(settings), awsCredentials(aws)));
}

Result<std::shared_ptr<ObjectPlace>> googlePlace(const std::string& bucket) {
    return std::shared_ptr<ObjectPlace>(std::make_shared<StorePlace>(
        StoreSettings{"gs", googleEndpoint(), "auto", bucket}, googleCredentials()));
}

}  // namespace shardscope
