"""Genuine checkpoints of every family, written as Paddle's distributed checkpoint and loaded by the real
paddle.distributed.load_state_dict, bit for bit; and what Paddle itself saves a moment ago, read by us."""
import argparse
import hashlib
import inspect
import os
import tempfile
import traceback

from peercommon import cases, converted, shardscope

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("GLOG_minloglevel", "2")
import numpy as np  # noqa: E402
import paddle  # noqa: E402
import paddle.distributed as dist  # noqa: E402

paddle.set_device("cpu")
FLEX = "safetensors" in inspect.signature(dist.load_state_dict).parameters
if not FLEX:
    paddle.Tensor.cuda = lambda self, *x, **k: self  # loaders before 3.2 move every target to a GPU

TARGETS = [
    ("whole", []),
    ("two axes", ["--mesh", "dp=2,tp=3", "--shard", "*weight*:tp=0,dp=1", "--shard", "*:dp=0", "--split", "paddle"]),
    ("uneven", ["--mesh", "x=4", "--shard", "*:x=0", "--split", "paddle"]),
]


def bits(tensor):
    array = np.ascontiguousarray(tensor.numpy())
    raw = array.tobytes()
    if str(tensor.dtype).endswith("bfloat16") and array.dtype.itemsize == 4:
        raw = (array.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    return hashlib.sha256(raw).hexdigest()


def load(path, tensors):
    """{name: tensor} as Paddle reads them into zeros."""
    state = {}
    for name, want in tensors.items():
        float8 = want["dtype"].startswith("float8")
        zeros = paddle.zeros(want["shape"], "uint8" if float8 else want["dtype"])
        state[name] = zeros.view(want["dtype"]) if float8 else zeros
    dist.load_state_dict(state, path)
    return state


def written(path, expected, words):
    """Converts, loads, compares; the number of tensors."""
    # What a user must state of a case: that fused projections are to be put in order.
    source = ["--variant", "fused-qkv=auto"] if "paddle_hybrid" in path and "fused" in path else []
    with tempfile.TemporaryDirectory() as place:
        out = os.path.join(place, "out")
        report = converted(path, out, expected, "--to", "paddle", "--variant", "3.3" if FLEX else "3.0", *source, *words)
        if not report:
            return 0
        want = {t["name"]: t for t in shardscope("ls", path, *source)["tensors"]}
        digests = shardscope("digest", path, "--algorithm", "sha256", *source)["tensors"]
        left = {entry["name"] for entry in report["left_out"]}
        # Parts of tensors that are not dense ("name#part") go with their tensor.
        want = {name: t for name, t in want.items() if name not in left and name.split("#")[0] not in left}
        if not want:
            return 0
        for name, tensor in load(out, want).items():
            # Paddle stores float8 as int8 and its assignment leaves that dtype: the bits are compared.
            dtype = str(tensor.dtype).split(".")[-1]
            assert dtype == want[name]["dtype"] or (dtype == "int8" and want[name]["dtype"].startswith("float8")), name
            assert list(tensor.shape) == want[name]["shape"], name
            assert bits(tensor) == digests[name], "%r differs" % name
        return len(want)


def saved_now():
    """Paddle saves, we read."""
    paddle.seed(7)
    state = {"model": {"w": paddle.rand([5, 7]), "b": paddle.rand([7]).astype("bfloat16")}, "n": paddle.arange(12)}
    with tempfile.TemporaryDirectory() as place:
        out = os.path.join(place, "ck")
        dist.save_state_dict(state, out)
        digests = shardscope("digest", out, "--algorithm", "sha256")["tensors"]
        flat = {"model.w": state["model"]["w"], "model.b": state["model"]["b"], "n": state["n"]}
        assert set(digests) == set(flat), digests
        for name, tensor in flat.items():
            assert digests[name] == bits(tensor), name
        assert shardscope("validate", out, "--level", "values")["verdict"] == "safe"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--families", default="paddle_dist,dcp,safetensors,torch_save")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    saved_now()
    failures = done = tensors = 0
    for family in options.families.split(","):
        for name, path, expected in cases(family, options.only):
            for title, words in TARGETS:
                try:
                    tensors += written(path, expected, words)
                    done += 1
                except Exception as error:  # one failing case must not hide the others
                    failures += 1
                    print("FAIL %s/%s %s: %s" % (family, name, title, error))
                    if not isinstance(error, AssertionError):
                        traceback.print_exc(limit=3)
    print("%d conversions loaded, %d tensors equal, %d failures" % (done, tensors, failures))
    return 1 if failures or not tensors else 0


if __name__ == "__main__":
    raise SystemExit(main())
