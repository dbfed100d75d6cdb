// What is signed, encoded and parsed on the way to a store; the vectors are Amazon's own.
#include <QtTest>

#include "places/http.h"
#include "places/ini.h"
#include "places/sigv4.h"
#include "places/xml.h"
#include "storage/file_system.h"
#include "storage/url.h"

using namespace shardscope;

namespace {

const SigningKey kKey{"AKIAIOSFODNN7EXAMPLE", Secret("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
                      "us-east-1"};
constexpr std::string_view kTime = "20130524T000000Z";
const std::string kHost = "examplebucket.s3.amazonaws.com";

SignedParts request(std::string method, std::string path,
                    std::vector<std::pair<std::string, std::string>> query,
                    std::vector<std::pair<std::string, std::string>> more, std::string payload) {
    SignedParts parts{std::move(method),
                      std::move(path),
                      canonicalQuery(std::move(query)),
                      {{"Host", kHost}},
                      std::move(payload)};
    parts.headers.emplace_back("x-amz-date", kTime);
    parts.headers.emplace_back("x-amz-content-sha256", parts.payload);
    for (auto& header : more)
        parts.headers.push_back(std::move(header));
    return parts;
}

}  // namespace

class PlacesTextTest : public QObject {
    Q_OBJECT

  private slots:
    void signatures() {
        const auto check = [](const SignedParts& parts, std::string_view canonical,
                              std::string_view signature) {
            QCOMPARE(sha256Hex(canonicalRequest(parts)), std::string(canonical));
            QCOMPARE(signatureOf(parts, kKey, kTime), std::string(signature));
        };
        const std::string none(kEmptyPayload);
        check(request("GET", "/test.txt", {}, {{"Range", "bytes=0-9"}}, none),
              "7344ae5b7ee6c3e7e6b0fe0640412a37625d1fbfff95c48bbb2dc43964946972",
              "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
        check(request(
                  "PUT", "/" + percentEncoded("test$file.text", true), {},
                  {{"date", "Fri, 24 May 2013 00:00:00 GMT"}, {"x-amz-storage-class", "REDUCED_REDUNDANCY"}},
                  sha256Hex("Welcome to Amazon S3.")),
              "9e0e90d9c76de8fa5b200d8c849cd5b8dc7a3be3951ddb7f6a76b4158342019d",
              "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
        check(request("GET", "/", {{"lifecycle", ""}}, {}, none),
              "9766c798316ff2757b517bc739a67f6213b4ab36dd5da2f94eaebf79c77395ca",
              "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
        check(request("GET", "/", {{"prefix", "J"}, {"max-keys", "2"}}, {}, none),
              "df57d21db20da04d7fa30298dd4488ba3a2b47ca3a489c74750e0f1e7df1b9b7",
              "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
        SignedParts own{"PUT",
                        "/bucket/" + percentEncoded("run 1/step=10/a+b&c'(1)!*\xc3\xbc.pt", true),
                        canonicalQuery({{"uploadId", "a/b=="}, {"partNumber", "3"}}),
                        {{"host", "127.0.0.1:9000"},
                         {"x-amz-content-sha256", std::string(kUnsignedPayload)},
                         {"x-amz-date", std::string(kTime)},
                         {"x-amz-security-token", "TOKEN"}},
                        std::string(kUnsignedPayload)};
        QCOMPARE(own.path, std::string("/bucket/run%201/step%3D10/a%2Bb%26c%27%281%29%21%2A%C3%BC.pt"));
        check(own, "e5ffcfe79af5ad99a4c660e1fa209790d7318a5a4020a35d2edc4194b8cb8d58",
              "68f3ca9642628fecfc2aaf38d9d37accd82e58f2b9aa131729d4873fd875a971");
        QVERIFY(authorization(own, kKey, kTime)
                    .ends_with("Signature=68f3ca9642628fecfc2aaf38d9d37accd82e58f2b9aa131729d4873fd875a971"));
    }

    void percents() {
        QCOMPARE(percentEncoded("a b/c~", true), std::string("a%20b/c~"));
        QCOMPARE(percentEncoded("a/b"), std::string("a%2Fb"));
        QCOMPARE(percentDecoded("a%20b+c%zz%4"), std::string("a b+c%zz%4"));
        QCOMPARE(percentDecoded("a+b%2B", true), std::string("a b+"));
    }

    void urls() {
        const auto url = parseUrl("https://me@host:8000/a/b?c=d#e");
        QVERIFY(url);
        QCOMPARE(url->authority, std::string("me@host:8000"));
        QCOMPARE(url->host(), std::string("host"));
        QCOMPARE(url->path, std::string("/a/b"));
        QCOMPARE(url->query, std::string("c=d"));
        QCOMPARE(parseUrl("http://[::1]:80")->host(), std::string("[::1]"));
        QCOMPARE(parseUrl("http://h")->path, std::string("/"));
        const auto led = [](std::string_view location) {
            return absoluteUrl(location, *parseUrl("https://h:1/a/b?c"));
        };
        QCOMPARE(led("http://x/y"), std::string("http://x/y"));
        QCOMPARE(led("//x/y"), std::string("https://x/y"));
        QCOMPARE(led("/y?z"), std::string("https://h:1/y?z"));
        QCOMPARE(led("y"), std::string("https://h:1/a/y"));
        QCOMPARE(led(""), std::string());
        for (const char* bad : {"", "a", "://h", "http://", "/a/b"})
            QVERIFY2(!parseUrl(bad), bad);
    }

    void secrets() {
        for (const char* plain : {"", "/a?b#c", "a@b", "s3://b/a?b#c@d", "gs://b/x?y", "hf://org/m@main/x#y",
                                  "ssh://me@host/x?y", "https://host:8000/a@b/c"})
            QCOMPARE(withoutSecrets(plain), std::string(plain));
        QCOMPARE(withoutSecrets("https://h/a?sig=x#y"), std::string("https://h/a"));
        QCOMPARE(withoutSecrets("http://h/a#y?z"), std::string("http://h/a"));
        QCOMPARE(withoutSecrets("https://me:pass@h:1/a@b?c"), std::string("https://h:1/a@b"));
        QCOMPARE(withoutSecrets("https://me:p@ss@h?c"), std::string("https://h"));
        QCOMPARE(withoutSecrets("socks5h://me:pass@h:1"), std::string("socks5h://h:1"));
        QCOMPARE(withoutSecrets("https://?x"), std::string("https://"));
    }

    void times() {
        QCOMPARE(timeOfHttp("Thu, 01 Jan 1970 00:00:01 GMT"), int64_t{1'000'000'000});
        QCOMPARE(timeOfHttp("2026-01-02T03:04:05.000Z"), timeOfHttp("Fri, 02 Jan 2026 03:04:05 GMT"));
        QCOMPARE(timeOfHttp("9999-12-31T23:59:59Z"), int64_t{9'223'372'036'000'000'000});
        for (const char* text : {"Fri, 02 Jan 2026 03:04:05 GMT", "Thu, 29 Feb 2024 23:59:59 GMT"})
            QCOMPARE(httpTimeOf(timeOfHttp(text)), std::string(text));
        for (const char* bad : {"", "yesterday", "Thu, 01 Foo 1970 00:00:01 GMT", "2026-01-02 03:04:05"})
            QCOMPARE(timeOfHttp(bad), int64_t{0});
    }

    void paths() {
        using Pair = std::pair<std::string, std::string>;
        QCOMPARE(splitPath("s3://b/run/x/"), Pair("s3://b/run", "x"));
        QCOMPARE(splitPath("s3://b/x"), Pair("s3://b", "x"));
        QCOMPARE(splitPath("s3://b"), Pair("s3://b", ""));
        QCOMPARE(splitPath("hf://org/m@main/x"), Pair("hf://org/m@main", "x"));
        QCOMPARE(splitPath("hf://datasets/org/m"), Pair("hf://datasets/org/m", ""));
        QCOMPARE(splitPath("https://h:1/x"), Pair("https://h:1", "x"));
        QCOMPARE(stagingPath("gs://b/run/x"), std::string("gs://b/run/.x.shardscope-partial"));
        for (const char* here : {"", "/a/b", "s3:/b", "S3://b", "ssh://h/x", "x/s3://b"})
            QVERIFY2(schemeOf(here).empty(), here);
    }

    void xml() {
        std::string seen;
        const auto read = [&](std::string_view text) {
            seen.clear();
            return readXml(
                text,
                [&](std::string_view path, std::string_view value) -> Status {
                    seen += std::string(path) + "=" + std::string(value) + ";";
                    return {};
                },
                [&](std::string_view path) -> Status {
                    seen += "/" + std::string(path) + ";";
                    return {};
                });
        };
        QVERIFY(read("<?xml version=\"1.0\"?>\n<a xmlns=\"x\"><b>1 &amp;&#34;&#x20ac;&nope;</b><c/><!-- no "
                     "--><s:d> e </s:d></a>\n")
                    .ok());
        QCOMPARE(seen, std::string("a/b=1 &\"\xe2\x82\xac&nope;;a/c=;a/d= e ;/a;"));
        for (const char* bad : {"<a>", "<a></b>", "</a>", "<", "<!DOCTYPE a [<!ENTITY b \"c\">]><a>&b;</a>",
                                "text", "<a><></a>", "<a"}) {
            const Status status = read(bad);
            QVERIFY2(!status.ok(), bad);
            QCOMPARE(status.error().code, ErrorCode::damaged);
        }
        std::string deep;
        for (int i = 0; i < 1000; ++i)
            deep += "<a>";
        QVERIFY(!read(deep).ok());
    }

    void ini() {
        const Ini ini = parseIni(
            "# no\n[default]\nregion = eu-west-1\ns3 =\n  addressing_style = path\n  x=y\nb=c # d\n"
            "[profile lab]\n; no\nkey=a=b\nlonely\n[open\nz=1\n");
        QCOMPARE(ini.at("default").at("region"), std::string("eu-west-1"));
        QCOMPARE(ini.at("default").at("s3.addressing_style"), std::string("path"));
        QCOMPARE(ini.at("default").at("s3.x"), std::string("y"));
        QCOMPARE(ini.at("default").at("b"), std::string("c # d"));
        QCOMPARE(ini.at("profile lab").at("key"), std::string("a=b"));
        QVERIFY(parseIni("a=b\n").empty());
    }
};

QTEST_GUILESS_MAIN(PlacesTextTest)
#include "places_text_test.moc"
