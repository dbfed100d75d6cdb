#include <QTest>

#include "model/tp_layers.h"
#include "plan/plan.h"
#include "plan/request_text.h"
#include "plan/shard_preset.h"
#include "plan/steps.h"

using namespace shardscope;

namespace {

Catalog sample() {
    CatalogBuilder builder("dcp", "", "");
    const FileId file = builder.addFile({"f", 1 << 20, FileInfo::State::present, false, 0, true});
    const auto add = [&](const char* name, Path path, Dims shape, Role role, TensorId alias = kNone) {
        TensorInfo info;
        info.name = name;
        info.path = std::move(path);
        info.shape = std::move(shape);
        info.role = role;
        info.aliasOf = alias;
        QVERIFY(builder.addTensor(info).ok());
        QVERIFY(builder.addWhole(0, file, 0, 0).ok());
    };
    add("model.w", {keyPart("model"), keyPart("w")}, {5, 4}, Role::parameter);
    add("model.layers.0.b", {keyPart("model"), keyPart("layers.0.b")}, {6}, Role::parameter);
    add("model.tied", {keyPart("model"), keyPart("tied")}, {5, 4}, Role::parameter, 0);
    add("optim.state.w.exp_avg", {keyPart("optim"), keyPart("state"), keyPart("w"), keyPart("exp_avg")},
        {5, 4}, Role::optimizer);
    ObjectInfo object;
    object.name = "optim.param_groups.0.lr";
    object.path = {keyPart("optim"), keyPart("param_groups"), indexPart(0), keyPart("lr")};
    builder.addObject(object);
    object.name = "step";
    object.path = {keyPart("step")};
    builder.addObject(object);
    return std::move(builder).finish();
}

Result<TargetSpec> spec(const Catalog& source, const TargetRequest& request, const Catalog* like = nullptr) {
    TargetInput input;
    input.source = &source;
    input.like = like;
    input.format = "dcp";
    input.objectValue = [](ObjectId) -> Result<Value> { return makeIntegerValue(1); };
    return resolveTarget(input, request);
}

}  // namespace

class TargetSpecTest : public QObject {
    Q_OBJECT

