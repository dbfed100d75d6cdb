#include "validate/validate.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/option_words.h"
#include "base/rule.h"
#include "base/units.h"
#include "encoding/pickle_globals.h"
#include "model/companions.h"
#include "model/coverage.h"
#include "model/infer_mesh.h"
#include "storage/system_file.h"
#include "validate/findings.h"

namespace shardscope {

std::string_view levelName(ValidateLevel level) {
    switch (level) {
        case ValidateLevel::metadata:
            return "metadata";
        case ValidateLevel::files:
            return "files";
        case ValidateLevel::values:
            return "values";
    }
    return "";
}

std::string_view verdictName(Verdict verdict) {
    switch (verdict) {
        case Verdict::safe:
            return "safe";
        case Verdict::care:
            return "care";
        case Verdict::unsafe:
            return "unsafe";
    }
    return "unsafe";
}

namespace {

class Validation {
  public:
    Validation(const Reader& reader, const ValidateOptions& options, const Resources& resources)
        : reader_(reader),
          catalog_(reader.catalog()),
          options_(options),
          resources_(resources),
          findings_(options.maxExamples) {}

    Result<ValidationReport> run() {
        if (const std::string elsewhere = reader_.dataElsewhere();
            !elsewhere.empty() && options_.level > ValidateLevel::metadata) {
            return unsupported(fmt::format("the data is not here: this is {}", elsewhere))
                .withHint(commandOption("level", "metadata") + " checks what an index knows");
        }
        ValidationReport report;
        report.level = options_.level;
        readable_.assign(catalog_.chunkCount(), true);

        std::vector<Note> own = catalog_.notes();
        std::erase_if(own, [&](const Note& note) { return isExplained(note); });
        takeNotes(own);
        if (options_.notes) takeNotes(*options_.notes);
        checkSpecials();
        checkFiles();
        SHARDSCOPE_TRY(checkTensors());
        checkRanks();
        report.checked = {"the reader's notes", "coverage and overlap of chunks",
                          "presence and size of files", "ranks"};
        if (options_.expect) {
            checkExpected();
            report.checked.emplace_back("names, shapes and dtypes against the expected checkpoint");
        }
        if (options_.level >= ValidateLevel::files) {
            SHARDSCOPE_TRY(locateChunks());
            SHARDSCOPE_ASSIGN(const std::vector<Note> notes, reader_.fileNotes());
            takeNotes(notes);
            SHARDSCOPE_TRY(readObjects());
            report.checked.emplace_back("what surrounds the data in the files against the metadata");
            report.checked.emplace_back("objects, and what their pickles name");
        } else {
            report.notChecked.push_back(
                {"what surrounds the data in the files", commandOption("level", "files")});
        }
        if (options_.level >= ValidateLevel::values) {
            ValueScope scope{reader_,           readable_,       resources_,      findings_,
                             report.notChecked, options_.expect, options_.filled, options_.scan.get(),
                             options_.parts,    options_.sums};
            SHARDSCOPE_TRY(checkValues(scope));
            report.stopped = scope.stopped;
            report.values = std::move(scope.values);
            report.checked.emplace_back(
                scope.stopped ? "values, stored checksums and replicas, as far as they were read"
                              : "values, stored checksums and replicas");
        } else {
            report.notChecked.push_back(
                {"values, stored checksums and replicas", commandOption("level", "values")});
        }
        // Of these there is nothing to check: the catalog has them not.
        std::set<std::string_view> left;
        for (const Note& note : catalog_.notes()) {
            if (!note.tensor.empty() && catalog_.find(note.tensor) == kNone) left.insert(note.tensor);
        }
        if (!left.empty())
            report.notChecked.push_back({fmt::format("{} that could not be included, such as {}",
                                                     counted(left.size(), "tensor"), *left.begin())});
        if (!options_.expect)
            report.notChecked.push_back(
                {"names, shapes and dtypes against another checkpoint", commandOption("expect")});

        report.findings = std::move(findings_).take();
        checkEmpty(report.findings);
        for (const Finding& finding : report.findings) {
            if (finding.severity == Severity::error) report.verdict = Verdict::unsafe;
            if (finding.severity == Severity::warning && report.verdict == Verdict::safe)
                report.verdict = Verdict::care;
        }
        return report;
    }

