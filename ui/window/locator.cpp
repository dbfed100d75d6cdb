#include "ui/window/locator.h"

#include <QAction>
#include <QKeyEvent>
#include <QLabel>
#include <QLineEdit>
#include <QListWidget>
#include <QPainter>
#include <QTextLayout>
#include <QVBoxLayout>
#include <algorithm>
#include <cctype>

#include "ui/models/texts.h"
#include "ui/widgets/building.h"
#include "ui/widgets/labels.h"
#include "ui/widgets/theme.h"

namespace shardscope::ui {

namespace {

constexpr size_t kMostHits = 40;
constexpr int kWidth = 640;
constexpr int kHitMargin = 6, kMark = 12;

char lower(char c) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
}

bool startsWord(std::string_view text, size_t at) {
    if (at == 0) return true;
    const auto before = static_cast<unsigned char>(text[at - 1]);
    return !std::isalnum(before) ||
           (std::isdigit(static_cast<unsigned char>(text[at])) && !std::isdigit(before));
}

enum HitRole { factsRole = Qt::UserRole, patternRole, healthRole };

// A name with the letters that were typed in bold, and behind it what it is.
class HitDelegate : public NameDelegate {
  public:
    using NameDelegate::NameDelegate;

    void paint(QPainter* painter, const QStyleOptionViewItem& option,
               const QModelIndex& index) const override {
        QStyleOptionViewItem item = option;
        const QString facts = index.data(factsRole).toString();
        const auto health = static_cast<Health>(index.data(healthRole).toInt());
        const int factsWidth = item.fontMetrics.horizontalAdvance(facts);
        item.rect.adjust(kHitMargin, 0, -factsWidth - 3 * kHitMargin, 0);
        if (health > Health::unread) item.rect.adjust(kMark + kHitMargin, 0, 0, 0);
        initStyleOption(&item, index);
        const QString name = std::exchange(item.text, QString());
        const QRect at = std::exchange(item.rect, option.rect);
        item.widget->style()->drawControl(QStyle::CE_ItemViewItem, &item, painter, item.widget);
        const bool chosen = item.state.testFlag(QStyle::State_Selected);
        const QColor color = item.palette.color(chosen ? QPalette::HighlightedText : QPalette::Text);
        if (health > Health::unread)
            paintHealth(*painter,
                        QRectF(at.left() - kMark - kHitMargin, at.center().y() - kMark / 2, kMark, kMark),
                        health);
        std::vector<size_t> matched;
        const QByteArray letters = name.toLatin1();  // one byte for each letter, as they are counted
        fuzzyScore(index.data(patternRole).toString().toStdString(), letters.toStdString(), &matched);
        QTextLayout text(name, item.font);
        QList<QTextLayout::FormatRange> bold;
        for (const size_t letter : matched) {
            QTextCharFormat format;
            format.setFontWeight(QFont::Bold);
            bold += {static_cast<int>(letter), 1, format};
        }
        text.setFormats(bold);
        text.beginLayout();
        text.createLine();
        text.endLayout();
        painter->save();
        painter->setPen(color);
        text.draw(painter, QPointF(at.left(), at.center().y() - item.fontMetrics.height() / 2.0));
        painter->setPen(chosen ? color : faintTextColor());
        painter->drawText(option.rect.adjusted(0, 0, -kHitMargin, 0), Qt::AlignRight | Qt::AlignVCenter,
                          facts);
        painter->restore();
    }
};

}  // namespace

