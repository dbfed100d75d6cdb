#include "ui/pages/start_page.h"

#include <QHBoxLayout>
#include <QLabel>
#include <QListWidget>
#include <QMenu>
#include <QProgressBar>
#include <QPushButton>
#include <QStackedWidget>
#include <QVBoxLayout>
#include <algorithm>
#include <tuple>

#include <unistd.h>

#include "engine/engine.h"
#include "ui/bridge/hosts.h"
#include "ui/models/texts.h"
#include "ui/pages/run_page.h"
#include "ui/widgets/building.h"
#include "ui/widgets/exporting.h"
#include "ui/widgets/labels.h"
#include "ui/widgets/theme.h"

namespace shardscope::ui {

namespace {

constexpr int kContentWidth = 720;
constexpr double kTitleSize = 1.5;  // of the usual size

// Of a verdict as the list of recent checkpoints keeps it.
QString verdictWord(const QString& name) {
    for (const Verdict verdict : {Verdict::safe, Verdict::care, Verdict::unsafe}) {
        if (name == toQString(verdictName(verdict))) return verdictText(verdict);
    }
    return name.isEmpty() ? StartPage::tr("not validated") : StartPage::tr("✓ resume from %1").arg(name);
}

// Centres a column of contents.
QVBoxLayout* column(QWidget* page) {
    auto* outer = new QHBoxLayout(page);
    auto* holder = new QWidget(page);
    holder->setMaximumWidth(kContentWidth);
    auto* layout = new QVBoxLayout(holder);
    layout->setSpacing(12);
    layout->setContentsMargins(24, 24, 24, 24);
    outer->addStretch(1);
    outer->addWidget(holder, 100);
    outer->addStretch(1);
    return layout;
}

QString formatsText() {
    QStringList both, reads;
    for (const Format* format : builtinFormats()) {
        const FormatInfo& info = format->info();
        if (info.reads) (info.writes ? both : reads) += toQString(info.title);
    }
    return StartPage::tr("Reads and writes: %1.\nReads: %2.").arg(both.join(", "), reads.join(", "));
}

}  // namespace

StartPage::StartPage(Session& session, Recents& recents, JobStore& jobs, QWidget* parent)
    : QWidget(parent), session_(session), recents_(recents), jobs_(jobs) {
    auto* layout = layoutOf<QVBoxLayout>(this, {0, 0, 0, 0});
    stack_ = new QStackedWidget(this);
    stack_->addWidget(makeStart());
    stack_->addWidget(makeOpening());
    stack_->addWidget(makeFailed());
    run_ = new RunPage(session_, this);
    connect(run_, &RunPage::openRequested, this, &StartPage::openRequested);
    connect(run_, &RunPage::compareRequested, this, &StartPage::compareRequested);
    connect(run_, &RunPage::resumes, this,
            [this](const QString& step) { recents_.validated(session_.path(), step); });
    connect(run_, &RunPage::averageRequested, this, &StartPage::averageRequested);
    stack_->addWidget(run_);
    layout->addWidget(stack_);
    connect(&session_, &Session::stateChanged, this, &StartPage::update);
    connect(&session_, &Session::progressed, this, [this] {
        if (session_.state() == Session::State::opening) stage_->setText(session_.openingStage());
    });
    connect(&recents_, &Recents::changed, this, &StartPage::fillRecents);
    connect(&jobs_, &JobStore::listChanged, this, &StartPage::fillJobs);
    connect(&jobs_, &JobStore::changed, this, &StartPage::fillJobs);
    fillRecents();
    update();
}

QWidget* StartPage::makeStart() {
    auto* page = new QWidget(this);
    QVBoxLayout* layout = column(page);
    drop_ = new QFrame(page);
    drop_->setObjectName(QStringLiteral("drop"));
    auto* dropLayout = layoutOf<QVBoxLayout>(drop_, {24, 28, 24, 28});
    auto* title = new QLabel(tr("Open a checkpoint"), drop_);
    makeBold(title, kTitleSize);
    title->setAlignment(Qt::AlignCenter);
    auto* text = new QLabel(
        tr("Drop a directory or a file here. Nothing is loaded: only metadata is read, and nothing in "
           "it is ever run."),
        drop_);
    text->setWordWrap(true);
    text->setAlignment(Qt::AlignCenter);
    auto* buttons = new QHBoxLayout;
    const auto button = [&](const QString& label, auto signal) {
        auto* b = new QPushButton(label, drop_);
        connect(b, &QPushButton::clicked, this, signal);
        buttons->addWidget(b);
        return b;
    };
    buttons->addStretch(1);
    button(tr("Open &directory…"), &StartPage::openDirectoryRequested)->setDefault(true);
    button(tr("Open &file…"), &StartPage::openFileRequested);
    button(tr("Open &place…"), &StartPage::openPlaceRequested);
    button(tr("Open on &host…"), &StartPage::openOnHostRequested);
    button(tr("Open &sample checkpoint"), &StartPage::openSampleRequested);
    buttons->addStretch(1);
    dropLayout->addWidget(title);
    dropLayout->addWidget(text);
    dropLayout->addSpacing(8);
    dropLayout->addLayout(buttons);
    layout->addSpacing(12);
    layout->addWidget(drop_);
    const auto section = [&](const QString& heading, const char* name, const QString& accessible) {
        QLabel* label = plainLabel(page, heading);
        makeBold(label);
        auto* list = withName(new QListWidget(page), accessible, QString::fromLatin1(name));
        list->setAlternatingRowColors(true);
        list->setTextElideMode(Qt::ElideMiddle);
        label->setBuddy(list);
        layout->addSpacing(8);
        layout->addWidget(label);
        layout->addWidget(list, 1);
        return std::pair(label, list);
    };
    std::tie(jobTitle_, jobList_) =
        section(tr("Running jobs"), "runningJobs", tr("Running jobs; Enter shows one"));
    connect(jobList_, &QListWidget::itemActivated, this,
            [this](QListWidgetItem* item) { emit jobRequested(item->data(Qt::UserRole).toString()); });
    std::tie(recentTitle_, recentList_) = section(tr("Recent"), "recents", tr("Recent checkpoints"));
    connect(recentList_, &QListWidget::itemActivated, this,
            [this](QListWidgetItem* item) { emit openRecentRequested(item->data(Qt::UserRole).toString()); });
    offerMenu(recentList_, [this](QMenu& menu, const QPoint& at) {
        QListWidgetItem* item = recentList_->itemAt(at);
        if (!item) return;
        const QString path = item->data(Qt::UserRole).toString();
        menu.addAction(tr("Open"), this, [this, path] { emit openRecentRequested(path); });
        addCopyAction(menu, tr("Copy path"), path);
        menu.addAction(tr("Remove from the list"), this, [this, path] { recents_.remove(path); });
    });
    layout->addStretch(0);
    layout->addSpacing(8);
    QLabel* formats = textBlock(page, formatsText());
    formats->setAccessibleName(tr("Formats"));
    formats->setForegroundRole(QPalette::PlaceholderText);
    layout->addWidget(formats);
    setDropHighlight(false);
    return page;
}

void StartPage::setDropHighlight(bool on) {
    drop_->setStyleSheet(
        QStringLiteral("#drop { border: 2px dashed %1; border-radius: 8px; background: %2; }")
            .arg((on ? accentColor() : faintTextColor()).name(), panelColor().name()));
}

QWidget* StartPage::makeOpening() {
    auto* page = new QWidget(this);
    QVBoxLayout* layout = column(page);
    opening_ = textBlock(page);
    opening_->setAlignment(Qt::AlignCenter);
    auto* bar = new QProgressBar(page);
    bar->setRange(0, 0);
    bar->setTextVisible(false);
    bar->setAccessibleName(tr("Opening"));
    auto* cancel = new QPushButton(tr("Cancel"), page);
    connect(cancel, &QPushButton::clicked, &session_, &Session::cancel);
    layout->addStretch(1);
    layout->addWidget(opening_);
    stage_ = textBlock(page);
    stage_->setAlignment(Qt::AlignCenter);
    stage_->setAccessibleName(tr("How far the opening is"));
    layout->addWidget(stage_);
    layout->addWidget(bar);
    layout->addWidget(cancel, 0, Qt::AlignHCenter);
    layout->addStretch(2);
    return page;
}

QWidget* StartPage::makeFailed() {
    auto* page = new QWidget(this);
    QVBoxLayout* layout = column(page);
    failureTitle_ = textBlock(page);
    makeBold(failureTitle_, kTitleSize);
    failureText_ = textBlock(page);
    failureText_->setAccessibleName(tr("What went wrong"));
    failureHint_ = textBlock(page);
    found_ = textBlock(page);
    auto* buttons = new QHBoxLayout;
    again_ = new QPushButton(tr("Try again"), page);
    connect(again_, &QPushButton::clicked, &session_, &Session::reload);
    auto* copy = new QPushButton(tr("Copy the message"), page);
    connect(copy, &QPushButton::clicked, this, [this] {
        if (session_.error()) copyText(toQString(describe(*session_.error())));
    });
    auto* other = new QPushButton(tr("Open another…"), page);
    connect(other, &QPushButton::clicked, this, &StartPage::openDirectoryRequested);
    auto* options = new QPushButton(tr("Open with options…"), page);
    connect(options, &QPushButton::clicked, this, &StartPage::openWithOptionsRequested);
    auto* back = new QPushButton(tr("Back to the start"), page);
    connect(back, &QPushButton::clicked, &session_, &Session::close);
    for (QPushButton* button : {again_, copy, options, other, back})
        buttons->addWidget(button);
    buttons->addStretch(1);
    choices_ = new QVBoxLayout;
    severalList_ =
        withName(new QListWidget(page), tr("Checkpoints here; Enter opens one"), QStringLiteral("several"));
    severalList_->setAlternatingRowColors(true);
    severalList_->setTextElideMode(Qt::ElideMiddle);
    connect(severalList_, &QListWidget::itemActivated, this, [this](QListWidgetItem* item) {
        emit openRequested(session_.path() + '/' + item->data(Qt::UserRole).toString());
    });
    layout->addStretch(1);
    layout->addWidget(failureTitle_);
    layout->addWidget(failureText_);
    layout->addWidget(failureHint_);
    layout->addWidget(found_);
    layout->addLayout(choices_);
    layout->addWidget(severalList_, 12);
    layout->addSpacing(8);
    layout->addLayout(buttons);
    layout->addStretch(3);
    return page;
}

void StartPage::fillRecents() {
    recentList_->clear();
    for (const Recent& recent : recents_.list()) {
        QStringList facts;
        if (!recent.format.isEmpty()) facts += recent.format;
        if (recent.bytes) facts += sizeText(recent.bytes);
        if (!recent.options.empty()) facts += shellLine(recent.options.words());
        facts += verdictWord(recent.verdict);
        facts += agoText(recent.time);
        auto* item =
            new QListWidgetItem(toQString(recent.path.toStdString()) + '\n' + facts.join(" · "), recentList_);
        item->setData(Qt::UserRole, recent.path);
        item->setToolTip((recent.path + QLatin1Char('\n') + momentText(recent.time)).toHtmlEscaped());
    }
    recentList_->setMaximumHeight(recentList_->count() * recentList_->sizeHintForRow(0) +
                                  2 * recentList_->frameWidth());
    recentTitle_->setVisible(recentList_->count() > 0);
    recentList_->setVisible(recentList_->count() > 0);
}

// Jobs tell of themselves several times a second, also while a checkpoint hides this page.
void StartPage::fillJobs() {
    if (!isVisible()) return;
    const QListWidgetItem* current = jobList_->currentItem();
    const QString chosen = current ? current->data(Qt::UserRole).toString() : QString();
    jobList_->clear();
    for (const auto& job : jobs_.jobs()) {
        if (!job->active()) continue;
        auto* item = new QListWidgetItem(
            toQString(job->record.title) + '\n' + toQString(job->progress.text()), jobList_);
        item->setData(Qt::UserRole, job->id);
        if (job->id == chosen) jobList_->setCurrentItem(item);
    }
    constexpr int kMostJobs = 4;  // more scroll
    jobList_->setFixedHeight(std::min(kMostJobs, jobList_->count()) * jobList_->sizeHintForRow(0) +
                             2 * jobList_->frameWidth());
    jobTitle_->setVisible(jobList_->count() > 0);
    jobList_->setVisible(jobList_->count() > 0);
}

void StartPage::showEvent(QShowEvent* event) {
    QWidget::showEvent(event);
    fillJobs();
}

void StartPage::update() {
    switch (session_.state()) {
        case Session::State::opening:
            opening_->setText(tr("Opening %1").arg(toQString(session_.path().toStdString())));
            stage_->setText(session_.openingStage());
            stack_->setCurrentIndex(1);
            break;
        case Session::State::failed:
            showFailure();
            stack_->setCurrentIndex(2);
            break;
        case Session::State::run:
            stack_->setCurrentIndex(3);
            break;
        default:
            stack_->setCurrentIndex(0);
            break;
    }
}

void StartPage::showFailure() {
    const Error& error = *session_.error();
    const QString path = session_.path();
    const FailedPath& there = session_.failedPath();
    const QString host = hostOf(path);
    while (QLayoutItem* item = choices_->takeAt(0)) {
        delete item->widget();
        delete item;
    }
    QString title = tr("This could not be opened");
    QString hint = errorHint(error);
    QString holds;
    bool unfinished = false;
    const QString staged = resultOfStaging(path);
    switch (error.code) {
        case ErrorCode::notFound:
            title =
                there.exists ? tr("This checkpoint is not finished") : tr("There is nothing at this path");
            unfinished = there.exists;
            break;
        case ErrorCode::permission:
            title = tr("Access was refused");
            if (!host.isEmpty()) break;
            hint += (hint.isEmpty() ? "" : " ") +
                    tr("You are user %1, group %2; the owner is %3. Ask for read access, for example with "
                       "“chmod -R a+rX %4”.")
                        .arg(::getuid())
                        .arg(::getgid())
                        .arg(there.owner, shellQuoted(path));
            break;
        case ErrorCode::unsupported: {
            title = there.directory || !host.isEmpty() ? tr("Unrecognized checkpoint")
                                                       : tr("Unrecognized file type");
            holds = there.found;
            for (qsizetype i = 0; i < there.files.size() && i < 8; ++i) {
                const QString file = path + '/' + there.files[i];
                auto* button =
                    new QPushButton(tr("Open “%1” alone").arg(toQString(there.files[i].toStdString())), this);
                connect(button, &QPushButton::clicked, this, [this, file] { emit openRequested(file); });
                choices_->addWidget(button, 0, Qt::AlignLeft);
            }
            break;
        }
        case ErrorCode::damaged:
            title = tr("The metadata is damaged");
            break;
        case ErrorCode::remote:
            title = tr("Cannot reach %1").arg(host);
            break;
        case ErrorCode::limit:
            title = tr("A limit was reached");
            break;
        case ErrorCode::unsafe:
            title = tr("This is not safe to open");
            break;
        default:
            break;
    }
    if (!staged.isEmpty()) {
        unfinished = true;
        title = tr("A conversion is running here, or was interrupted");
        hint = tr("Its result will be '%1'. The jobs (Ctrl+J) say how far it is, and resume one that was "
                  "interrupted.")
                   .arg(toQString(staged.toStdString()));
    }
    showSeveral(there.choices);
    if (severalList_->count()) {
        title = tr("This directory holds %1 checkpoints").arg(severalList_->count());
        hint = tr("Open one of them:");
    }
    failureText_->setHidden(severalList_->count());
    again_->setText(unfinished ? tr("Look again") : tr("Try again"));
    failureTitle_->setText(title);
    failureText_->setText(errorSentence(error));
    failureHint_->setText(hint);
    failureHint_->setVisible(!hint.isEmpty());
    found_->setText(holds);
    found_->setVisible(!holds.isEmpty());
}

void StartPage::showSeveral(const std::vector<OneOfSeveral>& choices) {
    severalList_->clear();
    severalList_->setHidden(choices.size() < 2);
    if (severalList_->isHidden()) return;
    for (const OneOfSeveral& choice : choices) {
        QStringList facts{toQString(choice.what)};
        if (choice.bytes) facts += sizeText(choice.bytes);
        auto* item = new QListWidgetItem(toQString(choice.path) + '\n' + facts.join(" · "), severalList_);
        item->setData(Qt::UserRole, QString::fromStdString(choice.path));
    }
    severalList_->setCurrentRow(0);
    severalList_->setFocus();
}

}  // namespace shardscope::ui
