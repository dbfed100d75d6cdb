// Every checkpoint in tests/data/genuine, whatever its format: what is shown of it is what the framework
// that wrote it says (expected.json), where that differs as shown.json says; no truncation of its files
// passes in silence; and its index says the same as it does. tests/data/README.md has the fields.
#include "support/genuine.h"

#include <QtTest>
#include <map>
#include <set>

#include <fnmatch.h>

#include "cli/measured_process.h"
#include "engine/engine.h"
#include "formats/index/index.h"
#include "support/catalog_difference.h"
#include "support/read_checks.h"

using namespace shardscope;
using namespace shardscope::test;
using nlohmann::json;

namespace {

// The rule that stands for each kind of damage, where shown.json does not name another.
const std::map<std::string, std::string> kRules{{"copy-differs", "meta.duplicate"},
                                                {"checksum", "integrity.crc"},
                                                {"crc-mismatch", "integrity.crc"},
                                                {"duplicate-rank", "meta.inconsistent"},
                                                {"extra-tensor", "meta.inconsistent"},
                                                {"fused-layout", "layout.fused"},
                                                {"gap", "coverage.gap"},
                                                {"incomplete", "file.stale"},
                                                {"inf", "value.inf"},
                                                {"lock-file", "file.lock"},
                                                {"missing-file", "file.missing"},
                                                {"missing-tensor", "meta.inconsistent"},
                                                {"mixed-step", "meta.inconsistent"},
                                                {"mixed-world-sizes", "file.stale"},
                                                {"nan", "value.nan"},
                                                {"overlap", "coverage.overlap"},
                                                {"replica-mismatch", "replica.differs"},
                                                {"shape-mismatch", "meta.inconsistent"},
                                                {"shrunk", "coverage.shrunk"},
                                                {"stale-file", "file.stale"},
                                                {"swapped-files", "meta.inconsistent"},
                                                {"truncated", "file.truncated"},
                                                {"unsafe-path", "security.path"},
                                                {"zeroed-file", "value.zero"}};

// What a truncated file may be called by what opens it: nothing else is a reason not to open.
const std::set<ErrorCode> kOfTruncation{ErrorCode::damaged, ErrorCode::notFound, ErrorCode::unsupported};

Result<Checkpoint> opened(const GenuineCase& c, const std::string& path,
                          const std::shared_ptr<FileSystem>& files = nullptr) {
    CheckpointOptions options;
    options.open.variant = c.variant();
    options.fileSystem = files;
    return openCheckpoint(path, options);
}
Result<Checkpoint> opened(const GenuineCase& c) {
    return opened(c, c.openPath());
}

bool fitsAny(const json& globs, const std::string& name) {
    return std::ranges::any_of(globs, [&](const json& glob) {
        return fnmatch(glob.get<std::string>().c_str(), name.c_str(), 0) == 0;
    });
}

std::string textOf(const Finding& f) {
    std::string all = f.rule + " " + std::string(severityName(f.severity)) + ": " + f.message + " " + f.cause;
    for (const FindingExample& e : f.examples)
        all += "\n" + e.tensor + "\n" + e.file + "\n" + e.detail;
    return all;
}

Dims dimsOf(DimSpan dims) {
    return {dims.begin(), dims.end()};
}

// The member of an object that may be absent.
const json& partOf(const json& object, const char* name) {
    static const json nothing = json::object();
    const auto it = object.find(name);
    return it == object.end() ? nothing : *it;
}

// ------------------------------------------------------------------ chunks

// Elements of a tensor: a box, and a range of the box's row-major order; and the rank that has them.
struct Place {
    Dims offsets, lengths;
    std::optional<FlatRange> flat;
    int64_t rank = -1;
    auto where() const {
        return std::tuple(offsets, lengths, flat ? flat->start : -1, flat ? flat->stop : -1);
    }
    bool empty() const { return flat ? flat->start >= flat->stop : elementCount(lengths) == 0; }
    bool inside(const Place& other) const {
        for (size_t d = 0; d < lengths.size(); ++d) {
            if (offsets[d] < other.offsets[d] ||
                offsets[d] + lengths[d] > other.offsets[d] + other.lengths[d])
                return false;
        }
        return true;
    }
};
using Places = std::vector<Place>;

Places shownPlaces(const Catalog& catalog, TensorId t) {
    Places places;
    for (ChunkId id = catalog.firstChunk(t); id < catalog.endChunk(t); ++id) {
        const ChunkInfo chunk = catalog.chunk(t, id);
        Place place{dimsOf(chunk.offsets), dimsOf(chunk.lengths), chunk.flat, -1};
        if (chunk.rank != kNone) place.rank = chunk.rank;
        if (!place.empty()) places.push_back(std::move(place));
    }
    return places;
}

Places truePlaces(const json& chunks) {
    Places places;
    for (const json& chunk : chunks) {
        Place place;
        place.offsets = chunk.value("offsets", Dims());
        place.lengths = chunk.value("lengths", Dims());
        if (chunk.contains("flat_range")) place.flat = {chunk["flat_range"][0], chunk["flat_range"][1]};
        place.rank = chunk.value("rank", -1);
        if (!place.empty()) places.push_back(std::move(place));
    }
    return places;
}

// As above, for what devices hold: their order by number is that of the ranks.
std::map<int64_t, Place> shardsByRank(const json& chunks) {
    std::map<int, Place> byDevice;
    for (const json& chunk : chunks)
        byDevice[chunk["device"]] = {chunk["offsets"], chunk["lengths"], {}, -1};
    std::map<int64_t, Place> byRank;
    for (const auto& [device, place] : byDevice)
        byRank.emplace(static_cast<int64_t>(byRank.size()), place);
    return byRank;
}

auto whereOf(const Places& places, bool flat = true) {
    std::set<decltype(Place().where())> all;
    for (Place place : places) {
        if (!flat) place.flat.reset();
        all.insert(place.where());
    }
    return all;
}
auto heldBy(const Places& places) {
    std::set<std::pair<int64_t, decltype(Place().where())>> all;
    for (const Place& place : places)
        if (place.rank >= 0) all.emplace(place.rank, place.where());
    return all;
}
std::set<int64_t> ranksOf(const Places& places) {
    std::set<int64_t> all;
    for (const Place& place : places)
        if (place.rank >= 0) all.insert(place.rank);
    return all;
}

// "held": the pieces are those that ranks hold, each on a rank that holds it; replicas may be stored once.
// "each": those of every rank. "boxes": the boxes are those of ranks, whose slices may be shown. "shards": a
// rank shows parts of what its device holds. "none": not compared.
bool sameChunks(const std::string& how, const Places& found, const json& chunks) {
    if (how == "none") return true;
    if (how == "shards") {
        const auto shards = shardsByRank(chunks);
        const bool inside = std::ranges::all_of(found, [&](const Place& place) {
            return place.rank < 0 || (shards.contains(place.rank) && place.inside(shards.at(place.rank)));
        });
        return inside && ranksOf(found).size() == shards.size();
    }
    const Places wanted = truePlaces(chunks);
    const bool boxes = std::ranges::any_of(chunks, [](const json& c) { return c.contains("offsets"); });
    if (how == "boxes") return whereOf(found, false) == whereOf(wanted, false);
    if (how == "each") return boxes ? heldBy(found) == heldBy(wanted) : ranksOf(found) == ranksOf(wanted);
    if (!boxes) return std::ranges::includes(ranksOf(wanted), ranksOf(found));
    return whereOf(found) == whereOf(wanted) && std::ranges::includes(heldBy(wanted), heldBy(found));
}

// ------------------------------------------------------------------ objects

// Whether JSON has the value itself.
bool exactJson(const json& value) {
    if (value.is_object() && (value.contains("repr") || value.contains("tensor"))) return false;
    return !value.is_structured() || std::ranges::all_of(value, exactJson);
}

// Formats list a dict of objects as one entry or each of its leaves: what cannot be found as an entry is
// looked for in those.
void addLeaves(const std::string& name, const json& value, std::map<std::string, json>& leaves) {
    leaves.emplace(name, value);
    if (value.is_object() && value.contains("tuple")) {
        for (size_t i = 0; i < value["tuple"].size(); ++i)
            addLeaves(name + "." + std::to_string(i), value["tuple"][i], leaves);
    } else if (value.is_array()) {
        for (size_t i = 0; i < value.size(); ++i)
            addLeaves(name + "." + std::to_string(i), value[i], leaves);
    } else if (value.is_object()) {
        for (const auto& [key, item] : value.items())
            addLeaves(name.empty() ? key : name + "." + key, item, leaves);
    }
}

// ------------------------------------------------------------------ findings

struct Told {
    std::string rule;
    std::string severity;
    std::string says;
    json made;  // the entry of expected.json that it stands for
};

std::vector<Told> wantedFindings(const GenuineCase& c) {
    std::vector<Told> wanted;
    for (const json& one : c.shown.value("findings", json::array()))
        wanted.push_back(
            {one["rule"], one.value("severity", "error"), one.value("says", ""), json::object()});
    if (c.shown.contains("findings")) return wanted;
    if (!c.damaged() && c.expected["tensors"].empty() && !c.expected.contains("special"))
        wanted.push_back({"meta.empty", "warning", "", json::object()});
    for (const json& made : c.expected.value("findings", json::array())) {
        const std::string about = made.value("tensor", made.value("file", ""));
        wanted.push_back({kRules.at(made["kind"]), "error", about, made});
    }
    return wanted;
}

// Whether only who reads the values can tell.
bool ofValues(const std::string& rule) {
    return rule.starts_with("value.") || rule == "integrity.crc" || rule == "replica.differs";
}

Verdict verdictOf(const std::vector<Told>& wanted) {
    const auto has = [&](const char* severity) {
        return std::ranges::any_of(wanted, [&](const Told& told) { return told.severity == severity; });
    };
    return has("error") ? Verdict::unsafe : has("warning") ? Verdict::care : Verdict::safe;
}

const Finding* findingOf(const ValidationReport& report, const Told& told) {
    const auto it = std::ranges::find_if(report.findings, [&](const Finding& f) {
        return f.rule == told.rule && severityName(f.severity) == told.severity &&
               textOf(f).find(told.says) != std::string::npos;
    });
    return it == report.findings.end() ? nullptr : &*it;
}

// ------------------------------------------------------------------ copies

// The files of a case, and a file system that has them with one of them cut.
class CutCopy {
  public:
    explicit CutCopy(const GenuineCase& c) : case_(c), files_(Copy(c.path).files) {}

