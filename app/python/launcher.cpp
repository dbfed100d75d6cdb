// `shardscope` of a wheel: runs the command line that the package's library holds beside the Python module.
// It looks for that where installers put packages: environments (also those of pipx and uv, to which a link
// leads), --user, --prefix, Debian's dist-packages, lib64, --target, conda, an unpacked wheel, and, on other
// hosts, the directory of the program itself. Needs the C library alone.
#include <climits>
#include <cstdio>
#include <cstring>

#include <dlfcn.h>
#include <glob.h>
#include <unistd.h>

namespace {

constexpr const char* kLibrary = "_shardscope.*so";
constexpr const char* kPlaces[] = {
    "",
    "../lib*/python3*/site-packages/shardscope/",
    "../lib*/python3*/dist-packages/shardscope/",
    "../shardscope/",
    "../../shardscope/",
};

using Main = int (*)(int, char**);

char why[2 * PATH_MAX];  // the last library that was found does not do

Main mainOf(const char* path) {
    void* const library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    if (!library) {
        snprintf(why, sizeof why, "%s", dlerror());
        return nullptr;
    }
    const char* const version = static_cast<const char*>(dlsym(library, "shardscope_version"));
    void* const run = dlsym(library, "shardscope_main");
    if (version && run && strcmp(version, SHARDSCOPE_VERSION) == 0) return reinterpret_cast<Main>(run);
    snprintf(why, sizeof why, "%s is of another version, %s", path, version ? version : "without a program");
    dlclose(library);
    return nullptr;
}

// The directory of this program, with a slash at its end; as a pattern, it names itself.
bool findOwnDirectory(char (&pattern)[2 * PATH_MAX]) {
    char path[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length <= 0) return false;
    path[length] = 0;
    strrchr(path, '/')[1] = 0;
    char* to = pattern;
    for (const char* from = path; *from; ++from) {
        if (strchr("*?[]\\", *from)) *to++ = '\\';
        *to++ = *from;
    }
    *to = 0;
    return true;
}

Main find(const char* directory) {
    for (const char* place : kPlaces) {
        char pattern[2 * PATH_MAX + 100];
        snprintf(pattern, sizeof pattern, "%s%s%s", directory, place, kLibrary);
        glob_t found{};
        Main run = nullptr;
        if (glob(pattern, 0, nullptr, &found) == 0)
            for (size_t i = 0; i < found.gl_pathc && !run; ++i)
                run = mainOf(found.gl_pathv[i]);
        globfree(&found);
        if (run) return run;
    }
    return nullptr;
}

}  // namespace

int main(int argc, char** argv) {
    char directory[2 * PATH_MAX];
    if (findOwnDirectory(directory))
        if (const Main run = find(directory)) return run(argc, argv);
    dprintf(STDERR_FILENO,
            "shardscope: its library (lib/python3*/site-packages/shardscope/_shardscope.*.so) is not in the "
            "environment of this "
            "program%s%s; install the package there again, and link to the program instead of copying it\n",
            why[0] ? ": " : "", why);
    return 1;
}
