// What huggingface_hub's variables and files say:
// https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables
#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <strings.h>

#include "base/text.h"
#include "places/credentials.h"
#include "places/http.h"
#include "places/hub_cache.h"

namespace shardscope {
namespace {

// As huggingface_hub takes such variables.
bool isOn(const char* variable) {
    const std::string value = environment(variable);
    constexpr std::array<std::string_view, 8> on = {"1", "on", "ON", "yes", "YES", "true", "True", "TRUE"};
    return std::find(on.begin(), on.end(), value) != on.end();
}

}  // namespace

Credentials findHubToken() {
    if (isOn("HF_HUB_DISABLE_IMPLICIT_TOKEN")) return {};
    for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
        // Secrets of clusters often end with a line.
        if (const std::string token(trimmedText(environment(name))); !token.empty())
            return {{}, {}, Secret(token), name};
    }
    std::string file = environment("HF_TOKEN_PATH");
    if (file.empty()) file = hubHome() + "/token";
    const std::string token(trimmedText(contentOf(file)));
    if (token.empty()) return {};
    return {{}, {}, Secret(token), fmt::format("the file '{}'", printable(file, kNameInMessage))};
}

bool hubOffline() {
    const std::string value = environment("HF_HUB_OFFLINE");
    return !value.empty() && value != "0" && strcasecmp(value.c_str(), "off") != 0 &&
           strcasecmp(value.c_str(), "no") != 0 && strcasecmp(value.c_str(), "false") != 0;
}

std::string hubEndpoint() {
    std::string endpoint = environment("HF_ENDPOINT");
    if (endpoint.empty()) endpoint = "https://huggingface.co";
    while (endpoint.ends_with('/'))
        endpoint.pop_back();
    return endpoint;
}

}  // namespace shardscope