    Result<Checkpoint> open(const std::string& file = {}, size_t size = 0) const {
        const auto system = std::make_shared<MemoryFileSystem>();
        system->setRecording(false);
        for (const auto& [name, content] : files_) {
            const auto bytes = std::as_bytes(std::span(content)).first(name == file ? size : content.size());
            system->put("/d/" + name, {bytes.begin(), bytes.end()});
        }
        return opened(case_, "/d" + case_.openPath().substr(case_.path.size()), system);
    }
    // Those that the checkpoint consists of, by their names here.
    std::vector<std::string> filesOf(const Checkpoint& checkpoint) const {
        std::vector<std::string> names;
        std::string directory = checkpoint.path.substr(std::string("/d").size());
        if (files_.contains(directory.substr(std::min<size_t>(directory.size(), 1))))
            directory = directory.substr(0, directory.rfind('/'));
        for (const FileInfo& file : checkpoint.catalog().files()) {
            const std::string name = (directory + "/" + file.path).substr(1);
            if (file.referenced && files_.contains(name) && !files_.at(name).empty()) names.push_back(name);
        }
        return names;
    }
    size_t sizeOf(const std::string& file) const { return files_.at(file).size(); }

  private:
    const GenuineCase& case_;
    std::map<std::string, std::string> files_;
};

}  // namespace

