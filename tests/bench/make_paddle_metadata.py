"""Writes the metadata of a large distributed checkpoint with the classes of the installed Paddle, and as Paddle does it:
each rank's part goes through a pickle of its own (the gather), the parts are merged, the whole is saved by paddle.save.

    make_paddle_metadata.py DIRECTORY [--tensors 1536] [--ranks 1024] [--flat 4]

Every --flat'th tensor is flattened shards, as sharded optimizers have; 0: none. No data files are written. With the
environment paddle-new it is the metadata of 3.3, with paddle-old that of 3.0.
"""
import argparse
import gc
import importlib
import os
import pickle

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("GLOG_minloglevel", "2")
import paddle  # noqa: E402

try:
    classes = importlib.import_module("paddle.distributed.flex_checkpoint.dcp.metadata")
    FLEX = True
except ImportError:
    classes = importlib.import_module("paddle.distributed.checkpoint.metadata")
    FLEX = False

COLUMNS = 1024


def names(count):
    kinds = ["self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight", "self_attn.o_proj.weight",
             "mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight", "input_layernorm.weight"]
    states = ["", ".moment1_0", ".moment2_0", ".w_0"]
    for i in range(count):
        yield "model.layers.%d.%s%s" % (i // 32, kinds[i // 4 % 8], states[i % 4])


def rank_part(rank, ranks, keys, flat):
    """What one rank says of itself, as it comes out of the gather."""
    tensors, stored = {}, {}
    file = "%d_0.distcp" % rank
    rows = 4
    for i, key in enumerate(keys):
        flattened = FLEX and flat and i % flat == flat - 1
        if flattened:
            offset, shape = (0, 0), (ranks * rows, COLUMNS)
            part = (rank * rows * COLUMNS, (rank + 1) * rows * COLUMNS)
        else:
            offset, shape, part = (rank * rows, 0), (rows, COLUMNS), None
        dtype = "bfloat16" if i % 4 == 0 else "float32"
        if FLEX:
            tensors[key] = classes.LocalTensorMetadata(offset, shape, dtype, (ranks * rows, COLUMNS), flattened, part)
            stored[classes.LocalTensorIndex(key, offset, flattened, part, 0, shape)] = file
        else:
            tensors[key] = classes.LocalTensorMetadata(offset, shape, dtype)
            stored[classes.LocalTensorIndex(key, offset)] = file
    return pickle.loads(pickle.dumps(tensors)), pickle.loads(pickle.dumps(stored))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("--tensors", type=int, default=1536)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--flat", type=int, default=4)
    options = parser.parse_args()
    gc.disable()
    keys = list(names(options.tensors))
    metadata = classes.Metadata()
    metadata.state_dict_metadata, metadata.storage_metadata = {}, {}
    metadata.flat_mapping = {key: (key,) for key in keys}
    for rank in range(options.ranks):
        tensors, stored = rank_part(rank, options.ranks, keys, options.flat)
        for key, row in tensors.items():
            metadata.state_dict_metadata.setdefault(key, []).append(row)
        metadata.storage_metadata.update(stored)
    os.makedirs(options.directory, exist_ok=True)
    paddle.save(metadata, os.path.join(options.directory, "0.metadata"))


if __name__ == "__main__":
    main()
