#include "ui/window/open_dialog.h"

#include <QComboBox>
#include <QDialogButtonBox>
#include <QLabel>
#include <QLineEdit>
#include <QPushButton>
#include <QVBoxLayout>

#include "ui/models/session.h"
#include "ui/models/texts.h"
#include "ui/pages/paddle_options.h"
#include "ui/pages/wizard_parts.h"

namespace shardscope::ui {

OpenDialog::OpenDialog(const QString& path, const SourceOptions& options, QWidget* parent) : QDialog(parent) {
    setObjectName(QStringLiteral("openDialog"));
    setWindowTitle(tr("Open with options"));
    setAttribute(Qt::WA_DeleteOnClose);
    setModal(false);
    auto* layout = new QVBoxLayout(this);
    layout->addWidget(wizardText(
        tr("The format is found by content, so most checkpoints need none of this. It helps where several "
           "checkpoints lie in one directory, or where one can be read in more than one way."),
        this));
    auto* grid = new FormGrid;
    path_ = new PathEdit(PathEdit::Kind::openDirectory, tr("Checkpoint to open"), {}, this);
    path_->setPath(path);
    format_ = new QComboBox(this);
    format_->setAccessibleName(tr("Format"));
    format_->addItem(tr("Found by content"), QString());
    for (const Format* format : builtinFormats()) {
        if (format->info().reads)
            format_->addItem(toQString(format->info().title), toQString(format->info().name));
    }
    format_->setCurrentIndex(std::max(0, format_->findData(options.format)));
    variant_ = new QLineEdit(options.variant, this);
    variant_->setAccessibleName(tr("Variant"));
    variant_->setPlaceholderText(tr("KEY=VALUE, for example id=3"));
    further_ = new QLineEdit(options.further.join(' '), this);
    further_->setAccessibleName(tr("Further options"));
    further_->setPlaceholderText(tr("as on the command line: --name value"));
    grid->add(tr("&Path:"), path_);
    grid->add(tr("&Format:"), format_);
    grid->add(tr("&Variant:"), variant_);
    grid->add(tr("F&urther options:"), further_);
    layout->addLayout(grid);
    paddleHeading_ = wizardHint(
        tr("PaddleNLP's checkpoints do not say everything; what is left open here is concluded from them."),
        this);
    paddle_ = new PaddleOptions(this);
    paddle_->setOptions(options);
    layout->addWidget(paddleHeading_);
    layout->addWidget(paddle_);
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
    connect(path_, &PathEdit::edited, this, &OpenDialog::check);
    connect(variant_, &QLineEdit::textChanged, this, &OpenDialog::check);
    connect(further_, &QLineEdit::textChanged, this, &OpenDialog::check);
    connect(paddle_, &PaddleOptions::edited, this, &OpenDialog::check);
    connect(format_, &QComboBox::currentIndexChanged, this, &OpenDialog::check);
    check();
}

QString OpenDialog::path() const {
    return path_->path();
}

SourceOptions OpenDialog::options() const {
    SourceOptions options;
    options.format = format_->currentData().toString();
    options.variant = variant_->text().trimmed();
    options.further = SourceOptions::split(further_->text());
    if (takesPaddleOptions()) paddle_->take(options);
    return options;
}

bool OpenDialog::takesPaddleOptions() const {
    const QString format = format_->currentData().toString();
    return format.isEmpty() || format == QLatin1String("paddlenlp");
}

void OpenDialog::check() {
    paddle_->setVisible(takesPaddleOptions());
    paddleHeading_->setVisible(takesPaddleOptions());
    const auto engine = options().toEngine();
    problem_->setText(engine.ok() ? QString()
                                  : errorSentence(engine.error()) + ' ' + errorHint(engine.error()));
    open_->setEnabled(engine.ok() && !path().isEmpty());
}

}  // namespace shardscope::ui