  private:
    // What is broken in one file has that file as its cause.
    static std::string missingCause(std::string_view file) {
        return file.empty() ? std::string() : fmt::format("{} is missing", file);
    }
    static std::string truncatedCause(std::string_view file) { return fmt::format("{} is truncated", file); }

    bool isExplained(const Note& note) const {
        return options_.notes && !note.file.empty() &&
               std::ranges::any_of(*options_.notes, [&](const Note& other) {
                   return other.severity == Severity::info && other.rule == note.rule &&
                          other.file == note.file;
               });
    }

    void takeNotes(const std::vector<Note>& notes) {
        for (const Note& note : notes) {
            if (!isValidationRule(note.rule)) continue;
            FindingExample example;
            example.tensor = note.tensor;
            example.file = note.file;
            example.offset = note.offset;
            example.detail = note.message;
            if (!note.file.empty()) noted_.insert(note.file);
            std::string cause;
            if (note.rule == rule::fileMissing) {
                cause = missingCause(note.file);
            } else if (note.rule == rule::fileTruncated) {
                cause = truncatedCause(note.file);
            } else if (!note.file.empty()) {
                cause = note.file;
            }
            findings_.add(note.rule, note.severity, cause, note.message, std::move(example));
        }
    }

    // ------------------------------------------------------------------ what there is at all

    // Nothing can be resumed from it. Not said where an error explains why nothing is there.
    void checkEmpty(std::vector<Finding>& findings) const {
        const bool explained = std::any_of(findings.begin(), findings.end(), [](const Finding& finding) {
            return finding.severity == Severity::error;
        });
        if (catalog_.tensorCount() > 0 || explained) return;
        const auto notes = std::find_if(findings.begin(), findings.end(), [](const Finding& finding) {
            return finding.severity < Severity::warning;
        });
        findings.insert(notes,
                        {rule::metaEmpty, Severity::warning, 1, "the checkpoint holds no tensors", {}, {}});
    }

    // A DTensor or ShardedTensor in a file of its own is one rank's part of the whole.
    void checkSpecials() {
        const auto& specials = catalog_.specials();
        std::vector<int64_t> held(specials.size(), 0);
        for (TensorId t = 0; t < catalog_.tensorCount(); ++t) {
            if (const uint32_t s = catalog_.special(t); s < held.size()) held[s] += catalog_.elements(t);
        }
        for (size_t s = 0; s < specials.size(); ++s) {
            const SpecialTensor& special = specials[s];
            if (special.kind != "dtensor" && special.kind != "sharded_tensor") continue;
            int64_t whole = 0;
            if (!checkedProduct(special.shape, whole) || held[s] >= whole) continue;
            FindingExample example;
            example.tensor = special.name;
            example.detail = fmt::format("{} of {} here", countText(held[s]), counted(whole, "element"));
            findings_.add(rule::rankMissing, Severity::error, "parts of other ranks",
                          "tensors are sharded over ranks whose files are not part of this checkpoint",
                          std::move(example));
        }
    }

    // ------------------------------------------------------------------ files, as the catalog knows them

    static std::string_view fileNameOf(std::string_view path) { return path.substr(path.rfind('/') + 1); }

