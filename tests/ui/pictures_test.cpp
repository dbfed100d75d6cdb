// What the painted views look like, compared pixel by pixel with the pictures in tests/data/ui/pictures. A
// view that was changed on purpose is accepted by running this with SHARDSCOPE_ACCEPT=1; look at the pictures
// before committing them.
#include <QFontInfo>
#include <QLocale>
#include <QPainter>

#include "support/gui_test.h"
#include "ui/pages/verdict_strip.h"
#include "ui/widgets/heatmap.h"
#include "ui/widgets/icicle.h"
#include "ui/widgets/lanes.h"
#include "ui/widgets/mesh_view.h"
#include "ui/widgets/placement_map.h"
#include "ui/widgets/run_timeline.h"
#include "ui/widgets/tensor_box.h"
#include "ui/widgets/treemap.h"

using namespace shardscope;
using namespace shardscope::ui;

namespace {

// Pixels that differ in red, the others faintly.
QImage difference(const QImage& actual, const QImage& expected) {
    QImage image(actual.size().expandedTo(expected.size()), QImage::Format_RGB32);
    image.fill(Qt::red);
    const QRect both = actual.rect() & expected.rect();
    for (int y = 0; y < both.height(); ++y) {
        for (int x = 0; x < both.width(); ++x) {
            if (actual.pixel(x, y) == expected.pixel(x, y))
                image.setPixel(x, y, QColor(actual.pixel(x, y)).lighter(120).rgb());
        }
    }
    return image;
}

int differingPixels(const QImage& actual, const QImage& expected) {
    if (actual.size() != expected.size()) return std::max(actual.width() * actual.height(), 1);
    int count = 0;
    for (int y = 0; y < actual.height(); ++y) {
        for (int x = 0; x < actual.width(); ++x)
            count += actual.pixel(x, y) != expected.pixel(x, y);
    }
    return count;
}

void compare(QWidget& widget, QSize size, const QString& name) {
    widget.resize(size);
    widget.show();
    QVERIFY(QTest::qWaitForWindowExposed(&widget));
    // The focus frame depends on which window is active.
    widget.clearFocus();
    settle();
    const QImage actual = picture(widget, name).convertToFormat(QImage::Format_RGB32);
    const QString kept = QStringLiteral(SHARDSCOPE_TEST_DATA "/ui/pictures/%1.png").arg(name);
    if (qEnvironmentVariableIsSet("SHARDSCOPE_ACCEPT")) {
        QVERIFY2(actual.save(kept, "PNG", 0), qPrintable(kept));  // 0: small
        return;
    }
    const QImage expected = QImage(kept).convertToFormat(QImage::Format_RGB32);
    QVERIFY2(!expected.isNull(), qPrintable(kept + " is missing; SHARDSCOPE_ACCEPT=1 writes it"));
    const int differing = differingPixels(actual, expected);
    if (differing == 0) return;
    QDir().mkpath(QStringLiteral(SHARDSCOPE_PICTURES));
    const QString base = QStringLiteral(SHARDSCOPE_PICTURES "/%1-").arg(name);
    actual.save(base + "actual.png");
    difference(actual, expected).save(base + "difference.png");
    QFAIL(qPrintable(QStringLiteral("%1 pixels differ from %2: %3actual.png, %3difference.png")
                         .arg(differing)
                         .arg(kept, base)));
}

SyntheticOptions damagedModel() {
    SyntheticOptions options;
    options.layers = 8;
    options.tensorsPerLayer = 4;
    options.missingFileRank = 5;
    options.gapLayer = 3;
    return options;
}

}  // namespace

class PicturesTest : public QObject {
    Q_OBJECT

  private slots:
    void initTestCase() {
        QFont font(QStringLiteral("DejaVu Sans"));
        font.setPixelSize(12);
        QCOMPARE(QFontInfo(font).family(), QStringLiteral("DejaVu Sans"));  // package fonts-dejavu-core
        QApplication::setFont(font);
        QCOMPARE(qGuiApp->devicePixelRatio(), 1.0);
        // Times are those of one place, in one language.
        qputenv("TZ", "UTC");
        QLocale::setDefault(QLocale::c());
    }
    void cleanup() { applyTheme(ThemeChoice::light); }

