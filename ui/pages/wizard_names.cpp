#include <QCheckBox>
#include <QComboBox>
#include <QFormLayout>
#include <QHeaderView>
#include <QLabel>
#include <QLineEdit>
#include <QMenu>
#include <QSplitter>
#include <QTabWidget>
#include <QTreeView>
#include <QVBoxLayout>
#include <algorithm>

#include "ui/models/texts.h"
#include "ui/pages/wizard_pages.h"
#include "ui/widgets/building.h"
#include "ui/widgets/card.h"
#include "ui/widgets/labels.h"

namespace shardscope::ui {

namespace {

std::vector<QStringList> single(const QStringList& texts) {
    std::vector<QStringList> cells;
    for (const QString& text : texts)
        cells.push_back({text});
    return cells;
}

std::vector<QStringList> pairsOf(const QStringList& texts, bool lastEquals) {
    std::vector<QStringList> cells;
    for (const QString& text : texts) {
        const qsizetype equals = lastEquals ? text.lastIndexOf('=') : text.indexOf('=');
        cells.push_back(equals < 0 ? QStringList{text, {}}
                                   : QStringList{text.left(equals), text.mid(equals + 1)});
    }
    return cells;
}

QStringList texts(const RuleTable& table) {
    QStringList out;
    for (const QStringList& row : table.rules())
        out += row.join('=');
    return out;
}

}  // namespace

NamesStep::NamesStep(WizardState& state)
    : WizardPage(state, tr("Names and types"),
                 tr("Select, rename and cast tensors. dtypes are kept unless you add a cast.")) {
    auto* split = new QSplitter(Qt::Vertical, this);
    split->setChildrenCollapsible(false);
    auto* tabs = withName(new QTabWidget(split), tr("Rules of names and types"));
    tabs->addTab(makeSelection(tabs), tr("Selection"));
    rename_ = new RuleTable(tr("Rename rules"), {tr("Regular expression"), tr("Replacement")},
                            {QStringLiteral("^model\\."), QStringLiteral("(nothing)")}, false, tabs);
    rename_->table()->setObjectName(QStringLiteral("renameRules"));
    tabs->addTab(rename_, tr("Rename (all rules, in order)"));
    cast_ = new RuleTable(tr("Casts"), {tr("Names"), tr("Dtype")},
                          {QStringLiteral("*.weight"), QStringLiteral("bf16")}, false, tabs);
    cast_->table()->setObjectName(QStringLiteral("castRules"));
    tabs->addTab(cast_, tr("Cast (first match wins)"));
    for (RuleTable* table : {rename_, cast_})
        table->layout()->setContentsMargins(6, 6, 6, 6);
    tabs->addTab(makeRecipe(tabs), tr("Recipe"));
    tabs->addTab(makeAverage(tabs), tr("Average"));
    split->addWidget(tabs);
    split->addWidget(makeChanges(split));
    split->setStretchFactor(0, 2);
    split->setStretchFactor(1, 3);
    layout_->addWidget(split, 1);
    for (RuleTable* table : {select_, exclude_, rename_, cast_}) {
        connect(table, &RuleTable::edited, this, [this] {
            state_.edit([this](ConversionSpec& spec) {
                spec.select = texts(*select_);
                spec.exclude = texts(*exclude_);
                spec.rename = texts(*rename_);
                spec.cast = texts(*cast_);
            });
        });
    }
    follow();
}

QWidget* NamesStep::makeSelection(QWidget* parent) {
    auto* what = new QWidget(parent);
    auto* layout = new QVBoxLayout(what);
    auto* lists = new QHBoxLayout;
    select_ = new RuleTable(tr("Only these names"), {tr("Only these (all when empty)")},
                            {QStringLiteral("model.*")}, false, what);
    exclude_ = new RuleTable(tr("Not these names"), {tr("Not these")}, {QStringLiteral("*.rotary_emb.*")},
                             false, what);
    exclude_->table()->setObjectName(QStringLiteral("excludeRules"));
    for (RuleTable* list : {select_, exclude_}) {
        list->hideOrder();
        lists->addWidget(list);
    }
    layout->addLayout(lists, 1);
    auto* choices = new QHBoxLayout;
    auto* weightsOnly = new QCheckBox(tr("&Weights only: exclude optimizer state"), what);
    auto* skipDamaged = new QCheckBox(tr("S&kip what is damaged"), what);
    skipDamaged->setToolTip(
        tr("Leaves out and lists what is damaged or not a plain array; otherwise it is an error"));
    auto* masterWeights =
        withName(new QComboBox(what), tr("fp32 master weights"), QStringLiteral("masterWeights"));
    masterWeights->addItem(tr("where a cast asks for more"), static_cast<int>(MasterWeights::automatic));
    masterWeights->addItem(tr("always, as float32"), static_cast<int>(MasterWeights::use));
    masterWeights->addItem(tr("never"), static_cast<int>(MasterWeights::ignore));
    auto* masterText = new QLabel(tr("fp32 &masters:"), what);
    masterText->setToolTip(
        tr("Whether weights of few bits take their values from their fp32 masters in the optimizer's state"));
    masterText->setBuddy(masterWeights);
    auto* dequantize =
        withName(new QComboBox(what), tr("Quantized weights as"), QStringLiteral("dequantize"));
    dequantize->addItem(tr("as stored"), QString());
    for (const char* dtype : {"bf16", "fp16", "fp32"})
        dequantize->addItem(QLatin1String(dtype), QLatin1String(dtype));
    auto* quantizedText = new QLabel(tr("&Quantized weights:"), what);
    quantizedText->setToolTip(tr(
        "Writes weights that are stored in few bits with their scales as the tensors that they stand for"));
    quantizedText->setBuddy(dequantize);
    for (QWidget* choice : std::initializer_list<QWidget*>{weightsOnly, skipDamaged, masterText,
                                                           masterWeights, quantizedText, dequantize})
        choices->addWidget(choice);
    choices->addStretch(1);
    layout->addLayout(choices);
    bind(weightsOnly, &ConversionSpec::weightsOnly);
    bind(skipDamaged, &ConversionSpec::skipDamaged);
    bind(dequantize, &ConversionSpec::dequantize);
    bind(masterWeights, &ConversionSpec::masterWeights);
    return what;
}

QWidget* NamesStep::makeRecipe(QWidget* parent) {
    auto* page = new QWidget(parent);
    auto* layout = new QFormLayout(page);
    recipe_ = new RecipeEdit(page);
    layout->addRow(tr("&Recipe:"), recipe_);
    layout->addRow(
        QString(),
        wizardHint(tr("Its select, drop, rename and cast steps come before those of the other tabs."), page));
    auto* expect =
        new PathEdit(PathEdit::Kind::openDirectory, tr("Model whose tensors are expected"), {}, page);
    layout->addRow(tr("&Expected model:"), expect);
    layout->addRow(QString(),
                   wizardHint(tr("Nothing is written unless the result has the tensors of this model: its "
                                 "weights, or the layers, experts and vocabulary of its config.json."),
                              page));
    auto* adapter = new PathEdit(PathEdit::Kind::openDirectory, tr("LoRA adapter to merge"), {}, page);
    adapter->edit()->setObjectName(QStringLiteral("adapter"));
    adapter->edit()->setPlaceholderText(tr("none; its weights are merged before the recipe"));
    layout->addRow(tr("LoRA &adapter:"), adapter);
    fitting_ = wizardHint({}, page);
    fitting_->setObjectName(QStringLiteral("fittingRecipes"));
    layout->addRow(QString(), fitting_);
    connect(&state_, &WizardState::proposalChanged, this, &NamesStep::showFitting);
    showFitting();
    connect(recipe_, &RecipeEdit::edited, this, [this] {
        state_.edit([this](ConversionSpec& spec) {
            spec.map = recipe_->map();
            spec.set = recipe_->set();
        });
    });
    bind(expect, &ConversionSpec::expect);
    bind(adapter, &ConversionSpec::adapter);
    return page;
}

void NamesStep::showFitting() {
    QStringList fitting;
    if (state_.proposal()) {
        for (const RecipeFit& fit : state_.proposal()->fits) {
            if (fit.fits()) fitting += toQString(fit.recipe);
        }
    }
    recipe_->offerFirst(fitting);
    fitting_->setText(!state_.proposal() ? tr("Matching the names with recipes…")
                      : fitting.isEmpty()
                          ? tr("None of those that are built in fits the names.")
                          : tr("These fit the names: %1.").arg(fitting.join(QStringLiteral(", "))));
}

// What the rules come to.
QWidget* NamesStep::makeChanges(QWidget* parent) {
    auto* after = new QWidget(parent);
    auto* layout = layoutOf<QVBoxLayout>(after, {0, 4, 0, 0});
    auto* bar = new QHBoxLayout;
    counts_ = wizardText({}, after);
    counts_->setObjectName(QStringLiteral("nameCounts"));
    onlyChanged_ = new QCheckBox(tr("&Only what changes"), after);
    onlyChanged_->setObjectName(QStringLiteral("onlyChanged"));
    bar->addWidget(counts_, 1);
    bar->addWidget(onlyChanged_);
    layout->addLayout(bar);
    table_ = new QTreeView(after);
    table_->setObjectName(QStringLiteral("nameTable"));
    table_->setModel(&changes_);
    dressTree(*table_, tr("Names and dtypes before and after"), true);
    table_->setItemDelegate(new NameDelegate(table_));
    const int em = fontMetrics().averageCharWidth();
    // Names take what the others leave.
    const int widths[] = {30, 30, 13, 15, 32};
    for (int c = 0; c < 5; ++c)
        table_->setColumnWidth(c, widths[c] * em);
    table_->header()->setStretchLastSection(false);
    for (const int c : {0, 1})
        table_->header()->setSectionResizeMode(c, QHeaderView::Stretch);
    offerMenu(table_, [this](QMenu& menu, const QPoint&) {
        menu.addActions(table_->actions());
        addExportActions(menu, {tr("names"), nullptr, [this] { return &changes_; }}, this);
    });
    layout->addWidget(table_, 1);
    connect(onlyChanged_, &QCheckBox::toggled, &changes_, &NameChangeModel::setOnlyChanged);
    return after;
}

// Other checkpoints of the same model whose values are averaged with those of the source.
QWidget* NamesStep::makeAverage(QWidget* parent) {
    auto* page = new QWidget(parent);
    auto* layout = new QVBoxLayout(page);
    average_ = new RuleTable(tr("Checkpoints to average with the source"),
                             {tr("Checkpoints before the source, in the order of training")},
                             {QStringLiteral("/checkpoints/step-1000")}, false, page);
    average_->table()->setObjectName(QStringLiteral("averageInputs"));
    layout->addWidget(average_, 1);
    auto* row = new QHBoxLayout;
    const auto combo = [&](const QString& label, const QString& name) {
        auto* box = withName(new QComboBox(page), name);
        auto* text = new QLabel(label, page);
        text->setBuddy(box);
        row->addWidget(text);
        row->addWidget(box);
        return box;
    };
    weights_ = combo(tr("&Weights:"), tr("Weights of the average"));
    weights_->setEditable(true);
    weights_->setObjectName(QStringLiteral("averageWeights"));
    weights_->setToolTip(
        tr("The same for all, those of a decay of the learning rate, one number for each checkpoint such as "
           "1,2,4, or a file of numbers"));
    weights_->addItems({QStringLiteral("uniform"), QStringLiteral("linear"), QStringLiteral("minus-sqrt"),
                        QStringLiteral("cosine")});
    auto* accumulate = combo(tr("Sum &up in:"), tr("Precision of the sums"));
    accumulate->addItem(QStringLiteral("fp32"), static_cast<int>(Accumulate::fp32));
    accumulate->addItem(QStringLiteral("fp64"), static_cast<int>(Accumulate::fp64));
    auto* notAveraged = combo(tr("&Integers and single numbers:"), tr("Integers and single numbers"));
    notAveraged->addItem(tr("those of the source"), static_cast<int>(Average::Rule::last));
    notAveraged->addItem(tr("must be the same"), static_cast<int>(Average::Rule::same));
    row->addStretch(1);
    layout->addLayout(row);
    auto* rawWeights = new QCheckBox(tr("Take weights as they are: &do not make them sum up to one"), page);
    auto* averageOptimizer = new QCheckBox(tr("Average &optimizer state too"), page);
    layout->addWidget(rawWeights);
    layout->addWidget(averageOptimizer);

    connect(average_, &RuleTable::edited, this,
            [this] { state_.edit([this](ConversionSpec& spec) { spec.average = texts(*average_); }); });
    connect(weights_, &QComboBox::currentTextChanged, this, [this](const QString& text) {
        state_.edit([&](ConversionSpec& spec) {
            spec.weights = text == QStringLiteral("uniform") ? QString() : text.trimmed();
        });
    });
    bind(accumulate, &ConversionSpec::accumulate);
    bind(notAveraged, &ConversionSpec::notAveraged);
    bind(rawWeights, &ConversionSpec::rawWeights);
    bind(averageOptimizer, &ConversionSpec::averageOptimizer);
    return page;
}

void NamesStep::showSpec() {
    const ConversionSpec& spec = state_.spec();
    select_->setRules(single(spec.select));
    exclude_->setRules(single(spec.exclude));
    rename_->setRules(pairsOf(spec.rename, false));
    cast_->setRules(pairsOf(spec.cast, true));
    recipe_->setRecipe(spec.map, spec.set);
    average_->setRules(single(spec.average));
    weights_->setCurrentText(spec.weights.isEmpty() ? QStringLiteral("uniform") : spec.weights);
}

void NamesStep::showOutlook() {
    const auto& outlook = state_.outlook();
    if (state_.working() || !outlook) return;
    if (outlook->error) {
        counts_->setText(tr("▲ %1").arg(errorSentence(*outlook->error)));
        changes_.setChanges(nullptr);
        return;
    }
    changes_.setChanges(outlook->names);
    size_t count[4] = {};
    for (const NameChange& change : outlook->names->rows)
        ++count[static_cast<size_t>(change.fate)];
    counts_->setText(tr("%1: %2 as they are, %3 changed, %4 excluded, %5 left out")
                         .arg(countedText(outlook->names->rows.size(), tr("1 tensor"), tr("%1 tensors")),
                              numberText(count[0]), numberText(count[1]), numberText(count[2]),
                              numberText(count[3])));
}

}  // namespace shardscope::ui