    void checkFiles() {
        const auto& files = catalog_.files();
        // Of a checkpoint and its companions the one may not refer to what the other consists of.
        std::set<std::string_view> referred;
        for (const FileInfo& file : files) {
            if (file.referenced) referred.insert(file.path);
        }
        for (const FileInfo& file : files) {
            if (!file.referenced && referred.contains(file.path)) continue;
            FindingExample example;
            example.file = file.path;
            example.rank = file.rank;
            if (file.state == FileInfo::State::missing && file.referenced) {
                if (!findings_.has(rule::fileMissing, missingCause(file.path))) {
                    findings_.add(rule::fileMissing, Severity::error, missingCause(file.path),
                                  "the file is missing", std::move(example), 0);
                }
            } else if (file.state == FileInfo::State::wrongKind && !noted_.contains(file.path)) {
                findings_.add(rule::securityPath, Severity::error, file.path,
                              "not a regular file inside the checkpoint", std::move(example));
            } else if (!file.referenced && !noted_.contains(file.path) && file.path != kFilledName) {
                // A rank without anything to save leaves an empty file.
                if (file.size == 0 && file.rank != kNone) continue;
                const std::string_view name = fileNameOf(file.path);
                const bool data =
                    !isCompanionFile(name) && (mayHoldTensors(name, file.size) || file.rank != kNone);
                findings_.add(rule::fileUnreferenced, data ? Severity::warning : Severity::info,
                              data ? "data" : "other",
                              data ? "data files that nothing refers to" : "files that nothing refers to",
                              std::move(example));
            }
        }
        // Chunks of missing files, and chunks that end behind the end of their file.
        std::vector<uint64_t> lost(files.size(), 0), cut(files.size(), 0), ends(files.size(), 0);
        for (TensorId t = 0; t < catalog_.tensorCount(); ++t) {
            for (ChunkId c = catalog_.firstChunk(t); c < catalog_.endChunk(t); ++c) {
                const ChunkInfo chunk = catalog_.chunk(t, c);
                if (chunk.file == kNone) continue;
                const FileInfo& file = files[chunk.file];
                if (file.state != FileInfo::State::present) {
                    readable_[c] = false;
                    if (file.state == FileInfo::State::missing) {
                        ++lost[chunk.file];
                        findings_.add(rule::fileMissing, Severity::error, missingCause(file.path), "",
                                      exampleOf(catalog_, chunk));
                    }
                } else if (!rangeFits(chunk.offset, chunk.length, file.size) && chunk.elements() != 0) {
                    readable_[c] = false;
                    ++cut[chunk.file];
                    // What is claimed beyond all numbers says nothing of how long the file was.
                    if (rangeFits(chunk.offset, chunk.length, UINT64_MAX))
                        ends[chunk.file] = std::max(ends[chunk.file], chunk.offset + chunk.length);
                    findings_.add(
                        rule::fileTruncated, Severity::error, truncatedCause(file.path), "",
                        exampleOf(catalog_, chunk,
                                  fmt::format("{} at byte {}, the file has {}", counted(chunk.length, "byte"),
                                              countText(chunk.offset), countText(file.size))));
                }
            }
        }
        for (FileId f = 0; f < files.size(); ++f) {
            if (lost[f]) {
                findings_.setMessage(rule::fileMissing, missingCause(files[f].path),
                                     fmt::format("{} cannot be read because {} is missing",
                                                 counted(lost[f], "chunk"), files[f].path));
            }
            if (cut[f]) {
                findings_.setMessage(
                    rule::fileTruncated, truncatedCause(files[f].path),
                    fmt::format("{} is truncated at {} of {}: {}", files[f].path, countText(files[f].size),
                                counted(ends[f], "byte"), counted(cut[f], "incomplete chunk")));
            }
        }
    }

    // ------------------------------------------------------------------ coverage

    Status checkTensors() {
        constexpr size_t kBlock = 64;  // tensors for one step of a worker
        const size_t count = catalog_.tensorCount();
        std::vector<uint8_t> gaps(count, 0), overlaps(count, 0);
        SHARDSCOPE_TRY(resources_.pool->parallelFor(
            (count + kBlock - 1) / kBlock, resources_.stop, [&](size_t block) -> Status {
                for (size_t t = block * kBlock; t < std::min(count, (block + 1) * kBlock); ++t)
                    checkTensor(static_cast<TensorId>(t), gaps[t], overlaps[t]);
                return {};
            }));
        const auto total = [](const std::vector<uint8_t>& marks) {
            return static_cast<uint64_t>(std::count(marks.begin(), marks.end(), 1));
        };
        gaps_ = total(gaps);
        if (gaps_) {
            findings_.setMessage(
                rule::coverageGap, "",
                fmt::format("gaps in {}: no chunk holds these elements", counted(gaps_, "tensor")));
        }
        if (const uint64_t n = total(overlaps)) {
            findings_.setMessage(
                rule::coverageOverlap, "",
                fmt::format("in {} different chunks claim the same elements", counted(n, "tensor")));
        }
        return {};
    }

