"""Against torch's own converters and readers: dcp_to_torch_save and torch_save_to_dcp on both sides, and sharded
safetensors through HuggingFaceStorageReader."""
import os
import tempfile

import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save, torch_save_to_dcp

from peerlib import cases, compare, load, shardscope
from check_with_torch import flatten_plain
from fixture_common import trec


def equal(a, b, what):
    assert set(a) == set(b), (what, set(a) ^ set(b))
    for name, value in a.items():
        if isinstance(value, torch.Tensor):
            assert trec(value) == trec(b[name]), (what, name)
        else:
            assert value == b[name] or repr(value) == repr(b[name]), (what, name, value, b[name])


def main():
    picked = "t2.15.0-fsdp2-adam,t2.15.0-fsdp2-tp,t2.6.0-hsdp,t2.4.1-standard"
    for name, path, expected in cases("dcp", picked):
        with tempfile.TemporaryDirectory() as place:
            # the same file as torch's own converter makes, nesting and objects included
            theirs, ours = os.path.join(place, "theirs.pt"), os.path.join(place, "ours.pt")
            dcp_to_torch_save(path, theirs)
            shardscope("convert", path, ours, "--to", "torch")
            equal(dict(flatten_plain(torch.load(theirs, weights_only=False))), dict(flatten_plain(torch.load(ours, weights_only=True))), name)
            # our DCP through torch's converter
            again = os.path.join(place, "dcp")
            shardscope("convert", ours, again, "--to", "dcp", "--mesh", "tp=2", "--shard", "*:tp=0")
            back = os.path.join(place, "back.pt")
            dcp_to_torch_save(again, back)
            equal(dict(flatten_plain(torch.load(theirs, weights_only=False))), dict(flatten_plain(torch.load(back, weights_only=False))), name + " back")
            # torch's DCP of our torch.save
            made = os.path.join(place, "made")
            torch_save_to_dcp(ours, made)
            digests = shardscope("digest", made, "--algorithm", "sha256")["tensors"]
            for tensor, want in expected["tensors"].items():
                assert digests[tensor] == want["sha256"], (name, tensor)
            # sharded safetensors for torch's reader
            sharded = os.path.join(place, "sharded")
            report = shardscope("convert", path, sharded, "--to", "safetensors", "--mesh", "tp=2", "--shard", "*weight:tp=0")
            compared = compare(expected, load("dcp_hf", sharded), report)
            print("%s: %d tensors" % (name, compared))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
