#include <QAbstractItemModelTester>
#include <QAccessible>
#include <QClipboard>
#include <QComboBox>
#include <QLabel>
#include <QMenu>
#include <QSignalSpy>
#include <QTableView>
#include <QToolButton>
#include <QWheelEvent>

#include "support/accessibility.h"
#include "support/gui_test.h"
#include "ui/pages/files_page.h"
#include "ui/widgets/card.h"
#include "ui/widgets/exporting.h"
#include "ui/widgets/treemap.h"

using namespace shardscope;
using namespace shardscope::ui;

namespace {

FileId fileNamed(const Session& session, std::string_view path) {
    const auto& files = session.catalog().files();
    for (FileId f = 0; f < files.size(); ++f) {
        if (files[f].path == path) return f;
    }
    return kNone;
}

void damage(const QString& path, qint64 size) {
    QFile file(path);
    QVERIFY(file.setPermissions(QFile::ReadOwner | QFile::WriteOwner));
    QVERIFY(file.resize(size));
}

QTableView* fileTable(FilesPage& page) {
    for (QTableView* table : page.findChildren<QTableView*>()) {
        if (qobject_cast<FileTableModel*>(table->model())) return table;
    }
    return nullptr;
}

// The files of many directories, one of them much larger than the others, and very many small ones.
std::shared_ptr<const Catalog> manyFiles(uint32_t directories, uint32_t each) {
    CatalogBuilder builder("dcp", "", "synthetic");
    for (uint32_t d = 0; d < directories; ++d) {
        for (uint32_t i = 0; i < each; ++i) {
            FileInfo info;
            info.path = "rank_" + std::to_string(d) + "/part_" + std::to_string(i) + ".distcp";
            info.rank = d;
            info.size = i == 0 ? uint64_t{1} << 30 : i < 20 ? uint64_t{40} << 20 : 1 << 10;
            builder.addFile(info);
        }
    }
    builder.setRankCount(directories);
    return std::make_shared<const Catalog>(std::move(builder).finish());
}

}  // namespace

class FilesTest : public QObject {
    Q_OBJECT

  private slots:
    void everyControlHasAName();
    void init() { applyTheme(ThemeChoice::light); }
    void model();
    void sorting();
    void totals();
    void stripShowsWhereThingsLie();
    void stripByMouseAndKeys();
    void stripZooms();
    void selectionIsShared();
    void truncatedAndMissingFiles();
    void wrongKinds();
    void treemapSquarifies();
    void treemapByMouseAndKeys();
    void manySmallFilesAreOneTile();
    void copying();
    void exporting();
    void empty();
    void pictures_data();
    void pictures();
};

void FilesTest::model() {
    auto session = openSession(sampleCheckpoint());
    FileTableModel files(*session);
    QAbstractItemModelTester tester(&files, QAbstractItemModelTester::FailureReportingMode::QtTest);
    QCOMPARE(files.rowCount(), 5);
    const FileId data = fileNamed(*session, "__0_0.distcp"), meta = fileNamed(*session, ".metadata");
    QCOMPARE(files.stateText(data), QStringLiteral("ok"));
    QCOMPARE(files.stateText(meta), QStringLiteral("metadata"));
    QCOMPARE(files.text(data, FileTableModel::rank), QStringLiteral("0"));
    QVERIFY(files.text(data, FileTableModel::chunks).toInt() > 0);
    session->open(genuineCheckpoint("dcp/t2.15.0-pipeline"));
    QTRY_VERIFY(session->state() == Session::State::open && session->hasFacts());
    QCOMPARE(files.rowCount(), static_cast<int>(session->catalog().files().size()));
    session->close();
    QCOMPARE(files.rowCount(), 0);
}