    void checkTensor(TensorId t, uint8_t& hasGaps, uint8_t& overlapping) {
        const CoverageResult result =
            checkCoverage(catalog_, t, options_.maxExamples, std::max<size_t>(options_.maxExamples, 1));
        if (result.whole()) return;
        if (result.gapElements > 0) {
            hasGaps = 1;
            for (size_t i = 0; i < result.gaps.size(); ++i) {
                FindingExample example;
                example.tensor = catalog_.name(t);
                example.box = result.gaps[i];
                example.detail =
                    fmt::format("{} of {} missing in {}", countText(elementCount(result.gaps[i].lengths)),
                                counted(catalog_.elements(t), "element"),
                                formatBox(result.gaps[i].offsets, result.gaps[i].lengths));
                findings_.add(rule::coverageGap, Severity::error, "", "", std::move(example), i == 0);
            }
        }
        if (result.overlapCount > 0) {
            overlapping = 1;
            bool first = true;
            for (const auto& [a, b] : result.overlaps) {
                const ChunkInfo one = catalog_.chunk(t, a);
                const ChunkInfo other = catalog_.chunk(t, b);
                const auto shared = intersect(one.offsets, one.lengths, other.offsets, other.lengths);
                FindingExample example = exampleOf(catalog_, other);
                example.detail =
                    fmt::format("{} and {} share {}", formatBox(one.offsets, one.lengths),
                                formatBox(other.offsets, other.lengths),
                                shared ? formatBox(shared->offsets, shared->lengths) : "a flat range");
                findings_.add(rule::coverageOverlap, Severity::error, "", "", std::move(example), first);
                first = false;
            }
        }
        if (!result.complete) {
            FindingExample example;
            example.tensor = catalog_.name(t);
            findings_.add(rule::coverageOverlap, Severity::error, "too many crossing chunks",
                          "so many chunks cross each other that the search was ended", std::move(example));
        }
    }

    // ------------------------------------------------------------------ ranks

    void checkRanks() {
        const uint32_t count = catalog_.rankCount();
        if (count < 2) return;
        std::vector<bool> seen(count, false);
        bool named = false;
        for (const FileInfo& file : catalog_.files()) {
            if (file.rank == kNone || file.rank >= count) continue;
            seen[file.rank] = true;
            named = true;
        }
        for (ChunkId c = 0; c < catalog_.chunkCount(); ++c) {
            if (const uint32_t rank = catalog_.chunk(c).rank; rank < count) seen[rank] = true;
        }
        if (!named) return;
        for (uint32_t r = 0; r < count; ++r) {
            if (seen[r]) continue;
            FindingExample example;
            example.rank = r;
            // Where all tensors are whole the rank had nothing to add.
            findings_.add(rule::rankMissing, gaps_ ? Severity::warning : Severity::info,
                          gaps_ ? "tensors have gaps" : "",
                          fmt::format("of {} some have no file here", counted(count, "rank")),
                          std::move(example));
        }
    }

    // ------------------------------------------------------------------ what was expected

    void checkExpected() {
        const Catalog& expect = *options_.expect;
        const auto example = [&](std::string_view tensor, std::string detail) {
            FindingExample e;
            e.tensor = tensor;
            e.detail = std::move(detail);
            return e;
        };
        for (TensorId e = 0; e < expect.tensorCount(); ++e) {
            const std::string_view name = expect.name(e);
            const TensorId t = catalog_.find(name);
            if (t == kNone) {
                findings_.add(rule::expectMissing, Severity::error, "",
                              "tensors that should be there are not", example(name, ""));
                continue;
            }
            if (!std::ranges::equal(catalog_.shape(t), expect.shape(e))) {
                findings_.add(rule::expectShape, Severity::error, "",
                              "tensors have another shape than expected",
                              example(name, fmt::format("{} instead of {}", formatDims(catalog_.shape(t)),
                                                        formatDims(expect.shape(e)))));
            }
            if (catalog_.dtype(t) != expect.dtype(e)) {
                findings_.add(rule::expectDtype, Severity::error, "",
                              "tensors have another dtype than expected",
                              example(name, fmt::format("{} instead of {}", dtypeName(catalog_.dtype(t)),
                                                        dtypeName(expect.dtype(e)))));
            }
        }
        for (TensorId t = 0; t < catalog_.tensorCount(); ++t) {
            if (expect.find(catalog_.name(t)) == kNone) {
                findings_.add(rule::expectExtra, Severity::warning, "",
                              "tensors are there that were not expected", example(catalog_.name(t), ""));
            }
        }
    }