    void views_data() {
        QTest::addColumn<QString>("view");
        QTest::addColumn<bool>("dark");
        for (const bool dark : {false, true}) {
            for (const char* view : {"placement-map", "tensor-box", "treemap", "icicle", "lanes", "heat-map",
                                     "mesh", "run-timeline", "verdict-strip"})
                QTest::addRow("%s-%s", view, dark ? "dark" : "light") << QString(view) << dark;
        }
    }
    void views() {
        QFETCH(QString, view);
        QFETCH(bool, dark);
        applyTheme(dark ? ThemeChoice::dark : ThemeChoice::light);
        const QString name = QString::fromLatin1(QTest::currentDataTag());
        const auto session = openSynthetic(syntheticModel(damagedModel()));
        QVERIFY(session->hasFacts());
        if (view == "placement-map") {
            PlacementMap map;
            map.setMatrix(PlacementMatrix::build(session->checkpoint(), session->filtered().tree(),
                                                 session->facts(), {{}, false, false}));
            map.resize(720, 360);
            while (!map.showsTiles())
                map.zoomIn();
            compare(map, {720, 360}, name);
        } else if (view == "tensor-box") {
            const TensorId tensor = session->catalog().find("model.layers.3.mlp.w0.weight");
            TensorBox box;
            box.setScene(makeBoxScene(session->checkpoint(), session->facts(), tensor,
                                      defaultView(session->catalog().shape(tensor))));
            compare(box, {420, 320}, name);
        } else if (view == "treemap") {
            Treemap map;
            std::vector<Treemap::Item> items;
            for (uint32_t i = 0; i < 40; ++i)
                items.push_back({i, QStringLiteral("__%1_0.distcp").arg(i), i < 28 ? "rank files" : "other",
                                 uint64_t{1} << (20 + i % 5), categoryColor(i % 4),
                                 i == 7 ? Health::missing : Health::ok});
            map.setItems(std::move(items), [](uint32_t id) { return QString::number(id); });
            map.setSelected(3);
            compare(map, {420, 280}, name);
        } else if (view == "icicle") {
            Icicle icicle;
            icicle.setFacts(session->checkpoint(), session->facts());
            icicle.setCurrent(session->facts()->tree.find("model.layers.2"));
            compare(icicle, {560, 160}, name);
        } else if (view == "lanes") {
            Lanes lanes(QStringLiteral("Bytes"));
            std::vector<JobRate> rates;
            for (int i = 0; i < 80; ++i)
                rates.push_back({6e8 + 1e8 * (i % 7),
                                 i < 50 ? 5e8 + 5e7 * (i % 5) : 0,
                                 {0.6 + 0.1 * (i % 3), 0.3, i < 50 ? 0.4 : 0}});
            lanes.setRates(rates, 0.5, Lanes::Unit::threads);
            compare(lanes, {480, 160}, name);
        } else if (view == "heat-map") {
            SliceValues slice;
            slice.rows = 16;
            slice.columns = 24;
            for (int i = 0; i < 16 * 24; ++i)
                slice.values.push_back((i % 24 - 12) * (i / 24 - 4) / 40.0);
            slice.values[100] = std::numeric_limits<double>::quiet_NaN();
            Heatmap map;
            map.setValues(std::move(slice), 0, 1);
            compare(map, {340, 260}, name);
        } else if (view == "mesh") {
            MeshView mesh;
            mesh.setPicture(MeshPicture::of(session->facts()));
            mesh.setSelected({9});
            compare(mesh, {480, 280}, name);
        } else if (view == "run-timeline") {
            // 24 saves in some 30 minutes each, newest first; a night between two of them, and other ranks
            // after it.
            std::vector<RunMark> marks;
            int64_t minutes = 0;
            for (int i = 1; i <= 24; ++i) {
                minutes += i == 14 ? 570 : 28 + i * 7 % 9;
                RunMark mark;
                mark.name = QStringLiteral("step-%1").arg(i * 250);
                mark.step = i * 250;
                mark.savedMs = (int64_t{1'730'500'000} + minutes * 60) * 1000;
                mark.bytes = uint64_t{1'000'000'000} * static_cast<uint64_t>(i == 20   ? 40
                                                                             : i == 24 ? 20
                                                                                       : 90);
                if (i < 23) mark.verdict = i == 20 ? Verdict::unsafe : i == 9 ? Verdict::care : Verdict::safe;
                mark.saving = i == 24;
                mark.newestWhole = i == 22;
                mark.ranks = i < 14 ? 64 : 63;
                mark.ranksBefore = i == 14 ? 64 : 0;
                marks.insert(marks.begin(), mark);
            }
            RunTimeline timeline;
            timeline.setMarks(std::move(marks), [](int) { return QString(); });
            timeline.setCurrent(4);
            timeline.setSelected({4, 15});
            compare(timeline, {900, 190}, name);
        } else {
            VerdictStrip strip(*session);
            session->validation().start(ValidateLevel::metadata);
            QTRY_VERIFY(session->validation().report() && !session->validation().running());
            compare(strip, {720, strip.heightForWidth(720)}, name);
        }
    }
};

SHARDSCOPE_GUI_TEST_MAIN(PicturesTest)
#include "pictures_test.moc"
