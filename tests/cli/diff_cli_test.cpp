// What `diff` compares, in which order it says what differs, and what it leaves out.
#include <QFile>
#include <QTemporaryDir>
#include <QTest>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "cli/genuine_checks.h"

using namespace shardscope;
using namespace shardscope::test;
using nlohmann::json;

class DiffCliTest : public QObject {
    Q_OBJECT

    QTemporaryDir place_;
    QString run_;    // with optimizer state
    QString model_;  // its weights, as one file
    QString at(const QString& name) const { return place_.filePath(name); }
    static Outcome diff(const QString& a, const QString& b, const QStringList& more = {}) {
        return runShardscope(QStringList{"diff", a, b} + more);
    }
    static bool says(const Outcome& outcome, const char* text) {
        return outcome.out.find(text) != std::string::npos;
    }
    static json header(QFile& file, qint64& data) {
        quint64 length = 0;
        file.seek(0);
        const QByteArray size = file.read(8);
        std::memcpy(&length, size.constData(), 8);
        data = 8 + static_cast<qint64>(length);
        return json::parse(file.read(static_cast<qint64>(length)).toStdString());
    }
    // A copy of the model in which the first element of the tensors, in the order of their names, is
    // multiplied by these.
    QString changed(const QString& name, const std::vector<float>& factors,
                    std::vector<std::string>* names) const {
        const QString path = at(name);
        if (!QFile::copy(model_, path)) return {};
        QFile file(path);
        if (!file.setPermissions(QFile::ReadOwner | QFile::WriteOwner) || !file.open(QFile::ReadWrite))
            return {};
        qint64 data = 0;
        const json tensors = header(file, data);
        size_t next = 0;
        for (const auto& [tensor, info] : tensors.items()) {
            if (tensor == "__metadata__" || info["dtype"] != "F32" || next == factors.size()) continue;
            const qint64 where = data + info["data_offsets"][0].get<qint64>();
            float value = 0;
            file.seek(where);
            std::memcpy(&value, file.read(4).constData(), 4);
            value = value == 0 ? factors[next] : value * factors[next];
            file.seek(where);
            file.write(reinterpret_cast<const char*>(&value), 4);
            names->push_back(tensor);
            ++next;
        }
        return next == factors.size() ? path : QString();
    }

  private slots:
    void initTestCase() {
        run_ = QString::fromStdString(genuineCase("dcp", "t2.15.0-fsdp2-adam").openPath());
        model_ = at("model.safetensors");
        const Outcome made =
            runShardscope({"convert", run_, model_, "--to", "safetensors", "--weights-only"});
        QVERIFY2(made.exitCode == 0, made.err.c_str());
    }

    void weightsOnlyProvesAConversionOfWeights() {
        const Outcome all = diff(run_, model_, {"--values"});
        QCOMPARE(all.exitCode, 1);
        QVERIFY(says(all, "only in A:") && !says(all, "left out:"));
        const Outcome weights = diff(run_, model_, {"--weights-only", "--values"});
        QVERIFY2(weights.exitCode == 0, (weights.out + weights.err).c_str());
        QVERIFY2(says(weights, "left out: ") && says(weights, " of A and 0 of B: optimizer state ("),
                 weights.out.c_str());
        QVERIFY(says(weights, "equal: same names, shapes, dtypes and values"));
        const json said = diff(run_, model_, {"--weights-only", "--values", "--json"}).json();
        QVERIFY(said["equal"] == true && said["left_out_b"].empty());
        QVERIFY(said["left_out_a"].size() > 0 && said["left_out_a"][0]["why"] == "optimizer state");
        QVERIFY(said["compared"] == said["summary"]["equal"] && said["summary"]["different"] == 0);
        QVERIFY(said["summary"]["l2"] == 0.0 && said["summary"]["rel_l2"] == 0.0);
        // State of both sides is left out of both.
        const json both = diff(run_, run_, {"--weights-only", "--json"}).json();
        QCOMPARE(both["left_out_a"].size(), both["left_out_b"].size());
        COMPARE_JSON(both["compared"], said["compared"]);
    }