void FilesTest::sorting() {
    auto session = openSession(sampleCheckpoint());
    FileTableModel files(*session);
    QAbstractItemModelTester tester(&files, QAbstractItemModelTester::FailureReportingMode::QtTest);
    for (int column = 0; column < FileTableModel::columnCountValue; ++column) {
        const QPersistentModelIndex kept = files.index(1, 0);
        const FileId before = kept.data(FileTableModel::FileRole).toUInt();
        files.sort(column, Qt::DescendingOrder);
        QCOMPARE(kept.data(FileTableModel::FileRole).toUInt(), before);
        QCOMPARE(files.file(files.rowOf(before)), before);
    }
    files.sort(FileTableModel::size, Qt::AscendingOrder);
    for (int r = 1; r < files.rowCount(); ++r)
        QVERIFY(session->catalog().files()[files.file(r - 1)].size <=
                session->catalog().files()[files.file(r)].size);
    files.sort(-1, Qt::AscendingOrder);
    QCOMPARE(files.file(3), FileId{3});
}

void FilesTest::totals() {
    auto session = openSession(sampleCheckpoint());
    auto page = pageOf<FilesPage>(*session);
    FileTableModel files(*session);
    const FileTableModel::Totals totals = files.totals();
    QCOMPARE(totals.files, size_t{5});
    QCOMPARE(totals.size, totals.used + totals.dead);
    bool said = false;
    for (QLabel* label : page->findChildren<QLabel*>())
        said |= label->text().startsWith("5 files, ") && label->text().contains(" used, ");
    QVERIFY(said);
}

void FilesTest::stripShowsWhereThingsLie() {
    auto session = openSession(sampleCheckpoint());
    auto page = pageOf<FilesPage>(*session);
    auto* strip = page->findChild<ByteStrip*>();
    QVERIFY(strip->pieces().empty());
    const FileId file = fileNamed(*session, "__0_0.distcp");
    session->selection().selectFile(file);
    QVERIFY(!strip->pieces().empty());
    // Pieces follow each other and fill the file.
    uint64_t at = 0;
    size_t chunks = 0;
    for (const BytePiece& piece : strip->pieces()) {
        QCOMPARE(piece.offset, at);
        at += piece.length;
        chunks += piece.kind == BytePiece::Kind::chunk;
    }
    QCOMPARE(at, session->catalog().files()[file].size);
    QCOMPARE(chunks, session->facts()->chunksOf(file).size());
    session->selection().selectFile(fileNamed(*session, ".metadata"));
    QCOMPARE(strip->pieces().size(), size_t{1});
    QVERIFY(strip->pieces()[0].kind == BytePiece::Kind::metadata);
}

void FilesTest::stripByMouseAndKeys() {
    auto session = openSession(sampleCheckpoint());
    auto page = pageOf<FilesPage>(*session);
    auto* strip = page->findChild<ByteStrip*>();
    session->selection().selectFile(fileNamed(*session, "__0_0.distcp"));
    int piece = 0;
    while (strip->pieces()[static_cast<size_t>(piece)].kind != BytePiece::Kind::chunk ||
           strip->pieceRect(piece).width() < 3)
        ++piece;
    QTest::mouseClick(strip, Qt::LeftButton, {}, strip->pieceRect(piece).center().toPoint());
    const ChunkId chunk = strip->pieces()[static_cast<size_t>(piece)].chunk;
    QCOMPARE(session->selection().current().chunk, chunk);
    QCOMPARE(session->selection().current().tensor, session->catalog().tensorOf(chunk));
    QTest::keyClick(strip, Qt::Key_Right);
    QCOMPARE(strip->current(), piece + 1);
    QTest::keyClick(strip, Qt::Key_Left);
    QCOMPARE(strip->current(), piece);
    QTest::keyClick(strip, Qt::Key_End);
    QCOMPARE(strip->current(), static_cast<int>(strip->pieces().size()) - 1);
}

