#include "ui/pages/compare_setup.h"

#include <QCheckBox>
#include <QComboBox>
#include <QCompleter>
#include <QFormLayout>
#include <QGridLayout>
#include <QLabel>
#include <QLineEdit>
#include <QMenu>
#include <QPlainTextEdit>
#include <QPushButton>
#include <QSettings>
#include <QToolButton>

#include "plan/request_text.h"
#include "ui/models/texts.h"
#include "ui/pages/recipe_edit.h"
#include "ui/widgets/building.h"
#include "ui/widgets/file_dialog.h"
#include "ui/widgets/labels.h"
#include "ui/widgets/theme.h"

namespace shardscope::ui {

namespace {
constexpr int kMostRecent = 12;
const QString kRecentKey = QStringLiteral("compare/recent");
}  // namespace

CompareSetup::CompareSetup(QWidget* parent) : QWidget(parent) {
    setAccessibleName(tr("What to compare"));
    auto* grid = new QGridLayout(this);
    grid->setContentsMargins(0, 0, 0, 0);
    grid->setHorizontalSpacing(8);
    grid->setVerticalSpacing(6);
    auto* a = new QLabel(tr("A, this one"), this);
    auto* b = new QLabel(tr("&B, the other"), this);
    thisPath_ = plainLabel(this);
    thisPath_->setTextInteractionFlags(Qt::TextSelectableByMouse);
    thisPath_->setSizePolicy(QSizePolicy::Ignored, QSizePolicy::Preferred);
    thisPath_->setAccessibleName(tr("Path of A"));
    other_ = new QComboBox(this);
    other_->setEditable(true);
    other_->setInsertPolicy(QComboBox::NoInsert);
    other_->setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Fixed);
    other_->setMinimumContentsLength(20);
    other_->completer()->setCompletionMode(QCompleter::PopupCompletion);
    other_->lineEdit()->setPlaceholderText(
        tr("Directory or file of another checkpoint; it can be dropped here"));
    other_->setAccessibleName(tr("Path of the checkpoint to compare with"));
    other_->addItems(QSettings().value(kRecentKey).toStringList());
    other_->setEditText({});
    // What is dropped is for the page: a line edit would take it for text.
    other_->setAcceptDrops(false);
    other_->lineEdit()->setAcceptDrops(false);
    b->setBuddy(other_);
    browse_ = withName(new QPushButton(tr("Browse…"), this), tr("Browse for the checkpoint to compare with"));
    compare_ = withName(new QPushButton(tr("Compare"), this), tr("Compare"));
    cancel_ = withName(new QPushButton(tr("Cancel"), this), tr("Cancel the comparison"));
    weightsOnly_ = withName(new QCheckBox(tr("&Weights only"), this), tr("Compare weights only"));
    weightsOnly_->setToolTip(
        tr("Parameters and buffers alone: what a conversion of weights only leaves out is left out here"));
    rulesButton_ = new QToolButton(this);
    rulesButton_->setToolButtonStyle(Qt::ToolButtonTextBesideIcon);
    rulesButton_->setArrowType(Qt::RightArrow);
    rulesButton_->setCheckable(true);
    rulesButton_->setAutoRaise(true);
    rulesButton_->setAccessibleName(tr("Recipe and rename rules"));
    rulesButton_->setToolTip(
        tr("A recipe and rules that turn tensors of A into those of B before they are compared"));
    names_ = new QWidget(this);
    auto* names = new QFormLayout(names_);
    names->setContentsMargins(0, 0, 0, 0);
    recipe_ = new RecipeEdit(names_);
    rules_ = new QPlainTextEdit(names_);
    rules_->setPlaceholderText(
        tr("One rule on each line, FROM=TO: a regular expression over names of A and what replaces "
           "it, e.g. ^model\\.="));
    rules_->setAccessibleName(tr("Rename rules, one on each line"));
    rules_->setTabChangesFocus(true);
    rules_->setFixedHeight(3 * rules_->fontMetrics().lineSpacing() + 14);
    rulesProblem_ = wrappedLabel(names_);
    grid->addWidget(a, 0, 0);
    grid->addWidget(thisPath_, 0, 1);
    grid->addWidget(weightsOnly_, 0, 2);
    grid->addWidget(rulesButton_, 0, 3, Qt::AlignRight);
    grid->addWidget(b, 1, 0);
    grid->addWidget(other_, 1, 1);
    grid->addWidget(browse_, 1, 2);
    grid->addWidget(compare_, 1, 3);
    grid->addWidget(cancel_, 1, 3);
    names->addRow(tr("&Recipe"), recipe_);
    names->addRow(tr("Re&name"), rules_);
    names->addRow(QString(), rulesProblem_);
    grid->addWidget(names_, 2, 0, 1, 4);
    grid->setColumnStretch(1, 1);
    names_->hide();

