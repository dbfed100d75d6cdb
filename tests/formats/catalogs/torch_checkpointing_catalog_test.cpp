// What the opener makes of metadata.pkl and the items' files: which box of which tensor is where.
#include <QtTest>

#include "formats/torch_checkpointing/torch_checkpointing.h"
#include "support/catalog_lines.h"
#include "support/damaged_copy.h"

using namespace shardscope;
using namespace shardscope::test;

namespace {

Copy genuine(const std::string& name) {
    return Copy(caseOf("torch_checkpointing", name).path);
}

}  // namespace

class TorchCheckpointingCatalogTest : public QObject {
    Q_OBJECT

  private slots:
    void ranksOfAMeshHoldBoxes() {
        Copy copy = genuine("submesh");
        QCOMPARE(catalogLines(copy.open(torchCheckpointingFormat()), "*"), stated(R"(
model.w float32 [6, 6] parameter
  rank 0 [0:3, 0:3]: model_0.pt 2648+36 -> 2752+36
  rank 1 [0:3, 3:6]: model_1.pt 2648+36 -> 2752+36
  rank 2 [3:6, 0:3]: model_2.pt 2648+36 -> 2752+36
  rank 3 [3:6, 3:6]: model_3.pt 2648+36 -> 2752+36
model.norm float32 [5, 3] parameter
  rank 0 [0:3, 0:3]: model_0.pt 2390+36 -> 2496+36
  rank 1 [0:3, 0:3]: model_1.pt 2390+36 -> 2496+36
  rank 2 [3:5, 0:3]: model_2.pt 2390+24 -> 2496+24
  rank 3 [3:5, 0:3]: model_3.pt 2390+24 -> 2496+24
)"));
    }

    // Seven rows on three ranks; the item beside it is a file of torch.save.
    void itemsMayBeSafetensors() {
        Copy copy = genuine("fsdp3-safetensors");
        QCOMPARE(catalogLines(copy.open(torchCheckpointingFormat()),
                              "@(model.blocks.0.w|model.rep|model.head|optimizer.m)"),
                 stated(R"(
model.blocks.0.w bfloat16 [7, 6] parameter
  rank 0 [0:3, 0:6]: model/rank_0.safetensors 688+36 -> 688+36
  rank 1 [3:6, 0:6]: model/rank_1.safetensors 688+36 -> 688+36
  rank 2 [6:7, 0:6]: model/rank_2.safetensors 688+12 -> 688+12
model.rep float32 [4, 4] parameter
  rank 0 [0:4, 0:4]: model/rank_0.safetensors 600+64 -> 600+64
  rank 1 [0:4, 0:4]: model/rank_1.safetensors 600+64 -> 600+64
  rank 2 [0:4, 0:4]: model/rank_2.safetensors 600+64 -> 600+64
model.head float32 [6, 9] parameter
  rank 0 [0:6, 0:3]: model/rank_0.safetensors 528+72 -> 528+72
  rank 1 [0:6, 3:6]: model/rank_1.safetensors 528+72 -> 528+72
  rank 2 [0:6, 6:9]: model/rank_2.safetensors 528+72 -> 528+72
optimizer.m float32 [7, 6] optimizer
  rank 0 [0:3, 0:6]: optimizer_0.pt 1942+72 -> 2048+72
  rank 1 [3:6, 0:6]: optimizer_1.pt 1942+72 -> 2048+72
  rank 2 [6:7, 0:6]: optimizer_2.pt 1942+24 -> 2048+24
)"));
    }

    void ranksStandInTheOrderOfTheMesh() {
        Copy copy = genuine("shuffled2d");
        QCOMPARE(catalogLines(copy.open(torchCheckpointingFormat()), "*"), stated(R"(
model.s float32 [9, 3] parameter
  rank 0 [5:7, 0:3]: a/b/m_0.safetensors 128+24 -> 128+24
  rank 1 [7:9, 0:3]: a/b/m_1.safetensors 128+24 -> 128+24
  rank 2 [3:5, 0:3]: a/b/m_2.safetensors 128+24 -> 128+24
  rank 3 [0:3, 0:3]: a/b/m_3.safetensors 128+36 -> 128+36
model.w float32 [7, 5] parameter
  rank 0 [0:4, 3:5]: a/b/m_0.safetensors 152+32 -> 152+32
  rank 1 [4:7, 3:5]: a/b/m_1.safetensors 152+24 -> 152+24
  rank 2 [4:7, 0:3]: a/b/m_2.safetensors 152+36 -> 152+36
  rank 3 [0:4, 0:3]: a/b/m_3.safetensors 164+48 -> 164+48
)"));
    }

    void aMissingFileLeavesItsBoxOut() {
        Copy copy = genuine("submesh");
        copy.files.erase("model_2.pt");
        QCOMPARE(catalogLines(copy.open(torchCheckpointingFormat()), "*"), stated(R"(
model.w float32 [6, 6] parameter
  rank 0 [0:3, 0:3]: model_0.pt 2648+36 -> 2752+36
  rank 1 [0:3, 3:6]: model_1.pt 2648+36 -> 2752+36
  rank 3 [3:6, 3:6]: model_3.pt 2648+36 -> 2752+36
model.norm float32 [5, 3] parameter
  rank 0 [0:3, 0:3]: model_0.pt 2390+36 -> 2496+36
  rank 1 [0:3, 0:3]: model_1.pt 2390+36 -> 2496+36
  rank 3 [3:5, 0:3]: model_3.pt 2390+24 -> 2496+24
error file.missing model_2.pt
)"));
    }

    void aFileThatWasCutIsNamed() {
        Copy copy = genuine("fsdp3-safetensors");
        copy.files["model/rank_1.safetensors"].resize(600);
        QCOMPARE(catalogLines(copy.open(torchCheckpointingFormat()), "@(model.rep|model.head)"), stated(R"(
model.rep float32 [4, 4] parameter
  rank 0 [0:4, 0:4]: model/rank_0.safetensors 600+64 -> 600+64
  rank 1 [0:4, 0:4]: model/rank_1.safetensors 600+64 -> file.truncated
  rank 2 [0:4, 0:4]: model/rank_2.safetensors 600+64 -> 600+64
model.head float32 [6, 9] parameter
  rank 0 [0:6, 0:3]: model/rank_0.safetensors 528+72 -> 528+72
  rank 1 [0:6, 3:6]: model/rank_1.safetensors 528+72 -> 528+72
  rank 2 [0:6, 6:9]: model/rank_2.safetensors 528+72 -> 528+72
error file.truncated model/rank_1.safetensors
)"));
    }
};

QTEST_GUILESS_MAIN(TorchCheckpointingCatalogTest)
#include "torch_checkpointing_catalog_test.moc"
