#include "support/http_server.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "encoding/crc32c.h"

namespace shardscope::test {
namespace {

std::string lower(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
    return text;
}

bool sendAll(int to, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t sent = send(to, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent <= 0) return false;
        bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
}

// One request; false at the end of the connection. `rest` keeps what came beyond it.
bool receive(int from, std::string& rest, Asked& asked) {
    const auto more = [&] {
        char piece[65536];
        const ssize_t got = recv(from, piece, sizeof piece, 0);
        if (got > 0) rest.append(piece, static_cast<size_t>(got));
        return got > 0;
    };
    size_t end = 0;
    while ((end = rest.find("\r\n\r\n")) == std::string::npos)
        if (!more()) return false;
    std::istringstream lines(rest.substr(0, end + 2));
    std::string line, target;
    std::getline(lines, line);
    std::istringstream(line) >> asked.method >> target;
    const size_t mark = target.find('?');
    asked.path = target.substr(0, mark);
    if (mark != std::string::npos) asked.query = target.substr(mark + 1);
    while (std::getline(lines, line)) {
        const size_t colon = line.find(':');
        if (colon == std::string::npos) continue;
        std::string value = line.substr(std::min(colon + 2, line.size()));
        if (value.ends_with('\r')) value.pop_back();
        asked.headers[lower(line.substr(0, colon))] = value;
    }
    rest.erase(0, end + 4);
    const std::string length = asked.header("content-length");
    const size_t size = length.empty() ? 0 : std::stoul(length);
    while (rest.size() < size)
        if (!more()) return false;
    asked.body = rest.substr(0, size);
    rest.erase(0, size);
    return true;
}

std::string encoded(std::string_view text) {
    std::string out;
    for (const char c : text) {
        if (std::isalnum(static_cast<unsigned char>(c)) || c == '/' || c == '-' || c == '.' || c == '_')
            out += c;
        else if (c == ' ')
            out += '+';
        else {
            char hex[4];
            snprintf(hex, sizeof hex, "%%%02X", static_cast<unsigned char>(c));
            out += hex;
        }
    }
    return out;
}

std::string errorXml(const std::string& code) {
    return "<?xml version=\"1.0\"?><Error><Code>" + code + "</Code><Message>a test's " + code +
           "</Message><RequestId>R1</RequestId></Error>";
}

std::string base64(uint32_t crc) {
    const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text;
    for (int shift = 30; shift >= 0; shift -= 6)
        text += digits[(uint64_t{crc} << 4) >> shift & 63];
    return text + "==";
}

std::string tagOf(const std::string& bytes) {
    char text[16];
    snprintf(text, sizeof text, "\"%08x\"", crc32cOf(std::as_bytes(std::span(bytes))));
    return text;
}

}  // namespace

std::string percentDecoded(std::string_view text) {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '%' && i + 2 < text.size()) {
            out += static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16));
            i += 2;
        } else {
            out += text[i];
        }
    }
    return out;
}

std::string Asked::argument(const std::string& name) const {
    std::istringstream parts(query);
    for (std::string part; std::getline(parts, part, '&');) {
        const size_t equals = part.find('=');
        if (part.substr(0, equals) == name)
            return percentDecoded(part.substr(std::min(equals + 1, part.size())));
    }
    return {};
}

Answered rangeOf(const std::string& bytes, const Asked& asked) {
    const std::string range = asked.header("range");
    if (range.empty()) return {200, {}, bytes};
    const size_t first = std::stoul(range.substr(6)),
                 last = std::min(std::stoul(range.substr(range.find('-') + 1)), bytes.size() - 1);
    return {206,
            {{"Content-Range", "bytes " + std::to_string(first) + "-" + std::to_string(last) + "/" +
                                   std::to_string(bytes.size())}},
            bytes.substr(first, last - first + 1)};
}

HttpServer::HttpServer(Handler handler) : handler_(std::move(handler)) {
    listening_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (bind(listening_, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listening_, 128) != 0)
        abort();
    getsockname(listening_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { accept(); });
}

HttpServer::~HttpServer() {
    {
        const std::lock_guard lock(mutex_);
        ending_ = true;
        for (const int connection : connections_)
            shutdown(connection, SHUT_RDWR);
    }
    changed_.notify_all();
    shutdown(listening_, SHUT_RDWR);
    thread_.join();
    for (std::thread& thread : threads_)
        thread.join();
    for (const int connection : connections_)
        close(connection);
    close(listening_);
}

