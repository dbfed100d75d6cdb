// What is said, and what is not converted, where a file of a checkpoint is cut, empty, lost or copied.
#include <QTemporaryDir>
#include <QTest>
#include <cmath>
#include <set>

#include "cli/genuine_checks.h"
#include "cli/written_model.h"

using namespace shardscope::test;
using nlohmann::json;

class FileDamageCliTest : public QObject {
    Q_OBJECT

    std::unique_ptr<QTemporaryDir> place_;
    QString at(const QString& name) const { return place_->filePath(name); }
    QString copyOf(const char* family, const QString& name, const QString& as) const {
        copyTree(QString::fromStdString(genuineCase(family, name).openPath()), at(as));
        return at(as);
    }
    Outcome convert(const QString& from, const QStringList& more = {}) const {
        return runShardscope(QStringList{"convert", from, at("out"), "--to", "safetensors", "--overwrite"} +
                             more);
    }
    static Stored numbers(std::vector<int> shape, float first) {
        int count = 1;
        for (const int size : shape)
            count *= size;
        std::vector<float> values;
        for (int i = 0; i < count; ++i)
            values.push_back(first + static_cast<float>(i));
        return {"F32", std::move(shape), floats(values)};
    }

  private slots:
    void init() {
        place_ = std::make_unique<QTemporaryDir>();
        qputenv("XDG_STATE_HOME", place_->path().toUtf8());
    }
    void cleanup() { qunsetenv("XDG_STATE_HOME"); }

    // What files that are missing or too short held is filled where that is asked for, and written down.
    void lostFilesAreFilled_data() {
        QTest::addColumn<QString>("name");
        QTest::addColumn<QStringList>("words");
        for (const char* name : {"missing-file", "truncated-file"}) {
            QTest::addRow("%s", name) << QString("t2.15.0-damaged-") + name << QStringList();
            QTest::addRow("%s, other ranks", name)
                << QString("t2.15.0-damaged-") + name << QStringList{"--to", "dcp", "--mesh", "tp=2"};
            QTest::addRow("%s, whole", name)
                << QString("t2.15.0-damaged-") + name << QStringList{"--to", "safetensors"};
        }
    }
    void lostFilesAreFilled() {
        QFETCH(QString, name);
        QFETCH(QStringList, words);
        const QString source = QString::fromStdString(genuineCase("dcp", name).openPath());
        const QString base = QString::fromStdString(genuineCase("dcp", "t2.15.0-damage-base").openPath());
        const QString out = at("out"), zeros = at("zeros");
        const Outcome refused = runShardscope(QStringList{"convert", source, out, "--json"} + words);
        QCOMPARE(refused.exitCode, 3);
        QVERIFY(refused.json()["hint"].get<std::string>().find("--fill-gaps") != std::string::npos);
        // The boxes of the chunks that are lost, by tensor.
        std::map<std::string, std::set<std::string>> lost;
        const json found = runShardscope({"validate", source, "--level", "files", "--json"}).json();
        for (const json& finding : found["findings"]) {
            if (finding["rule"] != "file.missing" && finding["rule"] != "file.truncated") continue;
            for (const json& example : finding["examples"])
                if (example["tensor"].is_string())
                    lost[example["tensor"]].insert(example["offsets"].dump() + example["lengths"].dump());
        }
        QVERIFY(!lost.empty());
        const Outcome run = runShardscope(QStringList{"convert", source, out, "--fill-gaps", "nan"} + words);
        QVERIFY2(run.exitCode == 0, (run.out + run.err).c_str());
        QFile written(out + "/shardscope.filled.json");
        QVERIFY(written.open(QIODevice::ReadOnly));
        const json record = json::parse(written.readAll().toStdString());
        COMPARE_JSON(record["fill"], json("nan"));
        std::map<std::string, std::set<std::string>> filled;
        for (const json& tensor : record["tensors"]) {
            for (const json& box : tensor["boxes"])
                filled[tensor["name"]].insert(box["offsets"].dump() + box["lengths"].dump());
        }
        QVERIFY2(filled == lost, record.dump().c_str());
        // Everything else is as it was before the damage.
        QCOMPARE(runShardscope(QStringList{"convert", source, zeros, "--fill-gaps", "zero"} + words).exitCode,
                 0);
        for (const json& tensor : runShardscope({"ls", base, "--json"}).json()["tensors"]) {
            const std::string of = tensor["name"];
            const auto values = [&](const QString& from) {
                QFile file(at("values.raw"));
                runShardscope({"extract", from, QString::fromStdString(of), file.fileName(), "--overwrite"});
                return file.open(QIODevice::ReadOnly) ? file.readAll() : QByteArray();
            };
            const QByteArray before = values(base), after = values(zeros);
            QVERIFY(!before.isEmpty() && before.size() == after.size());
            if (!lost.contains(of)) QCOMPARE(after, before);
            for (qsizetype i = 0; i < before.size(); ++i)
                QVERIFY(before[i] == after[i] || after[i] == 0);
        }
    }

