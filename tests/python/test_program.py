"""Which command line the package takes: the one that was installed with it."""
import importlib.util
import os
import shutil

import pytest

import shardscope._program


def installed(site):
    """The program that a package in this directory takes."""
    os.makedirs(site / "shardscope", exist_ok=True)
    shutil.copy(shardscope._program.__file__, site / "shardscope" / "_program.py")
    spec = importlib.util.spec_from_file_location("program_of_a_test", site / "shardscope" / "_program.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.program()


def executable(path):
    os.makedirs(path.parent, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def other(monkeypatch):
    monkeypatch.setenv("SHARDSCOPE", "/another/shardscope")


def test_the_installer_says_where_it_is(tmp_path, other):
    site = tmp_path / "lib" / "python3" / "site-packages"
    (site / "shardscope-1.0.dist-info").mkdir(parents=True)
    (site / "shardscope-1.0.dist-info" / "RECORD").write_text('shardscope/_program.py,,\n"../../../bin/shardscope",sha256=x,1\n')
    assert installed(site) == "/another/shardscope"  # it is not there
    program = executable(tmp_path / "bin" / "shardscope")
    assert installed(site) == program


def test_a_directory_of_its_own(tmp_path, other):
    program = executable(tmp_path / "bin" / "shardscope")  # pip install --target
    assert installed(tmp_path) == program


def test_without_one_it_is_that_of_the_environment(tmp_path, other, monkeypatch):
    assert installed(tmp_path) == "/another/shardscope"
    monkeypatch.delenv("SHARDSCOPE")
    monkeypatch.setenv("PATH", os.path.dirname(found := executable(tmp_path / "path" / "shardscope")))
    assert installed(tmp_path) == found
