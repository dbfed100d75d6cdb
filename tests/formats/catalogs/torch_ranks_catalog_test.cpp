// What the opener makes of files of ranks: which rows of which DTensor are where in which file.
#include <QtTest>

#include "formats/torch_ranks/torch_ranks.h"
#include "support/catalog_lines.h"
#include "support/damaged_copy.h"

using namespace shardscope;
using namespace shardscope::test;

namespace {

Copy genuine(const std::string& name) {
    return Copy(caseOf("torch_ranks", name).path);
}

}  // namespace

class TorchRanksCatalogTest : public QObject {
    Q_OBJECT

  private slots:
    // Five rows on four ranks: torch.chunk gives the last one none. A plain tensor is on each rank.
    void eachRankHoldsTheRowsOfItsDTensors() {
        Copy copy = genuine("t2.15.0-fsdp2-w4-few-rows");
        QCOMPARE(catalogLines(copy.open(torchRanksFormat()),
                              "@(model.embed_tokens.weight|*up_proj.weight|*down_proj.weight|inv_freq)"),
                 stated(R"(
model.embed_tokens.weight float32 [5, 6] parameter
  rank 0 [0:2, 0:6]: rank0.pt 6560+48 -> 6656+48
  rank 1 [2:4, 0:6]: rank1.pt 6560+48 -> 6656+48
  rank 2 [4:5, 0:6]: rank2.pt 6560+48 -> 6656+24
model.layers.0.mlp.up_proj.weight float32 [2, 6] parameter
  rank 0 [0:1, 0:6]: rank0.pt 7848+24 -> 7936+24
  rank 1 [1:2, 0:6]: rank1.pt 7848+24 -> 7936+24
model.layers.0.mlp.down_proj.weight float32 [6, 2] parameter
  rank 0 [0:2, 0:2]: rank0.pt 7976+16 -> 8064+16
  rank 1 [2:4, 0:2]: rank1.pt 7976+16 -> 8064+16
  rank 2 [4:6, 0:2]: rank2.pt 7976+16 -> 8064+16
inv_freq float32 [4] buffer
  rank 0 [0:4]: rank0.pt 6422+16 -> 6528+16
  rank 1 [0:4]: rank1.pt 6422+16 -> 6528+16
  rank 2 [0:4]: rank2.pt 6422+16 -> 6528+16
  rank 3 [0:4]: rank3.pt 6422+16 -> 6528+16
)"));
    }

    void packedTensorsAreCutPartByPart() {
        Copy copy = genuine("t2.15.0-packed-tp-w2");
        QCOMPARE(catalogLines(copy.open(torchRanksFormat()), "*"), stated(R"(
q_proj.weight float32 [8, 6] parameter
  rank 0 [0:4, 0:6]: model_world_size_2_rank_0.pt 2838+96 -> 2944+96
  rank 1 [4:8, 0:6]: model_world_size_2_rank_1.pt 2838+96 -> 2944+96
experts.gate_up_proj float32 [2, 16, 6] parameter
  rank 0 [0:2, 0:4, 0:6]: model_world_size_2_rank_0.pt 3160+384 -> 3264+288 every [48, 6, 1]
  rank 0 [0:2, 8:12, 0:6]: model_world_size_2_rank_0.pt 3160+384 -> 3360+288 every [48, 6, 1]
  rank 1 [0:2, 4:8, 0:6]: model_world_size_2_rank_1.pt 3160+384 -> 3264+288 every [48, 6, 1]
  rank 1 [0:2, 12:16, 0:6]: model_world_size_2_rank_1.pt 3160+384 -> 3360+288 every [48, 6, 1]
qkv_proj.weight float32 [24, 6] parameter
  rank 0 [0:4, 0:6]: model_world_size_2_rank_0.pt 3664+288 -> 3776+96
  rank 0 [8:12, 0:6]: model_world_size_2_rank_0.pt 3664+288 -> 3872+96
  rank 0 [16:20, 0:6]: model_world_size_2_rank_0.pt 3664+288 -> 3968+96
  rank 1 [4:8, 0:6]: model_world_size_2_rank_1.pt 3664+288 -> 3776+96
  rank 1 [12:16, 0:6]: model_world_size_2_rank_1.pt 3664+288 -> 3872+96
  rank 1 [20:24, 0:6]: model_world_size_2_rank_1.pt 3664+288 -> 3968+96
in_proj.weight float32 [6, 16] parameter
  rank 0 [0:6, 0:4]: model_world_size_2_rank_0.pt 4080+192 -> 4160+176 every [8, 1]
  rank 0 [0:6, 8:12]: model_world_size_2_rank_0.pt 4080+192 -> 4176+176 every [8, 1]
  rank 1 [0:6, 4:8]: model_world_size_2_rank_1.pt 4080+192 -> 4160+176 every [8, 1]
  rank 1 [0:6, 12:16]: model_world_size_2_rank_1.pt 4080+192 -> 4176+176 every [8, 1]
)"));
    }

    // FSDP 2 x TP 2: both cut the rows of q_proj, of crossed each cuts an axis of its own.
    void axesOfAMeshCutOneAfterTheOther() {
        Copy copy = genuine("t2.15.0-packed-fsdp2-tp-w4");
        QCOMPARE(catalogLines(copy.open(torchRanksFormat()), "@(q_proj|crossed).weight"), stated(R"(
q_proj.weight float32 [8, 6] parameter
  rank 0 [0:2, 0:6]: model_world_size_4_rank_0.pt 5312+48 -> 5440+48
  rank 1 [4:6, 0:6]: model_world_size_4_rank_1.pt 5312+48 -> 5440+48
  rank 2 [2:4, 0:6]: model_world_size_4_rank_2.pt 5312+48 -> 5440+48
  rank 3 [6:8, 0:6]: model_world_size_4_rank_3.pt 5312+48 -> 5440+48
crossed.weight float32 [8, 8] parameter
  rank 0 [0:2, 0:2]: model_world_size_4_rank_0.pt 5840+64 -> 5952+24 every [4, 1]
  rank 0 [0:2, 4:6]: model_world_size_4_rank_0.pt 5840+64 -> 5960+24 every [4, 1]
  rank 0 [4:6, 0:2]: model_world_size_4_rank_0.pt 5840+64 -> 5984+24 every [4, 1]
  rank 0 [4:6, 4:6]: model_world_size_4_rank_0.pt 5840+64 -> 5992+24 every [4, 1]
  rank 1 [0:2, 2:4]: model_world_size_4_rank_1.pt 5840+64 -> 5952+24 every [4, 1]
  rank 1 [0:2, 6:8]: model_world_size_4_rank_1.pt 5840+64 -> 5960+24 every [4, 1]
  rank 1 [4:6, 2:4]: model_world_size_4_rank_1.pt 5840+64 -> 5984+24 every [4, 1]
  rank 1 [4:6, 6:8]: model_world_size_4_rank_1.pt 5840+64 -> 5992+24 every [4, 1]
  rank 2 [2:4, 0:2]: model_world_size_4_rank_2.pt 5840+64 -> 5952+24 every [4, 1]
  rank 2 [2:4, 4:6]: model_world_size_4_rank_2.pt 5840+64 -> 5960+24 every [4, 1]
  rank 2 [6:8, 0:2]: model_world_size_4_rank_2.pt 5840+64 -> 5984+24 every [4, 1]
  rank 2 [6:8, 4:6]: model_world_size_4_rank_2.pt 5840+64 -> 5992+24 every [4, 1]
  rank 3 [2:4, 2:4]: model_world_size_4_rank_3.pt 5840+64 -> 5952+24 every [4, 1]
  rank 3 [2:4, 6:8]: model_world_size_4_rank_3.pt 5840+64 -> 5960+24 every [4, 1]
  rank 3 [6:8, 2:4]: model_world_size_4_rank_3.pt 5840+64 -> 5984+24 every [4, 1]
  rank 3 [6:8, 6:8]: model_world_size_4_rank_3.pt 5840+64 -> 5992+24 every [4, 1]
)"));
    }

    void stridesAreThoseOfTheStorage() {
        Copy copy = genuine("t2.15.0-dtensor-kinds-w4");
        QCOMPARE(catalogLines(copy.open(torchRanksFormat()), "@(s2|s01|noncontig|view*|zero|scalar)"),
                 stated(R"(
s2 float32 [2, 3, 8] parameter
  rank 0 [0:2, 0:3, 0:2]: rank0.pt 9396+48 -> 9472+48
  rank 1 [0:2, 0:3, 2:4]: rank1.pt 9396+48 -> 9472+48
  rank 2 [0:2, 0:3, 4:6]: rank2.pt 9460+48 -> 9536+48
  rank 3 [0:2, 0:3, 6:8]: rank3.pt 9408+48 -> 9472+48
zero float32 [0, 3] parameter
  rank 0 [0:0, 0:3]: rank0.pt 9764+0 -> 9856+0
  rank 1 [0:0, 0:3]: rank1.pt 9764+0 -> 9856+0
  rank 2 [0:0, 0:3]: rank2.pt 9792+0 -> 9856+0
  rank 3 [0:0, 0:3]: rank3.pt 9728+0 -> 9792+0
scalar float32 [] parameter
  rank 0 []: rank0.pt 9856+4 -> 9920+4
  rank 1 []: rank1.pt 9856+4 -> 9920+4
  rank 2 []: rank2.pt 9856+4 -> 9920+4
  rank 3 []: rank3.pt 9792+4 -> 9856+4
s01 float32 [6, 10] parameter
  rank 0 [0:3, 0:5]: rank0.pt 9940+60 -> 10048+60
  rank 1 [0:3, 5:10]: rank1.pt 9940+60 -> 10048+60
  rank 2 [3:6, 0:5]: rank2.pt 9940+60 -> 10048+60
  rank 3 [3:6, 5:10]: rank3.pt 9876+60 -> 9984+60
)"));
    }

    void aMissingRankLeavesItsRowsOut() {
        Copy copy = genuine("t2.15.0-fsdp2-w4-few-rows");
        copy.files.erase("rank1.pt");
        QCOMPARE(catalogLines(copy.open(torchRanksFormat()), "@(model.norm.weight|inv_freq)"), stated(R"(
model.norm.weight float32 [6] parameter
  rank 0 [0:2]: rank0.pt 8344+8 -> 8448+8
  rank 2 [4:6]: rank2.pt 8344+8 -> 8448+8
inv_freq float32 [4] buffer
  rank 0 [0:4]: rank0.pt 6422+16 -> 6528+16
  rank 2 [0:4]: rank2.pt 6422+16 -> 6528+16
  rank 3 [0:4]: rank3.pt 6422+16 -> 6528+16
error file.missing rank1.pt
)"));
    }

    void aFileThatWasCutIsNamed() {
        Copy copy = genuine("t2.15.0-fsdp2-w4-few-rows");
        copy.files["rank2.pt"].resize(9000);
        QCOMPARE(catalogLines(copy.open(torchRanksFormat()), "@(model.norm.weight|inv_freq)"), stated(R"(
model.norm.weight float32 [6] parameter
  rank 0 [0:2]: rank0.pt 8344+8 -> 8448+8
  rank 1 [2:4]: rank1.pt 8344+8 -> 8448+8
inv_freq float32 [4] buffer
  rank 0 [0:4]: rank0.pt 6422+16 -> 6528+16
  rank 1 [0:4]: rank1.pt 6422+16 -> 6528+16
  rank 3 [0:4]: rank3.pt 6422+16 -> 6528+16
error meta.inconsistent rank2.pt
)"));
    }
};

QTEST_GUILESS_MAIN(TorchRanksCatalogTest)
#include "torch_ranks_catalog_test.moc"
