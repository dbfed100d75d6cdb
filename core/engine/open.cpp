// Opening (engine.h): from a path to its directory and file system, the format that fits, the step that
// stands for a run, and the Checkpoint.
#include <algorithm>
#include <filesystem>
#include <set>

#include <fmt/format.h>

#include "base/similar.h"
#include "base/text.h"
#include "base/units.h"
#include "encoding/tar.h"
#include "engine/engine.h"
#include "engine/exchanged_files.h"
#include "engine/format_names.h"
#include "engine/parts_of_step.h"
#include "engine/run_directory.h"
#include "engine/surroundings.h"
#include "model/companions.h"
#include "places/places.h"
#include "storage/named_path.h"
#include "storage/open_files.h"
#include "storage/url.h"

namespace shardscope {
namespace {

// What bytes look like that are not a checkpoint, for messages.
std::string looksLike(std::string_view head) {
    if (head.empty()) return "an empty file";
    struct Magic {
        std::string_view bytes;
        std::string_view what;
    };
    constexpr Magic magics[] = {
        {"version https://git-lfs",
         "a git-lfs pointer (the file itself was never downloaded; run 'git lfs pull')"},
        {"<!DOCTYPE", "an HTML page (a download that went wrong)"},
        {"<!doctype", "an HTML page (a download that went wrong)"},
        {"<html", "an HTML page (a download that went wrong)"},
        {"GGUF", "a GGUF model"},
        {"\x93NUMPY", "a NumPy array"},
        {"\x89PNG", "a PNG picture"},
        {"\x89HDF", "an HDF5 file"},
        {"\x1f\x8b", "gzip-compressed data (unpack it first)"},
        {"\x28\xb5\x2f\xfd", "zstd-compressed data (unpack it first)"},
        {"\x7f"
         "ELF",
         "a program"},
        {"PK\x03\x04", "a zip archive without a torch checkpoint in it"},
        {"#!", "a script"},
    };
    for (const Magic& magic : magics) {
        if (head.starts_with(magic.bytes)) return std::string(magic.what);
    }
    if (std::all_of(head.begin(), head.end(), [](char c) { return c == 0; })) return "a file of zero bytes";
    return {};
}

// Takes the files that a path means by its scheme, unless the caller has said whose they are.
Status usePlace(std::string& path, std::shared_ptr<FileSystem>& files) {
    if (files) return {};
    path = namedPath(path);
    SHARDSCOPE_TRY(checkScheme(path));
    if (schemeOf(path).empty()) return {};
    SHARDSCOPE_ASSIGN(Place place, placeOf(path));
    path = std::move(place.path);
    files = std::move(place.files);
    return {};
}

// A path that is not there: says so, and which name beside it was meant, if one is like it.
Error explained(Error error, FileSystem& files, const std::string& path) {
    if (error.code != ErrorCode::notFound || !schemeOf(path).empty()) return error;
    error.message = "there is no such file or directory";
    const auto [directory, name] = splitPath(path);
    const auto opened = files.openDirectory(directory);
    if (!opened.ok()) return error;
    const auto entries = (*opened)->list();
    if (!entries.ok()) return error;
    Similar similar(name);
    for (const DirectoryEntry& entry : *entries)
        similar.see(entry.name);
    if (similar.best().empty()) return error;
    const std::string meant = path.substr(0, path.rfind(name)) + similar.best();
    return std::move(error).withHint(fmt::format("did you mean '{}'?", printable(meant)));
}

}  // namespace

Result<Source> sourceFor(const std::string& named, IoMode io, std::shared_ptr<FileSystem> fileSystem) {
    Source source;
    std::string path = named;
    SHARDSCOPE_TRY(usePlace(path, fileSystem));
    const bool here = !fileSystem;
    source.fileSystem = here ? systemFileSystem(io) : std::move(fileSystem);
    source.display = path;
    SHARDSCOPE_ASSIGN(source.fileSystem, withArchive(std::move(source.fileSystem), path));
    auto entry = source.fileSystem->stat(path);
    if (!entry.ok()) return explained(std::move(entry).error(), *source.fileSystem, path);
    std::string directory = path;
    if (entry->kind != DirectoryEntry::Kind::directory) {
        if (entry->kind != DirectoryEntry::Kind::file) {
            return makeError(ErrorCode::unsafe, "is neither a directory nor a regular file").inFile(path);
        }
        // The user may name a file through a symbolic link; the checkpoint's directory is where the file
        // really is. Index files are kept where they are seen, beside the files that they name.
        std::string target = path;
        std::error_code ignored;
        if (here && !path.ends_with(".json") && std::filesystem::is_symlink(path, ignored)) {
            const auto real = std::filesystem::canonical(path, ignored);
            if (!ignored) target = real.string();
        }
        std::tie(directory, source.entry) = splitPath(target);
    }
    SHARDSCOPE_ASSIGN(source.directory, source.fileSystem->openDirectory(directory));
    SHARDSCOPE_ASSIGN(source.entries, source.directory->list());
    std::sort(source.entries.begin(), source.entries.end(),
              [](const DirectoryEntry& a, const DirectoryEntry& b) { return a.name < b.name; });
    return source;
}

namespace {

Error nothingMatches(const Source& source) {
    if (!source.entry.empty()) {
        const std::string what = looksLike(startOf(*source.directory, source.entry));
        return unsupported(what.empty() ? "is not a checkpoint of a known format"
                                        : fmt::format("looks like {}", what))
            .inFile(source.display)
            .withHint(formatsHint());
    }
    size_t files = 0;
    for (const DirectoryEntry& e : source.entries)
        files += e.kind == DirectoryEntry::Kind::file;
    std::string message = files == 0 ? "the directory holds no files"
                                     : fmt::format("none of the {} here makes a checkpoint of a known format",
                                                   counted(files, "file"));
    for (const DirectoryEntry& e : source.entries) {
        if (e.kind != DirectoryEntry::Kind::file) continue;
        const std::string what = looksLike(startOf(*source.directory, e.name));
        if (!what.empty()) {
            message += fmt::format("; {} looks like {}", e.name, what);
            break;
        }
    }
    return unsupported(std::move(message)).inFile(source.display).withHint(formatsHint());
}

// A directory that counts what is listed and opened in it.
class CountingDirectory final : public Directory {
  public:
    CountingDirectory(std::shared_ptr<Directory> directory, std::shared_ptr<OpenProgress> progress)
        : directory_(std::move(directory)), progress_(std::move(progress)) {}

