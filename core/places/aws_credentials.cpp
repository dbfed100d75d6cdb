#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "hosts/process.h"
#include "places/credentials.h"
#include "places/http.h"
#include "places/json_text.h"
#include "places/xml.h"

namespace shardscope {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::json;
using Found = Result<std::optional<Credentials>>;  // nothing: this kind is not set up here

Error none(const std::string& source, std::string_view why) {
    return makeError(ErrorCode::permission, fmt::format("{} gives no credentials: {}", source, why))
        .withHint(
            "'aws sts get-caller-identity' shows who you are; "
            "'eval $(aws configure export-credentials --format env)' puts keys into the environment");
}

std::optional<std::chrono::system_clock::time_point> endOf(std::string_view text) {
    const int64_t ns = timeOfHttp(text);
    if (!ns) return std::nullopt;
    return std::chrono::system_clock::time_point(
        std::chrono::duration_cast<std::chrono::system_clock::duration>(std::chrono::nanoseconds(ns)));
}

// {"AccessKeyId", "SecretAccessKey", "Token" or "SessionToken", "Expiration"}
Result<Credentials> fromJson(const std::string& text, const std::string& source) {
    const Json json = Json::parse(text, nullptr, false);
    if (!json.is_object()) return none(source, "what it answers is not JSON");
    Credentials c{textOf(json, "AccessKeyId"), Secret(textOf(json, "SecretAccessKey")),
                  Secret(textOf(json, json.contains("Token") ? "Token" : "SessionToken")), source,
                  endOf(textOf(json, "Expiration"))};
    if (c.keyId.empty() || c.key.empty()) return none(source, "its answer has no key");
    return c;
}

Found fromEnvironment() {
    Credentials c{keyInEnvironment("AWS_ACCESS_KEY_ID"), Secret(keyInEnvironment("AWS_SECRET_ACCESS_KEY")),
                  Secret(keyInEnvironment("AWS_SESSION_TOKEN")), "the environment"};
    if (c.session.empty()) c.session = Secret(keyInEnvironment("AWS_SECURITY_TOKEN"));
    if (c.keyId.empty() || c.key.empty()) return std::optional<Credentials>();
    return std::optional(std::move(c));
}

// Split as a shell does it, which is all that is taken of a shell: quotes and backslashes count, "$", "~" and
// ";" are themselves. Nothing where a quote is not closed.
std::optional<std::vector<std::string>> commandWords(std::string_view command) {
    std::vector<std::string> words;
    bool within = false;  // a word
    char quote = 0;
    for (size_t i = 0; i < command.size(); ++i) {
        const char c = command[i], next = i + 1 < command.size() ? command[i + 1] : '\0';
        if (!quote && (c == ' ' || c == '\t')) {
            within = false;
            continue;
        }
        if (!within) words.emplace_back();
        within = true;
        if (quote ? c == quote : c == '\'' || c == '"') {
            quote = quote ? '\0' : c;
        } else if (c == '\\' && next && (!quote || (quote == '"' && (next == '"' || next == '\\')))) {
            words.back() += next;
            ++i;
        } else {
            words.back() += c;
        }
    }
    return quote ? std::nullopt : std::optional(std::move(words));
}

// Runs the program that the user's own file names. What it says is not shown: it may hold keys.
Result<Credentials> fromProcess(const std::string& command, const std::string& source) {
    const auto words = commandWords(command);
    if (!words || words->empty()) return none(source, "its credential_process is no command line");
    const auto output = outputOf(*words, 60s);
    if (output.ok()) return fromJson(*output, source);
    return none(source, output.error().code == ErrorCode::remote
                            ? "its credential_process failed, or took longer than a minute"
                            : "its credential_process cannot be started");
}

std::string roleSession() {
    const std::string name = environment("AWS_ROLE_SESSION_NAME");
    return name.empty() ? "shardscope" : name;
}

Result<Credentials> fromWebIdentity(const std::string& tokenFile, const std::string& role,
                                    const AwsSettings& settings, const std::string& source) {
    const std::string token(trimmedText(contentOf(tokenFile)));
    if (token.empty()) return none(source, fmt::format("the token file '{}' cannot be read", tokenFile));
    const std::string form = fmt::format(
        "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn={}&RoleSessionName={}&WebIdentityToken={"
        "}",
        percentEncoded(role), percentEncoded(roleSession()), percentEncoded(token));
    std::string endpoint = environment("AWS_ENDPOINT_URL_STS");
    if (endpoint.empty()) endpoint = fmt::format("https://sts.{}.amazonaws.com", settings.region);
    HttpRequest request{"POST", endpoint + "/"};
    request.headers.emplace_back("Content-Type", "application/x-www-form-urlencoded");
    request.content = std::as_bytes(std::span(form));
    request.patience = 30s;
    const HttpAnswer answer = Http::ofProcess().ask(std::move(request));
    Credentials c;
    c.source = source;
    std::string said = answer.failed;
    (void)readXml(answer.body, [&](std::string_view path, std::string_view text) -> Status {
        if (path.ends_with("/Credentials/AccessKeyId")) c.keyId = text;
        if (path.ends_with("/Credentials/SecretAccessKey")) c.key = Secret(std::string(text));
        if (path.ends_with("/Credentials/SessionToken")) c.session = Secret(std::string(text));
        if (path.ends_with("/Credentials/Expiration")) c.ends = endOf(text);
        if (path.ends_with("Error/Message")) said = oneLine(text, 200);
        return {};
    });
    if (c.keyId.empty() || c.key.empty())
        return none(source, said.empty() ? "STS answers without keys" : said);
    return c;
}

Found fromProfile(const AwsSettings& settings) {
    const IniSection& section = settings.section;
    const std::string source = fmt::format("the profile '{}'", printable(settings.profile, kNameInMessage));
    if (section.empty() && !settings.profile.empty() && settings.profile != "default")
        return none(source, "there is no such profile");
    const auto value = [&](std::string_view name) {
        const auto it = section.find(name);
        return it == section.end() ? std::string() : it->second;
    };
    Credentials c{value("aws_access_key_id"), Secret(value("aws_secret_access_key")),
                  Secret(value("aws_session_token")), source};
    if (!c.keyId.empty() && !c.key.empty()) return std::optional(std::move(c));
    const auto some = [](Result<Credentials> found) -> Found {
        if (!found.ok()) return std::move(found).error();
        return std::optional(std::move(*found));
    };
    if (const std::string command = value("credential_process"); !command.empty())
        return some(fromProcess(command, source));
    if (const std::string role = value("role_arn"), file = value("web_identity_token_file");
        !role.empty() && !file.empty())
        return some(fromWebIdentity(file, role, settings, source));
    for (const std::string_view kind : {"sso_session", "sso_start_url", "role_arn"}) {
        if (!value(kind).empty())
            return none(source, fmt::format("it is of a kind that is not read here ({})", kind));
    }
    return std::optional<Credentials>();
}

Found fromWebIdentityOfEnvironment(const AwsSettings& settings) {
    const std::string file = environment("AWS_WEB_IDENTITY_TOKEN_FILE"), role = environment("AWS_ROLE_ARN");
    if (file.empty() || role.empty()) return std::optional<Credentials>();
    SHARDSCOPE_ASSIGN(Credentials c, fromWebIdentity(file, role, settings, "the web identity of this pod"));
    return std::optional(std::move(c));
}

bool isContainerHost(const UrlParts& url) {
    const std::string host = url.host();
    for (const std::string_view known :
         {"169.254.170.2", "169.254.170.23", "[fd00:ec2::23]", "localhost", "127.0.0.1", "[::1]"}) {
        if (host == known) return true;
    }
    return url.scheme == "https";
}

Found fromContainer() {
    std::string url = environment("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    if (const std::string relative = environment("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"); !relative.empty())
        url = "http://169.254.170.2" + relative;
    if (url.empty()) return std::optional<Credentials>();
    const std::string source = "the container's service";
    const auto parts = parseUrl(url);
    if (!parts || !isContainerHost(*parts))
        return none(source, "its address is not one of a container's host");
    HttpRequest request{"GET", url};
    std::string token = environment("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    if (const std::string file = environment("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"); !file.empty())
        token = trimmedText(contentOf(file));
    if (token.find_first_of("\r\n") != std::string::npos) return none(source, "its token has several lines");
    if (!token.empty()) request.headers.emplace_back("Authorization", token);
    request.patience = 10s;
    const HttpAnswer answer = Http::ofProcess().ask(std::move(request));
    if (!answer.good()) return none(source, failureOf(answer));
    SHARDSCOPE_ASSIGN(Credentials c, fromJson(answer.body, source));
    return std::optional(std::move(c));
}

// The metadata service of a machine, which is asked last: elsewhere it costs a second.
Found fromMachine() {
    if (environment("AWS_EC2_METADATA_DISABLED") == "true") return std::optional<Credentials>();
    std::string base = environment("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    if (base.empty()) base = "http://169.254.169.254";
    if (base.ends_with('/')) base.pop_back();
    const auto ask = [&](const char* method, const std::string& path,
                         std::pair<std::string, std::string> header) {
        HttpRequest request{method, base + path, {std::move(header)}};
        request.patience = 1s;
        request.connecting = 1s;
        return Http::ofProcess().ask(std::move(request));
    };
    const HttpAnswer token =
        ask("PUT", "/latest/api/token", {"x-aws-ec2-metadata-token-ttl-seconds", "21600"});
    if (!token.good()) return std::optional<Credentials>();
    const std::string place = "/latest/meta-data/iam/security-credentials/";
    const HttpAnswer role = ask("GET", place, {"x-aws-ec2-metadata-token", token.body});
    if (role.status == 404 || (role.good() && role.body.empty())) return std::optional<Credentials>();
    const std::string source = "the machine's role";
    if (!role.good()) return none(source, failureOf(role));
    const HttpAnswer answer = ask("GET", place + percentEncoded(role.body.substr(0, role.body.find('\n'))),
                                  {"x-aws-ec2-metadata-token", token.body});
    if (!answer.good()) return none(source, failureOf(answer));
    SHARDSCOPE_ASSIGN(Credentials c, fromJson(answer.body, source));
    return std::optional(std::move(c));
}

std::string homeFile(const char* variable, const char* name) {
    const std::string place = environment(variable);
    return place.empty() ? environment("HOME") + name : place;
}

}  // namespace

AwsSettings awsSettings() {
    AwsSettings settings;
    settings.profile = environment("AWS_PROFILE");
    if (settings.profile.empty()) settings.profile = environment("AWS_DEFAULT_PROFILE");
    if (settings.profile.empty()) settings.profile = "default";
    const Ini config = parseIni(contentOf(homeFile("AWS_CONFIG_FILE", "/.aws/config")));
    const Ini keys = parseIni(contentOf(homeFile("AWS_SHARED_CREDENTIALS_FILE", "/.aws/credentials")));
    const auto add = [&](const Ini& ini, const std::string& name, std::string_view prefix = "") {
        if (const auto it = ini.find(name); it != ini.end()) {
            for (const auto& [key, value] : it->second)
                settings.section[std::string(prefix) + key] = value;
        }
    };
    add(config, settings.profile == "default" ? "default" : "profile " + settings.profile);
    add(keys, settings.profile);
    const auto value = [&](std::string_view name) {
        const auto it = settings.section.find(name);
        return it == settings.section.end() ? std::string() : it->second;
    };
    if (const std::string services = value("services"); !services.empty())
        add(config, "services " + services, "services.");
    settings.region = keyInEnvironment("AWS_REGION");
    if (settings.region.empty()) settings.region = keyInEnvironment("AWS_DEFAULT_REGION");
    if (settings.region.empty()) settings.region = value("region");
    if (settings.region.empty()) settings.region = "us-east-1";
    if (environment("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS") != "true") {
        for (const std::string& endpoint :
             {keyInEnvironment("AWS_ENDPOINT_URL_S3"), keyInEnvironment("AWS_ENDPOINT_URL"),
              value("services.s3.endpoint_url"), value("endpoint_url")}) {
            if (settings.endpoint.empty()) settings.endpoint = endpoint;
        }
    }
    const std::string style = value("s3.addressing_style");
    if (style == "path" || style == "virtual") settings.pathStyle = style == "path";
    const std::string payer = keyInEnvironment("AWS_REQUEST_PAYER");
    settings.pays = payer == "requester" || payer == "true";
    return settings;
}

Result<Credentials> findAwsCredentials(const AwsSettings& settings) {
    const std::function<Found()> kinds[] = {
        [] { return fromEnvironment(); },
        [&] { return fromProfile(settings); },
        [&] { return fromWebIdentityOfEnvironment(settings); },
        [] { return fromContainer(); },
        [] { return fromMachine(); },
    };
    for (const auto& kind : kinds) {
        SHARDSCOPE_ASSIGN(std::optional<Credentials> found, kind());
        if (found) return *std::move(found);
    }
    return Credentials{};
}

}  // namespace shardscope
