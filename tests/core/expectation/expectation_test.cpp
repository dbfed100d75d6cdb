// What should be there: parts by name, contracts, earlier steps, agreement of state, the size of a model.
#include <QDir>
#include <QTemporaryDir>
#include <QTest>
#include <array>

#include <nlohmann/json.hpp>

#include "base/rule.h"
#include "expectation/agreement.h"
#include "expectation/contents.h"
#include "expectation/lacking.h"
#include "expectation/lost_tensors.h"
#include "expectation/model_size.h"
#include "expectation/stale_files.h"

using namespace shardscope;

Q_DECLARE_METATYPE(shardscope::StepPart)

class ExpectationTest : public QObject {
    Q_OBJECT

    static StepContents stepOf(std::initializer_list<const char*> paths, const char* name = "checkpoint-20") {
        StepContents step;
        step.name = name;
        step.isStep = true;
        for (const char* path : paths)
            step.files.push_back({path, 1000, 0});
        std::ranges::sort(step.files, {}, &StepFile::path);
        return step;
    }
    static Catalog nothing() { return CatalogBuilder("torch", "", "").finish(); }
    static std::vector<Note> lackingOf(const StepContents& step) {
        return lackingNotes(step, contractOf(step), nothing());
    }
    static std::string filesOf(const std::vector<Note>& notes) {
        std::string all;
        for (const Note& note : notes)
            all += std::string(severityName(note.severity)) + ' ' + note.file + ';';
        return all;
    }
    static void addTensor(CatalogBuilder& builder, const char* name, const Dims& shape, Role role) {
        TensorInfo info;
        info.name = name;
        info.path = {keyPart(name)};
        info.shape = shape;
        info.role = role;
        if (!builder.addTensor(info).ok() || !builder.addWhole(0, kNone, 0, 0).ok()) qFatal("no tensor");
    }
    static Catalog catalogOf(std::initializer_list<std::tuple<const char*, Dims, Role>> tensors) {
        CatalogBuilder builder("torch", "", "");
        for (const auto& [name, shape, role] : tensors)
            addTensor(builder, name, shape, role);
        return std::move(builder).finish();
    }
    // An optimizer's param_groups of one group, with a setting beside its parameters if there is one.
    static void addGroups(CatalogBuilder& builder, const char* name, std::initializer_list<int64_t> listed,
                          const char* setting = nullptr) {
        ValueGraph graph;
        std::vector<NodeId> numbers, group;
        for (const int64_t number : listed)
            numbers.push_back(graph.addInteger(number));
        group.push_back(graph.addText(ValueKind::text, "params"));
        group.push_back(graph.addContainer(ValueKind::list, numbers));
        if (setting) {
            group.push_back(graph.addText(ValueKind::text, setting));
            group.push_back(graph.addReal(0.9));
        }
        const NodeId groups =
            graph.addContainer(ValueKind::list, {graph.addContainer(ValueKind::dict, group)});
        ObjectInfo object;
        object.name = name;
        object.value = makeValue(std::move(graph), groups);
        builder.addObject(std::move(object));
    }
    static std::string rulesOf(const std::vector<Note>& notes) {
        std::string all;
        for (const Note& note : notes)
            all += note.rule + ' ' + note.tensor + ';';
        return all;
    }

  private slots:
    void partsAreToldByName_data() {
        using enum StepPart;
        QTest::addColumn<StepPart>("part");
        const auto row = [](const char* name, StepPart part) { QTest::newRow(name) << part; };
        row("model.safetensors", weights);
        row("model-00001-of-00002.safetensors", weights);
        row("model.safetensors.index.json", weights);
        row("pytorch_model_fsdp_0", weights);
        row("model_world_size_2_rank_0.pt", weights);
        row("model_optim_rng.pt", weights);
        row("adapter_model.safetensors", weights);
        row("opt-125m.safetensors", weights);
        row("model_lr1e-4.pt", weights);
        row("optimizer.pt", optimizer);
        row("optim_world_size_2_rank_1.pt", optimizer);
        row("distrib_optim.pt", optimizer);
        row("master_weights.shard01.safetensors", optimizer);
        row("scheduler.bin", scheduler);
        row("lr_scheduler", scheduler);
        row("trainer_state.json", progress);
        row("extra_state_world_size_2_rank_1.pt", progress);
        row("latest_train_state.pt", progress);
        row("rng_state_0.pth", random);
        row("random_states_3.pkl", random);
        row("data.pt", loader);
        row("modeling", weights);
        row("dl_state_dict.bin", loader);
        row("scaler.pt", scaler);
        row("ema.pt", averages);
        row("training_args.bin", arguments);
        row("config.json", config);
        row("scheduler_config.json", config);
        row("tokenizer_config.json", tokenizer);
        row("README.md", record);
        row("events.out.tfevents.17.host", record);
        row("step_15.pt", unknown);
        row("epoch=0-step=20.ckpt", unknown);
        row("checkpoint.pt", unknown);
    }
    void partsAreToldByName() {
        QFETCH(StepPart, part);
        QCOMPARE(int(stepPartOf(QTest::currentDataTag())), int(part));
    }

