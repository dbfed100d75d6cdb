// Every family of sources to every target, with real checkpoints: what arrives has the digests of
// expected.json, and what does not arrive is said to be left out. The table in docs/formats/matrix.md is what
// came of it; with SHARDSCOPE_WRITE_MATRIX=1 in the environment the test writes it.
#include <QCryptographicHash>
#include <QTemporaryDir>
#include <QtTest>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <tuple>

#include <nlohmann/json.hpp>

#include "engine/engine.h"
#include "support/genuine.h"

using namespace shardscope;
using namespace shardscope::test;

namespace {

struct Sample {
    GenuineCase source;
    std::string format;    // as the reader calls it
    std::string parallel;  // how its tensors are spread
    bool optimizer = false;
    size_t tensors = 0;
    auto row() const { return std::tuple(format, parallel, optimizer); }
};
using Row = std::tuple<std::string, std::string, bool>;

// Tensors in one piece on several ranks, in boxes, in flat ranges.
std::string parallelOf(const Catalog& catalog) {
    bool boxes = false, flat = false;
    std::set<uint32_t> ranks;
    std::set<std::vector<uint32_t>> owners;
    for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
        std::set<Dims> places;
        std::vector<uint32_t> own;
        for (ChunkId c = catalog.firstChunk(t); c < catalog.endChunk(t); ++c) {
            const ChunkInfo chunk = catalog.chunk(t, c);
            if (chunk.rank != kNone) ranks.insert(chunk.rank);
            if (chunk.rank != kNone) own.push_back(chunk.rank);
            flat = flat || chunk.flat.has_value();
            places.insert(Dims(chunk.offsets.begin(), chunk.offsets.end()));
        }
        boxes = boxes || places.size() > 1;
        std::sort(own.begin(), own.end());
        own.erase(std::unique(own.begin(), own.end()), own.end());
        owners.insert(own);
    }
    // Stages: no rank of one tensor has anything of another.
    bool stages = false;
    for (const auto& a : owners) {
        for (const auto& b : owners) {
            std::vector<uint32_t> common;
            std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(common));
            stages = stages || (!a.empty() && !b.empty() && common.empty());
        }
    }
    if (flat) return "flat shards";
    if (boxes && stages) return "cut (TP) and stages (PP)";
    if (boxes) return "cut (TP, FSDP)";
    return stages ? "stages (PP)" : "whole";
}

bool looksLikeState(std::string_view name) {
    for (const char* end : {".exp_avg", ".exp_avg_sq", ".moment1", ".moment2", "_moment1_0", "_moment2_0"}) {
        if (name.ends_with(end)) return true;
    }
    return false;
}

// For each row of the table some cases that stand for it: those with the most tensors.
std::map<Row, std::vector<Sample>> samples() {
    std::map<Row, std::vector<Sample>> rows;
    std::set<std::string> families;
    for (const auto& entry : std::filesystem::directory_iterator(SHARDSCOPE_TEST_DATA "/genuine"))
        if (entry.is_directory()) families.insert(entry.path().filename());
    for (const std::string& family : families) {
        for (const GenuineCase& one : genuineCases(family)) {
            if (one.damaged()) continue;
            const auto checkpoint = openCheckpoint(one.openPath());
            if (!checkpoint.ok()) continue;  // a directory of several checkpoints, each a case of other tests
            const Catalog& catalog = checkpoint->catalog();
            Sample sample{one, checkpoint->format->info().name, parallelOf(catalog), false,
                          catalog.tensorCount()};
            for (TensorId t = 0; t < catalog.tensorCount(); ++t)
                sample.optimizer =
                    sample.optimizer || catalog.role(t) == Role::optimizer || looksLikeState(catalog.name(t));
            // Thousands of tensors say nothing more here.
            if (sample.tensors > 0 && sample.tensors < 500) rows[sample.row()].push_back(std::move(sample));
        }
    }
    for (auto& [row, list] : rows) {
        std::stable_sort(list.begin(), list.end(),
                         [](const Sample& a, const Sample& b) { return a.tensors > b.tensors; });
        if (list.size() > 2) list.resize(2);
    }
    return rows;
}