int fuzzyScore(std::string_view pattern, std::string_view text, std::vector<size_t>* matched) {
    if (pattern.empty()) return 0;
    // A plain occurrence beats scattered letters.
    const auto found = std::search(text.begin(), text.end(), pattern.begin(), pattern.end(),
                                   [](char a, char b) { return lower(a) == b; });
    if (found != text.end()) {
        const auto at = static_cast<size_t>(found - text.begin());
        int score = 1000 + (startsWord(text, at) ? 200 : 0);
        for (size_t i = 0; matched && i < pattern.size(); ++i)
            matched->push_back(at + i);
        if (at + pattern.size() == text.size()) score += 100;
        return score - static_cast<int>(std::min<size_t>(text.size(), 300));
    }
    int score = 400;
    size_t at = 0, last = std::string_view::npos;
    for (const char c : pattern) {
        // A word's beginning is preferred to the next occurrence.
        size_t next = std::string_view::npos;
        for (size_t i = at; i < text.size(); ++i) {
            if (lower(text[i]) != c) continue;
            if (next == std::string_view::npos) next = i;
            if (i == at || startsWord(text, i)) {
                next = i;
                break;
            }
        }
        if (next == std::string_view::npos) return -1;
        score += startsWord(text, next) ? 20 : last != std::string_view::npos && next == last + 1 ? 15 : 0;
        if (matched) matched->push_back(next);
        last = next;
        at = next + 1;
    }
    return score - static_cast<int>(std::min<size_t>(text.size(), 300));
}

Locator::Locator(Session& session, std::function<QList<QAction*>()> actions, QWidget* window)
    : QFrame(window, Qt::Popup), session_(session), actions_(std::move(actions)) {
    setObjectName(QStringLiteral("locator"));
    setAccessibleName(tr("Locator"));
    setFrameShape(QFrame::StyledPanel);
    auto* layout = layoutOf<QVBoxLayout>(this, {8, 8, 8, 8});
    line_ = withName(new QLineEdit(this), tr("What to find"));
    line_->setPlaceholderText(tr("Find a tensor, module, object, rank, file or action"));
    list_ = withName(new QListWidget(this), tr("What was found"));
    list_->setFocusPolicy(Qt::NoFocus);
    list_->setItemDelegate(new HitDelegate(list_));
    list_->setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
    hint_ = new QLabel(
        tr("t tensors · m modules · o objects · r ranks · f files · > actions · Enter goes there"), this);
    setTextColor(*hint_, faintTextColor());
    layout->addWidget(line_);
    layout->addWidget(list_, 1);
    layout->addWidget(hint_);
    line_->installEventFilter(this);
    connect(line_, &QLineEdit::textChanged, this, &Locator::search);
    connect(list_, &QListWidget::itemClicked, this, [this](QListWidgetItem* item) { run(list_->row(item)); });
}

Locator::~Locator() {
    ticket_.drop();
}

void Locator::open(const QString& prefix) {
    QWidget* window = parentWidget();
    const int width = std::min(kWidth, window->width() - 40);
    resize(width, 380);
    move(window->mapToGlobal(QPoint((window->width() - width) / 2, 64)));
    line_->setText(prefix);
    search();
    QFrame::show();
    line_->setFocus();
}

bool Locator::better(const Hit& a, const Hit& b) {
    // A tensor is more often meant than what it is in.
    const auto of = [](const Hit& hit) { return hit.score - (hit.kind == Hit::Kind::module ? 60 : 0); };
    return of(a) > of(b);
}

// `kinds` are letters: t(ensors), m(odules), o(bjects), r(anks), f(iles).
Result<std::vector<Locator::Hit>> Locator::find(const Catalog& catalog, const Facts* facts,
                                                const ModuleTree* tree, const std::string& pattern,
                                                const QString& kinds, std::vector<Hit> hits,
                                                const StopToken& stop) {
    const auto match = [&](Hit::Kind kind, uint32_t id, const std::string_view name) {
        const int score = fuzzyScore(pattern, name);
        if (score < 0) return;
        hits.push_back({kind, id, score, toQString(name)});
        if (hits.size() <= 20 * kMostHits) return;
        std::nth_element(hits.begin(), hits.begin() + kMostHits, hits.end(), better);
        hits.resize(kMostHits);
    };
    const auto of = [&](char kind) { return kinds.contains(QLatin1Char(kind)) && !pattern.empty(); };
    for (TensorId t = 0; of('t') && t < catalog.tensorCount(); ++t) {
        if (t % 8192 == 0) SHARDSCOPE_TRY(stop.poll());
        match(Hit::Kind::tensor, t, catalog.name(t));
    }
    for (ModuleTree::Node n = 1; of('m') && tree && n < tree->size(); ++n) {
        if (n % 8192 == 0) SHARDSCOPE_TRY(stop.poll());
        if (tree->tensor(n) == kNone) match(Hit::Kind::module, n, tree->fullName(n));
    }
    for (ObjectId o = 0; of('o') && o < catalog.objects().size(); ++o)
        match(Hit::Kind::object, o, catalog.objects()[o].name);
    for (FileId f = 0; of('f') && f < catalog.files().size(); ++f)
        match(Hit::Kind::file, f, catalog.files()[f].path);
    for (uint32_t r = 0; of('r') && facts && r < facts->ranks.size(); ++r) {
        std::string name = "rank " + std::to_string(r);
        const std::string coordinates = rankLabel(facts->mesh, r);
        if (coordinates != name) name += " (" + coordinates + ")";
        match(Hit::Kind::rank, r, name);
    }
    std::stable_sort(hits.begin(), hits.end(), better);
    return hits;
}