    void olmoNeedsTheTrainersStateOfEachRank() {
        const auto without = [](StepContents step, std::string_view path) {
            std::erase_if(step.files, [&](const StepFile& file) { return fitsGlobs(path, file.path); });
            return filesOf(lackingOf(step));
        };
        const StepContents dcp = stepOf({".metadata.json", "config.json", "model_and_optim/.metadata",
                                         "model_and_optim/__0_0.distcp", "model_and_optim/__1_0.distcp",
                                         "train/rank0.pt", "train/rank1.pt"});
        QCOMPARE(filesOf(lackingOf(dcp)), std::string());
        QCOMPARE(without(dcp, "train/rank0.pt"), std::string("error train/rank0.pt;"));
        QCOMPARE(without(dcp, "train/rank1.pt"), std::string("warning train/rank1.pt;"));
        QCOMPARE(without(dcp, "train/*"), std::string("error train/rank0.pt;"));
        QCOMPARE(without(dcp, ".metadata.json"), std::string("error .metadata.json;"));
        const StepContents local =
            stepOf({"config.yaml", "metadata.yaml", "model/rank0.pt", "optim/rank0.pt", "train/rank0.pt"});
        QCOMPARE(filesOf(lackingOf(local)), std::string());
        QCOMPARE(without(local, "optim/*"), std::string("error optim/rank*.pt;"));
        QCOMPARE(without(local, "train/*"), std::string("error train/rank*.pt;"));
        QCOMPARE(without(local, "config.yaml"), std::string("warning config.yaml;"));
    }

    void aTrainerNeedsItsState() {
        const StepContents whole = stepOf({"model.safetensors", "optimizer.pt", "scheduler.pt",
                                           "rng_state.pth", "trainer_state.json", "training_args.bin"});
        QCOMPARE(filesOf(lackingOf(whole)), std::string());
        const auto without = [&](const char* path) {
            StepContents step = whole;
            std::erase_if(step.files, [&](const StepFile& file) { return file.path == path; });
            return filesOf(lackingOf(step));
        };
        QCOMPARE(without("optimizer.pt"), std::string("error optimizer.pt;"));
        QCOMPARE(without("scheduler.pt"), std::string("error scheduler.pt;"));
        QCOMPARE(without("trainer_state.json"), std::string("error trainer_state.json;"));
        QCOMPARE(without("training_args.bin"), std::string());
        QCOMPARE(without("rng_state.pth"), std::string("warning rng_state.pth;"));
        // DeepSpeed's directory has optimizer state; the scheduler's is in it only where the scheduler is its
        // own.
        const StepContents deepspeed = stepOf({"global_step20/mp_rank_00_model_states.pt", "rng_state_0.pth",
                                               "trainer_state.json", "training_args.bin", "latest"});
        const auto lackingWith = [&](bool ownScheduler) {
            CatalogBuilder builder("deepspeed", "", "");
            ObjectInfo object;
            object.name = "lr_scheduler";
            auto graph = std::make_shared<ValueGraph>();
            object.value = {graph, ownScheduler ? graph->addInteger(7) : graph->addNone()};
            builder.addObject(object);
            return filesOf(lackingNotes(deepspeed, contractOf(deepspeed), std::move(builder).finish()));
        };
        QCOMPARE(lackingWith(true), std::string());
        QCOMPARE(lackingWith(false), std::string("error scheduler.pt;"));
        // Only weights were asked for, and the save has ended.
        const auto weights =
            lackingOf(stepOf({"model.safetensors", "trainer_state.json", "training_args.bin"}));
        QCOMPARE(rulesOf(weights), std::string("state.missing ;"));
        QCOMPARE(int(weights[0].severity), int(Severity::warning));
        // A model that was saved by itself.
        StepContents model = stepOf({"model.safetensors", "config.json", "training_args.bin"}, "my-model");
        model.isStep = false;
        QCOMPARE(filesOf(lackingOf(model)), std::string());
    }
    void emptyFilesOfStateAreDamaged() {
        StepContents step = stepOf({"model.pt", "optimizer.pt", "README.md"}, "step-5");
        for (StepFile& file : step.files)
            file.size = 0;
        QCOMPARE(filesOf(lackingOf(step)), std::string("error model.pt;error optimizer.pt;"));
    }
    void ranksOfAWorldAreAllThere() {
        const auto notes =
            lackingOf(stepOf({"actor/model_world_size_2_rank_0.pt", "actor/model_world_size_2_rank_1.pt",
                              "actor/extra_state_world_size_2_rank_0.pt"},
                             "global_step_5"));
        QCOMPARE(filesOf(notes), std::string("error actor/extra_state_world_size_2_rank_1.pt;"));
    }
    void paddedRanksOfAWorldAreAllThere() {
        QCOMPARE(
            filesOf(lackingOf(stepOf(
                {"model_rank-00000000-of-00000003.pth", "model_rank-00000002-of-00000003.pth"}, "step-10"))),
            std::string("error model_rank-00000001-of-00000003.pth;"));
    }
    void directoriesOfRanksHoldTheSame() {
        const auto notes = lackingOf(stepOf(
            {"mp_rank_00/model_optim_rng.pt", "mp_rank_00/distrib_optim.pt", "mp_rank_01/model_optim_rng.pt"},
            "iter_0000010"));
        QCOMPARE(filesOf(notes), std::string("error mp_rank_01/distrib_optim.pt;"));
    }
    void stateOfTheSameShardsIsThere() {
        const auto notes =
            lackingOf(stepOf({"model.safetensors", "optimizer.shard00.safetensors",
                              "master_weights.shard00.safetensors", "master_weights.shard01.safetensors"}));
        QCOMPARE(filesOf(notes), std::string("error optimizer.shard01.safetensors;"));
    }

