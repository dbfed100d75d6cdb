#include "ui/window/open_dialog.h"

#include <QComboBox>
#include <QDialogButtonBox>
#include <QLabel>
#include <QLineEdit>
#include <QPushButton>
#include <QVBoxLayout>
#include <optional>

#include "ui/bridge/hosts.h"
#include "ui/models/session.h"
#include "ui/models/texts.h"
#include "ui/pages/format_options.h"
#include "ui/pages/wizard_parts.h"
#include "ui/widgets/building.h"

namespace shardscope::ui {

OpenDialog::OpenDialog(Where where, const QString& path, const SourceOptions& options,
                       const QStringList& hosts, QWidget* parent)
    : QDialog(parent) {
    const bool other = where == Where::otherHost;
    setObjectName(QStringLiteral("openDialog"));
    setWindowTitle(other                   ? tr("Open on host")
                   : where == Where::place ? tr("Open place")
                                           : tr("Open with options"));
    setAttribute(Qt::WA_DeleteOnClose);
    setModal(false);
    auto* layout = new QVBoxLayout(this);
    if (other) {
        layout->addWidget(wizardText(tr("The checkpoint stays where it is: metadata, and what you look at, "
                                        "come over your own ssh, which must connect without a prompt. On "
                                        "first use, this program is copied to ~/.cache/shardscope there."),
                                     this));
    }
    if (where == Where::place) {
        layout->addWidget(
            wizardText(tr("The checkpoint stays in its bucket or on the hub: metadata, and what you look at, "
                          "are read from there. Credentials are found as by the stores' own tools: the "
                          "environment, profiles, the machine's role."),
                       this));
    }
    layout->addWidget(
        wizardText(tr("The format is found by content, so most checkpoints need none of this. It helps when "
                      "a directory holds several checkpoints, or when one can be read in more than one way."),
                   this));
    auto* grid = new FormGrid;
    if (other) {
        addHost(*grid, path, hosts);
    } else {
        path_ = new PathEdit(where == Where::place ? PathEdit::Kind::address : PathEdit::Kind::openDirectory,
                             tr("Checkpoint to open"), {}, this);
        path_->setPath(path);
        path_->edit()->setPlaceholderText(
            tr("s3://bucket/run, gs://bucket/run, hf://org/model or https://…"));
        grid->add(where == Where::place ? tr("&Place:") : tr("&Path:"), path_);
        connect(path_, &PathEdit::edited, this, &OpenDialog::check);
    }
    format_ = withName(new QComboBox(this), tr("Format"));
    format_->addItem(tr("Found by content"), QString());
    for (const Format* format : builtinFormats()) {
        if (format->info().reads)
            format_->addItem(toQString(format->info().title), toQString(format->info().name));
    }
    format_->setCurrentIndex(std::max(0, format_->findData(options.format)));
    variant_ = withName(new QLineEdit(options.variant, this), tr("Variant"));
    variant_->setPlaceholderText(tr("KEY=VALUE, for example id=3"));
    further_ = withName(new QLineEdit(options.further.join(' '), this), tr("Further options"));
    further_->setPlaceholderText(tr("as on the command line: --name value"));
    grid->add(tr("&Format:"), format_);
    grid->add(tr("&Variant:"), variant_);
    grid->add(tr("F&urther options:"), further_);
    layout->addLayout(grid);
    ownHeading_ = wizardHint(tr("Some formats omit parts of the layout; empty fields are inferred."), this);
    own_ = new FormatOptions(this);
    own_->setOptions(options);
    layout->addWidget(ownHeading_);
    layout->addWidget(own_);
    problem_ = wizardHint({}, this);
    problem_->setAccessibleName(tr("What is wrong with the options"));
    layout->addWidget(problem_);
    layout->addStretch(1);
    auto* buttons = new QDialogButtonBox(QDialogButtonBox::Cancel, this);
    open_ = buttons->addButton(tr("&Open"), QDialogButtonBox::AcceptRole);
    open_->setDefault(true);
    layout->addWidget(buttons);
    layout->setSpacing(12);
    resize(640, 420);
    connect(buttons, &QDialogButtonBox::rejected, this, &QDialog::close);
    connect(buttons, &QDialogButtonBox::accepted, this, [this] {
        emit openRequested(this->path(), this->options());
        close();
    });
    connect(variant_, &QLineEdit::textChanged, this, &OpenDialog::check);
    connect(further_, &QLineEdit::textChanged, this, &OpenDialog::check);
    connect(own_, &FormatOptions::edited, this, &OpenDialog::check);
    connect(format_, &QComboBox::currentIndexChanged, this, &OpenDialog::check);
    check();
}

void OpenDialog::addHost(FormGrid& grid, const QString& path, const QStringList& hosts) {
    host_ = withName(new QComboBox(this), tr("Host"), QStringLiteral("host"));
    host_->setEditable(true);
    host_->setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Fixed);
    host_->setInsertPolicy(QComboBox::NoInsert);
    host_->addItems(hosts);
    host_->lineEdit()->setPlaceholderText(tr("node7 or me@node7:2222, as ssh knows it"));
    host_->lineEdit()->setAccessibleName(tr("Host"));
    there_ = withName(new QLineEdit(this), tr("Path on the host"), QStringLiteral("pathThere"));
    there_->setPlaceholderText(tr("/data/step-1000"));
    grid.add(tr("&Host:"), host_);
    grid.add(tr("&Path there:"), there_);
    if (const QString host = hostOf(path); !host.isEmpty()) {
        host_->setEditText(host);
        there_->setText(pathThere(path));
    } else if (hosts.isEmpty()) {
        host_->clearEditText();
    }
    // A whole ssh:// path that is put into one of the fields belongs to both.
    connect(host_, &QComboBox::editTextChanged, this, &OpenDialog::takeWholePath);
    connect(there_, &QLineEdit::textChanged, this, &OpenDialog::takeWholePath);
}

void OpenDialog::takeWholePath(const QString& text) {
    if (const QString whole = text.trimmed(); !hostOf(whole).isEmpty()) {
        host_->setEditText(hostOf(whole));
        there_->setText(pathThere(whole));
    }
    check();
}

QString OpenDialog::path() const {
    if (path_) return path_->path();
    const QString host = host_->currentText().trimmed(), there = there_->text().trimmed();
    return host.isEmpty() || there.isEmpty() ? QString() : QStringLiteral("ssh://") + host + there;
}

SourceOptions OpenDialog::options() const {
    SourceOptions options;
    options.format = format_->currentData().toString();
    options.variant = variant_->text().trimmed();
    options.further = SourceOptions::split(further_->text());
    own_->take(options);
    return options;
}

void OpenDialog::check() {
    const Format* format = findFormat(format_->currentData().toString().toStdString());
    const std::vector<FormatOption>& own = format ? format->options() : formatOptions();
    own_->offer(own);
    ownHeading_->setVisible(!own.empty());
    std::optional<Error> problem;
    if (const auto engine = options().toEngine(); !engine.ok()) problem = engine.error();
    if (host_ && !problem && !path().isEmpty()) {
        const auto there = parseSshPath(path().toStdString());
        if (!there_->text().trimmed().startsWith('/'))
            problem = makeError(ErrorCode::usage, "a path on another host begins with '/'");
        else if (!there.ok())
            problem = there.error();
    }
    problem_->setText(problem ? errorText(*problem) : QString());
    open_->setEnabled(!problem && !path().isEmpty());
}

}  // namespace shardscope::ui