    void patternsChooseOnBothSides() {
        const json all = diff(model_, model_, {"--json"}).json();
        const json listed = runShardscope({"ls", model_, "--json"}).json()["tensors"];
        const QString name = QString::fromStdString(listed[0]["name"].get<std::string>());
        const json one = diff(model_, model_, {"--select", name, "--values", "--json"}).json();
        QVERIFY(one["equal"] == true && one["compared"] == 1);
        QCOMPARE(one["left_out_a"].size() + 1, listed.size());
        QCOMPARE(one["left_out_b"].size() + 1, listed.size());
        const json others = diff(run_, model_, {"--weights-only", "--exclude", name, "--json"}).json();
        QVERIFY(others["equal"] == true);
        QVERIFY(others["compared"] == all["compared"].get<int>() - 1);
        QVERIFY(others["left_out_b"][0]["name"] == name.toStdString());
        // What A lacks is judged by its own name.
        const json without = diff(run_, model_, {"--weights-only", "--json"}).json();
        QVERIFY(without["only_b"].empty());
        const Outcome reversed = diff(model_, run_, {"--exclude", "optim*", "--json"});
        QVERIFY2(reversed.json()["equal"] == true, reversed.out.c_str());
    }

    void anEmptyComparisonIsAnError() {
        QCOMPARE(diff(model_, model_, {"--select", "no.such.tensor"}).exitCode, 5);
        const Outcome none = diff(model_, model_, {"--exclude", "*"});
        QCOMPARE(none.exitCode, 5);
        QVERIFY2(none.err.find("no tensor is left to compare") != std::string::npos, none.err.c_str());
        QCOMPARE(diff(model_, model_, {"--select", "re:("}).exitCode, 2);
        QCOMPARE(diff(model_, model_, {"--top", "3"}).exitCode, 2);
        QCOMPARE(diff(model_, model_, {"--values", "--top", "0"}).exitCode, 2);
    }

    // Names, patterns and rules are of A; what B has instead of what is left out goes with it.
    void renamedTensorsGoTogether() {
        const QString renamed = at("renamed.safetensors");
        QCOMPARE(runShardscope({"convert", model_, renamed, "--rename", "^=new."}).exitCode, 0);
        QCOMPARE(diff(model_, renamed).exitCode, 1);
        const json listed = runShardscope({"ls", model_, "--json"}).json()["tensors"];
        const QString name = QString::fromStdString(listed[0]["name"].get<std::string>());
        for (const QStringList& rule : {QStringList{"--rename", "^=new."}, {"--map", at("new.json")}}) {
            if (rule[0] == "--map") {
                QFile file(rule[1]);
                QVERIFY(file.open(QFile::WriteOnly));
                file.write(R"({"schema": "shardscope.recipe/1", "rename": [{"from": "^", "to": "new."}]})");
            }
            QCOMPARE(diff(model_, renamed, rule).exitCode, 0);
            for (const QStringList& choice : {QStringList{"--exclude", name}, {"--select", name}}) {
                const Outcome found =
                    diff(model_, renamed, rule + choice + QStringList{"--values", "--json"});
                QVERIFY2(found.exitCode == 0, (found.out + found.err).c_str());
                QVERIFY(found.json()["left_out_a"].size() == found.json()["left_out_b"].size());
            }
        }
    }

    // Through a recipe that casts, as the conversion has cast.
    void castsAreThoseOfTheConversion() {
        QFile file(at("cast.json"));
        QVERIFY(file.open(QFile::WriteOnly));
        file.write(
            R"({"schema": "shardscope.recipe/1", "cast": [{"tensors": "*.weight", "dtype": "bf16"}]})");
        file.close();
        const QString cast = at("cast.safetensors");
        QCOMPARE(runShardscope({"convert", model_, cast, "--map", file.fileName()}).exitCode, 0);
        const json plain = diff(model_, cast, {"--json"}).json();
        QVERIFY(plain["equal"] == false && plain["dtype"].size() > 0);
        const Outcome proved = diff(model_, cast, {"--map", file.fileName(), "--values"});
        QVERIFY2(proved.exitCode == 0, (proved.out + proved.err).c_str());
    }