void HttpServer::accept() {
    for (;;) {
        const int connection = accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
        const std::lock_guard lock(mutex_);
        if (ending_ || connection < 0) {
            if (connection >= 0) close(connection);
            return;
        }
        const int now = 1;  // a head without its body would wait for the other side
        setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &now, sizeof now);
        connections_.push_back(connection);
        threads_.emplace_back([this, connection] { serve(connection); });
    }
}

void HttpServer::serve(int connection) {
    std::string rest;
    for (Asked asked; receive(connection, rest, asked); asked = {}) {
        {
            const std::lock_guard lock(mutex_);
            asked_.push_back(asked);
        }
        changed_.notify_all();
        const Answered answer = handler_(asked);
        if (answer.end == Answered::End::never) {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [&] { return ending_; });
            return;
        }
        if (answer.end == Answered::End::reset) {
            const linger now{1, 0};
            setsockopt(connection, SOL_SOCKET, SO_LINGER, &now, sizeof now);
            shutdown(connection, SHUT_RDWR);
            return;
        }
        std::string head = "HTTP/1.1 " + std::to_string(answer.status) + " Any\r\n";
        bool length = false;
        for (const auto& [name, value] : answer.headers) {
            head += name + ": " + value + "\r\n";
            length = length || lower(name) == "content-length";
        }
        if (!length) head += "Content-Length: " + std::to_string(answer.body.size()) + "\r\n";
        std::string_view body = asked.method == "HEAD" ? std::string_view() : std::string_view(answer.body);
        const bool half = answer.end == Answered::End::cut || answer.end == Answered::End::stall;
        if (half) body = body.substr(0, body.size() / 2);
        if (!sendAll(connection, head + "\r\n")) return;
        if (answer.between) {
            if (!sendAll(connection, body.substr(0, body.size() / 2))) return;
            body.remove_prefix(body.size() / 2);
            answer.between();
        }
        if (!sendAll(connection, body)) return;
        if (answer.end == Answered::End::stall) {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [&] { return ending_; });
            return;
        }
        if (answer.end == Answered::End::cut) {
            shutdown(connection, SHUT_RDWR);
            return;
        }
    }
}

std::vector<Asked> HttpServer::asked() const {
    const std::lock_guard lock(mutex_);
    return asked_;
}

size_t HttpServer::count(const std::string& method) const {
    const std::lock_guard lock(mutex_);
    return static_cast<size_t>(
        std::count_if(asked_.begin(), asked_.end(), [&](const Asked& a) { return a.method == method; }));
}

void HttpServer::forget() {
    const std::lock_guard lock(mutex_);
    asked_.clear();
}

void HttpServer::waitFor(size_t requests) const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return asked_.size() >= requests; });
}

// ------------------------------------------------------------------ a bucket

FakeBucket::FakeBucket(std::string name)
    : name_(std::move(name)), server_([this](const Asked& asked) { return answer(asked); }) {}

void FakeBucket::use(const std::string& key, const std::string& secret) const {
    setenv("AWS_ENDPOINT_URL", server_.url().c_str(), 1);
    setenv("AWS_ACCESS_KEY_ID", key.c_str(), 1);
    setenv("AWS_SECRET_ACCESS_KEY", secret.c_str(), 1);
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
}

void FakeBucket::useAsGoogle(const std::string& token, const std::string& secret) {
    token_ = token;
    setenv("STORAGE_EMULATOR_HOST", server_.url().c_str(), 1);
    if (token.empty()) {
        unsetenv("GOOGLE_OAUTH_ACCESS_TOKEN");
        setenv("GS_ACCESS_KEY_ID", "AKTEST", 1);
        setenv("GS_SECRET_ACCESS_KEY", secret.c_str(), 1);
    } else {
        setenv("GOOGLE_OAUTH_ACCESS_TOKEN", token.c_str(), 1);
    }
}

void FakeBucket::put(const std::string& key, std::string bytes) {
    const std::lock_guard lock(mutex);
    std::string tag = tagOf(bytes);
    objects[key] = {std::move(bytes), std::move(tag), {}};
}

