// In place of http_curl.cpp in a program without libcurl.
#include "places/http.h"

namespace shardscope {

class HttpTransfer {};
struct Http::Work {};

Http::Http() : work_(std::make_unique<Work>()) {}
Http::~Http() = default;

Http& Http::ofProcess() {
    static Http http;
    return http;
}

Http::Ticket Http::start(HttpRequest) {
    return nullptr;
}

HttpAnswer Http::wait(const Ticket&) {
    HttpAnswer answer;
    answer.failed = "this program was built without HTTP";
    return answer;
}

void Http::giveUp(const Ticket&) {}

Http::Traffic Http::traffic() {
    return {};
}

void Http::countRetry() {}

bool Http::builtIn() {
    return false;
}

std::string Http::certificates() {
    return {};
}

}  // namespace shardscope
