// Readings of all values, `validate --level values` and `digest`, that several processes share. A scheduler
// runs the parts (execute/parts.h), or this process gives them to workers.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "answers/conversion.h"
#include "answers/validation.h"
#include "execute/part_reading.h"
#include "validate/value_parts.h"

namespace shardscope {

constexpr std::array<std::string_view, 3> kDigestAlgorithms{"tile", "sha256", "crc32"};

struct DigestRequest {
    std::string path;
    std::string pattern = "*";
    std::string algorithm = "tile";  // of kDigestAlgorithms
};

struct ReadingRequest {
    std::variant<ValidateRequest, DigestRequest> what;
    std::string records;  // a directory; empty = a temporary one of this machine
};

// Who reads, by --part, --finish, --records and --on. Errors: usage.
Result<Execution> readersOf(const Access& access, const PartRequest& words, const AgentProgram& program);

// What there is to read in a checkpoint that is open, as all who read it see it.
struct Reading {
    // Errors: usage (a malformed pattern), those of ValueParts::open().
    static Result<Reading> of(const Checkpoint& checkpoint, const ReadingRequest& request,
                              const Resources& resources);
    PartReading parts;
    std::unique_ptr<ValueParts> values;  // of a validation
    std::vector<TensorId> tensors;       // of digests
    DigestKind kind{};
};

// A reading on its way.
class SharedReading {
  public:
    // `by`: parts or a coordinator. Errors: io.
    static Result<std::unique_ptr<SharedReading>> prepare(const Access& access, ReadingRequest request,
                                                          const Execution& by);
    const ReadingRequest& request() const { return request_; }
    Access::Workers workers() const;  // of a coordinator; null without one
    // Errors: those of readInParts() and FinishedReading.
    Result<ReadInParts> run(const PartReading& parts, const Resources& resources) const;

  private:
    SharedReading(ReadingRequest request, Execution by) : request_(std::move(request)), by_(std::move(by)) {}
    ReadingRequest request_;
    const Execution by_;
    bool temporary_ = false;
    std::unique_ptr<WorkerScheduler> scheduler_;
};

// Digests of the tensors whose names match: they are there unless this process has done a part alone.
struct Digested {
    ReadInParts read;
    DigestTexts digests;
};
Json digestJson(const Catalog& catalog, const std::string& algorithm, const DigestTexts& digests);
Result<Digested> digestOpen(const Access& access, const Checkpoint& checkpoint, const DigestRequest& request,
                            const Execution& by, const std::string& records);

// The worker's end: whether a job is a reading, and doing parts of it. `threads` is for a job that states no
// number. Errors: those of opening and of WorkerSession::serve(); the coordinator is told.
bool isReading(std::string_view job);
Status serveReading(WorkerSession& session, unsigned threads);

}  // namespace shardscope
