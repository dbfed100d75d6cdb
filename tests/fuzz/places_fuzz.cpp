// What stores, the hub, web servers and the services of credentials answer, from anybody, and the files of
// their tools. The first line says who is asked. For those that are asked by HTTP the rest is their answers
// in order, between lines of "====": a status, headers, an empty line, a body. In place of libcurl is a class
// Http that hands these out.
#include <algorithm>
#include <cstdlib>

#include "base/numbers.h"
#include "places/credentials.h"
#include "places/http.h"
#include "places/places.h"
#include "places/xml.h"
#include "storage/object_place.h"

namespace shardscope {
namespace {

std::vector<HttpAnswer> answers;  // that are left, the next one last
StopSource* stop = nullptr;

}  // namespace

class HttpTransfer {
  public:
    HttpAnswer answer;
};
struct Http::Work {};

Http::Http() = default;
Http::~Http() = default;

Http& Http::ofProcess() {
    static Http http;
    return http;
}

Http::Ticket Http::start(HttpRequest request) {
    const auto ticket = std::make_shared<HttpTransfer>();
    if (answers.empty()) {
        ticket->answer.failed = "no more";
        return ticket;
    }
    ticket->answer = std::move(answers.back());
    answers.pop_back();
    const std::string& body = ticket->answer.body;
    if (request.into.size() > body.size() && ticket->answer.good()) ticket->answer.status = 416;
    if (body.size() > request.most) ticket->answer.status = 0;
    return ticket;
}

HttpAnswer Http::wait(const Ticket& ticket) {
    return std::move(ticket->answer);
}
void Http::giveUp(const Ticket&) {}
Http::Traffic Http::traffic() {
    return {};
}
bool Http::builtIn() {
    return true;
}
std::string Http::certificates() {
    return {};
}
// What is tried again would be waited for.
void Http::countRetry() {
    stop->requestStop();
}

namespace {

std::string_view takeTo(std::string_view& text, std::string_view end) {
    const size_t at = std::min(text.find(end), text.size());
    const std::string_view taken = text.substr(0, at);
    text.remove_prefix(std::min(at + end.size(), text.size()));
    return taken;
}

void setAnswers(std::string_view text) {
    answers.clear();
    while (!text.empty() && answers.size() < 64) {
        std::string_view one = takeTo(text, "\n====\n");
        HttpAnswer answer;
        answer.status = static_cast<int>(parseNumber<unsigned>(takeTo(one, "\n"), 0, 999).value_or(200));
        while (!one.empty()) {
            std::string_view line = takeTo(one, "\n");
            if (line.empty()) break;
            const std::string name(trimmedText(takeTo(line, ":")));
            answer.headers[name] = trimmedText(line);
        }
        answer.body = one;
        answers.push_back(std::move(answer));
    }
    std::reverse(answers.begin(), answers.end());
}

void look(const std::string& path) {
    auto place = placeOf(path);
    if (!place.ok()) return;
    (void)place->files->stat(place->path);
    const auto directory = place->files->openDirectory(place->path);
    const auto entries = directory.ok() ? (*directory)->list() : std::vector<DirectoryEntry>();
    for (size_t i = 0; entries.ok() && i < entries->size() && i < 4; ++i) {
        const DirectoryEntry& entry = (*entries)[i];
        if (!checkRelativeName(entry.name).ok()) __builtin_trap();
        if (entry.kind == DirectoryEntry::Kind::directory) {
            (void)(*directory)->list(entry.name);
            continue;
        }
        const auto file = (*directory)->openFile(entry.name);
        if (!file.ok() || (*file)->size() == 0) continue;
        std::byte first{};
        (void)(*file)->readBulk((*file)->size() - 1, {&first, 1});
        (void)(*file)->fingerprint();
    }
    (void)place->files->stat(place->path + "/f.pt");
}

void readPlainly(std::string_view text) {
    (void)parseIni(text);
    const std::string decoded = percentDecoded(text);
    if (percentDecoded(percentEncoded(text)) != text || decoded.size() > text.size()) __builtin_trap();
    if (const auto url = parseUrl(text)) (void)absoluteUrl(url->host(), *url);
    if (const int64_t time = timeOfHttp(text); time > 0 && timeOfHttp(httpTimeOf(time)) != time)
        __builtin_trap();
    XmlReader reader(text);
    for (auto event = reader.next(); event.ok() && event->kind != XmlReader::Event::Kind::end;)
        event = reader.next();
}

// Without them in the environment, which keeps all else from asking for any.
void findCredentials(std::string_view text) {
    for (const char* name : {"AWS_ACCESS_KEY_ID", "GOOGLE_OAUTH_ACCESS_TOKEN"})
        unsetenv(name);
    setAnswers(text);
    AwsSettings settings;
    settings.section["role_arn"] = "r";
    settings.section["web_identity_token_file"] = "/etc/passwd";
    (void)findAwsCredentials(settings);
    setAnswers(text);
    (void)findAwsCredentials({});
    setAnswers(text);
    (void)findGoogleCredentials();
}

void prepare() {
    for (const char* name : {"AWS_PROFILE", "AWS_EC2_METADATA_DISABLED", "GOOGLE_APPLICATION_CREDENTIALS"})
        unsetenv(name);
    for (const char* name : {"HOME", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "HF_HOME"})
        setenv(name, "/nowhere", 1);
    for (const char* name : {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "GOOGLE_OAUTH_ACCESS_TOKEN"})
        setenv(name, "k", 1);
    setenv("HF_ENDPOINT", "http://hub", 1);
}

}  // namespace
}  // namespace shardscope

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace shardscope;
    prepare();
    std::string_view text(reinterpret_cast<const char*>(data), size);
    const std::string_view who = takeTo(text, "\n");
    StopSource source;
    stop = &source;
    const StopScope scope{StopToken(source)};
    if (who == "text") return readPlainly(text), 0;
    if (who == "credentials") return findCredentials(text), 0;
    setAnswers(text);
    if (who == "hub") return look("hf://org/m/d"), 0;
    if (who == "web") return look("http://h/d/f.pt?s"), 0;
    look(who == "gs" ? "gs://b/d" : "s3://b/d");
    return 0;
}