    // A file that cannot be read to its end is named, and nothing that it held is left out in silence.
    void nothingIsLostInSilence_data() {
        QTest::addColumn<QString>("name");
        for (const auto& [family, name] : {std::pair{"tensor_parallel", "meta-tp2"},
                                           {"tensor_parallel", "vllm-tp2"},
                                           {"tensor_parallel", "grok-tp4"},
                                           {"deepspeed", "moe_ep2_z2_bf16"},
                                           {"deepspeed", "moe_ep1_z0_fp32"},
                                           {"deepspeed", "pp2_z1_bf16opt"},
                                           {"torch_save", "bin-set-no-index"},
                                           {"torch_ranks", "t2.15.0-verl-fsdp1-mesh-w2"},
                                           {"torch_checkpointing", "no-resharder"},
                                           {"nanotron", "tp2"},
                                           {"nanotron", "tp2-pp2-zero1"},
                                           {"tensor_parallel", "nxd-tp2"}})
            QTest::addRow("%s/%s", family, name) << QString(name);
    }
    void nothingIsLostInSilence() {
        QFETCH(QString, name);
        const QByteArray family = QByteArray(QTest::currentDataTag()).split('/')[0];
        const QString whole = copyOf(family.constData(), name, "whole");
        const json expected = digestsOf(whole);
        QVERIFY(!expected.empty());
        QDirIterator files(whole, QDir::Files, QDirIterator::Subdirectories);
        while (files.hasNext()) {
            const QString file = QDir(whole).relativeFilePath(files.next());
            const qint64 size = QFileInfo(whole + '/' + file).size();
            // Random states are judged in steps.
            if (file.endsWith(".json") || file.startsWith("random/") || size < 100) continue;
            for (const qint64 left : {qint64{0}, size / 2}) {
                copyTree(whole, at("hurt"));
                QVERIFY(QFile::resize(at("hurt/") + file, left));
                const Outcome judged = validate(at("hurt"));
                QVERIFY2(judged.exitCode == 1 || judged.exitCode == 3, qPrintable(file));
                const std::string base = QFileInfo(file).fileName().toStdString();
                QVERIFY2((judged.out + judged.err).find(base) != std::string::npos, judged.out.c_str());
                const Outcome made = convert(at("hurt"));
                if (made.exitCode == 0) {
                    const json found = digestsOf(at("out"));
                    for (const auto& [tensor, digest] : expected.items())
                        QVERIFY2(found.value(tensor, "") == digest, (base + ": " + tensor).c_str());
                }
                QDir(at("hurt")).removeRecursively();
            }
        }
    }
    // State beside the weights is asked for, too, unless weights alone are.
    void emptyStateBesideWeights() {
        const QString step = copyOf("torch_ranks", "t2.15.0-hf-trainer", "step") + "/checkpoint-1";
        QVERIFY(QFile::resize(step + "/optimizer.pt", 0));
        const Outcome refused = convert(step);
        QCOMPARE(refused.exitCode, 3);
        QVERIFY(refused.err.find("optimizer.pt") != std::string::npos);
        QCOMPARE(convert(step, {"--weights-only"}).exitCode, 0);
    }

