// Which places can be reached, and with which credentials, for `doctor`. Holds no secrets.
#pragma once

#include <string>
#include <vector>

namespace shardscope {

struct PlaceFacts {
    std::string place;        // "s3://", or the path that was named
    std::string endpoint;     // URL that is asked, without user, password and query
    std::string region;       // of S3 only
    std::string credentials;  // their source: "the environment", "none"; or why the source gives none
    bool reached = false;     // the host answered; of a path: it could be listed
    std::string said;         // "status 403", "3 names"; or why it was not reached
};

// Facts of s3://, gs:// and hf://, then of `paths`, all at the same time and within about 10 seconds. Each
// host gets one request without credentials. A path must have a scheme; it is then listed with credentials.
std::vector<PlaceFacts> placeFacts(const std::vector<std::string>& paths);

struct HttpFacts {
    bool builtIn = false;
    std::string certificates;    // path of the CA certificates; empty = none was found
    std::string proxy, noProxy;  // for HTTPS; without user and password
};
HttpFacts httpFacts();

}  // namespace shardscope
