#include "support/genuine.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <tuple>

#include <fnmatch.h>

namespace shardscope::test {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

const fs::path kRoot = SHARDSCOPE_TEST_DATA "/genuine";

json parsed(const fs::path& file) {
    std::ifstream in(file);
    return in ? json::parse(in) : json::array();
}

// All entries of a family's shown.json that fit the name, the later ones over the earlier ones.
json shownOf(const json& entries, const std::string& name) {
    json shown = json::object();
    for (const json& entry : entries) {
        if (fnmatch(entry["cases"].get<std::string>().c_str(), name.c_str(), 0) == 0)
            shown.merge_patch(entry);
    }
    return shown;
}

std::vector<fs::path> filesIn(const fs::path& directory) {
    std::vector<fs::path> files;
    for (const auto& entry : fs::recursive_directory_iterator(directory))
        if (entry.is_regular_file()) files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    return files;
}

// Names of tensors and objects begin with the file's where there are several.
GenuineCase fileOf(const GenuineCase& whole, const std::string& file, bool several) {
    GenuineCase one = whole;
    one.name += "/" + file;
    one.expected["file"] = file;
    const std::string prefix = several ? file + ":" : "";
    for (const char* part : {"tensors", "objects"}) {
        json kept = json::object();
        for (const auto& [name, value] : whole.expected[part].items())
            if (name.starts_with(prefix)) kept[name.substr(prefix.size())] = value;
        one.expected[part] = std::move(kept);
    }
    return one;
}

auto kindOf(const GenuineCase& c) {
    std::string damage;
    for (const json& finding : c.expected.value("findings", json::array()))
        damage += finding["kind"].get<std::string>() + " ";
    return std::tuple(c.family, c.expected["format"].get<std::string>(),
                      c.expected["world_size"].get<int>() > 1, damage);
}

uint64_t bytesOf(const GenuineCase& c) {
    uint64_t bytes = 0;
    for (const fs::path& file : filesIn(c.path))
        bytes += fs::file_size(file);
    return bytes;
}

}  // namespace

std::string GenuineCase::openPath() const {
    if (expected.contains("file")) return path + "/" + expected["file"].get<std::string>();
    return shown.contains("open") ? path + "/" + shown["open"].get<std::string>() : path;
}

std::vector<GenuineCase> genuineCases(const std::string& family) {
    std::vector<GenuineCase> cases;
    const json shown = parsed(kRoot / family / "shown.json");
    for (const auto& entry : fs::directory_iterator(kRoot / family)) {
        if (!entry.is_directory()) continue;
        GenuineCase c;
        c.family = family;
        c.name = entry.path().filename();
        c.path = entry.path() / "ckpt";
        c.expected = parsed(entry.path() / "expected.json");
        c.shown = shownOf(shown, c.name);
        cases.push_back(std::move(c));
    }
    std::sort(cases.begin(), cases.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    if (cases.empty()) {
        std::fprintf(stderr, "no genuine cases of family %s\n", family.c_str());
        std::abort();
    }
    return cases;
}

const std::vector<GenuineCase>& allGenuineCases() {
    static const std::vector<GenuineCase> all = [] {
        std::vector<GenuineCase> cases;
        for (const auto& family : fs::directory_iterator(kRoot)) {
            for (GenuineCase& c : genuineCases(family.path().filename())) {
                const std::vector<fs::path> files = filesIn(c.path);
                if (!c.shown.value("each_file", false))
                    cases.push_back(std::move(c));
                else
                    for (const fs::path& file : files)
                        cases.push_back(fileOf(c, file.filename(), files.size() > 1));
            }
        }
        std::sort(cases.begin(), cases.end(), [](const auto& a, const auto& b) { return a.id() < b.id(); });
        return cases;
    }();
    return all;
}

std::vector<GenuineCase> genuineSamples() {
    std::map<decltype(kindOf({})), const GenuineCase*> smallest;
    for (const GenuineCase& c : allGenuineCases()) {
        const GenuineCase*& best = smallest[kindOf(c)];
        if (!best || bytesOf(c) < bytesOf(*best)) best = &c;
    }
    std::vector<GenuineCase> samples;
    for (const auto& [kind, c] : smallest)
        samples.push_back(*c);
    return samples;
}

Source sourceOf(const std::string& path) {
    Source source;
    source.fileSystem = systemFileSystem();
    source.display = path;
    const bool isDirectory = std::filesystem::is_directory(path);
    const auto [parent, last] = splitPath(path);
    auto directory = source.fileSystem->openDirectory(isDirectory ? path : parent);
    if (!directory.ok()) {
        std::fprintf(stderr, "%s\n", describe(directory.error()).c_str());
        std::abort();
    }
    source.directory = std::move(directory).value();
    if (!isDirectory) source.entry = last;
    source.entries = source.directory->list().value();
    return source;
}

}  // namespace shardscope::test
