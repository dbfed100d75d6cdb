// Who asks a store: from every place in which keys and tokens are looked for, with services that answer on
// this machine. What is secret is in no error.
#include "places/credentials.h"

#include <QtTest>
#include <csignal>
#include <fstream>
#include <future>

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>

#include "places/http.h"
#include "places/sigv4.h"
#include "support/http_server.h"

using namespace shardscope;
using namespace shardscope::test;
using namespace std::chrono_literals;

namespace {

const std::string kHidden = "hidden/secret+1=";  // must be in no text

std::string textOf(const Error& error) {
    return describe(error) + error.hint;
}

void set(const char* name, const std::string& value) {
    qputenv(name, QByteArray::fromStdString(value));
}

std::string jsonOf(std::initializer_list<std::pair<QString, QJsonValue>> values) {
    return QJsonDocument(QJsonObject(values)).toJson().toStdString();
}

QString q(const std::string& text) {
    return QString::fromStdString(text);
}

std::string awsJson(const std::string& id) {
    return jsonOf({{"Version", 1},
                   {"AccessKeyId", q(id)},
                   {"SecretAccessKey", q(kHidden)},
                   {"Token", q("token-of-" + id)},
                   {"Expiration", "2099-01-01T00:00:00Z"}});
}

std::string field(const Asked& asked, const std::string& name) {
    return Asked{{}, {}, asked.body, {}, {}}.argument(name);
}

using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

std::string pemOf(const Key& key) {
    const std::unique_ptr<BIO, decltype(&BIO_free)> bio(BIO_new(BIO_s_mem()), BIO_free);
    PEM_write_bio_PrivateKey(bio.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr);
    char* text = nullptr;
    const long size = BIO_get_mem_data(bio.get(), &text);
    return {text, static_cast<size_t>(size)};
}

std::string fromBase64Url(const std::string& text) {
    return QByteArray::fromBase64(QByteArray::fromStdString(text), QByteArray::Base64UrlEncoding)
        .toStdString();
}

bool isSignedBy(const Key& key, const std::string& text, const std::string& signature) {
    const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
    return EVP_DigestVerifyInit(context.get(), nullptr, EVP_sha256(), nullptr, key.get()) == 1 &&
           EVP_DigestVerify(context.get(), reinterpret_cast<const unsigned char*>(signature.data()),
                            signature.size(), reinterpret_cast<const unsigned char*>(text.data()),
                            text.size()) == 1;
}

void row(const char* name, const char* command, const char* expected) {
    QTest::newRow(name) << QByteArray(command) << QByteArray(expected);
}

}  // namespace

class CredentialsTest : public QObject {
    Q_OBJECT

    std::unique_ptr<QTemporaryDir> home_;

    std::string path(const std::string& name) const { return home_->path().toStdString() + "/" + name; }
    std::string write(const std::string& name, const std::string& text) const {
        std::ofstream(path(name)) << text;
        return path(name);
    }
    // A program of a test, which a profile's credential_process names.
    std::string program(const std::string& script) const {
        const std::string file = write("program", "#!/bin/sh\n" + script);
        QFile::setPermissions(q(file), QFile::ReadOwner | QFile::WriteOwner | QFile::ExeOwner);
        return file;
    }
    static Result<Credentials> aws() { return findAwsCredentials(awsSettings()); }
    // An error that says why and nothing that is secret.
    static void refuses(const Result<Credentials>& found, const std::string& why) {
        QVERIFY(!found.ok());
        QCOMPARE(found.error().code, ErrorCode::permission);
        const std::string text = textOf(found.error());
        QVERIFY2(text.find(why) != std::string::npos, text.c_str());
        QVERIFY2(text.find("hidden") == std::string::npos, text.c_str());
    }

  private slots:
    void init() {
        for (const QString& name : QProcessEnvironment::systemEnvironment().keys()) {
            for (const char* prefix : {"AWS_", "GOOGLE_", "GS_", "GCE_", "CLOUDSDK_", "http_", "HTTP_"})
                if (name.startsWith(prefix)) qunsetenv(name.toLocal8Bit());
        }
        home_ = std::make_unique<QTemporaryDir>();
        set("HOME", home_->path().toStdString());
        set("AWS_EC2_METADATA_DISABLED", "true");
        set("NO_GCE_CHECK", "true");
    }

