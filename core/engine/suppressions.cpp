#include "engine/suppressions.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "engine/whole_file.h"

namespace shardscope {
namespace {

using Entries = nlohmann::ordered_json;
constexpr size_t kMostBytes = size_t{16} << 20;

// Where Qt puts the settings of the window, whose organization and name are both "shardscope".
std::string defaultFile() {
    const char* config = std::getenv("XDG_CONFIG_HOME");
    const char* home = std::getenv("HOME");
    const std::string base = config && *config == '/' ? config : std::string(home ? home : "") + "/.config";
    return base + "/shardscope/shardscope/suppressions.json";
}

std::string textOf(const Entries& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

std::string acceptedName(const std::string& path) {
    if (path.find("://") != std::string::npos) return path;
    std::error_code failed;
    std::string name = std::filesystem::absolute(path, failed).lexically_normal().string();
    while (name.size() > 1 && name.back() == '/')
        name.pop_back();
    return failed ? path : name;
}

bool isStructural(std::string_view rule) {
    return rule.starts_with("file.") || rule.starts_with("coverage.") || rule.starts_with("rank.") ||
           rule.starts_with("meta.");
}

SuppressionStore::SuppressionStore(std::string file) : file_(file.empty() ? defaultFile() : std::move(file)) {
    load();
}

void SuppressionStore::load() {
    std::ifstream in(file_, std::ios::binary);
    if (!in) return;
    std::string text(std::istreambuf_iterator<char>(in), {});
    const Entries document =
        text.size() > kMostBytes ? Entries() : Entries::parse(text, nullptr, /*allow_exceptions=*/false);
    unreadable_ = !document.is_array();
    if (unreadable_) return;
    entries_.clear();
    for (const Entries& object : document) {
        if (!object.is_object()) continue;
        entries_.push_back({textOf(object, "checkpoint"),
                            {textOf(object, "rule"), textOf(object, "cause"), textOf(object, "reason"),
                             textOf(object, "by"), textOf(object, "at")}});
    }
}

Status SuppressionStore::save() {
    namespace fs = std::filesystem;
    std::error_code failed;
    if (unreadable_) fs::rename(file_, file_ + ".unreadable", failed);
    unreadable_ = false;
    Entries document = Entries::array();
    for (const Entry& e : entries_) {
        document.push_back({{"checkpoint", e.checkpoint},
                            {"rule", e.suppression.rule},
                            {"cause", e.suppression.cause},
                            {"reason", e.suppression.reason},
                            {"by", e.suppression.by},
                            {"at", e.suppression.at}});
    }
    fs::create_directories(fs::path(file_).parent_path(), failed);
    return putWholeFile(systemFileSystem(), file_,
                        document.dump(4, ' ', false, Entries::error_handler_t::replace) + "\n", true);
}

std::vector<Suppression> SuppressionStore::of(std::string_view checkpoint) const {
    std::vector<Suppression> list;
    for (const Entry& e : entries_) {
        if (e.checkpoint.empty() || e.checkpoint == checkpoint) list.push_back(e.suppression);
    }
    return list;
}

bool SuppressionStore::drop(std::string_view checkpoint, std::string_view rule, std::string_view cause) {
    return std::erase_if(entries_, [&](const Entry& e) {
               return (e.checkpoint == checkpoint || e.checkpoint.empty()) && e.suppression.rule == rule &&
                      e.suppression.cause == cause;
           }) > 0;
}

Status SuppressionStore::add(const std::string& checkpoint, Suppression suppression) {
    load();
    drop(checkpoint, suppression.rule, suppression.cause);
    const char* user = std::getenv("USER");
    if (suppression.by.empty() && user) suppression.by = user;
    if (suppression.at.empty())
        suppression.at = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
    entries_.push_back({checkpoint, std::move(suppression)});
    return save();
}

Status SuppressionStore::remove(const std::string& checkpoint, std::string_view rule,
                                std::string_view cause) {
    load();
    return drop(checkpoint, rule, cause) ? save() : Status();
}

}  // namespace shardscope
