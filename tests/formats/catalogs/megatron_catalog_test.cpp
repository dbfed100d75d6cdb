// What the opener makes of shards and of what ranks hold of fused tensors: which box is where in which file.
#include <QtTest>

#include "formats/megatron/megatron.h"
#include "support/catalog_lines.h"
#include "support/damaged_copy.h"

using namespace shardscope;
using namespace shardscope::test;

namespace {

Copy genuine(const std::string& name) {
    const std::string path = caseOf("megatron", name).path, iteration = path + "/iter_0000010";
    return Copy(std::filesystem::exists(iteration) ? iteration : path);
}

}  // namespace

class MegatronCatalogTest : public QObject {
    Q_OBJECT

  private slots:
    // Mamba's in_proj is [z | x | B | C | dt], of which each rank has its share.
    void fusedPartsOfRanksStandWhereTheyAreInTheWhole() {
        Copy copy = genuine("m0.16.1-hand-legacy-mamba-tp2");
        QCOMPARE(catalogLines(copy.open(megatronFormat()),
                              "*@(in_proj.weight|conv1d.weight|A_log|out_proj.weight)"),
                 stated(R"(
model.decoder.layers.0.mixer.in_proj.weight float32 [52, 8] parameter
  rank 0 [0:8, 0:8]: mp_rank_00/model_optim_rng.pt 2544+832 -> 2624+256
  rank 0 [16:24, 0:8]: mp_rank_00/model_optim_rng.pt 2544+832 -> 2880+256
  rank 0 [32:36, 0:8]: mp_rank_00/model_optim_rng.pt 2544+832 -> 3136+128
  rank 0 [40:44, 0:8]: mp_rank_00/model_optim_rng.pt 2544+832 -> 3264+128
  rank 0 [48:50, 0:8]: mp_rank_00/model_optim_rng.pt 2544+832 -> 3392+64
  rank 1 [8:16, 0:8]: mp_rank_01/model_optim_rng.pt 2544+832 -> 2624+256
  rank 1 [24:32, 0:8]: mp_rank_01/model_optim_rng.pt 2544+832 -> 2880+256
  rank 1 [36:40, 0:8]: mp_rank_01/model_optim_rng.pt 2544+832 -> 3136+128
  rank 1 [44:48, 0:8]: mp_rank_01/model_optim_rng.pt 2544+832 -> 3264+128
  rank 1 [50:52, 0:8]: mp_rank_01/model_optim_rng.pt 2544+832 -> 3392+64
model.decoder.layers.0.mixer.conv1d.weight float32 [32, 1, 4] parameter
  rank 0 [0:8, 0:1, 0:4]: mp_rank_00/model_optim_rng.pt 3472+256 -> 3584+128
  rank 0 [16:20, 0:1, 0:4]: mp_rank_00/model_optim_rng.pt 3472+256 -> 3712+64
  rank 0 [24:28, 0:1, 0:4]: mp_rank_00/model_optim_rng.pt 3472+256 -> 3776+64
  rank 1 [8:16, 0:1, 0:4]: mp_rank_01/model_optim_rng.pt 3472+256 -> 3584+128
  rank 1 [20:24, 0:1, 0:4]: mp_rank_01/model_optim_rng.pt 3472+256 -> 3712+64
  rank 1 [28:32, 0:1, 0:4]: mp_rank_01/model_optim_rng.pt 3472+256 -> 3776+64
model.decoder.layers.0.mixer.A_log float32 [4] parameter
  rank 0 [0:2]: mp_rank_00/model_optim_rng.pt 4048+8 -> 4160+8
  rank 1 [2:4]: mp_rank_01/model_optim_rng.pt 4048+8 -> 4160+8
model.decoder.layers.0.mixer.out_proj.weight float32 [8, 16] parameter
  rank 0 [0:8, 0:8]: mp_rank_00/model_optim_rng.pt 4592+256 -> 4672+256
  rank 1 [0:8, 8:16]: mp_rank_01/model_optim_rng.pt 4592+256 -> 4672+256
)"));
    }

    // The experts of a rank stand one after the other in one matrix.
    void groupedExpertsAreRangesOfTheirTensor() {
        Copy copy = genuine("m0.16.1-hand-legacy-grouped-ep2");
        QCOMPARE(catalogLines(copy.open(megatronFormat()), "*"), stated(R"(
model.embedding.word_embeddings.weight float32 [16, 8] parameter
  rank 0 [0:16, 0:8]: mp_rank_00_000/model_optim_rng.pt 1494+512 -> 1600+512
  rank 1 [0:16, 0:8]: mp_rank_00_001/model_optim_rng.pt 1494+512 -> 1600+512
model.decoder.final_layernorm.weight float32 [8] parameter
  rank 0 [0:8]: mp_rank_00_000/model_optim_rng.pt 2128+32 -> 2240+32
  rank 1 [0:8]: mp_rank_00_001/model_optim_rng.pt 2128+32 -> 2240+32
model.decoder.layers.0.mlp.experts.weight1 float32 [8, 48] parameter
  rank 0 [0:8, 0:48] elements 0..192: mp_rank_00_000/model_optim_rng.pt 2288+768 -> 2368+768
  rank 1 [0:8, 0:48] elements 192..384: mp_rank_00_001/model_optim_rng.pt 2288+768 -> 2368+768
model.decoder.layers.0.mlp.experts.weight2 float32 [24, 8] parameter
  rank 0 [0:24, 0:8] elements 0..96: mp_rank_00_000/model_optim_rng.pt 3152+384 -> 3264+384
  rank 1 [0:24, 0:8] elements 96..192: mp_rank_00_001/model_optim_rng.pt 3152+384 -> 3264+384
model.decoder.layers.0.mlp.router.weight float32 [4, 8] parameter
  rank 0 [0:4, 0:8]: mp_rank_00_000/model_optim_rng.pt 3664+128 -> 3776+128
  rank 1 [0:4, 0:8]: mp_rank_00_001/model_optim_rng.pt 3664+128 -> 3776+128
)"));
    }

    void flatRangesAreThoseOfABox() {
        Copy copy = genuine("m0.12.3-hand-flat");
        QCOMPARE(catalogLines(copy.open(megatronFormat()), "*"), stated(R"(
flat.v float32 [14] parameter
  rank 0 [0:7] elements 0..4: __0_1.distcp 2360+1180 -> 2808+16
  rank 1 [0:7] elements 4..7: __1_0.distcp 1180+1180 -> 1628+12
  rank 2 [7:14] elements 0..4: __2_1.distcp 2360+1180 -> 2808+16
  rank 3 [7:14] elements 4..7: __3_0.distcp 1180+1180 -> 1628+12
flat.m float32 [6, 5] parameter
  rank 0 [0:3, 0:5] elements 0..7: __0_1.distcp 0+1180 -> 448+28
  rank 1 [0:3, 0:5] elements 7..15: __1_0.distcp 0+1180 -> 448+32
  rank 2 [3:6, 0:5] elements 0..7: __2_1.distcp 0+1180 -> 448+28
  rank 3 [3:6, 0:5] elements 7..15: __3_0.distcp 0+1180 -> 448+32
flat.col float32 [4, 10] parameter
  rank 0 [0:4, 0:5] elements 0..13: __0_0.distcp 0+1180 -> 448+52
  rank 1 [0:4, 0:5] elements 13..20: __1_1.distcp 0+1180 -> 448+28
  rank 2 [0:4, 5:10] elements 0..13: __2_0.distcp 0+1180 -> 448+52
  rank 3 [0:4, 5:10] elements 13..20: __3_1.distcp 0+1180 -> 448+28
layers.flat float32 [2, 3, 4] parameter
  rank 0 [0:1, 0:3, 0:4] elements 0..5: __0_1.distcp 1180+1180 -> 1628+20
  rank 1 [0:1, 0:3, 0:4] elements 5..12: __1_1.distcp 1180+1180 -> 1628+28
  rank 2 [1:2, 0:3, 0:4] elements 0..5: __2_1.distcp 1180+1180 -> 1628+20
  rank 3 [1:2, 0:3, 0:4] elements 5..12: __3_1.distcp 1180+1180 -> 1628+28
)"));
    }

    void chunksOfZarrAreFiles() {
        Copy copy = genuine("m0.8.0-zarr-tp2pp2");
        QCOMPARE(catalogLines(copy.open(megatronFormat()), "@(*linear_fc2.weight|extra.fp32)"), stated(R"(
decoder.layers.mlp.linear_fc2.weight bfloat16 [2, 16, 16] parameter
  [0:1, 0:16, 0:8]: decoder.layers.mlp.linear_fc2.weight/0.0.0 0+256 -> 0+256
  [0:1, 0:16, 8:16]: decoder.layers.mlp.linear_fc2.weight/0.0.1 0+256 -> 0+256
  [1:2, 0:16, 0:8]: decoder.layers.mlp.linear_fc2.weight/1.0.0 0+256 -> 0+256
  [1:2, 0:16, 8:16]: decoder.layers.mlp.linear_fc2.weight/1.0.1 0+256 -> 0+256
extra.fp32 float32 [8, 3] parameter
  [0:2, 0:3]: extra.fp32/0.0 0+24 -> 0+24
  [2:4, 0:3]: extra.fp32/1.0 0+24 -> 0+24
  [4:6, 0:3]: extra.fp32/2.0 0+24 -> 0+24
  [6:8, 0:3]: extra.fp32/3.0 0+24 -> 0+24
)"));
    }

    void aMissingRankLeavesItsPartsOut() {
        Copy copy = genuine("m0.16.1-hand-legacy-mamba-tp2");
        copy.files.erase("mp_rank_01/model_optim_rng.pt");
        QCOMPARE(catalogLines(copy.open(megatronFormat()), "*@(conv1d.weight|A_log)"), stated(R"(
model.decoder.layers.0.mixer.conv1d.weight float32 [32, 1, 4] parameter
  rank 0 [0:8, 0:1, 0:4]: mp_rank_00/model_optim_rng.pt 3472+256 -> 3584+128
  rank 0 [16:20, 0:1, 0:4]: mp_rank_00/model_optim_rng.pt 3472+256 -> 3712+64
  rank 0 [24:28, 0:1, 0:4]: mp_rank_00/model_optim_rng.pt 3472+256 -> 3776+64
model.decoder.layers.0.mixer.A_log float32 [4] parameter
  rank 0 [0:2]: mp_rank_00/model_optim_rng.pt 4048+8 -> 4160+8
error file.missing mp_rank_01/model_optim_rng.pt
)"));
    }

    void aMissingChunkOfZarrIsTold() {
        Copy copy = genuine("m0.8.0-zarr-tp2pp2");
        copy.files.erase("extra.fp32/2.0");
        QCOMPARE(catalogLines(copy.open(megatronFormat()), "extra.fp32"), stated(R"(
extra.fp32 float32 [8, 3] parameter
  [0:2, 0:3]: extra.fp32/0.0 0+24 -> 0+24
  [2:4, 0:3]: extra.fp32/1.0 0+24 -> 0+24
  [6:8, 0:3]: extra.fp32/3.0 0+24 -> 0+24
error file.missing extra.fp32/2.0 extra.fp32
)"));
    }

    void aFileThatWasCutIsNamed() {
        Copy copy = genuine("m0.12.3-hand-flat");
        copy.files["__2_1.distcp"].resize(2000);
        QCOMPARE(catalogLines(copy.open(megatronFormat()), "flat.@(v|m)"), stated(R"(
flat.v float32 [14] parameter
  rank 0 [0:7] elements 0..4: __0_1.distcp 2360+1180 -> 2808+16
  rank 1 [0:7] elements 4..7: __1_0.distcp 1180+1180 -> 1628+12
  rank 2 [7:14] elements 0..4: __2_1.distcp 2360+1180 -> file.truncated
  rank 3 [7:14] elements 4..7: __3_0.distcp 1180+1180 -> 1628+12
flat.m float32 [6, 5] parameter
  rank 0 [0:3, 0:5] elements 0..7: __0_1.distcp 0+1180 -> 448+28
  rank 1 [0:3, 0:5] elements 7..15: __1_0.distcp 0+1180 -> 448+32
  rank 2 [3:6, 0:5] elements 0..7: __2_1.distcp 0+1180 -> 448+28
  rank 3 [3:6, 0:5] elements 7..15: __3_0.distcp 0+1180 -> 448+32
)"));
    }
};

QTEST_GUILESS_MAIN(MegatronCatalogTest)
#include "megatron_catalog_test.moc"
