#include "ui/pages/verdict_strip.h"

#include <QAction>
#include <QHBoxLayout>
#include <QLabel>
#include <QMenu>
#include <QPainter>
#include <QPushButton>
#include <algorithm>
#include <array>

#include "ui/models/texts.h"
#include "ui/pages/overview_rows.h"
#include "ui/widgets/labels.h"
#include "ui/widgets/painting.h"
#include "ui/widgets/task_progress.h"
#include "ui/widgets/theme.h"

namespace shardscope::ui {

namespace {

// "2 tensors have gaps, 1 tensor lacks bytes", by state.
QString damageText(const Facts& facts) {
    std::array<size_t, 7> counts{};
    for (const Health health : facts.tensorHealth)
        ++counts[static_cast<size_t>(health)];
    QStringList parts;
    const auto say = [&](Health health, const QString& one, const QString& many) {
        const size_t count = counts[static_cast<size_t>(health)];
        if (count > 0) parts += countedText(count, one, many);
    };
    say(Health::gap, VerdictStrip::tr("1 tensor has gaps"), VerdictStrip::tr("%1 tensors have gaps"));
    say(Health::missing, VerdictStrip::tr("1 tensor lacks bytes"), VerdictStrip::tr("%1 tensors lack bytes"));
    say(Health::overlap, VerdictStrip::tr("1 tensor has chunks that overlap or leave it"),
        VerdictStrip::tr("%1 tensors have chunks that overlap or leave them"));
    say(Health::differs, VerdictStrip::tr("1 tensor has copies that differ"),
        VerdictStrip::tr("%1 tensors have copies that differ"));
    say(Health::nonFinite, VerdictStrip::tr("1 tensor holds NaN or infinities"),
        VerdictStrip::tr("%1 tensors hold NaN or infinities"));
    return parts.join(QStringLiteral(", "));
}

}  // namespace

VerdictStrip::VerdictStrip(Session& session, QWidget* parent) : QFrame(parent), session_(session) {
    setAccessibleName(tr("Verdict"));
    auto* layout = new QHBoxLayout(this);
    layout->setContentsMargins(16, 10, 12, 10);
    layout->setSpacing(12);
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
    QFont bold = font();
    bold.setBold(true);
    bold.setPointSizeF(bold.pointSizeF() * 1.15);
    headline_->setFont(bold);
    details_ = textBlock(this);
    progress_ = new TaskProgress(tr("Progress of the validation"), this);
    texts->addWidget(headline_);
    texts->addWidget(details_);
    texts->addWidget(progress_);
    texts->addStretch();
    layout->addLayout(texts, 1);

    auto* buttons = new QHBoxLayout;
    buttons->setSpacing(6);
    damaged_ = new QPushButton(tr("Show damaged"), this);
    damaged_->setToolTip(tr("Filter the tree to damaged tensors"));
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
    connect(damaged_, &QPushButton::clicked, this,
            [this] { session_.selection().setFilter(QStringLiteral("status:bad")); });
    connect(&session_, &Session::stateChanged, this, &VerdictStrip::refresh);
    connect(&session_, &Session::factsChanged, this, &VerdictStrip::refresh);
    connect(&session_, &Session::reportChanged, this, &VerdictStrip::refresh);
    connect(&session_, &Session::verdictChanged, this, &VerdictStrip::refresh);
    connect(&session_, &Session::cardChanged, this, &VerdictStrip::refresh);
    connect(&session_, &Session::filesChanged, this, &VerdictStrip::refresh);
    connect(&session_, &Session::progressed, this, [this] {
        if (session_.validating()) showProgress();
    });
    refresh();
}

QString VerdictStrip::headline() const {
    return headline_->text();
}
QString VerdictStrip::details() const {
    return details_->text();
}

QColor VerdictStrip::toneColor() const {
    switch (tone_) {
        case Tone::good:
            return verdictColor(Verdict::safe);
        case Tone::care:
            return verdictColor(Verdict::care);
        case Tone::bad:
            return verdictColor(Verdict::unsafe);
        case Tone::unknown:
            return faintTextColor();
    }
    return {};
}

void VerdictStrip::say(Tone tone, const QString& headline, const QString& details) {
    tone_ = tone;
    constexpr const char* glyphs[] = {"?", "✓", "▲", "✕"};
    glyph_->setText(QString::fromUtf8(glyphs[static_cast<int>(tone)]));
    headline_->setText(headline);
    details_->setText(details);
    details_->setVisible(!details.isEmpty());
    setAccessibleDescription(headline + QLatin1Char(' ') + details);
    update();
}

void VerdictStrip::refresh() {
    const bool open = session_.checkpoint() != nullptr;
    const bool validating = session_.validating();
    progress_->setVisible(validating);
    cancel_->setVisible(validating);
    validate_->setVisible(!validating);
    const QString obstacle = session_.validationObstacle(ValidateLevel::metadata);
    validate_->setEnabled(obstacle.isEmpty());
    validate_->setToolTip(obstacle);
    for (int i = 0; i < levels_.size(); ++i) {
        const auto level = static_cast<ValidateLevel>(i);
        const QString why = session_.validationObstacle(level);
        levels_[i]->setText(tr("%1: %2").arg(levelText(level), session_.validationCost(level)));
        levels_[i]->setEnabled(why.isEmpty());
        levels_[i]->setToolTip(why);
    }
    convert_->setEnabled(open);
    damaged_->setVisible(session_.hasFacts() && session_.facts()->worst() > Health::unread && !validating);
    validate_->setText(session_.report() ? tr("Validate again") : tr("Validate"));
    if (validating)
        showProgress();
    else if (session_.report())
        showReport();
    else
        showUnvalidated();
}

void VerdictStrip::showProgress() {
    const TaskStatus status = session_.validationStatus();
    progress_->setStatus(status);
    say(Tone::unknown, tr("Validating…"), toQString(status.tensor.toStdString()));
}

void VerdictStrip::showReport() {
    const ValidationReport& report = *session_.report();
    const Judgement judgement = judgementOf(report, session_.suppressions());
    QString details = tr("%1: %2.").arg(session_.depth(), toQString(judgement.found()));
    details[0] = details[0].toUpper();
    const QString damage = session_.facts() ? damageText(*session_.facts()) : QString();
    if (!damage.isEmpty()) details += QLatin1Char(' ') + damage + QLatin1Char('.');
    if (const QString notChecked = notCheckedText(report); !notChecked.isEmpty())
        details += tr("\nNot checked: %1.").arg(notChecked);
    if (judgement.partly()) return say(Tone::unknown, toQString(judgement.words()), details);
    static constexpr Tone tones[] = {Tone::good, Tone::care, Tone::bad};
    const CardAnswer answer = answerOf(*session_.card());
    say(tones[static_cast<int>(answer.tone)], shortWords(answer.words), details);
}

void VerdictStrip::showUnvalidated() {
    if (!session_.checkpoint())
        return say(Tone::unknown, tr("Nothing is open"), tr("Open a checkpoint to see what is in it."));
    QString details;
    Tone tone = Tone::unknown;
    if (session_.validationError())
        details = tr("The validation ended early: %1\n").arg(errorSentence(*session_.validationError()));
    if (!session_.facts()) {
        details += tr("Checking coverage of tensors and sizes of files…");
    } else {
        const QString damage = damageText(*session_.facts());
        if (session_.facts()->worst() > Health::unread) {
            tone = Tone::bad;
            details += damage.isEmpty() ? tr("Damage shows already: a file is missing or truncated.")
                                        : tr("Damage shows already: %1.").arg(damage);
            details += tr("\nNot checked: what the files hold, values, checksums.");
        } else {
            details +=
                tr("Metadata shows no damage: chunks cover every tensor and every file is long enough. "
                   "Not checked: what the files hold, values, checksums.");
        }
    }
    if (const LeftOut left = leftOut(session_.catalog()); left.first) {
        tone = std::max(tone, Tone::care);
        details.prepend(leftOutText(left) + QStringLiteral(".\n"));
    }
    if (const QString writing = session_.beingWritten(); !writing.isEmpty())
        return say(tone == Tone::bad ? tone : Tone::care, tr("Still being written: not validated"),
                   writing + '\n' + details);
    say(tone, tr("Not validated (metadata read only)"), details);
}

void VerdictStrip::paintEvent(QPaintEvent*) {
    QPainter painter(this);
    painter.fillRect(rect(), softened(toneColor(), tone_ == Tone::unknown ? 0.08 : 0.14));
    painter.setPen(QPen(gridColor(), 1));
    painter.drawRect(QRectF(rect()).adjusted(0.5, 0.5, -0.5, -0.5));
    painter.fillRect(QRect(0, 0, 5, height()), toneColor());
}

void VerdictStrip::changeEvent(QEvent* event) {
    if (event->type() == QEvent::PaletteChange) update();
    QFrame::changeEvent(event);
}

}  // namespace shardscope::ui