    void whatAllEarlierStepsHaveIsNeeded() {
        const StepContents one = stepOf({"model.pt", "rng.pt", "notes.md"}, "step-10");
        const StepContents other = stepOf({"model.pt", "rng.pt", "extra.pt"}, "step-5");
        const StepContents step = stepOf({"model.pt"}, "step-15");
        const std::vector<StepContents> earlier{one, other};
        QCOMPARE(filesOf(historyNotes(step, earlier, contractOf(step))), std::string("error rng.pt;"));
    }
    void theFirstStepOfATorchCheckpointingRunHasMore() {
        const StepContents first = stepOf({"model_0.pt", "model_1.pt", "metadata.pkl"}, "step-5");
        const StepContents step = stepOf({"model_0.pt", "model_1.pt"}, "step-10");
        QCOMPARE(filesOf(historyNotes(step, std::vector{first}, contractOf(step))), std::string());
    }
    void anotherNameForTheSameIsNoLoss() {
        const auto lacks = [](std::initializer_list<const char*> now,
                              std::initializer_list<const char*> before) {
            const StepContents step = stepOf(now), earlier = stepOf(before, "checkpoint-10");
            std::string all;
            for (const LackingFile& file : lackingAgainst(step, earlier, contractOf(step)))
                all += file.path + ';';
            return all;
        };
        QCOMPARE(lacks({"model.safetensors"}, {"pytorch_model.bin"}), std::string());
        QCOMPARE(lacks({"rng_state.pth"}, {"rng_state_0.pth", "rng_state_1.pth"}), std::string());
        QCOMPARE(lacks({"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"},
                       {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                        "model.safetensors.index.json"}),
                 std::string("model.safetensors.index.json;"));
        // The second optimizer of a step is not the first one under another name.
        QCOMPARE(lacks({"optimizer.bin"}, {"optimizer.bin", "optimizer_1.bin"}),
                 std::string("optimizer_1.bin;"));
        // Names that are hashes say nothing.
        QCOMPARE(lacks({"d/0123456789abcdef0123456789abcdef"}, {"d/f123456789abcdef0123456789abcdef"}),
                 std::string());
    }
    void eachKindOfFileHasTheSameRanks() {
        const auto lacks = [](std::initializer_list<const char*> now,
                              std::initializer_list<const char*> before) {
            const StepContents step = stepOf(now, "step-10"), earlier = stepOf(before, "step-5");
            return filesOf(historyNotes(step, std::vector{earlier}, contractOf(step)));
        };
        QCOMPARE(lacks({"model_0.pt", "model_1.pt", "sched_1.pt"},
                       {"model_0.pt", "model_1.pt", "sched_0.pt", "sched_1.pt"}),
                 std::string("error sched_0.pt;"));
        // Fewer ranks go on.
        QCOMPARE(
            lacks({"model_0.pt", "sched_0.pt"}, {"model_0.pt", "model_1.pt", "sched_0.pt", "sched_1.pt"}),
            std::string());
        // Names that tell the step are others each time.
        QCOMPARE(lacks({"model_10.pt", "sched_10.pt"}, {"model_5.pt", "sched_5.pt"}), std::string());
    }
    void randomStatesOfAllRanksAreThere() {
        const auto lacks = [](std::initializer_list<const char*> files) {
            return filesOf(lackingOf(stepOf(files, "step-10")));
        };
        QCOMPARE(lacks({"model.pt", "rng_0.pt", "rng_1.pt"}), std::string());
        QCOMPARE(lacks({"model.pt", "rng_0.pt", "rng_2.pt"}), std::string("error rng_1.pt;"));
        QCOMPARE(filesOf(lackingOf(
                     stepOf({"model.safetensors", "optimizer.bin", "scheduler.bin", "random_states_1.pkl"},
                            "checkpoint_3"))),
                 std::string("warning random_states_0.pkl;"));
        // "rng_10.pt" alone may count steps.
        QCOMPARE(lacks({"model.pt", "rng_state.pth"}), std::string());
    }
    void bridgeWritesItsConfigurationLast() {
        const std::string missing = filesOf(lackingOf(stepOf(
            {".metadata", "__0_0.distcp", "common.pt", "metadata.json", "train_state.pt"}, "iter_0000020")));
        QCOMPARE(missing, std::string("error run_config.yaml;"));
    }
    void tensorsOfEarlierStepsAreNeeded() {
        using enum Role;
        const Catalog before = catalogOf({{"a", {4}, parameter},
                                          {"b", {4}, parameter},
                                          {"c", {4}, parameter},
                                          {"d", {4, 2}, parameter},
                                          {"o.a", {4}, optimizer},
                                          {"o.b", {4}, optimizer},
                                          {"o.c", {4}, optimizer}});
        const auto lost = [&](std::initializer_list<std::tuple<const char*, Dims, Role>> tensors) {
            std::string all;
            for (const Note& note : lostTensorNotes(catalogOf(tensors), before, "step-5"))
                all += std::string(severityName(note.severity)) + ' ' + note.rule + ' ' + note.tensor + ';';
            return all;
        };
        QCOMPARE(lost({{"a", {4}, parameter}, {"b", {4}, parameter}, {"d", {4, 2}, parameter}}),
                 std::string("error state.missing c;"));
        QCOMPARE(lost({{"a", {4}, parameter},
                       {"b", {4}, parameter},
                       {"c", {4}, parameter},
                       {"d", {4, 1}, parameter},
                       {"o.a", {4}, optimizer},
                       {"o.b", {4}, optimizer}}),
                 std::string("error state.differs d;warning state.missing o.c;"));
        // Another model, and a save of weights alone.
        QCOMPARE(lost({{"a", {4}, parameter}, {"x", {4}, parameter}, {"y", {4}, parameter}}), std::string());
        QCOMPARE(lost({{"a", {8}, parameter},
                       {"b", {8}, parameter},
                       {"c", {8}, parameter},
                       {"d", {8, 2}, parameter}}),
                 std::string());
    }

