// What frameworks write into the directory of a step, and what a resumed run needs of it. One table for all
// frameworks whose steps are folders of files by convention. Formats that state themselves what belongs to a
// step (DCP, DeepSpeed, torch_dist, Orbax) are judged by their readers. For these the table only says which
// files are harmless.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/catalog.h"
#include "model/step_part.h"
#include "storage/file_system.h"

namespace shardscope {

struct StepFile {
    std::string path;  // relative to the step's directory
    uint64_t size = 0;
    int64_t modifiedNs = 0;  // since 1970; 0 = unknown
    uint64_t inode = 0;      // as DirectoryEntry
    int64_t changedNs = 0;
};

// The files of a step's directory.
struct StepContents {
    std::string name;             // of the directory: "checkpoint-500"
    bool isStep = false;          // the name is that of a step of a run
    std::vector<StepFile> files;  // sorted by path
    const StepFile* find(std::string_view path) const;
    // Whether a path fits one of these globs, which are separated by '|'. '*' takes '/', too.
    bool has(std::string_view globs) const;
};
// Looks into directories below `below`, too (up to eight levels), but for those that it cannot list. Errors:
// those of listing; limit for more than a million files.
Result<StepContents> listContents(const Directory& directory, const std::string& below);

// What it costs a resumed run when a file is not there, or cannot be read.
enum class Need : uint8_t {
    nothing,  // it is harmless
    result,   // the run resumes, but not as it would have gone on
    resume,   // the run cannot resume
};
Severity severityOf(Need need);

struct NeededFile {
    std::string_view globs;  // as in StepContents::has()
    Need absent, damaged;
    bool always;  // part of each step; else only of those whose run has it
};

struct Contract {
    std::string_view framework;  // "Hugging Face Trainer"; empty for scripts
    // The file that the framework writes last, a glob; empty = not known.
    std::string_view last;
    std::span<const NeededFile> files;                    // the first that fits a path counts
    const NeededFile* find(std::string_view path) const;  // null = none names it
    Need absent(std::string_view path) const;
    Need damaged(std::string_view path) const;
};
// The contract that fits best; else that of scripts, for which every file but records counts.
const Contract& contractOf(const StepContents& step);

// What the same file is called in every step: withoutNumbers(), with '*' for a component that is a hash or a
// time.
std::string familyOf(std::string_view path);
// Whether a file of this name holds something that a program reads. It has an ending that frameworks use, or
// none and is named like state ("latest", "lr_scheduler").
bool isStateFile(std::string_view name);
// Joins relative paths, either of which may be empty.
std::string inside(std::string_view directory, std::string_view name);
// The last component of a path.
std::string_view lastName(std::string_view path);
bool fitsGlobs(std::string_view globs, std::string_view path);

}  // namespace shardscope
