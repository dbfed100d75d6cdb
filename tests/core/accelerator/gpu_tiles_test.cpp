// The kernels for GPUs, run on the processor behind a driver that is none (fake_gpu.cpp): every bit as by the
// processor's own way, and every failure a sentence. And the same kernels through the real compiler.
#include <QTest>

#include "accelerator/gpu/gpu_driver.h"
#include "core/accelerator/tile_checks.h"

using namespace shardscope;
using namespace shardscope::test;

namespace {

DeviceSpec fakePlace() {
    DeviceSpec place;
    place.driver = SHARDSCOPE_FAKE_GPU_LIBRARY;
    place.compilers = {SHARDSCOPE_FAKE_GPU_LIBRARY};
    return place;
}

void pretend(const QString& what) {
    qputenv("SHARDSCOPE_FAKE_GPU", what.toUtf8());
}

}  // namespace

class GpuTilesTest : public QObject {
    Q_OBJECT

    std::unique_ptr<GpuTiles> gpu_;

  private slots:
    void initTestCase() {
        pretend("");
        auto opened = GpuTiles::open(fakePlace());
        QVERIFY2(opened.ok(), opened.ok() ? "" : opened.error().message.c_str());
        gpu_ = std::move(opened).value();
        QCOMPARE(gpu_->device(), std::string("a GPU on the processor"));
        QCOMPARE(gpu_->uuid(), std::string("000102030405060708090a0b0c0d0e0f"));
    }

    void casts() { QCOMPARE(differenceOfAll(*gpu_, 300'000), QString()); }
    void digests() { QCOMPARE(differenceOfDigests(*gpu_), QString()); }
    void cuts() { QCOMPARE(differenceOfCuts(*gpu_, 200), QString()); }

    void nothingToDo() {
        TileFacts facts;
        QVERIFY(gpu_->run({DType::float32, DType::float16, 0, true, {}, {}, {}}, facts).ok());
        QVERIFY(facts.cells.empty());
    }

    // Whichever call of the driver or the compiler fails, there is an error that says so, and the next tile
    // is none the worse.
    void failures() {
        const TileBytes bytes(3 << 20, std::byte{0x3f});
        bool went = false;
        for (int call = 1; call < 500 && !went; ++call) {
            pretend(QString("fail %1").arg(call));
            auto opened = GpuTiles::open(fakePlace());
            QString said;
            if (opened.ok())
                said = difference(**opened, DType::bfloat16, DType::float32, bytes, 5 << 18);
            else
                said = QString::fromStdString(opened.error().message);
            went = said.isEmpty();
            if (went) break;
            QVERIFY2(said.contains("CUDA error 700") || said.contains("NVRTC"), qPrintable(said));
            pretend("");
            if (opened.ok())
                QCOMPARE(difference(**opened, DType::bfloat16, DType::float32, bytes, 5 << 18), QString());
        }
        QVERIFY(went);
        pretend("");
    }

    void nothingThere() {
        DeviceSpec place = fakePlace();
        place.driver = "libcuda-that-is-not-there.so.1";
        auto opened = GpuTiles::open(place);
        QVERIFY(!opened.ok());
        QCOMPARE(opened.error().message, std::string("there is no driver for NVIDIA's GPUs here "
                                                     "(libcuda-that-is-not-there.so.1)"));
        QCOMPARE(exitCode(opened.error().code), 3);
        place = fakePlace();
        place.compilers = {"libnvrtc-that-is-not-there.so"};
        opened = GpuTiles::open(place);
        QVERIFY(!opened.ok());
        QVERIFY(opened.error().message.find("NVRTC") != std::string::npos);
        pretend("none");
        opened = GpuTiles::open(fakePlace());
        pretend("");
        QVERIFY(!opened.ok());
        QCOMPARE(opened.error().message,
                 std::string("could not start the driver of the GPUs: no CUDA-capable device "
                             "is detected (CUDA error 100)"));
        QCOMPARE(exitCode(opened.error().code), 3);
        // A library that is something else.
        place = fakePlace();
        place.driver = "libc.so.6";
        opened = GpuTiles::open(place);
        QVERIFY(!opened.ok() && opened.error().message.find("too old") != std::string::npos);
    }

    // Every program that a conversion may need, for a GPU of today, of the past and of the future.
    void realCompiler() {
        const auto compiler = GpuCompiler::open(SHARDSCOPE_NVRTC);
        if (!compiler.ok())
            QSKIP("NVRTC was not found: packaging/libtorch nccl gets it (libnvrtc.so of nvidia-cuda-nvrtc)");
        const int newest = compiler->capabilities().back();
        std::vector<std::pair<std::string, std::vector<int>>> programs{
            {digestProgram(), {80, 90, newest, newest + 7}}};
        for (const DType from : allDTypes()) {
            for (const DType to : allDTypes()) {
                if (from != to && !castSupported(from, to)) continue;
                const std::string text = castProgram(from, to);
                // Whatever is narrowed and whatever is widened, on one; the usual ones on all.
                const bool usual = (from == DType::bfloat16 && to == DType::float32) ||
                                   (from == DType::float32 && to == DType::bfloat16);
                const bool seen = std::any_of(programs.begin(), programs.end(),
                                              [&](const auto& each) { return each.first == text; });
                if (text.empty() || seen) continue;
                if (usual)
                    programs.push_back({text, {80, 90, newest, newest + 7}});
                else if (from == to || to == DType::float32 || from == DType::float32 ||
                         from == DType::float64)
                    programs.push_back({text, {90}});
            }
        }
        for (const auto& [text, capabilities] : programs) {
            for (const int capability : capabilities) {
                const auto compiled = compiler->compile(text, capability);
                QVERIFY2(compiled.ok(), compiled.ok() ? "" : compiled.error().message.c_str());
                QVERIFY2(compiled->log.empty(), compiled->log.c_str());
                QVERIFY(compiled->image.size() > 1000);
            }
        }
        const auto old = compiler->compile(digestProgram(), 35);
        QVERIFY(!old.ok() &&
                old.error().message.find("compute capability 3.5 is too old") != std::string::npos);
        const auto wrong = compiler->compile("not a program", 90);
        QVERIFY(!wrong.ok() && wrong.error().message.find("does not compile") != std::string::npos);
    }
};

QTEST_GUILESS_MAIN(GpuTilesTest)
#include "gpu_tiles_test.moc"
