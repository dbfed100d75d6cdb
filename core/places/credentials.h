// Credentials for stores: keys for S3 and compatible stores, tokens for Google Cloud Storage and the Hugging
// Face hub. They are searched for where the stores' own tools look, in the same order, and kept until shortly
// before they expire. Thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "base/result.h"
#include "places/ini.h"
#include "places/secret.h"

namespace shardscope {

struct Credentials {
    std::string keyId;  // empty = `session` is a bearer token; if that is empty, too, requests go unsigned
    Secret key, session;
    std::string source;  // for messages: "the environment", "profile 'lab'"
    std::optional<std::chrono::system_clock::time_point> ends{};  // empty = no known expiry
    bool anonymous() const { return keyId.empty() && session.empty(); }
};

class CredentialSource {
  public:
    using Find = std::function<Result<Credentials>()>;
    explicit CredentialSource(Find find) : find_(std::move(find)) {}

    // The credentials, searched for where none are known or they are about to expire. Errors: permission (a
    // configured source gives none), cancelled.
    Result<Credentials> get();
    void forget();  // after a refusal: the next get() searches again
    std::string described();

  private:
    const Find find_;
    Mutex mutex_;
    std::optional<Credentials> known_ SHARDSCOPE_GUARDED_BY(mutex_);
    std::chrono::system_clock::time_point found_ SHARDSCOPE_GUARDED_BY(mutex_);  // the last search
};

// Settings of AWS tools other than keys, from the environment and the configuration files.
struct AwsSettings {
    std::string profile, region, endpoint;
    std::optional<bool> pathStyle;
    bool pays = false;   // for requests, in the owner's place
    IniSection section;  // of the profile, from both files
};
AwsSettings awsSettings();

// Source: https://docs.aws.amazon.com/sdkref/latest/guide/standardized-credentials.html
Result<Credentials> findAwsCredentials(const AwsSettings& settings);
// Source: https://cloud.google.com/docs/authentication/application-default-credentials
Result<Credentials> findGoogleCredentials();
std::string googleEndpoint();

// For the Hugging Face hub; Credentials::session holds the token.
Credentials findHubToken();
std::string hubEndpoint();
bool hubOffline();  // HF_HUB_OFFLINE: no requests, only the cache is read

std::string environment(const char* name);  // empty where it is not set
std::string keyInEnvironment(
    const char* name);  // without blanks around it: secrets of clusters end with a line
std::string contentOf(const std::string& path);  // up to 4 MiB; empty where it cannot be read

}  // namespace shardscope