    void nothing() {
        QVERIFY(aws().value().anonymous());
        QVERIFY(findGoogleCredentials().value().anonymous());
    }

    void environmentOfAws() {
        set("AWS_ACCESS_KEY_ID", "A");
        QVERIFY(aws().value().anonymous());
        set("AWS_SECRET_ACCESS_KEY", kHidden);
        set("AWS_SECURITY_TOKEN", "old");
        Credentials c = aws().value();
        QCOMPARE(c.keyId, std::string("A"));
        QCOMPARE(c.key.reveal(), kHidden);
        QCOMPARE(c.session.reveal(), std::string("old"));
        QCOMPARE(c.source, std::string("the environment"));
        set("AWS_SESSION_TOKEN", "new");
        QCOMPARE(aws().value().session.reveal(), std::string("new"));
    }

    void profiles() {
        QDir(home_->path()).mkdir(".aws");
        write(".aws/config",
              "[default]\nregion = r0\n[profile lab]\nregion = r1\nservices = here\naws_access_key_id = no\n"
              "s3 =\n  addressing_style = virtual\n[services here]\ns3 =\n  endpoint_url = http://s3\n"
              "[profile sso]\nsso_session = x\n[profile role]\nrole_arn = a\nsource_profile = lab\n");
        write(".aws/credentials", "[lab]\naws_access_key_id = A\naws_secret_access_key = " + kHidden +
                                      "\naws_session_token = T\n");
        QVERIFY(aws().value().anonymous());
        QCOMPARE(awsSettings().region, std::string("r0"));
        set("AWS_DEFAULT_PROFILE", "lab");
        const Credentials c = aws().value();
        QCOMPARE(c.keyId, std::string("A"));
        QCOMPARE(c.key.reveal(), kHidden);
        QCOMPARE(c.session.reveal(), std::string("T"));
        QCOMPARE(c.source, std::string("the profile 'lab'"));
        AwsSettings settings = awsSettings();
        QCOMPARE(settings.region, std::string("r1"));
        QCOMPARE(settings.endpoint, std::string("http://s3"));
        QCOMPARE(settings.pathStyle, std::optional(false));
        set("AWS_ENDPOINT_URL", "http://all");
        QCOMPARE(awsSettings().endpoint, std::string("http://all"));
        set("AWS_ENDPOINT_URL_S3", "http://one");
        QCOMPARE(awsSettings().endpoint, std::string("http://one"));
        set("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true");
        QCOMPARE(awsSettings().endpoint, std::string());
        set("AWS_PROFILE", "sso");
        refuses(aws(), "'sso' gives no credentials: it is of a kind that is not read here (sso_session)");
        set("AWS_PROFILE", "role");
        refuses(aws(), "(role_arn)");
        set("AWS_PROFILE", "typo");
        refuses(aws(), "the profile 'typo' gives no credentials: there is no such profile");
        set("AWS_ACCESS_KEY_ID", "E");
        set("AWS_SECRET_ACCESS_KEY", "S");
        QCOMPARE(aws().value().keyId, std::string("E"));
    }

    // A command line is split, and is for no shell.
    void commands_data() {
        QTest::addColumn<QByteArray>("command");
        QTest::addColumn<QByteArray>("words");
        row("none", "", "");
        row("words", " a  b\t", "a|b|");
        row("single quotes", "'a \"$b' c", "a \"$b|c|");
        row("double quotes", "\"a 'b\" \"c\\\"d\\\\e\\f\"", "a 'b|c\"d\\e\\f|");
        row("backslashes", "a\\ b \\'c", "a b|'c|");
        row("empty", "'' \"\"a", "|a|");
        row("nothing of a shell", "$HOME ~ ;id `id` $(id) >x a|b &", "$HOME|~|;id|`id`|$(id)|>x|a|b|&|");
    }
    void commands() {
        QFETCH(QByteArray, command);
        QFETCH(QByteArray, words);
        write("config",
              "[default]\ncredential_process = " +
                  program("printf '%s|' \"$@\" > '" + path("words") + "'\ncat '" + path("said") + "'\n") +
                  " " + command.toStdString() + "\n");
        write("said", awsJson("A"));
        set("AWS_CONFIG_FILE", path("config"));
        const auto found = aws();
        QVERIFY2(found.ok(), found.ok() ? "" : textOf(found.error()).c_str());
        QCOMPARE(found->key.reveal(), kHidden);
        QVERIFY(found->ends > std::chrono::system_clock::now() + 24h);
        const std::string seen = contentOf(path("words"));
        QCOMPARE(QByteArray::fromStdString(seen == "|" && words.isEmpty() ? "" : seen), words);
    }

