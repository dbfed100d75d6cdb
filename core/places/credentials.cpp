#include "places/credentials.h"

#include <array>
#include <fstream>

#include "places/http.h"

namespace shardscope {

std::string environment(const char* name) {
    const char* value = std::getenv(name);
    return value ? value : "";
}

std::string keyInEnvironment(const char* name) {
    return std::string(trimmedText(environment(name)));
}

std::string contentOf(const std::string& path) {
    constexpr size_t most = size_t{4} << 20;
    std::ifstream file(path, std::ios::binary);
    std::string text;
    std::array<char, 4096> piece{};
    while (text.size() < most && (file.read(piece.data(), piece.size()) || file.gcount() > 0))
        text.append(piece.data(), static_cast<size_t>(file.gcount()));
    return text;
}

Result<Credentials> CredentialSource::get() {
    using namespace std::chrono_literals;
    MutexLock lock(mutex_);
    const auto now = std::chrono::system_clock::now();
    const bool good = known_ && (!known_->ends || now < *known_->ends);
    // Services of machines give the same keys until minutes before their end.
    if (good && (!known_->ends || now + 10min < *known_->ends || now < found_ + 1min)) return *known_;
    auto found = find_();
    // A service that was given up looks like one that is not there.
    SHARDSCOPE_TRY(StopScope::current().poll());
    found_ = std::chrono::system_clock::now();
    if (!found.ok() && good) return *known_;
    if (found.ok()) {
        known_ = *found;
        if (known_->anonymous()) known_->ends = found_ + 15min;  // somebody may log in meanwhile
    }
    return found;
}

void CredentialSource::forget() {
    MutexLock lock(mutex_);
    known_.reset();
}

std::string CredentialSource::described() {
    MutexLock lock(mutex_);
    return known_ ? known_->source : std::string();
}

}  // namespace shardscope