    const std::string& path() const override { return directory_->path(); }
    Result<std::vector<DirectoryEntry>> list(std::string_view subdirectory) const override {
        auto entries = directory_->list(subdirectory);
        if (entries.ok() && !subdirectory.empty()) progress_->files += fileCount(*entries);
        return entries;
    }
    Result<std::shared_ptr<const ReadFile>> openFile(std::string_view name) const override {
        auto file = directory_->openFile(name);
        if (file.ok()) ++progress_->opened;
        return file;
    }
    Result<DirectoryEntry> stat(std::string_view name) const override { return directory_->stat(name); }
    std::string linkTarget(std::string_view name) const override { return directory_->linkTarget(name); }
    Result<std::shared_ptr<WriteFile>> createFile(std::string_view name, bool existing) override {
        return directory_->createFile(name, existing);
    }
    Status removeFile(std::string_view name) override { return directory_->removeFile(name); }
    Status sync() override { return directory_->sync(); }

    static uint64_t fileCount(const std::vector<DirectoryEntry>& entries) {
        return static_cast<uint64_t>(
            std::count_if(entries.begin(), entries.end(),
                          [](const DirectoryEntry& e) { return e.kind == DirectoryEntry::Kind::file; }));
    }

  private:
    std::shared_ptr<Directory> directory_;
    std::shared_ptr<OpenProgress> progress_;
};

// Directories that stand for one below them are followed so deep.
constexpr int kMostLevels = 4;

// The file of a directory that holds one checkpoint file and nothing else that matters; empty = it is none.
// Errors: unsupported (several, or none with a model), those of refuseZarr().
Result<std::string> onlyFile(const Source& source, const std::string& path, int levels) {
    std::vector<std::string> candidates, companions;
    for (const DirectoryEntry& e : source.entries) {
        if (e.kind != DirectoryEntry::Kind::file || e.name.starts_with(".")) continue;
        Source one = source;
        one.entry = e.name;
        if (!detectFormat(one)) continue;
        const bool state = isCompanionFile(e.name) || isSmallState(e.name);
        (state ? companions : candidates).push_back(e.name);
    }
    if (candidates.empty()) {
        SHARDSCOPE_TRY(refuseZarr(source));
        // verl's data.pt is beside the directories of its checkpoints.
        if (!companions.empty()) {
            const auto below = chooseInRun(source);
            if (below.ok() && !*below) candidates = std::move(companions);
            if (candidates.size() > 1)
                return makeError(
                           ErrorCode::unsupported,
                           fmt::format("holds state of a run ({}), but no model", listed(candidates, 3)))
                    .inFile(path);
        }
    }
    // Where directories hold the parts of a step, the files beside them are state of it.
    if (levels > 0 && !candidates.empty() && holdsParts(source)) return std::string();
    if (auto weights = fileOfWeights(candidates, isStepName(splitPath(path).second)))
        return *std::move(weights);
    if (candidates.size() <= 1 || findRun(source)) return std::string();
    return makeError(ErrorCode::unsupported,
                     fmt::format("holds {}", counted(candidates.size(), "checkpoint file")))
        .inFile(path)
        .withHint(fmt::format("name one of them, such as {}", candidates[0]));
}

// With `run` the directory of a run is put there, in place of the step that stands for it.
Result<Checkpoint> openAt(const std::string& path, const CheckpointOptions& options, int levels,
                          std::optional<Run>* run = nullptr) {
    SHARDSCOPE_ASSIGN(Source source, sourceFor(path, options.io, options.fileSystem));
    if (options.progress) {
        options.progress->files = CountingDirectory::fileCount(source.entries);
        options.progress->listed = true;
    }
    std::optional<RunDirectory> steps = run ? findRun(source) : std::nullopt;
    // A tracker with several steps makes a run also of what opens by itself, as the step that it names
    // (DeepSpeed's).
    const bool several = steps && steps->steps.size() > 1 && !steps->tracker.empty();
    const Format* detected = several ? nullptr : detectFormat(source);
    if (steps && !detected) {
        *run = Run{std::move(source), std::move(*steps)};
        return Checkpoint();
    }
    const bool fileNamed = !source.entry.empty();
    Checkpoint checkpoint;
    checkpoint.exchanged = std::make_shared<ExchangedFiles>();
    checkpoint.path = path;
    if (!fileNamed) checkpoint.root = path;
    checkpoint.fileSystem = options.fileSystem;
    if (!options.format.empty()) {
        checkpoint.format = findFormat(options.format);
        if (!checkpoint.format) return notAFormat(options.format);
    } else {
        checkpoint.format = detected;
        if (!checkpoint.format && source.entry.empty()) {
            SHARDSCOPE_ASSIGN(source.entry, onlyFile(source, path, levels));
            if (!source.entry.empty()) checkpoint.format = detectFormat(source);
        }
    }
    const bool fits = checkpoint.format && (options.format.empty() || !source.entry.empty() || detected ||
                                            checkpoint.format->probe(source).match != Probe::Match::no);
    if (!fits && levels > 0) {
        SHARDSCOPE_ASSIGN(auto parts, openParts(source, options));
        if (parts) {
            if (options.progress) options.progress->metadata = true;
            checkpoint.format = parts->format;
            SHARDSCOPE_TRY(accountForDirectory(source, options, std::move(parts->reader), checkpoint));
            return checkpoint;
        }
        SHARDSCOPE_ASSIGN(const auto choice, chooseInRun(source));
        if (choice) {
            SHARDSCOPE_ASSIGN(checkpoint, openAt(joinPath(path, choice->path), options, levels - 1,
                                                 choice->run ? run : nullptr));
            if (run && *run) return checkpoint;
            if (checkpoint.chosen.empty()) checkpoint.chosen = choice->why;
            if (!choice->step) checkpoint.root = path;
            return checkpoint;
        }
    }
    if (!checkpoint.format) return nothingMatches(source);
    // Detecting opens some files, too; only those that are read for their metadata count.
    Source place = source;
    if (!fileNamed) place.entry.clear();
    if (options.progress)
        source.directory = std::make_shared<CountingDirectory>(source.directory, options.progress);
    auto reader = checkpoint.format->open(source, options.open);
    if (!reader.ok()) return std::move(reader).error();
    if (options.progress) options.progress->metadata = true;
    SHARDSCOPE_TRY(accountForDirectory(place, options, std::move(reader).value(), checkpoint));
    // An index stands for the checkpoint that it was made of.
    if (!checkpoint.reader->dataElsewhere().empty()) {
        if (const Format* indexed = findFormat(checkpoint.catalog().format())) checkpoint.format = indexed;
    }
    return checkpoint;
}

}  // namespace

const Format* detectFormat(const Source& source) {
    const Format* possible = nullptr;
    for (const Format* format : builtinFormats()) {
        if (!format->info().reads) continue;
        const Probe probe = format->probe(source);
        if (probe.match == Probe::Match::certain) return format;
        if (probe.match == Probe::Match::possible && !possible) possible = format;
    }
    return possible;
}

Result<Checkpoint> openCheckpoint(const std::string& named, const CheckpointOptions& asked) {
    std::string path = named;
    CheckpointOptions options = asked;
    const StopScope scope(options.open.stop);
    SHARDSCOPE_TRY(usePlace(path, options.fileSystem));
    return openAt(path, options, kMostLevels);
}

Result<CheckpointOrRun> openCheckpointOrRun(const std::string& named, const CheckpointOptions& asked) {
    std::string path = named;
    CheckpointOptions options = asked;
    const StopScope scope(options.open.stop);
    SHARDSCOPE_TRY(usePlace(path, options.fileSystem));
    std::optional<Run> run;
    SHARDSCOPE_ASSIGN(Checkpoint checkpoint, openAt(path, options, kMostLevels, &run));
    if (run) return CheckpointOrRun(*std::move(run));
    return CheckpointOrRun(std::move(checkpoint));
}

std::string directoryOf(const Checkpoint& checkpoint) {
    const auto files = checkpoint.fileSystem ? checkpoint.fileSystem : systemFileSystem();
    const auto entry = files->stat(checkpoint.path);
    if (entry.ok() && entry->kind != DirectoryEntry::Kind::directory) return splitPath(checkpoint.path).first;
    return checkpoint.path;
}

}  // namespace shardscope
