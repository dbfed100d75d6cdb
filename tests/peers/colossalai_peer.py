"""Directories written for ColossalAI, read by the loader of its pull request 6181: whole tensors and slices of them, bit for
bit. The file of that branch is fetched by packaging/peers; without it the test is skipped."""
import os
import sys
import tempfile
import traceback

from peercommon import cases, shardscope

import torch  # noqa: E402
from cailib import load_pr_file  # noqa: E402
from fixture_common import trec  # noqa: E402

TARGETS = [
    ("one rank", ["--variant", "distributed"]),
    ("one rank, .bin", ["--variant", "distributed-bin"]),
    ("two stages of three", ["--variant", "distributed", "--mesh", "pp=2,tp=3", "--shard", "*.weight:tp=0"]),
    ("four along dim 1, small shards", ["--variant", "distributed-bin", "--mesh", "tp=4", "--shard", "*.weight:tp=1", "--max-file-size", "1KiB"]),
]


def want(shape, begin=None, lengths=None):
    return {"offsets": begin or [0] * len(shape), "lengths": lengths or shape, "global_shape": shape}


def check(loader, source, words):
    with tempfile.TemporaryDirectory() as place:
        out = os.path.join(place, "out")
        report = shardscope("convert", source, out, "--to", "colossalai", "--weights-only", *words)
        left = {e["name"] for e in report["left_out"]}
        tensors = {t["name"]: t for t in shardscope("ls", source)["tensors"] if t["name"] not in left}
        digests = shardscope("digest", source, "--algorithm", "sha256")["tensors"]
        listed = loader.load_metadata(out)
        # Buffers stand in the weight files only, and their loader finds no piece of a scalar.
        tensors = {n: t for n, t in tensors.items() if n in listed and t["shape"]}
        compared = 0
        # The loader makes all of one call the dtype of the first.
        for dtype in sorted({t["dtype"] for t in tensors.values()}):
            names = [n for n, t in tensors.items() if t["dtype"] == dtype]
            whole = loader.load_dist_model({n: want(tensors[n]["shape"]) for n in names}, out)
            for name in names:
                record = trec(whole[name])
                assert record["dtype"] == dtype and record["shape"] == tensors[name]["shape"], name
                assert record["sha256"] == digests[name], "%r differs" % name
                compared += 1
                rows = tensors[name]["shape"][0]
                if rows % 2 == 0:
                    begin, lengths = [0] * len(tensors[name]["shape"]), list(tensors[name]["shape"])
                    begin[0] = lengths[0] = rows // 2
                    half = loader.load_dist_model({name: want(tensors[name]["shape"], begin, lengths)}, out)[name]
                    assert torch.equal(half.contiguous().view(torch.uint8), whole[name][rows // 2:].contiguous().view(torch.uint8)), name
        return compared


def main():
    top = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    file = os.path.join(os.environ.get("SHARDSCOPE_PEERS", os.path.join(top, "build/peers")), "colossalai-pull-6181/distributed_checkpoint_utils.py")
    if not os.path.exists(file):
        print("skipped: %s is missing; packaging/peers fetches it from ColossalAI's repository (refs/pull/6181/head)" % file)
        return 77
    loader = load_pr_file(file)
    failures = done = tensors = 0
    for family, only in (("colossalai", ""), ("dcp", "t2.15.0-fsdp2-adam"), ("paddle_dist", "v331_w2_1d"), ("safetensors", "hf-sharded")):
        for name, path, expected in cases(family, only):
            if "optim" in name or "fused" in name:
                continue
            for title, words in TARGETS:
                try:
                    tensors += check(loader, path, words)
                    done += 1
                except Exception as error:  # one failing case must not hide the others
                    failures += 1
                    print("FAIL %s/%s to %s: %s" % (family, name, title, error))
                    if not isinstance(error, AssertionError):
                        traceback.print_exc(limit=3)
    print("%d directories read by ColossalAI's loader, %d tensors equal, %d failures" % (done, tensors, failures))
    return 1 if failures or not tensors else 0


if __name__ == "__main__":
    sys.exit(main())