    void aSecondSaveThatDiedShows() {
        StepContents step = stepOf({"model.safetensors", "trainer_state.json", "training_args.bin"});
        StepContents earlier = step;
        const auto at = [](StepContents& of, const char* path, int64_t seconds) {
            for (StepFile& file : of.files)
                if (file.path == path) file.modifiedNs = seconds * 1'000'000'000;
        };
        at(earlier, "model.safetensors", 100);
        at(earlier, "training_args.bin", 101);
        at(earlier, "trainer_state.json", 102);
        at(step, "trainer_state.json", 200);
        at(step, "training_args.bin", 200);
        const std::vector<StepContents> before{earlier};
        // A copy in another order takes as long as a save.
        at(step, "model.safetensors", 203);
        QCOMPARE(rulesOf(mixedSaveNotes(step, before, contractOf(step))), std::string());
        at(step, "model.safetensors", 300);
        QCOMPARE(rulesOf(mixedSaveNotes(step, before, contractOf(step))), std::string("save.mixed ;"));
    }

    void olmoNeedsTheStateOfItsTrainer() {
        QCOMPARE(filesOf(lackingOf(stepOf({"config.yaml", "model.pt", "optim.pt", "train.pt"}, "step10"))),
                 std::string());
        QCOMPARE(filesOf(lackingOf(stepOf({"config.yaml", "model.pt", "optim.pt"}, "step10"))),
                 std::string("error train.pt;"));
    }