  private slots:
    // A number that does not fit was taken for 0.
    void shardRulesThatAreWrong() {
        QCOMPARE(parseShardRule("a*:tp=0,dp=-1").value().axisDims.size(), size_t{2});
        for (const char* text : {"*", "*:", ":tp=0", "*:tp", "*:tp=", "*:tp=x", "*:tp=0x", "*:tp=4294967296",
                                 "*:tp=99999999999999999999", "*:tp=0,,dp=1"})
            QVERIFY2(!parseShardRule(text).ok(), text);
    }
    // One word for what frameworks do; both together come to the same in either order.
    void presetsAreRules() {
        const auto rules = [](std::initializer_list<std::string_view> texts) {
            std::vector<ShardRule> made;
            for (const std::string_view text : texts) {
                if (!addShardRule(made, text).ok()) return std::vector<ShardRule>();
            }
            return made;
        };
        const auto dimsOf = [](const std::vector<ShardRule>& made, const std::string& name) {
            for (const ShardRule& rule : made) {
                if (NamePattern::parse(rule.pattern)->matches(name))
                    return QString::fromStdString(formatShardRule(rule).substr(rule.pattern.size()));
            }
            return QString();
        };
        const auto tp = rules({"tensor-parallel:mp"});
        for (const TpLayer& layer : tpLayers()) {
            // Names that are known in files of ranks alone may be those of transposed weights elsewhere.
            const bool inRules = tpCut(layer.module, kAnyNaming).has_value();
            const bool columns = layer.cut == TpCut::columns;
            const QString shards = !inRules ? QString() : columns ? ":mp=1" : ":mp=0";
            const std::string name = "model.layers.3." + std::string(layer.module);
            QCOMPARE(dimsOf(tp, name + ".weight"), shards);
            QCOMPARE(dimsOf(tp, "optimizer.state." + name + ".weight.exp_avg"), shards);
            QCOMPARE(dimsOf(tp, name + ".bias"), columns ? QString() : shards);
            QCOMPARE(layer.cut, tpCut(layer.module, static_cast<TpNaming>(layer.naming)));
        }
        QCOMPARE(dimsOf(tp, "model.layers.3.input_layernorm.weight"), QString());
        const auto both = rules({"tensor-parallel", "fsdp:shard"}),
                   other = rules({"fsdp:shard", "tensor-parallel"});
        for (const auto* made : {&both, &other}) {
            QCOMPARE(dimsOf(*made, "layers.0.wo.weight"), QString(":tp=1,shard=0"));
            QCOMPARE(dimsOf(*made, "layers.0.wq.weight"), QString(":tp=0,shard=0"));
            QCOMPARE(dimsOf(*made, "norm.weight"), QString(":shard=0"));
        }
        // Rules that stand first win; fsdp is on top of them.
        QCOMPARE(dimsOf(rules({"*.wq.*:tp=1", "tensor-parallel", "fsdp"}), "layers.0.wq.weight"),
                 QString(":tp=1,dp=0"));
        for (const char* wrong : {"tensor-parallel:", "fsdp:a,b", "ddp"})
            QVERIFY2(rules({wrong}).empty(), wrong);
    }
    void wholeByDefault() {
        const Catalog source = sample();
        const auto w = spec(source, {});
        QVERIFY(w.ok());
        QCOMPARE(w->target.tensorCount(), size_t{4});
        QCOMPARE(w->target.chunkCount(), size_t{4});
        QCOMPARE(w->target.objects().size(), size_t{2});
        QCOMPARE(w->target.aliasOf(2), 0U);
        QVERIFY(w->leftOut.empty() && w->impossible.empty() && w->excluded.empty());
    }

    // What a format wants beside: a master that is a cast copy, and a tied name that is a tensor of its own.
    void copiesForTheFormat() {
        const Catalog source = sample();
        TargetInput input;
        input.source = &source;
        input.format = "dcp";
        input.objectValue = [](ObjectId) -> Result<Value> { return makeIntegerValue(1); };
        input.copies = {
            {{keyPart("master"), keyPart("w")}, "model.w", DType::float64, Role::optimizer, "a copy"},
            {{keyPart("master"), keyPart("x")}, "model.x", DType::float64, Role::optimizer, ""}};
        input.apart = {"model.tied"};
        const auto w = resolveTarget(input, {});
        QVERIFY(w.ok());
        QCOMPARE(w->target.tensorCount(), size_t{5});
        QCOMPARE(w->target.aliasOf(2), kNone);
        const TensorId copy = w->target.find("master.w");
        QVERIFY(copy != kNone);
        QCOMPARE(w->target.dtype(copy), DType::float64);
        QCOMPARE(w->target.aliasOf(copy), kNone);
        QCOMPARE(w->sources[copy].source, 0U);
        QCOMPARE(w->made.size(), size_t{1});
    }

    void weightsOnlyGoesByRoles() {
        const Catalog source = sample();
        TargetRequest request;
        request.weightsOnly = true;
        const auto w = spec(source, request);
        QVERIFY(w.ok());
        QCOMPARE(w->target.tensorCount(), size_t{3});
        QCOMPARE(w->target.objects().size(), size_t{1});
        QCOMPARE(w->target.objects()[0].name, std::string("step"));
        QCOMPARE(w->excluded.size(), size_t{2});
    }

    void whatIsDamagedStaysOut() {
        const Catalog source = sample();
        TargetInput input;
        input.source = &source;
        input.format = "dcp";
        input.objectValue = [](ObjectId) -> Result<Value> { return makeIntegerValue(1); };
        input.damaged = [](TensorId t) { return std::string(t == 1 ? "short" : ""); };
        const auto w = resolveTarget(input, {});
        QVERIFY(w.ok());
        QCOMPARE(w->target.tensorCount(), size_t{3});
        QCOMPARE(w->leftOut.size(), size_t{1});
        QCOMPARE(w->leftOut[0].name, std::string("model.layers.0.b"));
    }

