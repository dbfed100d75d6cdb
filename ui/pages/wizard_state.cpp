#include "ui/pages/wizard_state.h"

#include <QDir>
#include <QFileInfo>
#include <algorithm>

#include "base/option_words.h"
#include "base/text.h"
#include "engine/recipe.h"
#include "plan/request_text.h"
#include "plan/source_placement.h"
#include "plan/steps.h"
#include "storage/file_system.h"
#include "ui/bridge/file_stamps.h"
#include "ui/bridge/hosts.h"
#include "ui/models/model_config.h"
#include "ui/models/texts.h"

namespace shardscope::ui {

namespace {

constexpr int kSettleMilliseconds = 250;

// Whether a checkpoint of another host has the same files under the same path here: where hosts share a file
// system.
bool isHere(const Checkpoint& checkpoint, const StopToken& stop) {
    if (!checkpoint.fileSystem) return true;
    const std::string directory = pathThere(toQString(directoryOf(checkpoint))).toStdString();
    const auto stamps = stampsOf(*systemFileSystem(), directory, checkpoint.catalog(), stop);
    if (!stamps.ok()) return false;
    const auto& files = checkpoint.catalog().files();
    for (size_t f = 0; f < files.size(); ++f) {
        if (files[f].state != FileInfo::State::missing &&
            (*stamps)[f].size != static_cast<int64_t>(files[f].size))
            return false;
    }
    return true;
}

// A file or checkpoint that the spec names as it is here; empty = none.
QString fileOfThisMachine(const ConversionSpec& spec) {
    if (!spec.like.isEmpty()) return spec.like;
    const auto& recipes = builtinRecipes();
    const bool builtin = spec.map == kAutomaticRecipe ||
                         std::any_of(recipes.begin(), recipes.end(), [&](const BuiltinRecipe& recipe) {
                             return recipe.name == spec.map.toStdString();
                         });
    return builtin ? QString() : spec.map;
}

}  // namespace

WizardState::WizardState(Session& session, QObject* parent) : QObject(parent), session_(session) {
    takeSource();
    spec_.host = hostOf(session_.path());
    timer_.setSingleShot(true);
    timer_.setInterval(kSettleMilliseconds);
    connect(&timer_, &QTimer::timeout, this, &WizardState::look);
    connect(&session_, &Session::stateChanged, this, [this] {
        takeSource();
        schedule();
        propose();
    });
    schedule();
    propose();
}

WizardState::~WizardState() {
    ticket_.drop();
    proposing_.drop();
}

void WizardState::propose() {
    const CheckpointPtr checkpoint = session_.checkpoint();
    if (!checkpoint || checkpoint == proposedFor_) return;
    proposedFor_ = checkpoint;
    proposal_.reset();
    emit proposalChanged();
    using Answer = std::shared_ptr<const Proposal>;
    proposing_ = session_.tasks().run<Answer>(
        Work::metadata, tr("Matching names with recipes"),
        [checkpoint](const TaskContext& context) -> Result<Answer> {
            auto found = std::make_shared<Proposal>();
            const std::string model = modelBeside(*checkpoint);
            SHARDSCOPE_ASSIGN(found->fits, fittingRecipes(*checkpoint, model, context.stop));
            found->huggingFace = chooseRecipe(found->fits, "hf", checkpoint->catalog());
            found->model = toQString(model);
            found->assets = toQString(assetsBeside(*checkpoint));
            return Answer(found);
        },
        [this](Result<Answer> answer) {
            proposing_ = {};
            proposal_ = answer.ok() ? std::move(answer).value() : std::make_shared<const Proposal>();
            emit proposalChanged();
        });
}

std::optional<Mesh> WizardState::meshOfSource() const {
    if (!session_.hasFacts() || !session_.facts()->mesh || session_.facts()->mesh->ranks() < 2)
        return std::nullopt;
    return session_.facts()->mesh;
}

// One that was proposed follows the format.
void WizardState::forgetProposedDestination(ConversionSpec& spec) const {
    if (spec.destination == proposedDestination()) spec.destination.clear();
}

ConversionSpec WizardState::forInference() const {
    ConversionSpec spec = spec_;
    forgetProposedDestination(spec);
    spec.format = QStringLiteral("safetensors");
    spec.weightsOnly = true;
    for (QString* none : {&spec.variant, &spec.mesh, &spec.like, &spec.map})
        none->clear();
    for (QStringList* none : {&spec.shard, &spec.stage, &spec.set, &spec.rename})
        none->clear();
    if (!proposal_) return spec;
    spec.map = toQString(proposal_->huggingFace.recipe);
    for (const std::string& rule : proposal_->huggingFace.rename)
        spec.rename += toQString(rule);
    if (spec.assets.isEmpty()) spec.assets = proposal_->assets;
    return spec;
}

ConversionSpec WizardState::overMesh(const Mesh& mesh) const {
    ConversionSpec spec = spec_;
    forgetProposedDestination(spec);
    const OtherMesh how =
        session_.checkpoint() ? otherMeshOf(*session_.checkpoint()) : OtherMesh{"dcp", false};
    spec.format = toQString(how.format);
    for (QString* none : {&spec.variant, &spec.like, &spec.map})
        none->clear();
    for (QStringList* none : {&spec.shard, &spec.stage, &spec.set, &spec.rename})
        none->clear();
    spec.weightsOnly = false;
    spec.mesh = toQString(formatMesh(mesh));
    const auto from = meshOfSource();
    if (from && how.likeSource) spec.shard = rulesOfSource(*from, mesh);
    return spec;
}

QStringList WizardState::rulesOfSource(const Mesh& from, const Mesh& to) const {
    QStringList rules;
    for (const ShardRule& rule : placementOfSource(session_.catalog(), from, to).rules())
        rules += toQString(formatShardRule(rule));
    return rules;
}

void WizardState::setSpec(ConversionSpec spec) {
    // What the source's files do not say comes with a recipe; which checkpoint it is does not.
    SourceOptions options = session_.options();
    if (session_.checkpoint() && session_.checkpoint()->format->takes("--master-weights")) {
        options.own = spec.options.own;
    }
    const bool readAnew = !(options == session_.options());
    spec.host = spec.where.isEmpty() ? spec_.host : QString();
    spec_ = std::move(spec);
    problems_.clear();
    takeSource();
    emit specReplaced();
    schedule();
    if (readAnew) session_.open(session_.path(), options);
}

// The path as it is where the work is done.
void WizardState::takeSource() {
    spec_.source = pathThere(session_.path());
    spec_.options = session_.options();
}

void WizardState::edit(const std::function<void(ConversionSpec&)>& change) {
    const ConversionSpec before = spec_;
    change(spec_);
    if (spec_ == before) return;
    emit specChanged();
    schedule();
}

void WizardState::schedule() {
    ticket_.drop();
    timer_.start();
    emit outlookChanged();
}

void WizardState::look() {
    const CheckpointPtr checkpoint = session_.checkpoint();
    if (!checkpoint) {
        outlook_.reset();
        emit outlookChanged();
        return;
    }
    auto request = spec_.toCheckedRequest();
    if (!request.ok()) {
        auto failed = std::make_shared<Outlook>();
        failed->error = request.error();
        outlook_ = failed;
        emit outlookChanged();
        return;
    }
    // Without a destination the rest can be worked out all the same.
    const std::string destination =
        (spec_.destination.isEmpty() ? proposedDestination() : spec_.destination).toStdString();
    using Answer = std::shared_ptr<const Outlook>;
    ticket_ = session_.tasks().run<Answer>(
        Work::metadata, tr("Planning the conversion"),
        [engine = session_.enginePtr(), checkpoint, destination,
         facts = session_.hasFacts() ? session_.facts() : nullptr, there = !spec_.host.isEmpty(),
         request = std::move(request).value()](const TaskContext& context) -> Result<Answer> {
            auto outlook = std::make_shared<Outlook>();
            outlook->sourceHere = isHere(*checkpoint, context.stop);
            const auto look = [&] {
                // Of another host where the work is done there.
                const auto files =
                    there && checkpoint->fileSystem ? checkpoint->fileSystem : systemFileSystem();
                outlook->place = lookAtDestination(*files, destination);
            };
            auto preview = engine->preview(checkpoint, destination, request, context);
            SHARDSCOPE_TRY(context.stop.poll());
            if (!preview.ok()) {
                outlook->error = std::move(preview).error();
                look();
                return Answer(outlook);
            }
            const std::shared_ptr<const Catalog> source(checkpoint, &checkpoint->catalog());
            SHARDSCOPE_ASSIGN(const TargetRequest rules, targetRequest(request));
            SHARDSCOPE_ASSIGN(outlook->effect,
                              placementEffect(*source, *preview->target, rules, context.stop));
            SHARDSCOPE_ASSIGN(outlook->names,
                              nameChanges(source, preview->target, preview->plan, context.stop));
            if (rules.mesh && checkpoint->reader->dataElsewhere().empty() && !checkpoint->fileSystem) {
                if (const auto heads = headCounts(checkpoint->path))
                    outlook->headNotes = headNotes(*heads, *rules.mesh);
            }
            outlook->reads = std::move(preview->reads);
            SHARDSCOPE_ASSIGN(outlook->asIf, AsIf::of(*source, facts, preview->target, preview->flow,
                                                      preview->plan, context.stop));
            outlook->plan = std::make_shared<const Plan>(std::move(preview->plan));
            look();
            return Answer(outlook);
        },
        [this](Result<Answer> answer) {
            if (answer.ok()) {
                outlook_ = std::move(answer).value();
            } else {
                auto failed = std::make_shared<Outlook>();
                failed->error = std::move(answer).error();
                outlook_ = failed;
            }
            ticket_ = {};
            emit outlookChanged();
        });
    emit outlookChanged();
}

const Format* WizardState::target() const {
    if (!spec_.format.isEmpty()) return findFormat(spec_.format.toStdString());
    return session_.checkpoint() ? session_.checkpoint()->format : nullptr;
}

bool WizardState::keepsPlacement() const {
    const Format* format = target();
    if (!format || !session_.checkpoint() || format != session_.checkpoint()->format) return false;
    return format->info().shards &&
           (!format->info().wholeByDefault || spec_.variant.toStdString() == session_.catalog().variant());
}

QString WizardState::proposedDestination() const {
    const Format* format = target();
    // By the name alone: asking the file system could wait for a slow disk.
    const QFileInfo source(QDir::cleanPath(spec_.source));
    const QString stem =
        isCheckpointSuffix(source.suffix().toStdString()) ? source.completeBaseName() : source.fileName();
    const QString name = !spec_.average.isEmpty() ? tr("average")
                         : format                 ? toQString(format->info().name)
                                                  : tr("converted");
    const QString path = source.absolutePath() + '/' + stem + '-' + name;
    return format && format->info().singleFile ? path + '.' + toQString(format->info().suffixes.front())
                                               : path;
}

void WizardState::setProblem(const QWidget* field, const QString& problem) {
    if (this->problem(field) == problem) return;
    std::erase_if(problems_, [field](const auto& known) { return known.first == field; });
    if (!problem.isEmpty()) problems_.emplace_back(field, problem);
    emit outlookChanged();
}

QString WizardState::problem(const QWidget* field) const {
    const auto found = std::ranges::find(problems_, field, &decltype(problems_)::value_type::first);
    return found == problems_.end() ? QString() : found->second;
}

Obstacle WizardState::obstacleOfError(const Error& error) const {
    const bool damaged = error.hint.find(option("skip-damaged")) != std::string::npos;
    if (damaged) return {errorSentence(error), WizardPageId::plan};  // which says what can be done
    const RecipeChoice* choice = proposal_ ? &proposal_->huggingFace : nullptr;
    if (choice && !choice->missing.empty() && spec_.map == toQString(choice->recipe) && spec_.set.isEmpty() &&
        spec_.assets.isEmpty() && error.code == ErrorCode::usage) {
        const QString names = toQString(listed(choice->missing, choice->missing.size()));
        return {tr("The recipe %1 needs a number for %2. The config.json of the model has it: enter its "
                   "directory on the page Plan, or the number as a parameter of the recipe.")
                    .arg(spec_.map, names),
                WizardPageId::names};
    }
    const QString hint = errorHint(error);
    const QString text =
        errorSentence(error) + (hint.isEmpty() ? QString() : QStringLiteral(" (%1)").arg(hint));
    if (!error.location.file.empty() && error.location.file == spec_.destination.toStdString())
        return {text, WizardPageId::target};
    const bool rules = !spec_.mesh.isEmpty() || !spec_.shard.isEmpty() || !spec_.stage.isEmpty();
    if (error.code != ErrorCode::usage) return {text};
    return {text, !spec_.map.isEmpty() ? WizardPageId::names
                  : rules              ? WizardPageId::placement
                                       : WizardPageId::none};
}

// Of where the result goes and where the work is done.
Obstacle WizardState::obstacleOfPlace() const {
    const QString host = hostOf(session_.path());
    if (!spec_.host.isEmpty()) {
        if (const QString file = fileOfThisMachine(spec_); !file.isEmpty())
            return {
                tr("The conversion runs on %1, which does not have '%2' of this machine. Let this machine "
                   "do it, or leave that out.")
                    .arg(spec_.host, toQString(file.toStdString())),
                WizardPageId::where};
        for (const QString& path : {spec_.destination, spec_.objectsFile}) {
            if (!path.isEmpty() && !path.startsWith('/'))
                return {tr("The conversion runs on %1: write '%2' as an absolute path there.")
                            .arg(spec_.host, toQString(path.toStdString())),
                        path == spec_.destination ? WizardPageId::target : WizardPageId::run};
        }
    }
    if (!host.isEmpty() && spec_.host.isEmpty() && !outlook_->sourceHere)
        return {tr("This machine does not see what %1 has as '%2'. Let %1 do it.")
                    .arg(host, toQString(spec_.source.toStdString())),
                WizardPageId::where};
    return {};
}

Obstacle WizardState::obstacle() const {
    if (!session_.checkpoint()) return {tr("No checkpoint is open.")};
    if (const QString elsewhere = session_.dataElsewhere(); !elsewhere.isEmpty())
        return {tr("The data is not here: this is %1. Copy the command and run it where the checkpoint is "
                   "stored.")
                    .arg(elsewhere)};
    if (spec_.destination.isEmpty()) return {tr("Enter the destination."), WizardPageId::target};
    if (!problems_.empty()) return {problems_.front().second};
    if (working() || !outlook_) return {tr("The plan is not ready yet.")};
    if (outlook_->error) return obstacleOfError(*outlook_->error);
    if (const Obstacle place = obstacleOfPlace(); place.any()) return place;
    const Plan& plan = *outlook_->plan;
    if (!plan.runnable()) {
        const PlanLeftOut& first = plan.impossible.front();
        QString text = first.name.empty() ? toQString(first.why)
                                          : tr("%1: %2").arg(toQString(first.name), toQString(first.why));
        if (plan.impossible.size() > 1)
            text += countedText(plan.impossible.size() - 1, tr(" And 1 more; the page Plan lists it."),
                                tr(" And %1 more; the page Plan lists them."));
        return {text, WizardPageId::plan};
    }
    if (outlook_->place.unfinished && !spec_.resume)
        return {tr("An interrupted job left its work beside the destination. Choose Resume to continue it."),
                WizardPageId::run};
    if (outlook_->place.exists && !spec_.overwrite)
        return {tr("The destination exists. Choose another one, or Overwrite."), WizardPageId::target};
    if (outlook_->place.parentMissing)
        return {tr("What is to hold the destination is not a directory."), WizardPageId::target};
    if (outlook_->place.freeBytes && plan.bytesWritten > outlook_->place.freeBytes)
        return {tr("The result needs %1, but only %2 are free there.")
                    .arg(sizeText(plan.bytesWritten), sizeText(outlook_->place.freeBytes)),
                WizardPageId::target};
    return {};
}

}  // namespace shardscope::ui