std::string sha256(const Reader& reader, TensorId t) {
    ThreadPool pool(1);
    MemoryBudget memory(uint64_t{64} << 20);
    Resources resources;
    resources.pool = &pool;
    resources.memory = &memory;
    const DimSpan shape = reader.catalog().shape(t);
    const auto bytes = readRegion(reader, t, {Dims(shape.size(), 0), Dims(shape.begin(), shape.end())},
                                  uint64_t{64} << 20, resources);
    if (!bytes.ok()) return describe(bytes.error());
    return QCryptographicHash::hash(QByteArray(reinterpret_cast<const char*>(bytes->data()),
                                               static_cast<qsizetype>(bytes->size())),
                                    QCryptographicHash::Sha256)
        .toHex()
        .toStdString();
}

// A reason without the names and dtypes of one checkpoint.
std::string general(std::string why, const Catalog& source) {
    for (TensorId t = 0; t < source.tensorCount(); ++t) {
        const std::string dtype(dtypeName(source.dtype(t)));
        if (why.ends_with(" " + dtype) || why.find(" " + dtype + " ") != std::string::npos)
            why.replace(why.find(" " + dtype), dtype.size() + 1, " …");
    }
    for (size_t at = 0; (at = why.find('\'', at)) != std::string::npos;) {
        const size_t end = why.find('\'', at + 1);
        if (end == std::string::npos) break;
        why.replace(at, end - at + 1, "…");
        at += 1;
    }
    return why;
}

struct Cell {
    bool whole = false, cut = false;
    size_t objects = 0;             // that arrived with the values they had
    std::set<std::string> without;  // reasons
    std::set<std::string> never;
};

class Table {
  public:
    std::map<Row, std::map<std::string, Cell>> cells;

    std::string text(const std::vector<const Format*>& targets) {
        std::string out =
            "# What goes where\n\n"
            "Made by `matrix_test` from checkpoints that the frameworks wrote: each was converted, opened "
            "again and its\n"
            "tensors compared with the digests taken by the framework. `whole`: every tensor in one piece. "
            "`mesh`: cut\n"
            "along its first dimension over two ranks, and over two stages. `objects`: so do the entries "
            "that are not "
            "tensors\n"
            "(steps, schedules, groups), with the values that they had. Numbers stand for what stays out or "
            "why it\n"
            "cannot be done, below the table. Each row stands for the two cases of its kind with the most "
            "tensors; formats\n"
            "are written in their usual variant (ColossalAI's gathered ones hold optimizer state too). How "
            "names change\n"
            "is told in [mapping.md](mapping.md).\n\n"
            "| source | spread | holds |";
        for (const Format* target : targets)
            out += " " + target->info().name + " |";
        out += "\n|---|---|---|";
        for (size_t i = 0; i < targets.size(); ++i)
            out += "---|";
        out += "\n";
        for (auto& [row, line] : cells) {
            const auto& [format, parallel, optimizer] = row;
            out += "| " + format + " | " + parallel + " | " + (optimizer ? "weights, optimizer" : "weights") +
                   " |";
            for (const Format* target : targets)
                out += " " + cellText(line[target->info().name]) + " |";
            out += "\n";
        }
        if (!notes_.empty()) out += "\n";
        for (size_t i = 0; i < notes_.size(); ++i)
            out += std::to_string(i + 1) + ". " + notes_[i] + "\n";
        return out;
    }

  private:
    std::string note(const std::string& why) {
        size_t i = 0;
        while (i < notes_.size() && notes_[i] != why)
            ++i;
        if (i == notes_.size()) notes_.push_back(why);
        return std::to_string(i + 1);
    }
    std::string cellText(const Cell& cell) {
        std::string out = cell.whole && cell.cut ? "whole, mesh"
                          : cell.whole           ? "whole"
                          : cell.cut             ? "mesh"
                                                 : "no";
        if (cell.objects > 0) out += ", objects";
        std::set<std::string> reasons = cell.without;
        if (!cell.whole && !cell.cut) reasons.insert(cell.never.begin(), cell.never.end());
        std::string numbers;
        for (const std::string& why : reasons)
            numbers += (numbers.empty() ? "" : ", ") + note(why);
        return numbers.empty() ? out : out + " (" + numbers + ")";
    }
    std::vector<std::string> notes_;
};

}  // namespace

