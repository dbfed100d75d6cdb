#include "serve/page_checkpoint.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "answers/json.h"
#include "base/text.h"
#include "engine/ready.h"
#include "engine/report.h"
#include "survey/file_state.h"

namespace shardscope::serve {
namespace {

constexpr uint64_t kMostRows = 512, kMostColumns = 4096, kMostChunks = 1000, kMostNames = 100;
constexpr size_t kMostMatrices = 3, kMostOfValue = 160, kMostExamples = 5000;
constexpr uint64_t kMostAxes = 255, kMostSamples = 128;
constexpr uint64_t kAny = uint64_t{1} << 40;

// The part of a list that a request asks for.
struct Paging {
    uint64_t first = 0, count = 0;
    bool holds(uint64_t at) const { return at >= first && at - first < count; }
};
Result<Paging> pagingOf(const PageRequest& request, uint64_t most) {
    Paging page;
    SHARDSCOPE_ASSIGN(page.first, request.number("first", 0, kAny));
    SHARDSCOPE_ASSIGN(page.count, request.number("count", kMostNames, most));
    return page;
}

Json suppressionsJson(const std::vector<Suppression>& list) {
    Json json = Json::array();
    for (const Suppression& s : list)
        json.push_back(
            {{"rule", s.rule}, {"cause", s.cause}, {"reason", s.reason}, {"by", s.by}, {"at", s.at}});
    return json;
}

// A page that holds a hundred thousand examples is slow, whatever it shows.
size_t mostExamples(const ValidationReport& report) {
    return std::clamp<size_t>(kMostExamples / std::max<size_t>(1, report.findings.size()), 5,
                              ValidateOptions().maxExamples);
}

ValidationReport trimmed(ValidationReport report) {
    const size_t most = mostExamples(report);
    for (Finding& finding : report.findings)
        finding.examples.resize(std::min(finding.examples.size(), most));
    return report;
}

// Those with a sign and something behind it.
std::vector<std::string> linesOf(const std::string& text) {
    std::vector<std::string> lines;
    for (size_t from = 0; from < text.size();) {
        const size_t end = std::min(text.find('\n', from), text.size());
        if (end > from + 1) lines.push_back(text.substr(from, end - from));
        from = end + 1;
    }
    return lines;
}

// A pin is "gKEY", the sum of a group, or "tNAME", the row of a tensor.
bool shows(const PlacementMatrix& matrix, uint32_t row, const std::string& pin) {
    const MatrixRow& of = matrix.row(row);
    if (of.summary) return pin[0] == 'g' && matrix.group(of.group).key == pin.substr(1);
    return pin[0] == 't' && matrix.rowOf(matrix.catalog().find(pin.substr(1))) == row;
}

// Of each row at the top the pins that it shows.
Json pinsJson(const PlacementMatrix& matrix, const std::vector<std::string>& pins) {
    Json rows = Json::array();
    for (uint32_t row = 0; row < matrix.pinnedCount(); ++row) {
        Json of = Json::array();
        for (const std::string& pin : pins) {
            if (shows(matrix, row, pin)) of.push_back(pin);
        }
        rows.push_back(std::move(of));
    }
    return rows;
}

// Of the sum of a group the one that stands in its place. kNone where there is none.
uint32_t rowOfPin(const PlacementMatrix& matrix, const std::string& pin) {
    if (pin.size() < 2) return kNone;
    if (pin[0] == 't') return matrix.rowOf(matrix.catalog().find(pin.substr(1)));
    uint32_t row = matrix.pinnedCount();
    while (row < matrix.rowCount() && !shows(matrix, row, pin))
        ++row;
    return row < matrix.rowCount() ? row : kNone;
}

}  // namespace

PageCheckpoint::PageCheckpoint(const Access& access, Checkpoint checkpoint, ValidateLevel level,
                               OnReport onReport)
    : checkpoint_(std::make_shared<const Checkpoint>(std::move(checkpoint))),
      onReport_(std::move(onReport)),
      info_(dump(infoJson(*checkpoint_, checkpoint_->path, summaryOf(*checkpoint_)))),
      key_(acceptedName(checkpoint_->path)),
      used_(usedBytes(catalog())) {
    static_cast<WorkLimits&>(access_) = access;
    computed_ =
        std::async(std::launch::async, [this] { return computeFacts(catalog(), access_.stop); }).share();
    // Of an index there is no more to look at.
    (void)validate(checkpoint_->reader->dataElsewhere().empty() ? level : ValidateLevel::metadata);
}

PageCheckpoint::~PageCheckpoint() {
    stop();
    if (validation_) validation_->thread.join();
}

void PageCheckpoint::stop() {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    access_.stop.requestStop();
    if (validation_) validation_->access.stop.requestStop();
}

// ------------------------------------------------------------------ findings

Status PageCheckpoint::validate(ValidateLevel level) {
    if (level != ValidateLevel::metadata) SHARDSCOPE_TRY(needData(*checkpoint_, "validating data"));
    std::lock_guard lock(mutex_);
    if (validating_) return makeError(ErrorCode::exists, "a validation is under way");
    if (stopped_) return makeError(ErrorCode::cancelled, "canceled");
    if (validation_) validation_->thread.join();
    validation_ = std::make_unique<Validation>();
    Validation& next = *validation_;
    static_cast<WorkLimits&>(next.access) = access_;
    next.level = level;
    next.work = std::make_unique<Work>(next.access, catalog().memoryBytes());
    validating_ = true;
    next.thread = std::thread([this, &next] { run(next); });
    return {};
}

void PageCheckpoint::run(Validation& validation) {
    const auto done = [&]() -> Result<ValidationReport> {
        ValidateOptions how;
        how.level = validation.level;
        how.maxExamples = kReadyExamples;
        how.sums = onReport_ != nullptr && validation.level == ValidateLevel::values;
        SHARDSCOPE_TRY(validation.work->start());
        return validateCheckpoint(*checkpoint_, how, validation.work->resources());
    }();
    const FactsPtr plain = computed_.get();
    FactsPtr found;
    if (done.ok()) {
        if (onReport_) onReport_(trimmed(*done));
        if (plain && !done->findings.empty()) found = withFindings(*plain, catalog(), *done);
    }
    std::lock_guard lock(mutex_);
    validating_ = false;
    failed_ = done.ok() ? std::string() : dump(errorDocument(done.error()));
    if (!done.ok()) return;
    ValidationReport shown = *done;
    shown.values = {};
    report_ = std::make_shared<ValidationReport>(std::move(shown));
    findings_.clear();
    ready_.clear();
    // Where nothing is wrong the map is what it was.
    if (found || found_) ++generation_;
    found_ = std::move(found);
}

void PageCheckpoint::cancelValidation() {
    std::lock_guard lock(mutex_);
    if (validating_) validation_->access.stop.requestStop();
}

std::string PageCheckpoint::findings() const {
    const std::vector<Suppression> list = SuppressionStore().of(key_);
    std::lock_guard lock(mutex_);
    if (!validating_ && !failed_.empty()) return failed_;
    if (!validating_ && report_) {
        if (findings_.empty() || findingsBut_ != list)
            findings_ = validationJson(*report_, list, mostExamples(*report_));
        findingsBut_ = list;
        return findings_;
    }
    const Progress& progress = validation_->work->progress();
    return dump({{"schema", "shardscope.validating/1"},
                 {"level", levelName(validation_->level)},
                 {"bytes_done", progress.bytesDone()},
                 {"bytes_total", progress.bytesTotal()}});
}

std::string PageCheckpoint::accepted() const {
    const std::vector<Suppression> list = SuppressionStore().of(key_);
    std::lock_guard lock(mutex_);
    return dump({{"schema", "shardscope.accepted/1"},
                 {"generation", generation_},
                 {"verdict", report_ ? Json(verdictName(verdictWithout(*report_, list))) : Json()},
                 {"accepted", suppressionsJson(list)}});
}

// Made without the lock: it lists the step's directory.
std::string PageCheckpoint::ready() const {
    const std::vector<Suppression> list = SuppressionStore().of(key_);
    std::unique_lock lock(mutex_);
    if (!report_ || (!validating_ && !failed_.empty())) return "null";
    if (!ready_.empty() && readyBut_ == list) return ready_;
    const auto report = report_;
    lock.unlock();
    Json json = Json::parse(readyJson(readyCard(*checkpoint_, *report, list)));
    json["passed"] = Json::array();
    for (Json& line : json["lines"]) {
        const auto names = [&](const char* key) {
            return line[key].is_string() ? line[key].get<std::string>() : "";
        };
        const bool file = std::ranges::count(catalog().files(), names("file"), &FileInfo::path) > 0;
        line["shows"] = catalog().find(names("tensor")) != kNone ? Json("tensor")
                        : file                                   ? Json("file")
                                                                 : Json();
    }
    lock.lock();
    if (report != report_) return dump(json);
    ready_ = dump(json);
    readyBut_ = list;
    return ready_;
}

Status PageCheckpoint::accept(const std::string& rule, const std::string& cause, const std::string& reason) {
    {
        std::lock_guard lock(mutex_);
        const auto meant = [&](const Finding& f) { return f.rule == rule && f.cause == cause; };
        if (!report_ || std::ranges::none_of(report_->findings, meant))
            return makeError(ErrorCode::usage, "no finding has this rule and cause");
    }
    if (reason.empty()) return makeError(ErrorCode::usage, "a finding is accepted with a reason");
    return SuppressionStore().add(key_, {rule, cause, reason});
}

Status PageCheckpoint::withdraw(const std::string& rule, const std::string& cause) {
    return SuppressionStore().remove(key_, rule, cause);
}

// ------------------------------------------------------------------ placement

Result<PageCheckpoint::MatrixPtr> PageCheckpoint::matrix(const PageRequest& request) const {
    SHARDSCOPE_ASSIGN(const NamePattern pattern, NamePattern::parse(request.text("pattern", "*")));
    MatrixOptions options;
    options.foldRows = request.text("fold", "1") == "1";
    options.foldColumns = request.flag("alike");
    options.groups = request.flag("groups");
    // "+KEY" of each group that is opened, "-KEY" of each that is closed; a line each.
    const std::string open = request.text("open"), pins = request.text("pin");
    for (const std::string& line : linesOf(open))
        options.open[line.substr(1)] = line[0] == '+';
    for (const std::string& line : linesOf(pins)) {
        if (line[0] == 'g') {
            options.pinnedGroups.push_back(line.substr(1));
        } else if (const TensorId t = catalog().find(line.substr(1)); t != kNone) {
            options.pinned.push_back(t);
        }
    }
    // "2,0,1"; what is not an axis is not counted by the matrix.
    const std::string axes = request.text("axes");
    for (const char c : axes) {
        if (c >= '0' && c <= '9') options.axes.push_back(c - '0');
    }
    SHARDSCOPE_TRY(this->facts());
    FactsPtr facts;
    std::promise<MatrixPtr> made;
    std::shared_future<MatrixPtr> matrix;
    bool build = false;
    {
        std::lock_guard lock(mutex_);
        facts = found_ ? found_ : computed_.get();
        const std::string key =
            fmt::format("{}\n{}\n{}{}{}\n{}\n{}\n\n{}", generation_, axes, options.foldRows,
                        options.foldColumns, options.groups, request.text("pattern", "*"), open, pins);
        const auto known =
            std::ranges::find_if(matrices_, [&](const auto& entry) { return entry.first == key; });
        if (known != matrices_.end()) {
            matrices_.splice(matrices_.begin(), matrices_, known);
        } else {
            matrices_.emplace_front(key, made.get_future().share());
            if (matrices_.size() > kMostMatrices) matrices_.pop_back();
            build = true;
        }
        matrix = matrices_.front().second;
    }
    if (build) made.set_value(matrixOf(checkpoint_, facts, pattern, options, access_.stop));
    if (!matrix.get()) return makeError(ErrorCode::cancelled, "canceled");
    return matrix.get();
}

Result<std::string> PageCheckpoint::placement(const PageRequest& request) const {
    SHARDSCOPE_ASSIGN(const MatrixPtr shown, matrix(request));
    PlacementPart part;
    SHARDSCOPE_ASSIGN(part.first, request.number("first", 0, kAny));
    SHARDSCOPE_ASSIGN(part.count, request.number("count", kMostRows, kAny));
    part.count = std::min(part.count, kMostRows);
    part.columns = request.flag("columns");
    part.slices = request.flag("slices");
    if (part.slices) {
        SHARDSCOPE_ASSIGN(const uint64_t from, request.number("from", 0, UINT32_MAX));
        SHARDSCOPE_ASSIGN(const uint64_t to, request.number("to", from + kMostColumns, UINT32_MAX));
        part.columnBegin = static_cast<uint32_t>(from);
        part.columnEnd = static_cast<uint32_t>(std::min(to, from + kMostColumns));
    }
    Json json = placementJson(*shown, part);
    if (part.columns) {
        std::lock_guard lock(mutex_);
        json["generation"] = generation_;
        json["pins"] = pinsJson(*shown, linesOf(request.text("pin")));
        if (const uint32_t row = rowOfPin(*shown, request.text("at")); row != kNone) json["at"] = row;
    }
    return dump(json);
}

Result<std::string> PageCheckpoint::tile(const PageRequest& request) const {
    SHARDSCOPE_ASSIGN(const MatrixPtr shown, matrix(request));
    constexpr uint64_t kMostHalvings = 31;
    SHARDSCOPE_ASSIGN(const uint64_t down, request.number("down", 0, kMostHalvings));
    SHARDSCOPE_ASSIGN(const uint64_t across, request.number("across", 0, kMostHalvings));
    SHARDSCOPE_ASSIGN(const uint64_t row, request.number("row", 0, UINT32_MAX));
    SHARDSCOPE_ASSIGN(const uint64_t column, request.number("column", 0, UINT32_MAX));
    const double dx = std::ldexp(1.0, static_cast<int>(across));
    const double dy = std::ldexp(1.0, static_cast<int>(down));
    const double x = static_cast<double>(column * kTile) * dx, y = static_cast<double>(row * kTile) * dy;
    const int width = request.flag("gaps") ? 1 : static_cast<int>(kTile);
    std::string bytes(static_cast<size_t>(width) * kTile, '\0');
    auto* out = reinterpret_cast<uint8_t*>(bytes.data());
    if (request.flag("gaps"))
        shown->gapPyramid().sample(0, 1, width, y, dy, static_cast<int>(kTile), out);
    else
        shown->pyramid().sample(x, dx, width, y, dy, static_cast<int>(kTile), out);
    return bytes;
}

Result<std::string> PageCheckpoint::cell(const PageRequest& request) const {
    SHARDSCOPE_ASSIGN(const MatrixPtr shown, matrix(request));
    SHARDSCOPE_ASSIGN(const uint64_t askedRow, request.number("row", 0, UINT32_MAX));
    SHARDSCOPE_ASSIGN(const uint64_t askedColumn, request.number("column", 0, UINT32_MAX));
    auto row = static_cast<uint32_t>(askedRow), column = static_cast<uint32_t>(askedColumn);
    if (row >= shown->rowCount() || column > shown->columnCount())
        return makeError(ErrorCode::usage, "there is no such cell");
    const std::string step = request.text("step");
    const bool found = step.empty() || shown->nextFinding(row, column, step == "next");
    Json names = Json::array();
    const std::vector<TensorId> members = shown->members(row);
    for (size_t i = 0; i < std::min<size_t>(members.size(), kMostNames); ++i)
        names.push_back(catalog().name(members[i]));
    return dump({{"schema", "shardscope.cell/1"},
                 {"row", row},
                 {"column", column},
                 {"found", found},
                 {"text", printable(shown->cellText(row, column))},
                 {"tensors", std::move(names)},
                 {"tensor_count", members.size()}});
}

Result<std::string> PageCheckpoint::mesh() const {
    SHARDSCOPE_ASSIGN(const FactsPtr known, facts());
    return dump(meshPictureJson(MeshPicture::of(known).get()));
}

Result<std::string> PageCheckpoint::meshSvg(const PageRequest& request) const {
    SHARDSCOPE_ASSIGN(const FactsPtr known, facts());
    constexpr double kLeast = 200;
    SHARDSCOPE_ASSIGN(const PageRequest::Size room, request.size({960, 540}));
    const auto picture = MeshPicture::of(known);
    if (!picture) return makeError(ErrorCode::notFound, "one rank wrote all of it: there is no mesh to draw");
    return svgOf(*picture, std::max(kLeast, room.width), std::max(kLeast, room.height), request.flag("dark"));
}

// The drawing is asked for after the document, and anew with each width.
Result<std::shared_ptr<const AsIf>> PageCheckpoint::asIfOf(const PageRequest& request) const {
    SHARDSCOPE_ASSIGN(const FactsPtr known, facts());
    const std::string mesh = request.text("mesh");
    std::string key;
    {
        const std::lock_guard lock(mutex_);
        key = fmt::format("{} {}", generation_, mesh);
        if (asIf_ && asIfKey_ == key) return asIf_;
    }
    SHARDSCOPE_ASSIGN(auto made, asIfOn(*checkpoint_, known, mesh, access_.stop));
    const std::lock_guard lock(mutex_);
    asIfKey_ = key;
    asIf_ = made;
    return made;
}

Result<std::string> PageCheckpoint::asIf(const PageRequest& request) const {
    SHARDSCOPE_ASSIGN(const auto what, asIfOf(request));
    return dump(asIfJson(*what));
}

Result<std::string> PageCheckpoint::asIfSvg(const PageRequest& request) const {
    SHARDSCOPE_ASSIGN(const PageRequest::Size room, request.size({960, 540}));
    SHARDSCOPE_ASSIGN(const auto what, asIfOf(request));
    return AsIf::draw(what, room.width, room.height, request.flag("dark")).svg;
}

// ------------------------------------------------------------------ tensors

Result<std::string> PageCheckpoint::tensors(const PageRequest& request) const {
    SHARDSCOPE_ASSIGN(const NamePattern pattern, NamePattern::parse(request.text("pattern", "*")));
    SHARDSCOPE_ASSIGN(const Paging page, pagingOf(request, kMostRows));
    Json list = Json::array();
    uint64_t matches = 0;
    for (TensorId t = 0; t < catalog().tensorCount(); ++t) {
        if (!pattern.matches(catalog().name(t))) continue;
        if (page.holds(matches++)) list.push_back(tensorJson(catalog(), t, false));
    }
    return dump({{"schema", "shardscope.ls/1"},
                 {"total", matches},
                 {"first", page.first},
                 {"tensors", std::move(list)}});
}

Result<std::string> PageCheckpoint::tensor(const PageRequest& request) const {
    SHARDSCOPE_ASSIGN(const TensorId t, findTensor(catalog(), request.text("name"), checkpoint_->path));
    SHARDSCOPE_ASSIGN(const Paging page, pagingOf(request, kMostChunks));
    std::optional<TensorStatistics> statistics;
    if (request.flag("values")) {
        SHARDSCOPE_TRY(needData(*checkpoint_, "reading values"));
        const std::unique_lock lock(reading_, std::try_to_lock);
        if (!lock.owns_lock())
            return makeError(ErrorCode::exists,
                             "values are being read already; ask again when they are there");
        constexpr size_t kBins = 64;
        Work work(access_, catalog().memoryBytes());
        SHARDSCOPE_TRY(work.start());
        SHARDSCOPE_ASSIGN(statistics, tensorStatistics(*checkpoint_->reader, t, kBins, work.resources()));
    }
    Json json = showJson(catalog(), t, {page.first, page.count}, statistics ? &*statistics : nullptr);
    QuantizedParts(*checkpoint_).describe(json["tensor"], t);
    if (request.flag("state")) {
        SHARDSCOPE_ASSIGN(const FactsPtr known, facts());
        json["state"] = tensorStateText(*known, catalog(), t);
    }
    return dump(json);
}

Result<std::string> PageCheckpoint::slice(const PageRequest& request) const {
    SHARDSCOPE_TRY(needData(*checkpoint_, "reading values"));
    SliceRequest wanted;
    SHARDSCOPE_ASSIGN(wanted.tensor, findTensor(catalog(), request.text("name"), checkpoint_->path));
    const DimSpan shape = catalog().shape(wanted.tensor);
    const auto axes = static_cast<int64_t>(shape.size());
    // By default the last two.
    const auto axis = [&](const char* name, int64_t usual) -> Result<int> {
        if (request.text(name).empty()) return static_cast<int>(std::max<int64_t>(-1, usual));
        SHARDSCOPE_ASSIGN(const uint64_t chosen, request.number(name, 0, kMostAxes));
        return static_cast<int>(chosen);
    };
    SHARDSCOPE_ASSIGN(wanted.rowAxis, axis("down", axes - 2));
    SHARDSCOPE_ASSIGN(wanted.columnAxis, axis("across", axes - 1));
    const auto number = [&](const char* name, uint64_t usual, uint64_t most) -> Result<int64_t> {
        SHARDSCOPE_ASSIGN(const uint64_t given, request.number(name, usual, most));
        return static_cast<int64_t>(given);
    };
    SHARDSCOPE_ASSIGN(wanted.top, number("top", 0, kAny));
    SHARDSCOPE_ASSIGN(wanted.left, number("left", 0, kAny));
    SHARDSCOPE_ASSIGN(wanted.height, number("height", kAny, kAny));
    SHARDSCOPE_ASSIGN(wanted.width, number("width", kAny, kAny));
    SHARDSCOPE_ASSIGN(wanted.rows, number("rows", kMostSamples, kMostSamples));
    SHARDSCOPE_ASSIGN(wanted.columns, number("columns", kMostSamples, kMostSamples));
    for (int64_t d = 0; d < axes; ++d) {
        SHARDSCOPE_ASSIGN(const int64_t at, number(fmt::format("at{}", d).c_str(), 0, kAny));
        wanted.index.push_back(
            std::clamp<int64_t>(at, 0, std::max<int64_t>(0, shape[static_cast<size_t>(d)] - 1)));
    }
    const std::lock_guard lock(slicing_);
    Work work(access_, catalog().memoryBytes());
    SHARDSCOPE_TRY(work.start());
    SHARDSCOPE_ASSIGN(const SliceValues values, sliceValues(*checkpoint_->reader, wanted, work.resources()));
    return dump(sliceJson(catalog(), wanted, values));
}

// ------------------------------------------------------------------ files and objects

Result<PageCheckpoint::FactsPtr> PageCheckpoint::facts() const {
    const FactsPtr plain = computed_.get();
    if (!plain) return makeError(ErrorCode::cancelled, "canceled");
    std::lock_guard lock(mutex_);
    return found_ ? found_ : plain;
}

Json PageCheckpoint::fileRow(const Facts& facts, FileId id) const {
    const FileInfo& file = catalog().files()[id];
    Json json = fileJson(catalog(), id, used_[id]);
    json["tensors"] = facts.files[id].tensors;
    json["chunks"] = facts.files[id].chunks;
    json["health"] = healthName(fileHealth(file, &facts.files[id]));
    json["words"] = fileStateText(file, &facts.files[id]);
    return json;
}

Result<std::string> PageCheckpoint::files(const PageRequest& request) const {
    SHARDSCOPE_ASSIGN(const NamePattern pattern, NamePattern::parse(request.text("pattern", "*")));
    SHARDSCOPE_ASSIGN(const Paging page, pagingOf(request, kMostRows));
    SHARDSCOPE_ASSIGN(const FactsPtr known, facts());
    Json list = Json::array();
    uint64_t matches = 0, size = 0, used = 0, wrong = 0;
    for (FileId f = 0; f < catalog().files().size(); ++f) {
        const FileInfo& file = catalog().files()[f];
        const bool isWrong = fileHealth(file, &known->files[f]) > Health::unread || !file.referenced;
        size += file.size;
        used += used_[f];
        wrong += isWrong;
        if (!pattern.matches(file.path) || (request.flag("wrong") && !isWrong)) continue;
        if (page.holds(matches++)) list.push_back(fileRow(*known, f));
    }
    return dump({{"schema", "shardscope.ls/1"},
                 {"total", matches},
                 {"first", page.first},
                 {"all", catalog().files().size()},
                 {"size", size},
                 {"used", used},
                 {"wrong", wrong},
                 {"files", std::move(list)}});
}

Result<std::string> PageCheckpoint::file(const PageRequest& request) const {
    const std::string name = request.text("name");
    const auto& all = catalog().files();
    const auto found = std::ranges::find_if(all, [&](const FileInfo& f) { return f.path == name; });
    if (found == all.end()) return makeError(ErrorCode::notFound, "the checkpoint has no such file");
    const auto id = static_cast<FileId>(found - all.begin());
    SHARDSCOPE_ASSIGN(const Paging page, pagingOf(request, kMostChunks));
    SHARDSCOPE_ASSIGN(const FactsPtr known, facts());
    const std::span<const ChunkId> chunks = known->chunksOf(id);
    Json list = Json::array();
    for (uint64_t i = page.first; i < chunks.size() && page.holds(i); ++i) {
        const TensorId tensor = catalog().tensorOf(chunks[i]);
        Json one{{"tensor", catalog().name(tensor)},
                 {"dtype", dtypeName(catalog().dtype(tensor))},
                 {"health", healthName(known->chunkHealth[chunks[i]])}};
        one.update(chunkJson(catalog(), catalog().chunk(tensor, chunks[i])));
        one.erase("file");
        list.push_back(std::move(one));
    }
    Json objects = Json::array();
    uint64_t objectCount = 0;
    for (const ObjectInfo& object : catalog().objects()) {
        if (object.file == id && objectCount++ < kMostNames) objects.push_back(object.name);
    }
    return dump({{"schema", "shardscope.file/1"},
                 {"file", fileRow(*known, id)},
                 {"chunk_count", chunks.size()},
                 {"first_chunk", page.first},
                 {"chunks", std::move(list)},
                 {"object_count", objectCount},
                 {"objects", std::move(objects)}});
}

Result<std::string> PageCheckpoint::objects(const PageRequest& request) const {
    SHARDSCOPE_ASSIGN(const NamePattern pattern, NamePattern::parse(request.text("pattern", "*")));
    SHARDSCOPE_ASSIGN(const Paging page, pagingOf(request, kMostNames));
    Json list = Json::array();
    uint64_t matches = 0;
    for (ObjectId o = 0; o < catalog().objects().size(); ++o) {
        const ObjectInfo& object = catalog().objects()[o];
        if (!pattern.matches(object.name)) continue;
        if (!page.holds(matches++)) continue;
        // As the window: what is not in the metadata is read when it is asked for.
        Json one{{"id", o},
                 {"name", object.name},
                 {"rank", object.rank == kNone ? Json() : Json(object.rank)},
                 {"file", object.file == kNone ? Json() : Json(catalog().files()[object.file].path)},
                 {"kind", object.value ? Json(valueKindName(object.value)) : Json()},
                 {"text", object.value ? Json(valueRepr(object.value, kMostOfValue)) : Json()}};
        list.push_back(std::move(one));
    }
    return dump({{"schema", "shardscope.objects/1"},
                 {"total", matches},
                 {"first", page.first},
                 {"objects", std::move(list)}});
}

Result<std::string> PageCheckpoint::object(const PageRequest& request) const {
    SHARDSCOPE_ASSIGN(const uint64_t id, request.number("id", 0, kAny));
    if (id >= catalog().objects().size())
        return makeError(ErrorCode::notFound, "the checkpoint has no such object");
    Json json{{"schema", "shardscope.object/1"}};
    json.update(objectJson(*checkpoint_, static_cast<ObjectId>(id)));
    return dump(json);
}

Result<std::string> PageCheckpoint::diff(const Checkpoint& other, const DiffOptions& options) const {
    std::unique_lock lock(reading_, std::defer_lock);
    if (options.values && !lock.try_lock())
        return makeError(ErrorCode::exists, "values are being read already; ask again when they are there");
    SHARDSCOPE_ASSIGN(const DiffReport report, diffOpen(access_, *checkpoint_, other, options));
    return dump(diffJson(report));
}

}  // namespace shardscope::serve
