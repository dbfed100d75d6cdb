"""Writes the directory of a DCP save of Llama-3-8B with AdamW, as FSDP2 x TP of torchtitan saves it, without PyTorch and without its
100 GB: real names, shapes, dtypes, placement and file sizes; the data files are holes. Pictures, benchmarks and tests of the window
show a checkpoint of real size with it. What they keep is its index:

    make_llama_save.py DIR [--fsdp 8] [--tp 4] [--truncate RANK]     --truncate: the file of this rank ends after two thirds
    shardscope index DIR -o llama3-8b.ssidx
"""

import argparse
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench"))
import make_metadata as dcp  # noqa: E402

DIM, LAYERS, FFN, VOCABULARY, KEYS = 4096, 32, 14336, 128256, 1024
ZIP_BYTES = 1577  # what torch.save puts around one tensor

# Name: shape, and the dimension that TP shards (None: replicated over it).
LAYER = {
    "attention.wq": ((DIM, DIM), 0), "attention.wk": ((KEYS, DIM), 0), "attention.wv": ((KEYS, DIM), 0), "attention.wo": ((DIM, DIM), 1),
    "feed_forward.w1": ((FFN, DIM), 0), "feed_forward.w2": ((DIM, FFN), 1), "feed_forward.w3": ((FFN, DIM), 0),
    "attention_norm": ((DIM,), None), "ffn_norm": ((DIM,), None),
}


def parameters():
    yield "tok_embeddings.weight", (VOCABULARY, DIM), 0
    for layer in range(LAYERS):
        for name, (shape, dim) in LAYER.items():
            yield f"layers.{layer}.{name}.weight", shape, dim
    yield "norm.weight", (DIM,), None
    yield "output.weight", (VOCABULARY, DIM), 0


def chunks(shape, dim, fsdp, tp):
    """(rank, offsets, lengths): FSDP shards dimension 0 of what TP has left; replicas are saved by the first rank of TP."""
    for d in range(fsdp):
        for t in range(tp if dim is not None else 1):
            lengths, offsets = list(shape), [0] * len(shape)
            if dim is not None:
                lengths[dim] //= tp
                offsets[dim] = t * lengths[dim]
            lengths[0] //= fsdp
            offsets[0] += d * lengths[0]
            yield d * tp + t, tuple(offsets), tuple(lengths)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("--fsdp", type=int, default=8)
    parser.add_argument("--tp", type=int, default=4)
    parser.add_argument("--truncate", type=int)
    args = parser.parse_args()
    dcp.register()
    state, planner, storage, ends = {}, {}, {}, [0] * (args.fsdp * args.tp)

    def add(name, path, dtype, width, shape, dim):
        stored = list(chunks(shape, dim, args.fsdp, args.tp))
        state[name] = dcp.tensor(dtype, shape, [(offsets, lengths) for _, offsets, lengths in stored])
        planner[name] = path
        for i, (rank, offsets, lengths) in enumerate(stored):
            size = width
            for length in lengths:
                size *= length
            size += ZIP_BYTES
            storage[dcp.MetadataIndex(name, dcp.Size(offsets), i)] = dcp._StorageInfo(f"__{rank}_0.distcp", ends[rank], size)
            ends[rank] += size

    for name, shape, dim in parameters():
        add("model." + name, ("model", name), dcp.BFLOAT16, 2, shape, dim)
    for name, shape, dim in parameters():
        for moment in ("exp_avg", "exp_avg_sq"):
            add(f"optimizer.state.{name}.{moment}", ("optimizer", "state", name, moment), dcp.FLOAT32, 4, shape, dim)
    # What tells that the rest of `optimizer` is an optimizer's state; the values are holes, too.
    for name, _, _ in parameters():
        key = f"optimizer.param_groups.{name}.lr"
        state[key] = dcp.BytesStorageMetadata()
        planner[key] = ("optimizer", "param_groups", name, "lr")
        storage[dcp.MetadataIndex(key)] = dcp._StorageInfo("__0_0.distcp", ends[0], ZIP_BYTES)
        ends[0] += ZIP_BYTES
    os.makedirs(args.directory)
    dcp.write(os.path.join(args.directory, ".metadata"), state, planner, storage)
    for rank, end in enumerate(ends):
        with open(os.path.join(args.directory, f"__{rank}_0.distcp"), "wb") as file:
            file.truncate(end * 2 // 3 if rank == args.truncate else end)


if __name__ == "__main__":
    main()