class MatrixTest : public QObject {
    Q_OBJECT

    Table table_;
    std::vector<const Format*> targets_;

    // One conversion, held against expected.json; false when it cannot be done.
    bool convert(const Sample& sample, const Format* target, bool mesh, Cell& cell) {
        QTemporaryDir dir;
        const std::string to = dir.filePath("out").toStdString();
        const std::string what =
            sample.source.family + "/" + sample.source.name + " to " + target->info().name;
        const auto source = openCheckpoint(sample.source.openPath());
        ConversionRequest settings;
        settings.threads = 1;
        settings.verify = Verify::none;
        settings.format = target->info().name;
        if (mesh) {
            settings.mesh = "pp=2,tp=2";
            settings.shard.emplace_back("*:tp=0");
            settings.stage.emplace_back("*0*:pp=1");
        }
        const auto prepared = prepareConversion(*source, to, settings);
        if (!prepared.ok()) {
            cell.never.insert(general(prepared.error().message, source->catalog()));
            return false;
        }
        std::set<std::string> left;
        for (const PlanLeftOut& entry : prepared->plan.leftOut) {
            left.insert(entry.name);
            cell.without.insert(general(entry.why, source->catalog()));
        }
        if (!prepared->plan.runnable()) {
            for (const PlanLeftOut& entry : prepared->plan.impossible)
                cell.never.insert(general(entry.why, source->catalog()));
            return false;
        }
        if (prepared->plan.tensors == 0) return false;  // all that it has is left out, with reasons
        const auto report = runPrepared(*prepared, settings, nullptr);
        if (!report.ok()) {
            QTest::qFail((what + ": " + describe(report.error())).c_str(), __FILE__, __LINE__);
            return false;
        }
        const auto written = openCheckpoint(to);
        if (!written.ok()) {
            QTest::qFail((what + ": " + describe(written.error())).c_str(), __FILE__, __LINE__);
            return false;
        }
        const Catalog& before = source->catalog();
        const Catalog& after = written->catalog();
        for (TensorId t = 0; t < before.tensorCount(); ++t) {
            const std::string name(before.name(t));
            if (left.contains(name) || before.special(t) != kNone) continue;
            std::string there = name;
            for (const PlanLeftOut& entry : prepared->plan.renamed)
                if (entry.name == name) there = entry.why;
            const TensorId found = after.find(there);
            if (found == kNone) {
                // One name of a tied tensor, which the target keeps in another way, and says so.
                const bool said = before.aliasOf(t) != kNone ||
                                  std::any_of(prepared->plan.changed.begin(), prepared->plan.changed.end(),
                                              [&](const PlanLeftOut& entry) { return entry.name == name; });
                if (!said) QTest::qFail((what + ": " + name + " is lost").c_str(), __FILE__, __LINE__);
                continue;
            }
            const auto& expected = sample.source.expected["tensors"];
            const std::string want = expected.contains(name) && expected[name].contains("sha256")
                                         ? expected[name]["sha256"].get<std::string>()
                                         : sha256(*source->reader, t);
            if (sha256(*written->reader, found) != want)
                QTest::qFail((what + ": " + name + " differs").c_str(), __FILE__, __LINE__);
        }
        compareObjects(what, *source->reader, *written->reader, prepared->plan, left, cell);
        return true;
    }

    // Formats list a dict of objects as one entry or each of its leaves: compared are the leaves.
    static void addLeaves(const std::string& name, const nlohmann::json& value,
                          std::multimap<std::string, std::string>& leaves) {
        const bool plain = value.is_array() || (value.is_object() && !value.contains("tuple") &&
                                                !value.contains("repr") && !value.contains("dict_items"));
        if (!plain || value.empty()) {
            leaves.emplace(name, value.dump());
        } else if (value.is_array()) {
            for (size_t i = 0; i < value.size(); ++i)
                addLeaves(name + "." + std::to_string(i), value[i], leaves);
        } else {
            for (const auto& [key, item] : value.items())
                addLeaves(name + "." + key, item, leaves);
        }
    }