class GenuineTest : public QObject {
    Q_OBJECT

  private slots:
    void reads_data() { rows(); }
    void reads() {
        const GenuineCase& c = row();
        const auto checkpoint = opened(c);
        if (c.shown.contains("refused")) {
            QVERIFY(!checkpoint.ok());
            checkRefusal(c.shown["refused"], checkpoint.error());
            return;
        }
        QVERIFY2(checkpoint.ok(), checkpoint.ok() ? "" : describe(checkpoint.error()).c_str());
        std::string format = c.expected["format"];
        std::ranges::replace(format, '_', '-');
        QCOMPARE(checkpoint->format->info().name, c.shown.value("format", format));
        const auto source = sourceFor(checkpoint->path);
        QVERIFY(source.ok());
        if (!c.shown.value("uncertain", false))
            QCOMPARE(checkpoint->format->probe(*source).match, Probe::Match::certain);
        checkRanks(c, checkpoint->catalog());
        checkTensors(c, *checkpoint->reader);
        if (!QTest::currentTestFailed()) checkSpecials(c, checkpoint->catalog());
        if (!QTest::currentTestFailed()) checkObjects(c, *checkpoint->reader);
        if (!QTest::currentTestFailed()) checkFindings(c, *checkpoint);
    }

    void formatsStandBeforeThoseTheyName() {
        const auto& formats = builtinFormats();
        for (size_t f = 0; f < formats.size(); ++f) {
            for (const auto& [over, why] : formats[f]->info().before) {
                const auto other = std::ranges::find(formats, findFormat(over));
                QVERIFY2(other != formats.end() && !why.empty(), over.c_str());
                QVERIFY2(other - formats.begin() > static_cast<std::ptrdiff_t>(f),
                         (formats[f]->info().name + " stands behind " + over).c_str());
            }
        }
    }

