// What went wrong, where, and what to do about it. Every failure in the engine travels as one of these.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace shardscope {

enum class ErrorCode : uint8_t {
    usage,               // the request itself is malformed
    notFound,            // a path does not exist
    damaged,             // bytes break a rule of their format
    unsupported,         // well formed, but of a kind that is not read or written
    limit,               // a limit of this program was reached (nesting, header size, memory)
    unsafe,              // a path leaves the checkpoint, or a file is not a regular file
    changed,             // a source file changed while it was read
    io,                  // the operating system reported a failure
    noSpace,             // the destination's file system is full or a quota is reached
    permission,          // access was refused
    exists,              // the destination is already there
    impossible,          // the request cannot be satisfied by this source (the plan says why)
    cancelled,           // the user stopped it
    verificationFailed,  // what was written is not what was meant; it was not published
    remote,              // another host or process failed
    internal,            // our own mistake
};

// Stable lower-case name, as in the "code" field of shardscope.error/1.
std::string_view errorCodeName(ErrorCode code);

// Exit code of the command line for this error: 1 verification failed, 2 usage, 3 input, 4 I/O, 5 impossible,
// 130 cancelled.
int exitCode(ErrorCode code);

// Where it happened. Empty or absent parts are unknown.
struct ErrorLocation {
    std::string file;                // path as the user can open it
    std::optional<uint64_t> offset;  // byte in that file
    std::optional<uint64_t> length;  // bytes concerned
    std::string tensor;              // full tensor name
    std::string rule;                // id of the format or validation rule that was broken
};

struct Error {
    ErrorCode code = ErrorCode::internal;
    std::string message;  // a sentence without the location, e.g. "the header says 12 bytes, the file has 8"
    ErrorLocation location;
    std::string hint;  // what the user can do; may be empty

    // Adds what an inner layer did not know; keeps what it did.
    [[nodiscard]] Error inFile(std::string_view file) &&;
    [[nodiscard]] Error at(uint64_t offset) &&;
    [[nodiscard]] Error ofTensor(std::string_view tensor) &&;
    [[nodiscard]] Error byRule(std::string_view rule) &&;
    [[nodiscard]] Error withHint(std::string_view hint) &&;
};

// With a hint after the one that it has.
Error alsoHint(Error error, std::string_view hint);

Error makeError(ErrorCode code, std::string message);
Error damaged(std::string message);
Error damaged(std::string message, uint64_t offset);
Error unsupported(std::string message);

// From errno; `doing` completes the sentence "cannot <doing>: <reason>". ENOSPC/EDQUOT become noSpace,
// EACCES/EPERM/EROFS permission, ENOENT notFound, EEXIST exists, ELOOP/EXDEV unsafe, everything else io.
Error systemError(int errnoValue, std::string_view doing, std::string_view file);

// One line: "file at byte N: message (hint)".
std::string describe(const Error& error);

}  // namespace shardscope