    // ------------------------------------------------------------------ what the files say themselves

    // After a crash a million chunks may fail for one reason.
    struct OtherReason {
        bool operator()(const Error& a, const Error& b) const {
            return std::tie(a.code, a.location.rule, a.message) <
                   std::tie(b.code, b.location.rule, b.message);
        }
    };
    struct Failure {
        ChunkId chunk = kNone;
        const Error* error = nullptr;
    };

    // Those that can be read, of one file after the other: a file is opened once.
    std::vector<ChunkId> readableByFile() const {
        std::vector<size_t> place(catalog_.files().size() + 1, 0);
        const auto fileOf = [&](size_t c) {
            return readable_[c] ? catalog_.chunk(static_cast<ChunkId>(c)).file : kNone;
        };
        for (size_t c = 0; c < readable_.size(); ++c)
            if (const FileId file = fileOf(c); file != kNone) ++place[file + 1];
        std::partial_sum(place.begin(), place.end(), place.begin());
        std::vector<ChunkId> chunks(place.back());
        for (size_t c = 0; c < readable_.size(); ++c)
            if (const FileId file = fileOf(c); file != kNone) chunks[place[file]++] = static_cast<ChunkId>(c);
        return chunks;
    }

    Status locateChunks() {
        constexpr size_t kBlock = 64;
        std::set<Error, OtherReason> reasons;
        std::vector<Failure> failures;
        std::mutex mutex;
        const size_t count = catalog_.chunkCount();
        const std::vector<ChunkId> chunks = readableByFile();
        std::vector<uint8_t> failed(count, 0);
        SHARDSCOPE_TRY(resources_.pool->parallelFor(
            (chunks.size() + kBlock - 1) / kBlock, resources_.stop, [&](size_t block) -> Status {
                for (size_t i = block * kBlock; i < std::min(chunks.size(), (block + 1) * kBlock); ++i) {
                    auto extent = reader_.locate(chunks[i]);
                    if (extent.ok()) continue;
                    if (extent.error().code == ErrorCode::cancelled) return std::move(extent).error();
                    failed[chunks[i]] = 1;
                    std::lock_guard lock(mutex);
                    failures.push_back({chunks[i], &*reasons.insert(std::move(extent).error()).first});
                }
                return {};
            }));
        std::sort(failures.begin(), failures.end(),
                  [](const Failure& a, const Failure& b) { return a.chunk < b.chunk; });
        std::vector<uint64_t> inFile(catalog_.files().size(), 0), failedInFile(catalog_.files().size(), 0);
        for (ChunkId c = 0; c < count; ++c) {
            const FileId file = catalog_.chunk(c).file;
            if (file == kNone) continue;
            if (readable_[c]) ++inFile[file];
            if (failed[c]) {
                ++failedInFile[file];
                readable_[c] = false;
            }
        }
        std::map<FileId, bool> zeroed;
        for (const Failure& failure : failures) {
            const ChunkInfo chunk = catalog_.chunk(failure.chunk);
            const FileInfo& file = catalog_.files()[chunk.file];
            const Error& error = *failure.error;
            const bool all = failedInFile[chunk.file] == inFile[chunk.file];
            if (all && !zeroed.contains(chunk.file)) zeroed[chunk.file] = onlyZeros(chunk.file);
            if (all && zeroed[chunk.file]) {
                findings_.add(rule::valueZero, Severity::error,
                              fmt::format("{} holds only zero bytes", file.path),
                              "the file has its size but none of its content",
                              exampleOf(catalog_, chunk, error.message));
                continue;
            }
            std::string rule = error.location.rule;
            if (!isValidationRule(rule)) {
                rule = error.code == ErrorCode::notFound ? rule::fileMissing
                       : error.code == ErrorCode::unsafe ? rule::securityPath
                                                         : rule::metaInconsistent;
            }
            // One cause for a file in which nothing can be read, else one for each tensor.
            std::string cause;
            if (rule == rule::fileMissing) {
                cause = missingCause(file.path);
            } else if (rule == rule::fileTruncated) {
                cause = truncatedCause(file.path);
            } else if (rule.starts_with("security.") || (all && inFile[chunk.file] > 1)) {
                cause = file.path;
            } else {
                cause = catalog_.name(chunk.tensor);
            }
            // Whatever the reason: elements that cannot be read are lost to those who resume from here.
            findings_.add(rule, Severity::error, cause, error.message,
                          exampleOf(catalog_, chunk, error.message));
        }
        return {};
    }