void FilesTest::stripZooms() {
    auto session = openSession(sampleCheckpoint());
    auto page = pageOf<FilesPage>(*session);
    auto* strip = page->findChild<ByteStrip*>();
    session->selection().selectFile(fileNamed(*session, "__0_0.distcp"));
    const uint64_t whole = strip->viewEnd();
    const QPointF at(strip->width() / 2.0, 20);
    QWheelEvent wheel(at, strip->mapToGlobal(at), {}, {0, 240}, Qt::NoButton, Qt::NoModifier,
                      Qt::NoScrollPhase, false);
    QApplication::sendEvent(strip, &wheel);
    QVERIFY(strip->viewEnd() - strip->viewBegin() < whole);
    // The byte under the pointer stays there.
    const double middle = static_cast<double>(strip->viewBegin() + strip->viewEnd()) / 2;
    QVERIFY(std::abs(middle - static_cast<double>(whole) / 2) < static_cast<double>(whole) * 0.01);
    const uint64_t begin = strip->viewBegin();
    QTest::mousePress(strip, Qt::LeftButton, {}, QPoint(strip->width() / 2, 20));
    QTest::mouseMove(strip, QPoint(strip->width() / 2 + 100, 20));
    QMouseEvent move(QEvent::MouseMove, QPointF(strip->width() / 2 + 100, 20),
                     strip->mapToGlobal(QPointF(0, 0)), Qt::LeftButton, Qt::LeftButton, {});
    QApplication::sendEvent(strip, &move);
    QTest::mouseRelease(strip, Qt::LeftButton, {}, QPoint(strip->width() / 2 + 100, 20));
    QVERIFY(strip->viewBegin() < begin);
    picture(*page, "files-zoomed");
    strip->setFocus();
    QTest::keyClick(strip, Qt::Key_0);
    QCOMPARE(strip->viewEnd(), whole);
    QTest::keyClick(strip, Qt::Key_Plus);
    QVERIFY(strip->viewEnd() - strip->viewBegin() < whole);
    QTest::keyClick(strip, Qt::Key_Minus);
    QCOMPARE(strip->viewEnd() - strip->viewBegin(), whole);
}

void FilesTest::selectionIsShared() {
    auto session = openSession(sampleCheckpoint());
    auto page = pageOf<FilesPage>(*session);
    auto* strip = page->findChild<ByteStrip*>();
    auto* table = fileTable(*page);
    auto* map = page->findChild<Treemap*>();
    // A row of the table.
    QTest::mouseClick(table->viewport(), Qt::LeftButton, {},
                      table->visualRect(table->model()->index(2, 0)).center());
    const FileId second = table->model()->index(2, 0).data(FileTableModel::FileRole).toUInt();
    QCOMPARE(session->selection().current().file, second);
    QCOMPARE(map->selected(), second);
    // A chunk that is chosen elsewhere.
    const FileId other = fileNamed(*session, "__3_0.distcp");
    const ChunkId chunk = session->facts()->chunksOf(other)[1];
    session->selection().selectCell(session->catalog().tensorOf(chunk), 3, chunk);
    QCOMPARE(map->selected(), other);
    QCOMPARE(strip->pieces()[static_cast<size_t>(strip->current())].chunk, chunk);
    QCOMPARE(table->currentIndex().data(FileTableModel::FileRole).toUInt(), other);
    // The file from before, again.
    QTest::mouseClick(table->viewport(), Qt::LeftButton, {},
                      table->visualRect(table->model()->index(2, 0)).center());
    QCOMPARE(map->selected(), second);
    // Arrows in the table.
    table->setFocus();
    QTest::keyClick(table, Qt::Key_Down);
    QCOMPARE(session->selection().current().file,
             table->model()->index(3, 0).data(FileTableModel::FileRole).toUInt());
}

void FilesTest::truncatedAndMissingFiles() {
    const QString copy = copyCheckpoint(sampleCheckpoint());
    damage(copy + "/__2_0.distcp", 2000);
    QVERIFY(QFile::remove(copy + "/__1_0.distcp"));
    auto session = openSession(copy);
    auto page = pageOf<FilesPage>(*session);
    FileTableModel files(*session);
    const FileId cut = fileNamed(*session, "__2_0.distcp"), gone = fileNamed(*session, "__1_0.distcp");
    QVERIFY2(files.stateText(cut).startsWith("truncated by "), qPrintable(files.stateText(cut)));
    QCOMPARE(files.stateText(gone), QStringLiteral("missing"));
    QVERIFY(files.health(gone) == Health::missing);
    // The worst first.
    files.sort(FileTableModel::state, Qt::DescendingOrder);
    QVERIFY(files.health(files.file(0)) == Health::missing && files.health(files.file(1)) == Health::missing);
    auto* strip = page->findChild<ByteStrip*>();
    session->selection().selectFile(cut);
    QVERIFY(strip->pieces().back().kind == BytePiece::Kind::missing);
    QCOMPARE(strip->pieces().back().offset + strip->pieces().back().length, session->facts()->files[cut].end);
    picture(*page, "files-damaged");
    applyTheme(ThemeChoice::dark);
    picture(*page, "files-damaged-dark");
    session->selection().selectFile(gone);
    for (const BytePiece& piece : strip->pieces())
        QVERIFY(piece.kind == BytePiece::Kind::missing);
    // It takes the place that it would.
    QVERIFY(!page->findChild<Treemap*>()->itemRect(gone).isEmpty());
}

