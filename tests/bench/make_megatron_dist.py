"""Writes what Megatron-Core saves of a bf16 model with a distributed optimizer (fully_reshardable) on TP2 x PP2 x DP2: make_megatron_dist.py
DIRECTORY GIB. The ranks are gloo processes; their shards are those of a GPTModel, without one. Needs torch and megatron-core."""
import math
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../peers"), os.path.join(HERE, "../data/scripts")]
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import ranklib

ranklib.cuda_stubs()
import megatron_on_cpu
from megatron.core import dist_checkpointing
from megatron.core.dist_checkpointing.mapping import ShardedTensor

TP, PP, DP, WIDTH, FFN, VOCAB = 2, 2, 2, 1024, 4096, 16384
# Shape of one layer's parameter, and along which dimension tensor-parallel ranks cut it.
LAYER = {"self_attention.linear_qkv.weight": ((3 * WIDTH, WIDTH), 0), "self_attention.linear_proj.weight": ((WIDTH, WIDTH), 1),
         "self_attention.linear_qkv.layer_norm_weight": ((WIDTH,), None), "mlp.linear_fc1.layer_norm_weight": ((WIDTH,), None),
         "mlp.linear_fc1.weight": ((2 * FFN, WIDTH), 0), "mlp.linear_fc2.weight": ((WIDTH, FFN), 1)}
place, gib = sys.argv[1], float(sys.argv[2])
of_layer = sum(math.prod(shape) for shape, _ in LAYER.values())
layers = max(PP, round((gib * 2**30 / 14 - 2 * VOCAB * WIDTH) / of_layer / PP) * PP)


def save(rank, rendezvous):
    dist.init_process_group("gloo", init_method="file://" + rendezvous, rank=rank, world_size=TP * PP * DP)
    tp, dp, pp = rank % TP, rank // TP % DP, rank // TP // DP
    block = torch.empty(1 << 20).normal_(generator=torch.Generator().manual_seed(rank))
    shards = {}

    def add(key, shape, axis, layer=None, replica=0):
        local = list(shape)
        cuts = [] if layer is None else [(0, layer, layers)]
        if axis is not None:
            local[axis] //= TP
            cuts.append((axis + len(cuts), tp, TP))
        # Only the main replica is saved: the others have no values.
        for name, dtype in [(key, torch.bfloat16)] + [("optimizer.state.%s.%s" % (k, key), torch.float32) for k in ("param", "exp_avg", "exp_avg_sq")]:
            data = torch.empty(local, dtype=dtype)
            if dp == 0 and not replica:
                flat = data.view(-1)
                for at in range(0, flat.numel(), block.numel()):
                    flat[at:at + block.numel()] = block[:flat.numel() - at]
            pieces = [(data, cuts)]
            if "linear_fc1.weight" in key:  # gate and up projection are apart in the whole tensor
                pieces = [(data[h * (local[0] // 2):(h + 1) * (local[0] // 2)], cuts[:-1] + [(1, h * TP + tp, 2 * TP)]) for h in range(2)]
            shards[name, layer] = [ShardedTensor.from_rank_offsets(name, part, *where, replica_id=(0, replica, dp), prepend_axis_num=0 if layer is None else 1)
                                   for part, where in pieces]

    for layer in range(layers // PP * pp, layers // PP * (pp + 1)):
        for key, (shape, axis) in LAYER.items():
            add("decoder.layers." + key, shape, axis, layer, tp if axis is None else 0)
    if pp == 0:
        add("embedding.word_embeddings.weight", (VOCAB, WIDTH), 0)
    if pp == PP - 1:
        add("output_layer.weight", (VOCAB, WIDTH), 0)
        add("decoder.final_layernorm.weight", (WIDTH,), None, None, tp)
    state = {str(i): shard for i, shard in enumerate(shards.values())}
    dist_checkpointing.save(dict(state, iteration=10, checkpoint_version=3.0), place)
    dist.barrier()
    megatron_on_cpu.leave()
    os._exit(0)


if __name__ == "__main__":
    os.makedirs(place, exist_ok=True)
    with tempfile.TemporaryDirectory() as meeting:
        ranks = [mp.get_context("fork").Process(target=save, args=(rank, os.path.join(meeting, "r"))) for rank in range(TP * PP * DP)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
        raise SystemExit(any(rank.exitcode for rank in ranks))