    void lostFilesOfTensorParallelRanks_data() {
        QTest::addColumn<QString>("file");
        QTest::newRow("a part of one rank") << "model-rank-1-part-1.safetensors";
        QTest::newRow("the last rank of a part") << "model-rank-2-part-0.safetensors";
        QTest::newRow("another file of the last rank") << "m-00001-TP-002.safetensors";
    }
    void lostFilesOfTensorParallelRanks() {
        QFETCH(QString, file);
        const bool vllm = file.startsWith("model-");
        for (int rank = 0; rank < 3; ++rank) {
            for (int part = 0; part < 2; ++part) {
                const QString name = vllm ? QString("model-rank-%1-part-%2.safetensors").arg(rank).arg(part)
                                          : QString("m-0000%2-TP-00%1.safetensors").arg(rank).arg(part);
                if (name == file) continue;
                writeModel(at("ranks"),
                           {{QString("layers.%1.o_proj.weight").arg(part).toStdString(),
                             numbers({4, 6}, float(100 * rank))}},
                           {}, name.chopped(12));
            }
        }
        const Outcome judged = validate(at("ranks"));
        QCOMPARE(judged.exitCode, 1);
        QVERIFY2(!findingOf(judged.json(), "file.missing", file.toStdString()).empty(), judged.out.c_str());
        QCOMPARE(convert(at("ranks")).exitCode, 3);
    }
    void copiedFileOfARank() {
        for (int rank = 0; rank < 3; ++rank) {
            Model model;
            for (const std::string layer : {"layers.0.", "layers.1."})
                model[layer + "o_proj.weight"] = numbers({4, 6}, float(100 * (rank == 2 ? 0 : rank)));
            writeModel(at("ranks"), model, {}, QString("model-rank-%1-part-0").arg(rank));
        }
        const Outcome judged = validate(at("ranks"));
        QCOMPARE(judged.exitCode, 1);
        QVERIFY2(judged.out.find("the file of rank 0 was copied") != std::string::npos, judged.out.c_str());
        QCOMPARE(convert(at("ranks")).exitCode, 3);
    }
    // One file over another one of the same kind: either the rest is whole without it, or it shows.
    void anyFileMayBeACopy_data() {
        QTest::addColumn<QString>("from");
        QTest::addColumn<QString>("to");
        const auto row = [](const char* name, const char* from, const char* to) {
            QTest::newRow(name) << from << to;
        };
        row("dcp/t2.15.0-fsdp2-adam", "__0_0.distcp", "__1_0.distcp");
        row("megatron/m0.16.1-legacy-tp2", "iter_0000010/mp_rank_00/model_optim_rng.pt",
            "iter_0000010/mp_rank_01/model_optim_rng.pt");
        row("torch_save/bin-set-no-index", "pytorch_model-00001-of-00003.bin",
            "pytorch_model-00002-of-00003.bin");
        // One matrix in a file, and its file says nothing of the layer.
        const char* projection =
            "model/model/decoder/%1/pp_block/attn/o_proj/"
            "model_weight_pp-rank-0-of-1_tp-rank-0-of-2.safetensors";
        row("nanotron/tp2", QString(projection).arg(0).toUtf8(), QString(projection).arg(1).toUtf8());
    }
    void anyFileMayBeACopy() {
        QFETCH(QString, from);
        QFETCH(QString, to);
        const QStringList name = QString(QTest::currentDataTag()).split('/');
        const QString copy = copyOf(name[0].toUtf8().constData(), name[1], "copy") + '/';
        QVERIFY2(QFile::remove(copy + to) && QFile::copy(copy + from, copy + to), qPrintable(to));
        const Outcome judged = validate(copy, "files");
        QCOMPARE(judged.exitCode, 1);
        const std::string file = QFileInfo(to).fileName().toStdString();
        QVERIFY2(judged.out.find(file) != std::string::npos, judged.out.c_str());
        QCOMPARE(convert(copy).exitCode, 3);
    }
    // What they hold says which rank wrote them, that two of them are not of one rank, or of which stage they
    // are.
    void exchangedFilesOfRanks_data() {
        QTest::addColumn<QString>("file");
        const auto row = [](const char* save, const char* file) { QTest::newRow(save) << file; };
        row("field/ranks-that-say-who-they-are/megatron/iter_0000010", "mp_rank_0%1/model_optim_rng.pt");
        row("field/ranks-that-say-who-they-are/fsdp1", "optim_world_size_2_rank_%1.pt");
        row("genuine/megatron/m0.16.1-legacy-tp2pp2dp2/ckpt/iter_0000010",
            "mp_rank_00_00%1/model_optim_rng.pt");
        row("genuine/tensor_parallel/nxd-tp2pp2/ckpt", "model/dp_rank_00_tp_rank_01_pp_rank_0%1.pt");
        row("genuine/tensor_parallel/vllm-tp2pp2/ckpt", "model-pp-%1-tp-0-part-0.safetensors");
    }
    void exchangedFilesOfRanks() {
        QFETCH(QString, file);
        copyTree(QStringLiteral(SHARDSCOPE_TEST_DATA "/") + QTest::currentDataTag(), at("save"));
        QCOMPARE(validate(at("save")).exitCode, 0);
        QCOMPARE(convert(at("save")).exitCode, 0);
        const QString first = at("save/") + file.arg(0), second = at("save/") + file.arg(1);
        QVERIFY(QFile::rename(first, at("first")) && QFile::rename(second, first) &&
                QFile::rename(at("first"), second));
        const Outcome judged = validate(at("save"), "metadata");
        QCOMPARE(judged.exitCode, 1);
        QVERIFY2(!findingOf(judged.json(), "meta.inconsistent", "exchanged").empty(), judged.out.c_str());
        const Outcome refused = convert(at("save"));
        QCOMPARE(refused.exitCode, 3);
        QVERIFY2(refused.err.find("exchanged") != std::string::npos, refused.err.c_str());
    }