    void programsThatFail_data() {
        QTest::addColumn<QByteArray>("command");
        QTest::addColumn<QByteArray>("why");
        row("fails", "sh -c 'echo hidden; echo hidden >&2; exit 1'", "failed");
        row("no JSON", "echo hidden", "not JSON");
        row("no key", "echo '{\"AccessKeyId\":\"hidden\"}'", "has no key");
        row("absent", "/no/such/program hidden", "cannot be started");
        row("open quote", "echo 'hidden", "no command line");
        row("too much", "yes hidden", "failed");
    }
    void programsThatFail() {
        QFETCH(QByteArray, command);
        QFETCH(QByteArray, why);
        write("config", "[profile x]\ncredential_process = " + command.toStdString() + "\n");
        set("AWS_CONFIG_FILE", path("config"));
        set("AWS_PROFILE", "x");
        refuses(aws(), why.toStdString());
    }

    void programsAreStopped() {
        write("config",
              "[default]\ncredential_process = " +
                  program("mkfifo '" + path("never") + "'\necho $$ > '" + path("pid.new") + "'\nmv '" +
                          path("pid.new") + "' '" + path("pid") + "'\nread x < '" + path("never") + "'\n") +
                  "\n");
        set("AWS_CONFIG_FILE", path("config"));
        CredentialSource source([] { return aws(); });
        StopSource stop;
        auto found = std::async(std::launch::async, [&] {
            const StopScope scope{StopToken(stop)};
            return source.get();
        });
        QTRY_VERIFY_WITH_TIMEOUT(QFile::exists(q(path("pid"))), 60'000);
        stop.requestStop();
        QCOMPARE(found.get().error().code, ErrorCode::cancelled);
        const pid_t pid = std::stoi(contentOf(path("pid")));
        QCOMPARE(::kill(pid, 0), -1);
        QCOMPARE(errno, ESRCH);
    }

    void webIdentity() {
        std::atomic<int> status{200};
        HttpServer sts([&](const Asked& asked) -> Answered {
            if (status != 200)
                return {status,
                        {},
                        "<ErrorResponse><Error><Code>InvalidIdentityToken</Code><Message>no such "
                        "provider</Message></Error></ErrorResponse>"};
            return {200,
                    {},
                    "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>"
                    "<AccessKeyId>" +
                        field(asked, "WebIdentityToken") + "</AccessKeyId><SecretAccessKey>" + kHidden +
                        "</SecretAccessKey><SessionToken>T</SessionToken><Expiration>2099-01-01T00:00:00Z"
                        "</Expiration></Credentials></AssumeRoleWithWebIdentityResult></"
                        "AssumeRoleWithWebIdentityResponse>"};
        });
        set("AWS_ENDPOINT_URL_STS", sts.url());
        set("AWS_WEB_IDENTITY_TOKEN_FILE", write("token", "first\n"));
        set("AWS_ROLE_ARN", "arn:aws:iam::1:role/a b");
        const Credentials c = aws().value();
        QCOMPARE(c.keyId, std::string("first"));
        QCOMPARE(c.key.reveal(), kHidden);
        QCOMPARE(c.session.reveal(), std::string("T"));
        QVERIFY(c.ends > std::chrono::system_clock::now() + 24h);
        const Asked asked = sts.asked().at(0);
        QCOMPARE(asked.method, std::string("POST"));
        QCOMPARE(asked.header("authorization"), std::string());
        QCOMPARE(field(asked, "Action"), std::string("AssumeRoleWithWebIdentity"));
        QCOMPARE(field(asked, "RoleArn"), std::string("arn:aws:iam::1:role/a b"));
        QCOMPARE(field(asked, "RoleSessionName"), std::string("shardscope"));
        // It is read anew: others replace it.
        write("token", "second");
        set("AWS_ROLE_SESSION_NAME", "me");
        QCOMPARE(aws().value().keyId, std::string("second"));
        QCOMPARE(field(sts.asked().back(), "RoleSessionName"), std::string("me"));
        write("token", kHidden);
        status = 400;
        refuses(aws(), "the web identity of this pod gives no credentials: no such provider");
        set("AWS_WEB_IDENTITY_TOKEN_FILE", path("absent"));
        refuses(aws(), "cannot be read");
        status = 200;
        qunsetenv("AWS_WEB_IDENTITY_TOKEN_FILE");
        set("AWS_CONFIG_FILE", write("config", "[profile web]\nrole_arn = r\nweb_identity_token_file = " +
                                                   write("third", "third") + "\n"));
        set("AWS_PROFILE", "web");
        QCOMPARE(aws().value().keyId, std::string("third"));
    }

    void container() {
        std::atomic<int> status{200};
        HttpServer service([&](const Asked& asked) -> Answered {
            return {status, {}, awsJson(asked.header("authorization"))};
        });
        const std::string url = service.url() + "/v1/credentials";
        set("AWS_CONTAINER_CREDENTIALS_FULL_URI", url);
        set("AWS_CONTAINER_AUTHORIZATION_TOKEN", "from-environment");
        const Credentials c = aws().value();
        QCOMPARE(c.keyId, std::string("from-environment"));
        QCOMPARE(c.session.reveal(), std::string("token-of-from-environment"));
        QCOMPARE(service.asked().back().path, std::string("/v1/credentials"));
        set("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", write("token", "from-file\n"));
        QCOMPARE(aws().value().keyId, std::string("from-file"));
        status = 500;
        write("token", kHidden);
        refuses(aws(), "the container's service gives no credentials: status 500");
        const size_t asked = service.asked().size();
        write("token", kHidden + "\r\nX-Other: header");
        refuses(aws(), "several lines");
        write("token", kHidden);
        // The token is for nobody else.
        const std::string port = std::to_string(service.port());
        for (const std::string& elsewhere :
             std::vector<std::string>{"http://127.0.0.2:" + port, "http://localhost@127.0.0.2:" + port,
                                      "http://127.0.0.1.example/", "ftp://h", "nothing"}) {
            set("AWS_CONTAINER_CREDENTIALS_FULL_URI", elsewhere);
            refuses(aws(), "its address is not one of a container's host");
        }
        QCOMPARE(service.asked().size(), asked);
    }

    void machine() {
        std::string role = "a role";
        std::atomic<int> status{200};
        HttpServer service([&](const Asked& asked) -> Answered {
            const std::string list = "/latest/meta-data/iam/security-credentials/";
            if (asked.path == "/latest/api/token")
                return asked.method == "PUT" && !asked.header("x-aws-ec2-metadata-token-ttl-seconds").empty()
                           ? Answered{200, {}, kHidden}
                           : Answered{403};
            if (asked.header("x-aws-ec2-metadata-token") != kHidden) return {401};
            if (asked.path == list) return role.empty() ? Answered{404} : Answered{200, {}, role + "\n"};
            return asked.path == list + "a%20role" ? Answered{status, {}, awsJson("A")} : Answered{404};
        });
        set("AWS_EC2_METADATA_SERVICE_ENDPOINT", service.url() + "/");
        QVERIFY(aws().value().anonymous());
        QVERIFY(service.asked().empty());  // it is disabled
        qunsetenv("AWS_EC2_METADATA_DISABLED");
        const Credentials c = aws().value();
        QCOMPARE(c.keyId, std::string("A"));
        QCOMPARE(c.key.reveal(), kHidden);
        QCOMPARE(c.source, std::string("the machine's role"));
        QCOMPARE(service.asked().size(), size_t{3});
        status = 500;
        refuses(aws(), "the machine's role gives no credentials: status 500");
        role.clear();
        QVERIFY(aws().value().anonymous());
        set("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1");
        QVERIFY(aws().value().anonymous());
    }

    void environmentOfGoogle() {
        set("GS_ACCESS_KEY_ID", "G");
        set("GS_SECRET_ACCESS_KEY", kHidden);
        const Credentials keys = findGoogleCredentials().value();
        QCOMPARE(keys.keyId, std::string("G"));
        QCOMPARE(keys.key.reveal(), kHidden);
        for (const char* name : {"CLOUDSDK_AUTH_ACCESS_TOKEN", "GOOGLE_OAUTH_ACCESS_TOKEN"}) {
            set(name, std::string("of ") + name + "\n");
            const Credentials token = findGoogleCredentials().value();
            QCOMPARE(token.keyId, std::string());
            QCOMPARE(token.session.reveal(), std::string("of ") + name);
            QVERIFY(!token.anonymous());
        }
    }

    void serviceAccount() {
        const Key key(EVP_RSA_gen(2048), EVP_PKEY_free);
        std::string claims;
        std::atomic<int> status{200};
        HttpServer service([&](const Asked& asked) -> Answered {
            if (status != 200)
                return {
                    status,
                    {},
                    jsonOf({{"error", "invalid_grant"}, {"error_description", "Invalid JWT\n Signature"}})};
            const std::string assertion = field(asked, "assertion");
            const size_t first = assertion.find('.'), last = assertion.rfind('.');
            if (field(asked, "grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer" ||
                fromBase64Url(assertion.substr(0, first)) != "{\"alg\":\"RS256\",\"typ\":\"JWT\"}" ||
                !isSignedBy(key, assertion.substr(0, last), fromBase64Url(assertion.substr(last + 1))))
                return {400, {}, "{}"};
            claims = fromBase64Url(assertion.substr(first + 1, last - first - 1));
            return {200, {}, jsonOf({{"access_token", q(kHidden)}, {"expires_in", 3599}})};
        });
        const auto account = [&](const std::string& pem) {
            return write("account.json", jsonOf({{"type", "service_account"},
                                                 {"client_email", "me@project"},
                                                 {"private_key", q(pem)},
                                                 {"token_uri", q(service.url() + "/token")}}));
        };
        set("GOOGLE_APPLICATION_CREDENTIALS", account(pemOf(key)));
        const auto found = findGoogleCredentials();
        QVERIFY2(found.ok(), found.ok() ? "" : textOf(found.error()).c_str());
        QCOMPARE(found->session.reveal(), kHidden);
        QVERIFY(found->ends > std::chrono::system_clock::now() + 50min);
        const QJsonObject said = QJsonDocument::fromJson(QByteArray::fromStdString(claims)).object();
        QCOMPARE(said["iss"].toString(), QString("me@project"));
        QCOMPARE(said["aud"].toString().toStdString(), service.url() + "/token");
        QCOMPARE(said["exp"].toInteger() - said["iat"].toInteger(), qint64{3600});
        QVERIFY(said["scope"].toString().endsWith("/devstorage.read_write"));
        status = 400;
        refuses(findGoogleCredentials(), "gives no token: Invalid JWT Signature");
        account("-----BEGIN PRIVATE KEY-----\nhidden\n-----END PRIVATE KEY-----\n");
        refuses(findGoogleCredentials(), "its private key cannot be used");
        write("account.json", jsonOf({{"type", "external_account"}, {"secret", "hidden"}}));
        refuses(findGoogleCredentials(), "of a kind that is not read here ('external_account')");
        write("account.json", "hidden");
        refuses(findGoogleCredentials(), "it is not JSON");
    }

    void authorizedUser() {
        std::atomic<int> status{200};
        HttpServer service([&](const Asked& asked) -> Answered {
            if (status != 200 || field(asked, "refresh_token") != kHidden ||
                field(asked, "client_secret") != "s&s" || field(asked, "grant_type") != "refresh_token")
                return {400, {}, "hidden"};
            return {200, {}, jsonOf({{"access_token", "token"}, {"expires_in", 3599}})};
        });
        QDir(home_->path()).mkpath(".config/gcloud");
        write(".config/gcloud/application_default_credentials.json",
              jsonOf({{"type", "authorized_user"},
                      {"client_id", "c"},
                      {"client_secret", "s&s"},
                      {"refresh_token", q(kHidden)},
                      {"token_uri", q(service.url())}}));
        const auto found = findGoogleCredentials();
        QVERIFY2(found.ok(), found.ok() ? "" : textOf(found.error()).c_str());
        QCOMPARE(found->session.reveal(), std::string("token"));
        status = 400;
        refuses(findGoogleCredentials(), "gives no token: status 400");
    }

    void machineOfGoogle() {
        std::string answer = jsonOf({{"access_token", "token"}, {"expires_in", 100}});
        HttpServer service([&](const Asked& asked) -> Answered {
            return asked.header("metadata-flavor") == "Google" &&
                           asked.path == "/computeMetadata/v1/instance/service-accounts/default/token"
                       ? Answered{200, {}, answer}
                       : Answered{403};
        });
        set("GCE_METADATA_HOST", "127.0.0.1:" + std::to_string(service.port()));
        QVERIFY(findGoogleCredentials().value().anonymous());
        QVERIFY(service.asked().empty());
        qunsetenv("NO_GCE_CHECK");
        const Credentials c = findGoogleCredentials().value();
        QCOMPARE(c.session.reveal(), std::string("token"));
        QVERIFY(c.ends < std::chrono::system_clock::now() + 200s);
        answer = "hidden";
        refuses(findGoogleCredentials(), "not JSON");
        answer = jsonOf({{"hidden", 1}});
        refuses(findGoogleCredentials(), "has no token");
    }

    // They are looked for once, again shortly before they end, and then not with every request.
    void kept() {
        int looked = 0;
        std::chrono::minutes left{60};
        bool fails = false;
        CredentialSource source([&]() -> Result<Credentials> {
            ++looked;
            if (fails) return makeError(ErrorCode::permission, "none");
            return Credentials{"A" + std::to_string(looked),
                               Secret(kHidden),
                               {},
                               "here",
                               std::chrono::system_clock::now() + left};
        });
        QCOMPARE(source.described(), std::string());
        QCOMPARE(source.get().value().keyId, std::string("A1"));
        QCOMPARE(source.get().value().keyId, std::string("A1"));
        QCOMPARE(source.described(), std::string("here"));
        source.forget();
        left = 5min;
        QCOMPARE(source.get().value().keyId, std::string("A2"));
        QCOMPARE(source.get().value().keyId, std::string("A2"));
        source.forget();
        left = -1min;
        QCOMPARE(source.get().value().keyId, std::string("A3"));
        QCOMPARE(source.get().value().keyId, std::string("A4"));
        fails = true;
        QCOMPARE(source.get().error().code, ErrorCode::permission);
        StopSource stop;
        stop.requestStop();
        const StopScope scope{StopToken(stop)};
        fails = false;
        QCOMPARE(source.get().error().code, ErrorCode::cancelled);
    }

    void presigned() {
        const SignedParts parts{
            "GET",
            "/test.txt",
            canonicalQuery({{"X-Amz-Algorithm", "AWS4-HMAC-SHA256"},
                            {"X-Amz-Credential", "AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request"},
                            {"X-Amz-Date", "20130524T000000Z"},
                            {"X-Amz-Expires", "86400"},
                            {"X-Amz-SignedHeaders", "host"}}),
            {{"host", "examplebucket.s3.amazonaws.com"}},
            std::string(kUnsignedPayload)};
        const SigningKey key{"AKIAIOSFODNN7EXAMPLE", Secret("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
                             "us-east-1"};
        QCOMPARE(sha256Hex(canonicalRequest(parts)),
                 std::string("3bfa292879f6447bbcda7001decf97f4a54dc650c8942174ae0a9121cf58ad04"));
        QCOMPARE(signatureOf(parts, key, "20130524T000000Z"),
                 std::string("aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"));
    }
};

QTEST_GUILESS_MAIN(CredentialsTest)
#include "credentials_test.moc"