    connect(rulesButton_, &QToolButton::toggled, this, [this](bool open) {
        rulesButton_->setArrowType(open ? Qt::DownArrow : Qt::RightArrow);
        names_->setVisible(open);
        if (open) recipe_->setFocus();
    });
    auto* kinds = new QMenu(browse_);
    kinds->addAction(tr("Directory…"), this, [this] { browse(false); });
    kinds->addAction(tr("File…"), this, [this] { browse(true); });
    browse_->setMenu(kinds);
    connect(compare_, &QPushButton::clicked, this, &CompareSetup::compareRequested);
    connect(cancel_, &QPushButton::clicked, this, &CompareSetup::cancelRequested);
    connect(other_->lineEdit(), &QLineEdit::returnPressed, this, [this] {
        if (compare_->isEnabled() && !busy_) emit compareRequested();
    });
    connect(other_, &QComboBox::editTextChanged, this, &CompareSetup::refresh);
    connect(rules_, &QPlainTextEdit::textChanged, this, &CompareSetup::refresh);
    connect(recipe_, &RecipeEdit::edited, this, &CompareSetup::refresh);
    refresh();
}

void CompareSetup::setThisPath(const QString& path) {
    whole_ = path;
    thisPath_->setText(path.isEmpty() ? tr("nothing is open") : path);
    thisPath_->setToolTip(path.toHtmlEscaped());
}

QString CompareSetup::otherPath() const {
    return other_->currentText().trimmed();
}
void CompareSetup::setOtherPath(const QString& path) {
    other_->setEditText(path);
}
void CompareSetup::setRules(const QString& text) {
    rules_->setPlainText(text);
}

Result<std::vector<RenameRule>> CompareSetup::rules() const {
    std::vector<RenameRule> rules;
    for (const QString& line : rules_->toPlainText().split('\n')) {
        if (line.trimmed().isEmpty()) continue;
        SHARDSCOPE_ASSIGN(RenameRule rule, parseRenameRule(line.trimmed().toStdString()));
        rules.push_back(std::move(rule));
    }
    // Whether the expressions themselves are well formed.
    SHARDSCOPE_ASSIGN(const Renamer renamer, Renamer::make(rules));
    return rules;
}

void CompareSetup::setRecipe(const QString& map, const QStringList& set) {
    recipe_->setRecipe(map, set);
    refresh();
}

Result<DiffOptions> CompareSetup::options() const {
    DiffOptions options;
    SHARDSCOPE_ASSIGN(options.rename, rules());
    options.weightsOnly = weightsOnly_->isChecked();
    options.map = recipe_->map().toStdString();
    for (const QString& value : recipe_->set())
        options.set.push_back(value.toStdString());
    return options;
}

void CompareSetup::setBusy(bool busy) {
    busy_ = busy;
    refresh();
}

void CompareSetup::setReady(bool ready) {
    ready_ = ready;
    refresh();
}

void CompareSetup::refresh() {
    const auto read = rules();
    // The engine names the option of the command line; here the text stands under the field.
    QString problem = read.ok() ? QString() : toQString(read.error().message);
    if (problem.startsWith(QLatin1String("--rename "))) problem.remove(0, 9);
    rulesProblem_->setText(problem);
    rulesProblem_->setVisible(!read.ok());
    const QString rules = !read.ok()      ? tr("rename rules ▲")
                          : read->empty() ? tr("rename rules")
                                          : tr("rename rules (%1)").arg(numberText(read->size()));
    rulesButton_->setText((recipe_->map().isEmpty() ? tr("Recipe, %1") : tr("Recipe ✓, %1")).arg(rules));
    compare_->setVisible(!busy_);
    cancel_->setVisible(busy_);
    compare_->setEnabled(ready_ && read.ok() && !otherPath().isEmpty());
    emit changed();
}

void CompareSetup::remember(const QString& path) {
    QSettings settings;
    QStringList recent = settings.value(kRecentKey).toStringList();
    recent.removeAll(path);
    recent.prepend(path);
    while (recent.size() > kMostRecent)
        recent.removeLast();
    settings.setValue(kRecentKey, recent);
    const QString text = other_->currentText();
    const QSignalBlocker quiet(other_);
    other_->clear();
    other_->addItems(recent);
    other_->setEditText(text);
}

void CompareSetup::browse(bool file) {
    askForFile(this,
               {tr("Checkpoint to compare with"),
                file ? QFileDialog::ExistingFile : QFileDialog::Directory,
                false,
                {},
                otherPath().isEmpty() ? whole_ : otherPath()},
               [this](const QString& path) { setOtherPath(path); });
}

}  // namespace shardscope::ui
