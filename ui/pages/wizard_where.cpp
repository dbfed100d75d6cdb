#include <QComboBox>
#include <QDir>
#include <QFileInfo>
#include <QHeaderView>
#include <QLabel>
#include <QLineEdit>
#include <QPushButton>
#include <QSignalBlocker>
#include <QSpinBox>
#include <QTreeWidget>
#include <QVBoxLayout>

#include "accelerator/accelerator.h"
#include "cluster/coordinator.h"
#include "cluster/worker_list.h"
#include "ui/bridge/hosts.h"
#include "ui/models/texts.h"
#include "ui/pages/wizard_pages.h"
#include "ui/widgets/building.h"
#include "ui/widgets/card.h"

namespace shardscope::ui {

namespace {

const QString kLocal = QStringLiteral("local:"), kSsh = QStringLiteral("ssh:"),
              kSlurm = QStringLiteral("slurm"),                               // ":" and options follow
    kRanks = QStringLiteral("ranks:"), kGpus = QStringLiteral("local-gpus");  // "," and a mode may follow

QString hereName() {
    return WhereStep::tr("this machine");
}

}  // namespace

WhereStep::WhereStep(WizardState& state)
    : WizardPage(state, tr("Where to run"),
                 tr("Where it runs. Jobs are planned on this machine and survive closing the window.")) {
    auto* form = new FormGrid;
    where_ = withName(new QComboBox(this), tr("Who works"), QStringLiteral("where"));
    processes_ = new QSpinBox(this);
    processes_->setObjectName(QStringLiteral("processes"));
    processes_->setAccessibleName(tr("Processes"));
    processes_->setRange(2, 256);
    mode_ = withName(new QComboBox(this), tr("What goes between the ranks"), QStringLiteral("rankMode"));
    mode_->addItem(tr("as the source allows"), QString());
    mode_->addItem(tr("each reads what it writes"), QStringLiteral("direct"));
    mode_->addItem(tr("rank 0 reads for all"), QStringLiteral("broadcast"));
    mode_->addItem(tr("each reads the files that it has"), QStringLiteral("exchange"));
    hosts_ = withName(new QLineEdit(this), tr("Hosts"), QStringLiteral("hosts"));
    hosts_->setPlaceholderText(tr("node7,node8"));
    slurm_ = withName(new QLineEdit(this), tr("Options of Slurm"), QStringLiteral("slurm"));
    slurm_->setPlaceholderText(tr("nodes=4,partition=gpu,time=02:00:00,account=lab"));
    if (const QString host = hostOf(state_.session().path()); !host.isEmpty()) {
        add(tr("On %1 itself, where the checkpoint is stored").arg(host),
            {{},
             tr("One process there reads and writes; only its progress comes here. If the connection ends, "
                "so does the work; Resume continues it."),
             nullptr,
             true});
        hosts_->setText(host.section(':', 0, 0));
    }
    add(tr("One process on this machine"), {{}, tr("It needs nothing else."), nullptr, false});
    add(tr("Several processes on this machine"),
        {kLocal, tr("They share the work and the cores; one that dies costs only what it was doing."),
         processes_, false});
    add(tr("Distributed ranks (Gloo) on this machine"),
        {kRanks,
         tr("Processes that serve each other their files. One of them can read each byte once for all, which "
            "goes through libtorch."),
         processes_, false, true});
    add(tr("Ranks, one on each GPU here"),
        {kGpus,
         tr("The same, and bytes go from GPU to GPU over NCCL. Between files the ranks without GPUs are "
            "faster."),
         mode_, false, true});
    add(tr("Other hosts, through your ssh"), {kSsh,
                                              tr("Source and destination must have the same paths on all of "
                                                 "them and here, and each must accept ssh without a prompt."),
                                              hosts_, false});
    add(tr("Slurm"), {kSlurm, tr("Source and destination must have the same paths on its nodes and here."),
                      slurm_, false});
    auto* row = new QHBoxLayout;
    row->addWidget(where_);
    row->setSpacing(6);
    row->addWidget(processes_);
    row->addWidget(mode_);
    row->addWidget(hosts_, 1);
    row->addWidget(slurm_, 1);
    row->addStretch();
    form->add(tr("&Where:"), row, where_);
    note_ = wizardText({}, this);
    form->add({}, note_);
    layout_->addLayout(form);
    layout_->addSpacing(8);
    layout_->addWidget(wizardHeading(tr("Check before the start"), this));
    layout_->addLayout(buildCheck());
    layout_->addWidget(reports_, 1);

    connect(where_, &QComboBox::activated, this, &WhereStep::take);
    connect(processes_, &QSpinBox::valueChanged, this, &WhereStep::take);
    connect(mode_, &QComboBox::activated, this, &WhereStep::take);
    connect(hosts_, &QLineEdit::textEdited, this, &WhereStep::take);
    connect(slurm_, &QLineEdit::textEdited, this, &WhereStep::take);
    // Another conversion: what was found is not about it, and no longer in the way of it.
    connect(&state_, &WizardState::specReplaced, this, &WhereStep::forget);
    follow();
}

WhereStep::~WhereStep() {
    for (Ticket& ticket : tickets_)
        ticket.drop();
}

void WhereStep::add(const QString& label, Kind kind) {
    where_->addItem(label);
    kinds_.push_back(std::move(kind));
}

QLayout* WhereStep::buildCheck() {
    auto* row = new QHBoxLayout;
    check_ =
        withName(new QPushButton(tr("Check"), this), tr("Check the places"), QStringLiteral("checkPlaces"));
    cancel_ = new QPushButton(tr("Cancel"), this);
    cancel_->setObjectName(QStringLiteral("cancelCheck"));
    cancel_->setAccessibleName(tr("Cancel the check"));
    for (QPushButton* button : {check_, cancel_}) {
        button->setAutoDefault(false);
        row->addWidget(button);
    }
    checkNote_ = wizardHint({}, this);
    row->addWidget(checkNote_, 1);
    reports_ = new QTreeWidget(this);
    reports_->setObjectName(QStringLiteral("places"));
    dressTree(*reports_, tr("What was found at each place"), false);
    reports_->setHeaderLabels({tr("Place"), tr("What was found")});
    reports_->header()->setSectionResizeMode(0, QHeaderView::ResizeToContents);
    reports_->setWordWrap(true);
    reports_->setUniformRowHeights(false);
    connect(check_, &QPushButton::clicked, this, &WhereStep::check);
    connect(cancel_, &QPushButton::clicked, this, [this] {
        for (Ticket& ticket : tickets_)
            ticket.cancel();
    });
    return row;
}

size_t WhereStep::kindOfSpec() const {
    const ConversionSpec& spec = state_.spec();
    size_t one = 0, other = 0;
    for (size_t k = 0; k < kinds_.size(); ++k) {
        const Kind& kind = kinds_[k];
        if (kind.words.isEmpty() && kind.there == !spec.host.isEmpty()) one = k;
        if (kind.words == kSsh) other = k;
        if (!kind.words.isEmpty() && spec.where.startsWith(kind.words)) return k;
    }
    // What the page cannot show as it is, such as two kinds together, stands among the hosts.
    return spec.where.isEmpty() ? one : other;
}

void WhereStep::take() {
    const Kind& kind = kinds_[static_cast<size_t>(where_->currentIndex())];
    QString where = kind.words;
    if (kind.field == processes_) where += QString::number(processes_->value());
    if (const QString mode = mode_->currentData().toString(); kind.ranks && !mode.isEmpty())
        where += ',' + mode;
    if (kind.field == hosts_) where += hosts_->text().remove(' ');
    if (const QString options = slurm_->text().remove(' '); kind.field == slurm_ && !options.isEmpty())
        where += ':' + options;
    // Hosts that are only begun are kept as they are, so that the job cannot start with fewer.
    state_.edit([&](ConversionSpec& spec) {
        spec.where = where;
        if (!kind.ranks) spec.leaveRanks();
        spec.host = kind.there ? hostOf(state_.session().path()) : QString();
    });
}

bool WhereStep::attention() const {
    return !state_.problem(this).isEmpty();
}

void WhereStep::showSpec() {
    const ConversionSpec& spec = state_.spec();
    const size_t at = kindOfSpec();
    const Kind& kind = kinds_[at];
    where_->setCurrentIndex(static_cast<int>(at));
    QString rest = spec.where.mid(kind.words.size());
    if (kind.field == slurm_ && rest.startsWith(':')) rest.remove(0, 1);
    if (kind.ranks) {
        const QSignalBlocker quiet(mode_);
        const qsizetype comma = rest.indexOf(',');
        const int mode = comma < 0 ? 0 : mode_->findData(rest.mid(comma + 1));
        mode_->setCurrentIndex(std::max(0, mode));
        if (comma >= 0) rest.truncate(comma);
    }
    if (kind.field == processes_) {
        const QSignalBlocker quiet(processes_);
        processes_->setValue(rest.toInt());
    }
    for (QLineEdit* edit : {hosts_, slurm_}) {
        if (kind.field == edit && edit->text().remove(' ') != rest) edit->setText(rest);
    }
    for (QWidget* field : std::initializer_list<QWidget*>{processes_, mode_, hosts_, slurm_})
        field->setVisible(field == kind.field || (field == mode_ && kind.ranks));
    processes_->setAccessibleName(kind.ranks ? tr("Ranks") : tr("Processes"));
    const Status known = checkWhere(spec.where);
    if (known.ok())
        note_->setText(kind.note);
    else if (kind.field == hosts_)
        note_->setText(tr("▲ Names of hosts as ssh takes them, with commas between them."));
    else
        note_->setText(tr("▲ %1").arg(errorText(known.error())));
    // What was found says nothing about other hosts.
    const QStringList now{spec.where, spec.host, spec.source, spec.destination};
    if (now != asked_ && !asked_.isEmpty()) forget();
    sync();
}

void WhereStep::forget() {
    for (Ticket& ticket : tickets_)
        ticket.drop();
    tickets_.clear();
    asked_.clear();
    reports_->clear();
    state_.setProblem(this, {});
}

void WhereStep::sync() {
    bool running = false;
    for (const Ticket& ticket : tickets_)
        running = running || ticket.running();
    const ConversionSpec& spec = state_.spec();
    const bool known = spec.where.startsWith(kSlurm) || checkWhere(spec.where).ok();
    check_->setVisible(!running);
    // What is needed there is what the plan says.
    check_->setEnabled(known && !spec.destination.isEmpty() && state_.session().checkpoint() &&
                       !state_.working());
    cancel_->setVisible(running);
    checkNote_->setText(running ? tr("Looking…")
                        : !asked_.isEmpty()
                            ? QString()
                            : tr("Checks each host: reachable, same version, source visible, enough space."));
}

void WhereStep::check() {
    forget();
    const ConversionSpec& spec = state_.spec();
    asked_ = QStringList{spec.where, spec.host, spec.source, spec.destination};
    const auto workers = parseWorkers(spec.where.toStdString());
    if (!spec.host.isEmpty()) {
        if (const auto there = parseSshPath(state_.session().path().toStdString()); there.ok())
            ask(spec.host, there->host);
    } else if (spec.where.isEmpty() || spec.where.startsWith(kSlurm) || !workers.ok() || workers->ranks) {
        ask(spec.where.startsWith(kSlurm) ? QStringLiteral("Slurm") : hereName(), {});
    } else {
        // The host that plans works, too.
        ask(hereName(), {});
        QStringList names;
        for (const WorkerSpec& worker : workers->workers) {
            const QString name = toQString(worker.host);
            if (name.isEmpty() || names.contains(name)) continue;
            names += name;
            ask(name, worker);
        }
    }
    sync();
    emit state_.outlookChanged();
}

void WhereStep::ask(const QString& name, const HostSpec& where) {
    auto* row = new QTreeWidgetItem(reports_, {QStringLiteral("… ") + name, tr("Looking…")});
    row->setData(0, Qt::UserRole, name);
    const ConversionSpec& spec = state_.spec();
    HostNeeds needs;
    needs.source = spec.source;
    needs.destination = spec.destination.startsWith('/')
                            ? spec.destination
                            : QDir::cleanPath(QFileInfo(spec.destination).absoluteFilePath());
    needs.overwrite = spec.overwrite || spec.resume;
    if (state_.outlook() && state_.outlook()->plan) needs.bytes = state_.outlook()->plan->bytesWritten;
    const bool slurm = spec.where.startsWith(kSlurm);
    std::optional<RankNeeds> ranks;
    if (spec.where.startsWith(kRanks) || spec.where.startsWith(kGpus)) {
        ranks.emplace();
        ranks->gpus = spec.where.startsWith(kGpus);
        ranks->gpusHere = gpusHere();
        if (ranks->gpus || spec.where.endsWith(QLatin1String(",broadcast")))
            ranks->torch = ranks->gpus ? accelerator().findNccl() : accelerator().findTorch();
    }
    tickets_.push_back(state_.session().tasks().run<HostReport>(
        Work::metadata, tr("Looking at %1").arg(name),
        [engine = state_.session().enginePtr(), checkpoint = state_.session().checkpoint(), name, where,
         needs, slurm, ranks,
         options = spec.where.mid(kSlurm.size() + 1)](const TaskContext& context) -> Result<HostReport> {
            const auto facts = engine->lookAt(
                where, checkpoint, {needs.source.toStdString(), needs.destination.toStdString()}, context);
            auto report = slurm   ? slurmReport(options, facts, needs, context.stop)
                          : ranks ? rankReport(name, *ranks, facts, needs)
                                  : hostReport(name, facts, needs);
            SHARDSCOPE_TRY(context.stop.poll());
            return report;
        },
        [this, name](Result<HostReport> answer) {
            show(answer.ok() ? *answer
                             : HostReport{name, {{HostLine::Kind::unknown, errorSentence(answer.error())}}});
        }));
}

void WhereStep::show(const HostReport& report) {
    for (int i = 0; i < reports_->topLevelItemCount(); ++i) {
        QTreeWidgetItem* row = reports_->topLevelItem(i);
        if (row->data(0, Qt::UserRole).toString() != report.host) continue;
        row->setText(0, markOf(report.worst()) + ' ' + report.host);
        row->setText(1, report.summary());
        for (const HostLine& line : report.lines) {
            auto* item = new QTreeWidgetItem(row, {QString(), markOf(line.kind) + ' ' + line.text});
            item->setToolTip(1, line.text.toHtmlEscaped());
        }
        row->setExpanded(true);
    }
    const auto bad = std::ranges::find(report.lines, HostLine::Kind::bad, &HostLine::kind);
    if (bad != report.lines.end() && state_.problem(this).isEmpty())
        state_.setProblem(
            this, tr("The check on the page Where to run failed. %1: %2").arg(report.host, bad->text));
    sync();
    emit state_.outlookChanged();  // the list of steps shows what needs attention
}

}  // namespace shardscope::ui
