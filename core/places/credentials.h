// Who asks a store: keys for Amazon's and its like, tokens for Google's. Looked for where the stores' own
// tools look, in their order; kept until shortly before they end, then looked for again. Thread-safe.
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
    std::string keyId;  // empty: none were found, requests go unsigned; or `session` is a bearer token
    Secret key, session;
    std::string source;  // "the environment", "profile 'lab'", for messages
    std::optional<std::chrono::system_clock::time_point> ends{};
    bool anonymous() const { return keyId.empty() && session.empty(); }
};

class CredentialSource {
  public:
    using Find = std::function<Result<Credentials>()>;
    explicit CredentialSource(Find find) : find_(std::move(find)) {}

    // Errors: permission (what was named does not give any), cancelled.
    Result<Credentials> get();
    void forget();  // they are refused: look again
    std::string described();

  private:
    const Find find_;
    Mutex mutex_;
    std::optional<Credentials> known_ SHARDSCOPE_GUARDED_BY(mutex_);
    std::chrono::system_clock::time_point found_ SHARDSCOPE_GUARDED_BY(mutex_);  // or not, the last time
};

// What the environment and the files of Amazon's tools say besides keys.
struct AwsSettings {
    std::string profile, region, endpoint;
    std::optional<bool> pathStyle;
    IniSection section;  // of the profile, both files together
};
AwsSettings awsSettings();

// https://docs.aws.amazon.com/sdkref/latest/guide/standardized-credentials.html
Result<Credentials> findAwsCredentials(const AwsSettings& settings);
// https://cloud.google.com/docs/authentication/application-default-credentials
Result<Credentials> findGoogleCredentials();
std::string googleEndpoint();

// Of the Hugging Face hub; the token is Credentials::session.
Credentials findHubToken();
std::string hubEndpoint();
bool hubOffline();  // nothing is asked for; what is in the cache is all that there is

std::string environment(const char* name);  // empty where it is not set
std::string contentOf(const std::string& path);

}  // namespace shardscope