    // Objects that are in files of their own: torch.load runs their pickles without any restriction.
    Status readObjects() {
        for (ObjectId id = 0; id < catalog_.objects().size(); ++id) {
            SHARDSCOPE_TRY(resources_.stop.poll());
            const ObjectInfo& object = catalog_.objects()[id];
            if (object.value) continue;  // part of the metadata, which the reader has looked at
            FindingExample example;
            example.tensor = object.name;
            example.rank = object.rank;
            if (object.file != kNone) {
                example.file = catalog_.files()[object.file].path;
                example.offset = object.offset;
            }
            const auto value = reader_.objectValue(id);
            if (!value.ok()) {
                const Error& error = value.error();
                if (error.code == ErrorCode::cancelled) return error;
                std::string rule = error.location.rule;
                if (!isValidationRule(rule)) {
                    rule = error.code == ErrorCode::notFound ? rule::fileMissing
                           : error.code == ErrorCode::unsafe ? rule::securityPath
                                                             : rule::metaInconsistent;
                }
                const std::string cause = rule == rule::fileMissing     ? missingCause(example.file)
                                          : rule == rule::fileTruncated ? truncatedCause(example.file)
                                                                        : object.name;
                const bool beyond = error.code == ErrorCode::unsupported || error.code == ErrorCode::limit;
                example.detail = error.message;
                findings_.add(rule, beyond ? Severity::warning : Severity::error, cause, error.message,
                              example);
                continue;
            }
            if (!value->graph) continue;
            for (const Note& note : globalNotes(globalsOf(*value->graph))) {
                example.detail = note.message;
                findings_.add(note.rule, note.severity, note.message, note.message, example);
            }
        }
        return {};
    }

    bool onlyZeros(FileId id) const {
        const auto file = reader_.openFile(id);
        if (!file.ok() || (*file)->size() == 0) return false;
        if (isHole(**file, 0, (*file)->size())) return true;
        // Its entries hold nothing; both ends tell zeros from other damage.
        std::vector<std::byte> block(std::min<uint64_t>((*file)->size(), 1 << 20));
        for (const uint64_t at : {uint64_t{0}, (*file)->size() - block.size()}) {
            if (!(*file)->readAt(at, block).ok()) return false;
            if (std::any_of(block.begin(), block.end(), [](std::byte b) { return b != std::byte{0}; }))
                return false;
        }
        return true;
    }

    const Reader& reader_;
    const Catalog& catalog_;
    const ValidateOptions& options_;
    const Resources& resources_;
    Findings findings_;
    std::vector<bool> readable_;
    std::set<std::string> noted_;  // files that a note speaks of
    uint64_t gaps_ = 0;
};

}  // namespace

Result<ValidationReport> validateCheckpoint(const Reader& reader, const ValidateOptions& options,
                                            const Resources& resources) {
    return Validation(reader, options, resources).run();
}

}  // namespace shardscope
