#include "ui/models/conversion_spec.h"

#include <QFileInfo>
#include <QJsonArray>
#include <QJsonDocument>
#include <QSaveFile>
#include <array>
#include <functional>
#include <utility>

#include "cluster/farm.h"
#include "engine/recipe.h"
#include "jobs/rank_places.h"
#include "plan/request_text.h"
#include "ui/bridge/hosts.h"
#include "ui/models/texts.h"

namespace shardscope::ui {

namespace {

template <class T>
using Names = std::array<std::pair<const char*, T>, 3>;

constexpr Names<SplitRule> kSplits{
    {{"torch", SplitRule::torch}, {"even", SplitRule::even}, {"paddle", SplitRule::paddle}}};
constexpr Names<FillGaps> kFills{
    {{"refuse", FillGaps::refuse}, {"nan", FillGaps::nan}, {"zero", FillGaps::zero}}};
constexpr Names<Verify> kVerifies{
    {{"digest", Verify::digest}, {"full", Verify::full}, {"none", Verify::none}}};
constexpr Names<IoMode> kIos{
    {{"auto", IoMode::automatic}, {"direct", IoMode::direct}, {"buffered", IoMode::buffered}}};

template <class T>
QString nameOf(const Names<T>& names, T value) {
    for (const auto& [name, v] : names) {
        if (v == value) return QString::fromLatin1(name);
    }
    return {};
}

Error wrong(const QString& message) {
    return makeError(ErrorCode::usage, message.toStdString()).withHint("docs/cli.md describes recipes");
}

// A word that cannot be mistaken for an option.
QString asPath(const QString& path) {
    return path.startsWith('-') ? "./" + path : path;
}

template <class T>
Status parseAll(const QStringList& texts, Result<T> (*parse)(std::string_view), std::vector<T>& out) {
    for (const QString& text : texts) {
        SHARDSCOPE_ASSIGN(T rule, parse(text.toStdString()));
        out.push_back(std::move(rule));
    }
    return {};
}

std::vector<std::string> strings(const QStringList& list) {
    std::vector<std::string> out;
    for (const QString& text : list)
        out.push_back(text.toStdString());
    return out;
}

// Reads the fields of an object that are there, and notices those that nobody asked for.
class Fields {
  public:
    Fields(const QJsonObject& object, QString prefix) : object_(object), prefix_(std::move(prefix)) {}

    void text(const char* key, QString& to) {
        if (const QJsonValue v = take(key); v.isString())
            to = v.toString();
        else if (!v.isUndefined())
            fail(key, QObject::tr("a text"));
    }
    void flag(const char* key, bool& to) {
        if (const QJsonValue v = take(key); v.isBool())
            to = v.toBool();
        else if (!v.isUndefined())
            fail(key, QObject::tr("true or false"));
    }
    void texts(const char* key, QStringList& to) {
        const QJsonValue v = take(key);
        if (v.isUndefined()) return;
        if (!v.isArray()) return fail(key, QObject::tr("a list"));
        for (const QJsonValue item : v.toArray()) {
            if (!item.isString()) return fail(key, QObject::tr("a list of texts"));
            to += item.toString();
        }
    }
    void bytes(const char* key, uint64_t& to) {
        QString text;
        this->text(key, text);
        if (text.isEmpty()) return;
        const auto size = parseBytes(text.toStdString());
        if (!size) return fail(key, QObject::tr("a size such as 512MiB"));
        to = *size;
    }
    template <class T>
    void choice(const char* key, const Names<T>& names, T& to) {
        QString text;
        this->text(key, text);
        if (text.isEmpty()) return;
        for (const auto& [name, value] : names) {
            if (text == QLatin1String(name)) {
                to = value;
                return;
            }
        }
        fail(key, QObject::tr("one of the values that the command line takes"));
    }
    void threads(unsigned& to) {
        const QJsonValue v = take("threads");
        if (v.isUndefined()) return;
        const int n = v.toInt(-1);
        if (n < 0 || n > 1024) return fail("threads", QObject::tr("a number from 0 to 1024"));
        to = static_cast<unsigned>(n);
    }
    QJsonValue take(const char* key) {
        seen_ += QString::fromLatin1(key);
        return object_.value(QLatin1String(key));
    }
    void fail(const char* key, const QString& wanted) {
        if (problem_.isEmpty())
            problem_ = QObject::tr("'%1%2' is not %3").arg(prefix_, QString::fromLatin1(key), wanted);
    }
    Status finish() const {
        if (!problem_.isEmpty()) return wrong(problem_);
        for (auto it = object_.begin(); it != object_.end(); ++it) {
            if (!seen_.contains(it.key()))
                return wrong(QObject::tr("'%1%2' is not known").arg(prefix_, it.key()));
        }
        return {};
    }