    // Steps, learning-rate schedules, groups, ...: there with the value that they had, or said to be left
    // out.
    static void compareObjects(const std::string& what, const Reader& source, const Reader& written,
                               const Plan& plan, const std::set<std::string>& left, Cell& cell) {
        const auto leavesOf = [](const Reader& reader, ObjectId o, const std::string& name,
                                 std::multimap<std::string, std::string>& leaves) {
            const auto value = reader.objectValue(o);
            if (value.ok())
                addLeaves(name, nlohmann::json::parse(valueToJson(*value)), leaves);
            else
                leaves.emplace(name, describe(value.error()));
        };
        std::multimap<std::string, std::string> there;
        for (ObjectId o = 0; o < written.catalog().objects().size(); ++o)
            leavesOf(written, o, written.catalog().objects()[o].name, there);
        for (ObjectId o = 0; o < source.catalog().objects().size(); ++o) {
            const std::string& name = source.catalog().objects()[o].name;
            if (left.contains(name)) continue;
            std::string target = name;
            for (const PlanLeftOut& entry : plan.renamed)
                if (entry.name == name) target = entry.why;
            // Changed, with what holds it: the plan says so.
            const auto said = [&](const PlanLeftOut& entry) {
                return entry.name == name || target == entry.name || target.starts_with(entry.name + ".");
            };
            if (std::ranges::any_of(plan.changed, said)) continue;
            std::multimap<std::string, std::string> leaves;
            leavesOf(source, o, target, leaves);
            for (const auto& [leaf, value] : leaves) {
                auto [first, last] = there.equal_range(leaf);
                // DeepSpeed gives what is not its own back to its client.
                if (first == last && written.catalog().format() == "deepspeed")
                    std::tie(first, last) = there.equal_range("client_state." + leaf);
                if (std::any_of(first, last, [&](const auto& entry) { return entry.second == value; }))
                    continue;
                const std::string found = first == last ? "nothing" : first->second;
                QTest::qFail(
                    (what + ": " + leaf + " was " + value.substr(0, 300) + ", is " + found.substr(0, 300))
                        .c_str(),
                    __FILE__, __LINE__);
            }
            ++cell.objects;
        }
    }

  private slots:
    void initTestCase() {
        for (const Format* format : builtinFormats())
            if (format->info().writes && !writesModelsAlone(format->info())) targets_.push_back(format);
        std::sort(targets_.begin(), targets_.end(),
                  [](const Format* a, const Format* b) { return a->info().name < b->info().name; });
    }

    void everyCell() {
        const auto rows = samples();
        QVERIFY(rows.size() >= 8);
        for (const auto& [row, list] : rows) {
            for (const Format* target : targets_) {
                Cell& cell = table_.cells[row][target->info().name];
                bool whole = true, cut = target->info().shards && !target->info().wholeByDefault;
                for (const Sample& sample : list) {
                    whole = convert(sample, target, false, cell) && whole;
                    if (cut) cut = convert(sample, target, true, cell) && cut;
                }
                cell.whole = whole;
                cell.cut = cut;
            }
        }
        for (const auto& [row, line] : table_.cells) {
            for (const auto& [target, cell] : line)
                QVERIFY2(cell.whole || !cell.never.empty() || !cell.without.empty(),
                         "what cannot be held is said");
        }
    }

    void theTableIsUpToDate() {
        const std::string text = table_.text(targets_);
        if (qEnvironmentVariableIntValue("SHARDSCOPE_WRITE_MATRIX") == 1)
            std::ofstream(SHARDSCOPE_MATRIX) << text;
        std::ifstream in(SHARDSCOPE_MATRIX);
        const std::string there{std::istreambuf_iterator<char>(in), {}};
        QVERIFY2(
            there == text,
            "docs/formats/matrix.md is not what the conversions show; SHARDSCOPE_WRITE_MATRIX=1 writes it");
    }
};

QTEST_GUILESS_MAIN(MatrixTest)
#include "matrix_test.moc"
