"""What does not fit any machine: ten million chunks, ten terabytes (of holes). No peer: read_metadata() would take
minutes and 20 GiB for the former. Not part of a complete run, for the metadata alone takes 1.3 GiB on disk."""

import json
import os
import shutil
import struct
import subprocess
import sys

from measure import BIN, HERE, best, child, row

FILES, TENSORS = 1000, 10  # of 1 GiB


def make_holes(path):
    os.makedirs(path)
    places = {}
    for f in range(FILES):
        name = "model-%05d-of-%05d.safetensors" % (f + 1, FILES)
        tensors = ["model.layers.%d.mlp.w%d.weight" % (f, t) for t in range(TENSORS)]
        head = json.dumps({t: {"dtype": "F32", "shape": [16384, 16384], "data_offsets": [i << 30, (i + 1) << 30]}
                           for i, t in enumerate(tensors)}).encode()
        head += b" " * (-len(head) % 8)
        with open(os.path.join(path, name), "wb") as out:
            out.write(struct.pack("<Q", len(head)) + head)
            out.truncate(8 + len(head) + (TENSORS << 30))
        places.update(dict.fromkeys(tensors, name))
    with open(os.path.join(path, "model.safetensors.index.json"), "w") as out:
        json.dump({"metadata": {"total_size": FILES * TENSORS << 30}, "weight_map": places}, out)


def run(work):
    def measure(what, words, most_seconds, most_memory, times=3):
        seconds, rss, _ = best(times, lambda: child([BIN + "/shardscope", *words]))
        row(what + ": time", "%.2f s" % seconds, "", "", most_seconds)
        row(what + ": memory (whole process)", "%.0f MiB" % (rss / 2**20), "", "", most_memory)

    chunks = os.path.join(work, "metadata-10m")
    if not os.path.exists(os.path.join(chunks, ".metadata")):
        os.makedirs(chunks, exist_ok=True)
        subprocess.run([sys.executable, os.path.join(HERE, "make_metadata.py"), os.path.join(chunks, ".metadata"), "--tensors", "10240",
                        "--files"], check=True)
    measure("open .metadata of 10,485,760 chunks", ["info", chunks, "--json"], "<= 8 s", "<= 1024 MiB")
    measure("  validate --level metadata", ["validate", chunks, "--level", "metadata", "--json"], "", "")
    holes, records = os.path.join(work, "holes"), os.path.join(work, "records")
    if not os.path.exists(holes):
        make_holes(holes)
    measure("plan of 10 TB to DCP", ["plan", holes, os.path.join(work, "not-written"), "--to", "dcp"], "", "<= 512 MiB")
    shutil.rmtree(records, ignore_errors=True)
    measure("one of 1,000 parts of its digest", ["digest", holes, "--part", "417/1000", "--records", records], "", "<= 512 MiB",
            times=1)
    shutil.rmtree(records, ignore_errors=True)
