#include "ui/pages/as_if_panel.h"

#include <QHBoxLayout>
#include <QLabel>
#include <QLineEdit>
#include <QPushButton>
#include <QTableView>
#include <QVBoxLayout>
#include <functional>

#include "ui/models/texts.h"
#include "ui/widgets/building.h"
#include "ui/widgets/labels.h"
#include "ui/widgets/picture_view.h"

namespace shardscope::ui {

namespace {
constexpr int kTypingMilliseconds = 300;
constexpr double kAsIfHigh = 560;  // pixels at most, meshes and flow together
}  // namespace

AsIfPanel::AsIfPanel(Session& session, Panel& above, QWidget* parent)
    : Panel(tr("As if on another mesh"), parent), session_(session) {
    auto* line = new QWidget(&above);
    auto* row = layoutOf<QHBoxLayout>(line, {0, 0, 0, 0}, 8);
    mesh_ = withName(new QLineEdit(line), tr("Mesh to show the checkpoint as if it were on it"),
                     QStringLiteral("asIfMesh"));
    mesh_->setPlaceholderText(tr("another mesh, for example tp=8"));
    mesh_->setClearButtonEnabled(true);
    mesh_->setToolTip(tr("What another mesh would hold, and who would read what. Nothing is written."));
    auto* label = new QLabel(tr("As &if on:"), line);
    label->setBuddy(mesh_);
    row->addWidget(label);
    row->addWidget(mesh_, 1);
    above.layout()->addWidget(line);
    problem_ = wrappedLabel(&above);
    problem_->setObjectName(QStringLiteral("asIfProblem"));
    problem_->hide();
    above.layout()->addWidget(problem_);

    picture_ = new PictureView(tr("Now and as if on another mesh, and who reads what"), true, this);
    rows_ = new TextTableModel(columns(), this);
    setView(picture_, makeTable(rows_, tr("Ranks now and as if, as a table"), this));
    setExports(
        {QStringLiteral("as-if"), picture_, [this] { return rows_; }, [this] { return picture_->svg(); }});
    auto* reshard = withName(new QPushButton(tr("Reshard like this…"), this), tr("Reshard like this"),
                             QStringLiteral("asIfReshard"));
    addToTitle(reshard);
    headline_ = addCaption();
    headline_->setObjectName(QStringLiteral("asIfHeadline"));
    notes_ = addCaption();
    // Above the picture: what is known without looking at it.
    auto* lines = qobject_cast<QVBoxLayout*>(layout());
    lines->insertWidget(1, headline_);
    lines->insertWidget(2, notes_);
    hide();

    timer_.setSingleShot(true);
    timer_.setInterval(kTypingMilliseconds);
    connect(&timer_, &QTimer::timeout, this, &AsIfPanel::ask);
    connect(mesh_, &QLineEdit::textEdited, &timer_, qOverload<>(&QTimer::start));
    connect(mesh_, &QLineEdit::textChanged, this, [this](const QString& text) {
        if (text.isEmpty()) ask();  // cleared by its button
    });
    connect(mesh_, &QLineEdit::returnPressed, this, [this] {
        entered_ = true;
        ask();
    });
    connect(reshard, &QPushButton::clicked, this, [this] { emit reshardRequested(mesh_->text().trimmed()); });
    connect(&session_, &Session::stateChanged, this, &AsIfPanel::takeSource);
    connect(&session_, &Session::factsChanged, this, [this] {
        if (isVisibleTo(parentWidget())) ask();
    });
    takeSource();
}

AsIfPanel::~AsIfPanel() {
    ticket_.drop();
}

void AsIfPanel::takeSource() {
    if (source_ == session_.checkpoint()) return;
    source_ = session_.checkpoint();
    mesh_->clear();
    ask();
}

void AsIfPanel::ask() {
    timer_.stop();
    ticket_.drop();
    const QString mesh = mesh_->text().trimmed();
    if (mesh.isEmpty() || !source_) {
        problem_->hide();
        hide();
        return;
    }
    using Answer = std::shared_ptr<const AsIf>;
    ticket_ = session_.tasks().run<Answer>(
        Work::metadata, tr("Planning for another mesh"),
        [source = source_, facts = session_.hasFacts() ? session_.facts() : nullptr,
         text = mesh.toStdString()](const TaskContext& context) {
            return asIfOn(*source, facts, text, context.stop);
        },
        [this](const Result<Answer>& answer) { show(answer); });
}

void AsIfPanel::show(const Result<std::shared_ptr<const AsIf>>& answer) {
    ticket_ = {};
    problem_->setVisible(!answer.ok());
    setVisible(answer.ok());
    if (!answer.ok()) {
        const QString hint = errorHint(answer.error());
        problem_->setText(QStringLiteral("▲ ") + errorSentence(answer.error()) +
                          (hint.isEmpty() ? QString() : QStringLiteral(" (%1)").arg(hint)));
        return;
    }
    asIf_ = *answer;
    const QString headline = toQString(asIf_->headline());
    picture_->setPicture(
        [asIf = asIf_](double width, double, bool dark) { return AsIf::draw(asIf, width, kAsIfHigh, dark); },
        headline);
    headline_->setText(headline);
    QStringList notes;
    for (const std::string& note : asIf_->notes())
        notes += QStringLiteral("▲ ") + toQString(note);
    notes_->setText(notes.join('\n'));
    notes_->setVisible(!notes.isEmpty());
    const auto ranks = [](const MeshPicture* mesh) { return mesh ? mesh->rankCount() : 0; };
    rows_->setContent(std::max(ranks(asIf_->before()), ranks(asIf_->after())), columns());
    if (std::exchange(entered_, false)) emit answered();
}

std::vector<TextColumn> AsIfPanel::columns() const {
    const uint32_t before = asIf_ && asIf_->before() ? asIf_->before()->rankCount() : 0;
    const uint32_t after = asIf_ && asIf_->after() ? asIf_->after()->rankCount() : 0;
    // The number behind a cell; nothing where there is no such rank.
    const auto number = [asIf = asIf_, before, after](size_t row, size_t column) -> std::optional<uint64_t> {
        const auto rank = static_cast<uint32_t>(row);
        if (column == 0) return rank;
        if (column == 1)
            return rank < before ? std::optional(asIf->before()->rank(rank).bytes) : std::nullopt;
        if (rank >= after) return std::nullopt;
        if (column == 2) return asIf->after()->rank(rank).bytes;
        const FlowPicture::Line& line = asIf->flow().ranks()[rank];
        return column == 3 ? line.bytes : line.partners;
    };
    std::vector<TextColumn> columns;
    for (const QString& title :
         {tr("Rank"), tr("Bytes now"), tr("Bytes as if"), tr("Reads"), tr("From files")}) {
        const size_t c = columns.size();
        const auto text = [number, c](size_t row) {
            const auto value = number(row, c);
            return !value ? QString() : c == 0 || c == 4 ? numberText(*value) : sizeText(*value);
        };
        columns.push_back({{title, true}, text, [=](size_t row) { return number(row, c).value_or(0); }});
    }
    return columns;
}

}  // namespace shardscope::ui