    // Its directory says what the file is; it is not read.
    void truncatedOptimizerOfNxd() {
        const QString save = copyOf("tensor_parallel", "bad-nxd-optimizer-lost", "nxd");
        const QString optimizer = save + "/optim/dp_rank_0%1_tp_rank_00_pp_rank_00.pt";
        QVERIFY(QFile::copy(optimizer.arg(0), optimizer.arg(1)));
        QCOMPARE(validate(save).exitCode, 0);
        QVERIFY(QFile::resize(optimizer.arg(1), 1500));
        const Outcome judged = validate(save, "files");
        QCOMPARE(judged.exitCode, 1);
        QVERIFY2(!findingOf(judged.json(), "file.damaged", "cannot be read").empty(), judged.out.c_str());
    }

    // Weights are views of one buffer; the padding between them is part of what its checksum covers.
    void aRecordThatManyTensorsShare() {
        const QString step = copyOf("megatron", "m0.16.1-legacy-tp2pp2dp2", "step") + "/iter_0000010";
        QFile file(step + "/mp_rank_01_000/model_optim_rng.pt");
        QVERIFY(file.open(QIODevice::ReadWrite) && file.seek(8192));  // in the buffer, which has 4,096 bytes
        QCOMPARE(file.write(QByteArray(512, '\0')), 512);
        file.close();
        const Outcome refused =
            runShardscope({"convert", step, at("out"), "--to", "safetensors", "--weights-only"});
        QCOMPARE(refused.exitCode, 3);
        QVERIFY2(refused.err.find("checksum") != std::string::npos, refused.err.c_str());
    }

    // Nothing but the place of the zeros tells that they do not belong there.
    void lostPages_data() {
        QTest::addColumn<int>("from");
        QTest::addColumn<int>("to");  // negative: from the end of the file
        QTest::addColumn<bool>("lost");
        QTest::newRow("a page of the file") << 16'384 << 20'480 << true;
        QTest::newRow("three pages") << 40'960 << 53'248 << true;
        QTest::newRow("part of a page") << 16'384 << 20'400 << false;
        QTest::newRow("rows of the tensor") << -840'000 << -831'600 << false;
        QTest::newRow("the end") << -9'000 << 0 << false;
    }
    void lostPages() {
        QFETCH(int, from);
        QFETCH(int, to);
        QFETCH(bool, lost);
        writeModel(at("model"), {{"w", numbers({300, 700}, 1)}}, {});
        const QString path = at("model/model.safetensors");
        QFile file(path);
        QVERIFY(file.open(QIODevice::ReadWrite));
        QVERIFY(file.seek(from < 0 ? file.size() + from : from));
        QCOMPARE(file.write(QByteArray(to - from, '\0')), to - from);
        file.close();
        const Outcome judged = validate(at("model"));
        QCOMPARE(judged.exitCode, lost ? 1 : 0);
        QCOMPARE(!findingOf(judged.json(), "value.zero", "pages").empty(), lost);
        QCOMPARE(convert(at("model")).exitCode, lost ? 3 : 0);
        if (!lost) return;
        const Outcome listed = convert(at("model"), {"--skip-damaged", "--json"});
        QCOMPARE(listed.exitCode, 0);
        QVERIFY2(!findingOf(listed.json(), "value.zero", "from byte").empty(), listed.out.c_str());
    }

