// Which places can be reached, and as whom: what `doctor` says. There is no secret in it.
#pragma once

#include <string>
#include <vector>

namespace shardscope {

struct PlaceFacts {
    std::string place;        // "s3://", or the path that was named
    std::string endpoint;     // who is asked, without user, password and query
    std::string region;       // of s3 alone
    std::string credentials;  // whose: "the environment", "none"; or why what is set up gives none
    bool reached = false;     // there was an answer; of a path: what is there was listed
    std::string said;         // "status 403", "3 names"; else why not
};

// Of the schemes that have a host of their own, then of `paths`, all at the same time and in a few seconds.
// The hosts get one request that names no account; a path, which must have a scheme, is listed as its verbs
// list it.
std::vector<PlaceFacts> placeFacts(const std::vector<std::string>& paths);

struct HttpFacts {
    bool builtIn = false;
    std::string certificates;    // the file with those of authorities; empty = none was found
    std::string proxy, noProxy;  // for HTTPS; without user and password
};
HttpFacts httpFacts();

}  // namespace shardscope
