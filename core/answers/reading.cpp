#include "answers/reading.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "base/option_words.h"
#include "base/token.h"
#include "engine/quantized.h"
#include "engine/request.h"

namespace shardscope {
namespace {

constexpr const char* kReadingSchema = "shardscope.reading/1";

const std::string& pathOf(const ReadingRequest& request) {
    return std::visit([](const auto& what) -> const std::string& { return what.path; }, request.what);
}

// How the source is opened travels as that of a conversion.
std::string packReading(const Access& access, const ReadingRequest& request) {
    ConversionRequest source;
    source.source = pathOf(request);
    source.opening = access;
    source.dequantize = access.dequantize;
    static_cast<WorkLimits&>(source) = access;
    Json json{{"schema", kReadingSchema},
              {"source", packRequest(std::move(source))},
              {"records", packText(request.records)}};
    if (const auto* digest = std::get_if<DigestRequest>(&request.what)) {
        json["pattern"] = packText(digest->pattern);
        json["algorithm"] = digest->algorithm;
    } else {
        const auto& validate = std::get<ValidateRequest>(request.what);
        json["expect"] = packText(validate.expect);
        json["examples"] = validate.examples;
    }
    return json.dump();
}

Json parseReading(std::string_view job) {
    Json json = Json::parse(job, nullptr, false);
    return json.is_object() && json.value("schema", Json()) == kReadingSchema ? json : Json();
}

Result<ReadingRequest> unpackReading(std::string_view job, Access& access) {
    const Json json = parseReading(job);
    const auto text = [&](const char* key) {
        const auto at = json.find(key);
        return at != json.end() && at->is_string() ? at->get<std::string>() : std::string();
    };
    SHARDSCOPE_ASSIGN(const ConversionRequest source, unpackRequest(text("source")));
    static_cast<Opening&>(access) = source.opening;
    access.dequantize = source.dequantize;
    static_cast<WorkLimits&>(access) = source;
    ReadingRequest request;
    request.records = unpackText(text("records"));
    if (json.contains("pattern")) {
        request.what = DigestRequest{source.source, unpackText(text("pattern")), text("algorithm")};
        return request;
    }
    ValidateRequest validate;
    validate.path = source.source;
    validate.level = ValidateLevel::values;
    validate.expect = unpackText(text("expect"));
    const auto examples = json.find("examples");
    if (examples == json.end() || !examples->is_number_unsigned()) return damaged("malformed reading");
    validate.examples = examples->get<size_t>();
    request.what = std::move(validate);
    return request;
}

Result<Reading> validationOf(const Checkpoint& checkpoint, const ValidateRequest& request,
                             const Resources& resources) {
    SHARDSCOPE_TRY(needData(checkpoint, "validating values"));
    Reading reading;
    SHARDSCOPE_ASSIGN(reading.values, ValueParts::open(*checkpoint.reader, resources));
    reading.parts = reading.values->reading();
    reading.parts.words = fmt::format("validate\n{}\n{}", request.expect, request.examples);
    return reading;
}

Result<Reading> digestsOf(const Checkpoint& checkpoint, const DigestRequest& request) {
    const Catalog& catalog = checkpoint.catalog();
    SHARDSCOPE_ASSIGN(const NamePattern pattern, NamePattern::parse(request.pattern));
    // Of chosen tensors those that can be read have a digest; that of all is one of the whole checkpoint.
    if (request.pattern == "*") SHARDSCOPE_TRY(checkComplete(catalog, checkpoint.path, true));
    Reading reading;
    for (TensorId t = 0; t < catalog.tensorCount(); ++t)
        if (pattern.matches(catalog.name(t))) reading.tensors.push_back(t);
    if (request.algorithm != "tile")
        reading.kind = request.algorithm == "sha256" ? DigestKind::sha256 : DigestKind::crc32;
    reading.parts = digestReading(*checkpoint.reader, reading.tensors, reading.kind);
    const std::string_view computed =
        checkpoint.dequantized ? dtypeName(checkpoint.dequantized->dtype) : std::string_view();
    reading.parts.words = fmt::format("digest\n{}\n{}\n{}", request.pattern, request.algorithm, computed);
    return reading;
}

Status checkHosts(const Coordinator& coordinator, const std::string& records) {
    if (!records.empty() || std::ranges::all_of(coordinator.options.workers, [](const WorkerSpec& worker) {
            return worker.host.empty() && !worker.slurm;
        }))
        return {};
    return makeError(ErrorCode::usage, "workers on other hosts need a place for what they find")
        .withHint(option("records", "DIR") + ": a directory that all hosts see");
}

}  // namespace

Result<Execution> readersOf(const Access& access, const PartRequest& words, const AgentProgram& program) {
    const bool alone = !words.given() && words.on.empty();
    if (alone && !words.records.empty())
        return makeError(ErrorCode::usage, fmt::format("{} is for {}, {} and {}", option("records"),
                                                       option("part"), option("finish"), option("on")));
    if (access.away() && (words.given() || !words.records.empty()))
        return makeError(ErrorCode::usage, "parts are not for a checkpoint on another host")
            .withHint("run them there, or where its files are mounted");
    if (!words.on.empty()) {
        SHARDSCOPE_ASSIGN(const WorkerList workers, parseWorkers(words.on));
        if (workers.ranks)
            return makeError(ErrorCode::usage, "ranks are for conversions")
                .withHint(fmt::format("{} for processes here; those that a launcher has started take {} {}",
                                      option("on", "local:4"), option("part", "auto"),
                                      option("finish", "auto")));
    }
    SHARDSCOPE_ASSIGN(Execution by, executionOf(words.on, words, program));
    if (words.given() && words.records.empty())
        return makeError(ErrorCode::usage, fmt::format("{} and {} need a place for the records of the parts",
                                                       option("part"), option("finish")))
            .withHint(option("records", "DIR") + ": a directory that all hosts see");
    if (const auto* coordinator = std::get_if<Coordinator>(&by))
        SHARDSCOPE_TRY(checkHosts(*coordinator, words.records));
    return by;
}

Result<Reading> Reading::of(const Checkpoint& checkpoint, const ReadingRequest& request,
                            const Resources& resources) {
    const auto* digest = std::get_if<DigestRequest>(&request.what);
    auto reading = digest ? digestsOf(checkpoint, *digest)
                          : validationOf(checkpoint, std::get<ValidateRequest>(request.what), resources);
    if (reading.ok()) reading->parts.records = request.records;
    return reading;
}

Result<std::unique_ptr<SharedReading>> SharedReading::prepare(const Access& access, ReadingRequest request,
                                                              const Execution& by) {
    std::unique_ptr<SharedReading> made(new SharedReading(std::move(request), by));
    const auto* coordinator = std::get_if<Coordinator>(&by);
    if (!coordinator) return made;
    if (std::string& records = made->request_.records; records.empty()) {
        std::error_code none;
        const std::filesystem::path place = std::filesystem::temp_directory_path(none);
        if (none) return systemError(none.value(), "find the directory for temporary files", "");
        records = (place / ("shardscope-reading-" + newToken())).string();
        made->temporary_ = true;
    }
    CoordinatorOptions options = coordinator->options;
    options.request = packReading(access, made->request_);
    SHARDSCOPE_ASSIGN(made->scheduler_, WorkerScheduler::forJobHere(std::move(options)));
    return made;
}

Access::Workers SharedReading::workers() const {
    if (!scheduler_) return nullptr;
    return [this] { return scheduler_->workers(); };
}

Result<ReadInParts> SharedReading::run(const PartReading& parts, const Resources& resources) const {
    if (const auto* own = std::get_if<Parts>(&by_)) return readInParts(parts, *own, resources);
    PartReading reading = parts;
    reading.temporary = temporary_;
    ReadInParts done;
    SHARDSCOPE_ASSIGN(done.found,
                      FinishedReading::together(reading, SHARDSCOPE_VERSION, *scheduler_, resources));
    return done;
}

Result<Digested> digestOpen(const Access& access, const Checkpoint& checkpoint, const DigestRequest& request,
                            const Execution& by, const std::string& records) {
    SHARDSCOPE_ASSIGN(const auto shared, SharedReading::prepare(access, {request, records}, by));
    Work work(access, checkpoint.catalog().memoryBytes(), shared->workers());
    SHARDSCOPE_TRY(work.start());
    const Resources& resources = work.resources();
    SHARDSCOPE_ASSIGN(const Reading reading, Reading::of(checkpoint, shared->request(), resources));
    Digested done;
    if (std::holds_alternative<Alone>(by)) {
        SHARDSCOPE_ASSIGN(done.digests,
                          digestTexts(*checkpoint.reader, reading.tensors, reading.kind, resources));
        return done;
    }
    SHARDSCOPE_ASSIGN(done.read, shared->run(reading.parts, resources));
    if (!done.read.found) return done;
    SHARDSCOPE_ASSIGN(done.digests,
                      finishDigests(*checkpoint.reader, reading.tensors, reading.kind, *done.read.found));
    return done;
}

Json digestJson(const Catalog& catalog, const std::string& algorithm, const DigestTexts& digests) {
    DigestTexts inOrder = digests;
    std::ranges::sort(inOrder);
    Json json{{"schema", "shardscope.digest/1"}, {"algorithm", algorithm}, {"tensors", Json::object()}};
    for (const auto& [t, hex] : inOrder)
        json["tensors"][std::string(catalog.name(t))] = hex;
    return json;
}

bool isReading(std::string_view job) {
    return !parseReading(job).is_null();
}

Status serveReading(WorkerSession& session, unsigned threads) {
    const auto serve = [&]() -> Status {
        Access access;
        SHARDSCOPE_ASSIGN(const ReadingRequest request, unpackReading(session.request(), access));
        if (access.threads == 0) access.threads = threads;
        SHARDSCOPE_ASSIGN(const Checkpoint checkpoint, access.open(pathOf(request), session.stop()));
        SHARDSCOPE_ASSIGN(const uint64_t buffers,
                          bufferBudget(access.memory, checkpoint.catalog().memoryBytes()));
        const JobResources resources(access.threads, buffers, nullptr, session.stop());
        SHARDSCOPE_ASSIGN(const Reading reading, Reading::of(checkpoint, request, resources));
        return session.serve(reading.parts, resources);
    };
    Status done = serve();
    // What the session has said already does no harm when it is said twice.
    if (!done.ok() && done.error().code != ErrorCode::cancelled) session.refuse(done.error());
    return done;
}

}  // namespace shardscope
