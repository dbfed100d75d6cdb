#include "cli/output_file.h"

#include <cerrno>
#include <cstdio>
#include <fstream>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/whole_file.h"

namespace shardscope::cli {
namespace {

// What begins a document that `dump` has indented, or not.
constexpr std::string_view kSchema = "\"schema\":";

bool isDevice(const std::string& file) {
    struct stat info {};
    return ::stat(file.c_str(), &info) == 0 && (S_ISCHR(info.st_mode) || S_ISFIFO(info.st_mode));
}

bool isEarlierReport(const std::string& file) {
    struct stat info {};
    if (::stat(file.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return false;
    std::ifstream in(file, std::ios::binary);
    std::string head(4096, '\0');
    in.read(head.data(), static_cast<std::streamsize>(head.size()));
    head.resize(static_cast<size_t>(in.gcount()));
    for (const std::string_view kind : {"report", "part"}) {
        for (const std::string_view space : {"", " "})
            if (head.find(std::string(kSchema) + std::string(space) + "\"shardscope." + std::string(kind) +
                          "/1\"") != head.npos)
                return true;
    }
    return false;
}

bool mayReplace(const std::string& file, Replace replace) {
    return replace == Replace::yes || (replace == Replace::earlierReport && isEarlierReport(file));
}

Status writeInPlace(const std::string& file, std::string_view text) {
    const int out = ::open(file.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC);
    if (out < 0) return systemError(errno, "write", file);
    int failed = 0;
    while (!text.empty() && failed == 0) {
        const ssize_t n = ::write(out, text.data(), text.size());
        if (n >= 0)
            text.remove_prefix(static_cast<size_t>(n));
        else if (errno != EINTR)
            failed = errno;
    }
    ::close(out);
    return failed == 0 ? Status() : systemError(failed, "write", file);
}

}  // namespace

Status checkOutputPlace(const std::string& file, const std::string& source) {
    SHARDSCOPE_TRY(checkParent(*systemFileSystem(), file));
    return checkOutside(file, source);
}

Status checkOutputFile(const std::string& file, const std::string& source, Replace replace) {
    if (isDevice(file)) return {};
    SHARDSCOPE_TRY(checkMayPut(*systemFileSystem(), file, mayReplace(file, replace)));
    return checkOutside(file, source);
}

Status prepareOutputFile(const std::string& file, const std::string& source, Replace replace,
                         Parents& parents) {
    SHARDSCOPE_TRY(checkOutputFile(file, source, replace));
    return isDevice(file) ? Status() : parents.make(*systemFileSystem(), file);
}

Status writeOutputFile(const std::string& file, std::string_view text, Replace replace) {
    if (isDevice(file)) return writeInPlace(file, text);
    return putWholeFile(systemFileSystem(), file, text, mayReplace(file, replace));
}

}  // namespace shardscope::cli