    // Of two formats that are certain of a directory one says that it comes before the other, and why.
    void formatsOfOneDirectoryAreInOrder_data() { rows(); }
    void formatsOfOneDirectoryAreInOrder() {
        const auto source = sourceFor(row().openPath());
        if (!source.ok()) return;
        std::vector<const FormatInfo*> certain;
        for (const Format* format : builtinFormats()) {
            if (!format->info().reads || format->probe(*source).match != Probe::Match::certain) continue;
            for (const FormatInfo* first : certain)
                QVERIFY2(std::ranges::count(first->before, format->info().name,
                                            &FormatInfo::Precedence::over) == 1,
                         (first->name + " and " + format->info().name).c_str());
            certain.push_back(&format->info());
        }
    }

    // Half of it or nothing: an error, or something is said that was not said of the whole.
    void truncationsAreTold_data() { rows(); }
    void truncationsAreTold() {
        const GenuineCase& c = row();
        if (c.damaged()) return;
        const CutCopy copy(c);
        const auto whole = copy.open();
        QVERIFY2(whole.ok(), whole.ok() ? "" : describe(whole.error()).c_str());
        const std::string before = said(*whole);
        std::string silent;
        for (const std::string& file : copy.filesOf(*whole)) {
            if (fitsAny(partOf(c.shown, "untold"), file)) continue;
            std::vector<size_t> sizes{copy.sizeOf(file) / 2};
            if (!kSanitized) sizes.push_back(0);  // runs nothing that the other does not
            for (const size_t size : sizes) {
                const std::string what = "\n" + file + " of " + std::to_string(size) + " bytes: ";
                const auto cut = copy.open(file, size);
                if (cut.ok() && said(*cut) == before) silent += what;
                if (!cut.ok())
                    QVERIFY2(kOfTruncation.contains(cut.error().code) && !cut.error().message.empty(),
                             (what + describe(cut.error())).c_str());
            }
        }
        QVERIFY2(silent.empty(), silent.c_str());
    }

