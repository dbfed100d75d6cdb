#include "ui/pages/files_page.h"

#include <QComboBox>
#include <QHeaderView>
#include <QLabel>
#include <QMenu>
#include <QPainter>
#include <QSplitter>
#include <QTableView>
#include <QVBoxLayout>
#include <algorithm>
#include <map>

#include "ui/models/texts.h"
#include "ui/pages/overview_rows.h"
#include "ui/widgets/building.h"
#include "ui/widgets/card.h"
#include "ui/widgets/file_dialog.h"
#include "ui/widgets/health_delegate.h"
#include "ui/widgets/labels.h"
#include "ui/widgets/legend.h"
#include "ui/widgets/painting.h"
#include "ui/widgets/theme.h"
#include "ui/widgets/treemap.h"

namespace shardscope::ui {

namespace {

constexpr int kFilesSpacing = 8;
constexpr int kSideBySide = 560;   // pixels of width from which table and map stand beside each other
constexpr uint32_t kMostHues = 7;  // of the palette; the last one is almost the metadata's gray
constexpr Role kRoles[] = {Role::parameter, Role::buffer, Role::optimizer, Role::other};

QString pieceKind(BytePiece::Kind kind) {
    switch (kind) {
        case BytePiece::Kind::chunk:
            return FilesPage::tr("chunk");
        case BytePiece::Kind::object:
            return FilesPage::tr("object");
        case BytePiece::Kind::metadata:
            return FilesPage::tr("metadata");
        case BytePiece::Kind::dead:
            return FilesPage::tr("dead bytes");
        case BytePiece::Kind::missing:
            return FilesPage::tr("missing bytes");
    }
    return {};
}

// Of the tensor or object; empty for bytes of neither.
QString pieceName(const Catalog& catalog, const BytePiece& piece) {
    if (piece.chunk != kNone) return toQString(catalog.name(catalog.tensorOf(piece.chunk)));
    return piece.object != kNone ? toQString(catalog.objects()[piece.object].name) : QString();
}

std::vector<TextColumn> pieceColumns(const CheckpointPtr& of, const std::vector<BytePiece>& pieces) {
    const auto part = [of, pieces](size_t i) {
        return pieces[i].chunk == kNone ? QString()
                                        : toQString(chunkText(of->catalog().chunk(pieces[i].chunk)));
    };
    return {{{FilesPage::tr("What")}, [pieces](size_t i) { return pieceKind(pieces[i].kind); }},
            {{FilesPage::tr("Tensor or object")},
             [of, pieces](size_t i) { return pieceName(of->catalog(), pieces[i]); }},
            {{FilesPage::tr("Part of the tensor")}, part},
            countColumn(FilesPage::tr("From byte"), [pieces](size_t i) { return pieces[i].offset; }),
            countColumn(FilesPage::tr("To byte"),
                        [pieces](size_t i) { return pieces[i].offset + pieces[i].length; }),
            sizeColumn(FilesPage::tr("Size"), [pieces](size_t i) { return pieces[i].length; })};
}

}  // namespace

FilesPage::FilesPage(Session& session, QWidget* parent)
    : QWidget(parent), session_(session), model_(new FileTableModel(session, this)) {
    setAccessibleName(tr("Files"));
    auto* layout = layoutOf<QVBoxLayout>(this, {kFilesSpacing, kFilesSpacing, kFilesSpacing, kFilesSpacing},
                                         kFilesSpacing);
    totals_ = textBlock(this);
    totals_->setAccessibleName(tr("Totals of all files"));
    layout->addWidget(totals_);
    makeTable();
    makeTreemap();
    makeStrip();
    upper_ = new QSplitter(Qt::Horizontal, this);
    upper_->addWidget(filePanel_);
    upper_->addWidget(mapPanel_);
    upper_->setStretchFactor(0, 3);
    upper_->setStretchFactor(1, 2);
    upper_->setChildrenCollapsible(false);
    upper_->setSizes({600, 400});
    whole_ = new QSplitter(Qt::Vertical, this);
    whole_->addWidget(upper_);
    whole_->addWidget(stripPanel_);
    whole_->setStretchFactor(0, 1);
    whole_->setStretchFactor(1, 0);
    whole_->setChildrenCollapsible(false);
    connect(whole_, &QSplitter::splitterMoved, this, [this] { arranged_ = true; });
    layout->addWidget(whole_, 1);

    connect(&session_, &Session::stateChanged, this, &FilesPage::refreshCheckpoint);
    connect(&session_, &Session::factsChanged, this, &FilesPage::refreshFacts);
    connect(&session_.selection(), &Selection::changed, this, &FilesPage::refreshSelection);
    // Colors of tiles are those of the theme when they were made.
    onThemeChange(this, [this] {
        const uint64_t begin = strip_->viewBegin(), end = strip_->viewEnd();
        refreshTreemap();
        refreshStrip();
        strip_->showRange(begin, end);
    });
    refreshCheckpoint();
}

void FilesPage::resizeEvent(QResizeEvent* event) {
    QWidget::resizeEvent(event);
    // The strip needs no more than its least height, unless somebody wants it otherwise.
    if (!arranged_) whole_->setSizes({10'000, 1});
    const Qt::Orientation orientation = width() >= kSideBySide ? Qt::Horizontal : Qt::Vertical;
    if (upper_->orientation() == orientation) return;
    upper_->setOrientation(orientation);
    upper_->setSizes({600, 400});
}

// ------------------------------------------------------------------ making

void FilesPage::makeTable() {
    filePanel_ = new Panel(tr("Files"), this);
    table_ = ui::makeTable(model_, tr("Files"), filePanel_);
    table_->setSelectionMode(QAbstractItemView::SingleSelection);
    table_->setItemDelegateForColumn(FileTableModel::state,
                                     new HealthDelegate(FileTableModel::HealthRole, table_));
    filePanel_->setView(table_);
    filePanel_->setExports({QStringLiteral("files"), table_, [this] { return model_; }});
    filePanel_->setMenuBuilder([this](QMenu& menu) { fillFileMenu(menu); });
    connect(table_->selectionModel(), &QItemSelectionModel::currentRowChanged, this,
            [this](const QModelIndex& now) {
                if (now.isValid() && !following_) choose(model_->file(now.row()));
            });
}

void FilesPage::makeTreemap() {
    mapPanel_ = new Panel(tr("Files by size"), this);
    treemap_ = new Treemap(mapPanel_);
    mapPanel_->setView(treemap_);
    mapCaption_ = mapPanel_->addCaption();
    mapPanel_->setExports({QStringLiteral("treemap"), treemap_, [this] { return model_; }});
    mapPanel_->setMenuBuilder([this](QMenu& menu) { fillFileMenu(menu); });
    connect(treemap_, &Treemap::chosen, this, &FilesPage::choose);
}

void FilesPage::makeStrip() {
    stripPanel_ = new Panel(tr("Bytes of one file"), this);
    strip_ = new ByteStrip(stripPanel_);
    strip_->setToolTip(tr("The wheel zooms, dragging moves, 0 shows all"));
    coloring_ = new QComboBox(stripPanel_);
    coloring_->addItem(tr("Color by role"), static_cast<int>(Coloring::role));
    coloring_->addItem(tr("Color by dtype"), static_cast<int>(Coloring::dtype));
    coloring_->setAccessibleName(tr("What colors of chunks mean"));
    stripTitle_ = new ElidedLabel(stripPanel_, Qt::ElideMiddle);
    stripPanel_->addToTitle(stripTitle_);
    stripPanel_->addToTitle(coloring_);
    pieceRows_ = new TextTableModel(pieceColumns({}, {}), this);
    QTableView* twin = ui::makeTable(pieceRows_, tr("Bytes of the file, as a table"), stripPanel_);
    auto* inner = new QWidget(stripPanel_);
    auto* column = layoutOf<QVBoxLayout>(inner, {0, 0, 0, 0}, 4);
    legend_ = new Legend(inner);
    column->addWidget(strip_);
    column->addWidget(legend_);
    column->addStretch(1);
    stripPanel_->setView(inner, twin);
    stripPanel_->setExports({QStringLiteral("bytes"), strip_, [this] { return pieceRows_; }});
    stripPanel_->setMenuBuilder([this](QMenu& menu) {
        fillFileMenu(menu);
        const int piece = strip_->current();
        if (piece < 0) return;
        addCopyAction(menu, tr("Copy byte range"), rangeText(piece));
        const BytePiece& p = strip_->pieces()[static_cast<size_t>(piece)];
        if (p.chunk == kNone) return;
        addCopyAction(menu, tr("Copy tensor name"), pieceName(session_.catalog(), p));
    });
    connect(coloring_, &QComboBox::currentIndexChanged, this, &FilesPage::refreshStrip);
    connect(strip_, &ByteStrip::selected, this, &FilesPage::selectPiece);
    connect(twin, &QTableView::clicked, this,
            [this](const QModelIndex& index) { selectPiece(pieceRows_->source(index.row())); });
}

void FilesPage::fillFileMenu(QMenu& menu) {
    if (!session_.checkpoint() || file_ == kNone) return;
    const FileInfo& info = session_.catalog().files()[file_];
    const QString path = session_.filePath(info.path);
    addCopyAction(menu, tr("Copy path"), path);
    addCopyAction(menu, tr("Copy name"), toQString(info.path));
    menu.addAction(tr("Show its tensors"), this, [this, name = QString::fromStdString(info.path)] {
        session_.selection().setFilter(QStringLiteral("file:") + name);
    });
    if (!hostOf(path).isEmpty()) return;
    menu.addAction(tr("Open containing folder"), this, [this, path] { showFolderOf(this, path); });
}

// ------------------------------------------------------------------ filling

void FilesPage::refreshCheckpoint() {
    file_ = kNone;
    dtypes_.clear();
    if (session_.checkpoint()) {
        for (const DtypeShare& share : dtypeShares(session_.catalog()))
            dtypes_.push_back(share.dtype);
        std::sort(dtypes_.begin(), dtypes_.end());
    }
    fitColumns(*table_);
    refreshTotals();
    refreshTreemap();
    refreshStrip();
    refreshSelection(session_.selection().current(), {});
}

void FilesPage::refreshFacts() {
    fitColumns(*table_);
    refreshTotals();
    refreshTreemap();
    refreshStrip();
}

void FilesPage::refreshTotals() {
    if (!session_.checkpoint()) {
        totals_->setText(tr("Open a checkpoint to see its files."));
        return;
    }
    const FileTableModel::Totals totals = model_->totals();
    QString text = countedText(totals.files, tr("1 file"), tr("%1 files")) +
                   tr(", %1 on disk").arg(sizeText(totals.size));
    if (session_.hasFacts()) {
        text += tr(", %1 used, %2 not referenced").arg(sizeText(totals.used), sizeText(totals.dead));
        if (totals.size > 0 && totals.dead > 0)
            text += tr(" (%1)").arg(
                ratioText(static_cast<double>(totals.dead) / static_cast<double>(totals.size)));
    }
    text += QLatin1Char('.');
    if (totals.missing > 0)
        text += QLatin1Char(' ') + countedText(totals.missing, tr("1 is missing."), tr("%1 are missing."));
    if (totals.unreferenced > 0)
        text += QLatin1Char(' ') + countedText(totals.unreferenced, tr("1 of them is not referenced."),
                                               tr("%1 of them are not referenced."));
    totals_->setText(text);
}

QString FilesPage::fileText(FileId file) const {
    QString text = model_->text(file, FileTableModel::path);
    text += QLatin1Char('\n') + model_->text(file, FileTableModel::size);
    if (session_.hasFacts())
        text += tr(", %1 used, %2 not referenced")
                    .arg(model_->text(file, FileTableModel::used), model_->text(file, FileTableModel::dead));
    return text + QLatin1Char('\n') + model_->stateText(file);
}

void FilesPage::refreshTreemap() {
    std::vector<Treemap::Item> items;
    std::map<QString, uint32_t> groups;  // directories, in the order of their names once all are known
    uint32_t ranks = 0;
    if (session_.checkpoint()) {
        const auto& files = session_.catalog().files();
        items.reserve(files.size());
        for (FileId f = 0; f < files.size(); ++f) {
            const QString path = toQString(files[f].path);
            const qsizetype slash = path.lastIndexOf('/');
            Treemap::Item item;
            item.id = f;
            item.label = path.mid(slash + 1);
            item.group = slash < 0 ? QString() : path.left(slash);
            // A file that is not there takes the place that its bytes would.
            item.size = files[f].size;
            if (session_.hasFacts()) item.size = std::max(item.size, session_.facts()->files[f].end);
            item.health = model_->health(f);
            groups.emplace(item.group, 0);
            if (files[f].rank != kNone) ranks = std::max(ranks, files[f].rank + 1);
            items.push_back(std::move(item));
        }
        uint32_t number = 0;
        for (auto& [name, index] : groups)
            index = number++;
        // Colors tell apart what there are few of.
        const bool byGroup = groups.size() > 1, byRank = !byGroup && ranks > 1 && ranks <= kMostHues;
        for (Treemap::Item& item : items) {
            const FileInfo& file = files[item.id];
            const uint32_t hue = byGroup                        ? groups[item.group] % kMostHues
                                 : byRank && file.rank != kNone ? file.rank
                                                                : 0;
            item.color = file.metadata      ? softened(faintTextColor(), 0.45)
                         : !file.referenced ? softened(faintTextColor(), 0.2)
                                            : softened(categoryColor(hue), 0.5);
        }
        mapCaption_->setText(byGroup ? tr("Area is size; colors tell directories apart, gray is metadata.")
                             : byRank
                                 ? tr("Area is size; colors tell ranks apart, gray is metadata.")
                                 : tr("Area is size; gray is metadata and data that is not referenced."));
    } else {
        mapCaption_->clear();
    }
    treemap_->setItems(std::move(items), [this](uint32_t file) { return fileText(file); });
    treemap_->setSelected(file_);
}

QColor FilesPage::colorOf(TensorId tensor) const {
    const Catalog& catalog = session_.catalog();
    const bool byDtype = coloring_->currentData().toInt() == static_cast<int>(Coloring::dtype);
    const QColor color = byDtype ? dtypeColor(catalog.dtype(tensor))
                                 : categoryColor(static_cast<uint32_t>(catalog.role(tensor)));
    // Neighbors of one color are told apart by lightness.
    return softened(color, tensor % 2 ? 0.55 : 0.75);
}

// Chunks, objects and what is between them; what stands behind the end of the file is missing.
std::vector<BytePiece> FilesPage::piecesOf(FileId f) const {
    std::vector<BytePiece> claimed, pieces;
    const Catalog& catalog = session_.catalog();
    const FileInfo& file = catalog.files()[f];
    if (file.metadata && file.size > 0) return {{0, file.size, BytePiece::Kind::metadata, kNone, kNone, {}}};
    for (const ChunkId c : session_.facts()->chunksOf(f)) {
        const ChunkInfo chunk = catalog.chunk(c);
        if (chunk.length > 0)
            claimed.push_back(
                {chunk.offset, chunk.length, BytePiece::Kind::chunk, c, kNone, colorOf(chunk.tensor)});
    }
    const size_t chunks = claimed.size();
    for (ObjectId i = 0; i < catalog.objects().size(); ++i) {
        const ObjectInfo& object = catalog.objects()[i];
        if (object.file == f && object.length > 0)
            claimed.push_back({object.offset, object.length, BytePiece::Kind::object, kNone, i, {}});
    }
    if (claimed.size() > chunks) {
        std::stable_sort(claimed.begin(), claimed.end(),
                         [](const BytePiece& a, const BytePiece& b) { return a.offset < b.offset; });
    }
    const uint64_t size = file.state == FileInfo::State::present ? file.size : 0;
    uint64_t at = 0;
    const auto gapUpTo = [&](uint64_t end) {
        end = std::min(end, size);
        if (end > at) pieces.push_back({at, end - at, BytePiece::Kind::dead, kNone, kNone, {}});
    };
    for (const BytePiece& piece : claimed) {
        gapUpTo(piece.offset);
        const uint64_t end = piece.offset + piece.length;
        if (piece.offset < size) {
            pieces.push_back(piece);
            pieces.back().length = std::min(end, size) - piece.offset;
        }
        if (end > size) {
            const uint64_t from = std::max(piece.offset, size);
            pieces.push_back({from, end - from, BytePiece::Kind::missing, piece.chunk, piece.object, {}});
        }
        at = std::max(at, end);
    }
    gapUpTo(size);
    // Chunks that overlap at the end of a file leave their missing parts out of order.
    const auto before = [](const BytePiece& a, const BytePiece& b) { return a.offset < b.offset; };
    if (!std::is_sorted(pieces.begin(), pieces.end(), before))
        std::stable_sort(pieces.begin(), pieces.end(), before);
    return pieces;
}

QString FilesPage::rangeText(int piece) const {
    const BytePiece& p = strip_->pieces()[static_cast<size_t>(piece)];
    return QStringLiteral("%1:%2-%3")
        .arg(session_.filePath(session_.catalog().files()[file_].path))
        .arg(p.offset)
        .arg(p.offset + p.length);
}

QString FilesPage::pieceText(int piece) const {
    const BytePiece& p = strip_->pieces()[static_cast<size_t>(piece)];
    QString text = pieceKind(p.kind);
    if (!text.isEmpty()) text[0] = text[0].toUpper();
    if (p.chunk != kNone) {
        const ChunkInfo chunk = session_.catalog().chunk(p.chunk);
        text += tr(" of %1\n%2 %3")
                    .arg(toQString(session_.catalog().name(chunk.tensor)),
                         toQString(dtypeName(session_.catalog().dtype(chunk.tensor))),
                         toQString(chunkText(chunk)));
        if (chunk.rank != kNone) text += tr("\nRank %1").arg(chunk.rank);
    }
    if (p.object != kNone) text += tr(" %1").arg(pieceName(session_.catalog(), p));
    return text + tr("\nBytes %1 to %2 (%3)")
                      .arg(numberText(p.offset), numberText(p.offset + p.length), sizeText(p.length));
}

QString FilesPage::pieceLabel(int piece) const {
    const BytePiece& p = strip_->pieces()[static_cast<size_t>(piece)];
    const QString name = pieceName(session_.catalog(), p);
    return name.isEmpty() ? pieceKind(p.kind) : name;
}

void FilesPage::refreshStrip() {
    std::vector<BytePiece> pieces;
    uint64_t end = 0;
    QString message = session_.checkpoint() ? tr("Select a file to see its layout.") : QString();
    stripTitle_->setWhole({});
    if (session_.checkpoint() && file_ != kNone) {
        const FileInfo& info = session_.catalog().files()[file_];
        stripTitle_->setWhole(toQString(info.path));
        if (session_.hasFacts()) {
            pieces = piecesOf(file_);
            end = std::max(info.size, session_.facts()->files[file_].end);
            message = info.state == FileInfo::State::present && info.size == 0
                          ? tr("This file is empty.")
                          : tr("This file is not referenced.");
        } else {
            message = tr("Reading the layout of the file…");
        }
    }
    std::vector<Legend::Entry> entries;
    if (!pieces.empty()) {
        const auto tile = [](const QColor& color) {
            return [color](QPainter& painter, const QRectF& rect) { paintTile(painter, rect, color); };
        };
        if (coloring_->currentData().toInt() == static_cast<int>(Coloring::dtype)) {
            for (const DType dtype : dtypes_)
                entries.push_back({toQString(dtypeName(dtype)), tile(softened(dtypeColor(dtype), 0.75))});
        } else {
            for (const Role role : kRoles)
                entries.push_back({toQString(roleName(role)),
                                   tile(softened(categoryColor(static_cast<uint32_t>(role)), 0.75))});
        }
        entries.push_back({tr("object, metadata"), tile(softened(faintTextColor(), 0.5))});
        entries.push_back({tr("not referenced"), [](QPainter& painter, const QRectF& rect) {
                               painter.fillRect(rect, QBrush(faintTextColor(), Qt::BDiagPattern));
                               painter.setPen(QPen(outlineColor(), 1));
                               painter.drawRect(rect.adjusted(0.5, 0.5, -0.5, -0.5));
                           }});
        const bool there = session_.catalog().files()[file_].state == FileInfo::State::present;
        entries.push_back(Legend::state(Health::missing, there ? tr("truncated: the file ends too early")
                                                               : tr("missing: the file does not exist")));
    }
    legend_->setEntries(std::move(entries));
    strip_->setMessage(message);

    pieceRows_->setContent(pieces.size(), pieceColumns(session_.checkpoint(), pieces));
    strip_->setPieces(
        std::move(pieces), end, [this](int piece) { return pieceText(piece); },
        [this](int piece) { return pieceLabel(piece); });
    strip_->setSelectedChunk(session_.selection().current().chunk);
}

void FilesPage::selectPiece(int piece) {
    const BytePiece& p = strip_->pieces()[static_cast<size_t>(piece)];
    if (p.chunk == kNone) return;
    const ChunkInfo chunk = session_.catalog().chunk(p.chunk);
    session_.selection().selectChunk(chunk.tensor, p.chunk, chunk.rank, chunk.file);
}

void FilesPage::refreshSelection(const Selected& now, const Selected& before) {
    if (!session_.checkpoint()) return;
    const Catalog& catalog = session_.catalog();
    // A chunk that was chosen elsewhere shows the file that it is in.
    if (now.file != before.file)
        showFile(now.file);
    else if (now.chunk != before.chunk && now.chunk < catalog.chunkCount() &&
             catalog.chunk(now.chunk).file != kNone)
        showFile(catalog.chunk(now.chunk).file);
    strip_->setSelectedChunk(now.chunk);
}

// Shown even where the selection names this file already, because a chunk elsewhere led to another one.
void FilesPage::choose(FileId file) {
    showFile(file);
    session_.selection().selectFile(file);
}

void FilesPage::showFile(FileId file) {
    if (file == file_ || (file != kNone && file >= session_.catalog().files().size())) return;
    file_ = file;
    refreshStrip();
    treemap_->setSelected(file_);
    const int row = file_ == kNone ? -1 : model_->rowOf(file_);
    following_ = true;
    if (row < 0) {
        table_->clearSelection();
    } else {
        showRow(*table_, row);
    }
    following_ = false;
}

}  // namespace shardscope::ui
