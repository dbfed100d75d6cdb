// What the opener makes of an array's metadata, shardings and chunks: which device holds which box, and in
// which file it is.
#include <QtTest>

#include "formats/orbax/orbax.h"
#include "support/catalog_lines.h"
#include "support/damaged_copy.h"

using namespace shardscope;
using namespace shardscope::test;

namespace {

Copy genuine(const std::string& name) {
    return Copy(caseOf("orbax", name).path);
}

}  // namespace

class OrbaxCatalogTest : public QObject {
    Q_OBJECT

  private slots:
    // A small value stands in a node of the tree, which is compressed as a whole.
    void smallArraysAreInTheTreeItself() {
        Copy copy = genuine("o0.12.8-key-dots-slashes");
        QCOMPARE(catalogLines(copy.open(orbaxFormat()), "*"), stated(R"(
a.b.c float32 [2, 3] parameter
  [0:2, 0:3]: d/f99b71a645b9a960e884a085799ca3e0 0+33 -> 0+24
d/e.f float32 [3, 2] parameter
  [0:3, 0:2]: d/f99b71a645b9a960e884a085799ca3e0 0+33 -> 0+24
g.h.i/j float32 [4] parameter
  [0:4]: d/f99b71a645b9a960e884a085799ca3e0 0+25 -> 0+16
)"));
    }

    // Each process has files of its own; the array is cut along one axis of the mesh, or both.
    void largeChunksAreRangesOfAFile() {
        Copy copy = genuine("o0.12.8-procs2");
        QCOMPARE(catalogLines(copy.open(orbaxFormat()), "@(params.row|params.w)"), stated(R"(
params.row float32 [72, 48] parameter
  rank 0 [0:18, 0:48]: ocdbt.process_0/d/09f8211a330041e7c4b50d89212ea4c6 0+3237 -> 0+3456
  rank 1 [0:18, 0:48]: ocdbt.process_0/d/09f8211a330041e7c4b50d89212ea4c6 0+3237 -> 0+3456
  rank 0 [18:36, 0:48]: ocdbt.process_0/d/09f8211a330041e7c4b50d89212ea4c6 3237+3251 -> 0+3456
  rank 1 [18:36, 0:48]: ocdbt.process_0/d/09f8211a330041e7c4b50d89212ea4c6 3237+3251 -> 0+3456
  rank 2 [36:54, 0:48]: ocdbt.process_1/d/1a5060ebe9aeb77e451ecd75979dd46d 0+3258 -> 0+3456
  rank 3 [36:54, 0:48]: ocdbt.process_1/d/1a5060ebe9aeb77e451ecd75979dd46d 0+3258 -> 0+3456
  rank 2 [54:72, 0:48]: ocdbt.process_1/d/1a5060ebe9aeb77e451ecd75979dd46d 3258+3243 -> 0+3456
  rank 3 [54:72, 0:48]: ocdbt.process_1/d/1a5060ebe9aeb77e451ecd75979dd46d 3258+3243 -> 0+3456
params.w bfloat16 [64, 64] parameter
  rank 0 [0:32, 0:32]: ocdbt.process_0/d/09f8211a330041e7c4b50d89212ea4c6 6488+1643 -> 0+2048
  rank 1 [0:32, 32:64]: ocdbt.process_0/d/09f8211a330041e7c4b50d89212ea4c6 8131+1666 -> 0+2048
  rank 2 [32:64, 0:32]: ocdbt.process_1/d/1a5060ebe9aeb77e451ecd75979dd46d 6501+1661 -> 0+2048
  rank 3 [32:64, 32:64]: ocdbt.process_1/d/1a5060ebe9aeb77e451ecd75979dd46d 8162+1663 -> 0+2048
)"));
    }

    void chunksThatAreNotThereAreTheFillValue() {
        Copy copy = genuine("o0.5.16-files-zarr3-zeros");
        QCOMPARE(catalogLines(copy.open(orbaxFormat()), "*"), stated(R"(
full bfloat16 [8, 12] parameter
  rank 0 [0:4, 0:6]: full/c/0/0 0+77 -> 0+48
  rank 1 [0:4, 6:12]: full/c/0/1 0+77 -> 0+48
  rank 2 [4:8, 0:6]: full/c/1/0 0+77 -> 0+48
  rank 3 [4:8, 6:12]: full/c/1/1 0+77 -> 0+48
half float32 [8, 12] parameter
  rank 0 [0:4, 0:6]: half/zarr.json 0+0 -> 0+96
  rank 1 [0:4, 6:12]: half/zarr.json 0+0 -> 0+96
  rank 2 [4:8, 0:6]: half/c/1/0 0+125 -> 0+96
  rank 3 [4:8, 6:12]: half/c/1/1 0+125 -> 0+96
zeros float32 [8, 12] parameter
  rank 0 [0:4, 0:6]: zeros/zarr.json 0+0 -> 0+96
  rank 1 [0:4, 6:12]: zeros/zarr.json 0+0 -> 0+96
  rank 2 [4:8, 0:6]: zeros/zarr.json 0+0 -> 0+96
  rank 3 [4:8, 6:12]: zeros/zarr.json 0+0 -> 0+96
)"));
    }

    void processesWriteFilesOfTheirOwn() {
        Copy copy = genuine("o0.12.8-procs2-files-zarr3");
        QCOMPARE(catalogLines(copy.open(orbaxFormat()), "*"), stated(R"(
k bfloat16 [12, 8] parameter
  rank 0 [0:12, 0:2]: k/c/0/0 0+77 -> 0+48
  rank 1 [0:12, 2:4]: k/c/0/1 0+77 -> 0+48
  rank 2 [0:12, 4:6]: k/c/0/2 0+77 -> 0+48
  rank 3 [0:12, 6:8]: k/c/0/3 0+77 -> 0+48
rep float32 [6, 6] parameter
  rank 0 [0:6, 0:6]: rep/c/0/0 0+173 -> 0+144
  rank 1 [0:6, 0:6]: rep/c/0/0 0+173 -> 0+144
  rank 2 [0:6, 0:6]: rep/c/0/0 0+173 -> 0+144
  rank 3 [0:6, 0:6]: rep/c/0/0 0+173 -> 0+144
w float32 [32, 20] parameter
  rank 0 [0:8, 0:20]: w/c/0/0 0+670 -> 0+640
  rank 1 [8:16, 0:20]: w/c/1/0 0+670 -> 0+640
  rank 2 [16:24, 0:20]: w/c/2/0 0+670 -> 0+640
  rank 3 [24:32, 0:20]: w/c/3/0 0+670 -> 0+640
)"));
    }

    void aMissingChunkIsNoFillValue() {
        Copy copy = genuine("o0.12.8-procs2-files-zarr3");
        copy.files.erase("k/c/0/2");
        QCOMPARE(catalogLines(copy.open(orbaxFormat()), "k"), stated(R"(
k bfloat16 [12, 8] parameter
  rank 0 [0:12, 0:2]: k/c/0/0 0+77 -> 0+48
  rank 1 [0:12, 2:4]: k/c/0/1 0+77 -> 0+48
  rank 3 [0:12, 6:8]: k/c/0/3 0+77 -> 0+48
error file.missing k/c/0/2 k
)"));
    }

    void aDataFileThatWasCutIsNamed() {
        Copy copy = genuine("o0.12.8-procs2");
        copy.files["ocdbt.process_1/d/1a5060ebe9aeb77e451ecd75979dd46d"].resize(7000);
        QCOMPARE(catalogLines(copy.open(orbaxFormat()), "params.@(row|w)"), stated(R"(
params.row float32 [72, 48] parameter
  rank 0 [0:18, 0:48]: ocdbt.process_0/d/09f8211a330041e7c4b50d89212ea4c6 0+3237 -> 0+3456
  rank 1 [0:18, 0:48]: ocdbt.process_0/d/09f8211a330041e7c4b50d89212ea4c6 0+3237 -> 0+3456
  rank 0 [18:36, 0:48]: ocdbt.process_0/d/09f8211a330041e7c4b50d89212ea4c6 3237+3251 -> 0+3456
  rank 1 [18:36, 0:48]: ocdbt.process_0/d/09f8211a330041e7c4b50d89212ea4c6 3237+3251 -> 0+3456
  rank 2 [36:54, 0:48]: ocdbt.process_1/d/1a5060ebe9aeb77e451ecd75979dd46d 0+3258 -> 0+3456
  rank 3 [36:54, 0:48]: ocdbt.process_1/d/1a5060ebe9aeb77e451ecd75979dd46d 0+3258 -> 0+3456
  rank 2 [54:72, 0:48]: ocdbt.process_1/d/1a5060ebe9aeb77e451ecd75979dd46d 3258+3243 -> 0+3456
  rank 3 [54:72, 0:48]: ocdbt.process_1/d/1a5060ebe9aeb77e451ecd75979dd46d 3258+3243 -> 0+3456
params.w bfloat16 [64, 64] parameter
  rank 0 [0:32, 0:32]: ocdbt.process_0/d/09f8211a330041e7c4b50d89212ea4c6 6488+1643 -> 0+2048
  rank 1 [0:32, 32:64]: ocdbt.process_0/d/09f8211a330041e7c4b50d89212ea4c6 8131+1666 -> 0+2048
  rank 2 [32:64, 0:32]: ocdbt.process_1/d/1a5060ebe9aeb77e451ecd75979dd46d 6501+1661 -> file.truncated
  rank 3 [32:64, 32:64]: ocdbt.process_1/d/1a5060ebe9aeb77e451ecd75979dd46d 8162+1663 -> file.truncated
)"));
    }

    void aChunkThatWasCutIsNamed() {
        Copy copy = genuine("o0.12.8-procs2-files-zarr3");
        copy.files["w/c/1/0"].resize(300);
        QCOMPARE(catalogLines(copy.open(orbaxFormat()), "w"), stated(R"(
w float32 [32, 20] parameter
  rank 0 [0:8, 0:20]: w/c/0/0 0+670 -> 0+640
  rank 1 [8:16, 0:20]: w/c/1/0 0+300 -> meta.inconsistent
  rank 2 [16:24, 0:20]: w/c/2/0 0+670 -> 0+640
  rank 3 [24:32, 0:20]: w/c/3/0 0+670 -> 0+640
)"));
    }
};

QTEST_GUILESS_MAIN(OrbaxCatalogTest)
#include "orbax_catalog_test.moc"
