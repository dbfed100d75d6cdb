"""Writes a DCP checkpoint of Llama-3-8B with AdamW as FSDP2 and tensor parallelism leave it: names, shapes and placement of a
real save, files of the right length without data (they take no room), and one rank's file truncated. For pictures and for
measuring; values are all zero.

    make_llama.py OUT [--dp 8] [--tp 4] [--layers 32] [--truncate RANK]
"""

import argparse
import math
import os
import pickle

import make_metadata as dcp

HIDDEN, INNER, VOCABULARY, KEY_VALUE = 4096, 14336, 128256, 1024
HEADER = 1577  # of an entry, before and after its data


def parameters(layers):
    """Name, shape and the dimension that tensor parallelism cuts (None = it does not)."""
    yield "tok_embeddings.weight", (VOCABULARY, HIDDEN), 0
    for layer in range(layers):
        at = f"layers.{layer}."
        yield at + "attention.wq.weight", (HIDDEN, HIDDEN), 0
        yield at + "attention.wk.weight", (KEY_VALUE, HIDDEN), 0
        yield at + "attention.wv.weight", (KEY_VALUE, HIDDEN), 0
        yield at + "attention.wo.weight", (HIDDEN, HIDDEN), 1
        yield at + "feed_forward.w1.weight", (INNER, HIDDEN), 0
        yield at + "feed_forward.w2.weight", (HIDDEN, INNER), 1
        yield at + "feed_forward.w3.weight", (INNER, HIDDEN), 0
        yield at + "attention_norm.weight", (HIDDEN,), None
        yield at + "ffn_norm.weight", (HIDDEN,), None
    yield "norm.weight", (HIDDEN,), None
    yield "output.weight", (VOCABULARY, HIDDEN), 0


def boxes(shape, cut, dp, tp):
    """What each rank stores: (rank, offsets, lengths). FSDP cuts dimension 0 of what a rank of tensor parallelism has; of equal
    parts the first rank's is stored."""
    for d in range(dp):
        for t in range(tp if cut is not None else 1):
            offsets, lengths = [0] * len(shape), list(shape)
            if cut is not None:
                lengths[cut] //= tp
                offsets[cut] = t * lengths[cut]
            lengths[0] //= dp
            offsets[0] += d * lengths[0]
            yield d * tp + t, tuple(offsets), tuple(lengths)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--dp", type=int, default=8)
    parser.add_argument("--tp", type=int, default=4)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--truncate", type=int, default=None)
    args = parser.parse_args()
    dtype = dcp.prepare()
    float32, bfloat16 = dtype("float32"), dtype("bfloat16")
    os.makedirs(args.out)
    ends = [0] * (args.dp * args.tp)
    state, planner, storage = {}, {}, {}
    wanted = [("model." + name, shape, cut, bfloat16, 2) for name, shape, cut in parameters(args.layers)]
    for moment in ("exp_avg", "exp_avg_sq"):
        wanted += [(f"optimizer.state.{name}.{moment}", shape, cut, float32, 4) for name, shape, cut in parameters(args.layers)]
    for name, shape, cut, kind, width in wanted:
        parts = list(boxes(shape, cut, args.dp, args.tp))
        state[name] = dcp.tensor(kind, shape, [part[1:] for part in parts])
        planner[name] = tuple(name.split("."))
        for i, (rank, offsets, lengths) in enumerate(parts):
            size = HEADER + math.prod(lengths) * width
            storage[dcp.MetadataIndex(name, dcp.Size(offsets), i)] = dcp._StorageInfo(f"__{rank}_0.distcp", ends[rank], size)
            ends[rank] += size
    for rank, end in enumerate(ends):
        with open(os.path.join(args.out, f"__{rank}_0.distcp"), "wb") as out:
            out.truncate(end // 2 if rank == args.truncate else end)
    with open(os.path.join(args.out, ".metadata"), "wb") as out:
        meta = dcp.StorageMeta("/data/llama3-8b/step-1000", "save", None, [])
        pickle.dump(dcp.Metadata(state, planner, storage, meta), out, protocol=4)


if __name__ == "__main__":
    main()