void FilesTest::wrongKinds() {
    const QString copy = copyCheckpoint(sampleCheckpoint());
    QVERIFY(QFile::remove(copy + "/__1_0.distcp"));
    QVERIFY(QDir().mkpath(copy + "/__1_0.distcp"));
    auto session = openSession(copy);
    QVERIFY(session->checkpoint());
    FileTableModel files(*session);
    const FileId directory = fileNamed(*session, "__1_0.distcp");
    QCOMPARE(files.stateText(directory), QStringLiteral("not a regular file"));
    QVERIFY(files.health(directory) == Health::missing);
}

void FilesTest::treemapSquarifies() {
    Treemap map;
    map.resize(600, 400);
    std::vector<Treemap::Item> items;
    const uint64_t sizes[] = {6, 6, 4, 3, 2, 2, 1};
    for (uint32_t i = 0; i < 7; ++i)
        items.push_back({i, QStringLiteral("f%1").arg(i), {}, sizes[i] << 20, Qt::gray, Health::ok});
    map.setItems(items, {});
    double area = 0;
    for (uint32_t i = 0; i < 7; ++i) {
        const QRectF rect = map.itemRect(i);
        QVERIFY(!rect.isEmpty());
        const double proportion = rect.width() / rect.height();
        QVERIFY2(proportion > 0.3 && proportion < 3.4, qPrintable(QString::number(proportion)));
        area += rect.width() * rect.height();
        for (uint32_t k = 0; k < i; ++k)
            QVERIFY(!map.itemRect(k)
                         .adjusted(0.1, 0.1, -0.1, -0.1)
                         .intersects(rect.adjusted(0.1, 0.1, -0.1, -0.1)));
        const double first = map.itemRect(0).width() * map.itemRect(0).height();
        QVERIFY(std::abs(rect.width() * rect.height() / first - static_cast<double>(sizes[i]) / 6) < 0.01);
    }
    QVERIFY(std::abs(area - 594 * 394) < 100);
}

void FilesTest::treemapByMouseAndKeys() {
    auto session = openSession(sampleCheckpoint());
    auto page = pageOf<FilesPage>(*session);
    auto* map = page->findChild<Treemap*>();
    const FileId file = fileNamed(*session, "__2_0.distcp");
    QTest::mouseClick(map, Qt::LeftButton, {}, map->itemRect(file).center().toPoint());
    QCOMPARE(session->selection().current().file, file);
    QSignalSpy spy(map, &Treemap::chosen);
    for (const Qt::Key key : {Qt::Key_Left, Qt::Key_Right, Qt::Key_Up, Qt::Key_Down})
        QTest::keyClick(map, key);
    QVERIFY(spy.count() >= 2);
    QCOMPARE(session->selection().current().file, map->selected());
}

void FilesTest::manySmallFilesAreOneTile() {
    auto session = openSynthetic(manyFiles(8, 400));
    auto page = pageOf<FilesPage>(*session);
    auto* map = page->findChild<Treemap*>();
    QVERIFY(map->aggregated() >= 8 * 380);
    QVERIFY(map->tileCount() < 400);
    picture(*page, "files-many");
    page->resize(1600, 1000);
    applyTheme(ThemeChoice::dark);
    picture(*page, "files-many-large-dark");
}

