#include "ui/pages/details_panel.h"

#include <QFormLayout>
#include <QHBoxLayout>
#include <QLabel>
#include <QMenu>
#include <QScrollArea>
#include <QToolButton>
#include <QVBoxLayout>
#include <map>
#include <set>
#include <utility>

#include "model/infer_mesh.h"
#include "survey/file_state.h"
#include "ui/models/texts.h"
#include "ui/widgets/building.h"
#include "ui/widgets/exporting.h"
#include "ui/widgets/labels.h"
#include "ui/widgets/theme.h"

namespace shardscope::ui {

namespace {

constexpr size_t kMostListed = 12;
constexpr uint32_t kMostPlaced = 20'000;  // chunks that are looked at for a line
constexpr size_t kMostOfValue = 200;      // bytes of text

// What the stored entries take, besides the bytes of their elements.
QString entryText(uint64_t entries, uint64_t elements) {
    return entries < elements ? DetailsPanel::tr("%1, compressed").arg(sizeText(entries))
                              : DetailsPanel::tr("%1 incl. zip overhead").arg(sizeText(entries));
}

// What is along one axis of the mesh, by the first two chunks that differ in their place on it alone.
QString alongAxis(const Catalog& catalog, TensorId t, const Mesh& mesh, size_t axis) {
    std::map<std::vector<uint32_t>, ChunkId> first;  // by the other coordinates
    std::set<uint32_t> places;
    QString found;
    for (ChunkId c = catalog.firstChunk(t); c < catalog.endChunk(t); ++c) {
        const ChunkInfo chunk = catalog.chunk(t, c);
        if (chunk.rank == kNone || chunk.rank >= mesh.ranks()) continue;
        std::vector<uint32_t> at = mesh.coordinates(chunk.rank);
        const uint32_t place = std::exchange(at[axis], 0);
        places.insert(place);
        const auto [known, fresh] = first.try_emplace(std::move(at), c);
        if (fresh || !found.isEmpty()) continue;
        const ChunkInfo one = catalog.chunk(t, known->second);
        if (mesh.coordinates(one.rank)[axis] == place) continue;
        if (chunk.flat && one.flat) {
            if (chunk.flat->start != one.flat->start) found = DetailsPanel::tr("shards a flat range");
            continue;
        }
        for (size_t d = 0; d < chunk.offsets.size() && found.isEmpty(); ++d) {
            if (chunk.offsets[d] != one.offsets[d]) found = DetailsPanel::tr("shards dim %1").arg(d);
        }
        if (found.isEmpty()) found = DetailsPanel::tr("replicas");
    }
    if (places.size() == 1)
        return DetailsPanel::tr("only at %1 of 0–%2").arg(*places.begin()).arg(mesh.axes[axis].size - 1);
    if (found.isEmpty()) return {};
    return places.size() == mesh.axes[axis].size
               ? found
               : DetailsPanel::tr("%1, on %2 of %3").arg(found).arg(places.size()).arg(mesh.axes[axis].size);
}

}  // namespace

DetailsPanel::DetailsPanel(Session& session, QWidget* parent) : QWidget(parent), session_(session) {
    setAccessibleName(tr("Details"));
    auto* layout = layoutOf<QVBoxLayout>(this, {8, 8, 8, 8}, 6);
    title_ = textBlock(this);
    title_->setAccessibleName(tr("Selected"));
    makeBold(title_);
    copy_ = new QToolButton(this);
    copy_->setText(tr("Copy"));
    copy_->setAccessibleName(tr("Copy something about the selection"));
    copy_->setPopupMode(QToolButton::InstantPopup);
    copy_->setMenu(new QMenu(copy_));
    auto* head = new QHBoxLayout;
    head->addWidget(title_, 1);
    head->addWidget(copy_, 0, Qt::AlignTop);
    layout->addLayout(head);
    area_ = withName(new QScrollArea(this), tr("Details of the selection"));
    area_->setWidgetResizable(true);
    area_->setFrameShape(QFrame::NoFrame);
    area_->setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
    layout->addWidget(area_, 1);
    connect(&session_.selection(), &Selection::changed, this,
            [this](const Selected& now, const Selected& before) {
                Selected same = now;
                // The page of files shows more of a file than the others.
                if ((now.page == Page::files) == (before.page == Page::files)) same.page = before.page;
                same.filter = before.filter;
                if (!(same == before)) rebuild();
            });
    connect(&session_, &Session::stateChanged, this, &DetailsPanel::rebuild);
    connect(&session_, &Session::factsChanged, this, &DetailsPanel::rebuild);
    connect(&session_, &Session::reportChanged, this, &DetailsPanel::rebuild);
    onThemeChange(this, [this] { rebuild(); });  // faint labels carry a color of their own
    rebuild();
}

QStringList DetailsPanel::lines() const {
    return lines_;
}

void DetailsPanel::section(const QString& title) {
    auto* label = new QLabel(title, body_);
    makeBold(label);
    label->setContentsMargins(0, form_->rowCount() ? 8 : 0, 0, 0);
    form_->addRow(label);
}

void DetailsPanel::line(const QString& label, const QString& value) {
    if (value.isEmpty()) return;
    auto* name = new QLabel(label, body_);
    setTextColor(*name, faintTextColor());
    auto* text = plainLabel(body_);
    // Long names without spaces may break anywhere.
    QString breakable = value;
    if (value.size() > 24)
        breakable.replace('.', QStringLiteral(".\u200b")).replace('/', QStringLiteral("/\u200b"));
    text->setText(breakable);
    text->setWordWrap(true);
    text->setTextInteractionFlags(Qt::TextSelectableByMouse | Qt::TextSelectableByKeyboard);
    text->setAccessibleName(label + ": " + value);
    form_->addRow(name, text);
    lines_ += label + ": " + value;
}

void DetailsPanel::rebuild() {
    lines_.clear();
    copy_->menu()->clear();
    body_ = new QWidget;
    form_ = new QFormLayout(body_);
    form_->setContentsMargins(0, 0, 4, 0);
    form_->setVerticalSpacing(3);
    form_->setHorizontalSpacing(10);
    form_->setFieldGrowthPolicy(QFormLayout::AllNonFixedFieldsGrow);
    form_->setLabelAlignment(Qt::AlignLeft | Qt::AlignTop);
    area_->setWidget(body_);
    if (!session_.checkpoint()) {
        title_->setText(tr("Nothing is open"));
        copy_->setEnabled(false);
        return;
    }
    copy_->setEnabled(true);
    const Selected& now = session_.selection().current();
    if (now.tensor != kNone) {
        showTensor(now.tensor);
        if (now.chunk != kNone) showChunk(now.chunk);
    } else if (!now.module.isEmpty()) {
        showModule(now.module);
    } else if (now.object != kNone) {
        showObject(now.object);
    } else if (now.page == Page::files && now.file != kNone) {
        title_->setText(toQString(session_.catalog().files()[now.file].path));
    } else {
        showCheckpoint();
    }
    if (now.file != kNone && (now.chunk == kNone || now.page == Page::files)) showFile(now.file);
    if (!now.ranks.empty()) showRanks(now.ranks);
    copy_->menu()->addSeparator();
    addCopyAction(*copy_->menu(), tr("Everything shown here"), lines_.join('\n'));
}

void DetailsPanel::showCheckpoint() {
    const Catalog& catalog = session_.catalog();
    title_->setText(toQString(session_.checkpoint()->path));
    line(tr("Format"), session_.checkpoint()->format ? toQString(session_.checkpoint()->format->info().title)
                                                     : toQString(catalog.format()));
    line(tr("Variant"), toQString(catalog.variant()));
    line(tr("Written by"), toQString(catalog.writer()));
    line(tr("Tensors"), numberText(catalog.tensorCount()));
    line(tr("Parameters"), numberText(catalog.elementsOf(Role::parameter)));
    if (const uint64_t elements = catalog.elementsOf(Role::optimizer))
        line(tr("Optimizer elements"), numberText(elements));
    line(tr("Bytes"), sizeText(catalog.totalBytes()));
    line(tr("Chunks"), numberText(catalog.chunkCount()));
    line(tr("Objects"), numberText(catalog.objects().size()));
    line(tr("Files"), numberText(catalog.files().size()));
    line(tr("Ranks"), numberText(catalog.rankCount()));
    if (session_.hasFacts() && session_.facts()->mesh) {
        const Mesh& mesh = *session_.facts()->mesh;
        line(tr("Mesh"), toQString(formatMesh(mesh)) +
                             (mesh.source == Mesh::Source::declared ? tr(" (declared)") : tr(" (inferred)")));
    }
    line(tr("Known so far"), session_.validation().depth());
    line(tr("Read from"), session_.dataElsewhere());
    const QString path = session_.path();
    QMenu* menu = copy_->menu();
    addCopyAction(*menu, tr("Path"), path);
    addCopyAction(*menu, tr("Command that shows this"), session_.command("info"));
}

void DetailsPanel::showTensor(TensorId t) {
    const Catalog& catalog = session_.catalog();
    const QString name = toQString(catalog.name(t));
    QString breakable = name;
    title_->setText(breakable.replace('.', QStringLiteral(".\u200b")));
    line(tr("Dtype"), toQString(dtypeName(catalog.dtype(t))));
    line(tr("Shape"), toQString(formatDims(catalog.shape(t))));
    line(tr("Elements"), numberText(static_cast<uint64_t>(catalog.elements(t))));
    line(tr("Bytes"), sizeText(catalog.bytes(t)));
    line(tr("Role"), toQString(roleName(catalog.role(t))));
    line(tr("Sharding"), toQString(cutText(catalog, t)));
    line(tr("Chunks"), numberText(catalog.endChunk(t) - catalog.firstChunk(t)));
    if (catalog.aliasOf(t) != kNone) line(tr("Same tensor as"), toQString(catalog.name(catalog.aliasOf(t))));
    if (catalog.special(t) != kNone) {
        const SpecialTensor& special = catalog.specials()[catalog.special(t)];
        line(tr("Part of"), tr("%1 (%2)").arg(toQString(special.name), toQString(special.kind)));
    }
    uint64_t stored = 0, entries = 0;
    std::vector<uint32_t> ranks;
    for (ChunkId c = catalog.firstChunk(t); c < catalog.endChunk(t); ++c) {
        const ChunkInfo chunk = catalog.chunk(t, c);
        stored += elementBytes(catalog, chunk);
        entries += chunk.length;
        if (chunk.rank != kNone) ranks.push_back(chunk.rank);
    }
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    line(tr("On ranks"), toQString(spansText(ranks, kMostListed)));
    line(tr("Stored"), sizeText(stored));
    if (entries != stored) line(tr("In files"), entryText(entries, stored));
    if (session_.hasFacts() && session_.facts()->mesh &&
        catalog.endChunk(t) - catalog.firstChunk(t) <= kMostPlaced) {
        const Mesh& mesh = *session_.facts()->mesh;
        for (size_t axis = 0; axis < mesh.axes.size(); ++axis)
            line(tr("Along %1").arg(toQString(mesh.axes[axis].name)), alongAxis(catalog, t, mesh, axis));
    }
    if (session_.hasFacts()) {
        uint64_t there = 0;
        for (ChunkId c = catalog.firstChunk(t); c < catalog.endChunk(t); ++c) {
            if (session_.facts()->chunkHealth[c] != Health::missing)
                there += elementBytes(catalog, catalog.chunk(t, c));
        }
        if (there != stored) line(tr("Readable"), tr("%1 of %2").arg(sizeText(there), sizeText(stored)));
        line(tr("State"), toQString(tensorStateText(*session_.facts(), catalog, t)));
        if (!session_.facts()->gaps.empty() && !session_.facts()->gaps[t].empty()) {
            QStringList boxes;
            for (const Box& box : session_.facts()->gaps[t]) {
                if (boxes.size() == static_cast<qsizetype>(kMostListed)) {
                    boxes += QStringLiteral("…");
                    break;
                }
                boxes += toQString(formatBox(box.offsets, box.lengths));
            }
            line(tr("Missing"), boxes.join(", "));
        }
    }
    const QString path = session_.path();
    QMenu* menu = copy_->menu();
    addCopyAction(*menu, tr("Name"), name);
    addCopyAction(*menu, tr("Python that loads it"),
                  pythonSnippet(path, session_.directory(), session_.catalog(), t));
    addCopyAction(*menu, tr("Command that shows it"), session_.command("show", {name}));
    addCopyAction(*menu, tr("Command that extracts it"), session_.command("extract", {name, "tensor.npy"}));
}

void DetailsPanel::showChunk(ChunkId c) {
    const Catalog& catalog = session_.catalog();
    const ChunkInfo chunk = catalog.chunk(c);
    section(tr("Chunk"));
    line(tr("Part"), toQString(chunkText(chunk)));
    line(tr("Rank"),
         chunk.rank == kNone
             ? tr("none")
             : tr("%1 (%2)")
                   .arg(chunk.rank)
                   .arg(toQString(
                       rankLabel(session_.hasFacts() ? session_.facts()->mesh : std::nullopt, chunk.rank))));
    if (chunk.file != kNone) {
        const QString relative = toQString(catalog.files()[chunk.file].path);
        const QString range = QStringLiteral("%1–%2").arg(chunk.offset).arg(chunk.offset + chunk.length);
        line(tr("File"), relative);
        line(tr("Bytes in file"), rangeText(chunk.offset, chunk.length));
        const QString full = session_.filePath(catalog.files()[chunk.file].path);
        addCopyAction(*copy_->menu(), tr("File path"), full);
        addCopyAction(*copy_->menu(), tr("Byte range"), full + ':' + range);
    }
    const uint64_t bytes = elementBytes(catalog, chunk);
    line(tr("Size"), sizeText(bytes));
    if (chunk.length != bytes) line(tr("In the file"), entryText(chunk.length, bytes));
    if (session_.hasFacts()) line(tr("State"), toQString(chunkStateText(*session_.facts(), catalog, c)));
}

void DetailsPanel::showModule(const QString& name) {
    title_->setText(name);
    if (const ModuleTree* tree = session_.filtered().tree().get()) {
        const ModuleTree::Node node = tree->find(name.toStdString());
        line(tr("Tensors"), numberText(tree->tensorCount(node)));
        line(tr("Bytes"), sizeText(tree->bytes(node)));
    }
    addCopyAction(*copy_->menu(), tr("Name"), name);
    addCopyAction(*copy_->menu(), tr("Command that lists it"), session_.command("ls", {name + ".*"}));
}

void DetailsPanel::showObject(ObjectId o) {
    const Catalog& catalog = session_.catalog();
    const ObjectInfo& object = catalog.objects()[o];
    const QString name = toQString(object.name);
    QString breakable = name;
    title_->setText(breakable.replace('.', QStringLiteral(".\u200b")));
    line(tr("Kind"), tr("object"));
    if (object.value) {
        line(tr("Type"), toQString(valueKindName(object.value)));
        line(tr("Value"), toQString(valueRepr(object.value, kMostOfValue)));
    }
    if (object.rank != kNone) line(tr("Rank"), QString::number(object.rank));
    addCopyAction(*copy_->menu(), tr("Name"), name);
    if (object.file != kNone) {
        line(tr("File"), toQString(catalog.files()[object.file].path));
        if (object.length) line(tr("Bytes in file"), rangeText(object.offset, object.length));
        const QString full = session_.filePath(catalog.files()[object.file].path);
        addCopyAction(*copy_->menu(), tr("File path"), full);
    }
    addCopyAction(*copy_->menu(), tr("Command that lists objects"), session_.command("ls", {"--objects"}));
}

void DetailsPanel::showFile(FileId f) {
    const FileInfo& info = session_.catalog().files()[f];
    section(tr("File"));
    line(tr("Path"), toQString(info.path));
    const bool known = session_.hasFacts() && f < session_.facts()->files.size();
    const FileFacts* facts = known ? &session_.facts()->files[f] : nullptr;
    line(tr("State"), toQString(fileStateText(info, facts)));
    line(tr("Size"), sizeText(info.size));
    if (facts) {
        line(tr("Used"), sizeText(facts->used));
        if (!info.metadata) line(tr("Dead"), sizeText(facts->dead(info.size)));
        line(tr("Tensors"), numberText(facts->tensors));
        line(tr("Chunks"), numberText(facts->chunks));
    }
    const QString full = session_.filePath(info.path);
    addCopyAction(*copy_->menu(), tr("File path"), full);
}

void DetailsPanel::showRanks(const std::vector<uint32_t>& ranks) {
    if (!session_.hasFacts()) return;
    const Facts& facts = *session_.facts();
    uint64_t bytes = 0, chunks = 0;
    for (const uint32_t rank : ranks) {
        if (rank >= facts.ranks.size()) continue;
        bytes += facts.ranks[rank].bytes;
        chunks += facts.ranks[rank].chunks;
    }
    section(ranks.size() == 1 ? tr("Rank %1").arg(ranks[0]) : tr("%1 ranks").arg(numberText(ranks.size())));
    if (ranks.size() == 1)
        line(tr("Place"), toQString(rankLabel(facts.mesh, ranks[0])));
    else
        line(tr("Ranks"), toQString(spansText(ranks, kMostListed)));
    line(tr("Bytes"), sizeText(bytes));
    line(tr("Chunks"), numberText(chunks));
}

}  // namespace shardscope::ui
