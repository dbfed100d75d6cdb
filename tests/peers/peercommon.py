"""What all peer tests share, whatever framework they run in: the program and the genuine cases."""
import glob
import json
import os
import subprocess
import sys
import warnings

warnings.filterwarnings("ignore")
DATA = os.environ["SHARDSCOPE_TEST_DATA"]
PROGRAM = os.environ["SHARDSCOPE"]
sys.path.insert(0, os.path.join(DATA, "scripts"))


def shardscope(*words, expect=0):
    """Runs the program with --json; returns its document."""
    run = subprocess.run([PROGRAM, *words, "--json"], capture_output=True, text=True)
    if run.returncode != expect:
        raise AssertionError("%s: exit %d, not %d\n%s%s" % (" ".join(words), run.returncode, expect, run.stdout[-2000:], run.stderr[-2000:]))
    return json.loads(run.stdout)


def mapped(source, path, *words):
    """Converts through a recipe, which must know every weight."""
    unknown = shardscope("convert", source, path, *words)["unknown"]
    assert not unknown, "unknown to the recipe: %s" % unknown[:5]


def converted(path, out, expected, *words):
    """The report of a conversion of a case; None where nothing of it can be converted, which is refused.

    What is not a plain array is refused, too, until the user leaves it out."""
    left = ("--skip-damaged",) if expected.get("special") else ()
    if left:
        shardscope("convert", path, out, *words, expect=3)
    report = shardscope("convert", path, out, *words, *left, expect=0 if expected["tensors"] else 3)
    return report if expected["tensors"] else None


def cases(family, only=""):
    """(name, path to open, expected) of the undamaged genuine checkpoints."""
    wanted = [o for o in only.split(",") if o]
    for path in sorted(glob.glob(os.path.join(DATA, "genuine", family, "*", "expected.json"))):
        name = os.path.basename(os.path.dirname(path))
        if wanted and not any(o in name for o in wanted):
            continue
        with open(path, encoding="utf-8") as f:
            expected = json.load(f)
        # A paddle.save case with several files is several checkpoints.
        if expected["format"] == "paddle_save" and len(os.listdir(os.path.join(os.path.dirname(path), "ckpt"))) > 1:
            continue
        if "findings" in expected and not name.endswith(("-inf", "-nan-block")):
            continue
        place = os.path.join(os.path.dirname(path), "ckpt")
        yield name, os.path.join(place, expected["file"]) if "file" in expected else place, expected
