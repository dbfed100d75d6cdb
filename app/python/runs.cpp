// Runs: the steps of one, judged, and the one to resume from.
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include "answers/stats.h"
#include "call.h"
#include "hosts/launch.h"

namespace shardscope::python {
namespace {

ValidateRequest requestOf(nb::handle path, nb::handle level) {
    ValidateRequest how;
    how.path = fromText(path);
    how.level = valueOf(levelNamed(fromText(level)));
    // What people accept is no reason for a script.
    how.noAccepted = true;
    return how;
}

// The document that `work` makes, with the options of the verb.
template <class Work>
nb::object documentOf(std::string_view verb, nb::handle options, const std::string& path,
                      const nb::object& progress, Work&& work) {
    const auto how = asked(verb, options);
    if (isSshPath(path))
        raise(makeError(ErrorCode::unsupported, "the steps of a run on another host are not judged from here")
                  .inFile(path)
                  .withHint("open a step of it, or judge them there: ssh HOST shardscope latest RUN"));
    Call call(*how);
    return toText(dump(valueOf(
        call.run([&](Call&) -> Result<Json> { return work(std::as_const(how->access)); }, progress))));
}

Result<Run> runAt(const Access& access, const std::string& path) {
    SHARDSCOPE_ASSIGN(auto run, openRun(path, access.openOptions()));
    if (!run)
        return makeError(ErrorCode::notFound, "holds no steps of a run")
            .inFile(path)
            .withHint("a checkpoint is opened with shardscope.open()");
    return *std::move(run);
}

// Its steps as they are listed, with the verdicts that are known.
nb::object infoOfRun(nb::list options, nb::str path) {
    const ValidateRequest how{.path = fromText(path), .level = ValidateLevel::metadata, .noAccepted = true};
    return documentOf("info", options, how.path, nb::none(), [&](const Access& access) -> Result<Json> {
        SHARDSCOPE_ASSIGN(const Run run, runAt(access, how.path));
        SHARDSCOPE_ASSIGN(const std::vector<StepLine> lines, stepsOf(access, run, how, false));
        return runJson(access, run, lines);
    });
}

nb::object validateRun(nb::list options, nb::str path, nb::str level, nb::str expect, size_t examples,
                       nb::object progress) {
    ValidateRequest how = requestOf(path, level);
    how.expect = fromText(expect);
    how.examples = examples;
    return documentOf("latest", options, how.path, progress, [&](const Access& access) -> Result<Json> {
        SHARDSCOPE_ASSIGN(const Run run, runAt(access, how.path));
        SHARDSCOPE_ASSIGN(const JudgedRun judged, judgeRun(access, run, how));
        return judgedJson(access, run, judged, how.level);
    });
}

nb::object latest(nb::list options, nb::str path, nb::str level, bool good, nb::object progress) {
    const ValidateRequest how = requestOf(path, level);
    return documentOf("latest", options, how.path, progress,
                      [&](const Access& access) { return latestStep(access, how, good); });
}

nb::object readyRun(nb::list options, nb::str path, nb::str level, nb::object progress) {
    const ValidateRequest how = requestOf(path, level);
    return documentOf("ready", options, how.path, progress, [&](const Access& access) -> Result<Json> {
        SHARDSCOPE_ASSIGN(Run run, runAt(access, how.path));
        SHARDSCOPE_ASSIGN(const Readiness readiness, readinessOf(access, std::move(run), how));
        return readinessJson(access, readiness);
    });
}

nb::object stats(nb::list options, nb::str path, nb::str by, nb::object progress) {
    const std::string place = fromText(path);
    const ValuesBy chosen = valueOf(valuesByNamed(fromText(by)));
    return documentOf("stats", options, place, progress, [&](const Access& access) -> Result<Json> {
        SHARDSCOPE_ASSIGN(const auto opened, access.openAny(place));
        SHARDSCOPE_ASSIGN(const Stats found, statsOf(access, opened, chosen));
        return statsJson(access, found);
    });
}

}  // namespace

void addRuns(nb::module_& m) {
    m.def("run_info", &infoOfRun, nb::arg("options"), nb::arg("path"));
    m.def("validate_run", &validateRun, nb::arg("options"), nb::arg("path"), nb::arg("level"),
          nb::arg("expect"), nb::arg("examples"), nb::arg("progress").none());
    m.def("latest", &latest, nb::arg("options"), nb::arg("path"), nb::arg("level"), nb::arg("good"),
          nb::arg("progress").none());
    m.def("stats", &stats, nb::arg("options"), nb::arg("path"), nb::arg("by"), nb::arg("progress").none());
    m.def("ready_run", &readyRun, nb::arg("options"), nb::arg("path"), nb::arg("level"),
          nb::arg("progress").none());
}

}  // namespace shardscope::python