    // exp_avg_sq is a mean of squares.
    void exchangedMoments() {
        std::vector<float> first(64), second(64);
        for (size_t i = 0; i < 64; ++i) {
            first[i] = (i % 3 == 0 ? -1 : 1) * float(i);
            second[i] = float(i * i);
        }
        const auto verdictOf = [&](const std::vector<float>& m, const std::vector<float>& v) {
            writeModel(at("optimizer"),
                       {{"optimizer.state.w.exp_avg", {"F32", {64}, floats(m)}},
                        {"optimizer.state.w.exp_avg_sq", {"F32", {64}, floats(v)}}},
                       {});
            return validate(at("optimizer"));
        };
        QCOMPARE(verdictOf(first, second).exitCode, 0);
        const Outcome exchanged = verdictOf(second, first);
        QVERIFY2(!findingOf(exchanged.json(), "state.differs", "exp_avg_sq").empty(), exchanged.out.c_str());
    }
    // Nothing in a DCP file says whose it is; the steps before it do.
    void exchangedSinceEarlierSteps() {
        const auto step = [&](int number) { return at("run/step-%1").arg(number); };
        const auto exchange = [&](int number) {
            const QString first = step(number) + "/__0_0.distcp", second = step(number) + "/__1_0.distcp";
            QVERIFY(QFile::rename(first, at("first")) && QFile::rename(second, first) &&
                    QFile::rename(at("first"), second));
        };
        const auto found = [&](int number) {
            return !findingOf(validate(step(number)).json(), "meta.inconsistent", "exchanged").empty();
        };
        QVERIFY(QDir().mkpath(at("run")));
        for (int number = 1; number <= 4; ++number) {
            std::map<std::string, Stored> model;
            for (const char* name : {"a", "b", "c"}) {
                std::vector<float> values;
                for (int i = 0; i < 512; ++i)
                    values.push_back(std::sin(float(i * i * (1 + name[0] % 7))) + 0.01F * float(number));
                model[name] = {"F32", {32, 16}, floats(values)};
            }
            writeModel(at("model"), model, {});
            const Outcome written = runShardscope(
                {"convert", at("model"), step(number), "--to", "dcp", "--mesh", "tp=2", "--shard", "*:tp=0"});
            QVERIFY2(written.exitCode == 0, written.err.c_str());
        }
        for (int number = 1; number <= 4; ++number)
            QCOMPARE(validate(step(number)).exitCode, 0);
        exchange(3);
        QVERIFY(found(3));
        QCOMPARE(validate(step(3)).exitCode, 1);
        QVERIFY(!found(4));  // step 2 agrees with it
        exchange(3);
        exchange(2);  // one of two, whichever it is
        QVERIFY(found(2));
        COMPARE_JSON(validate(step(2)).json()["verdict"], json("care"));
        QVERIFY(!found(3));
    }
    // Without metadata.pkl nothing says that rank 0 holds all of an item.
    void itemsWithoutMetadata() {
        const QString step = copyOf("torch_checkpointing", "no-resharder", "step");
        QVERIFY(QFile::remove(step + "/model_1.pt"));
        const Outcome judged = validate(step);
        QVERIFY2(!findingOf(judged.json(), "file.missing", "model_1.pt").empty(), judged.out.c_str());
        QCOMPARE(convert(step).exitCode, 3);
    }
    // Their router is called otherwise; a gate is half of a projection, and ranks cut it.
    void gatesOfTensorRt() {
        for (int rank = 0; rank < 2; ++rank)
            writeModel(at("ranks"),
                       {{"transformer.layers.0.mlp.gate.weight", numbers({4, 6}, float(24 * rank))}}, {},
                       QString("rank%1").arg(rank));
        writeText(at("ranks/config.json"), R"({"hidden_size": 6, "mapping": {"tp_size": 2, "pp_size": 1}})");
        const Outcome shown =
            runShardscope({"show", at("ranks"), "transformer.layers.0.mlp.gate.weight", "--json"});
        QCOMPARE(shown.exitCode, 0);
        COMPARE_JSON(shown.json()["tensor"]["shape"], (json{8, 6}));
        QCOMPARE(validate(at("ranks")).exitCode, 0);
    }
    void theOptimizerNamesRanks() {
        const QString save = copyOf("tensor_parallel", "nxd-tp2", "nxd");
        const QString lost = "dp_rank_00_tp_rank_01_pp_rank_00.pt";
        QVERIFY(QDir(save).mkdir("optim"));
        QVERIFY(QFile::rename(save + "/model/" + lost, save + "/optim/" + lost));
        const Outcome judged = validate(save);
        QCOMPARE(judged.exitCode, 1);
        QVERIFY(!findingOf(judged.json(), "file.missing", "model/" + lost.toStdString()).empty());
    }

