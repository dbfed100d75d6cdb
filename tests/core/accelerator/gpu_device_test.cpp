// The kernels on a real GPU. Skipped where there is none.
#include <QTest>

#include "core/accelerator/tile_checks.h"

using namespace shardscope;
using namespace shardscope::test;

class GpuDeviceTest : public QObject {
    Q_OBJECT

    std::unique_ptr<GpuTiles> gpu_;

  private slots:
    void initTestCase() {
        DeviceSpec place;
        place.compilers = SHARDSCOPE_NVRTC;
        auto opened = GpuTiles::open(place);
        if (!opened.ok()) QSKIP(("no GPU: " + opened.error().message).c_str());
        gpu_ = std::move(opened).value();
        qInfo("on %s", gpu_->device().c_str());
    }
    void casts() { QCOMPARE(differenceOfAll(*gpu_, 20'000'000), QString()); }
    void digests() { QCOMPARE(differenceOfDigests(*gpu_), QString()); }
    void cuts() { QCOMPARE(differenceOfCuts(*gpu_, 500), QString()); }
};

QTEST_GUILESS_MAIN(GpuDeviceTest)
#include "gpu_device_test.moc"