    void worstComesFirst() {
        std::vector<std::string> names;
        const QString second = changed("changed.safetensors", {1.001F, 4.0F, 1.5F}, &names);
        QVERIFY(!second.isEmpty());
        const Outcome text = diff(model_, second, {"--values"});
        QCOMPARE(text.exitCode, 1);
        QVERIFY2(says(text, "relative L2") && says(text, " tensors compared, ") &&
                     says(text, ", 3 different; at most "),
                 text.out.c_str());
        const json said = diff(model_, second, {"--values", "--json"}).json();
        QCOMPARE(said["values"].size(), size_t{3});
        double before = std::numeric_limits<double>::infinity(), square = 0, most = 0;
        std::set<std::string> found;
        for (const json& tensor : said["values"]) {
            const double relative = tensor["rel_l2"].get<double>(), l2 = tensor["l2"].get<double>();
            QVERIFY(relative <= before && relative > 0);
            QVERIFY(tensor["different"] == 1 && tensor["max_abs"] == l2);
            before = relative;
            square += l2 * l2;
            most = std::max(most, l2);
            found.insert(tensor["name"].get<std::string>());
        }
        QVERIFY(found == std::set<std::string>(names.begin(), names.end()));
        const json& summary = said["summary"];
        QVERIFY(summary["different"] == 3 && summary["max_abs"] == most);
        QVERIFY(std::abs(summary["l2"].get<double>() - std::sqrt(square)) < 1e-9);
        QVERIFY(summary["rel_l2"].get<double>() > 0 &&
                summary["rel_l2"].get<double>() < said["values"][0]["rel_l2"].get<double>());

        const json first = diff(model_, second, {"--values", "--top", "1", "--json"}).json();
        QVERIFY(first["equal"] == false);
        COMPARE_JSON(first["values"], json::array({said["values"][0]}));
        COMPARE_JSON(first["summary"], summary);
        QVERIFY(says(diff(model_, second, {"--values", "--top", "1"}), "... and 2 more"));

        const Outcome csv = diff(model_, second, {"--values", "--csv"});
        QCOMPARE(csv.exitCode, 1);
        const QStringList lines = QString::fromStdString(csv.out).trimmed().split('\n');
        QCOMPARE(lines.size(), 4);
        QCOMPARE(lines[0], QString("difference,name,a,b,different,max_abs,max_rel,max_ulp,cosine,l2,rel_l2"));
        QCOMPARE(lines[1].split(',')[0], QString("values"));
        QCOMPARE(lines[1].split(',')[1].toStdString(), said["values"][0]["name"].get<std::string>());
        QCOMPARE(lines[1].split(',')[10].toDouble(), said["values"][0]["rel_l2"].get<double>());
    }

    // The same in second shardings, to the last digit.
    void shardingChangesNoFigure() {
        std::vector<std::string> names;
        const QString second = changed("other.safetensors", {3.0F}, &names);
        const QString sharded = at("sharded");
        QCOMPARE(
            runShardscope({"convert", second, sharded, "--to", "dcp", "--mesh", "dp=3", "--shard", "*:dp=0"})
                .exitCode,
            0);
        const json whole = diff(model_, second, {"--values", "--json"}).json();
        const json cut = diff(model_, sharded, {"--values", "--json", "--threads", "3"}).json();
        QCOMPARE(whole["values"].size(), size_t{1});
        COMPARE_JSON(cut["values"], whole["values"]);
        COMPARE_JSON(cut["summary"], whole["summary"]);
    }
};

QTEST_GUILESS_MAIN(DiffCliTest)
#include "diff_cli_test.moc"
