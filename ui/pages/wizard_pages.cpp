#include "ui/pages/wizard_pages.h"

#include <QCheckBox>
#include <QComboBox>
#include <QFormLayout>
#include <QLabel>
#include <QLineEdit>
#include <QPushButton>
#include <QVBoxLayout>

#include "engine/engine.h"
#include "ui/models/texts.h"
#include "ui/pages/format_options.h"
#include "ui/widgets/building.h"
#include "ui/widgets/labels.h"

namespace shardscope::ui {

namespace {

// What a format can hold, in sentences.
QString holdsText(const FormatInfo& info) {
    QStringList can, cannot;
    const auto sort = [&](bool able, const QString& what) { (able ? can : cannot) += what; };
    sort(info.shards, WizardPage::tr("tensors sharded over ranks"));
    sort(info.objects, WizardPage::tr("values that are not tensors (step, learning rate, random state)"));
    sort(info.aliases, WizardPage::tr("two names of one tensor (tied weights)"));
    sort(info.nesting, WizardPage::tr("nested names"));
    QString text =
        info.singleFile ? WizardPage::tr("Writes one file.") : WizardPage::tr("Writes a directory.");
    if (!can.isEmpty()) text += ' ' + WizardPage::tr("Holds %1.").arg(can.join(QStringLiteral("; ")));
    if (!cannot.isEmpty())
        text += ' ' + WizardPage::tr("Cannot hold %1; the plan lists what is left out.")
                          .arg(cannot.join(QStringLiteral("; ")));
    return text;
}

}  // namespace

WizardPage::WizardPage(WizardState& state, const QString& title, const QString& purpose)
    : state_(state), title_(title) {
    layout_ = new QVBoxLayout(this);
    layout_->setContentsMargins(16, 12, 16, 8);
    layout_->setSpacing(8);
    QLabel* heading = wizardHeading(title, this);
    makeBold(heading, 1.3);
    layout_->addWidget(heading);
    layout_->addWidget(wizardHint(purpose, this));
}

void WizardPage::follow() {
    connect(&state_, &WizardState::specReplaced, this, [this] {
        showAll();
        showOutlook();
    });
    connect(&state_, &WizardState::specChanged, this, &WizardPage::showAll);
    connect(&state_, &WizardState::outlookChanged, this, [this] { showOutlook(); });
    showAll();
    showOutlook();
}

void WizardPage::showAll() {
    for (const auto& show : shows_)
        show(state_.spec());
    showSpec();
}

void WizardPage::bind(QCheckBox* box, bool ConversionSpec::*field) {
    connect(box, &QCheckBox::toggled, this,
            [this, field](bool on) { state_.edit([&](ConversionSpec& spec) { spec.*field = on; }); });
    shows_.emplace_back([box, field](const ConversionSpec& spec) { box->setChecked(spec.*field); });
}

void WizardPage::bind(PathEdit* edit, QString ConversionSpec::*field) {
    connect(edit, &PathEdit::edited, this, [this, field](const QString& path) {
        state_.edit([&](ConversionSpec& spec) { spec.*field = path; });
    });
    shows_.emplace_back([edit, field](const ConversionSpec& spec) { edit->setPath(spec.*field); });
}

void WizardPage::bind(QComboBox* box, QString ConversionSpec::*field) {
    bindData(
        box, [field](const ConversionSpec& spec) { return QVariant(spec.*field); },
        [field](ConversionSpec& spec, const QVariant& value) { spec.*field = value.toString(); });
}

void WizardPage::bindData(QComboBox* box, const std::function<QVariant(const ConversionSpec&)>& get,
                          const std::function<void(ConversionSpec&, const QVariant&)>& set) {
    connect(box, &QComboBox::activated, this,
            [this, box, set] { state_.edit([&](ConversionSpec& spec) { set(spec, box->currentData()); }); });
    shows_.emplace_back([box, get](const ConversionSpec& spec) {
        box->setCurrentIndex(std::max(0, box->findData(get(spec))));
    });
}

namespace {

std::optional<uint64_t> typedSize(const QLineEdit& edit, bool optional) {
    const std::string text = edit.text().trimmed().toStdString();
    if (optional && text.empty()) return 0;
    const auto bytes = parseBytes(text);
    return optional && bytes == uint64_t{0} ? std::nullopt : bytes;
}

}  // namespace

void WizardPage::bindSize(QLineEdit* edit, uint64_t ConversionSpec::*size, bool optional) {
    const auto show = [this, edit, size, optional](const ConversionSpec& spec) {
        const uint64_t bytes = spec.*size;
        const QString problem = state_.problem(edit);
        if (problem.isEmpty() && typedSize(*edit, optional) != bytes)
            edit->setText(bytes || !optional ? exactSizeText(bytes) : QString());
        edit->setToolTip(problem.toHtmlEscaped());
        QPalette palette = this->palette();
        if (!problem.isEmpty()) palette.setColor(QPalette::Text, palette.color(QPalette::BrightText));
        edit->setPalette(palette);
    };
    shows_.emplace_back(show);
    connect(edit, &QLineEdit::textEdited, this, [this, edit, size, optional, show](const QString& text) {
        const auto bytes = typedSize(*edit, optional);
        state_.setProblem(edit, bytes ? QString()
                                      : tr("“%1” on the page %2 is not a size such as 5GB or 512MiB.")
                                            .arg(toQString(text.toStdString()), title_));
        if (bytes) state_.edit([&](ConversionSpec& spec) { spec.*size = *bytes; });
        show(state_.spec());
    });
}

// ------------------------------------------------------------------ source

SourceStep::SourceStep(WizardState& state)
    : WizardPage(state, tr("Source"),
                 tr("What is converted, and whether it is whole. It is only read, never changed.")) {
    facts_ = wizardText({}, this);
    facts_->setAccessibleName(tr("The source"));
    layout_->addWidget(facts_);
    layout_->addSpacing(8);
    layout_->addWidget(wizardHeading(tr("Health"), this));
    health_ = wizardText({}, this);
    health_->setObjectName(QStringLiteral("sourceHealth"));
    layout_->addWidget(health_);
    validation_ = wizardText({}, this);
    validation_->setObjectName(QStringLiteral("sourceValidation"));
    layout_->addWidget(validation_);
    auto* row = new QHBoxLayout;
    validate_ = withName(new QPushButton(tr("Validate now"), this), tr("Validate the source now"));
    validate_->setAutoDefault(false);
    row->addWidget(validate_);
    row->addStretch();
    layout_->addLayout(row);
    connect(validate_, &QPushButton::clicked, this,
            [this] { state_.session().validation().start(ValidateLevel::files); });

    reading_ = new QWidget(this);
    auto* column = layoutOf<QVBoxLayout>(reading_, {0, 8, 0, 0});
    column->addWidget(wizardHeading(tr("How it is read"), reading_));
    column->addWidget(wizardHint(tr("What the files do not say; empty fields are inferred."), reading_));
    formatOptions_ = new FormatOptions(reading_);
    column->addWidget(formatOptions_);
    auto* apply = new QHBoxLayout;
    readAgain_ = withName(new QPushButton(tr("Apply and reload"), reading_),
                          tr("Read the source again with these options"), QStringLiteral("readSourceSo"));
    readAgain_->setAutoDefault(false);
    readingProblem_ = wizardHint({}, reading_);
    readingProblem_->setAccessibleName(tr("Problem with these options"));
    apply->addWidget(readAgain_);
    apply->addWidget(readingProblem_, 1);
    column->addLayout(apply);
    layout_->addWidget(reading_);
    const auto compare = [this] {
        SourceOptions options = state_.session().options();
        formatOptions_->take(options);
        readAgain_->setEnabled(!(options == state_.session().options()) &&
                               state_.session().state() != Session::State::opening);
    };
    connect(formatOptions_, &FormatOptions::edited, this, compare);
    connect(readAgain_, &QPushButton::clicked, this, [this] {
        SourceOptions options = state_.session().options();
        formatOptions_->take(options);
        readingProblem_->setText(tr("Reading the metadata again…"));
        state_.session().open(state_.session().path(), options);
    });
    connect(&state_.session(), &Session::stateChanged, this, [this, compare] {
        if (state_.session().state() == Session::State::open) {
            formatOptions_->setOptions(state_.session().options());
            readingProblem_->clear();
        }
        compare();
    });
    connect(&state_.session(), &Session::openingRefused, this,
            [this](const Error& error) { readingProblem_->setText(tr("▲ %1").arg(errorText(error))); });
    formatOptions_->setOptions(state_.session().options());
    readAgain_->setEnabled(false);

    layout_->addWidget(new DamageChoice(state_, QStringLiteral("source"), this));
    layout_->addStretch();
    connect(&state_.session(), &Session::factsChanged, this, &SourceStep::showSpec);
    connect(&state_.session(), &Session::reportChanged, this, &SourceStep::showSpec);
    connect(&state_.session(), &Session::verdictChanged, this, &SourceStep::showSpec);
    connect(&state_.session(), &Session::filesChanged, this, &SourceStep::showSpec);
    follow();
}

QString SourceStep::factsText(const Session& session) {
    const Catalog& catalog = session.catalog();
    const QString text =
        tr("%1\n%2, written by %3\n%4, %5 in %6, %7")
            .arg(toQString(session.path().toStdString()),
                 toQString(session.checkpoint()->format->info().title),
                 catalog.writer().empty() ? tr("an unknown program") : toQString(catalog.writer()),
                 countedText(catalog.tensorCount(), tr("1 tensor"), tr("%1 tensors")),
                 sizeText(catalog.totalBytes()),
                 countedText(catalog.files().size(), tr("1 file"), tr("%1 files")),
                 countedText(catalog.rankCount(), tr("1 rank"), tr("%1 ranks")));
    if (!session.hasFacts() || !session.facts()->mesh) return text;
    return text + ", " + tr("mesh %1").arg(toQString(formatMesh(*session.facts()->mesh)));
}

QString SourceStep::healthText(const Session& session) {
    if (!session.hasFacts()) return tr("Checking coverage…");
    const Facts& facts = *session.facts();
    if (facts.worst() <= Health::unread)
        return tr("✓ By its metadata every element of every tensor is there.");
    QStringList parts;
    const auto part = [&](Health health, const QString& what) {
        if (const auto n = std::ranges::count(facts.tensorHealth, health))
            parts += tr("%1 %2").arg(numberText(static_cast<uint64_t>(n)), what);
    };
    part(Health::gap, tr("with gaps"));
    part(Health::missing, tr("with missing or truncated bytes"));
    part(Health::overlap, tr("with overlaps"));
    part(Health::differs, tr("with replicas that differ"));
    part(Health::nonFinite, tr("with NaN or infinities"));
    return parts.isEmpty()
               ? tr("▲ Some of its files are damaged.")
               : tr("▲ Tensors that need your attention: %1.").arg(parts.join(QStringLiteral(", ")));
}

QString SourceStep::validationText(const Session& session) {
    const Validation& validation = session.validation();
    if (const QString writing = session.beingWritten(); !writing.isEmpty())
        return tr("▲ Still being written: %1 A conversion now would take what is there at the moment.")
            .arg(writing);
    if (validation.running()) return tr("Validation runs…");
    if (validation.error()) return tr("▲ Validation failed: %1").arg(errorSentence(*validation.error()));
    if (!validation.report())
        return tr(
            "▲ Not validated: only metadata was read. A conversion stops at damaged files, but not at wrong "
            "values.");
    const std::vector<Suppression> accepted = validation.suppressions();
    QString text = verdictHeadline(*validation.verdict()) + '.';
    size_t shown = 0;
    for (const Finding& finding : validation.report()->findings) {
        if (finding.severity == Severity::info || suppressionOf(finding, accepted)) continue;
        if (++shown > 4) break;
        text += '\n' + tr("• %1").arg(messageText(finding.message));
        if (!finding.cause.empty()) text += tr(" (%1)").arg(toQString(finding.cause));
    }
    if (const QString notChecked = notCheckedText(*validation.report()); !notChecked.isEmpty())
        text += '\n' + tr("Not checked: %1.").arg(notChecked);
    return text;
}

bool SourceStep::attention() const {
    const Session& session = state_.session();
    const bool damaged = session.hasFacts() && session.facts()->worst() > Health::unread;
    return damaged || session.validation().verdict() != Verdict::safe;
}

void SourceStep::showSpec() {
    const Session& session = state_.session();
    const bool open = session.checkpoint() != nullptr;
    if (open) formatOptions_->offer(session.checkpoint()->format->options());
    reading_->setVisible(open && !session.checkpoint()->format->options().empty());
    health_->setText(open ? healthText(session) : QString());
    validation_->setText(open ? validationText(session) : QString());
    validate_->setEnabled(open && !session.validation().running() && session.beingWritten().isEmpty());
    facts_->setText(open ? factsText(session) : tr("No checkpoint is open."));
}

// ------------------------------------------------------------------ target

TargetStep::TargetStep(WizardState& state)
    : WizardPage(state, tr("Target"), tr("In which format the result is written, and where to.")) {
    auto* form = new FormGrid;
    format_ = withName(new QComboBox(this), tr("Format of the target"), QStringLiteral("format"));
    for (const Format* format : builtinFormats()) {
        if (format->info().writes)
            format_->addItem(toQString(format->info().title), toQString(format->info().name));
    }
    form->add(tr("&Format:"), format_);
    holds_ = wizardHint({}, this);
    form->add({}, holds_);
    variant_ = withName(new QComboBox(this), tr("Variant of the format"), QStringLiteral("variant"));
    form->add(tr("&Variant:"), variant_);
    destination_ = new PathEdit(PathEdit::Kind::saveAny, tr("Destination"), {}, this);
    destination_->edit()->setObjectName(QStringLiteral("destination"));
    form->add(tr("&Destination:"), destination_);
    space_ = wizardText({}, this);
    space_->setObjectName(QStringLiteral("space"));
    form->add({}, space_);
    overwrite_ = new QCheckBox(tr("&Overwrite: replace it when the new one is complete"), this);
    overwrite_->setObjectName(QStringLiteral("overwriteTarget"));
    form->add({}, overwrite_);
    bind(overwrite_, &ConversionSpec::overwrite);
    size_ = withName(new QLineEdit(this), tr("Largest file"), QStringLiteral("largestFile"));
    size_->setPlaceholderText(tr("as the format does it; or a size such as 5GB"));
    form->add(tr("&Largest file:"), size_);
    layout_->addLayout(form);
    layout_->addStretch();

    connect(format_, &QComboBox::activated, this, [this] {
        const bool follows = state_.spec().destination == proposed_;
        state_.edit([this](ConversionSpec& spec) {
            spec.format = format_->currentData().toString();
            spec.variant.clear();
        });
        if (follows) {
            proposed_ = state_.proposedDestination();
            state_.edit([this](ConversionSpec& spec) { spec.destination = proposed_; });
        }
    });
    connect(variant_, &QComboBox::activated, this, [this] {
        state_.edit([this](ConversionSpec& spec) { spec.variant = variant_->currentData().toString(); });
    });
    bind(destination_, &ConversionSpec::destination);
    bindSize(size_, &ConversionSpec::maxFileSize, true);
    if (state_.spec().destination.isEmpty() && !state_.spec().source.isEmpty()) {
        proposed_ = state_.proposedDestination();
        state_.edit([this](ConversionSpec& spec) { spec.destination = proposed_; });
    }
    follow();
}

bool TargetStep::attention() const {
    const auto& outlook = state_.outlook();
    return state_.spec().destination.isEmpty() || lacksRoom() ||
           (outlook && (outlook->place.parentMissing || (outlook->place.exists && !state_.spec().overwrite)));
}

bool TargetStep::lacksRoom() const {
    const auto& outlook = state_.outlook();
    return outlook && outlook->plan && outlook->place.freeBytes &&
           outlook->plan->bytesWritten > outlook->place.freeBytes;
}

void TargetStep::showFormat() {
    const Format* format = state_.target();
    variant_->clear();
    variant_->addItem(tr("Default"), QString());
    if (!format) return;
    for (const std::string& variant : format->info().variants)
        variant_->addItem(toQString(variant), toQString(variant));
    variant_->setEnabled(!format->info().variants.empty());
    variant_->setCurrentIndex(std::max(0, variant_->findData(state_.spec().variant)));
    holds_->setText(holdsText(format->info()));
}

void TargetStep::showSpec() {
    const Format* format = state_.target();
    format_->setCurrentIndex(format ? format_->findData(toQString(format->info().name)) : -1);
    showFormat();
    if (state_.spec().destination == state_.proposedDestination()) proposed_ = state_.spec().destination;
}

void TargetStep::showOutlook() {
    const auto& outlook = state_.outlook();
    overwrite_->setVisible(state_.spec().overwrite || (outlook && outlook->place.exists));
    if (state_.spec().destination.isEmpty()) return space_->setText(tr("✕ Enter the destination."));
    if (state_.working() || !outlook) return space_->setText(tr("Checking the destination…"));
    QStringList lines;
    if (outlook->place.parentMissing) lines += tr("✕ What is to hold it is not a directory.");
    if (outlook->place.exists)
        lines += state_.spec().overwrite ? tr("It exists, and is replaced when the new one is complete.")
                                         : tr("✕ It exists already. Choose another path, or overwrite it.");
    if (outlook->place.freeBytes) {
        const uint64_t need = outlook->plan ? outlook->plan->bytesWritten : 0;
        QString line = tr("%1 free there").arg(sizeText(outlook->place.freeBytes));
        if (outlook->plan)
            line = lacksRoom() ? tr("✕ %1, but %2 are needed.").arg(line, sizeText(need))
                               : tr("✓ %1, %2 needed.").arg(line, sizeText(need));
        else
            line += '.';
        lines += line;
    }
    space_->setText(lines.join('\n'));
}

}  // namespace shardscope::ui