    void comesBackFromAnIndex_data() { rows(); }
    void comesBackFromAnIndex() {
        const auto checkpoint = opened(row());
        if (!checkpoint.ok()) return;  // reads() says whether it may be so
        const Reader& reader = *checkpoint->reader;
        const auto bytes = encodeIndex(reader, {"host", "/path", 0});
        QVERIFY2(bytes.ok(), bytes.ok() ? "" : describe(bytes.error()).c_str());
        const auto files = std::make_shared<MemoryFileSystem>();
        const auto raw = std::as_bytes(std::span(*bytes));
        files->put("/x/a.ssidx", {raw.begin(), raw.end()});
        const auto source = sourceFor("/x/a.ssidx", IoMode::automatic, files);
        QVERIFY(source.ok());
        const auto back = indexFormat().open(*source, {});
        QVERIFY2(back.ok(), back.ok() ? "" : describe(back.error()).c_str());
        QCOMPARE(difference(reader.catalog(), (*back)->catalog()), std::string());
        for (ObjectId o = 0; o < reader.catalog().objects().size(); ++o) {
            const ObjectInfo& object = reader.catalog().objects()[o];
            const auto here = object.value ? Result<Value>(object.value) : reader.objectValue(o);
            const auto there = (*back)->objectValue(o);
            QCOMPARE(there.ok(), here.ok());
            if (here.ok()) QCOMPARE(valueRepr(*there, 10'000), valueRepr(*here, 10'000));
        }
        refusesIdsThatDoNotExist(reader);
        refusesIdsThatDoNotExist(**back);
    }

  private:
    static void rows() {
        QTest::addColumn<int>("index");
        for (size_t i = 0; i < allGenuineCases().size(); ++i)
            QTest::newRow(allGenuineCases()[i].id().c_str()) << static_cast<int>(i);
    }
    static const GenuineCase& row() {
        QFETCH(int, index);
        return allGenuineCases()[static_cast<size_t>(index)];
    }

    static void checkRefusal(const json& refused, const Error& error) {
        QCOMPARE(std::string(errorCodeName(error.code)), refused.value("code", "damaged"));
        QCOMPARE(error.location.rule, refused.value("rule", ""));
        QVERIFY2(error.location.file.ends_with(refused["file"].get<std::string>()), describe(error).c_str());
        QVERIFY2(error.message.find(refused.value("says", "")) != std::string::npos, describe(error).c_str());
        if (refused.value("offset", false)) QVERIFY(error.location.offset.has_value());
    }

    // The mesh that the files declare, and how many ranks there are.
    static void checkRanks(const GenuineCase& c, const Catalog& catalog) {
        std::map<std::string, uint32_t> wanted, found;
        uint32_t devices = 1;
        if (const json mesh = c.expected.value("mesh", json()); mesh.is_object()) {
            for (size_t d = 0; d < mesh["dims"].size(); ++d) {
                const uint32_t size = mesh["shape"][d];
                devices *= size;
                if (size > 1) wanted[mesh["dims"][d]] = size;
            }
        }
        QCOMPARE(catalog.mesh().has_value(), c.shown.value("mesh_declared", false));
        if (catalog.mesh()) {
            for (const MeshAxis& axis : catalog.mesh()->axes)
                if (axis.size > 1) found[axis.name] = axis.size;
            if (c.shown.contains("mesh"))
                QCOMPARE(formatMesh(*catalog.mesh()), c.shown["mesh"].get<std::string>());
            else
                QVERIFY2(found == wanted, formatMesh(*catalog.mesh()).c_str());
        }
        const uint32_t ranks = c.shown.value("ranks", c.expected["world_size"].get<uint32_t>());
        QVERIFY2(
            catalog.rankCount() == ranks || (!c.shown.contains("ranks") && catalog.rankCount() == devices),
            std::to_string(catalog.rankCount()).c_str());
    }