std::vector<Locator::Hit> Locator::findActions(const std::string& pattern, bool alone) {
    std::vector<Hit> hits;
    shownActions_.clear();
    for (QAction* action : actions_()) {
        QString name = action->text();
        name.remove('&');
        const int score = fuzzyScore(pattern, name.toStdString());
        if (score < 0 || !action->isEnabled()) continue;
        hits.push_back({Hit::Kind::action, static_cast<uint32_t>(shownActions_.size()),
                        score + (!alone && pattern.empty() ? 0 : -50), name});
        shownActions_ += action;
    }
    return hits;
}

void Locator::search() {
    ticket_.drop();
    QString text = line_->text();
    QString kinds = QStringLiteral("tmorf>");
    if (text.startsWith('>')) {
        kinds = text.left(1);
        text.remove(0, 1);
    } else if (text.size() >= 2 && text[1] == ' ' && QStringLiteral("tmorf").contains(text[0])) {
        kinds = text.left(1);
        text.remove(0, 2);
    }
    std::string pattern = text.toLower().toStdString();
    std::erase(pattern, ' ');
    pattern_ = QString::fromStdString(pattern);

    std::vector<Hit> actions;
    if (kinds.contains('>')) actions = findActions(pattern, kinds.size() == 1);
    if (!session_.checkpoint() || kinds == QStringLiteral(">")) {
        std::ranges::stable_sort(actions, better);
        show(actions);
        return;
    }
    ticket_ = session_.tasks().run<std::vector<Hit>>(
        Work::query, tr("Looking for names"),
        [checkpoint = session_.checkpoint(), facts = session_.facts(), tree = session_.filtered().tree(),
         pattern, actions, kinds](const TaskContext& context) {
            return find(checkpoint->catalog(), facts.get(), tree.get(), pattern, kinds, actions,
                        context.stop);
        },
        [this](Result<std::vector<Hit>> answer) {
            if (answer.ok()) show(*answer);
        });
}

// "float32 [8, 16], 512 B": what a hit is.
QString Locator::factsOf(const Hit& hit) const {
    const auto sized = [](const QString& what, uint64_t bytes) {
        return QStringLiteral("%1, %2").arg(what, sizeText(bytes));
    };
    const Facts* facts = session_.facts().get();
    switch (hit.kind) {
        case Hit::Kind::tensor: {
            const Catalog& catalog = session_.catalog();
            return sized(QStringLiteral("%1 %2").arg(toQString(dtypeName(catalog.dtype(hit.id))),
                                                     toQString(formatDims(catalog.shape(hit.id)))),
                         catalog.bytes(hit.id));
        }
        case Hit::Kind::module: {
            const auto& tree = session_.filtered().tree();
            const ModuleTree::Node node = tree ? tree->find(hit.text.toStdString()) : ModuleTree::kRoot;
            if (node == ModuleTree::kRoot) return tr("module");
            // A parameter has no parts but its states.
            const auto below = tree->range(node);
            const bool states = session_.catalog().role(tree->order()[below.first]) == Role::optimizer;
            return sized(countedText(tree->tensorCount(node),
                                     states ? tr("1 tensor of the optimizer") : tr("module of 1 tensor"),
                                     states ? tr("%1 tensors of the optimizer") : tr("module of %1 tensors")),
                         tree->bytes(node));
        }
        case Hit::Kind::object:
            return tr("object");
        case Hit::Kind::rank:
            return facts ? sized(tr("rank"), facts->ranks[hit.id].bytes) : tr("rank");
        case Hit::Kind::file:
            return sized(tr("file"), session_.catalog().files()[hit.id].size);
        case Hit::Kind::action: {
            const QAction* action = shownActions_.value(static_cast<qsizetype>(hit.id));
            return action ? action->shortcut().toString(QKeySequence::NativeText) : QString();
        }
    }
    return {};
}