    // Which tensor gives the values, and in which dtype.
    void mastersGiveTheValues_data() {
        QTest::addColumn<int>("how");
        QTest::addColumn<QString>("cast");
        QTest::addColumn<bool>("fromMaster");
        QTest::addColumn<QString>("dtype");
        const auto row = [](const char* name, MasterWeights how, const char* cast, bool from,
                            const char* dtype) {
            QTest::newRow(name) << static_cast<int>(how) << cast << from << dtype;
        };
        row("as stored", MasterWeights::automatic, "", false, "bfloat16");
        row("wider", MasterWeights::automatic, "*=float32", true, "float32");
        row("more significant bits", MasterWeights::automatic, "*=float16", true, "float16");
        row("narrower", MasterWeights::automatic, "*=float8_e5m2", false, "float8_e5m2");
        row("always", MasterWeights::use, "", true, "float32");
        row("always, rounded", MasterWeights::use, "*=bfloat16", true, "bfloat16");
        row("never", MasterWeights::ignore, "*=float32", false, "float32");
    }
    void mastersGiveTheValues() {
        QFETCH(int, how);
        QFETCH(QString, cast);
        QFETCH(bool, fromMaster);
        QFETCH(QString, dtype);
        CatalogBuilder builder("dcp", "", "");
        const FileId file = builder.addFile({"f", 1 << 20, FileInfo::State::present, false, 0, true});
        for (const bool master : {false, true}) {
            TensorInfo info;
            info.name = master ? "optimizer.state.w.fp32" : "w";
            info.path = {keyPart(info.name)};
            info.shape = {4};
            info.dtype = master ? DType::float32 : DType::bfloat16;
            info.role = master ? Role::optimizer : Role::parameter;
            QVERIFY(builder.addTensor(info).ok() && builder.addWhole(0, file, 0, 0).ok());
        }
        const Catalog source = std::move(builder).finish();
        TargetInput input;
        input.source = &source;
        input.format = "dcp";
        if (static_cast<MasterWeights>(how) != MasterWeights::ignore) input.masters = {1, kNone};
        TargetRequest request;
        request.masterWeights = static_cast<MasterWeights>(how);
        if (!cast.isEmpty()) request.cast = {parseCastRule(cast.toStdString()).value()};
        request.weightsOnly = true;
        const auto w = resolveTarget(input, request);
        QVERIFY(w.ok());
        QCOMPARE(w->target.tensorCount(), size_t{1});
        QCOMPARE(w->sources[0].source, fromMaster ? 1U : 0U);
        QCOMPARE(QString::fromStdString(std::string(dtypeName(w->target.dtype(0)))), dtype);
        QCOMPARE(w->fromMasters.size(), size_t{fromMaster});
    }

    void meshPlacesWithTorchsRule() {
        const Catalog source = sample();
        TargetRequest request;
        request.mesh = *parseMesh("dp=2,tp=2");
        request.shard = {{"model.w", {{"tp", 0}, {"dp", 1}}}, {"*b", {{"dp", 0}, {"tp", 7}}}};
        const auto w = spec(source, request);
        QVERIFY(w.ok());
        // dp comes first in the mesh: columns in two, then rows 3 + 2 over tp.
        QCOMPARE(w->target.endChunk(0) - w->target.firstChunk(0), 4U);
        const ChunkInfo last = w->target.chunk(0, 3);
        QCOMPARE(Dims(last.offsets.begin(), last.offsets.end()), (Dims{3, 2}));
        QCOMPARE(Dims(last.lengths.begin(), last.lengths.end()), (Dims{2, 2}));
        QCOMPARE(last.rank, 3U);
        // A dimension that the tensor lacks leaves it replicated over that axis, stored once.
        QCOMPARE(w->target.endChunk(1) - w->target.firstChunk(1), 2U);
        QCOMPARE(w->target.rankCount(), 4U);
        // The tied name follows the one that carries the storage.
        QCOMPARE(w->target.endChunk(2) - w->target.firstChunk(2), 4U);
    }

