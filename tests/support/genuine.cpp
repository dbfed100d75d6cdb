#include "support/genuine.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace shardscope::test {

std::string GenuineCase::openPath() const {
    if (expected.contains("file")) return path + "/" + expected["file"].get<std::string>();
    return path;
}

std::vector<GenuineCase> genuineCases(const std::string& family) {
    std::vector<GenuineCase> cases;
    for (const auto& entry : std::filesystem::directory_iterator(SHARDSCOPE_TEST_DATA "/genuine/" + family)) {
        GenuineCase c;
        c.family = family;
        c.name = entry.path().filename();
        c.path = entry.path() / "ckpt";
        std::ifstream in(entry.path() / "expected.json");
        c.expected = nlohmann::json::parse(in);
        cases.push_back(std::move(c));
    }
    std::sort(cases.begin(), cases.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    if (cases.empty()) {
        std::fprintf(stderr, "no genuine cases of family %s\n", family.c_str());
        std::abort();
    }
    return cases;
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
