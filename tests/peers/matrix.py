"""Every genuine checkpoint, converted to every format, loaded by the real framework and compared bit for bit."""
import argparse
import os
import tempfile
import traceback

from peerlib import cases, compare, converted, load

TARGETS = [
    ("dcp", "dcp", []),
    ("dcp resharded", "dcp", ["--mesh", "dp=2,tp=3", "--shard", "*weight*:tp=0,dp=1", "--shard", "*:dp=0"]),
    ("torch", "torch", []),
    ("safetensors", "safetensors", []),
    ("safetensors in small files", "safetensors", ["--max-file-size", "2KiB"]),
]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--family", required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--skip", default="nothing", help="cases with this in their name")
    options = parser.parse_args()
    failures = done = tensors = 0
    for name, path, expected in cases(options.family, options.only):
        if options.skip in name:
            continue
        for title, kind, words in TARGETS:
            with tempfile.TemporaryDirectory() as place:
                out = os.path.join(place, "out.pt" if kind == "torch" else "out")
                try:
                    report = converted(path, out, expected, "--to", kind, *words)
                    compared = 0
                    if report and (report["plan"]["tensors"] or report["plan"]["objects"]):
                        compared = compare(expected, load(kind, out), report)
                    done += 1
                    tensors += compared
                except Exception as error:  # one failing case must not hide the others
                    failures += 1
                    print("FAIL %s to %s: %s" % (name, title, error))
                    if not isinstance(error, AssertionError):
                        traceback.print_exc(limit=3)
    print("%d conversions loaded, %d tensors equal, %d failures" % (done, tensors, failures))
    return 1 if failures or not done else 0


if __name__ == "__main__":
    raise SystemExit(main())