void FilesTest::copying() {
    auto session = openSession(sampleCheckpoint());
    auto page = pageOf<FilesPage>(*session);
    session->selection().selectFile(fileNamed(*session, "__0_0.distcp"));
    auto* strip = page->findChild<ByteStrip*>();
    QTest::keyClick(strip, Qt::Key_Home);
    const auto choose = [&](const QString& panel, const QString& action) {
        for (QToolButton* button : page->findChildren<QToolButton*>()) {
            if (button->accessibleName() != QStringLiteral("Menu of '%1'").arg(panel)) continue;
            auto* menu = button->findChild<QMenu*>();
            emit menu->aboutToShow();
            for (QAction* a : menu->actions()) {
                if (a->text() == action) return a->trigger(), true;
            }
        }
        return false;
    };
    QVERIFY(choose("Files", "Copy path"));
    QCOMPARE(QApplication::clipboard()->text(), sampleCheckpoint() + "/__0_0.distcp");
    QVERIFY(choose("Bytes of one file", "Copy byte range"));
    QVERIFY(QApplication::clipboard()->text().startsWith(sampleCheckpoint() + "/__0_0.distcp:0-"));
    QVERIFY(choose("Files", "Show its tensors"));
    QCOMPARE(session->selection().current().filter, QStringLiteral("file:__0_0.distcp"));
    QVERIFY(choose("Bytes of one file", "Show as table"));
    picture(*page, "files-strip-table");
    page->resize(720, 600);
    picture(*page, "files-narrow");
}

void FilesTest::exporting() {
    auto session = openSession(sampleCheckpoint());
    auto page = pageOf<FilesPage>(*session);
    QTemporaryDir directory;
    QCOMPARE(writeCsv(*fileTable(*page)->model(), directory.filePath("f.csv")), QString());
    QFile file(directory.filePath("f.csv"));
    QVERIFY(file.open(QIODevice::ReadOnly));
    QCOMPARE(file.readAll().count('\n'), 6);
    QCOMPARE(writeSvg(*page->findChild<Treemap*>(), directory.filePath("t.svg")), QString());
    QCOMPARE(writePng(*page->findChild<ByteStrip*>(), directory.filePath("t.png")), QString());
}

void FilesTest::empty() {
    Session session(localEngine());
    auto page = pageOf<FilesPage>(session);
    QVERIFY(page->findChild<QLabel*>()->text().contains("Open a checkpoint"));
    session.open(sampleCheckpoint());
    QTRY_VERIFY(session.hasFacts());
    QCOMPARE(fileTable(*page)->model()->rowCount(), 5);
    session.selection().selectFile(1);
    session.close();
    QVERIFY(page->findChild<ByteStrip*>()->pieces().empty());
    QCOMPARE(page->findChild<Treemap*>()->tileCount(), size_t{0});
}

void FilesTest::pictures_data() {
    QTest::addColumn<QString>("path");
    QTest::newRow("sample") << sampleCheckpoint();
    QTest::newRow("adam") << genuineCheckpoint("dcp/t2.15.0-fsdp2-adam");
    QTest::newRow("safetensors") << genuineCheckpoint("safetensors/hf-sharded");
}

void FilesTest::pictures() {
    QFETCH(QString, path);
    auto session = openSession(path);
    QVERIFY(session->hasFacts());
    auto page = pageOf<FilesPage>(*session);
    session->selection().selectFile(0);
    const QString name = QStringLiteral("files-") + QTest::currentDataTag();
    QVERIFY(!picture(*page, name).isNull());
    page->findChild<QComboBox*>()->setCurrentIndex(1);
    applyTheme(ThemeChoice::dark);
    page->resize(1600, 1000);
    QVERIFY(!picture(*page, name + "-large-dark").isNull());
}

void FilesTest::everyControlHasAName() {
    auto session = openSession(sampleCheckpoint());
    auto page = pageOf<FilesPage>(*session);
    const QStringList nameless = namelessByKeyboard(*page);
    QVERIFY2(nameless.isEmpty(), qPrintable(nameless.join(", ")));
}

SHARDSCOPE_GUI_TEST_MAIN(FilesTest)
#include "files_test.moc"