    void emptyPiecesAreLeftOut() {
        const Catalog source = sample();
        TargetRequest request;
        request.mesh = *parseMesh("x=4");
        request.shard = {{"*", {{"x", 0}}}};
        const auto w = spec(source, request);
        QVERIFY(w.ok());
        QCOMPARE(w->target.endChunk(0) - w->target.firstChunk(0), 3U);  // 5 rows over 4: 2, 2, 1, 0
    }

    void stagesPinACoordinate() {
        const Catalog source = sample();
        TargetRequest request;
        request.mesh = *parseMesh("pp=2,tp=2");
        request.stage = {{"model.w", "pp", 1}};
        request.shard = {{"model.w", {{"tp", 0}}}};
        const auto w = spec(source, request);
        QVERIFY(w.ok());
        QCOMPARE(w->target.chunk(0, 0).rank, 2U);
        QCOMPARE(w->target.chunk(0, 1).rank, 3U);
    }

    void renamingKeepsWhatItCanOfThePath() {
        const Catalog source = sample();
        TargetRequest request;
        request.rename = {{"^model\\.", ""}, {"^optim\\.", "opt.inner."}};
        const auto w = spec(source, request);
        QVERIFY(w.ok());
        QVERIFY((w->target.path(1) == Path{keyPart("layers.0.b")}));
        QVERIFY((w->target.path(3) ==
                 Path{keyPart("opt"), keyPart("inner"), keyPart("state"), keyPart("w"), keyPart("exp_avg")}));
        request.rename = {{".*", "one"}};
        const auto clash = spec(source, request);
        QVERIFY(clash.ok());
        QVERIFY(!clash->impossible.empty());
    }

    void likeNamesWhatIsMissing() {
        const Catalog source = sample();
        CatalogBuilder builder("dcp", "", "");
        TensorInfo info;
        info.name = "model.w";
        info.shape = {5, 4};
        QVERIFY(builder.addTensor(info).ok());
        const Dims zero{0, 0}, top{2, 4}, low{2, 0}, rest{3, 4};
        QVERIFY(builder.addChunk({0, kNone, 0, 0, zero, top, std::nullopt}).ok());
        QVERIFY(builder.addChunk({5, kNone, 0, 0, low, rest, std::nullopt}).ok());
        info.name = "only.there";
        QVERIFY(builder.addTensor(info).ok());
        const Catalog like = std::move(builder).finish();
        const auto w = spec(source, {}, &like);
        QVERIFY(w.ok());
        QCOMPARE(w->target.tensorCount(), size_t{1});
        QCOMPARE(w->target.chunk(0, 1).rank, 5U);
        QCOMPARE(w->leftOut.size(), size_t{3});
        QCOMPARE(w->impossible.size(), size_t{1});
    }

    void usageErrors() {
        const Catalog source = sample();
        TargetRequest request;
        request.shard = {{"*", {{"tp", 0}}}};
        QVERIFY(spec(source, request).error().code == ErrorCode::usage);
        request.mesh = *parseMesh("dp=2");
        QVERIFY(spec(source, request).error().code == ErrorCode::usage);
        request.shard.clear();
        request.stage = {{"*", "dp", 2}};
        QVERIFY(spec(source, request).error().code == ErrorCode::usage);
        request.stage.clear();
        request.rename = {{"(", ""}};
        QVERIFY(spec(source, request).error().code == ErrorCode::usage);
    }
};

QTEST_GUILESS_MAIN(TargetSpecTest)
#include "target_spec_test.moc"
