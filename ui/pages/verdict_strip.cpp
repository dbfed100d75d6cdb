#include "ui/pages/verdict_strip.h"

#include <QAction>
#include <QHBoxLayout>
#include <QLabel>
#include <QMenu>
#include <QPainter>
#include <QPushButton>
#include <QTextDocumentFragment>
#include <algorithm>

#include "engine/report_forms.h"
#include "ui/models/texts.h"
#include "ui/widgets/building.h"
#include "ui/widgets/labels.h"
#include "ui/widgets/painting.h"
#include "ui/widgets/task_progress.h"
#include "ui/widgets/theme.h"

namespace shardscope::ui {

namespace {

constexpr size_t kCausesNamed = 3;
const QString kMore = QStringLiteral("more");  // a link to all of them

// Findings that the verdict follows from: those that nobody accepted, of the worst severity.
std::vector<const Finding*> causesOf(const ValidationReport& report,
                                     const std::vector<Suppression>& accepted) {
    std::vector<const Finding*> causes;
    Severity worst = Severity::warning;
    for (const Finding& finding : report.findings) {
        if (finding.severity < worst || suppressionOf(finding, accepted)) continue;
        if (finding.severity > worst) causes.clear();
        worst = finding.severity;
        causes.push_back(&finding);
    }
    return causes;
}

// What no other level would check, else the first of them; the tooltip has all.
QString shortNotChecked(const ValidationReport& report) {
    QStringList named;
    for (const NotChecked& each : report.notChecked)
        if (each.option.empty()) named += toQString(each.what);
    if (named.isEmpty() && !report.notChecked.empty()) named += toQString(report.notChecked.front().what);
    if (named.isEmpty()) return {};
    const auto more = static_cast<qsizetype>(report.notChecked.size()) - named.size();
    QString text = VerdictStrip::tr(" Not checked: %1").arg(named.join(QStringLiteral("; ")));
    if (more > 0) text += VerdictStrip::tr(", and %1 more").arg(numberText(static_cast<uint64_t>(more)));
    return text + QLatin1Char('.');
}

QString linkTo(const QString& where, const QString& text) {
    return QStringLiteral("<a href=\"%1\">%2</a>").arg(where, shortWords(text).toHtmlEscaped());
}

}  // namespace

VerdictStrip::VerdictStrip(Session& session, QWidget* parent)
    : QFrame(parent), session_(session), validation_(session.validation()) {
    setAccessibleName(tr("Verdict"));
    auto* layout = layoutOf<QHBoxLayout>(this, {16, 10, 12, 10}, 12);
    glyph_ = new QLabel(this);
    QFont large = font();
    large.setPointSizeF(large.pointSizeF() * 1.8);
    glyph_->setFont(large);
    glyph_->setFixedWidth(glyph_->fontMetrics().horizontalAdvance(QStringLiteral("▲")) + 6);
    glyph_->setAlignment(Qt::AlignHCenter | Qt::AlignTop);
    layout->addWidget(glyph_, 0, Qt::AlignTop);

    auto* texts = new QVBoxLayout;
    texts->setSpacing(3);
    headline_ = textBlock(this);
    makeBold(headline_, 1.15);
    causeLines_ = wrappedLabel(this);
    causeLines_->setTextFormat(Qt::RichText);
    causeLines_->setTextInteractionFlags(Qt::LinksAccessibleByMouse | Qt::LinksAccessibleByKeyboard);
    withName(causeLines_, tr("Causes"), QStringLiteral("causes"));
    connect(causeLines_, &QLabel::linkActivated, this, &VerdictStrip::follow);
    details_ = textBlock(this);
    progress_ = new TaskProgress(tr("Progress of the validation"), this);
    texts->addWidget(headline_);
    texts->addWidget(causeLines_);
    texts->addWidget(details_);
    texts->addWidget(progress_);
    texts->addStretch();
    layout->addLayout(texts, 1);

    auto* buttons = new QHBoxLayout;
    buttons->setSpacing(6);
    damaged_ = new QPushButton(tr("Show damaged"), this);
    damaged_->setToolTip(tr("Filter tree and map to damaged tensors"));
    validate_ = new QPushButton(tr("Validate"), this);
    convert_ = new QPushButton(tr("Convert…"), this);
    cancel_ = new QPushButton(tr("Cancel"), this);
    for (QPushButton* button : {damaged_, convert_, validate_, cancel_}) {
        button->setAccessibleName(button->text());
        buttons->addWidget(button, 0, Qt::AlignTop);
    }
    layout->addLayout(buttons);
    auto* menu = new QMenu(validate_);
    menu->setToolTipsVisible(true);
    for (const ValidateLevel level : {ValidateLevel::metadata, ValidateLevel::files, ValidateLevel::values})
        levels_ += menu->addAction(QString(), this, [this, level] { emit validateRequested(level); });
    validate_->setMenu(menu);
    connect(convert_, &QPushButton::clicked, this, &VerdictStrip::convertRequested);
    connect(cancel_, &QPushButton::clicked, &session_, &Session::cancel);
    connect(damaged_, &QPushButton::clicked, this, [this] {
        session_.selection().setFilter(QStringLiteral("status:bad"));
        session_.selection().setPage(Page::placement);
    });
    for (const auto changed : {&Session::stateChanged, &Session::factsChanged, &Session::reportChanged,
                               &Session::verdictChanged, &Session::cardChanged, &Session::filesChanged})
        connect(&session_, changed, this, &VerdictStrip::refresh);
    connect(&session_, &Session::progressed, this, [this] {
        if (validation_.running()) progress_->setStatus(validation_.status());
    });
    onThemeChange(this, [this] { refresh(); });
    refresh();
}

QString VerdictStrip::headline() const {
    return headline_->text();
}
QString VerdictStrip::causes() const {
    return QTextDocumentFragment::fromHtml(causeLines_->text()).toPlainText();
}
QString VerdictStrip::details() const {
    return details_->text();
}

QColor VerdictStrip::toneColor() const {
    return tone_ ? verdictColor(*tone_) : faintTextColor();
}

void VerdictStrip::say(std::optional<Verdict> tone, const QString& headline, const QString& details) {
    tone_ = tone;
    glyph_->setText(tone ? verdictHeadline(*tone).left(1) : QStringLiteral("?"));
    headline_->setText(headline);
    details_->setText(details);
    details_->setVisible(!details.isEmpty());
    showCauses();
    setAccessibleDescription(QStringList{headline, causes(), details}.join(QLatin1Char(' ')));
    update();
}

void VerdictStrip::showCauses() {
    QStringList lines;
    for (size_t i = 0; i < std::min(causes_.size(), kCausesNamed); ++i) {
        const Finding& finding = *causes_[i];
        const std::string about = aboutText(finding);
        QString line =
            linkTo(QString::number(i), toQString(finding.cause.empty() ? finding.message : finding.cause));
        if (!about.empty()) line += QStringLiteral(" (%1)").arg(toQString(about));
        lines += line;
    }
    if (causes_.size() > kCausesNamed)
        lines += linkTo(kMore, tr("%1 more").arg(numberText(causes_.size() - kCausesNamed)));
    causeLines_->clear();  // the same text would keep the links of another theme
    causeLines_->setText(lines.join(QStringLiteral("<br>")));
    causeLines_->setVisible(!lines.isEmpty());
}

void VerdictStrip::follow(const QString& link) {
    if (link == kMore) return emit findingsRequested();
    const Finding& finding = *causes_[link.toUInt()];
    emit causeRequested(toQString(finding.rule + ": " + finding.message));
}

void VerdictStrip::refresh() {
    const bool open = session_.checkpoint() != nullptr;
    const bool validating = validation_.running();
    progress_->setVisible(validating);
    cancel_->setVisible(validating);
    validate_->setVisible(!validating);
    const QString obstacle = validation_.obstacle(ValidateLevel::metadata);
    validate_->setEnabled(obstacle.isEmpty());
    validate_->setToolTip(obstacle);
    for (int i = 0; i < levels_.size(); ++i) {
        const auto level = static_cast<ValidateLevel>(i);
        const QString why = validation_.obstacle(level);
        levels_[i]->setText(tr("%1: %2").arg(levelText(level), validation_.cost(level)));
        levels_[i]->setEnabled(why.isEmpty());
        levels_[i]->setToolTip(why);
    }
    convert_->setEnabled(open);
    damaged_->setVisible(session_.hasFacts() && session_.facts()->worst() > Health::unread && !validating);
    validate_->setText(validation_.report() ? tr("Validate again") : tr("Validate"));
    if (validating) progress_->setStatus(validation_.status());
    causes_.clear();
    const QString notChecked = validation_.report() ? notCheckedText(*validation_.report()) : QString();
    details_->setToolTip(notChecked.isEmpty() ? QString() : tr("Not checked: %1.").arg(notChecked));
    if (validation_.report())
        showReport();
    else
        showUnvalidated();
}

// What was found before stays while another check runs.
void VerdictStrip::showReport() {
    const ValidationReport& report = *validation_.report();
    const std::vector<Suppression> accepted = validation_.suppressions();
    const Judgement judgement = judgementOf(report, accepted);
    QString details = tr("%1: %2.").arg(validation_.depth(), toQString(judgement.found()));
    details[0] = details[0].toUpper();
    details += shortNotChecked(report);
    if (validation_.error())
        details += tr("\nThe validation ended early: %1").arg(errorSentence(*validation_.error()));
    causes_ = causesOf(report, accepted);
    if (judgement.partly()) return say({}, toQString(judgement.words()), details);
    const CardAnswer answer = answerOf(*validation_.card());
    const auto named = std::ranges::any_of(causes_, [&](const Finding* cause) {
        return answer.words.endsWith(": " + toQString(cause->message));
    });
    say(answer.tone, shortWords(named ? answer.words.section(':', 0, 0) : answer.words), details);
}

void VerdictStrip::showUnvalidated() {
    if (!session_.checkpoint())
        return say({}, tr("Nothing is open"), tr("Open a checkpoint to see what is in it."));
    if (validation_.running()) return say({}, tr("Validating…"), {});
    if (const QString writing = session_.beingWritten(); !writing.isEmpty())
        return say(Verdict::care, tr("Still being written: not validated"), writing);
    if (validation_.error())
        return say({}, tr("Not validated"),
                   tr("The validation ended early: %1").arg(errorSentence(*validation_.error())));
    say({}, tr("Not validated"), tr("Only the metadata was read."));
}

void VerdictStrip::paintEvent(QPaintEvent*) {
    QPainter painter(this);
    painter.fillRect(rect(), softened(toneColor(), tone_ ? 0.14 : 0.08));
    painter.setPen(QPen(gridColor(), 1));
    painter.drawRect(QRectF(rect()).adjusted(0.5, 0.5, -0.5, -0.5));
    painter.fillRect(QRect(0, 0, 5, height()), toneColor());
}

}  // namespace shardscope::ui