  private:
    const QJsonObject& object_;
    QString prefix_, problem_;
    QStringList seen_;
};

// Lists of {first: text, second: text} as "first=second". An equals sign before the separating one can only
// be kept in a regular expression, as an escape.
void pairs(Fields& fields, const char* key, const char* first, const char* second, bool escape,
           QStringList& to) {
    const QJsonValue v = fields.take(key);
    if (v.isUndefined()) return;
    if (!v.isArray()) return fields.fail(key, QObject::tr("a list"));
    for (const QJsonValue item : v.toArray()) {
        const QJsonObject object = item.toObject();
        QString from = object.value(QLatin1String(first)).toString();
        if (object.size() != 2 || !object.value(QLatin1String(first)).isString() ||
            !object.value(QLatin1String(second)).isString()) {
            return fields.fail(key, QObject::tr("a list of {\"%1\": text, \"%2\": text}")
                                        .arg(QString::fromLatin1(first), QString::fromLatin1(second)));
        }
        if (escape && from.contains('=')) {
            if (from.contains(QStringLiteral("(?=")))
                return fields.fail(
                    key,
                    QObject::tr("a list of rules that a command line can hold: one looks ahead with (?=…)"));
            from.replace('=', QStringLiteral("\\x3D"));
        }
        to += from + '=' + object.value(QLatin1String(second)).toString();
    }
}

}  // namespace

QString exactSizeText(uint64_t bytes) {
    constexpr std::array<std::pair<const char*, uint64_t>, 6> units{{{"GiB", uint64_t{1} << 30},
                                                                     {"GB", 1'000'000'000},
                                                                     {"MiB", uint64_t{1} << 20},
                                                                     {"MB", 1'000'000},
                                                                     {"KiB", 1024},
                                                                     {"KB", 1000}}};
    for (const auto& [unit, size] : units) {
        if (bytes && bytes % size == 0) return QString::number(bytes / size) + QLatin1String(unit);
    }
    return QString::number(bytes);
}

QStringList ConversionSpec::arguments() const {
    QStringList words;
    const auto ranks = parseRankPlaces(where.toStdString());
    if (ranks.ok() && *ranks) {
        for (const std::string& word : (*ranks)->words())
            words += QString::fromStdString(word);
    }
    const bool others = words.isEmpty();
    words << QStringLiteral("convert") << asPath(there(source)) << asPath(there(destination));
    // A value that begins with a dash must not be taken for an option.
    const auto option = [&](const char* name, const QString& value) {
        if (value.startsWith('-') || value.isEmpty())
            words += QLatin1String(name) + QStringLiteral("=") + value;
        else
            words << QString::fromLatin1(name) << value;
    };
    const auto one = [&](const char* name, const QString& value) {
        if (!value.isEmpty()) option(name, value);
    };
    const auto each = [&](const char* name, const QStringList& values) {
        for (const QString& value : values)
            option(name, value);
    };
    const auto flag = [&](const char* name, bool on) {
        if (on) words += QString::fromLatin1(name);
    };
    const ConversionSpec usual;
    words += options.words();
    one("--to", format);
    one("--variant", variant);
    if (maxFileSize) option("--max-file-size", exactSizeText(maxFileSize));
    each("--select", select);
    each("--exclude", exclude);
    flag("--weights-only", weightsOnly);
    each("--rename", rename);
    each("--dtype", cast);
    one("--map", map);
    each("--set", set);
    one("--objects", objectsFile.isEmpty() ? QString() : there(objectsFile));
    flag("--strict", strict);
    if (fillGaps != usual.fillGaps) option("--fill-gaps", nameOf(kFills, fillGaps));
    one("--mesh", mesh);
    each("--shard", shard);
    each("--stage", stage);
    one("--like", like);
    if (split != usual.split) option("--split", nameOf(kSplits, split));
    if (verify != usual.verify) option("--verify", nameOf(kVerifies, verify));
    if (others) one("--on", where);
    if (threads != usual.threads) option("--threads", QString::number(threads));
    if (memory != usual.memory) option("--memory", exactSizeText(memory));
    if (io != usual.io) option("--io", nameOf(kIos, io));
    flag("--overwrite", overwrite);
    flag("--resume", resume);
    return words;
}

Status checkWhere(const QString& where) {
    if (where.isEmpty()) return {};
    SHARDSCOPE_ASSIGN(const auto ranks, parseRankPlaces(where.toStdString()));
    if (ranks) return {};
    SHARDSCOPE_ASSIGN(const auto places, parsePlaces(where.toStdString()));
    (void)places;
    return {};
}

QString ConversionSpec::there(const QString& path) const {
    return host.isEmpty() ? path : "ssh://" + host + path;
}

bool wordsOfRanks(const QStringList& arguments) {
    return !arguments.isEmpty() && arguments.front().startsWith('-');
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

Result<ConvertSettings> ConversionSpec::toSettings() const {
    ConvertSettings settings;
    ConvertRequest& request = settings.request;
    request.format = format.toStdString();
    request.variant = variant.toStdString();
    request.select = strings(select);
    request.exclude = strings(exclude);
    request.weightsOnly = weightsOnly;
    SHARDSCOPE_TRY(parseAll(rename, parseRenameRule, request.rename));
    SHARDSCOPE_TRY(parseAll(cast, parseCastRule, request.cast));
    if (!mesh.isEmpty()) {
        SHARDSCOPE_ASSIGN(request.mesh, parseMesh(mesh.toStdString()));
    }
    SHARDSCOPE_TRY(parseAll(shard, parseShardRule, request.shard));
    SHARDSCOPE_TRY(parseAll(stage, parseStageRule, request.stage));
    request.split = split;
    request.maxFileSize = maxFileSize;
    request.strict = strict;
    request.fillGaps = fillGaps;
    SHARDSCOPE_TRY(checkWhere(where));
    settings.options.verify = verify;
    settings.options.resume = resume;
    settings.options.overwrite = overwrite;
    settings.like = like.toStdString();
    settings.map = map.toStdString();
    settings.set = strings(set);
    settings.memory = memory;
    settings.threads = threads;
    settings.io = io;
    settings.objectsFile = objectsFile.toStdString();
    return settings;
}

Result<QJsonObject> ConversionSpec::toJson() const {
    SHARDSCOPE_ASSIGN(const ConvertSettings settings, toSettings());
    QJsonObject recipe{{"schema", "shardscope.recipe/1"}};
    const auto list = [](QJsonObject& object, const char* key, const QStringList& values) {
        if (!values.isEmpty()) object.insert(QLatin1String(key), QJsonArray::fromStringList(values));
    };
    list(recipe, "select", select);
    list(recipe, "drop", exclude);
    QJsonArray renames, casts;
    for (const RenameRule& rule : settings.request.rename)
        renames +=
            QJsonObject{{"from", QString::fromStdString(rule.from)}, {"to", QString::fromStdString(rule.to)}};
    // Dtypes stay as they were written, which toSettings() has found to be well formed.
    for (const QString& rule : cast) {
        const qsizetype equals = rule.lastIndexOf('=');
        casts += QJsonObject{{"tensors", rule.left(equals)}, {"dtype", rule.mid(equals + 1)}};
    }
    if (!renames.isEmpty()) recipe.insert("rename", renames);
    if (!casts.isEmpty()) recipe.insert("cast", casts);
    if (!parameters.isEmpty()) recipe.insert("parameters", parameters);
    if (!steps.isEmpty()) recipe.insert("steps", steps);

    const ConversionSpec usual;
    QJsonObject job;
    const auto text = [&](const char* key, const QString& value, const QString& common = {}) {
        if (value != common) job.insert(QLatin1String(key), value);
    };
    const auto flag = [&](const char* key, bool on) {
        if (on) job.insert(QLatin1String(key), true);
    };
    text("source", source);
    text("destination", destination);
    list(job, "source_options", options.words());
    text("format", format);
    text("variant", variant);
    flag("weights_only", weightsOnly);
    text("mesh", mesh);
    list(job, "shard", shard);
    list(job, "stage", stage);
    text("split", nameOf(kSplits, split), nameOf(kSplits, usual.split));
    text("like", like);
    text("map", map);
    list(job, "set", set);
    if (maxFileSize) text("max_file_size", exactSizeText(maxFileSize));
    flag("strict", strict);
    text("fill_gaps", nameOf(kFills, fillGaps), nameOf(kFills, usual.fillGaps));
    text("objects", objectsFile);
    text("verify", nameOf(kVerifies, verify), nameOf(kVerifies, usual.verify));
    text("on", where);
    if (threads != usual.threads) job.insert("threads", static_cast<int>(threads));
    text("memory", exactSizeText(memory), exactSizeText(usual.memory));
    text("io", nameOf(kIos, io), nameOf(kIos, usual.io));
    flag("overwrite", overwrite);
    flag("resume", resume);
    if (!job.isEmpty()) recipe.insert("job", job);
    return recipe;
}

Result<ConversionSpec> ConversionSpec::fromJson(const QJsonObject& recipe) {
    ConversionSpec spec;
    Fields steps(recipe, {});
    QString schema = QStringLiteral("shardscope.recipe/1"), description;
    steps.text("schema", schema);
    if (schema != QLatin1String("shardscope.recipe/1"))
        steps.fail("schema", QStringLiteral("\"shardscope.recipe/1\""));
    steps.text("description", description);
    steps.texts("select", spec.select);
    steps.texts("drop", spec.exclude);
    pairs(steps, "rename", "from", "to", true, spec.rename);
    pairs(steps, "cast", "tensors", "dtype", false, spec.cast);
    steps.take("sources");
    const QJsonValue list = steps.take("steps"), parameters = steps.take("parameters");
    if (!list.isUndefined() && !list.isArray()) steps.fail("steps", QObject::tr("a list"));
    if (!parameters.isUndefined() && !parameters.isObject())
        steps.fail("parameters", QObject::tr("an object"));
    spec.steps = list.toArray();
    spec.parameters = parameters.toObject();
    const QJsonValue rest = steps.take("job");
    if (!rest.isUndefined() && !rest.isObject()) steps.fail("job", QObject::tr("an object"));
    SHARDSCOPE_TRY(steps.finish());

    const QJsonObject object = rest.toObject();
    Fields job(object, QStringLiteral("job."));
    job.text("source", spec.source);
    job.text("destination", spec.destination);
    QStringList words;
    job.texts("source_options", words);
    spec.options = SourceOptions::fromWords(words);
    job.text("format", spec.format);
    job.text("variant", spec.variant);
    job.flag("weights_only", spec.weightsOnly);
    job.text("mesh", spec.mesh);
    job.texts("shard", spec.shard);
    job.texts("stage", spec.stage);
    job.choice("split", kSplits, spec.split);
    job.text("like", spec.like);
    job.text("map", spec.map);
    job.texts("set", spec.set);
    job.bytes("max_file_size", spec.maxFileSize);
    job.flag("strict", spec.strict);
    job.choice("fill_gaps", kFills, spec.fillGaps);
    job.text("objects", spec.objectsFile);
    job.choice("verify", kVerifies, spec.verify);
    job.text("on", spec.where);
    job.threads(spec.threads);
    job.bytes("memory", spec.memory);
    job.choice("io", kIos, spec.io);
    job.flag("overwrite", spec.overwrite);
    job.flag("resume", spec.resume);
    SHARDSCOPE_TRY(job.finish());
    // Dtypes and rules that no one could run are refused now, not when a job starts.
    SHARDSCOPE_TRY([&]() -> Status {
        auto settings = spec.toSettings();
        if (!settings.ok()) return std::move(settings).error();
        return {};
    }());
    return spec;
}

namespace {

// A recipe as it stands, a file or one that is built in.
Result<ConversionSpec> readRecipe(const QString& path) {
    SHARDSCOPE_ASSIGN(const std::string text, recipeText(path.toStdString()));
    QJsonParseError problem;
    const QJsonDocument document = QJsonDocument::fromJson(QByteArray::fromStdString(text), &problem);
    if (!document.isObject()) {
        Error error =
            wrong(document.isNull() ? QObject::tr("the recipe is not JSON: %1").arg(problem.errorString())
                                    : QObject::tr("the recipe is not a JSON object"));
        return std::move(error).inFile(path.toStdString());
    }
    auto spec = ConversionSpec::fromJson(document.object());
    if (!spec.ok()) return std::move(std::move(spec).error()).inFile(path.toStdString());
    return spec;
}

}  // namespace

Status ConversionSpec::saveRecipe(const QString& path) const {
    ConversionSpec whole = *this;
    if (!map.isEmpty()) {
        SHARDSCOPE_ASSIGN(const ConversionSpec inner, readRecipe(map));
        whole.select = inner.select + select;
        whole.exclude = inner.exclude + exclude;
        whole.rename = inner.rename + rename;
        whole.cast = inner.cast + cast;
        whole.steps = inner.steps;
        whole.parameters = inner.parameters;
        whole.map.clear();
    }
    SHARDSCOPE_ASSIGN(const QJsonObject recipe, whole.toJson());
    QSaveFile file(path);
    if (!file.open(QIODevice::WriteOnly) || file.write(QJsonDocument(recipe).toJson()) < 0 || !file.commit())
        return makeError(ErrorCode::io, "cannot write the recipe: " + file.errorString().toStdString())
            .inFile(path.toStdString());
    return {};
}

Result<ConversionSpec> ConversionSpec::loadRecipe(const QString& path) {
    SHARDSCOPE_ASSIGN(ConversionSpec spec, readRecipe(path));
    if (spec.steps.isEmpty()) return spec;
    spec.map = QFileInfo(path).absoluteFilePath();
    for (QStringList* brought : {&spec.select, &spec.exclude, &spec.rename, &spec.cast})
        brought->clear();
    spec.steps = {};
    spec.parameters = {};
    return spec;
}

}  // namespace shardscope::ui