Health Locator::healthOf(const Hit& hit) const {
    const Facts* facts = session_.facts().get();
    if (!facts) return Health::ok;
    return hit.kind == Hit::Kind::tensor ? facts->tensorHealth[hit.id]
           : hit.kind == Hit::Kind::rank ? facts->ranks[hit.id].health
           : hit.kind == Hit::Kind::file ? facts->files[hit.id].health
                                         : Health::ok;
}

void Locator::show(const std::vector<Hit>& hits) {
    hits_ = hits;
    if (hits_.size() > kMostHits) hits_.resize(kMostHits);
    list_->clear();
    for (const Hit& hit : hits_) {
        auto* item = new QListWidgetItem(hit.text, list_);
        const QString facts = factsOf(hit);
        item->setToolTip(hit.text.toHtmlEscaped());
        item->setData(Qt::AccessibleTextRole, QStringLiteral("%1: %2").arg(hit.text, facts));
        item->setData(factsRole, facts);
        item->setData(patternRole, pattern_);
        item->setData(healthRole, static_cast<int>(healthOf(hit)));
    }
    if (list_->count() > 0) list_->setCurrentRow(0);
    hint_->setText(
        list_->count() > 0
            ? tr("t tensors · m modules · o objects · r ranks · f files · > actions · Enter goes there")
            : tr("Nothing fits. t tensors · m modules · o objects · r ranks · f files · > actions"));
}

void Locator::run(int row) {
    if (row < 0 || static_cast<size_t>(row) >= hits_.size()) return;
    const Hit hit = hits_[static_cast<size_t>(row)];
    hide();
    Selection& selection = session_.selection();
    switch (hit.kind) {
        case Hit::Kind::module:
            selection.selectModule(hit.text);
            if (selection.current().page != Page::placement) selection.setPage(Page::overview);
            break;
        case Hit::Kind::object:
            selection.selectObject(hit.id);
            selection.setPage(Page::objects);
            break;
        case Hit::Kind::tensor:
            selection.selectTensor(hit.id);
            if (selection.current().page != Page::placement) selection.setPage(Page::tensor);
            break;
        case Hit::Kind::rank:
            selection.selectRanks({hit.id});
            selection.setPage(Page::placement);
            break;
        case Hit::Kind::file:
            selection.selectFile(hit.id);
            selection.setPage(Page::files);
            break;
        case Hit::Kind::action:
            if (QAction* action = shownActions_.value(static_cast<qsizetype>(hit.id))) action->trigger();
            break;
    }
}

bool Locator::eventFilter(QObject* watched, QEvent* event) {
    if (watched == line_ && event->type() == QEvent::KeyPress) {
        const auto* key = static_cast<QKeyEvent*>(event);
        const int rows = list_->count();
        switch (key->key()) {
            case Qt::Key_Down:
            case Qt::Key_Up:
                if (rows)
                    list_->setCurrentRow((list_->currentRow() + (key->key() == Qt::Key_Down ? 1 : rows - 1)) %
                                         rows);
                return true;
            case Qt::Key_Return:
            case Qt::Key_Enter:
                run(list_->currentRow());
                return true;
            case Qt::Key_Escape:
                hide();
                return true;
            default:
                break;
        }
    }
    return QFrame::eventFilter(watched, event);
}

}  // namespace shardscope::ui