    static void checkTensors(const GenuineCase& c, const Reader& reader) {
        const Catalog& catalog = reader.catalog();
        const json absent = c.shown.value("absent", json::array()),
                   more = c.shown.value("more", json::array());
        const bool readable = c.shown.value("readable", !c.damaged());
        const auto bytes = readable ? digests(reader) : std::map<std::string, std::string>();
        for (const auto& [name, want] : c.expected["tensors"].items()) {
            const TensorId t = catalog.find(name);
            QVERIFY2((t == kNone) == fitsAny(absent, name), name.c_str());
            if (t == kNone) continue;
            checkTensor(c, catalog, t, want);
            if (readable) QVERIFY2(bytes.at(name) == want["sha256"], name.c_str());
            if (readable && want.contains("chunks"))
                QVERIFY2(sameChunks(c.shown.value("chunks", "held"), shownPlaces(catalog, t), want["chunks"]),
                         name.c_str());
        }
        for (const auto& [name, special] : partOf(c.expected, "special").items()) {
            for (const auto& [part, want] : partOf(special, "parts").items()) {
                const TensorId t = catalog.find(name + "#" + part);
                QVERIFY2(t != kNone, (name + "#" + part).c_str());
                checkTensor(c, catalog, t, want);
                QVERIFY2(bytes.at(name + "#" + part) == want["sha256"], (name + "#" + part).c_str());
            }
        }
        for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
            const std::string name(catalog.name(t));
            QVERIFY2(
                c.expected["tensors"].contains(name) || catalog.special(t) != kNone || fitsAny(more, name),
                ("not expected: " + name).c_str());
        }
    }

    static void checkTensor(const GenuineCase& c, const Catalog& catalog, TensorId t, const json& want) {
        const std::string name(catalog.name(t)), dtype = want["dtype"];
        QCOMPARE(std::string(dtypeName(catalog.dtype(t))),
                 c.shown.value("dtypes", json::object()).value(dtype, dtype));
        QCOMPARE(dimsOf(catalog.shape(t)),
                 c.shown.value("shapes", json::object()).value(name, want["shape"].get<Dims>()));
        if (want.value("buffer", false)) QVERIFY2(catalog.role(t) == Role::buffer, name.c_str());
    }

    // Tensors that are no dense arrays, and names of one tensor of which only one is stored.
    static void checkSpecials(const GenuineCase& c, const Catalog& catalog) {
        const json& specials = partOf(c.expected, "special");
        QCOMPARE(catalog.specials().size(), specials.size());
        for (const SpecialTensor& found : catalog.specials()) {
            QVERIFY2(specials.contains(found.name), found.name.c_str());
            json shown = found.detail.empty() ? json::object() : json::parse(found.detail);
            shown.update({{"kind", found.kind}, {"dtype", found.dtype}, {"shape", found.shape}});
            for (const auto& [key, want] : specials[found.name].items())
                if (key != "parts" && key != "shapes")
                    QVERIFY2(shown.value(key, json()) == want, (found.name + " " + key).c_str());
        }
        for (const auto& [alias, kept] : partOf(c.expected, "tied").items()) {
            QVERIFY(std::ranges::any_of(catalog.notes(), [&, other = alias, &name = kept](const Note& note) {
                return note.rule == "meta.alias" && note.tensor == name.get<std::string>() &&
                       note.message.find(other) != std::string::npos;
            }));
        }
    }

    static void checkObjects(const GenuineCase& c, const Reader& reader) {
        const auto& objects = reader.catalog().objects();
        const json absent = c.shown.value("absent", json::array());
        const json more = c.shown.value("more_objects", json::array());
        const bool printed = c.shown.value("printed", false);
        std::map<std::string, json> found, leaves;
        for (ObjectId o = 0; o < objects.size(); ++o) {
            const auto value = reader.objectValue(o);
            QVERIFY2(value.ok() || c.damaged(), value.ok() ? "" : describe(value.error()).c_str());
            if (!value.ok()) continue;
            found[objects[o].name] = json::parse(valueToJson(*value));
            addLeaves(objects[o].name, found[objects[o].name], leaves);
        }
        for (const auto& [name, want] : c.expected["objects"].items()) {
            const auto it = leaves.find(name);
            const bool gone = it == leaves.end() || (it->second.is_null() && !want.is_null());
            QVERIFY2(gone == fitsAny(absent, name), ("object: " + name).c_str());
            if (gone) continue;
            if (exactJson(want) && !(printed && want.is_string()))
                QVERIFY2(it->second == want,
                         (name + ": " + it->second.dump() + " is not " + want.dump()).c_str());
            else if (name.empty())
                QCOMPARE(it->second.dump(), want.dump());
            else if (want.is_object() && want.contains("repr"))
                QVERIFY2(it->second.is_object() && it->second.contains("repr"), it->second.dump().c_str());
        }
        for (const auto& [name, value] : found) {
            const auto inside = c.expected["objects"].items();
            const bool known = std::ranges::any_of(inside, [&, whole = name](const auto& want) {
                return want.key() == whole || want.key().starts_with(whole + ".");
            });
            QVERIFY2(known || fitsAny(more, name), ("object not expected: " + name).c_str());
        }
    }

    static void checkFindings(const GenuineCase& c, const Checkpoint& checkpoint) {
        const std::vector<Told> wanted = wantedFindings(c);
        for (const ValidateLevel level :
             {ValidateLevel::metadata, ValidateLevel::files, ValidateLevel::values}) {
            const ValidationReport report = reportOf(checkpoint, level);
            for (const Told& told : wanted) {
                if (level == ValidateLevel::values || (level == ValidateLevel::files && !ofValues(told.rule)))
                    checkFinding(told, report);
            }
            // Nothing but that.
            for (const Finding& f : report.findings) {
                const bool told = std::ranges::find(wanted, f.rule, &Told::rule) != wanted.end();
                QVERIFY2(told || f.severity < (c.damaged() ? Severity::error : Severity::warning),
                         text(report).c_str());
            }
            if (level == ValidateLevel::values)
                QVERIFY2(report.verdict == verdictOf(wanted), text(report).c_str());
        }
    }

    static void checkFinding(const Told& told, const ValidationReport& report) {
        const Finding* found = findingOf(report, told);
        QVERIFY2(found, ("not found: " + told.rule + " of " + told.says + text(report)).c_str());
        for (const char* about : {"tensor", "file"})
            QVERIFY2(textOf(*found).find(told.made.value(about, "")) != std::string::npos,
                     text(report).c_str());
        if (told.made.contains("affects")) QCOMPARE(found->count, told.made["affects"].size());
        for (const json& hurt : partOf(told.made, "affects"))
            QVERIFY2(textOf(*found).find(hurt["name"].get<std::string>()) != std::string::npos,
                     text(report).c_str());
        if (!told.made.contains("region")) return;
        const Box region{told.made["region"]["offsets"], told.made["region"]["lengths"]};
        QVERIFY2(
            std::ranges::any_of(found->examples, [&](const FindingExample& e) { return e.box == region; }),
            text(report).c_str());
    }

    static ValidationReport reportOf(const Checkpoint& checkpoint, ValidateLevel level) {
        ValidateOptions options;
        options.level = level;
        auto report = validateCheckpoint(checkpoint, options, machine().resources);
        if (!report.ok()) qFatal("%s", describe(report.error()).c_str());
        return std::move(report).value();
    }
    static std::string said(const Checkpoint& checkpoint) {
        std::string all = text(reportOf(checkpoint, ValidateLevel::values));
        for (const Note& note : checkpoint.allNotes())
            all += "\n" + note.rule + note.message + note.file;
        return all;
    }

    static void refusesIdsThatDoNotExist(const Reader& reader) {
        const Catalog& catalog = reader.catalog();
        for (const uint32_t past : {uint32_t{0}, uint32_t{1}, uint32_t{1000}, kNone}) {
            const auto id = [&](size_t count) {
                return past == kNone ? kNone : static_cast<uint32_t>(count) + past;
            };
            QCOMPARE(reader.openFile(id(catalog.files().size())).error().code, ErrorCode::internal);
            QCOMPARE(reader.locate(id(catalog.chunkCount())).error().code, ErrorCode::internal);
            QCOMPARE(reader.objectValue(id(catalog.objects().size())).error().code, ErrorCode::internal);
        }
        for (FileId file = 0; file < catalog.files().size(); ++file) {
            if (catalog.files()[file].state == FileInfo::State::missing) QVERIFY(!reader.openFile(file).ok());
        }
    }
};

QTEST_GUILESS_MAIN(GenuineTest)
#include "genuine_test.moc"
