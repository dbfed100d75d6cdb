#include "answers/validation.h"

#include <fmt/format.h>

#include "answers/reading.h"
#include "base/option_words.h"
#include "engine/expected.h"

namespace shardscope {

Result<ValidateLevel> levelNamed(std::string_view name) {
    for (const auto level : kLevels)
        if (levelName(level) == name) return level;
    return makeError(ErrorCode::usage, fmt::format("'{}' is not a level", name))
        .withHint("metadata, files or values");
}

std::vector<Suppression> acceptedBy(const ValidateRequest& request, const std::string& path) {
    return honored(request, SuppressionStore().of(acceptedName(path)));
}

std::vector<Suppression> honored(const ValidateRequest& request, std::vector<Suppression> accepted) {
    if (request.noAccepted) return {};
    if (!request.accepted)
        std::erase_if(accepted, [](const Suppression& one) { return isStructural(one.rule); });
    return accepted;
}

namespace {

// How a checkpoint is validated; calls `run` with that.
template <class Answer>
Result<Answer> withRequest(const Access& access, const Checkpoint& checkpoint, const ValidateRequest& request,
                           Access::Workers workers,
                           const std::function<Result<Answer>(ValidateOptions& how, const Resources&)>& run) {
    std::optional<Checkpoint> expected;
    std::optional<std::vector<Note>> lacking;
    ValidateOptions how;
    how.level = request.level;
    how.maxExamples = request.examples;
    how.sums = request.sums;
    // Judging metadata reads nothing into buffers, and what is open already is no reason to refuse it.
    const bool buffered = request.level != ValidateLevel::metadata;
    uint64_t held = buffered ? checkpoint.catalog().memoryBytes() : 0;
    if (!request.expect.empty()) {
        SHARDSCOPE_ASSIGN(lacking, expectedModelNotes(checkpoint, request.expect));
    }
    if (lacking) {
        how.notes = &*lacking;
    } else if (!request.expect.empty()) {
        SHARDSCOPE_ASSIGN(expected, openCheckpoint(request.expect, {}));
        how.expect = &expected->catalog();
        if (buffered) held += expected->catalog().memoryBytes();
    }
    Work work(access, held, std::move(workers));
    SHARDSCOPE_TRY(work.start());
    return run(how, work.resources());
}

}  // namespace

Result<ValidationReport> validateOpen(const Access& access, const Checkpoint& checkpoint,
                                      const ValidateRequest& request) {
    return withRequest<ValidationReport>(access, checkpoint, request, nullptr,
                                         [&](ValidateOptions& how, const Resources& resources) {
                                             return validateCheckpoint(checkpoint, how, resources);
                                         });
}

Result<ValidatedInParts> validateBy(const Access& access, const Checkpoint& checkpoint,
                                    const ValidateRequest& request, const Execution& by,
                                    const std::string& records) {
    ValidatedInParts done;
    if (std::holds_alternative<Alone>(by)) {
        SHARDSCOPE_ASSIGN(done.report, validateOpen(access, checkpoint, request));
        return done;
    }
    if (request.level != ValidateLevel::values)
        return makeError(ErrorCode::usage, "parts are for " + option("level", "values"))
            .withHint("the other levels read little: one process is enough");
    SHARDSCOPE_ASSIGN(const auto shared, SharedReading::prepare(access, {request, records}, by));
    return withRequest<ValidatedInParts>(
        access, checkpoint, request, shared->workers(),
        [&](ValidateOptions& how, const Resources& resources) -> Result<ValidatedInParts> {
            SHARDSCOPE_ASSIGN(const Reading reading, Reading::of(checkpoint, shared->request(), resources));
            SHARDSCOPE_ASSIGN(done.read, shared->run(reading.parts, resources));
            if (!done.read.found) return std::move(done);
            SHARDSCOPE_TRY(reading.values->take(*done.read.found));
            how.parts = reading.values.get();
            SHARDSCOPE_ASSIGN(done.report, validateCheckpoint(checkpoint, how, resources));
            return std::move(done);
        });
}

}  // namespace shardscope
