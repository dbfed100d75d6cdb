#include "ui/pages/ready_panel.h"

#include <QBoxLayout>
#include <QGridLayout>
#include <QMenu>
#include <algorithm>

#include "ui/models/texts.h"
#include "ui/widgets/labels.h"
#include "ui/widgets/theme.h"

namespace shardscope::ui {

namespace {

constexpr int kTwoColumns = 1000;       // pixels of width from which the lines stand in two columns
constexpr int kGap = 24, kLineGap = 3;  // between columns and lines
constexpr const char *kAbout = "about", *kFinding = "finding";  // where a link leads

FileId fileOf(const Catalog& catalog, const std::string& path) {
    const auto& files = catalog.files();
    const auto found = std::ranges::find(files, path, &FileInfo::path);
    return path.empty() || found == files.end() ? kNone : static_cast<FileId>(found - files.begin());
}

QString linkTo(const char* where, const QString& text) {
    return QStringLiteral("<a href=\"%1\">%2</a>").arg(QLatin1String(where), text.toHtmlEscaped());
}

// "file.missing: 'x' is not here"
QString ruleOf(const QString& evidence) {
    return evidence.section(':', 0, 0);
}

QColor markColor(ReadyMark mark) {
    if (mark == ReadyMark::none) return faintTextColor();
    return verdictColor(mark == ReadyMark::yes ? Verdict::safe : Verdict::unsafe);
}

}  // namespace

ReadyPanel::ReadyPanel(Session& session, QWidget* parent)
    : Panel(tr("Resume card"), parent), session_(session) {
    view_ = new QWidget(this);
    halves_ = new QBoxLayout(QBoxLayout::TopToBottom, view_);
    halves_->setContentsMargins(0, 0, 0, 0);
    halves_->setSpacing(kLineGap);
    setView(view_);
    setMenuBuilder([this](QMenu& menu) { addCopyAction(menu, tr("Copy"), text()); });
    for (const auto changed : {&Session::stateChanged, &Session::reportChanged, &Session::cardChanged})
        connect(&session_, changed, this, &ReadyPanel::refresh);
    onThemeChange(this, [this] { refresh(); });  // links and marks carry colors of the theme
    refresh();
}

void ReadyPanel::addRow(QGridLayout& grid) {
    const size_t at = rows_.size();
    const Row row{plainLabel(view_), plainLabel(view_), wrappedLabel(view_)};
    row.body->setTextFormat(Qt::RichText);
    row.body->setMinimumWidth(1);
    row.body->setContextMenuPolicy(Qt::NoContextMenu);  // that of the panel
    connect(row.body, &QLabel::linkActivated, this, [this, at](const QString& link) { go(at, link); });
    const int line = grid.rowCount();
    int column = 0;
    for (QLabel* label : {row.mark, row.title, row.body})
        grid.addWidget(label, line, column++, Qt::AlignTop);
    rows_.push_back(row);
}

void ReadyPanel::addRows(const std::vector<ReadyLine>& lines) {
    int widest = 0;
    for (const ReadyLine& line : lines)
        widest = std::max(widest, fontMetrics().horizontalAdvance(toQString(line.title)));
    for (const size_t end : {(lines.size() + 1) / 2, lines.size()}) {
        auto* grid = new QGridLayout;
        grid->setHorizontalSpacing(10);
        grid->setVerticalSpacing(kLineGap);
        grid->setColumnMinimumWidth(1, widest);
        grid->setColumnStretch(2, 1);
        while (rows_.size() < end)
            addRow(*grid);
        grid->setRowStretch(grid->rowCount(), 1);
        // One above the other: no gap between them.
        halves_->addLayout(grid, halves_->count() || halves_->direction() == QBoxLayout::LeftToRight ? 1 : 0);
    }
    arrange();
}

void ReadyPanel::refresh() {
    const auto& card = session_.validation().card();
    setVisible(card != nullptr);
    if (!card) return;
    if (rows_.empty()) addRows(card->lines);
    for (size_t i = 0; i < rows_.size(); ++i)
        show(rows_[i], card->lines[i]);
}

void ReadyPanel::show(const Row& row, const ReadyLine& line) const {
    const bool linked =
        session_.catalog().find(line.tensor) != kNone || fileOf(session_.catalog(), line.file) != kNone;
    const QString text = toQString(line.text), evidence = toQString(line.evidence);
    const bool against = line.mark == ReadyMark::no && !evidence.isEmpty();
    QString body = linked ? linkTo(kAbout, shortWords(text)) : shortWords(text).toHtmlEscaped();
    const QString rule = ruleOf(evidence);
    if (against)
        body += QStringLiteral("<br>") + linkTo(kFinding, rule) +
                shortWords(evidence.mid(rule.size())).toHtmlEscaped();
    row.mark->setText(readyGlyph(line.mark));
    setTextColor(*row.mark, markColor(line.mark));
    row.title->setText(toQString(line.title));
    row.body->clear();  // the same text would keep the links of another theme
    row.body->setText(body);
    setTextColor(*row.body,
                 line.mark == ReadyMark::none ? faintTextColor() : palette().color(QPalette::WindowText));
    row.body->setTextInteractionFlags(linked || against
                                          ? Qt::LinksAccessibleByMouse | Qt::LinksAccessibleByKeyboard
                                          : Qt::NoTextInteraction);
    row.body->setToolTip(evidence.toHtmlEscaped());
    row.body->setAccessibleName(
        tr("%1, %2: %3").arg(toQString(line.title), toQString(readyMarkName(line.mark)), text));
    row.body->setAccessibleDescription(evidence);
}

void ReadyPanel::arrange() {
    const auto direction = width() >= kTwoColumns ? QBoxLayout::LeftToRight : QBoxLayout::TopToBottom;
    if (direction == halves_->direction()) return;
    halves_->setDirection(direction);
    halves_->setStretch(0, direction == QBoxLayout::LeftToRight ? 1 : 0);
    halves_->setSpacing(direction == QBoxLayout::LeftToRight ? kGap : kLineGap);
    // The layouts around it remember how high it was.
    for (QWidget* widget = view_; widget != parentWidget(); widget = widget->parentWidget())
        widget->updateGeometry();
}

void ReadyPanel::go(size_t row, const QString& link) {
    if (!session_.validation().card()) return;
    const ReadyLine& line = session_.validation().card()->lines[row];
    if (link == kFinding) {
        emit findingRequested(toQString(line.evidence));
    } else if (const TensorId t = session_.catalog().find(line.tensor); t != kNone) {
        session_.selection().selectTensor(t);
        session_.selection().setPage(Page::tensor);
    } else {
        session_.selection().selectFile(fileOf(session_.catalog(), line.file));
        session_.selection().setPage(Page::files);
    }
}

QString ReadyPanel::text() const {
    if (!session_.validation().card()) return {};
    const ReadyCard& card = *session_.validation().card();
    QStringList lines{toQString(card.path) + QStringLiteral(": ") + toQString(card.words), QString()};
    for (const ReadyLine& line : card.lines) {
        const auto say = [&](const QString& mark, const std::string& title, const std::string& text) {
            lines += mark + ' ' + toQString(title).leftJustified(28) + ' ' + toQString(text);
        };
        say(readyGlyph(line.mark), line.title, line.text);
        if (line.mark == ReadyMark::no && !line.evidence.empty()) say(QStringLiteral(" "), {}, line.evidence);
    }
    return lines.join('\n') + '\n';
}

void ReadyPanel::resizeEvent(QResizeEvent* event) {
    Panel::resizeEvent(event);
    arrange();
}

}  // namespace shardscope::ui