void FakeBucket::putTree(const std::string& directory, const std::string& prefix) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
        if (!entry.is_regular_file()) continue;
        std::ifstream file(entry.path(), std::ios::binary);
        std::ostringstream bytes;
        bytes << file.rdbuf();
        put(prefix + "/" + std::filesystem::relative(entry.path(), directory).string(), bytes.str());
    }
}

Answered FakeBucket::answer(const Asked& asked) {
    if (before) {
        Answered first = before(asked);
        if (first.status != 0) return first;
    }
    const std::string authorization = asked.header("authorization");
    if (!token_.empty())
        return authorization == "Bearer " + token_ ? asGoogle(asked)
                                                   : Answered{401, {}, errorXml("AccessDenied")};
    if (!authorization.starts_with("AWS4-HMAC-SHA256 Credential=AKTEST/") ||
        authorization.find("host;") == std::string::npos || asked.header("x-amz-date").empty() ||
        asked.header("x-amz-content-sha256").empty())
        return {403, {}, errorXml("AccessDenied")};
    return granted(asked);
}

Answered FakeBucket::granted(const Asked& asked) {
    const std::string path = percentDecoded(asked.path), bucket = "/" + name_ + "/";
    if (!path.starts_with(bucket)) return {404, {}, errorXml("NoSuchBucket")};
    const std::string key = path.substr(bucket.size());
    const std::lock_guard lock(mutex);
    if (key.empty() && asked.argument("list-type") == "2") return list(asked);
    if (asked.method == "GET" || asked.method == "HEAD") return get(asked, key);
    return write(asked, key);
}

// Google's own headers mean what Amazon's do, and do not mix with them.
Answered FakeBucket::asGoogle(const Asked& asked) {
    Asked amazons = asked;
    for (const auto& [name, value] : asked.headers) {
        if (name.starts_with("x-amz-") || name == "if-none-match")
            return {400, {}, errorXml("InvalidArgument")};
        if (name == "x-goog-if-generation-match") {
            // Completing an upload takes no condition.
            if (asked.method != "PUT" || value != "0") return {400, {}, errorXml("InvalidArgument")};
            amazons.headers["if-none-match"] = "*";
        }
        if (name == "x-goog-meta-shardscope") amazons.headers["x-amz-meta-shardscope"] = value;
        if (name == "x-goog-hash" && value.starts_with("crc32c="))
            amazons.headers["x-amz-checksum-crc32c"] = value.substr(7);
    }
    Answered answer = granted(amazons);
    for (auto& [name, value] : answer.headers)
        if (name == "x-amz-meta-shardscope") name = "x-goog-meta-shardscope";
    return answer;
}

Answered FakeBucket::list(const Asked& asked) {
    const std::string prefix = asked.argument("prefix"), delimiter = asked.argument("delimiter"),
                      after = asked.argument("continuation-token");
    std::string xml =
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult><EncodingType>url</EncodingType>";
    size_t keys = 0;
    std::string last, common;
    bool truncated = false;
    for (const auto& [key, object] : objects) {
        if (!key.starts_with(prefix) || (!after.empty() && key <= after)) continue;
        const size_t slash = delimiter.empty() ? std::string::npos : key.find('/', prefix.size());
        const std::string group = slash == std::string::npos ? "" : key.substr(0, slash + 1);
        if (!group.empty() && (group == common || (!after.empty() && after.starts_with(group)))) {
            last = key;
            continue;
        }
        if (keys == mostKeys) {
            truncated = true;
            break;
        }
        ++keys;
        last = key;
        common = group;
        if (!group.empty())
            xml += "<CommonPrefixes><Prefix>" + encoded(group) + "</Prefix></CommonPrefixes>";
        else
            xml += "<Contents><Key>" + encoded(key) +
                   "</Key><LastModified>2026-01-02T03:04:05.000Z</LastModified><ETag>&quot;" +
                   object.tag.substr(1, object.tag.size() - 2) + "&quot;</ETag><Size>" +
                   std::to_string(object.bytes.size()) + "</Size></Contents>";
    }
    xml += truncated
               ? "<IsTruncated>true</IsTruncated><NextContinuationToken>" + last + "</NextContinuationToken>"
               : "<IsTruncated>false</IsTruncated>";
    return {200, {}, xml + "</ListBucketResult>"};
}

