// What the opener makes of states of the model and of partitions of the optimizer: which elements of which
// parameter are where in which file.
#include <QtTest>

#include "formats/deepspeed/deepspeed.h"
#include "support/catalog_lines.h"
#include "support/damaged_copy.h"

using namespace shardscope;
using namespace shardscope::test;

namespace {

Copy genuine(const std::string& name) {
    return Copy(caseOf("deepspeed", name).path);
}

}  // namespace

class DeepspeedCatalogTest : public QObject {
    Q_OBJECT

  private slots:
    // Weights are whole; a group of parameters in a row is cut into equal partitions.
    void partitionsOfZero2CutGroups() {
        Copy copy = genuine("z2_bf16_w4_tiny");
        QCOMPARE(catalogLines(copy.open(deepspeedFormat()), "@(c.w|c.b|optimizer.state.c.@(w|b).fp32)"),
                 stated(R"(
c.w bfloat16 [2, 3] parameter
  rank 0 [0:2, 0:3]: global_step3/mp_rank_00_model_states.pt 2336+16 -> 2434+12
c.b bfloat16 [2] parameter
  rank 0 [0:2]: global_step3/mp_rank_00_model_states.pt 2198+16 -> 2310+4
optimizer.state.c.w.fp32 float32 [2, 3] optimizer
  rank 0 [0:2, 0:3] elements 0..1: global_step3/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt 3352+8 -> 3460+4
  rank 1 [0:2, 0:3] elements 1..3: global_step3/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt 3288+8 -> 3392+8
  rank 2 [0:2, 0:3] elements 3..5: global_step3/bf16_zero_pp_rank_2_mp_rank_00_optim_states.pt 3288+8 -> 3392+8
  rank 3 [0:2, 0:3] elements 5..6: global_step3/bf16_zero_pp_rank_3_mp_rank_00_optim_states.pt 3224+8 -> 3328+4
optimizer.state.c.b.fp32 float32 [2] optimizer
  rank 1 [0:2] elements 0..1: global_step3/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt 3416+8 -> 3524+4
  rank 2 [0:2] elements 1..2: global_step3/bf16_zero_pp_rank_2_mp_rank_00_optim_states.pt 3416+8 -> 3520+4
)"));
    }

    // The weights are the masters of the optimizer; each partition is padded.
    void partitionsOfZero3CutEachParameter() {
        Copy copy = genuine("z3_fp32_w4_tiny");
        QCOMPARE(
            catalogLines(copy.open(deepspeedFormat()), "@(a.s|c.w|c.b|optimizer.state.c.@(w|b).exp_avg)"),
            stated(R"(
a.s float32 [] parameter
  rank 0 []: global_step3/zero_pp_rank_0_mp_rank_00_optim_states.pt 2348+28 -> 2436+4
c.w float32 [2, 3] parameter
  rank 0 [0:2, 0:3] elements 0..2: global_step3/zero_pp_rank_0_mp_rank_00_optim_states.pt 2348+28 -> 2448+8
  rank 1 [0:2, 0:3] elements 2..4: global_step3/zero_pp_rank_1_mp_rank_00_optim_states.pt 2348+28 -> 2448+8
  rank 2 [0:2, 0:3] elements 4..6: global_step3/zero_pp_rank_2_mp_rank_00_optim_states.pt 2348+28 -> 2448+8
c.b float32 [2] parameter
  rank 0 [0:2] elements 0..1: global_step3/zero_pp_rank_0_mp_rank_00_optim_states.pt 2348+28 -> 2456+4
  rank 1 [0:2] elements 1..2: global_step3/zero_pp_rank_1_mp_rank_00_optim_states.pt 2348+28 -> 2456+4
optimizer.state.c.w.exp_avg float32 [2, 3] optimizer
  rank 0 [0:2, 0:3] elements 0..2: global_step3/zero_pp_rank_0_mp_rank_00_optim_states.pt 2068+28 -> 2192+8
  rank 1 [0:2, 0:3] elements 2..4: global_step3/zero_pp_rank_1_mp_rank_00_optim_states.pt 2068+28 -> 2192+8
  rank 2 [0:2, 0:3] elements 4..6: global_step3/zero_pp_rank_2_mp_rank_00_optim_states.pt 2068+28 -> 2192+8
optimizer.state.c.b.exp_avg float32 [2] optimizer
  rank 0 [0:2] elements 0..1: global_step3/zero_pp_rank_0_mp_rank_00_optim_states.pt 2068+28 -> 2200+4
  rank 1 [0:2] elements 1..2: global_step3/zero_pp_rank_1_mp_rank_00_optim_states.pt 2068+28 -> 2200+4
)"));
    }

    void tensorParallelRanksCutAxes() {
        Copy copy = genuine("tp2_z0_fp32");
        QCOMPARE(catalogLines(copy.open(deepspeedFormat()),
                              "@(embed.word.weight|layers.0.dense.*|final_ln.calls|optimizer.state.layers.0."
                              "dense.weight.*)"),
                 stated(R"(
embed.word.weight float32 [12, 4] parameter
  rank 0 [0:6, 0:4]: global_step3/mp_rank_00_model_states.pt 3990+96 -> 4096+96
  rank 1 [6:12, 0:4]: global_step3/mp_rank_01_model_states.pt 3990+96 -> 4096+96
layers.0.dense.weight float32 [4, 6] parameter
  rank 0 [0:4, 0:3]: global_step3/mp_rank_00_model_states.pt 4520+48 -> 4608+48
  rank 1 [0:4, 3:6]: global_step3/mp_rank_01_model_states.pt 4520+48 -> 4608+48
layers.0.dense.bias float32 [4] parameter
  rank 0 [0:4]: global_step3/mp_rank_00_model_states.pt 4672+16 -> 4736+16
  rank 1 [0:4]: global_step3/mp_rank_01_model_states.pt 4672+16 -> 4736+16
final_ln.calls int64 [2] buffer
  rank 0 [0:2]: global_step3/mp_rank_00_model_states.pt 5024+16 -> 5120+16
optimizer.state.layers.0.dense.weight.step float32 [] optimizer
  rank 0 []: global_step3/mp_rank_00_model_states.pt 6568+4 -> 6656+4
  rank 1 []: global_step3/mp_rank_01_model_states.pt 6568+4 -> 6656+4
optimizer.state.layers.0.dense.weight.exp_avg float32 [4, 6] optimizer
  rank 0 [0:4, 0:3]: global_step3/mp_rank_00_model_states.pt 6676+48 -> 6784+48
  rank 1 [0:4, 3:6]: global_step3/mp_rank_01_model_states.pt 6676+48 -> 6784+48
optimizer.state.layers.0.dense.weight.exp_avg_sq float32 [4, 6] optimizer
  rank 0 [0:4, 0:3]: global_step3/mp_rank_00_model_states.pt 6848+48 -> 6976+48
  rank 1 [0:4, 3:6]: global_step3/mp_rank_01_model_states.pt 6848+48 -> 6976+48
info meta.inconsistent
)"));
    }

    void stagesHaveLayersOfTheirOwn() {
        Copy copy = genuine("pp2_z1_bf16opt");
        QCOMPARE(catalogLines(copy.open(deepspeedFormat()),
                              "@(tied_modules.embed|1.dense|3.dense|optimizer.state.3.dense).weight?(.fp32)"),
                 stated(R"(
tied_modules.embed.weight bfloat16 [4, 4] parameter
  rank 0 [0:4, 0:4]: global_step3/layer_00-model_states.pt 662+32 -> 768+32
1.dense.weight bfloat16 [4, 4] parameter
  rank 0 [0:4, 0:4]: global_step3/layer_01-model_states.pt 1064+32 -> 1152+32
3.dense.weight bfloat16 [4, 4] parameter
  rank 2 [0:4, 0:4]: global_step3/layer_03-model_states.pt 1064+32 -> 1152+32
optimizer.state.3.dense.weight.fp32 float32 [4, 4] optimizer
  rank 2 [0:4, 0:4]: global_step3/bf16_zero_pp_rank_0_mp_rank_01_optim_states.pt 2656+144 -> 2816+64
)"));
    }

    void universalStatesAreFilesOfAParameter() {
        Copy copy = genuine("uni_tp2_z1");
        QCOMPARE(catalogLines(copy.open(deepspeedFormat()),
                              "@(layers.0.dense|optimizer.state.layers.0.dense).weight*"),
                 stated(R"(
layers.0.dense.weight bfloat16 [4, 6] parameter
  rank 0 [0:4, 0:3]: global_step3_universal/mp_rank_00_model_states.pt 3094+160 -> 3308+24
  rank 1 [0:4, 3:6]: global_step3_universal/mp_rank_01_model_states.pt 3094+160 -> 3308+24
optimizer.state.layers.0.dense.weight.exp_avg float32 [4, 6] optimizer
  rank 0 [0:4, 0:6]: global_step3_universal/zero/layers.0.dense.weight/exp_avg.pt 662+96 -> 768+96
optimizer.state.layers.0.dense.weight.exp_avg_sq float32 [4, 6] optimizer
  rank 0 [0:4, 0:6]: global_step3_universal/zero/layers.0.dense.weight/exp_avg_sq.pt 662+96 -> 768+96
optimizer.state.layers.0.dense.weight.fp32 float32 [4, 6] optimizer
  rank 0 [0:4, 0:6]: global_step3_universal/zero/layers.0.dense.weight/fp32.pt 662+96 -> 768+96
optimizer.state.layers.0.dense.weight.step float32 [] optimizer
  rank 0 []: global_step3_universal/zero/layers.0.dense.weight/step.pt 598+4 -> 704+4
info meta.inconsistent
)"));
    }

    void aMissingPartitionLeavesItsElementsOut() {
        Copy copy = genuine("z3_fp32_w4_tiny");
        copy.files.erase("global_step3/zero_pp_rank_1_mp_rank_00_optim_states.pt");
        QCOMPARE(catalogLines(copy.open(deepspeedFormat()), "@(c.w|c.b)"), stated(R"(
c.w float32 [2, 3] parameter
  rank 0 [0:2, 0:3] elements 0..2: global_step3/zero_pp_rank_0_mp_rank_00_optim_states.pt 2348+28 -> 2448+8
  rank 2 [0:2, 0:3] elements 4..6: global_step3/zero_pp_rank_2_mp_rank_00_optim_states.pt 2348+28 -> 2448+8
c.b float32 [2] parameter
  rank 0 [0:2] elements 0..1: global_step3/zero_pp_rank_0_mp_rank_00_optim_states.pt 2348+28 -> 2456+4
error file.missing global_step3/zero_pp_rank_1_mp_rank_00_optim_states.pt
)"));
    }

    void aFileThatWasCutIsNamed() {
        Copy copy = genuine("tp2_z0_fp32");
        copy.files["global_step3/mp_rank_01_model_states.pt"].resize(5000);
        QCOMPARE(catalogLines(copy.open(deepspeedFormat()), "layers.0.dense.*"), stated(R"(
layers.0.dense.weight float32 [4, 6] parameter
  rank 0 [0:4, 0:3]: global_step3/mp_rank_00_model_states.pt 4520+48 -> 4608+48
layers.0.dense.bias float32 [4] parameter
  rank 0 [0:4]: global_step3/mp_rank_00_model_states.pt 4672+16 -> 4736+16
error meta.inconsistent global_step3/mp_rank_01_model_states.pt
info meta.inconsistent
error rank.missing global_step3/mp_rank_01_model_states.pt
)"));
    }
};

QTEST_GUILESS_MAIN(DeepspeedCatalogTest)
#include "deepspeed_catalog_test.moc"
