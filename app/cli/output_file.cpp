#include "cli/output_file.h"

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "engine/whole_file.h"

namespace shardscope::cli {

Status checkOutputFile(const std::string& file, const std::string& source) {
    std::error_code ignored;
    const std::filesystem::path parent = std::filesystem::path(file).parent_path();
    if (!parent.empty() && !std::filesystem::is_directory(parent, ignored)) {
        return makeError(ErrorCode::io, "the directory that is to hold the file does not exist").inFile(file);
    }
    return checkOutside(file, source);
}

Status writeOutputFile(const std::string& file, std::string_view text) {
    std::FILE* out = std::fopen(file.c_str(), "wb");
    if (!out) return systemError(errno, "write", file);
    const bool written = std::fwrite(text.data(), 1, text.size(), out) == text.size();
    const int reason = errno;
    if (std::fclose(out) != 0 || !written) return systemError(written ? errno : reason, "write", file);
    return {};
}

}  // namespace shardscope::cli
