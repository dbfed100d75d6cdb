#include "ui/models/conversion_spec.h"

#include <QSaveFile>
#include <type_traits>

#include "cluster/coordinator.h"
#include "cluster/worker_list.h"
#include "plan/request_text.h"
#include "plan/shard_preset.h"
#include "plan/steps.h"
#include "ui/bridge/hosts.h"
#include "ui/models/texts.h"

namespace shardscope::ui {

namespace {

std::vector<std::string> strings(const QStringList& list) {
    std::vector<std::string> out;
    for (const QString& text : list)
        out.push_back(text.toStdString());
    return out;
}

QStringList texts(const std::vector<std::string>& list) {
    QStringList out;
    for (const std::string& text : list)
        out += QString::fromStdString(text);
    return out;
}

// Calls use(here, there) for each field that both have under one name, which is all but the source's options.
template <class Spec, class Request, class Use>
void forEachField(Spec& spec, Request& request, Use&& use) {
    use(spec.source, request.source);
    use(spec.destination, request.destination);
    use(spec.format, request.format);
    use(spec.variant, request.variant);
    use(spec.maxFileSize, request.maxFileSize);
    use(spec.select, request.select);
    use(spec.exclude, request.exclude);
    use(spec.weightsOnly, request.weightsOnly);
    use(spec.masterWeights, request.masterWeights);
    use(spec.skipDamaged, request.skipDamaged);
    use(spec.rename, request.rename);
    use(spec.cast, request.cast);
    use(spec.dequantize, request.dequantize);
    use(spec.adapter, request.adapter);
    use(spec.map, request.map);
    use(spec.set, request.set);
    use(spec.expect, request.expect);
    use(spec.average, request.average);
    use(spec.weights, request.weights);
    use(spec.rawWeights, request.rawWeights);
    use(spec.accumulate, request.accumulate);
    use(spec.notAveraged, request.notAveraged);
    use(spec.averageOptimizer, request.averageOptimizer);
    use(spec.objectsFile, request.objectsFile);
    use(spec.assets, request.assets);
    use(spec.strict, request.strict);
    use(spec.fillGaps, request.fillGaps);
    use(spec.mesh, request.mesh);
    use(spec.shard, request.shard);
    use(spec.stage, request.stage);
    use(spec.like, request.like);
    use(spec.split, request.split);
    use(spec.verify, request.verify);
    use(spec.where, request.on);
    use(spec.backend, request.backend);
    use(spec.compute, request.compute);
    use(spec.ownDisks, request.ownDisks);
    use(spec.threads, request.threads);
    use(spec.memory, request.memory);
    use(spec.io, request.io);
    use(spec.overwrite, request.overwrite);
    use(spec.resume, request.resume);
    use(spec.unguarded, request.unguarded);
}

}  // namespace

ConversionRequest ConversionSpec::toRequest() const {
    ConversionRequest request;
    if (auto how = options.opening(); how.ok()) request.opening = *std::move(how);
    forEachField(*this, request, [](const auto& here, auto& there) {
        using Here = std::decay_t<decltype(here)>;
        if constexpr (std::is_same_v<Here, QString>)
            there = here.toStdString();
        else if constexpr (std::is_same_v<Here, QStringList>)
            there = strings(here);
        else
            there = here;
    });
    return request;
}

ConversionSpec ConversionSpec::fromRequest(const ConversionRequest& request) {
    ConversionSpec spec;
    spec.options = SourceOptions::fromWords(texts(openingWords(request.opening)));
    forEachField(spec, request, [](auto& here, const auto& there) {
        using Here = std::decay_t<decltype(here)>;
        if constexpr (std::is_same_v<Here, QString>)
            here = QString::fromStdString(there);
        else if constexpr (std::is_same_v<Here, QStringList>)
            here = texts(there);
        else
            here = there;
    });
    spec.shard.clear();
    for (const ShardRule& rule : editableShardRules(request.shard))
        spec.shard += toQString(formatShardRule(rule));
    return spec;
}

QString exactSizeText(uint64_t bytes) {
    return QString::fromStdString(exactBytesText(bytes));
}

ConversionRequest ConversionSpec::toJob() const {
    ConversionRequest request = toRequest();
    for (std::string* path : {&request.source, &request.destination, &request.objectsFile})
        if (!path->empty()) *path = there(QString::fromStdString(*path)).toStdString();
    for (std::string& path : request.average)
        path = there(QString::fromStdString(path)).toStdString();
    return request;
}

QStringList ConversionSpec::arguments() const {
    return texts(convertWords(toJob()));
}

Status checkWhere(const QString& where) {
    if (where.isEmpty()) return {};
    SHARDSCOPE_TRY(workersOfJob(where.toStdString()));
    return {};
}

QString ConversionSpec::there(const QString& path) const {
    return host.isEmpty() ? path : "ssh://" + host + path;
}

QString ConversionSpec::commandLine() const {
    const QString program = QStringLiteral("shardscope");
    if (!where.isEmpty()) {
        ConversionSpec words = *this;
        words.where.clear();
        return shellLine(QStringList{program, "jobs", "run", "--on", where} + words.arguments());
    }
    return shellLine(QStringList{program} + arguments());
}

QString ConversionSpec::partsCommandLine() const {
    ConversionSpec words = *this;
    // On its own hosts, which have all paths; a part that stopped continues by itself.
    words.where.clear();
    words.host.clear();
    words.leaveRanks();
    words.resume = false;
    return shellLine(QStringList{QStringLiteral("shardscope")} + words.arguments() +
                     QStringList{QStringLiteral("--part"), QStringLiteral("auto"), QStringLiteral("--finish"),
                                 QStringLiteral("auto")});
}

Result<ConversionRequest> ConversionSpec::toCheckedRequest() const {
    SHARDSCOPE_TRY(checkWhere(where));
    ConversionRequest request = toRequest();
    auto target = targetRequest(request);
    if (!target.ok()) return std::move(target).error();
    return request;
}

Status ConversionSpec::saveRecipe(const QString& path) const {
    SHARDSCOPE_ASSIGN(const std::string recipe, recipeJson(toRequest()));
    QSaveFile file(path);
    if (!file.open(QIODevice::WriteOnly) || file.write(QByteArray::fromStdString(recipe)) < 0 ||
        !file.commit())
        return makeError(ErrorCode::io, "cannot write the recipe: " + file.errorString().toStdString())
            .inFile(path.toStdString());
    return {};
}

Result<ConversionSpec> ConversionSpec::loadRecipe(const QString& path) {
    SHARDSCOPE_ASSIGN(const ConversionRequest request, requestFromRecipe(path.toStdString()));
    ConversionSpec spec = fromRequest(request);
    if (Status status = checkWhere(spec.where); !status.ok())
        return std::move(status).error().inFile(path.toStdString());
    return spec;
}

}  // namespace shardscope::ui
