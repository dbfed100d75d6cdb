#include "base/error.h"

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "base/units.h"

namespace shardscope {

std::string_view errorCodeName(ErrorCode code) {
    switch (code) {
        case ErrorCode::usage:
            return "usage";
        case ErrorCode::notFound:
            return "not-found";
        case ErrorCode::damaged:
            return "damaged";
        case ErrorCode::unsupported:
            return "unsupported";
        case ErrorCode::limit:
            return "limit";
        case ErrorCode::unsafe:
            return "unsafe";
        case ErrorCode::changed:
            return "changed";
        case ErrorCode::io:
            return "io";
        case ErrorCode::noSpace:
            return "no-space";
        case ErrorCode::permission:
            return "permission";
        case ErrorCode::exists:
            return "exists";
        case ErrorCode::impossible:
            return "impossible";
        case ErrorCode::cancelled:
            return "cancelled";
        case ErrorCode::verificationFailed:
            return "verification-failed";
        case ErrorCode::remote:
            return "remote";
        case ErrorCode::internal:
            return "internal";
    }
    return "internal";
}

int exitCode(ErrorCode code) {
    switch (code) {
        case ErrorCode::usage:
            return 2;
        case ErrorCode::notFound:
        case ErrorCode::damaged:
        case ErrorCode::unsupported:
        case ErrorCode::limit:
        case ErrorCode::unsafe:
        case ErrorCode::changed:
            return 3;
        case ErrorCode::verificationFailed:
            return 1;
        case ErrorCode::impossible:
            return 5;
        case ErrorCode::cancelled:
            return 130;
        case ErrorCode::io:
        case ErrorCode::noSpace:
        case ErrorCode::permission:
        case ErrorCode::exists:
        case ErrorCode::remote:
        case ErrorCode::internal:
            return 4;
    }
    return 4;
}

Error Error::inFile(std::string_view file) && {
    if (location.file.empty()) location.file = file;
    return std::move(*this);
}

Error Error::at(uint64_t offset) && {
    if (!location.offset) location.offset = offset;
    return std::move(*this);
}

Error Error::ofTensor(std::string_view tensor) && {
    if (location.tensor.empty()) location.tensor = tensor;
    return std::move(*this);
}

Error Error::byRule(std::string_view rule) && {
    if (location.rule.empty()) location.rule = rule;
    return std::move(*this);
}

Error Error::withHint(std::string_view text) && {
    if (hint.empty()) hint = text;
    return std::move(*this);
}

Error alsoHint(Error error, std::string_view hint) {
    if (!error.hint.empty()) error.hint += "; ";
    error.hint += hint;
    return error;
}

Error makeError(ErrorCode code, std::string message) {
    Error error;
    error.code = code;
    error.message = std::move(message);
    return error;
}

Error damaged(std::string message) {
    return makeError(ErrorCode::damaged, std::move(message));
}

Error damaged(std::string message, uint64_t offset) {
    return makeError(ErrorCode::damaged, std::move(message)).at(offset);
}

Error unsupported(std::string message) {
    return makeError(ErrorCode::unsupported, std::move(message));
}

Error systemError(int errnoValue, std::string_view doing, std::string_view file) {
    ErrorCode code = ErrorCode::io;
    std::string_view hint;
    switch (errnoValue) {
        case ENOSPC:
        case EDQUOT:
            code = ErrorCode::noSpace;
            hint = "free some space or choose another destination";
            break;
        case EFBIG:
            code = ErrorCode::noSpace;
            hint = "a limit on the size of files is reached (ulimit -f), or that of the file system";
            break;
        case EMFILE:
        case ENFILE:
            hint = "raise the limit of open files, e.g. with 'ulimit -n'";
            break;
        case EACCES:
        case EPERM:
        case EROFS:
            code = ErrorCode::permission;
            hint = "check the owner and mode of the path";
            break;
        case ENOENT:
        case ENOTDIR:
            code = ErrorCode::notFound;
            break;
        case EEXIST:
            code = ErrorCode::exists;
            break;
        case ELOOP:
        case EXDEV:
            code = ErrorCode::unsafe;
            hint = "the path leaves the checkpoint's directory";
            break;
        default:
            break;
    }
    return makeError(code, fmt::format("cannot {}: {}", doing, std::strerror(errnoValue)))
        .inFile(file)
        .withHint(hint);
}

std::string describe(const Error& error) {
    std::string text;
    if (!error.location.file.empty()) {
        text += error.location.file;
        if (error.location.offset) text += " at byte " + countText(*error.location.offset);
        text += ": ";
    } else if (error.location.offset) {
        text += "at byte " + countText(*error.location.offset) + ": ";
    }
    if (!error.location.tensor.empty()) text += fmt::format("tensor '{}': ", error.location.tensor);
    text += error.message;
    if (!error.hint.empty()) text += fmt::format(" ({})", error.hint);
    return text;
}

}  // namespace shardscope