    // What transfers and packers leave says why a file is missing.
    void otherNamesOfMissingFiles() {
        writeModel(at("model"), {{"a", numbers({4, 6}, 1)}}, {}, "one");
        writeModel(at("model"), {{"b", numbers({4, 6}, 1)}}, {}, "two");
        writeText(at("model/model.safetensors.index.json"),
                  R"({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}})");
        const QString file = at("model/two.safetensors");
        for (const auto& [name, what] : {std::pair{"two.safetensors.zst", "unpack it"},
                                         {"two.safetensors.part-aa", "join the parts"},
                                         {".two.safetensors.Xy12ab", "did not end"},
                                         {"Two.safetensors", "capital letters"},
                                         {"two (1).safetensors", "with a number"}}) {
            QVERIFY(QFile::rename(file, at("model/") + name));
            const Outcome judged = validate(at("model"));
            QCOMPARE(judged.exitCode, 1);
            QVERIFY2(judged.out.find(what) != std::string::npos, judged.out.c_str());
            QVERIFY(QFile::rename(at("model/") + name, file));
        }
        const Outcome whole = validate(at("model"));
        QVERIFY2(whole.exitCode == 0 && whole.json()["findings"].empty(), whole.out.c_str());
    }

    // MindSpore's index has a name of its own.
    void lostFileOfMindSpore() {
        writeModel(at("unified"), {{"a", numbers({4, 6}, 1)}}, {}, "part0");
        writeModel(at("unified"), {{"b", numbers({4, 6}, 50)}}, {}, "part1");
        const QString file = at("unified/part1.safetensors");
        for (const char* map : {R"({"a": "part0.safetensors", "b": "part1.safetensors"})",
                                R"({"weight_map": {"a": "part0.safetensors", "b": "part1.safetensors"}})"}) {
            writeText(at("unified/param_name_map.json"), map);
            QCOMPARE(validate(at("unified")).exitCode, 0);
            QVERIFY(QFile::rename(file, at("kept")));
            const Outcome judged = validate(at("unified"));
            QVERIFY2(!findingOf(judged.json(), "file.missing", "part1.safetensors").empty(),
                     judged.out.c_str());
            QCOMPARE(convert(at("unified")).exitCode, 3);
            QVERIFY(QFile::rename(at("kept"), file));
        }
    }

    // The weights beside the states of DeepSpeed are not all of the step.
    void aTagThatNothingNames() {
        const QString step = copyOf("deepspeed", "trainer_z3_bf16", "run") + "/checkpoint-3";
        const json whole = digestsOf(step);
        for (const char* text : {"", "global_st"}) {
            QVERIFY(QFile::remove(step + "/latest"));
            if (*text != '\0') writeText(step + "/latest", text);
            const Outcome judged = validate(step);
            QCOMPARE(judged.exitCode, 1);
            QVERIFY2(judged.out.find("no 'latest' names") != std::string::npos, judged.out.c_str());
            COMPARE_JSON(digestsOf(step), whole);
            writeText(step + "/latest", text);
        }
    }

    // Small files that readers take as they are.
    void cutSmallFilesAreErrors_data() {
        QTest::addColumn<QString>("name");
        QTest::addColumn<QString>("file");
        QTest::newRow("tensor_parallel") << "meta-tp2"
                                         << "params.json";
        QTest::newRow("nanotron") << "tp2"
                                  << "model_config.json";
        QTest::newRow("levanter") << "ocdbt"
                                  << "metadata.json";
        QTest::newRow("paddle_hybrid") << "mp2"
                                       << "trainer_state.json";
    }
    void cutSmallFilesAreErrors() {
        QFETCH(QString, name);
        QFETCH(QString, file);
        const QString run = at("run");
        for (const char* step : {"/checkpoint-10", "/checkpoint-20"})
            (void)copyOf(QTest::currentDataTag(), name, "run" + QString(step));
        const auto good = [&] {
            return runShardscope({"latest", run, "--good", "--json"}).json().value("name", "");
        };
        QCOMPARE(good(), std::string("checkpoint-20"));
        const QString hurt = run + "/checkpoint-20/" + file;
        QVERIFY(QFile::resize(hurt, QFileInfo(hurt).size() / 2));
        QCOMPARE(good(), std::string("checkpoint-10"));
    }
};

QTEST_GUILESS_MAIN(FileDamageCliTest)
#include "file_damage_cli_test.moc"
