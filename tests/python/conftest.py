"""The genuine checkpoints, and a program of their framework beside the module under test."""
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


def genuine(name, *more):
    return str(DATA.joinpath("genuine", name, "ckpt", *more))


def sha256(data):
    return hashlib.sha256(data).hexdigest()


@pytest.fixture(scope="session")
def program():
    return os.environ["SHARDSCOPE"]