    // Files of three steps, each a text; "=" is what the step before has.
    static std::string staleOf(std::initializer_list<std::array<const char*, 4>> files,
                               const HeldByFile& held) {
        QTemporaryDir place;
        std::vector<StepOnDisk> steps;
        for (size_t s = 1; s <= 3; ++s) {
            const QString below = place.filePath(QString("checkpoint-%1").arg(s * 10));
            if (!QDir().mkpath(below)) qFatal("no directory");
            for (const auto& names : files) {
                size_t from = s;
                while (names[from] == std::string_view("="))
                    --from;
                if (names[from] == std::string_view("-")) continue;
                const QString name = QString(names[0]).replace("{}", QString::number(s * 10));
                if (!QDir().mkpath(QFileInfo(below + '/' + name).path())) qFatal("no directory");
                QFile file(below + '/' + name);
                if (!file.open(QIODevice::WriteOnly) ||
                    file.write(QByteArray(names[from]).repeated(30'000)) < 0)
                    qFatal("no file");
            }
            std::shared_ptr<const Directory> directory =
                systemFileSystem()->openDirectory(below.toStdString()).value();
            StepContents contents = listContents(*directory, "").value();
            contents.name = QFileInfo(below).fileName().toStdString();
            steps.insert(steps.begin(), {std::move(directory), std::move(contents)});
        }
        if (steps.back().contents.files.empty()) steps.pop_back();
        return filesWithRules(staleFileNotes(steps[0], held, contractOf(steps[0].contents),
                                             std::span(steps).subspan(1), StopToken())
                                  .value());
    }
    static std::string filesWithRules(const std::vector<Note>& notes) {
        std::string all;
        for (const Note& note : notes)
            all += note.rule + ' ' + note.file + ';';
        return all;
    }
    void aFileOfAnEarlierStepShows() {
        const HeldByFile held{
            {"model.pt", {true, false}},    {"vision.pt", {true, false}},
            {"optim.pt", {false, true}},    {"global_step30/zero_pp_rank_30.pt", {false, true}},
            {"__0_0.distcp", {true, true}}, {"__1_0.distcp", {true, true}}};
        // A run that goes on.
        QCOMPARE(staleOf({{"model.pt", "1", "2", "3"}, {"optim.pt", "a", "b", "c"}}, held), std::string());
        QCOMPARE(staleOf({{"model.pt", "1", "2", "3"}, {"optim.pt", "a", "b", "="}}, held),
                 std::string("save.mixed optim.pt;"));
        QCOMPARE(staleOf({{"model.pt", "1", "2", "="}, {"optim.pt", "a", "b", "c"}}, held),
                 std::string("save.mixed model.pt;"));
        QCOMPARE(staleOf({{"__0_0.distcp", "1", "2", "="}, {"__1_0.distcp", "a", "b", "c"}}, held),
                 std::string("save.mixed __0_0.distcp;"));
        // The number of the step in a path changes with it; the rank does not.
        QCOMPARE(
            staleOf({{"global_step{}/zero_pp_rank_{}.pt", "1", "2", "="}, {"model.pt", "a", "b", "c"}}, held),
            std::string("save.mixed global_step30/zero_pp_rank_30.pt;"));
        // Frozen parts of a model, and a model that a frozen optimizer belongs to, never change.
        QCOMPARE(
            staleOf({{"vision.pt", "1", "=", "="}, {"model.pt", "1", "2", "3"}, {"optim.pt", "a", "b", "c"}},
                    held),
            std::string());
        QCOMPARE(staleOf({{"optim.pt", "1", "=", "="}, {"model.pt", "1", "2", "3"}}, held), std::string());
        // Groups of parameters alone need not change.
        QCOMPARE(staleOf({{"optimizer.pt", "1", "2", "="}, {"model.pt", "1", "2", "3"}}, held),
                 std::string());
        // Of the step before the last.
        QCOMPARE(staleOf({{"optim.pt", "1", "2", "1"}, {"model.pt", "1", "2", "3"}}, held),
                 std::string("save.mixed optim.pt;"));
        QCOMPARE(staleOf({{"optim.pt", "1", "2", "1"}, {"model.pt", "a", "b", "a"}}, held), std::string());
        // A copy of a whole step agrees with itself.
        QCOMPARE(staleOf({{"model.pt", "1", "2", "="}, {"optim.pt", "a", "b", "="}}, held), std::string());
        // One that is not, by a file that nothing is known of, or by the directory of another one.
        const HeldByFile one{{"model_and_optim/__0_0.distcp", {true, true}}};
        QCOMPARE(staleOf({{"model_and_optim/__0_0.distcp", "1", "2", "="}, {"rank0.pt", "a", "b", "c"}}, one),
                 std::string("save.mixed model_and_optim/__0_0.distcp;"));
        QCOMPARE(staleOf({{"model_and_optim/__0_0.distcp", "1", "2", "3"}, {"train/rank0.pt", "a", "b", "="}},
                         one),
                 std::string("save.mixed train/rank0.pt;"));
        QCOMPARE(
            staleOf({{"model_and_optim/__0_0.distcp", "1", "2", "="}, {"train.log", "a", "b", "c"}}, one),
            std::string());
        // Random states stand still in a run that draws no numbers; a doubt where they moved before.
        QCOMPARE(staleOf({{"model.pt", "1", "2", "3"}, {"rng.pt", "a", "b", "="}}, held),
                 std::string("file.stale rng.pt;"));
        QCOMPARE(staleOf({{"model.pt", "1", "2", "3"}, {"rng.pt", "a", "=", "="}}, held), std::string());
        // Trainer steps its scheduler with each step; others may do so once for an epoch.
        QCOMPARE(staleOf({{"model.pt", "1", "2", "3"}, {"scheduler.pt", "a", "b", "="}}, held),
                 std::string("file.stale scheduler.pt;"));
        QCOMPARE(staleOf({{"model.pt", "1", "2", "3"},
                          {"scheduler.pt", "a", "b", "="},
                          {"training_args.bin", "x", "=", "="}},
                         held),
                 std::string("save.mixed scheduler.pt;"));
    }
    void oneEarlierStepTellsLess() {
        const HeldByFile held{
            {"model.pt", {true, false}}, {"vision.pt", {true, false}}, {"optim.pt", {false, true}}};
        QCOMPARE(staleOf({{"model.pt", "-", "2", "3"}, {"optim.pt", "-", "b", "="}}, held),
                 std::string("save.mixed optim.pt;"));
        QCOMPARE(staleOf({{"model.pt", "-", "2", "="}, {"optim.pt", "-", "b", "c"}}, held), std::string());
        QCOMPARE(
            staleOf({{"vision.pt", "-", "2", "="}, {"model.pt", "-", "2", "3"}, {"optim.pt", "-", "b", "c"}},
                    held),
            std::string());
        QCOMPARE(staleOf({{"model.pt", "-", "2", "3"}, {"rng.pt", "-", "b", "="}}, held), std::string());
        // Weights that an optimizer has moments of change with them.
        const HeldByFile trained{
            {"model.pt", {true, false, true}}, {"vision.pt", {true, false}}, {"optim.pt", {false, true}}};
        const auto oneIsOld = [&](const char* model, const char* vision, const char* optimizer) {
            return staleOf({{"model.pt", "-", "2", model},
                            {"vision.pt", "-", "v", vision},
                            {"optim.pt", "-", "b", optimizer},
                            {"rng.pt", "-", "x", "y"}},
                           trained);
        };
        QCOMPARE(oneIsOld("=", "w", "c"), std::string("file.stale model.pt;"));
        QCOMPARE(oneIsOld("3", "=", "c"), std::string());
        QCOMPARE(oneIsOld("=", "=", "="), std::string("save.mixed optim.pt;"));
        // Ranks have the numbers of steps, in a copy of a whole step.
        const HeldByFile ranks{
            {"__0_0.distcp", {true, true}}, {"__20_0.distcp", {true, true}}, {"__30_0.distcp", {true, true}}};
        QCOMPARE(staleOf({{"__0_0.distcp", "-", "a", "="},
                          {"__20_0.distcp", "-", "b", "="},
                          {"__30_0.distcp", "-", "c", "="}},
                         ranks),
                 std::string());
    }

    void contentsAreWhatNamesSay() {
        QTemporaryDir place;
        const auto write = [&](const char* name, const QByteArray& bytes) {
            QFile file(place.filePath(name));
            QVERIFY(file.open(QIODevice::WriteOnly) && file.write(bytes) == bytes.size());
        };
        write("state.json", "{\"step\": 1");
        write("config.json", "{}");
        write("notes.json", "half {");
        write("scheduler.pt", QByteArray(1400, '\0'));
        write("sampler.bin", QByteArray("PK\x03\x04 and then nothing"));
        write("data.pkl", QByteArray("\x80\x04\x95 and then nothing"));
        write("weights.raw", QByteArray(100, '\0'));
        const auto directory = systemFileSystem()->openDirectory(place.path().toStdString()).value();
        StepContents step = listContents(*directory, "").value();
        const auto none = [](const std::string&) -> Status { return unsupported("no format"); };
        const auto notes = contentNotes(*directory, step, contractOf(step), {}, none, StopToken()).value();
        QCOMPARE(filesOf(notes), std::string("error data.pkl;warning notes.json;error sampler.bin;"
                                             "error scheduler.pt;error state.json;"));
    }

    void momentsHaveTheShapeOfTheirParameter() {
        using enum Role;
        QCOMPARE(rulesOf(agreementNotes(catalogOf({{"w", {8, 6}, parameter},
                                                   {"optimizer.state.w.exp_avg", {8, 6}, optimizer},
                                                   {"optimizer.state.w.exp_avg_sq", {8, 6}, optimizer}}))),
                 std::string());
        QCOMPARE(rulesOf(agreementNotes(catalogOf(
                     {{"w", {8, 6}, parameter}, {"optimizer.state.w.exp_avg", {4, 6}, optimizer}}))),
                 std::string("state.differs optimizer.state.w.exp_avg;"));
        // Factored states and padding are no loss.
        QCOMPARE(rulesOf(agreementNotes(catalogOf({{"w", {8, 6}, parameter},
                                                   {"optimizer.state.w.exp_avg_sq_row", {8}, optimizer},
                                                   {"optimizer.state.w.exp_avg", {7, 6}, optimizer}}))),
                 std::string());
    }
    void statesOfOneParameterAgree() {
        using enum Role;
        const auto notes = agreementNotes(catalogOf({{"w", {8, 6}, parameter},
                                                     {"o.state.0.exp_avg", {4, 8}, optimizer},
                                                     {"o.state.0.exp_avg_sq", {4, 12}, optimizer}}));
        QVERIFY(rulesOf(notes).find("state.differs") != std::string::npos);
        QCOMPARE(rulesOf(agreementNotes(catalogOf({{"a", {2}, parameter},
                                                   {"b", {2}, parameter},
                                                   {"o.state.a.exp_avg", {2}, optimizer},
                                                   {"o.state.a.exp_avg_sq", {2}, optimizer},
                                                   {"o.state.b.exp_avg", {2}, optimizer}}))),
                 std::string("state.missing o.state.b.exp_avg;"));
    }
    void statesBelongToTheGroupsOfTheirOptimizer() {
        const auto rules = [](std::initializer_list<int64_t> listed) {
            CatalogBuilder builder("torch", "", "");
            for (const char* name : {"optim.state.0.exp_avg", "optim.state.1.exp_avg"})
                addTensor(builder, name, {4}, Role::optimizer);
            addGroups(builder, "optim.param_groups", listed);
            return rulesOf(agreementNotes(std::move(builder).finish()));
        };
        QCOMPARE(rules({0, 1}), std::string());
        QCOMPARE(rules({0, 1, 2}), std::string());  // one without gradients
        QCOMPARE(rules({0}), std::string("state.differs optim.state.1.exp_avg;"));
    }
    void ranksAgreeOnTheStepOfTheirSchedulers() {
        const auto rules = [](std::initializer_list<int64_t> epochs) {
            CatalogBuilder builder("torch-ranks", "", "");
            for (const int64_t epoch : epochs) {
                ValueGraph graph;
                const NodeId inner = graph.addContainer(
                    ValueKind::dict, {graph.addText(ValueKind::text, "last_epoch"), graph.addInteger(epoch)});
                const NodeId root =
                    graph.addContainer(ValueKind::dict, {graph.addText(ValueKind::text, "scheduler"), inner});
                FileInfo file;
                file.path = "extra_" + std::to_string(builder.fileCount());
                ObjectInfo object;
                object.name = "extra_state.rank_" + std::to_string(builder.fileCount()) + ".lr";
                object.file = builder.addFile(file);
                object.value = makeValue(std::move(graph), root);
                builder.addObject(std::move(object));
            }
            return filesWithRules(agreementNotes(std::move(builder).finish()));
        };
        QCOMPARE(rules({7, 7, 7}), std::string());
        QCOMPARE(rules({7, 7, 5, 7}), std::string("save.mixed extra_2;"));
        QCOMPARE(rules({7, 9}), std::string("save.mixed extra_0;"));
    }
    void theOptimizerSaysWhatIsTrained() {
        using enum Role;
        const auto count = [](std::initializer_list<std::tuple<const char*, Dims, Role>> tensors) {
            return parametersInTraining(catalogOf(tensors)).size();
        };
        QCOMPARE(count({{"a", {4}, parameter}, {"b", {4}, parameter}, {"state.a.exp_avg", {4}, optimizer}}),
                 size_t{1});
        QCOMPARE(count({{"a", {4}, parameter}, {"b", {4}, parameter}, {"state.0.exp_avg", {4}, optimizer}}),
                 size_t{0});
        QCOMPARE(count({{"a", {4}, parameter}, {"state.0.exp_avg", {4}, optimizer}}), size_t{1});
    }
    void anOptimizerWithoutItsMomentsShows() {
        const auto lost = [](const char* setting, std::initializer_list<int64_t> listed, const char* tensor) {
            CatalogBuilder builder("torch", "", "");
            if (tensor) addTensor(builder, tensor, {4}, Role::optimizer);
            addGroups(builder, "optimizer.pt:param_groups", listed, setting);
            return lostMomentsNote(std::move(builder).finish()).has_value();
        };
        QVERIFY(lost("betas", {0, 1}, nullptr));
        QVERIFY(!lost("betas", {0, 1}, "optim.state.0.exp_avg"));
        QVERIFY(!lost("betas", {}, nullptr));
        // SGD without momentum keeps none.
        QVERIFY(!lost("lr", {0, 1}, nullptr));
    }
    void numberedStatesOfARankShow() {
        using enum Role;
        QCOMPARE(rulesOf(agreementNotes(catalogOf(
                     {{"w", {8, 6}, parameter}, {"optimizer.pt:state.0.exp_avg", {4, 6}, optimizer}}))),
                 std::string("state.differs optimizer.pt:state.0.exp_avg;"));
    }
    void placeholdersAreNoWeights() {
        using enum Role;
        QCOMPARE(rulesOf(agreementNotes(
                     catalogOf({{"q.lora_A.weight", {0}, parameter}, {"counts", {0}, parameter}}))),
                 std::string("state.missing q.lora_A.weight;"));
    }

    void theModelSaysHowLargeItIs() {
        using enum Role;
        const Catalog catalog = catalogOf({{"model.layers.0.w.weight", {4, 4}, parameter},
                                           {"model.layers.2.w.weight", {4, 4}, parameter},
                                           {"vision.layers.0.w.weight", {4, 4}, parameter},
                                           {"model.embed_tokens.weight", {8, 4}, parameter}});
        const auto sized = [&](const char* config) {
            return modelSizeNotes(modelSizeOf(nlohmann::json::parse(config)), "config.json", catalog);
        };
        const auto layers = sized(R"({"num_hidden_layers": 3})");
        QCOMPARE(layers.size(), size_t{1});
        QCOMPARE(layers[0].message, std::string("no tensor of layer 1, of which 'config.json' has 3"));
        QCOMPARE(rulesOf(sized(R"({"text_config": {"vocab_size": 16}})")),
                 std::string("expect.missing model.embed_tokens.weight;"));
        QCOMPARE(rulesOf(sized(R"({"vocab_size": 7})")), std::string());
        // A conversion is to write this model and nothing else.
        QCOMPARE(
            rulesOf(modelSizeNotes(modelSizeOf({{"num_hidden_layers", 1}, {"vocab_size", 7}}), "config.json",
                                   catalog, Counted::exactly)),
            std::string("expect.missing model.layers.2.w.weight;expect.missing model.embed_tokens.weight;"));
        QCOMPARE(rulesOf(sized(R"({"num_hidden_layers": 1000000000000})")), std::string());
        QCOMPARE(rulesOf(sized("[]")), std::string());
    }
    void theRouterSaysHowManyExpertsThereAre() {
        using enum Role;
        const auto notes = modelSizeNotes({}, "",
                                          catalogOf({{"mlp.gate.weight", {4, 8}, parameter},
                                                     {"mlp.experts.0.up.weight", {2, 8}, parameter},
                                                     {"mlp.experts.1.up.weight", {2, 8}, parameter}}));
        QCOMPARE(notes.size(), size_t{1});
        QCOMPARE(notes[0].message, std::string("no tensor of expert 2, 3, the router chooses among 4"));
        const auto deepspeed = modelSizeNotes(
            {}, "",
            catalogOf({{"ffn.deepspeed_moe.gate.wg.weight", {3, 8}, parameter},
                       {"ffn.deepspeed_moe.experts.deepspeed_experts.0.w", {2, 8}, parameter},
                       {"ffn.deepspeed_moe.experts.deepspeed_experts.2.w", {2, 8}, parameter}}));
        QCOMPARE(deepspeed.size(), size_t{1});
        QCOMPARE(deepspeed[0].message, std::string("no tensor of expert 1, the router chooses among 3"));
    }
};

QTEST_GUILESS_MAIN(ExpectationTest)
#include "expectation_test.moc"