Answered FakeBucket::partsOf(const Asked& asked) {
    const auto upload = uploads.find(asked.argument("uploadId"));
    if (upload == uploads.end()) return {404, {}, errorXml("NoSuchUpload")};
    const int after = std::stoi("0" + asked.argument("part-number-marker"));
    std::string xml;
    size_t listed = 0;
    int last = 0;
    bool truncated = false;
    for (const auto& [number, bytes] : upload->second) {
        if (number == 0 || number <= after) continue;
        truncated = listed == mostKeys;
        if (truncated) break;
        ++listed;
        last = number;
        const std::string tag = tagOf(bytes);
        xml += "<Part><PartNumber>" + std::to_string(number) + "</PartNumber><ETag>&quot;" +
               tag.substr(1, tag.size() - 2) + "&quot;</ETag><Size>" + std::to_string(bytes.size()) +
               "</Size></Part>";
    }
    xml += truncated ? "<IsTruncated>true</IsTruncated><NextPartNumberMarker>" + std::to_string(last) +
                           "</NextPartNumberMarker>"
                     : "<IsTruncated>false</IsTruncated>";
    return {200, {}, "<ListPartsResult>" + xml + "</ListPartsResult>"};
}

Answered FakeBucket::get(const Asked& asked, const std::string& key) {
    if (asked.method == "GET" && !asked.argument("uploadId").empty()) return partsOf(asked);
    const auto it = objects.find(key);
    if (it == objects.end()) return {404, {}, errorXml("NoSuchKey")};
    const Object& object = it->second;
    Answered answer{200, {{"ETag", object.tag}, {"Last-Modified", "Fri, 02 Jan 2026 03:04:05 GMT"}}};
    if (!object.mark.empty()) answer.headers.emplace_back("x-amz-meta-shardscope", object.mark);
    if (const std::string match = asked.header("if-match"); !match.empty() && match != object.tag)
        return {412, {}, errorXml("PreconditionFailed")};
    if (asked.method == "HEAD") {
        answer.headers.emplace_back("Content-Length", std::to_string(object.bytes.size()));
        return answer;
    }
    const std::string range = asked.header("range");
    if (!range.empty() && std::stoul(range.substr(6)) >= object.bytes.size())
        return {416, {}, errorXml("InvalidRange")};
    Answered part = rangeOf(object.bytes, asked);
    answer.status = part.status;
    answer.body = std::move(part.body);
    std::ranges::move(part.headers, std::back_inserter(answer.headers));
    return answer;
}

Answered FakeBucket::write(const Asked& asked, const std::string& key) {
    const std::string sum = asked.header("x-amz-checksum-crc32c"), upload = asked.argument("uploadId");
    if (checksChecksums && !sum.empty() && sum != base64(crc32cOf(std::as_bytes(std::span(asked.body)))))
        return {400, {}, errorXml("BadDigest")};
    if (asked.method == "DELETE") {
        if (upload.empty())
            objects.erase(key);
        else
            uploads.erase(upload);
        return {204};
    }
    if (knowsConditions && asked.header("if-none-match") == "*" && objects.contains(key))
        return {412, {}, errorXml("PreconditionFailed")};
    if (asked.method == "PUT" && upload.empty()) {
        const std::string tag = tagOf(asked.body);
        objects[key] = {asked.body, tag, asked.header("x-amz-meta-shardscope")};
        return {200, {{"ETag", tag}}};
    }
    if (asked.method == "POST" && upload.empty()) {
        const std::string id = key + "/" + std::to_string(++lastUpload_) + "==";
        uploads[id][0] = asked.header("x-amz-meta-shardscope");
        return {
            200,
            {},
            "<InitiateMultipartUploadResult><UploadId>" + id + "</UploadId></InitiateMultipartUploadResult>"};
    }
    const auto it = uploads.find(upload);
    if (it == uploads.end()) return {404, {}, errorXml("NoSuchUpload")};
    if (asked.method == "PUT") {
        it->second[std::stoi(asked.argument("partNumber"))] = asked.body;
        return {200, {{"ETag", tagOf(asked.body)}}};
    }
    Object whole;
    for (const auto& [number, bytes] : it->second) {
        if (number == 0)
            whole.mark = bytes;
        else
            whole.bytes += bytes;
    }
    whole.tag = tagOf(whole.bytes);
    objects[key] = whole;
    uploads.erase(it);
    return {200, {}, "<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>"};
}

}  // namespace shardscope::test
