"""The genuine checkpoints, and a program of their framework beside the module under test."""
import fnmatch
import hashlib
import json
import os
import pathlib

import pytest

DATA = pathlib.Path(os.environ["SHARDSCOPE_TEST_DATA"])


def cases(families=None):
    """(id, path to open, expected) of every genuine checkpoint."""
    for path in sorted((DATA / "genuine").glob("*/*/expected.json")):
        family = path.parent.parent.name
        if families is not None and family not in families:
            continue
        expected = json.loads(path.read_text(encoding="utf-8"))
        place = path.parent / "ckpt"
        if "file" in expected:
            place = place / expected["file"]
        yield f"{family}/{path.parent.name}", str(place), expected


def options_of(name):
    """What has to be stated to open a case; tests/data/README.md has the fields of shown.json."""
    family, case = name.split("/")
    file = DATA / "genuine" / family / "shown.json"
    stated = {}
    for entry in json.loads(file.read_text(encoding="utf-8")) if file.exists() else []:
        if "variant" in entry and fnmatch.fnmatchcase(case, entry["cases"]):
            stated["variant"] = entry["variant"]
    return stated


def genuine(name, *more):
    return str(DATA.joinpath("genuine", name, "ckpt", *more))


def sha256(data):
    return hashlib.sha256(data).hexdigest()


@pytest.fixture(scope="session")
def program():
    return os.environ["SHARDSCOPE"]
