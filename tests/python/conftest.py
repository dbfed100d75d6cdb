"""The genuine checkpoints, and a program of their framework beside the module under test."""
import fnmatch
import hashlib
import json
import os
import pathlib

import pytest

DATA = pathlib.Path(os.environ["SHARDSCOPE_TEST_DATA"])


def shown(family, case):
    """What shown.json says of a case (tests/data/README.md)."""
    file, merged = DATA / "genuine" / family / "shown.json", {}
    for entry in json.loads(file.read_text(encoding="utf-8")) if file.exists() else []:
        if fnmatch.fnmatchcase(case, entry["cases"]):
            merged.update(entry)
    return merged


def cases():
    """(id, path to open, expected) of every genuine checkpoint."""
    for path in sorted((DATA / "genuine").glob("*/*/expected.json")):
        family, case = path.parent.parent.name, path.parent.name
        expected = json.loads(path.read_text(encoding="utf-8"))
        place = path.parent / "ckpt" / expected.get("file", shown(family, case).get("open", ""))
        yield f"{family}/{case}", str(place), expected


def options_of(name):
    """What has to be stated to open a case."""
    said = shown(*name.split("/"))
    return {"variant": said["variant"]} if "variant" in said else {}


def genuine(name, *more):
    return str(DATA.joinpath("genuine", name, "ckpt", *more))


def sha256(data):
    return hashlib.sha256(data).hexdigest()


@pytest.fixture(scope="session")
def program():
    return os.environ["SHARDSCOPE"]
