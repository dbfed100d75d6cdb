"""Writes Orbax checkpoints of bfloat16 in OCDBT with zarr 2: make_orbax.py DIRECTORY GIB for 64 large arrays on 4 x 2 simulated devices, as Orbax saves them, or
make_orbax.py DIRECTORY many for 10,000 small ones, each cut in 16 x 16 for as many devices. Orbax takes long for these: their database is written by tensorstore at
once, with the files of metadata that Orbax writes beside it. Needs jax and orbax-checkpoint."""
import base64
import json
import os
import sys

place, size = os.path.abspath(sys.argv[1]), sys.argv[2]
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"


def large():
    import jax
    import ml_dtypes
    import numpy as np
    import orbax.checkpoint as ocp
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("fsdp", "tp"))
    rows = int(float(size) * 2**30 / 64 / 2 / 4096)
    base = np.random.default_rng(0).standard_normal((rows, 4096), dtype=np.float32).astype(ml_dtypes.bfloat16)
    arrays = {"layers_%d" % i: {"kernel": jax.device_put(np.roll(base, i, 0), NamedSharding(mesh, P("fsdp", "tp")))} for i in range(64)}
    ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=True, use_zarr3=False)).save(place, args=ocp.args.PyTreeSave({"params": arrays}))


def many(arrays=10000, cut=16):
    import tensorstore as ts
    os.makedirs(place)
    store = ts.KvStore.open({"driver": "ocdbt", "base": "file://" + place + "/", "config": {"max_inline_value_bytes": 1024}}).result()
    about = json.dumps({"chunks": [4, 4], "compressor": None, "dimension_separator": ".", "dtype": "bfloat16", "fill_value": None, "filters": None,
                        "order": "C", "shape": [4 * cut, 4 * cut], "zarr_format": 2})
    mesh = [[{"id": cut * i + j} for j in range(cut)] for i in range(cut)]
    sharding = json.dumps({"sharding_type": "NamedSharding", "shape": [cut, cut], "axis_names": ["fsdp", "tp"], "axis_types": ["Auto", "Auto"],
                           "partition_spec": ["fsdp", "tp"], "device_mesh": {"mesh": mesh}})
    tree, placement = {}, {}
    with ts.Transaction() as transaction:
        into = store.with_transaction(transaction)
        for a in range(arrays):
            keys = ("params", "layers_%d" % a, "kernel")
            name = ".".join(keys)
            into[name + "/.zarray"] = about
            for i in range(cut):
                for j in range(cut):
                    into["%s/%d.%d" % (name, i, j)] = bytes(32)
            tree[str(keys)] = {"key_metadata": [{"key": key, "key_type": 2} for key in keys],
                               "value_metadata": {"value_type": "jax.Array", "skip_deserialize": False, "write_shape": [4, 4]}}
            placement[base64.b64encode(name.encode()).decode()] = sharding
    for file, value in (("_METADATA", {"tree_metadata": tree, "use_ocdbt": True, "use_zarr3": False, "store_array_data_equal_to_fill_value": True, "custom_metadata": None}),
                        ("_sharding", placement), ("_CHECKPOINT_METADATA", {"item_handlers": None, "init_timestamp_nsecs": 1, "commit_timestamp_nsecs": 2})):
        with open(os.path.join(place, file), "w", encoding="utf-8") as out:
            json.dump(value, out)
    open(os.path.join(place, "commit_success.txt"), "w", encoding="utf-8").close()


many() if size == "many" else large()
